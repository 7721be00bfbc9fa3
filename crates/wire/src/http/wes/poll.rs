//! `/wes/v1/dispatch/pending` and `/ack`: for executors that come for their events.
//! Only an acknowledgement moves a position; reading changes nothing. Events leave as the bytes that were published.

use std::time::Duration;

use axum::response::Response;
use fencepost::{
    dispatch::{Dispatch, LaneView},
    policy::identity::{Planners, Role},
};
use fencepost_kernel::{LaneId, Reply, Tenant, lane};
use tokio::time::Instant;

use super::{Query, audit, dispatch, keyed, malformed};
use crate::{
    http::{
        call::Call,
        reply::{Answer, Object},
        request,
    },
    problem::{Code, Problem},
};
use fencepost_front::{Charge, Standing};

/// The longest a poller may wait for something new.
const WAIT_S_MAX: usize = 30;
/// How often a poller whose lane is paused, or not known yet, is looked after.
const LOOK: Duration = Duration::from_millis(500);
/// Events read at once, and the bytes past which a page takes no further one.
const READ_MAX: usize = 100;
const PAGE_BYTES_MAX: usize = 8 << 20;

/// `GET /wes/v1/dispatch/pending`
pub(super) async fn pending(call: &Call) -> Result<Response, Problem> {
    let dispatch = keyed(call)?;
    let query = Query::of(call)?;
    let limit = query.limit()?;
    let until = Instant::now() + Duration::from_secs(query.number("wait", 0, WAIT_S_MAX, 0)? as u64);
    let since = match query.one("since")? {
        None => None,
        Some(text) => Some(own(call, text, query.one("planner_id")?).await?),
    };
    loop {
        if let Some((lane, view)) = lane(call, query.one("planner_id")?).await? {
            let (tail, settled) = view.as_ref().map_or((0, 0), |view| (view.tail, view.lane.settled));
            let since = match since {
                Some((named, _)) if named != lane => return Err(unknown()),
                Some((_, seq)) if seq > tail => return Err(ahead(tail)),
                Some((_, seq)) => seq.max(settled),
                None => settled,
            };
            // Nothing is handed out while a person has stopped the lane.
            if view.is_none_or(|view| view.lane.paused.is_none()) {
                let left = until.saturating_duration_since(Instant::now());
                let mut charge = call.app.budget.charge(Standing::Authenticated);
                return Ok(Answer::ok(page(dispatch, lane, since, limit, left, &mut charge).await?).response());
            }
        }
        if Instant::now() >= until {
            return Ok(Answer::ok(br#"{"events":[],"next_cursor":""}"#.to_vec()).response());
        }
        tokio::time::sleep_until(until.min(Instant::now() + LOOK)).await;
    }
}

async fn page(
    dispatch: &Dispatch,
    lane: LaneId,
    mut after: u64,
    limit: usize,
    mut wait: Duration,
    charge: &mut Charge,
) -> Result<Vec<u8>, Problem> {
    let mut body = br#"{"events":["#.to_vec();
    let (mut left, first) = (limit, body.len());
    'page: while left > 0 {
        let asked = left.min(READ_MAX);
        let entries = dispatch.pending(lane, after, asked, wait).await?;
        // Only the first read waits: events that are there are not held back for later ones.
        wait = Duration::ZERO;
        left -= entries.len();
        let last = entries.len() < asked;
        for (seq, entry) in entries {
            // The first is always handed out, so that a poller gets on.
            let has_room = body.len() == first || charge.try_add_answer(entry.body.len()).is_ok();
            if body.len() > first {
                if !has_room || body.len() + entry.body.len() > PAGE_BYTES_MAX {
                    break 'page;
                }
                body.push(b',');
            }
            body.extend_from_slice(&entry.body);
            after = seq;
        }
        if last {
            break;
        }
    }
    // The lane may have come into being while its poller waited.
    let served = if body.len() > first { dispatch.lane(lane).await? } else { None };
    let cursor = served.map(|view| dispatch.cursor(lane, view.lane.owner.epoch, after)).unwrap_or_default();
    body.extend_from_slice(format!(r#"],"next_cursor":"{cursor}"}}"#).as_bytes());
    Ok(body)
}

/// `POST /wes/v1/dispatch/ack`
pub(super) async fn ack(call: &Call) -> Result<Response, Problem> {
    let dispatch = keyed(call)?;
    let node = call.json()?;
    if request::object(&node)?.get("executor_id").is_some_and(|id| id.as_str() != Some(call.caller.id.as_str())) {
        let detail = format!("`executor_id` must be {}, this credential's executor", call.caller.id);
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let cursor = node.get("cursor").and_then(|cursor| cursor.as_str());
    let cursor = cursor.ok_or_else(|| malformed("`cursor` must be the next_cursor of a page"))?;
    // The cursor of an empty page: there is nothing to acknowledge.
    if cursor.is_empty() {
        return Ok(Answer::ok(Object::new().text("acked", "").end()).response());
    }
    let (lane, seq) = own(call, cursor, None).await?;
    let reply = dispatch.ack(lane, seq).await?;
    let Reply::Lane(answer) = &reply else { return Err(unknown()) };
    match answer {
        lane::Reply::OnLane { lane: now, replay, .. } => {
            if call.policy.server.log.decisions {
                let about = [("lane", now.name()), ("acked", now.settled.to_string())];
                audit(call, "ack", reply.decision(), &now.tenant, &about.each_ref().map(|(n, v)| (*n, v.as_str())));
            }
            let body = Object::new().text("acked", &dispatch.cursor(lane, now.owner.epoch, now.settled)).end();
            Ok(Answer { replayed: *replay, ..Answer::ok(body) }.response())
        }
        lane::Reply::Ahead { tail } => Err(ahead(*tail)),
        lane::Reply::NoLane | lane::Reply::NotHead { .. } | lane::Reply::LaneLost => Err(unknown()),
    }
}

// The position behind a cursor that was served to this caller.
async fn own(call: &Call, cursor: &str, planner: Option<&str>) -> Result<(LaneId, u64), Problem> {
    let dispatch = dispatch(call)?;
    let (view, seq) = dispatch.read_cursor(cursor).await?.ok_or_else(unknown)?;
    let mine = view.lane.purpose.as_executor() == Some(&call.caller.id);
    if mine && !call.caller.planners.allow(view.lane.tenant.as_str()) {
        return Err(not_served(view.lane.tenant.as_str()));
    }
    if mine && planner.is_none_or(|planner| planner == view.lane.tenant.as_str()) {
        return Ok((view.lane.id(), seq));
    }
    Err(unknown())
}

// The lane that the caller polls, which may not be there yet; none where several could be meant and none is there.
async fn lane(call: &Call, planner: Option<&str>) -> Result<Option<(LaneId, Option<LaneView>)>, Problem> {
    let dispatch = dispatch(call)?;
    let planners = planners(call, planner)?;
    let lanes: Vec<LaneId> =
        planners.into_iter().map(|planner| LaneId::executor(&Tenant::new(planner), &call.caller.id)).collect();
    let mut found = None;
    for lane in &lanes {
        let Some(view) = dispatch.lane(*lane).await? else { continue };
        if found.replace((*lane, Some(view))).is_some() {
            return Err(malformed("you serve several planners: name one with `planner_id=`"));
        }
    }
    Ok(found.or(match lanes.as_slice() {
        [only] => Some((*only, None)),
        _ => None,
    }))
}

// The planners whose lanes are polled. The credential decides, not the lanes that exist: a planner that names an
// executor must not change what that executor's polls answer.
fn planners(call: &Call, named: Option<&str>) -> Result<Vec<String>, Problem> {
    match (&call.caller.planners, named) {
        (served, Some(named)) if !served.allow(named) => Err(not_served(named)),
        (_, Some(named)) => Ok(vec![named.to_owned()]),
        (Planners::Any, None) => Ok(call.app.directory.with_role(Role::Planner)),
        (Planners::Named(served), None) if served.is_empty() => {
            let detail = "this credential serves no planner; an operator adds one with `fencepost credential planners`";
            Err(Problem::new(Code::Forbidden, detail))
        }
        (Planners::Named(served), None) if served.len() > 1 => {
            let served: Vec<&str> = served.iter().map(String::as_str).collect();
            Err(malformed(format!("you serve several planners, name one with `planner_id=`: {}", served.join(", "))))
        }
        (Planners::Named(served), None) => Ok(served.iter().cloned().collect()),
    }
}

// The same answer where no such planner exists: the caller must not learn which ones do.
fn not_served(planner: &str) -> Problem {
    Problem::new(Code::Forbidden, format!("this credential does not serve planner {planner:?}"))
}

fn unknown() -> Problem {
    Problem::new(Code::UnknownCursor, "this cursor was not served to you, or it is damaged")
}

fn ahead(tail: u64) -> Problem {
    Problem::new(Code::CursorAhead, "the cursor is past the end of its lane").with("tail", &tail.to_string())
}
