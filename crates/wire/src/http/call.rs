//! One request on its way in: its trace, its caller, its path parameters, its body; and the ways an answer goes out.
//! Never reads a body before its caller is known and admitted. Called by every route.

use std::sync::{Arc, OnceLock};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use fencepost::{
    dispatch::Dispatch,
    engine::Engine,
    policy::{
        Policy,
        identity::{Identity, Role},
    },
};
use fencepost_kernel::{Tenant, audit::Operator, json};
use http::{HeaderMap, HeaderValue, Method, header, request::Parts};
use http_body_util::BodyExt;

use super::{
    App,
    route::{Admitted, Entry},
    routes::OnAdminListener,
};
use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};
use fencepost_front::{Charge, NO_ROOM, NoRoom, PeerThumbprint, Standing};

/// The most that a handler keeps of a body that it takes in chunks.
const STREAM_BYTES: usize = 512 << 10;
/// A smaller answer is made without a check for room: there are at most as many of them as requests under way.
const SMALL_ANSWER_BYTES: usize = 64 * 1024;

/// A request whose caller is known.
pub(super) struct Call {
    pub(super) app: Arc<App>,
    /// The matched route; none where a rule of the gateway matched the request.
    pub(super) entry: Option<&'static Entry>,
    /// The policy in force when the request began. A reload does not change it.
    pub(super) policy: Arc<Policy>,
    pub(super) caller: Arc<Identity>,
    pub(super) trace: TraceId,
    pub(super) parts: Parts,
    /// Where what the request changes belongs in the audit.
    pub(super) acting: Option<Acting>,
    /// Empty where the handler takes the body in chunks.
    pub(super) body: Bytes,
    /// The charge for the body, held until the request is answered.
    pub(super) charge: Charge,
}

/// The handles that an operator's request asks through.
pub(super) struct Acting {
    engine: Engine,
    dispatch: OnceLock<Dispatch>,
}

impl Call {
    /// Reads the body of an admitted request, lets the handler of its route answer, and turns a refusal into a problem
    /// document.
    pub(super) async fn run(
        admitted: Admitted,
        handler: impl AsyncFnOnce(&Call) -> Result<Response, Problem>,
    ) -> Response {
        let (mut call, body) = match Self::begin(admitted) {
            Ok(begun) => begun,
            Err(refusal) => return *refusal,
        };
        let answer = match read(call.body_bytes_max(), &call.parts, body, &mut call.charge).await {
            Ok(body) => {
                call.body = body;
                handler(&call).await
            }
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| told(&problem, &call.parts, &call.trace))
    }

    /// The same for a handler that takes the body in chunks.
    pub(super) async fn run_streaming(
        admitted: Admitted,
        handler: impl AsyncFnOnce(&Call, &mut BodyStream) -> Result<Response, Problem>,
    ) -> Response {
        let (mut call, body) = match Self::begin(admitted) {
            Ok(begun) => begun,
            Err(refusal) => return *refusal,
        };
        let room = call.charge.try_add(STREAM_BYTES).map_err(|NoRoom| no_room());
        let answer = match room.and_then(|()| BodyStream::new(call.body_bytes_max(), &call.parts, body)) {
            Ok(mut stream) => handler(&call, &mut stream).await,
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| told(&problem, &call.parts, &call.trace))
    }

    fn begin(admitted: Admitted) -> Result<(Self, Body), Box<Response>> {
        let Admitted { app, entry, caller, trace, parts, body } = admitted;
        // A test of the tables checks that a route without a caller reads no body.
        let Some(caller) = caller else { return Err(Box::new(told(&unauthorized(), &parts, &trace))) };
        let budget = parts.extensions.get::<OnAdminListener>().map_or(&app.budget, |admin| &admin.0);
        let (policy, charge) = (app.policy(), budget.charge(Standing::Authenticated));
        let acting = entry.route.is_act_of(&caller).then(|| {
            let (by, op) = (caller.id.as_str().into(), entry.route.operation_id.into());
            let operator = Operator { by, op, trace: Some(trace.held()), retain_ms: policy.audit_retention_ms };
            Acting { engine: app.fencepost.engine().on_behalf_of(operator), dispatch: OnceLock::new() }
        });
        let body_later = Bytes::new();
        Ok((Self { app, entry: Some(entry), policy, caller, trace, parts, acting, body: body_later, charge }, body))
    }

    /// The engine: what an operator changes through it is in the audit.
    pub(super) fn engine(&self) -> &Engine {
        self.acting.as_ref().map_or_else(|| self.app.fencepost.engine(), |acting| &acting.engine)
    }

    /// The same, for lanes and their events.
    pub(super) fn dispatch(&self) -> Result<&Dispatch, Problem> {
        let dispatch = self.app.dispatch.as_ref().map_err(|why| Problem::new(Code::StoreUnsupported, why.as_str()))?;
        let acting = |acting: &'_ Acting| dispatch.with_engine(acting.engine.clone());
        Ok(self.acting.as_ref().map_or(dispatch, |own| own.dispatch.get_or_init(|| acting(own))))
    }

    // A rule of the gateway has no limit of its own: the policy's counts.
    fn body_bytes_max(&self) -> usize {
        let of_policy = self.policy.server.limits.request_bytes_max;
        self.entry.map_or(of_policy, |entry| entry.route.body_limit.bytes(of_policy as u64, &self.parts.uri) as usize)
    }

    /// Whether the request says that its body is JSON.
    pub(super) fn says_json(&self) -> bool {
        self.parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| is_json(kind.as_bytes()))
    }

    /// The JSON document that the request carries.
    pub(super) fn json(&self) -> Result<json::JsonNode<'_>, Problem> {
        if self.parts.headers.contains_key(header::CONTENT_TYPE) && !self.says_json() {
            return Err(Problem::new(Code::NotJson, "send the body as application/json"));
        }
        json::parse(&self.body).map_err(|bad| {
            let code = if bad.problem == json::JsonProblem::Values { Code::TooLarge } else { Code::Malformed };
            Problem::new(code, bad.to_string())
        })
    }

    /// The tenant whose fences the caller means: its own or, for an admin, the one that it names.
    pub(super) fn tenant(&self, named: Option<&str>) -> Result<Tenant, Problem> {
        if self.caller.is_tenant() && named.is_none_or(|named| named == self.caller.id) {
            return Ok(self.caller.tenant().clone());
        }
        match named {
            Some(named) if self.caller.has(Role::Admin) && !named.is_empty() => Ok(Tenant::new(named)),
            Some(_) => Err(Problem::new(Code::Forbidden, "the credential is not that tenant's")),
            None if self.caller.has(Role::Admin) => Err(Problem::new(Code::Malformed, "an admin must name the tenant")),
            None => Err(Problem::new(Code::Forbidden, "a viewer has no fences of its own")),
        }
    }

    /// Refuses an answer for which the budget has no room. This only checks: the answer is charged when it is sent.
    pub(super) fn room_for(&self, bytes: usize) -> Result<(), Problem> {
        let small = bytes < SMALL_ANSWER_BYTES;
        if small || self.app.budget.charge(Standing::Authenticated).try_add_answer(bytes).is_ok() {
            return Ok(());
        }
        Err(no_room())
    }

    /// The tenant that the query names, if any.
    pub(super) fn query_tenant(&self) -> Result<Option<String>, Problem> {
        if self.parts.uri.query().is_none() {
            return Ok(None);
        }
        let named = self.query()?.into_iter().find(|(name, _)| name == "tenant").map(|(_, value)| value);
        Ok(named.filter(|tenant| !tenant.is_empty()))
    }

    /// The values of the query string, decoded, in order.
    pub(super) fn query(&self) -> Result<Vec<(String, String)>, Problem> {
        let raw = self.parts.uri.query().unwrap_or_default();
        raw.split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name, Plus::Space)?, decode(value, Plus::Space)?))
            })
            .collect()
    }

    /// The value of a parameter of the route's path, decoded.
    pub(super) fn path_value(&self, name: &str) -> Result<String, Problem> {
        let segment = self.entry.and_then(|entry| entry.route.segment(self.parts.uri.path(), name));
        decode(segment.expect("the route's pattern has the parameters that its handler reads"), Plus::Plus)
    }
}

/// Runs the handler of a route that needs only the head.
pub(super) async fn answer_head(
    admitted: Admitted,
    handler: impl AsyncFnOnce(&App, &Parts) -> Result<Response, Problem>,
) -> Response {
    let Admitted { app, trace, parts, .. } = admitted;
    handler(&app, &parts).await.unwrap_or_else(|problem| told(&problem, &parts, &trace))
}

fn told(problem: &Problem, parts: &Parts, trace: &TraceId) -> Response {
    problem.response(parts.uri.path(), trace).map(Body::new)
}

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send `Authorization: Bearer TOKEN` with a valid token")
}

/// The caller, known by its bearer token or its client certificate.
pub(super) fn caller(app: &App, parts: &Parts) -> Result<Arc<Identity>, Problem> {
    let now_ms = app.fencepost.engine().wall().0;
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let known = match (values.next(), values.next()) {
        (Some(value), None) => {
            let token = value.to_str().ok().and_then(|value| {
                let (scheme, token) = value.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            token.and_then(|token| app.directory.authenticate(token, now_ms))
        }
        (None, _) => {
            let thumbprint = parts.extensions.get::<PeerThumbprint>();
            thumbprint.and_then(|peer| app.directory.by_thumbprint(&peer.0, now_ms))
        }
        _ => None,
    };
    known.ok_or_else(unauthorized)
}

/// Refuses a compressed body: it cannot be compared, and a few bytes may expand to gigabytes.
pub(super) fn refuse_coded(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get_all(header::CONTENT_ENCODING).iter().all(|coding| coding == "identity") {
        true => Ok(()),
        false => Err(Problem::new(Code::CodedBody, "send the body without a Content-Encoding")),
    }
}

/// The body, within its bound and charged to the budget of all buffered bytes.
pub(super) async fn read(bytes_max: usize, parts: &Parts, body: Body, charge: &mut Charge) -> Result<Bytes, Problem> {
    let announced = announced(&parts.headers);
    let mut stream = BodyStream::new(bytes_max, parts, body)?;
    let mut whole = Vec::new();
    let mut first: Option<Bytes> = None;
    while let Some(data) = stream.chunk().await? {
        charge.try_add(data.len()).map_err(|NoRoom| no_room())?;
        match first.take() {
            // The usual body arrives in one piece and is never copied.
            None if whole.is_empty() => first = Some(data),
            earlier => {
                // With a known length, reserve exactly that: a vector that doubles could take twice the body.
                whole.reserve_exact(announced.map_or(0, |length| (length as usize).saturating_sub(whole.len())));
                whole.extend_from_slice(&earlier.unwrap_or_default());
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.into()))
}

/// A body that is read in chunks as it arrives, within its bound.
pub(super) struct BodyStream {
    body: Body,
    bytes_max: usize,
    bytes_read: usize,
}

impl BodyStream {
    /// Refuses a body whose `Content-Length` is above its bound.
    fn new(bytes_max: usize, parts: &Parts, body: Body) -> Result<Self, Problem> {
        let stream = Self { body, bytes_max, bytes_read: 0 };
        match announced(&parts.headers) {
            Some(length) if length > bytes_max as u64 => Err(stream.too_large()),
            _ => Ok(stream),
        }
    }

    /// The next bytes; none at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| Problem::new(Code::Malformed, "the request body could not be read"))?;
            let Ok(data) = frame.into_data() else { continue };
            self.bytes_read += data.len();
            if self.bytes_read > self.bytes_max {
                return Err(self.too_large());
            }
            return Ok(Some(data));
        }
        Ok(None)
    }

    fn too_large(&self) -> Problem {
        Problem::new(Code::TooLarge, format!("a request may have up to {} bytes", self.bytes_max))
    }
}

// The `Content-Length`, where it is a number.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

fn no_room() -> Problem {
    Problem::new(Code::BuffersFull, NO_ROOM).retry_after(1)
}

fn is_json(kind: &[u8]) -> bool {
    // Nearly every request sends exactly this.
    if kind == b"application/json" {
        return true;
    }
    let Ok(kind) = std::str::from_utf8(kind) else { return false };
    let mut parts = kind.split(';').map(str::trim);
    let (group, format) = parts.next().unwrap_or_default().split_once('/').unwrap_or_default();
    let suffix = format.len().checked_sub(5).and_then(|at| format.get(at..)).unwrap_or_default();
    let utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    utf8 && group.eq_ignore_ascii_case("application")
        && (format.eq_ignore_ascii_case("json") || suffix.eq_ignore_ascii_case("+json"))
}

/// The meaning of `+`: a space in a query, itself in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Plus {
    Space,
    Plus,
}

/// Decodes percent-encoded UTF-8.
pub(super) fn decode(text: &str, plus: Plus) -> Result<String, Problem> {
    let bad = || Problem::new(Code::Malformed, "the address is not percent-encoded UTF-8");
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|digit| (digit as char).to_digit(16)).ok_or_else(bad);
                let value = digit()? * 16 + digit()?;
                out.push(value as u8);
            }
            b'+' if plus == Plus::Space => out.push(b' '),
            plain => out.push(plain),
        }
    }
    String::from_utf8(out).map_err(|_| bad())
}

/// The refusal of a path that neither a route nor a rule of the gateway takes.
pub(super) fn nothing_here() -> Problem {
    Problem::new(Code::NotFound, "no such path; see /openapi.json")
}

/// The answer to a method that a path does not take; `allowed` lists those that it takes, separated by commas.
pub(super) fn method_not_allowed(method: &Method, path: &str, trace: &TraceId, allowed: HeaderValue) -> Response {
    let names = allowed.to_str().unwrap_or_default().split(',').map(str::trim);
    let names: Vec<&str> = names.filter(|name| !name.is_empty() && *name != "HEAD").collect();
    let instead = if names.is_empty() { String::new() } else { format!("; use {}", names.join(" or ")) };
    let problem = Problem::new(Code::MethodNotAllowed, format!("{method} is not allowed{instead}"));
    let mut response = problem.response(path, trace).map(Body::new);
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

/// The answer for a path that nothing serves.
pub(super) fn no_such_path(request: &Request) -> Response {
    let trace = TraceId::of(request.headers().get("traceparent"));
    nothing_here().response(request.uri().path(), &trace).map(Body::new)
}

/// The answer for a path that only the other listener serves.
pub(super) fn served_elsewhere(request: &Request) -> Response {
    let trace = TraceId::of(request.headers().get("traceparent"));
    let problem = Problem::new(Code::NotFound, "this path is served on the other listener (server.admin_listen)");
    problem.response(request.uri().path(), &trace).map(Body::new)
}
