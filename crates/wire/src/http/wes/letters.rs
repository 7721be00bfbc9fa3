//! `/wes/v1/dispatch/dlq`: the events that no receiver took, and a person's decision on each.
//! Redriving many at once is in `bulk`.

use std::sync::Arc;

use axum::response::Response;
use fencepost::dispatch::{Dispatch, LocatedDeadLetter, envelope::is_kind};
use fencepost_kernel::{
    LaneId, Reply,
    dispatch::{self as kernel, LetterVerdict},
    json::JsonNode,
    lane::{DeadLetter, DeadLetterReason, Fate, LanePurpose},
};

use super::{ACTORS, LOOKERS, Query, SCAN_MAX, VisibleLanes, allowed, audit, dispatch, malformed};
use crate::{
    deliveries::letter_id,
    http::{
        call::Call,
        query,
        reply::{Answer, Object, quoted},
        request,
    },
    problem::{Code, Problem},
};

/// The place behind an id. A letter has one id: other ways to write the number are none.
pub(super) fn place(id: &str) -> Option<(LaneId, u64)> {
    let (lane, seq) = id.split_once('-')?;
    let place = (LaneId::from_hex(lane)?, seq.parse().ok()?);
    (letter_id(place.0, place.1) == id).then_some(place)
}

fn unknown(id: &str) -> Problem {
    Problem::new(Code::UnknownLetter, format!("there is no dead letter {id:?}"))
}

/// States of letters, as a filter names them.
pub(in crate::http) const STATES: [&str; 4] = ["waiting", "redriven", "discarded", "all"];

/// Which letters are meant.
#[derive(Default)]
pub(super) struct Filter {
    warehouse: Option<String>,
    reason: Option<String>,
    state: Option<String>,
    kind: Option<String>,
    correlation_id: Option<String>,
}

impl Filter {
    pub(super) const NAMES: [&str; 5] = ["warehouse_id", "reason", "state", "kind", "correlation_id"];

    /// By a way to read the value of a name.
    pub(super) fn read<'v>(one: impl Fn(&str) -> Result<Option<&'v str>, Problem>) -> Result<Self, Problem> {
        let [warehouse, reason, state, kind, correlation_id] =
            Self::NAMES.map(|name| one(name).map(|value| value.map(str::to_owned)));
        let filter = Self {
            warehouse: warehouse?,
            reason: reason?,
            state: state?,
            kind: kind?,
            correlation_id: correlation_id?,
        };
        let reasons = DeadLetterReason::ALL.map(DeadLetterReason::name);
        if filter.reason.as_deref().is_some_and(|reason| !reasons.contains(&reason)) {
            return Err(malformed(format!("`reason` must be one of {}", reasons.join(", "))));
        }
        if filter.kind.as_deref().is_some_and(|kind| !is_kind(kind)) {
            return Err(malformed("`kind` is none of the kinds there are"));
        }
        if filter.state.as_deref().is_some_and(|state| !STATES.contains(&state)) {
            return Err(malformed(format!("`state` must be one of {}", STATES.join(", "))));
        }
        Ok(filter)
    }

    fn takes(&self, letter: &DeadLetter) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let state = self.state.as_deref().unwrap_or("waiting");
        (state == "all" || state == letter.fate.name())
            && same(&self.warehouse, &letter.entry.subject)
            && same(&self.reason, letter.reason.name())
            && same(&self.kind, &letter.entry.kind)
            && same(&self.correlation_id, &letter.entry.correlation_id)
    }
}

/// How many letters are read at once, and the bytes of events past which a page takes no further one.
const READ_MAX: usize = 100;
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Letters in order, and where to go on.
pub(super) async fn page(
    dispatch: &Dispatch,
    visible: &VisibleLanes<'_>,
    filter: &Filter,
    mut after: Option<(LaneId, u64)>,
    limit: usize,
) -> Result<(Vec<LocatedDeadLetter>, Option<(LaneId, u64)>), Problem> {
    let (mut found, mut seen, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let rows = dispatch.letters(visible.planner.as_ref(), after, READ_MAX).await?;
        let last = rows.len() < READ_MAX;
        for row in rows {
            // Another one follows: so the page is not the last.
            if found.len() == limit || seen == SCAN_MAX || bytes > PAGE_BYTES_MAX {
                return Ok((found, after));
            }
            seen += 1;
            after = Some((row.lane, row.seq));
            if visible.covers(&row.letter.tenant, &row.letter.entry.subject) && filter.takes(&row.letter) {
                bytes += row.letter.entry.body.len();
                found.push(row);
            }
        }
        if last {
            return Ok((found, None));
        }
    }
}

/// `GET /wes/v1/dispatch/dlq`
pub(super) async fn list(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, LOOKERS)?;
    let filter = Filter::read(|name| query.one(name))?;
    let after = query.cursor(place)?;
    let (letters, next) = page(dispatch(call)?, &visible, &filter, after, query.limit()?).await?;
    let items = letters.iter().map(|letter| shown(letter.lane, letter.seq, &letter.letter).end());
    Ok(query::page(items, next.map(|(lane, seq)| letter_id(lane, seq))).response())
}

/// `GET /wes/v1/dispatch/dlq/{id}`
pub(super) async fn one(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, LOOKERS)?;
    let (lane, seq, letter) = find(call, &visible, &call.path_value("id")?).await?;
    Ok(Answer::ok(shown(lane, seq, &letter).raw("event", &letter.entry.body).end()).response())
}

/// `POST /wes/v1/dispatch/dlq/{id}/redrive`
pub(super) async fn redrive(call: &Call) -> Result<Response, Problem> {
    let force = if call.body.is_empty() { None } else { force(request::object(&call.json()?)?)? };
    decide(call, "redrive", LetterVerdict::Redrive { force }).await
}

/// `POST /wes/v1/dispatch/dlq/{id}/discard`
pub(super) async fn discard(call: &Call) -> Result<Response, Problem> {
    let why = request::text(request::object(&call.json()?)?, "why")?.to_owned();
    decide(call, "discard", LetterVerdict::Discard { why }).await
}

/// The reason for sending an event again that the receiver may have forgotten.
pub(super) fn force(node: &JsonNode<'_>) -> Result<Option<String>, Problem> {
    let force = node.get("force").map(|force| request::text(request::object_as("`force`", force)?, "why"));
    Ok(force.transpose()?.map(str::to_owned))
}

async fn decide(call: &Call, op: &str, verdict: LetterVerdict) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, ACTORS)?;
    let id = call.path_value("id")?;
    let (lane, seq, letter) = find(call, &visible, &id).await?;
    let reply = dispatch(call)?.decide_letter(lane, seq, verdict, &call.caller.id).await?;
    audit(call, op, reply.decision(), &letter.tenant, &[("dead_letter", &id)]);
    let (letter, replay) = decided(&id, &reply)?;
    let body = shown(lane, seq, letter).value("replay", replay).end();
    Ok(Answer { replayed: replay, ..Answer::ok(body) }.response())
}

/// The letter as it was decided about, and whether it already was so; or why not.
pub(super) fn decided<'r>(id: &str, reply: &'r Reply) -> Result<(&'r DeadLetter, bool), Problem> {
    let Reply::Dispatch(reply) = reply else { return Err(unknown(id)) };
    match reply {
        kernel::Reply::Letter { letter, replay } => Ok((letter, *replay)),
        kernel::Reply::LetterCancelled { by } => Err(cancelled(by)),
        kernel::Reply::PastRetention { receiver_retain_ms } => Err(past_retention(*receiver_retain_ms)),
        kernel::Reply::LetterDecided(letter) => Err(already(letter)),
        kernel::Reply::NoTransport => Err(no_transport()),
        kernel::Reply::NoLetter
        | kernel::Reply::Published { .. }
        | kernel::Reply::UnknownOriginal
        | kernel::Reply::TransportPut { .. }
        | kernel::Reply::NotDrained { .. } => Err(unknown(id)),
    }
}

pub(super) fn already(letter: &DeadLetter) -> Problem {
    let fate = letter.fate.name();
    Problem::new(Code::AlreadyDecided, format!("this letter was {fate}")).with("state", &quoted(fate))
}

pub(super) fn no_transport() -> Problem {
    Problem::new(Code::NoTransport, "the warehouse of this letter has no transport")
}

pub(super) fn cancelled(by: &str) -> Problem {
    let detail = "the event was cancelled: sending it again would undo that";
    Problem::new(Code::LetterCancelled, detail).with("cancelled_by", &quoted(by))
}

pub(super) fn past_retention(receiver_retain_ms: u64) -> Problem {
    let detail = "the receiver may have had this event and forgotten it; to send it again say `force` with a `why`";
    Problem::new(Code::PastRetention, detail).with("receiver_retention_ms", &receiver_retain_ms.to_string())
}

/// The letter behind its name, where the caller may see it.
pub(super) async fn find(
    call: &Call,
    visible: &VisibleLanes<'_>,
    id: &str,
) -> Result<(LaneId, u64, Arc<DeadLetter>), Problem> {
    let (lane, seq) = place(id).ok_or_else(|| unknown(id))?;
    let letter = dispatch(call)?.letter(lane, seq).await?.ok_or_else(|| unknown(id))?;
    if visible.planner.as_ref().is_some_and(|own| *own != letter.tenant) {
        return Err(unknown(id));
    }
    allowed(visible.warehouses, &letter.entry.subject)?;
    Ok((lane, seq, letter))
}

fn shown(lane: LaneId, seq: u64, letter: &DeadLetter) -> Object {
    // One that was sent again may be in another lane by now.
    let pushed = LanePurpose::warehouse(&letter.entry.subject);
    let died_in = if letter.purpose.lane(&letter.tenant) == lane { &letter.purpose } else { &pushed };
    let mut body = Object::new()
        .text("id", &letter_id(lane, seq))
        .text("lane", &died_in.name(&letter.tenant))
        .text("lane_id", &lane.to_string())
        .value("seq", seq)
        .text("planner_id", letter.tenant.as_str())
        .text("warehouse_id", &letter.entry.subject)
        .text("correlation_id", &letter.entry.correlation_id)
        .text("kind", &letter.entry.kind)
        .text("reason", letter.reason.name())
        .value("attempts", letter.attempts);
    if letter.attempts > 0 {
        body = body.time("first_attempt_at", letter.first_at);
    }
    body = body.time("published_at", letter.entry.published).time("died_at", letter.at);
    if let Some(status) = letter.answer.status {
        body = body.value("last_status", status);
    }
    body = body.text("last_answer", &letter.answer.note);
    if let Some(by) = &letter.cancelled_by {
        body = body.text("cancelled_by", by);
    }
    body = body.value("blocks", letter.blocks).text("state", letter.fate.name());
    let (at, by, why, to) = match &letter.fate {
        Fate::Waiting => return body,
        Fate::Redriven { at, by, why, seq } => (at, by, why.as_deref(), Some(seq)),
        Fate::Discarded { at, by, why } => (at, by, Some(why.as_str()), None),
    };
    let mut decided = Object::new().time("at", *at).text("by", by);
    if let Some(why) = why {
        decided = decided.text("why", why);
    }
    if let Some(seq) = to {
        decided = decided.text("lane", &letter.purpose.name(&letter.tenant)).value("seq", seq);
    }
    body.raw("decided", &decided.end())
}
