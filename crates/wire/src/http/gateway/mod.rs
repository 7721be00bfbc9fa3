//! The gateway: any HTTP API behind a fence. Finds the route, asks for the right to act, lets the request through once
//! and answers everyone else with the first one's answer. Never lets a write pass that it could not fence.
//! Called for every path that is none of Fencepost's own.

pub mod crossing;
mod decided;
mod detach_on_drop;
mod granted_call;
mod headers;
mod in_flight_effects;
mod key;
mod large;
mod link;
mod order;
mod patient;
mod replay;
mod shares;
mod signed;
mod spelling;
mod table;
mod upstream;

use std::{
    sync::{Arc, PoisonError, RwLock, atomic::AtomicBool},
    time::Duration,
};

use axum::{body::Body, extract::Request, response::Response};
use fencepost::{
    Claim, Patience, idempotency_key,
    policy::{NoScope, Policy},
    verify,
};
use fencepost_kernel::{
    Command, Reply,
    fence::{self, Source, State, Target, body::Body as Compared},
};
use http::{HeaderMap, Uri, header, request::Parts};
use http_body::Body as _;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    detach_on_drop::DetachOnDrop,
    granted_call::{GrantedCall, fenced},
    headers::Leaving,
    in_flight_effects::{InFlightEffects, Known},
    key::Places,
    order::{Queues, Rank, SourceTurn},
    patient::Patient,
    shares::{Client, Shares},
    signed::Signed,
    table::{Entry, Fit, Table},
    upstream::Upstreams,
};
use super::{
    App,
    call::{self, Call},
    fences::{Told, record},
    reply, request,
};
use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};
use fencepost_front::{Standing, Unbuffered};

/// How long an effect that is let go of may take to end.
const LET_GO: Duration = Duration::from_secs(1);

/// The gateway's state between requests.
pub struct Gateway {
    upstreams: Upstreams,
    table: RwLock<Arc<Table>>,
    queues: Queues,
    /// Places for writes, and for reads: slow readers must not keep writes out.
    places: Shares,
    reads: Shares,
    /// Effects under way whose client has gone, and the word that ends them.
    flights: TaskTracker,
    over: CancellationToken,
    /// Every effect that this node has under way, or whose seal the store has not taken yet.
    in_flight_effects: InFlightEffects,
}

impl Gateway {
    /// A gateway under a policy; fails where the policy names authorities that cannot be read, or an upstream that is
    /// no address.
    pub fn new(policy: Arc<Policy>) -> Result<Self, String> {
        Ok(Self {
            upstreams: Upstreams::new(&policy.gateway).map_err(|why| format!("gateway.ca: {why}"))?,
            table: RwLock::new(Arc::new(Table::new(policy.clone())?)),
            queues: Queues::default(),
            places: Shares::new(policy.gateway.in_flight_max),
            reads: Shares::new(policy.gateway.in_flight_max),
            flights: TaskTracker::new(),
            over: CancellationToken::new(),
            in_flight_effects: InFlightEffects::default(),
        })
    }

    /// Waits until every effect under way has its outcome, or the time is over; then lets go of the rest, whose leases
    /// run out.
    pub async fn rest(&self, grace: Duration) {
        self.flights.close();
        let _ = tokio::time::timeout(grace, self.flights.wait()).await;
        self.over.cancel();
        // Not for one on a thread that a disk holds up.
        let _ = tokio::time::timeout(LET_GO, self.flights.wait()).await;
    }

    /// Runs without a client, until its end or that of the server.
    fn go_on<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        if let Ok(executor) = Handle::try_current() {
            self.flights.spawn_on(self.over.clone().run_until_cancelled_owned(work), &executor);
        }
    }

    // A policy that came into force makes a new table; requests under way keep theirs.
    fn table(&self, policy: &Arc<Policy>) -> Result<Arc<Table>, Problem> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        if Arc::ptr_eq(&table.policy, policy) {
            return Ok(table);
        }
        let unfit = |_| Problem::new(Code::Internal, "the policy in force has a route that leads nowhere");
        let table = Arc::new(Table::new(policy.clone()).map_err(unfit)?);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table.clone();
        Ok(table)
    }
}

/// Any request that is for none of our own paths, its path spelled.
pub(super) async fn serve(app: Arc<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let policy = app.policy();
    let trace = TraceId::of(parts.headers.get("traceparent"));
    let path = parts.uri.path().to_owned();
    let answer = async {
        let table = app.gateway.table(&policy)?;
        match table.fit(&parts.method, &path) {
            Fit::None => Err(call::nothing_here()),
            Fit::OtherMethod => Ok(call::method_not_allowed(&parts.method, &path, &trace, table.allowed(&path))),
            // An offer of HTTP/2 may be ignored.
            _ if parts
                .headers
                .get_all(header::UPGRADE)
                .iter()
                .any(|to| !to.as_bytes().eq_ignore_ascii_case(b"h2c")) =>
            {
                Err(Problem::new(Code::NotImplemented, "the gateway does not change protocols"))
            }
            Fit::Passing(entry) => {
                headers::refuse_wrong_connection(&policy, entry, &parts.headers)?;
                pass(&app, &policy, entry, &trace, parts, body).await
            }
            Fit::Fenced(entry, bound) => {
                headers::refuse_wrong_connection(&policy, entry, &parts.headers)?;
                let caller = match &entry.signer {
                    Some(signer) => signer.clone(),
                    None => call::caller(&app, &parts)?,
                };
                if entry.signer.is_none() {
                    entry.route.callers.admit(&caller).map_err(|why| Problem::new(Code::Forbidden, why))?;
                }
                // A signature is checked over the whole body: until then its sender is unknown.
                let standing = entry.signer.as_ref().map_or(Standing::Authenticated, |_| Standing::Unauthenticated);
                let mut charge = app.budget.charge(standing);
                let body = call::read(policy.server.limits.request_bytes_max, &parts, body, &mut charge).await?;
                let call = Call { app, entry: None, policy, caller, trace, parts, acting: None, body, charge };
                write(call, entry, &bound).await
            }
        }
    };
    answer.await.unwrap_or_else(|problem| problem.response(&path, &trace).map(Body::new))
}

/// Gives one path one spelling: a letter may be written `%61`, and servers behind the gateway read it as the letter.
/// Runs before our own paths are looked up: they come first in every spelling.
pub(super) fn spell(uri: &mut Uri) {
    let Some(path) = table::spelled(uri.path()) else { return };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if let Ok(spelled) = format!("{path}{query}").parse() {
        *uri = spelled;
    }
}

/// A read passes as it is.
async fn pass(
    app: &App,
    policy: &Policy,
    entry: &Entry,
    trace: &TraceId,
    mut parts: Parts,
    body: Body,
) -> Result<Response, Problem> {
    let has_body = !body.is_end_stream();
    // Many upstreams do not read a read's body, and take its unread bytes for the next request.
    if has_body && !entry.route.pass_body {
        let detail = format!(
            "this {} has a body, which its rule does not pass on; send it without one, or set pass_body",
            parts.method
        );
        return Err(Problem::new(Code::Malformed, detail));
    }
    let known = call::caller(app, &parts).ok();
    let place = app.gateway.reads.take(&entry.endpoint, Client::of(known.as_deref(), &parts, &policy.server))?;
    let tenant = known.as_ref().map(|caller| caller.id.as_str());
    let body_bytes = body.size_hint().exact();
    let headers = Leaving { entry, policy, trace, claim: None, tenant, body_bytes }.headers(&mut parts);
    let uri = upstream::address(entry, &parts.uri).ok_or_else(call::nothing_here)?;
    // Data only: trailers could repeat headers that were removed from the head.
    let body = if has_body { Body::from_stream(body.into_data_stream()) } else { Body::empty() };
    let request = upstream::request(parts.method, uri, headers, body);
    let answer = app.gateway.upstreams.send(entry, request, entry.timeout).await;
    let (parts, body) = answer.map_err(|failed| unanswered(&failed))?.into_parts();
    let body = Body::new(Patient::new(body, entry.timeout, Some(place)));
    Ok(unbuffered(fenced(parts.status, parts.headers, None, body)))
}

/// An answer that passes as it comes, and is never in memory as a whole.
fn unbuffered(mut response: Response) -> Response {
    response.extensions_mut().insert(Unbuffered);
    response
}

fn unanswered(failed: &upstream::Failed) -> Problem {
    use upstream::Failed;
    match failed {
        Failed::Unreachable(_) => {
            Problem::new(Code::UpstreamUnreachable, "the upstream takes no connection").retry_after(1)
        }
        Failed::Broken(_) => Problem::new(Code::UpstreamFailed, "the upstream broke off its answer"),
        Failed::Silent(_) => Problem::new(Code::UpstreamTimeout, "the upstream gave no answer in time"),
    }
}

/// A write is fenced.
async fn write(mut call: Call, entry: &Arc<Entry>, bound: &[(&str, &str)]) -> Result<Response, Problem> {
    admit(&call, entry)?;
    call.charge.authenticated();
    let (claim, turn) = claim(&call, entry, bound).await?;
    let app = call.app.clone();
    // A client that goes away must leave neither a claim without its effect nor an effect without its seal.
    DetachOnDrop::new(|is_waiting| act(call, entry.clone(), claim, turn, is_waiting), app).await
}

async fn act(
    call: Call,
    entry: Arc<Entry>,
    claim: fence::ClaimFence,
    turn: Option<SourceTurn>,
    is_waiting: Arc<AtomicBool>,
) -> Result<Response, Problem> {
    let (target, lease_ms) = (claim.target.clone(), claim.lease_ms);
    let wait = wait(&call);
    let engine = call.app.fencepost.engine();
    let told = claim.source.clone();
    // Its lease may be over: a caller let in now would repeat the effect.
    if call.app.gateway.in_flight_effects.known(&target.key) == Some(Known::Done) {
        return Err(granted_call::unconfirmed(&target));
    }
    let reply = engine.claim_flagged(Command::Fence(fence::Command::Claim(claim)), wait, &is_waiting).await?;
    let source = told.as_ref().map(|source| (source.kind.as_str(), source.id.as_str()));
    record(&call, &target, &reply, &Told { op: "claim", effect_id: None, source });
    if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply {
        call.app.metrics.dropped(&entry.endpoint, &target.tenant);
        if let State::Sealed { receipt, .. } = &fence.state {
            call.room_for(receipt.body.len())?;
        }
        return replay::answer(&call.app, &entry, &target, &fence).await;
    }
    let Reply::Fence(fence::Reply::New(granted)) = reply else {
        return decided::refused(&call, &entry, &target, &reply);
    };
    match call.app.gateway.in_flight_effects.begin(target.key, granted.token) {
        Ok(effect_guard) => {
            let patience = Patience(call.policy.gateway.settle_for);
            let (claim, effect_guard) =
                (Claim::granted(engine, target, granted, lease_ms, patience), Arc::new(effect_guard));
            let client = Client::Tenant(claim.target().tenant.clone());
            let place = call.app.gateway.places.take(&entry.endpoint, client);
            let granted_call =
                GrantedCall { call, entry, claim, effect_guard, source: told, signed: None, place: None, _turn: turn };
            Ok(granted_call.call_and_settle(place).await)
        }
        // Its lease ran out here, since the store was away, and it is still under way.
        Err(Known::Done) => Err(granted_call::unconfirmed(&target)),
        Err(Known::UnderWay) => {
            // This claim overwrote the trace of the request under way, so it is not known any more.
            let (lease_expires, first_seen) = (granted.lease_expires, granted.first_seen);
            let held = Reply::Fence(fence::Reply::InFlight { lease_expires, first_seen, held_by: None });
            decided::refused(&call, &entry, &target, &held)
        }
    }
}

/// Checks a request before anything is read out of it.
fn admit(call: &Call, entry: &Entry) -> Result<(), Problem> {
    let headers = &call.parts.headers;
    match &entry.route.verify {
        Some(how) => {
            // The sender signed by the world's time; ours may be behind after a sleep, or ahead of a wall that was set back.
            let wall_ms = call.app.fencepost.engine().wall().0;
            verify::verify(how, headers, &call.body, wall_ms)
                .map_err(|refused| Problem::new(Code::BadSignature, refused.to_string()))?;
        }
        None => required(entry.route.requires(&call.policy.require_headers), headers)?,
    }
    call::refuse_coded(headers)
}

fn required(names: &[String], headers: &HeaderMap) -> Result<(), Problem> {
    match names.iter().find(|name| !headers.contains_key(name.as_str())) {
        None => Ok(()),
        Some(name) if name.eq_ignore_ascii_case(idempotency_key::NAME) => {
            Err(Problem::new(Code::MissingIdempotencyKey, "send an Idempotency-Key, the same with every retry"))
        }
        Some(name) => Err(Problem::new(Code::MissingHeader, format!("the header {name} is required"))),
    }
}

/// The claim that a request stands for, and its turn where its source is ordered.
async fn claim(
    call: &Call,
    entry: &Entry,
    bound: &[(&str, &str)],
) -> Result<(fence::ClaimFence, Option<SourceTurn>), Problem> {
    // Nothing of the parsed body is left when it waits: a document takes many times the memory of its bytes.
    let (claim, rank) = read_claim(call, entry, bound)?;
    if let Some(signed) = Signed::of(call, entry, &claim.target) {
        signed.admit(call, entry).await?;
    }
    let turn = match rank {
        Some(rank) => Some(turn(call, entry, &claim, Rank::of(rank)).await?),
        None => None,
    };
    Ok((claim, turn))
}

/// The claim, and the value that orders it.
fn read_claim(
    call: &Call,
    entry: &Entry,
    bound: &[(&str, &str)],
) -> Result<(fence::ClaimFence, Option<String>), Problem> {
    let route = &entry.route;
    let scope = call.policy.scope(&route.scope).map_err(|none| match none {
        NoScope::Unknown => Problem::new(Code::UnknownScope, format!("there is no scope {:?}", route.scope)),
        NoScope::Unfit(why) => Problem::new(Code::StoreUnsupported, format!("{} {why}", route.scope)),
    })?;
    let json = call.says_json() || entry.reads_json;
    let document = (json && !call.body.is_empty()).then(|| call.json()).transpose()?;
    let scheme = route.verify.as_ref().map(|verify| verify.scheme);
    let places = Places { parts: &call.parts, bound, body: &call.body, document: document.as_ref(), scheme };
    // One that is there must be one, also where the key comes from elsewhere.
    places.idempotency_key()?;
    if !call.caller.is_tenant() {
        return Err(Problem::new(
            Code::Forbidden,
            "this token has no tenant; use a partner, planner or executor token",
        ));
    }
    let target = Target::new(call.tenant(None)?, scope.clone(), places.fields(entry)?, None)
        .map_err(|wrong| request::wrong_key(scope, &wrong))?;
    let id = route.source.as_ref().map(|origin| places.value("source", origin)).transpose()?;
    let kind = || scope.source.clone().unwrap_or_else(|| "http".to_owned());
    let source = id.map(|id| Source { kind: kind(), id });
    let rank = route.order.as_ref().map(|origin| places.value("order", origin)).transpose()?;
    let compared = match &document {
        Some(node) => Compared::json(node, &scope.mask),
        None => Compared::opaque(&call.body),
    };
    let path = call.parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut compared = compared.asked_of(call.parts.method.as_str(), path);
    match &route.callers.principal {
        Some(principal) => compared = compared.asked_by(&places.principal(principal)?),
        None => entry.warn_of_cookies(call),
    }
    let lease_ms = scope.lease_ms;
    let trace = Some(call.trace.held());
    let claim = fence::ClaimFence { target, body: Some(compared), version: None, source, lease_ms, trace };
    Ok((claim, rank))
}

async fn turn(call: &Call, entry: &Entry, claim: &fence::ClaimFence, rank: Rank) -> Result<SourceTurn, Problem> {
    let source = claim.source.as_ref().map(|source| source.id.as_str()).unwrap_or_default();
    let lane = (entry.endpoint.clone(), claim.target.tenant.clone(), source.to_owned());
    let turn = call.app.gateway.queues.turn(lane, rank, call.policy.server.limits.wait_max).await;
    turn.map_err(|_| {
        let detail = "earlier events of the same source are still under way";
        let problem = reply::explained(Problem::new(Code::InFlight, detail).retry_after(1), &claim.target.key);
        decided::in_flight(entry, problem)
    })
}

/// `Prefer: wait=5`, as far as the policy allows.
fn wait(call: &Call) -> Duration {
    let preferred = call.parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let seconds = preferred.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse().ok()).flatten()
    });
    Duration::from_secs(seconds.unwrap_or(0)).min(call.policy.server.limits.wait_max)
}
