//! Judges from a server's error whether a commit happened. Never calls a commit undone that may have happened, and
//! never leaves one unknown for good that was rolled back.
//! Never looks at the wording of a message. Called wherever a statement has failed.

use std::error::Error as _;

use tokio_postgres::error::{Error as ServerError, SqlState};

use crate::Error;

/// Why there is no result: the server or the connection failed, or the answer cannot be used.
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
    /// Whether other transactions caused it; the transaction was then rolled back.
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

    /// The outcome where no commit was sent yet: nothing has happened.
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
    /// It lost a serialization conflict or a deadlock; a retry at once may win.
    Lost,
    /// Another transaction held a row for longer than the lock timeout.
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

/// The outcome of a commit that failed with this. A server that names an error has rolled back, unless the error is
/// about the server or the connection itself; without an answer the outcome is unknown.
fn of_commit(error: &ServerError) -> Error {
    match error.code() {
        Some(code) if proves_rollback(code) => Error::NotApplied(told(error)),
        _ => Error::Unknown(told(error)),
    }
}

/// A statement that only reads changes nothing, whatever its outcome.
pub(super) fn of_read(error: &ServerError) -> Error {
    Error::NotApplied(told(error))
}

// Class 08 is the connection, 57P0x a server that goes down, 58 its machine, XX its own defects; 40003 is the code for
// an unknown outcome. A crash may come after the commit was written, so none of them proves a rollback.
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
