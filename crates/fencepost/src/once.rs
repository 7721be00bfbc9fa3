//! The library's few lines: `once.scope(..).key(..).run(..)`, and the explicit claim behind it.
//! A dropped future is not a release: its effect may have happened, so the claim keeps its lease.

use std::{fmt, future::Future, time::Duration};

use bytes::Bytes;
use fencepost_kernel::{
    Command, Millis, Reply, Version,
    fence::{self, Fence, Field, Mismatch, Source, State, Target, body::Body, diff},
    json,
};

use crate::{Claim, Fencepost, engine};

/// Far beyond any use, and no time that a clock cannot tell.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A completed effect: its id, and the bytes that every duplicate gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The id of the effect.
    pub effect_id: String,
    /// Sent to duplicates, byte for byte.
    pub receipt: Bytes,
}

impl Done {
    /// An effect and its receipt.
    pub fn new(effect_id: impl Into<String>, receipt: impl Into<Bytes>) -> Self {
        Self { effect_id: effect_id.into(), receipt: receipt.into() }
    }
}

/// Why an effect did not come to its end, in the words that matter to the next caller.
#[derive(Debug)]
pub enum Failure<E> {
    /// Nothing happened: the key is free again at once.
    NotApplied(E),
    /// It may have happened: the claim keeps its lease, and the next holder is told.
    Unknown(E),
}

/// The result of `run` for every caller, first or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The id of the effect.
    pub effect_id: String,
    /// The first one's receipt.
    pub receipt: Bytes,
    /// Whether another caller, or this one before a crash, had the effect earlier.
    pub replayed: bool,
}

/// A person's decision about a claim whose lease ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The person's name, or their credential's.
    pub by: String,
    /// Time of the decision, by the store's clock.
    pub at: Millis,
    /// Whether the effect was declared done; where not, the next caller may run it.
    pub done: bool,
    /// The person's reason, free text.
    pub why: String,
}

impl Resolved {
    pub(crate) fn of(resolution: engine::Resolution<'_>) -> Self {
        let engine::Resolution { at, by, why, sealed } = resolution;
        Self { by: by.to_owned(), at, done: sealed, why: why.to_owned() }
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.done { "done" } else { "not done" };
        write!(f, "{} resolved this key as {outcome}: {}", self.by, self.why)
    }
}

/// Why there is no outcome.
#[derive(Debug)]
pub enum Error<E = std::convert::Infallible> {
    /// The store did not open.
    Open(String),
    /// No scope of that name.
    UnknownScope(String),
    /// The store cannot carry the scope.
    UnfitScope(String),
    /// The key does not have the scope's fields.
    WrongKey(String),
    /// The body is not strict JSON.
    WrongBody(String),
    /// Another caller is acting, and still was when the wait ([`Effect::wait`]) was over.
    InFlight {
        /// When their lease runs out.
        lease_expires: Millis,
    },
    /// The key was first used with another body.
    Conflict {
        /// From the first body to this one, where both are JSON.
        diff: Option<String>,
        /// The effect of the first one, once it is sealed.
        effect_id: Option<String>,
    },
    /// A newer version of the source is already sealed.
    Stale {
        /// That version.
        sealed_version: Version,
    },
    /// The outcome of an earlier attempt is unknown and a person must decide.
    InDoubt,
    /// Not the next repetition.
    SequenceGap {
        /// The last one.
        last: u64,
    },
    /// The lease ran out and another caller was let in, or a person resolved the key; this holder's outcome was
    /// refused.
    FencedOff {
        /// The person's decision, where there was one.
        resolved: Option<Resolved>,
    },
    /// The effect happened, and the store did not take its outcome for as long as it was told
    /// ([`Fencepost::settle_for`]). No other caller is let in before the lease is over; then the effect may happen
    /// again.
    Unsealed {
        /// The effect, which happened.
        done: Done,
        /// The store's last error.
        cause: engine::Error,
    },
    /// The event is in no lane, and why.
    NotPublished(&'static str),
    /// The effect itself failed.
    Effect(E),
    /// The store or its engine.
    Engine(engine::Error),
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(why) => write!(f, "the store did not open: {why}"),
            Self::UnknownScope(name) => write!(f, "unknown scope {name}"),
            Self::UnfitScope(why) => write!(f, "the store cannot carry the scope {why}"),
            Self::WrongKey(why) => write!(f, "wrong key fields: {why}"),
            Self::WrongBody(why) => write!(f, "wrong body: {why}"),
            Self::InFlight { .. } => write!(f, "somebody else is acting under this key"),
            Self::Conflict { .. } => write!(f, "the key was first used with another body"),
            Self::Stale { .. } => write!(f, "a newer version is already sealed"),
            Self::NotPublished(why) => write!(f, "not published: {why}"),
            Self::InDoubt => write!(f, "in doubt: a person must resolve this key"),
            Self::SequenceGap { last } => write!(f, "not the next repetition: the last was {last}"),
            Self::FencedOff { resolved: Some(resolved) } => write!(f, "fenced off: {resolved}"),
            Self::FencedOff { resolved: None } => {
                write!(f, "fenced off: the lease ran out and somebody else was let in")
            }
            Self::Unsealed { cause, .. } => write!(f, "it was done, and the store does not confirm it: {cause}"),
            Self::Effect(error) => write!(f, "the effect failed: {error}"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for Error<E> {}

impl Error {
    pub(crate) fn widen<E>(self) -> Error<E> {
        match self {
            Self::Open(why) => Error::Open(why),
            Self::UnknownScope(name) => Error::UnknownScope(name),
            Self::UnfitScope(why) => Error::UnfitScope(why),
            Self::WrongKey(why) => Error::WrongKey(why),
            Self::WrongBody(why) => Error::WrongBody(why),
            Self::InFlight { lease_expires } => Error::InFlight { lease_expires },
            Self::Conflict { diff, effect_id } => Error::Conflict { diff, effect_id },
            Self::Stale { sealed_version } => Error::Stale { sealed_version },
            Self::NotPublished(why) => Error::NotPublished(why),
            Self::InDoubt => Error::InDoubt,
            Self::SequenceGap { last } => Error::SequenceGap { last },
            Self::FencedOff { resolved } => Error::FencedOff { resolved },
            Self::Unsealed { done, cause } => Error::Unsealed { done, cause },
            Self::Effect(never) => match never {},
            Self::Engine(error) => Error::Engine(error),
        }
    }
}

/// One effect to be had once: a scope, a key, and how to claim it.
#[derive(Clone)]
pub struct Effect<'a> {
    fencepost: &'a Fencepost,
    scope: String,
    fields: Vec<Field>,
    seq: Option<u64>,
    body: Option<Bytes>,
    version: Option<Version>,
    source: Option<Source>,
    lease: Option<Duration>,
    wait: Option<Duration>,
}

impl<'a> Effect<'a> {
    pub(crate) fn new(fencepost: &'a Fencepost, scope: &str) -> Self {
        Self {
            fencepost,
            scope: scope.to_owned(),
            fields: Vec::new(),
            seq: None,
            body: None,
            version: None,
            source: None,
            lease: None,
            wait: None,
        }
    }

    /// The key fields, in any order; exactly those of the scope.
    pub fn key(mut self, fields: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.fields = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }

    /// The JSON the effect is asked with; another body under the same key is a conflict.
    pub fn body(mut self, json: impl Into<Bytes>) -> Self {
        self.body = Some(json.into());
        self
    }

    /// The version of the source; one below the last sealed is stale.
    pub fn version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// The source of the effect.
    pub fn source(mut self, kind: &str, id: &str) -> Self {
        self.source = Some(Source { kind: kind.to_owned(), id: id.to_owned() });
        self
    }

    /// The `seq`th deliberate repetition of the effect, from 1.
    pub fn again(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// How long a holder may be silent; `run` renews while it runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long to wait for another caller's outcome before giving up. Unless said, `run` waits for as long as the
    /// lease, and `claim` does not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait.min(WAIT_MAX));
        self
    }

    /// Asks for the right to act.
    pub async fn claim(self) -> Result<Claimed, Error> {
        let (fencepost, wait) = (self.fencepost, self.wait.unwrap_or_default());
        fencepost.enter(self.command()?, wait).await
    }

    /// The same in the kernel's words.
    pub(crate) fn command(self) -> Result<fence::ClaimFence, Error> {
        let target = self.fencepost.target(&self.scope, self.fields, self.seq)?;
        let lease_ms = match self.lease {
            Some(lease) => (lease.as_millis() as u64).clamp(1, target.scope.lease_ms_max),
            None => target.scope.lease_ms,
        };
        if self.version.is_some() && !self.fencepost.engine().promises().many_rows {
            return Err(Error::UnfitScope(format!(
                "{}: it commits rows one by one and cannot order versions",
                self.scope
            )));
        }
        let body = match &self.body {
            Some(bytes) => {
                let node = json::parse(bytes).map_err(|bad| Error::WrongBody(bad.to_string()))?;
                Some(Body::json(&node, &target.scope.mask))
            }
            None => None,
        };
        Ok(fence::ClaimFence { target, body, version: self.version, source: self.source, lease_ms, trace: None })
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn fencepost(&self) -> &'a Fencepost {
        self.fencepost
    }

    /// Has the effect once: the first caller runs it, everyone else gets the receipt. The others wait for the first for
    /// as long as the lease, unless [`Effect::wait`] says otherwise; then they get [`Error::InFlight`]. Renews the
    /// lease while the effect runs, and tries for five minutes to record the outcome in a store that does not answer ([`Fencepost::settle_for`]). If
    /// this future is dropped half-way, the claim stays until its lease runs out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let once = fencepost::Fencepost::open(dir.path()).await?;
    /// use fencepost::{Done, Failure};
    /// let index = once.scope("INDEX_BUILD").key([("index_hash", "9f2c")]);
    /// // A failure that is known to have changed nothing frees the key at once...
    /// let failed = index.clone().run(|_| async { Err(Failure::NotApplied("disk busy")) }).await;
    /// assert!(failed.is_err());
    /// // ...so the next attempt may run.
    /// let built = index.run(|claim| async move { Ok::<_, Failure<&str>>(Done::new(format!("attempt {}", claim.attempt()), "{}")) }).await?;
    /// assert_eq!(built.effect_id, "attempt 2");
    /// # once.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F, Fut, E>(self, effect: F) -> Result<Outcome, Error<E>>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<Done, Failure<E>>>,
    {
        let (fencepost, wait) = (self.fencepost, self.wait);
        let command = self.command().map_err(Error::widen)?;
        let wait = wait.unwrap_or(Duration::from_millis(command.lease_ms));
        let claim = match fencepost.enter(command, wait).await.map_err(Error::widen)? {
            Claimed::Duplicate(outcome) => return Ok(outcome),
            Claimed::New(claim) => claim,
        };
        let acted = claim.act(async { Ok((effect(claim.clone()).await?, ())) }).await.map_err(Error::widen)?;
        let (Done { effect_id, receipt }, ()) = acted.map_err(Error::Effect)?;
        Ok(Outcome { effect_id, receipt, replayed: false })
    }
}

fn outcome(fence: &Fence) -> Outcome {
    match &fence.state {
        State::Sealed { receipt, .. } => {
            Outcome { effect_id: receipt.effect_id.clone(), receipt: receipt.body.clone(), replayed: true }
        }
        _ => Outcome { effect_id: String::new(), receipt: Bytes::new(), replayed: true },
    }
}

fn conflict(mismatch: &Mismatch, target: &Target) -> Error {
    let diff = diff::between(mismatch, &target.scope.mask).patch;
    Error::Conflict { diff, effect_id: mismatch.effect_id.clone() }
}

impl Fencepost {
    /// A claim in kernel words, answered in the library's.
    pub(crate) async fn enter(&self, claim: fence::ClaimFence, wait: Duration) -> Result<Claimed, Error> {
        let (target, lease_ms) = (claim.target.clone(), claim.lease_ms);
        let reply =
            self.engine().claim(Command::Fence(fence::Command::Claim(claim)), wait).await.map_err(Error::Engine)?;
        self.claimed(target, lease_ms, reply)
    }

    /// The answer to a claim in the library's words.
    pub(crate) fn claimed(&self, target: Target, lease_ms: u64, reply: Reply) -> Result<Claimed, Error> {
        let Reply::Fence(reply) = reply else { return Err(Error::FencedOff { resolved: None }) };
        match reply {
            fence::Reply::New(granted) => {
                Ok(Claimed::New(Claim::granted(self.engine(), target, granted, lease_ms, self.patience())))
            }
            fence::Reply::Duplicate { fence, .. } => Ok(Claimed::Duplicate(outcome(&fence))),
            fence::Reply::InFlight { lease_expires, .. } => Err(Error::InFlight { lease_expires }),
            fence::Reply::Conflict(mismatch) => Err(conflict(&mismatch, &target)),
            fence::Reply::Stale { sealed_version } | fence::Reply::Incomparable { sealed_version } => {
                Err(Error::Stale { sealed_version })
            }
            fence::Reply::SequenceGap { last, .. } => Err(Error::SequenceGap { last }),
            fence::Reply::InDoubt { .. } => Err(Error::InDoubt),
            fence::Reply::FencedOff { .. }
            | fence::Reply::Sealed { .. }
            | fence::Reply::SealConflict { .. }
            | fence::Reply::Renewed { .. }
            | fence::Reply::Released { .. }
            | fence::Reply::Resolved { .. }
            | fence::Reply::Forgotten { .. }
            | fence::Reply::NotInDoubt
            | fence::Reply::NotSealed
            | fence::Reply::Aliased { .. } => Err(Error::FencedOff { resolved: None }),
        }
    }
}

/// The answer to a claim that was not refused.
#[derive(Clone)]
pub enum Claimed {
    /// The caller may act.
    New(Claim),
    /// Another caller did.
    Duplicate(Outcome),
}
