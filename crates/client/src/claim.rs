//! The right to act under a fence that lies in a server: renew, seal, release.
//! A dropped claim is not a release: nobody knows whether its effect happened, so it keeps its lease.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::{
    Client, Error,
    effect::Done,
    json::{self, Object, Writer},
    retry::{Retry, Tries},
};

/// The server's own bound.
const EFFECT_ID_BYTES_MAX: usize = 1_024;

/// The right to act under a fence, until its lease runs out.
#[derive(Clone)]
pub struct Claim {
    granted: Arc<Granted>,
}

struct Granted {
    client: Client,
    /// `scope`, `key` and, where they were given, `seq` and `tenant`.
    target: Writer,
    lease: Duration,
    token: u64,
    attempt: u64,
    earlier: Option<String>,
    recovering: bool,
    idempotency_key: String,
    lost: AtomicBool,
}

impl Claim {
    /// From the server's answer; none where it is not one.
    pub(crate) fn read(client: &Client, target: Writer, lease: Duration, answer: &Object) -> Option<Self> {
        let granted = Granted {
            client: client.clone(),
            target,
            lease,
            token: answer.number("token")?,
            attempt: answer.number("attempt")?,
            earlier: answer.raw("earlier").map(str::to_owned),
            recovering: answer.truth("recovering")?,
            idempotency_key: answer.text("idempotency_key")?,
            lost: AtomicBool::new(false),
        };
        Some(Self { granted: Arc::new(granted) })
    }

    /// The token; hand it to targets that can compare, so that an old holder's write is refused there too.
    pub fn token(&self) -> u64 {
        self.granted.token
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u64 {
        self.granted.attempt
    }

    /// Whether an earlier attempt ran out of its lease, and nobody knows what became of it: ask the target before acting.
    /// It may have been this call's own claim, if its answer was lost.
    pub fn recovering(&self) -> bool {
        self.granted.recovering
    }

    /// What is known of that attempt, as JSON: `token`, `attempt`, `lease_expired_at`.
    pub fn earlier(&self) -> Option<&str> {
        self.granted.earlier.as_deref()
    }

    /// A stable key for a target that is idempotent itself: the same for every attempt.
    pub fn idempotency_key(&self) -> &str {
        &self.granted.idempotency_key
    }

    /// Whether a renewal was refused: somebody else was let in, and this claim's outcome will not count. A long effect asks
    /// between its steps.
    pub fn lost(&self) -> bool {
        self.granted.lost.load(Relaxed)
    }

    /// Asks for more time, counted from now. Safe to repeat: the last one counts.
    pub async fn renew(&self) -> Result<(), Error> {
        self.renew_by(self.granted.client.retry()).await
    }

    async fn renew_by(&self, retry: &Retry) -> Result<(), Error> {
        let Granted { client, lease, lost, .. } = &*self.granted;
        let body = self.told().number("lease_ms", lease.as_millis() as u64).end();
        let renewed = client.ask("/v1/fences/renew", body, &mut Tries::new(retry)).await;
        if matches!(renewed, Err(Error::FencedOff(_))) {
            lost.store(true, Relaxed);
        }
        renewed.map(drop)
    }

    /// Records the outcome. Safe to repeat: the same seal again is answered as done.
    pub async fn seal(&self, effect_id: impl ToString, receipt: impl Into<Bytes>) -> Result<(), Error> {
        let client = &self.granted.client;
        let body = self.sealed(&Done::new(effect_id, receipt))?.end();
        client.ask("/v1/fences/seal", body, &mut Tries::new(client.retry())).await.map(drop)
    }

    /// Gives the key back: nothing happened.
    pub async fn release(&self) -> Result<(), Error> {
        let client = &self.granted.client;
        let mut tries = Tries::new(client.retry());
        match client.ask("/v1/fences/release", self.told().end(), &mut tries).await {
            // A try without an answer released it, and somebody was let in before the next. The claim is given up either way.
            Err(Error::FencedOff(_)) if tries.unanswered => Ok(()),
            released => released.map(drop),
        }
    }

    /// The seal as a command of a batch.
    pub fn sealing(&self, done: &Done) -> Result<String, Error> {
        Ok(self.sealed(done)?.text("op", "seal").end())
    }

    /// The release as a command of a batch.
    pub fn releasing(&self) -> String {
        self.told().text("op", "release").end()
    }

    /// Runs a future while renewing the lease at a third of its length. Stops renewing when it is dropped.
    pub async fn keep<T>(&self, work: impl Future<Output = T>) -> T {
        let third = (self.granted.lease / 3).max(Duration::from_millis(1));
        // One try that hangs must leave time for another before the lease is over.
        let usual = self.granted.client.retry();
        let retry =
            Retry { deadline: self.granted.lease, attempt_timeout: third.min(usual.attempt_timeout), ..usual.clone() };
        let mut beat = tokio::time::interval(third);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        beat.tick().await;
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                // A refused renewal is not an error yet: the seal will say what became of the claim.
                _ = async { beat.tick().await; self.renew_by(&retry).await } => {}
            }
        }
    }

    fn told(&self) -> Writer {
        self.granted.target.clone().number("token", self.granted.token)
    }

    fn sealed(&self, done: &Done) -> Result<Writer, Error> {
        let bytes = done.effect_id.len();
        if !(1..=EFFECT_ID_BYTES_MAX).contains(&bytes) {
            let why = format!("the effect id must have 1 to {EFFECT_ID_BYTES_MAX} bytes, and has {bytes}");
            return Err(Error::Invalid(why));
        }
        let unsealable = |bad| Error::Invalid(format!("the receipt {} is not JSON: {bad}", json::shown(&done.receipt)));
        let receipt = json::value(&done.receipt).map_err(unsealable)?;
        Ok(self.told().text("effect_id", &done.effect_id).raw("receipt", &receipt))
    }
}
