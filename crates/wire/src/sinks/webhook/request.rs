//! One attempt as an HTTP request: the event's bytes as they were published, and the headers that sign them.
//! Never copies the body, and never reads a clock: the time is an argument. Called by the sink.

use bytes::Bytes;
use fencepost::dispatch::Delivery;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use super::signature::{self, Marks, Secret};

const USER_AGENT: &str = concat!("fencepost/", env!("CARGO_PKG_VERSION"));

const FGAI_SIGNATURE: HeaderName = HeaderName::from_static("x-fgai-signature");
const FGAI_SIGNATURE_PREVIOUS: HeaderName = HeaderName::from_static("x-fgai-signature-previous");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const LANE: HeaderName = HeaderName::from_static("fencepost-lane");
const SEQ: HeaderName = HeaderName::from_static("fencepost-seq");
const PREV_SEQ: HeaderName = HeaderName::from_static("fencepost-prev-seq");
const ATTEMPT: HeaderName = HeaderName::from_static("fencepost-attempt");
const REDRIVE: HeaderName = HeaderName::from_static("fencepost-redrive");
const SIGNATURE: HeaderName = HeaderName::from_static("fencepost-signature");

/// The secrets and the time that an attempt is signed with.
pub(super) struct Signing<'a> {
    /// The newest first. Without any, no request is made.
    pub(super) secrets: &'a [Secret],
    /// Whether the headers of Standard Webhooks are sent, too.
    pub(super) standard: bool,
    /// The time of the attempt, in seconds since the Unix epoch.
    pub(super) at_s: u64,
}

pub(super) fn request(delivery: &Delivery, uri: Uri, signing: &Signing<'_>) -> Result<Request<Full<Bytes>>, String> {
    let Signing { secrets, standard, at_s } = *signing;
    let [newest, older @ ..] = secrets else { return Err("the transport has no secret to sign with".to_owned()) };
    let body = &delivery.entry.body;
    let lane = signature::lane_text(&delivery.lane);
    let Delivery { seq, prev_seq, attempt, .. } = *delivery;
    let marks = Marks { lane: &lane, seq, prev_seq, attempt, redrive: delivery.redrive() };

    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let mut put = |name: HeaderName, value: &str| -> Result<(), String> {
        let fits = HeaderValue::from_str(value).map_err(|_| format!("{name} cannot say {value:?}"))?;
        headers.insert(name, fits);
        Ok(())
    };
    put(FGAI_SIGNATURE, &signature::fgai(newest, body))?;
    if let Some(previous) = older.first() {
        put(FGAI_SIGNATURE_PREVIOUS, &signature::fgai(previous, body))?;
    }
    put(LANE, marks.lane)?;
    put(SEQ, &marks.seq.to_string())?;
    put(PREV_SEQ, &marks.prev_seq.to_string())?;
    put(ATTEMPT, &marks.attempt.to_string())?;
    if marks.redrive {
        put(REDRIVE, "true")?;
    }
    put(SIGNATURE, &signature::fencepost(secrets, at_s, &marks, body))?;
    if standard {
        let id = &delivery.entry.correlation_id;
        put(WEBHOOK_ID, id)?;
        put(WEBHOOK_TIMESTAMP, &at_s.to_string())?;
        put(WEBHOOK_SIGNATURE, &signature::standard(secrets, id, at_s, body))?;
    }
    Ok(request)
}
