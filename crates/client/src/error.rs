//! Why there is no outcome: the server's problem document, or what became of the requests.
//! Never hides whether something may have happened: that is what the caller must know.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, header};

use crate::{Done, json::Object, retry};

/// A refusal as the server wrote it (RFC 9457).
#[derive(Clone, Debug)]
pub struct Problem {
    /// The status.
    pub status: u16,
    /// The stable code, such as `conflict`; empty where the answer is not one of Fencepost's.
    pub code: String,
    /// A sentence for a person.
    pub detail: String,
    /// What to look for in the server's log.
    pub trace_id: Option<String>,
    /// On a conflict of two JSON bodies: the RFC 6902 patch from the first to this one, as JSON text.
    pub diff: Option<String>,
    /// When to come back.
    pub retry_after: Option<Duration>,
    members: Object,
    /// What is shown in place of `detail`, where that is about requests and not about calls of this crate.
    said: Option<String>,
}

/// Where the pages of Fencepost's own codes are.
const PAGES: &str = "https://fencepost.dev/errors/";

/// What a request in flight is told; a claim has its own words.
const UNDER_WAY: &str =
    "an earlier request with this key is under way; ask again with the same key, or set a longer `deadline`";

/// An id of an effect that is longer is not shown.
const SHOWN_BYTES_MAX: usize = 200;

impl Problem {
    pub(crate) fn read(status: u16, headers: &HeaderMap, body: &Bytes) -> Self {
        let members = Object::parse(body).unwrap_or_default();
        let text = |name| members.text(name);
        // An upstream or a proxy may have problem documents with codes of its own.
        let own = status >= 400 && text("type").is_some_and(|page| page.starts_with(PAGES));
        Self {
            status,
            code: text("code").filter(|_| own).unwrap_or_default(),
            detail: text("detail").unwrap_or_else(|| format!("an answer of status {status}")),
            trace_id: text("trace_id"),
            diff: members.raw("diff").map(str::to_owned),
            retry_after: headers.get(header::RETRY_AFTER).and_then(retry::after),
            members,
            said: None,
        }
    }

    pub(crate) fn said(mut self, words: String) -> Box<Self> {
        self.said = Some(words);
        Box::new(self)
    }

    /// Any further member, as JSON text: `sealed_version`, `last`, `lease_expires_at`.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.members.raw(name)
    }

    pub(crate) fn into_error(self) -> Error {
        let lease_max = self.members.number("lease_ms_max").map(Duration::from_millis);
        let problem = match (self.code.as_str(), lease_max) {
            ("in-flight", _) => self.said(UNDER_WAY.to_owned()),
            (_, Some(most)) => self.said(format!("the scope takes leases of at most {most:?}; set `lease`")),
            _ => Box::new(self),
        };
        match problem.code.as_str() {
            "in-flight" => Error::InFlight { problem, perhaps_own: false },
            "conflict" => Error::Conflict(problem),
            "stale" => Error::Stale(problem),
            "in-doubt" => Error::InDoubt(problem),
            "sequence-gap" => Error::SequenceGap(problem),
            "fenced-off" => Error::FencedOff(problem),
            _ => Error::Refused(problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = if self.code.is_empty() { "no problem document" } else { &self.code };
        write!(f, "{} {code}: {}", self.status, self.said.as_ref().unwrap_or(&self.detail))?;
        self.trace_id.iter().try_for_each(|id| write!(f, " (trace {id})"))
    }
}

/// Why a request came to nothing.
#[derive(Clone, Debug)]
pub enum Error {
    /// What was asked cannot be sent, or the answer cannot be Fencepost's.
    Invalid(String),
    /// Somebody else is acting, and still was when the wait was over.
    InFlight {
        /// The refusal.
        problem: Box<Problem>,
        /// Whether it may be this very call: an earlier try of it had no answer and may have been let in.
        perhaps_own: bool,
    },
    /// The key was first used with another body; `diff` leads from the first to this one.
    Conflict(Box<Problem>),
    /// A newer version of the source is already sealed.
    Stale(Box<Problem>),
    /// The outcome of an earlier attempt is unknown and a person must decide.
    InDoubt(Box<Problem>),
    /// Not the next repetition.
    SequenceGap(Box<Problem>),
    /// The token no longer holds the claim.
    FencedOff(Box<Problem>),
    /// Any other refusal: a wrong key, an unknown scope, a credential that does not fit.
    Refused(Box<Problem>),
    /// No answer that stands before the deadline.
    Unavailable {
        /// How often it was tried.
        attempts: u32,
        /// Whether a try may have been carried out without its answer coming through.
        unanswered: bool,
        /// What the last try met.
        why: String,
        /// Its refusal, where there was one.
        problem: Option<Box<Problem>>,
    },
}

impl Error {
    /// The refusal behind it, where there is one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Invalid(_) => None,
            Self::InFlight { problem, .. }
            | Self::Conflict(problem)
            | Self::Stale(problem)
            | Self::InDoubt(problem)
            | Self::SequenceGap(problem)
            | Self::FencedOff(problem)
            | Self::Refused(problem) => Some(problem),
            Self::Unavailable { problem, .. } => problem.as_deref(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => f.write_str(why),
            Self::Unavailable { attempts, why, .. } => write!(f, "no answer after {attempts} tries: {why}"),
            Self::InFlight { problem, perhaps_own: true } => {
                write!(f, "{problem}; it may be this call's own claim: an earlier try had no answer")
            }
            _ => self.problem().map_or(Ok(()), |problem| problem.fmt(f)),
        }
    }
}

impl std::error::Error for Error {}

/// Why `run` has no outcome.
#[derive(Debug)]
pub enum RunError<E> {
    /// The effect was not run: there was no claim.
    Claim(Error),
    /// The effect itself failed.
    Effect(E),
    /// The effect was had and could not be recorded. Whoever claims next is told that this attempt is unknown.
    Unsealed {
        /// What was done.
        done: Done,
        /// Why it is not recorded.
        cause: Error,
    },
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(error) => error.fmt(f),
            Self::Effect(error) => write!(f, "the effect failed: {error}"),
            Self::Unsealed { done, cause } => match done.effect_id.len() {
                1..=SHOWN_BYTES_MAX => write!(f, "{} was done and is not recorded: {cause}", done.effect_id),
                _ => write!(f, "the effect ran, and what it did is not recorded: {cause}"),
            },
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for RunError<E> {}
