//! `GET /wes/v1/dispatch/lanes`: where every lane stands, and why. Reads only; what people do to a lane is in `acts`.

use axum::response::Response;
use fencepost::dispatch::{Dispatch, LaneView};
use fencepost_kernel::{LaneId, lane::LanePurpose};

use super::{LOOKERS, Query, SCAN_MAX, VisibleLanes, dispatch, malformed};
use crate::{
    http::{
        call::Call,
        query,
        reply::{Answer, Object},
    },
    problem::{Code, Problem},
};

/// How many lanes are read at once in search of those that are asked for.
const READ_MAX: usize = 1_000;

/// How a lane may stand.
pub(in crate::http) const STATES: [&str; 6] = ["idle", "waiting", "delivering", "retrying", "paused", "blocked"];

/// `GET /wes/v1/dispatch/lanes`
pub(super) async fn list(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, LOOKERS)?;
    let dispatch = dispatch(call)?;
    let limit = query.limit()?;
    let state = query.one("state")?;
    if state.is_some_and(|wanted| !STATES.contains(&wanted)) {
        return Err(malformed(format!("`state` must be one of {}", STATES.join(", "))));
    }
    let wanted = Wanted { state, warehouse: query.one("warehouse_id")?, executor: query.one("executor_id")? };
    let after = query.cursor(LaneId::from_hex)?;
    let (lanes, next) = page(dispatch, &visible, &wanted, after, limit).await?;
    Ok(query::page(lanes.iter().map(shown), next.map(|lane| lane.to_string())).response())
}

/// Which lanes are asked for: all of it must fit.
struct Wanted<'q> {
    state: Option<&'q str>,
    warehouse: Option<&'q str>,
    executor: Option<&'q str>,
}

impl Wanted<'_> {
    fn is_all(&self) -> bool {
        self.state.is_none() && self.warehouse.is_none() && self.executor.is_none()
    }

    fn fits(&self, view: &LaneView) -> bool {
        let (warehouse, executor) = match &view.lane.purpose {
            LanePurpose::Warehouse(warehouse) => (Some(warehouse.as_ref()), None),
            LanePurpose::Executor(executor) => (None, Some(executor.as_ref())),
        };
        self.state.is_none_or(|wanted| wanted == state(view))
            && (self.warehouse.is_none() || self.warehouse == warehouse)
            && (self.executor.is_none() || self.executor == executor)
    }
}

// Lanes in order, and where to go on.
async fn page(
    dispatch: &Dispatch,
    visible: &VisibleLanes<'_>,
    wanted: &Wanted<'_>,
    mut after: Option<LaneId>,
    limit: usize,
) -> Result<(Vec<LaneView>, Option<LaneId>), Problem> {
    let (mut found, mut seen) = (Vec::new(), 0);
    // One more than wanted tells whether there are more.
    let read = if wanted.is_all() { limit + 1 } else { READ_MAX };
    loop {
        let rows = dispatch.lanes(visible.planner.as_ref(), after, read).await?;
        let last = rows.len() < read;
        for view in rows {
            // Another one follows: so the page is not the last.
            if found.len() == limit || seen == SCAN_MAX {
                return Ok((found, after));
            }
            seen += 1;
            after = Some(view.lane.id());
            let in_reach = visible.covers_lane(&view.lane.planner, &view.lane.purpose);
            if in_reach && wanted.fits(&view) {
                found.push(view);
            }
        }
        if last {
            return Ok((found, None));
        }
    }
}

/// `GET /wes/v1/dispatch/lanes/{lane}`
pub(super) async fn one(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, LOOKERS)?;
    let view = find(call, &visible, &call.path_value("lane")?).await?;
    Ok(Answer::ok(shown(&view)).response())
}

/// The lane behind its name or its address, where the caller may see it.
pub(super) async fn find(call: &Call, visible: &VisibleLanes<'_>, text: &str) -> Result<LaneView, Problem> {
    let dispatch = dispatch(call)?;
    let mut meant: Vec<LaneId> = LaneId::from_hex(text).into_iter().collect();
    if let Some(planner) = &visible.planner
        && let Some(place) = text.strip_prefix(planner.as_str()).and_then(|rest| rest.strip_prefix(':'))
    {
        // A warehouse may be called `poll:…`, too, though hardly ever.
        meant.extend(place.strip_prefix("poll:").map(|executor| LaneId::executor(planner, executor)));
        meant.push(LaneId::warehouse(planner, place));
    }
    for lane in meant {
        if let Some(view) = dispatch.lane(lane).await?
            && visible.covers_lane(&view.lane.planner, &view.lane.purpose)
        {
            return Ok(view);
        }
    }
    Err(unknown())
}

fn unknown() -> Problem {
    Problem::new(Code::UnknownLane, "there is no such lane; an admin names it by its lane_id, or gives `planner_id=`")
}

/// The word for how a lane stands.
pub(super) fn state(view: &LaneView) -> &'static str {
    let lane = &view.lane;
    match &lane.purpose {
        _ if lane.paused.is_some() => "paused",
        _ if lane.blocked => "blocked",
        _ if lane.settled >= view.tail => "idle",
        _ if view.missing_key.is_some() => "blocked",
        LanePurpose::Executor(_) => "waiting",
        LanePurpose::Warehouse(_) if lane.trouble.is_some() => "retrying",
        LanePurpose::Warehouse(_) => "delivering",
    }
}

fn shown(view: &LaneView) -> Vec<u8> {
    let lane = &view.lane;
    let mut body = Object::new()
        .text("lane", &lane.name())
        .text("lane_id", &lane.id().to_string())
        .text("planner_id", lane.planner.as_str());
    match &lane.purpose {
        LanePurpose::Executor(executor) => body = body.text("executor_id", executor).text("transport", "poll"),
        LanePurpose::Warehouse(warehouse) => {
            body = body.text("warehouse_id", warehouse);
            // None where the warehouse has gone over to polling: the lane that it left has nothing to carry.
            if let Some(route) = &view.transport {
                body = body.text("transport", route.transport.name());
            }
        }
    }
    body = body
        .text("state", state(view))
        .value("tail", view.tail)
        .value("settled", lane.settled)
        .value("backlog", view.tail.saturating_sub(lane.settled));
    if view.tail > lane.settled {
        body = body.raw("head", &head(view));
    }
    if let Some(key) = &view.missing_key {
        body = body.text("missing_key", key);
    }
    if let Some(pause) = &lane.paused {
        let pause = Object::new().time("at", pause.at).text("by", &pause.by).text("why", &pause.why);
        body = body.raw("paused", &pause.end());
    }
    if !lane.owner.node.is_empty() {
        body = body.text("owner", &lane.owner.node);
    }
    body.end()
}

fn head(view: &LaneView) -> Vec<u8> {
    let head = Object::new().value("seq", view.lane.settled + 1);
    let Some(trouble) = &view.lane.trouble else { return head.value("attempts", 0_u32).end() };
    let mut head = head.value("attempts", trouble.attempts).time("first_attempt_at", trouble.first_at);
    // Nothing is due while the lane is halted.
    if !view.lane.is_halted() && view.missing_key.is_none() {
        head = head.time("next_attempt_at", trouble.next_at);
    }
    if let Some(status) = trouble.answer.status {
        head = head.value("last_status", status);
    }
    head.text("last_answer", &trouble.answer.note).end()
}
