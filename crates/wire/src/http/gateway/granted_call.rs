//! One effect under way: the request leaves, and its answer is sealed, released or left unknown before the client gets
//! it.
//! A client that goes away abandons nothing: see `detach_on_drop`. Called by the gateway once a claim is granted.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use fencepost::{
    Claim, Engine, Patience,
    answer::{self, Meaning, StoredAnswer},
    engine,
    policy::routes::{FieldOrigin, OnError},
};
use fencepost_kernel::{
    Command, Millis, Reply,
    fence::{self, Release, Seal, Source, Target, scope::OnLapse},
    json,
};
use http::{HeaderMap, HeaderValue, StatusCode, header, response::Parts};
use http_body_util::BodyExt;

use super::{
    Entry,
    headers::{self, EFFECT_ID, Leaving, OUTCOME},
    in_flight_effects::EffectGuard,
    key,
    large::Large,
    order::SourceTurn,
    patient::Patient,
    replay,
    shares::RequestSlot,
    signed::{Bound, Signed},
    unbuffered,
    upstream::{self, Failed},
};
use crate::{
    http::{
        App,
        call::{self, Call},
        fences::{Told, ended_by_person, record},
        reply::{self, expires},
    },
    log::Level,
    problem::{Code, Problem},
};
use fencepost_front::{Charge, Standing};

/// The longest id of an effect that is taken from an answer.
const EFFECT_ID_BYTES_MAX: usize = 1_024;

/// A granted claim, and all that its effect needs.
pub(super) struct GrantedCall {
    pub(super) call: Call,
    pub(super) entry: Arc<Entry>,
    pub(super) claim: Claim,
    /// Under way here until it is settled; shared with the task that seals it later.
    pub(super) effect_guard: Arc<EffectGuard>,
    /// The source of the effect, for the log.
    pub(super) source: Option<Source>,
    /// The signed bytes of an incoming webhook, once they are let in under this claim's key.
    pub(super) signed: Option<Bound>,
    /// Its place among the requests under way.
    pub(super) place: Option<RequestSlot>,
    /// Held until the outcome is known, so that the next event of the source waits for it.
    pub(super) _turn: Option<SourceTurn>,
}

/// The upstream's answer.
enum Got {
    /// An outcome, whole, with the charge for its bytes.
    Whole(Parts, Bytes, Charge),
    /// An outcome too large to keep: the part that was read, and the rest.
    Large(Parts, Bytes, Patient),
    /// An outcome whose body did not come to its end.
    Torn(Parts, Failed),
    /// No outcome; it is passed on as it comes.
    Passing(Meaning, Parts, Patient),
}

impl GrantedCall {
    /// Has the effect, and gives the first caller's answer.
    pub(super) async fn call_and_settle(mut self, place: Result<RequestSlot, Problem>) -> Response {
        let path = self.call.parts.uri.path().to_owned();
        let admitted = match place {
            Ok(place) => self.claim.clone().keep(self.bind_signed()).await.map(|()| place),
            busy => busy,
        };
        let answered = match admitted {
            Ok(place) => {
                self.place = Some(place);
                match self.claim.clone().keep(self.fetch()).await {
                    Ok(got) => self.settle(got).await,
                    Err(failed) => self.failed(failed).await,
                }
            }
            // A retry would have needed no place: that is known only once the claim is granted.
            Err(refused) => {
                self.release().await;
                Err(refused)
            }
        };
        answered.unwrap_or_else(|problem| problem.response(&path, &self.call.trace).map(Body::new))
    }

    async fn bind_signed(&mut self) -> Result<(), Problem> {
        if let Some(signed) = Signed::of(&self.call, &self.entry, self.claim.target()) {
            self.signed = signed.bind(&self.call, &self.entry).await?;
        }
        Ok(())
    }

    async fn fetch(&mut self) -> Result<Got, Failed> {
        let Self { call, entry, claim, place, .. } = self;
        // Only a credential of ours names the tenant; a webhook's provider has none.
        let tenant = entry.signer.is_none().then_some(call.caller.id.as_str());
        // A client that sends one of our credentials along with a webhook must not show it to the application.
        if entry.signer.is_some() && call::caller(&call.app, &call.parts).is_ok() {
            call.parts.headers.remove(header::AUTHORIZATION);
        }
        let body_bytes = Some(call.body.len() as u64);
        let leaving =
            Leaving { entry, policy: &call.policy, trace: &call.trace, claim: Some(claim), tenant, body_bytes };
        let headers = leaving.headers(&mut call.parts);
        let uri = upstream::address(entry, &call.parts.uri).ok_or_else(|| Failed::Unreachable("no address".into()))?;
        let request = upstream::request(call.parts.method.clone(), uri, headers, Body::from(call.body.clone()));
        let response = call.app.gateway.upstreams.send(entry, request, entry.timeout).await?;
        let (parts, body) = response.into_parts();
        let mut body = Patient::new(body, entry.timeout, place.take());
        match meaning(&parts, entry.route.on_error) {
            Meaning::Seal => {}
            other => return Ok(Got::Passing(other, parts, body)),
        }
        // A stream of events has no end to wait for.
        let max = if answer::endless(&parts.headers) { 0 } else { call.policy.gateway.answer_bytes_max };
        let mut charge = call.app.budget.charge(Standing::Authenticated);
        let mut kept = Bytes::new();
        let mut more = BytesMut::new();
        while let Some(frame) = body.frame().await {
            // The head has reported the outcome; the rest does not change it.
            let frame = match frame {
                Ok(frame) => frame,
                Err(failed) => return Ok(Got::Torn(parts, failed)),
            };
            // Trailers are not kept.
            let Ok(data) = frame.into_data() else { continue };
            // The usual answer comes in one piece, which is never copied.
            let last_bytes = data.len();
            let has_room = charge.try_add_answer(last_bytes).is_ok();
            if kept.is_empty() {
                kept = data;
            } else {
                more.extend_from_slice(&data);
            }
            // Without room to keep it, an answer passes like one that is too large: nothing waits, and nothing runs
            // again.
            if !has_room || kept.len() + more.len() > max {
                if !has_room {
                    charge.add(last_bytes);
                }
                // Charged until they are sent.
                return Ok(Got::Large(parts, charge.attach(join(kept, more)), body));
            }
        }
        Ok(Got::Whole(parts, join(kept, more), charge))
    }

    async fn settle(&self, got: Got) -> Result<Response, Problem> {
        match got {
            Got::Whole(parts, body, _charge) => {
                let effect_id = self.effect_id(&parts, &body);
                let kept = StoredAnswer::new(parts.status, &parts.headers, Some(body.clone()));
                let ends = self.seal(effect_id, kept.encode()).await?;
                Ok(fenced(parts.status, parts.headers, Some(ends), Body::from(body)))
            }
            Got::Large(parts, first, rest) => {
                // Sealed before the first byte leaves: no size makes a retry run again.
                let effect_id = self.effect_id(&parts, &[]);
                let kept = StoredAnswer::new(parts.status, &parts.headers, None);
                let ends = self.seal(effect_id, kept.encode()).await?;
                let (target, token) = (self.claim.target(), self.claim.token());
                let large = Large { call: &self.call, target, token, rest, patience: self.entry.timeout };
                let body = large.stream(first);
                Ok(unbuffered(fenced(parts.status, parts.headers, Some(ends), body)))
            }
            // Where a failure frees the key, this one does not: the head said that it was done.
            Got::Torn(parts, failed) if !said_applied(&parts) && self.entry.route.on_error != OnError::Seal => {
                self.warn(&failed);
                Err(self.unanswered(&failed, OnError::Unknown))
            }
            Got::Torn(parts, failed) => {
                self.warn(&failed);
                let effect_id = self.effect_id(&parts, &[]);
                let kept = StoredAnswer::new(parts.status, &parts.headers, None);
                let ends = self.seal(effect_id, kept.encode()).await?;
                let mut response = fenced(parts.status, kept.headers, Some(ends), Body::empty());
                replay::mark_omitted(response.headers_mut(), None);
                Ok(response)
            }
            Got::Passing(meaning, parts, body) => {
                if meaning == Meaning::Release {
                    self.release().await;
                }
                Ok(unbuffered(fenced(parts.status, parts.headers, None, Body::new(body))))
            }
        }
    }

    // The upstream said nothing that could be passed on.
    async fn failed(&self, failed: Failed) -> Result<Response, Problem> {
        let route = &self.entry.route;
        let meant = if let Failed::Unreachable(_) = failed { OnError::Release } else { route.on_error };
        let problem = self.unanswered(&failed, meant);
        self.warn(&failed);
        match meant {
            OnError::Unknown => {}
            OnError::Release => self.release().await,
            OnError::Seal => {
                let (path, trace) = (self.call.parts.uri.path(), &self.call.trace);
                let (parts, _) = problem.response(path, trace).into_parts();
                let body = Bytes::from(problem.body(path, trace));
                let kept = StoredAnswer::new(parts.status, &parts.headers, Some(body.clone()));
                let ends = self.seal(self.claim.idempotency_key(), kept.encode()).await?;
                return Ok(fenced(parts.status, parts.headers, Some(ends), Body::from(body)));
            }
        }
        Err(problem)
    }

    fn warn(&self, failed: &Failed) {
        let app = &self.call.app;
        app.log
            .line(Level::Warn, app.fencepost.engine().now().0, "an upstream failed")
            .text("endpoint", &self.entry.endpoint)
            .text("why", &failed.to_string())
            .text("idempotency_key", &self.claim.target().key.hex())
            .text("trace_id", &self.call.trace);
    }

    async fn release(&self) {
        let release = |token| {
            let release =
                Command::Fence(fence::Command::Release(Release { target: self.claim.target().clone(), token }));
            [release].into_iter().chain(self.signed.as_ref().map(Bound::release)).collect()
        };
        // A store that does not answer now lets the lease run out: the key is free later, and never twice.
        if let Ok(reply) = Patience::ONCE.settle(self.engine(), || self.effect_guard.token(), release).await {
            let told = Told { op: "release", effect_id: None, source: self.source() };
            record(&self.call, self.claim.target(), &reply, &told);
        }
    }

    /// Seals, and gives the time until which duplicates are answered.
    async fn seal(&self, effect_id: String, receipt: Bytes) -> Result<Millis, Problem> {
        let (claim, effect_guard, signed) = (self.claim.clone(), self.effect_guard.clone(), self.signed.clone());
        let outcome = Outcome { claim, effect_id: effect_id.clone(), receipt, effect_guard, signed };
        let reply = match outcome.seal(Patience::ONCE).await {
            Ok(reply) => reply,
            Err(_) => {
                // The effect happened. The client is told that the store is down; the outcome is not given up.
                let app = &self.call.app;
                self.effect_guard.done();
                app.gateway.go_on(outcome.seal_later(app.clone()));
                return Err(unconfirmed(self.claim.target()));
            }
        };
        let target = self.claim.target();
        record(&self.call, target, &reply, &Told { op: "seal", effect_id: Some(&effect_id), source: self.source() });
        if let Reply::Fence(fence::Reply::Sealed { expires, .. }) = reply {
            return Ok(expires);
        }
        let late = "the upstream's answer";
        let ended = ended_by_person(&self.call, target, self.effect_guard.token(), &reply, late).await;
        // Where that cannot be read, the refusal itself is still true.
        let ended = ended.unwrap_or_default();
        Err(ended.unwrap_or_else(|| reply::refusal(&self.call, target, &reply)))
    }

    /// The id that the upstream itself gives, then the one that the rule points at, then what HTTP has. Without any of
    /// them, the fence's own key: a status would say nothing of which effect it was.
    fn effect_id(&self, parts: &Parts, body: &[u8]) -> String {
        let found = found_effect_id(&self.entry, parts, body);
        found.unwrap_or_else(|| self.claim.idempotency_key())
    }

    fn unanswered(&self, failed: &Failed, meant: OnError) -> Problem {
        let detail = match (failed, meant, self.claim.target().scope.on_lapse) {
            (Failed::Unreachable(_), ..) => "the upstream takes no connection; nothing was done",
            (_, OnError::Unknown, OnLapse::Recover) => {
                "whether the upstream has done it is unknown; the same key is in-flight until the lease runs out, and then \
                 the upstream is called again, with Fencepost-Recovering: true"
            }
            (_, OnError::Unknown, OnLapse::Hold) => {
                "whether the upstream has done it is unknown; the same key is in-flight until the lease runs out, and then \
                 in-doubt: the upstream is not called again before a person has resolved it"
            }
            (_, OnError::Release, _) => "the upstream gave no answer; the key is free, and a retry calls it again",
            (_, OnError::Seal, _) => {
                "the upstream gave no answer; every retry gets this answer, and it is not called again"
            }
        };
        match failed {
            Failed::Unreachable(_) => Problem::new(Code::UpstreamUnreachable, detail).retry_after(1),
            Failed::Broken(_) => Problem::new(Code::UpstreamFailed, detail),
            Failed::Silent(_) => Problem::new(Code::UpstreamTimeout, detail),
        }
    }

    fn source(&self) -> Option<(&str, &str)> {
        self.source.as_ref().map(|source| (source.kind.as_str(), source.id.as_str()))
    }

    fn engine(&self) -> &Engine {
        self.call.app.fencepost.engine()
    }
}

/// The answer for an effect that happened while the store does not confirm its seal.
pub(super) fn unconfirmed(target: &Target) -> Problem {
    // This node remembers its own effects until it stops; other nodes know only the store.
    let detail = match target.scope.on_lapse {
        OnLapse::Recover => {
            "it was done, and the store does not confirm it yet; repeat the request with the same key. This node does not call \
             the upstream again; once the lease has run out, another node, or this one after a restart, may, with \
             Fencepost-Recovering: true"
        }
        OnLapse::Hold => {
            "it was done, and the store does not confirm it yet; repeat the request with the same key. Where the store never \
             confirms it, the key is in-doubt once the lease has run out, and the upstream is not called again before a person \
             has resolved it"
        }
    };
    Problem::new(Code::StoreUnavailable, detail).retry_after(1)
}

/// An effect that happened, on its way to the store.
struct Outcome {
    claim: Claim,
    effect_id: String,
    receipt: Bytes,
    effect_guard: Arc<EffectGuard>,
    signed: Option<Bound>,
}

impl Outcome {
    async fn seal(&self, patience: Patience) -> Result<Reply, engine::Error> {
        let seal = |token| {
            let (target, effect_id) = (self.claim.target().clone(), self.effect_id.clone());
            let seal = Seal { target, token, effect_id, receipt: self.receipt.clone() };
            [Command::Fence(fence::Command::Seal(seal))]
                .into_iter()
                .chain(self.signed.as_ref().map(Bound::seal))
                .collect()
        };
        patience.settle(self.claim.engine(), || self.effect_guard.token(), seal).await
    }

    // This node lets no other request in meanwhile; another one may, once the lease is over.
    async fn seal_later(self, app: Arc<App>) {
        let reply = self.seal(self.claim.patience()).await;
        let is_sealed = matches!(reply, Ok(Reply::Fence(fence::Reply::Sealed { .. })));
        let (level, msg) = if is_sealed {
            (Level::Info, "an outcome was recorded late")
        } else {
            (Level::Error, "an outcome could not be recorded: the effect may happen again")
        };
        let decision = match &reply {
            Ok(reply) => reply.decision(),
            Err(engine::Error::Stopped(_)) => "stopped",
            Err(engine::Error::Unavailable(_) | engine::Error::Unknown(_)) => "unavailable",
        };
        let line = app.log.line(level, self.claim.engine().now().0, msg).text("decision", decision);
        drop(line.text("idempotency_key", &self.claim.idempotency_key()));
    }
}

fn said_applied(parts: &Parts) -> bool {
    parts.headers.get(OUTCOME).is_some_and(|said| said == "applied")
}

fn meaning(parts: &Parts, on_error: OnError) -> Meaning {
    match parts.headers.get(OUTCOME).map(HeaderValue::as_bytes) {
        Some(b"applied") => return Meaning::Seal,
        Some(b"not-applied") => return Meaning::Release,
        _ => {}
    }
    match (answer::meaning(parts.status), on_error) {
        (Meaning::Unknown, OnError::Release) => Meaning::Release,
        (Meaning::Unknown, OnError::Seal) => Meaning::Seal,
        (meaning, _) => meaning,
    }
}

fn found_effect_id(entry: &Entry, parts: &Parts, body: &[u8]) -> Option<String> {
    let text =
        |name: &http::HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let said = text(&EFFECT_ID).or_else(|| match &entry.route.effect_id {
        Some(FieldOrigin::Header(name)) => {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        }
        Some(FieldOrigin::Body(pointer)) => {
            let document = json::parse(body).ok()?;
            key::at(&document, pointer).and_then(key::scalar)
        }
        _ => None,
    });
    let found = said.or_else(|| text(&header::LOCATION));
    let usable = |id: &String| !id.is_empty() && id.len() <= EFFECT_ID_BYTES_MAX;
    found.filter(usable)
}

fn join(first: Bytes, more: BytesMut) -> Bytes {
    if more.is_empty() {
        return first;
    }
    let mut whole = BytesMut::with_capacity(first.len() + more.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&more);
    whole.freeze()
}

/// An upstream's answer as the client gets it.
pub(super) fn fenced(status: StatusCode, mut headers: HeaderMap, ends: Option<Millis>, body: Body) -> Response {
    headers::answer(&mut headers);
    if let Some(ends) = ends {
        expires(&mut headers, ends);
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
