//! Why a call has no outcome: the server's problem document, or how the requests failed.
//! Never hides whether the effect may have happened: the caller must know. Called by every module of the crate.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, header};

use crate::{EffectDone, json::Object, retry};

/// A refusal, as the server's problem document says it (RFC 9457).
#[derive(Clone, Debug)]
pub struct ProblemDetails {
    /// The HTTP status.
    pub status: u16,
    /// The stable code, such as `conflict`; empty where the answer does not come from Fencepost.
    pub code: String,
    /// A sentence for a person.
    pub detail: String,
    /// The id to search for in the server's log.
    pub trace_id: Option<String>,
    /// On a conflict of two JSON bodies: the RFC 6902 patch from the first to this one, as JSON text.
    pub diff: Option<String>,
    /// The shortest time to wait before asking again.
    pub retry_after: Option<Duration>,
    members: Object,
    /// Shown in place of `detail`, where `detail` is about members of requests that callers of this crate never see.
    said: Option<String>,
}

/// The `type` of Fencepost's own problem documents begins with this.
const PAGES: &str = "https://fencepost.dev/errors/";

/// The message of a request that is still in flight; a claim has a message of its own.
const UNDER_WAY: &str =
    "an earlier request with this key is under way; ask again with the same key, or set a longer `deadline`";

/// A longer effect id is left out of messages.
const SHOWN_BYTES_MAX: usize = 200;

impl ProblemDetails {
    pub(crate) fn read(status: u16, headers: &HeaderMap, body: &Bytes) -> Self {
        let members = Object::parse(body).unwrap_or_default();
        let text = |name| members.text(name);
        // An upstream or a proxy may send problem documents with codes of its own.
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

    /// Another member as JSON text: `sealed_version`, `last`, `lease_expires_at`.
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

impl fmt::Display for ProblemDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = if self.code.is_empty() { "no problem document" } else { &self.code };
        write!(f, "{} {code}: {}", self.status, self.said.as_ref().unwrap_or(&self.detail))?;
        self.trace_id.iter().try_for_each(|id| write!(f, " (trace {id})"))
    }
}

/// Why a call has no outcome.
#[derive(Clone, Debug)]
pub enum Error {
    /// The request cannot be sent as it is, or the answer does not come from Fencepost.
    Invalid(String),
    /// Another caller held the claim until the wait was over.
    InFlight {
        /// The refusal.
        problem: Box<ProblemDetails>,
        /// Whether the holder may be this very call: an earlier try of it had no answer and may have got the claim.
        perhaps_own: bool,
    },
    /// The key was first used with another body; `diff` leads from the first to this one.
    Conflict(Box<ProblemDetails>),
    /// A newer version of the source is already sealed.
    Stale(Box<ProblemDetails>),
    /// An earlier attempt's outcome is unknown, and a person must decide.
    InDoubt(Box<ProblemDetails>),
    /// The repetition is not the next in its sequence.
    SequenceGap(Box<ProblemDetails>),
    /// The token no longer holds the claim: the lease expired, or the claim is over.
    FencedOff(Box<ProblemDetails>),
    /// Any other refusal: a wrong key, an unknown scope, a missing permission.
    Refused(Box<ProblemDetails>),
    /// No final answer came before the deadline.
    Unavailable {
        /// How many tries were made.
        attempts: u32,
        /// Whether the server may have carried out a try whose answer was lost.
        unanswered: bool,
        /// How the last try failed.
        why: String,
        /// The refusal in the last try's answer, where there was one.
        problem: Option<Box<ProblemDetails>>,
    },
}

impl Error {
    /// The server's refusal behind this error, where there is one.
    pub fn problem(&self) -> Option<&ProblemDetails> {
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
    /// The claim was not granted, so the effect did not run.
    Claim(Error),
    /// The effect itself failed.
    Effect(E),
    /// The effect happened, but recording it failed. The next holder learns that this attempt's outcome is unknown.
    Unsealed {
        /// The outcome that is not recorded.
        done: EffectDone,
        /// Why the seal failed.
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
