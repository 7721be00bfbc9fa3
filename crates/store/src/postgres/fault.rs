//! What an error of the server says about what happened. Everything rests on this: what may have happened is never
//! called undone, and what was rolled back is never called unknown for good.
//! Never looks at the wording of a message. Called wherever a statement has failed.

use std::error::Error as _;

use tokio_postgres::error::{Error as ServerError, SqlState};

use crate::Error;

/// Why there is no answer: the server has none, or what it answered cannot be used.
pub(super) enum Failed {
    Server(ServerError),
    Store(Error),
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failed {
    /// Whether others were in the way; it was then rolled back.
    pub(super) fn contention(&self) -> Option<Contention> {
        match self {
            Self::Server(error) => contention(error),
            Self::Store(_) => None,
        }
    }

    /// The outcome of a commit that failed with this.
    pub(super) fn of_commit(self) -> Error {
        match self {
            Self::Server(error) => of_commit(&error),
            Self::Store(error) => error,
        }
    }

    /// The outcome where nothing was asked to last yet, so that nothing does.
    pub(super) fn of_nothing(self) -> Error {
        match self {
            Self::Server(error) => of_read(&error),
            Self::Store(error) => error,
        }
    }
}

/// Whether the connection leads to a server that cannot write, such as a primary that was demoted.
pub(super) fn read_only(error: &ServerError) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Why a transaction was undone although nothing is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contention {
    /// It lost against another one. At once it may win.
    Lost,
    /// Another transaction holds a row and does not let go.
    Blocked,
}

fn contention(error: &ServerError) -> Option<Contention> {
    match error.code()? {
        code if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            Some(Contention::Lost)
        }
        code if *code == SqlState::LOCK_NOT_AVAILABLE => Some(Contention::Blocked),
        _ => None,
    }
}

/// The outcome of a commit that failed with this. A server that names an error has rolled back, unless the error is about
/// the server or the connection itself; with no answer at all nobody knows.
fn of_commit(error: &ServerError) -> Error {
    match error.code() {
        Some(code) if proves_rollback(code) => Error::NotApplied(told(error)),
        _ => Error::Unknown(told(error)),
    }
}

/// A statement that only reads changes nothing, whatever became of it.
pub(super) fn of_read(error: &ServerError) -> Error {
    Error::NotApplied(told(error))
}

// Class 08 is the connection, 57P0x a server that goes down, 58 its machine, XX its own defects; 40003 says in words that
// nobody knows. A crash may come after the commit was written, so none of them proves anything.
fn proves_rollback(code: &SqlState) -> bool {
    let code = code.code();
    !(["08", "58", "XX"].iter().any(|class| code.starts_with(class)) || code.starts_with("57P") || code == "40003")
}

/// The error with its cause, for people.
pub(super) fn told(error: &ServerError) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(server), _) => format!("PostgreSQL: {} ({})", server.message(), server.code().code()),
        (None, Some(cause)) => format!("PostgreSQL: {error}: {cause}"),
        (None, None) => format!("PostgreSQL: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_statement_itself_proves_that_nothing_happened() {
        for code in ["40001", "40P01", "57014", "25006", "23505", "53100", "55P03", "42501"] {
            assert!(proves_rollback(&SqlState::from_code(code)), "{code}");
        }
        for code in ["57P01", "57P02", "57P03", "08006", "40003", "58030", "XX000"] {
            assert!(!proves_rollback(&SqlState::from_code(code)), "{code}");
        }
    }
}
