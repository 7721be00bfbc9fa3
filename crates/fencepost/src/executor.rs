//! The executor's end of a webhook: verifies, fences, hands over, and acknowledges only what is durable here.
//! Never parses an unverified body. Never hands an event over while a copy is in flight, or after one was sealed.
//! Called by services that execute work, and by `fencepost executor`.

use std::{fmt::Display, time::Duration};

use bytes::Bytes;
use fencepost_kernel::json;
use http::{HeaderMap, StatusCode};

use crate::{
    Claim, Done, Error, Failure, Fencepost,
    signature::{Marks, Refused, Secret, Window, verify_fencepost, verify_fgai, verify_standard},
    verify::either,
};

/// The scope that received events are fenced under; it remembers them for seven days.
pub const SCOPE: &str = "WES_EXECUTE";

/// How many seconds the planner's clock may be from ours.
const TOLERANCE_S: u64 = 300;
/// How long a second copy waits for the first one's end, before the planner is asked to retry.
const WAIT: Duration = Duration::from_secs(5);

/// An event whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The planner that published it.
    pub planner_id: String,
    /// The planner's id of it: the fence is under this and the planner.
    pub correlation_id: String,
    /// Its kind, such as `SHIPPER_RELEASED`.
    pub kind: String,
    /// The whole envelope, byte for byte.
    pub body: Bytes,
    /// Its position in its lane, where the planner has signed one.
    pub place: Option<SignedPosition>,
}

/// The position of an event in its lane, as the planner has signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPosition {
    /// The name of the lane.
    pub lane: String,
    /// The event's position in the lane, from 1.
    pub seq: u64,
    /// The position before it. A receiver that last got another one has a gap.
    pub prev_seq: u64,
    /// Whether a person has sent it again, out of order.
    pub redrive: bool,
}

/// Why an event was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRefusal {
    /// No secret made its signature; the body was not read.
    BadSignature,
    /// The body is no envelope: not JSON, or without planner, id or kind.
    Malformed,
    /// An earlier copy is in flight, or its outcome is not known yet.
    InFlight,
    /// The handler has failed, or its outcome is not known.
    NotDone,
    /// The store of the fences does not answer.
    Unavailable,
}

impl EventRefusal {
    /// Its error code in the answer's problem document.
    pub fn code(self) -> &'static str {
        match self {
            Self::BadSignature => "bad-signature",
            Self::Malformed => "malformed-request",
            Self::InFlight => "in-flight",
            Self::NotDone => "not-now",
            Self::Unavailable => "store-unavailable",
        }
    }

    /// Its HTTP status. The planner retries whatever it is; a 503 says that a retry is of use.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadSignature => StatusCode::UNAUTHORIZED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::InFlight | Self::NotDone | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The answer to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The status: 2xx is an acknowledgement.
    pub status: StatusCode,
    /// A JSON document: an acknowledgement, or a problem document (`application/problem+json`).
    pub body: String,
    /// Why it is no acknowledgement, also in a sentence.
    pub refused: Option<(EventRefusal, String)>,
    /// The fence's decision, as in other log lines: `new`, `duplicate`, `conflict`, `in_flight`, `in_doubt`,
    /// `fenced_off`; `unavailable` where the store did not answer, `refused` where the fence was not asked.
    pub decision: &'static str,
    /// The event's own id; empty where no event was read.
    pub correlation_id: String,
    /// The `Idempotency-Key` for the handler, which also finds the fence; empty where no event was read.
    pub idempotency_key: String,
    /// Whether the id was known with another body. It is acknowledged, since a refusal would only make it a dead
    /// letter; but an operator should look at the planner.
    pub other_body: bool,
}

impl Received {
    fn accepted(decision: &'static str) -> Self {
        let body = format!(r#"{{"accepted":true,"replay":{}}}"#, decision != "new");
        let (correlation_id, idempotency_key, other_body) = (String::new(), String::new(), decision == "conflict");
        Self { status: StatusCode::OK, body, refused: None, decision, correlation_id, idempotency_key, other_body }
    }

    fn refused(decision: &'static str, refusal: EventRefusal, detail: &str) -> Self {
        let (code, status) = (refusal.code(), refusal.status());
        let number = status.as_u16();
        let mut out =
            format!(r#"{{"type":"https://fencepost.dev/errors/{code}","title":"{code}","status":{number},"detail":"#)
                .into_bytes();
        json::write_string(&mut out, detail);
        out.extend_from_slice(format!(r#","code":"{code}"}}"#).as_bytes());
        let body = String::from_utf8(out).unwrap_or_default();
        Self { status, body, refused: Some((refusal, detail.to_owned())), ..Self::accepted(decision) }
    }

    fn of(self, event: &Event, idempotency_key: String) -> Self {
        Self { correlation_id: event.correlation_id.clone(), idempotency_key, ..self }
    }
}

/// Receives the events that a planner posts.
#[derive(Clone)]
pub struct Receiver {
    once: Fencepost,
    secrets: Vec<Secret>,
}

impl Receiver {
    /// A receiver whose fences are in `once`. Any of the secrets may have signed: give both while one replaces another.
    pub fn new(once: Fencepost, secrets: Vec<Secret>) -> Self {
        Self { once, secrets }
    }

    /// Verifies a delivery, hands it over if it is the first of its id, and says what to answer. The effect of
    /// `hand_over` is sealed before the answer; a copy that comes meanwhile or later is answered as a replay.
    ///
    /// A planner that gives up closes its connection, and most servers drop the handler with it: let this run in a task
    /// of its own, or the work ends half done and unsealed, and comes again when its lease is over.
    ///
    /// ```no_run
    /// # async fn webhook(receiver: &fencepost::executor::Receiver, headers: http::HeaderMap, body: bytes::Bytes) {
    /// use fencepost::{Done, Failure};
    /// let answer = receiver.receive(&headers, body, |event, _claim| async move {
    ///     // make the floor tasks of event.body durable here
    ///     Ok::<_, Failure<std::io::Error>>(Done::new(event.correlation_id, "{}"))
    /// }).await;
    /// // answer.status and answer.body go back to the planner
    /// # }
    /// ```
    pub async fn receive<E: Display, F>(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        hand_over: impl FnOnce(Event, Claim) -> F,
    ) -> Received
    where
        F: Future<Output = Result<Done, Failure<E>>>,
    {
        let place = match self.verify(headers, &body) {
            Ok(place) => place,
            Err(_) => return Received::refused("refused", EventRefusal::BadSignature, "no valid signature"),
        };
        let event = match read(body, place) {
            Ok(event) => event,
            Err(why) => return Received::refused("refused", EventRefusal::Malformed, &why),
        };
        let received = self.run(event.clone(), hand_over).await;
        received.of(&event, self.idempotency_key(&event))
    }

    async fn run<E: Display, F>(&self, event: Event, hand_over: impl FnOnce(Event, Claim) -> F) -> Received
    where
        F: Future<Output = Result<Done, Failure<E>>>,
    {
        let effect = self.once.scope(SCOPE).key(fields(&event)).body(event.body.clone()).wait(WAIT);
        let effect = effect.source(&event.kind, &event.planner_id);
        match effect.run(|claim| hand_over(event, claim)).await {
            Ok(outcome) if outcome.replayed => Received::accepted("duplicate"),
            Ok(_) => Received::accepted("new"),
            Err(Error::Conflict { .. }) => Received::accepted("conflict"),
            Err(Error::InFlight { .. }) => Received::refused(
                "in_flight",
                EventRefusal::InFlight,
                "an earlier copy is still being worked on, or its outcome is not known yet",
            ),
            Err(Error::InDoubt) => {
                Received::refused("in_doubt", EventRefusal::InFlight, "the outcome of an earlier attempt is unknown")
            }
            Err(Error::FencedOff { resolved: Some(resolved) }) => {
                Received::refused("fenced_off", EventRefusal::InFlight, &format!("the lease ran out, and {resolved}"))
            }
            Err(Error::FencedOff { resolved: None }) => Received::refused(
                "fenced_off",
                EventRefusal::InFlight,
                "the lease ran out, and another copy was let in",
            ),
            Err(Error::Effect(error)) => Received::refused("new", EventRefusal::NotDone, &error.to_string()),
            Err(Error::Unsealed { .. }) => {
                Received::refused("new", EventRefusal::Unavailable, "it was done, and the store does not confirm it")
            }
            Err(error) => Received::refused("unavailable", EventRefusal::Unavailable, &error.to_string()),
        }
    }

    // The same key as the claim has.
    fn idempotency_key(&self, event: &Event) -> String {
        let fields = fields(event).map(|(name, value)| (name.to_owned(), value));
        self.once.target(SCOPE, fields.into(), None).map(|target| target.key.to_string()).unwrap_or_default()
    }

    // The planner's own signature or that of Standard Webhooks, under either name; and the lane's, if there is one.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<SignedPosition>, Refused> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let window = Window { now_s: self.once.engine().wall().0 / 1_000, tolerance_s: TOLERANCE_S };
        match text("x-fgai-signature") {
            Some(signature) => {
                let earlier = text("x-fgai-signature-previous");
                let tried = verify_fgai(&self.secrets, signature, body);
                tried.or_else(|refused| earlier.map_or(Err(refused), |text| verify_fgai(&self.secrets, text, body)))?;
            }
            None => {
                let signature = either(headers, "webhook-signature")?;
                let (id, at) = (either(headers, "webhook-id")?, either(headers, "webhook-timestamp")?);
                verify_standard(&self.secrets, id, at, signature, body, window)?;
            }
        }
        let Some(signature) = text("fencepost-signature") else { return Ok(None) };
        let number = |name: &str| text(name).and_then(|value| value.parse::<u64>().ok()).ok_or(Refused::Malformed);
        let lane = text("fencepost-lane").ok_or(Refused::Malformed)?;
        let (seq, prev_seq) = (number("fencepost-seq")?, number("fencepost-prev-seq")?);
        let attempt = u32::try_from(number("fencepost-attempt")?).map_err(|_| Refused::Malformed)?;
        let redrive = text("fencepost-redrive") == Some("true");
        verify_fencepost(&self.secrets, signature, &Marks { lane, seq, prev_seq, attempt, redrive }, body, window)?;
        Ok(Some(SignedPosition { lane: lane.to_owned(), seq, prev_seq, redrive }))
    }
}

fn fields(event: &Event) -> [(&'static str, String); 2] {
    [("planner_id", event.planner_id.clone()), ("correlation_id", event.correlation_id.clone())]
}

fn read(body: Bytes, place: Option<SignedPosition>) -> Result<Event, String> {
    let node = json::parse(&body).map_err(|bad| bad.to_string())?;
    let text = |name: &str| {
        let value = node.get(name).and_then(|value| value.as_str()).filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| format!("`{name}` must be a text"))
    };
    let (planner_id, correlation_id, kind) = (text("planner_id")?, text("correlation_id")?, text("kind")?);
    Ok(Event { planner_id, correlation_id, kind, place, body: body.clone() })
}
