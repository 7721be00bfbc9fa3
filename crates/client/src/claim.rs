//! A claim: the right to act under a fence on the server. Renews it, seals it and releases it.
//! Never releases on drop: a dropped claim's outcome is unknown, so it keeps its lease. Called by `effect` and users.

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
    effect::EffectDone,
    json::{self, Object, Writer},
    retry::{Retry, Tries},
};

/// The server's bound, in bytes.
const EFFECT_ID_BYTES_MAX: usize = 1_024;

/// The right to act under a fence, until its lease expires.
#[derive(Clone)]
pub struct RemoteClaim {
    granted: Arc<Granted>,
}

struct Granted {
    client: Client,
    /// The members `scope` and `key`, and where they were given `seq` and `tenant`.
    target: Writer,
    lease: Duration,
    token: u64,
    attempt: u64,
    earlier: Option<String>,
    recovering: bool,
    idempotency_key: String,
    lost: AtomicBool,
}

impl RemoteClaim {
    /// Reads a claim out of the server's answer; `None` where the answer is not a claim.
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

    /// The token. Pass it to targets that compare tokens, so that they refuse a late write of an earlier holder.
    pub fn token(&self) -> u64 {
        self.granted.token
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u64 {
        self.granted.attempt
    }

    /// Whether an earlier attempt's lease expired with its outcome unknown: query the target before acting. That
    /// attempt may be an earlier try of this very call, if its answer was lost.
    pub fn recovering(&self) -> bool {
        self.granted.recovering
    }

    /// The server's record of that attempt, as JSON: `token`, `attempt`, `lease_expired_at`.
    pub fn earlier(&self) -> Option<&str> {
        self.granted.earlier.as_deref()
    }

    /// A stable key to pass to a target that is idempotent itself: the same for every attempt.
    pub fn idempotency_key(&self) -> &str {
        &self.granted.idempotency_key
    }

    /// Whether a renewal was refused: another caller may hold the claim, and this outcome will not be recorded. A long
    /// effect checks this between its steps.
    pub fn lost(&self) -> bool {
        self.granted.lost.load(Relaxed)
    }

    /// Extends the lease, counted from now. Safe to repeat: the last renewal counts.
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

    /// Records the outcome. Safe to repeat: the server answers the same seal again as done.
    pub async fn seal(&self, effect_id: impl ToString, receipt: impl Into<Bytes>) -> Result<(), Error> {
        let client = &self.granted.client;
        let body = self.sealed(&EffectDone::new(effect_id, receipt))?.end();
        client.ask("/v1/fences/seal", body, &mut Tries::new(client.retry())).await.map(drop)
    }

    /// Releases the claim: the effect did not happen, and another caller may claim at once.
    pub async fn release(&self) -> Result<(), Error> {
        let client = &self.granted.client;
        let mut tries = Tries::new(client.retry());
        match client.ask("/v1/fences/release", self.told().end(), &mut tries).await {
            // An unanswered try released it, and another caller claimed before this try. The claim is over either way.
            Err(Error::FencedOff(_)) if tries.unanswered => Ok(()),
            released => released.map(drop),
        }
    }

    /// The seal as a command for [`Client::batch`].
    pub fn sealing(&self, done: &EffectDone) -> Result<String, Error> {
        Ok(self.sealed(done)?.text("op", "seal").end())
    }

    /// The release as a command for [`Client::batch`].
    pub fn releasing(&self) -> String {
        self.told().text("op", "release").end()
    }

    /// Runs a future and renews the lease at a third of its length, until the future ends or is dropped.
    pub async fn keep<T>(&self, work: impl Future<Output = T>) -> T {
        let third = (self.granted.lease / 3).max(Duration::from_millis(1));
        // A try that hangs must leave time for another before the lease expires.
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
                // A refused renewal is not an error yet: the seal will tell whether the claim was lost.
                _ = async { beat.tick().await; self.renew_by(&retry).await } => {}
            }
        }
    }

    fn told(&self) -> Writer {
        self.granted.target.clone().number("token", self.granted.token)
    }

    fn sealed(&self, done: &EffectDone) -> Result<Writer, Error> {
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
