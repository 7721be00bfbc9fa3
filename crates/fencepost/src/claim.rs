//! Claim, act, settle: the effect runs while its lease is renewed, and then the store is told what came of it, again and again
//! where it does not answer. Never lets an outcome go before the patience is over, and never grants a claim.
//! Called by `once`, `layer` and `queue`, and by the gateway.

use std::time::Duration;

use bytes::Bytes;
use fencepost_kernel::{
    Command, Millis, Reply,
    fence::{self, Earlier, Granted, Release, Renew, Seal, Target, Token},
};
use tokio::time::Instant;

use crate::{Done, Engine, Error, Failure, Resolved, engine};

/// The pause before an outcome is told again: the first, and what doubling leads to.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// How long an outcome is told to a store that does not answer, counted from the first time; `None` is until it answers or has
/// stopped for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience(pub Option<Duration>);

impl Patience {
    /// It is told once, and not again.
    pub const ONCE: Self = Self(Some(Duration::ZERO));

    /// Tells the store of the end of a claim until it answers, also past the lease: the outcome counts while no other
    /// caller was let in. The reply is that to the first command. `token` is asked for each time: a holder may get the
    /// token of a caller that was let in after it and left the effect to it.
    pub async fn settle(
        self,
        engine: &Engine,
        token: impl Fn() -> Token,
        commands: impl Fn(Token) -> Vec<Command>,
    ) -> Result<Reply, engine::Error> {
        let (begun, mut pause) = (Instant::now(), AGAIN_MIN);
        loop {
            let held = token();
            let error = match engine.ask_all(commands(held)).await.map(|replies| replies.into_iter().next()) {
                Ok(Some(Reply::Fence(fence::Reply::FencedOff { .. }))) if token() != held => continue,
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => return Err(engine::Error::Unknown("no reply".to_owned())),
                Err(error) => error,
            };
            let left = self.0.map_or(pause, |whole| whole.saturating_sub(begun.elapsed()));
            if left.is_zero() || matches!(error, engine::Error::Stopped(_)) {
                return Err(error);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }
}

pub(crate) fn sealed(reply: Reply) -> Result<(), Error> {
    if let Reply::Fence(fence::Reply::SealConflict { effect_id }) = reply {
        return Err(Error::Conflict { diff: None, effect_id: Some(effect_id) });
    }
    let is_sealed = matches!(reply, Reply::Fence(fence::Reply::Sealed { .. }));
    if is_sealed { Ok(()) } else { Err(Error::FencedOff { resolved: None }) }
}

/// The right to act under a fence, until its lease runs out.
#[derive(Clone)]
pub struct Claim {
    engine: Engine,
    target: Target,
    granted: Granted,
    lease_ms: u64,
    patience: Patience,
}

impl Claim {
    /// The right that a reply granted, for callers that use the engine directly.
    pub fn granted(engine: &Engine, target: Target, granted: Granted, lease_ms: u64, patience: Patience) -> Self {
        Self { engine: engine.clone(), target, granted, lease_ms, patience }
    }

    /// The fence.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The token; hand it to targets that can compare, so that an old holder's write is refused there too.
    pub fn token(&self) -> Token {
        self.granted.token
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.granted.attempt
    }

    /// An earlier attempt with an unknown outcome: ask the target before acting.
    pub fn earlier(&self) -> Option<&Earlier> {
        self.granted.recovering.as_ref()
    }

    /// A stable key for a target that is idempotent itself: the same for every attempt.
    pub fn idempotency_key(&self) -> String {
        self.target.key.to_string()
    }

    /// Asks for more time, counted from now.
    pub async fn renew(&self) -> Result<Millis, Error> {
        let reply = self.extend().await.map_err(Error::Engine)?;
        if let Reply::Fence(fence::Reply::Renewed { lease_expires }) = reply {
            return Ok(lease_expires);
        }
        let in_doubt = matches!(reply, Reply::Fence(fence::Reply::InDoubt { .. }));
        Err(if in_doubt { Error::InDoubt } else { self.fenced_off().await })
    }

    async fn extend(&self) -> Result<Reply, engine::Error> {
        let renew = Renew { target: self.target.clone(), token: self.token(), lease_ms: self.lease_ms };
        self.engine.ask(Command::Fence(fence::Command::Renew(renew))).await
    }

    // Another caller was let in, or a person decided without this holder: the two call for different steps.
    async fn fenced_off(&self) -> Error {
        let known = self.engine.explain(self.target.key).await.ok().flatten();
        let resolution = known.as_ref().and_then(|known| known.resolution(self.token()));
        Error::FencedOff { resolved: resolution.map(Resolved::of) }
    }

    /// Records the outcome. Safe to repeat.
    pub async fn seal(&self, effect_id: impl Into<String>, receipt: impl Into<Bytes>) -> Result<(), Error> {
        self.sealed(Patience::ONCE, &effect_id.into(), &receipt.into()).await
    }

    async fn sealed(&self, patience: Patience, effect_id: &str, receipt: &Bytes) -> Result<(), Error> {
        let seal = |_| vec![self.sealing(effect_id.to_owned(), receipt.clone())];
        match sealed(patience.settle(&self.engine, || self.token(), seal).await.map_err(Error::Engine)?) {
            Err(Error::FencedOff { .. }) => Err(self.fenced_off().await),
            // The first outcome of this token may be a person's word.
            Err(conflict @ Error::Conflict { .. }) => match self.fenced_off().await {
                resolved @ Error::FencedOff { resolved: Some(_) } => Err(resolved),
                _ => Err(conflict),
            },
            other => other,
        }
    }

    /// Acts, and tells the store what came of it. Where nothing happened, the key is free again.
    pub(crate) async fn act<T, E>(
        &self,
        work: impl Future<Output = Result<(Done, T), Failure<E>>>,
    ) -> Result<Result<(Done, T), E>, Error> {
        match self.keep(work).await {
            Ok((done, more)) => {
                let Done { effect_id, receipt } = &done;
                match self.sealed(self.patience, effect_id, receipt).await {
                    Ok(()) => Ok(Ok((done, more))),
                    Err(Error::Engine(cause)) => Err(Error::Unsealed { done, cause }),
                    Err(refused) => Err(refused),
                }
            }
            Err(Failure::NotApplied(error)) => {
                // If even the release fails, the lease ends the claim; the caller hears of its own failure.
                let _ = self.release().await;
                Ok(Err(error))
            }
            Err(Failure::Unknown(error)) => Ok(Err(error)),
        }
    }

    /// The seal in the kernel's words.
    pub fn sealing(&self, effect_id: String, receipt: Bytes) -> Command {
        Command::Fence(fence::Command::Seal(Seal {
            target: self.target.clone(),
            token: self.token(),
            effect_id,
            receipt,
        }))
    }

    /// How long its outcome is told to a store that does not answer.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// The engine that granted it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives the key back: nothing happened.
    pub async fn release(&self) -> Result<(), Error> {
        let release = Release { target: self.target.clone(), token: self.token() };
        let reply = self.engine.ask(Command::Fence(fence::Command::Release(release))).await.map_err(Error::Engine)?;
        let released = matches!(reply, Reply::Fence(fence::Reply::Released { .. }));
        if released { Ok(()) } else { Err(self.fenced_off().await) }
    }

    /// Runs a future while renewing the lease at a third of its length. Stops renewing when it is dropped.
    pub async fn keep<T>(&self, work: impl Future<Output = T>) -> T {
        let beat = Duration::from_millis((self.lease_ms / 3).max(1));
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                // A refused renewal is not an error yet: the seal will show the state of the claim.
                _ = async { tokio::time::sleep(beat).await; self.extend().await } => {}
            }
        }
    }
}
