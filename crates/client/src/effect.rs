//! One effect that must happen once: a scope, a key, and how to claim it. The names are those of the server's library.
//! Never takes a claim in flight for its own after a lost answer: it waits. Called by users through `Client::scope`.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    Client, Error, RemoteClaim, RunError,
    json::{self, Object, Writer},
    retry::Tries,
};

/// The lease where none is set. Short, since `run` renews it, and a lost answer to a claim costs one lease of waiting.
const LEASE: Duration = Duration::from_secs(30);
/// The server's bound.
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Beyond any use, and small enough to add to an `Instant`.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The outcome of a holder's effect: the effect's id, and the bytes that every duplicate gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectDone {
    /// The id of the effect, such as an order number.
    pub effect_id: String,
    /// The bytes that duplicates get unchanged: one JSON value.
    pub receipt: Bytes,
}

impl EffectDone {
    /// The id may be anything that is written as text: a number, a UUID. The receipt must be one JSON value.
    pub fn new(effect_id: impl ToString, receipt: impl Into<Bytes>) -> Self {
        Self { effect_id: effect_id.to_string(), receipt: receipt.into() }
    }
}

/// Why an effect failed, as far as the next caller must know.
#[derive(Debug)]
pub enum EffectFailure<E> {
    /// The effect did not happen: the key is free again at once.
    NotApplied(E),
    /// The outcome is unknown: the claim keeps its lease, and the next holder learns that it recovers.
    Unknown(E),
}

/// The result of `run` for every caller, whether first or duplicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The id of the effect.
    pub effect_id: String,
    /// The receipt of the caller whose effect happened.
    pub receipt: Bytes,
    /// Whether the effect happened in an earlier call, perhaps one of this caller before a crash.
    pub replayed: bool,
}

/// The answer to a claim that the server did not refuse.
#[derive(Clone)]
pub enum ClaimOutcome {
    /// The caller holds the claim and may act.
    New(RemoteClaim),
    /// The effect has happened already.
    Duplicate(RunOutcome),
}

/// One effect that must happen once, with its settings.
#[derive(Clone)]
pub struct RemoteEffect {
    client: Client,
    scope: String,
    fields: Vec<(String, String)>,
    tenant: Option<String>,
    seq: Option<u64>,
    body: Option<Bytes>,
    version: Option<String>,
    source: Option<(String, String)>,
    lease: Duration,
    wait: Option<Duration>,
}

impl RemoteEffect {
    pub(crate) fn new(client: Client, scope: &str) -> Self {
        let (tenant, seq, body, version, source) = (None, None, None, None, None);
        let (fields, scope) = (Vec::new(), scope.to_owned());
        Self { client, scope, fields, tenant, seq, body, version, source, lease: LEASE, wait: None }
    }

    /// The key fields, in any order: exactly those of the scope. Values may be anything that is written as text: a
    /// number, a UUID.
    pub fn key(mut self, fields: impl IntoIterator<Item = (impl Into<String>, impl ToString)>) -> Self {
        self.fields = fields.into_iter().map(|(name, value)| (name.into(), value.to_string())).collect();
        self
    }

    /// The tenant of the key. Only an admin sets it; any other caller's tenant comes from the credential.
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// The effect's request as JSON: another body under the same key is a conflict.
    pub fn body(mut self, json: impl Into<Bytes>) -> Self {
        self.body = Some(json.into());
        self
    }

    /// The version of the source; a version below the last sealed one is stale.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version.to_string());
        self
    }

    /// As [`RemoteEffect::version`], for versions that are texts.
    pub fn version_text(mut self, version: &str) -> Self {
        self.version = Some(json::quoted(version));
        self
    }

    /// The source of the effect: its kind and its id.
    pub fn source(mut self, kind: &str, id: &str) -> Self {
        self.source = Some((kind.to_owned(), id.to_owned()));
        self
    }

    /// The number of a deliberate repetition of the effect, from 1.
    pub fn again(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// How long a holder may go without a renewal: 30 s by default, a day at most. `run` renews while the effect runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(1));
        self
    }

    /// The longest wait for another caller's outcome. By default `run` waits for as long as the lease, and `claim` does
    /// not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait.min(WAIT_MAX));
        self
    }

    /// Asks for the right to act. Safe to repeat, with one cost: if the answer is lost, the next try meets this
    /// call's own claim. It waits, within the deadline, until that lease expires, and gets the claim as `recovering`;
    /// in a scope that holds lapsed claims, the key is in doubt instead.
    pub async fn claim(&self) -> Result<ClaimOutcome, Error> {
        self.claim_within(self.wait.unwrap_or_default()).await
    }

    async fn claim_within(&self, patience_max: Duration) -> Result<ClaimOutcome, Error> {
        let path = if self.seq.is_some() { "/v1/fences/again" } else { "/v1/fences/claim" };
        let request = self.request()?;
        let mut tries = Tries::new(self.client.retry());
        let wait_until = Instant::now() + patience_max;
        loop {
            let patience = match tries.unanswered {
                true => tries.left().saturating_sub(Duration::from_secs(1)),
                false => wait_until.saturating_duration_since(Instant::now()),
            };
            // A longer wait is split into several requests.
            let wait = patience.min(tries.wait_max());
            let begun = Instant::now();
            let body = request.clone().number("wait_ms", wait.as_millis() as u64).end();
            let problem = match self.client.ask(path, body, &mut tries).await {
                Ok(reply) => return self.read(reply.body),
                Err(Error::InFlight { problem, .. }) => problem.said(in_flight(patience_max)),
                Err(error) => return Err(error),
            };
            // The deadline bounds only the time without answers, so after an answer it counts from the end of the wait.
            tries.not_before(wait_until);
            let (perhaps_own, held) = (tries.unanswered, begun.elapsed());
            let left = wait_until.saturating_duration_since(Instant::now());
            if !perhaps_own && left.is_zero() {
                return Err(Error::InFlight { problem, perhaps_own });
            }
            // The server answers early at its own bound, or with too many waiters. Asking again at once would flood it.
            // The time it held the request counts as pause; the last request goes out as the wait ends.
            let asked = problem.retry_after.unwrap_or_default().saturating_sub(held);
            let pause = if perhaps_own { asked } else { asked.min(left) };
            let waited = !wait.is_zero() && held >= wait;
            if !waited && tries.pause(pause).await.is_break() {
                return Err(Error::InFlight { problem, perhaps_own });
            }
        }
    }

    /// Runs the effect once: the first caller runs it, every other caller gets its receipt. The others wait for it as
    /// long as the lease, unless [`RemoteEffect::wait`] says otherwise. Renews the lease while the effect runs. If this
    /// future is dropped half-way, the claim stays until its lease expires.
    pub async fn run<F, Fut, E>(&self, effect: F) -> Result<RunOutcome, RunError<E>>
    where
        F: FnOnce(RemoteClaim) -> Fut,
        Fut: Future<Output = Result<EffectDone, EffectFailure<E>>>,
    {
        let patience_max = self.wait.unwrap_or(self.lease);
        let claim = match self.claim_within(patience_max).await.map_err(RunError::Claim)? {
            ClaimOutcome::Duplicate(outcome) => return Ok(outcome),
            ClaimOutcome::New(claim) => claim,
        };
        match claim.keep(effect(claim.clone())).await {
            Ok(done) => match claim.seal(done.effect_id.clone(), done.receipt.clone()).await {
                Ok(()) => Ok(RunOutcome { effect_id: done.effect_id, receipt: done.receipt, replayed: false }),
                Err(cause) => Err(RunError::Unsealed { done, cause }),
            },
            Err(EffectFailure::NotApplied(error)) => {
                // If the release fails too, the lease ends the claim; the caller gets the effect's own error.
                let _ = claim.release().await;
                Err(RunError::Effect(error))
            }
            Err(EffectFailure::Unknown(error)) => Err(RunError::Effect(error)),
        }
    }

    /// The record under the key as JSON; `None` where the key is unknown.
    pub async fn lookup(&self) -> Result<Option<Bytes>, Error> {
        let mut query = format!("scope={}", encoded(&self.scope));
        let seq = self.seq.map(|seq| ("seq".to_owned(), seq.to_string()));
        let tenant = self.tenant.clone().map(|tenant| ("tenant".to_owned(), tenant));
        for (name, value) in self.fields.iter().cloned().chain(seq).chain(tenant) {
            query += &format!("&{}={}", encoded(&name), encoded(&value));
        }
        let reply = self.client.get(&format!("/admin/idempotency/lookup?{query}")).await?;
        let exists = Object::parse(&reply.body).and_then(|object| object.truth("exists")).unwrap_or_default();
        Ok(exists.then_some(reply.body))
    }

    /// The claim as a command for [`Client::batch`]; such a claim does not wait.
    pub fn command(&self) -> Result<String, Error> {
        Ok(self.request()?.text("op", if self.seq.is_some() { "again" } else { "claim" }).end())
    }

    fn target(&self) -> Writer {
        let key = self.fields.iter().fold(Writer::new(), |key, (name, value)| key.text(name, value)).end();
        Writer::new()
            .text("scope", &self.scope)
            .raw("key", &key)
            .maybe("tenant", self.tenant.as_deref().map(json::quoted).as_deref())
            .maybe("seq", self.seq.map(|seq| seq.to_string()).as_deref())
    }

    fn request(&self) -> Result<Writer, Error> {
        if self.lease > LEASE_MAX {
            return Err(Error::Invalid(format!("a lease is at most {LEASE_MAX:?}, a day, and not {:?}", self.lease)));
        }
        let body = self.body.as_deref().map(json::value).transpose();
        let body = body.map_err(|bad| Error::Invalid(format!("the body: {bad}")))?;
        let source = self.source.as_ref().map(|(kind, id)| Writer::new().text("type", kind).text("id", id).end());
        Ok(self
            .target()
            .number("lease_ms", self.lease.as_millis() as u64)
            .maybe("body", body.as_deref())
            .maybe("version", self.version.as_deref())
            .maybe("source", source.as_deref()))
    }

    /// Reads the server's answer to a claim.
    pub(crate) fn read(&self, body: Bytes) -> Result<ClaimOutcome, Error> {
        let foreign = || Error::Invalid("the answer is not one of Fencepost's".into());
        let answer = Object::parse(&body).ok_or_else(foreign)?;
        match answer.text("decision").as_deref() {
            Some("new") => RemoteClaim::read(&self.client, self.target(), self.lease, &answer).map(ClaimOutcome::New),
            Some("duplicate") => answer.text("effect_id").zip(answer.raw("receipt")).map(|(effect_id, receipt)| {
                let receipt = Bytes::copy_from_slice(receipt.as_bytes());
                ClaimOutcome::Duplicate(RunOutcome { effect_id, receipt, replayed: true })
            }),
            _ => None,
        }
        .ok_or_else(foreign)
    }
}

/// The message of a claim that gave up. It names this crate's settings: the server's detail names members of requests.
fn in_flight(patience_max: Duration) -> String {
    let held = match patience_max.is_zero() {
        true => "and this call does not wait".to_owned(),
        false => format!("after a wait of {patience_max:?}"),
    };
    format!("somebody else holds the claim, {held}; ask again, or set `wait`")
}

/// A query's name or value, percent-encoded.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |out, byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            out + char::from(byte).encode_utf8(&mut [0])
        }
        _ => out + &format!("%{byte:02X}"),
    })
}
