//! A person's acts on a lane: skip its head, pause it, let it go on. Each may be repeated: the second time nothing
//! happens.

use axum::response::Response;
use fencepost::policy::identity::Warehouses;
use fencepost_kernel::{
    LaneId, Reply,
    lane::{self, Act},
};

use super::{ACTORS, Query, VisibleLanes, audit, dispatch, lanes, malformed};
use crate::{
    deliveries::letter_id,
    http::{
        call::Call,
        reply::{Answer, Object},
        request,
    },
    problem::{Code, Problem},
};

/// `POST /wes/v1/dispatch/lanes/{lane}/skip`
pub(super) async fn skip(call: &Call) -> Result<Response, Problem> {
    let by = call.caller.id.clone();
    act(call, "skip", |call| {
        let node = call.json()?;
        let seq = request::object(&node)?.get("seq").and_then(|seq| seq.as_u64()).filter(|seq| *seq > 0);
        let seq = seq.ok_or_else(|| malformed("`seq` must be the position of the lane's head"))?;
        Ok(Act::Skip { seq, by })
    })
    .await
}

/// `POST /wes/v1/dispatch/lanes/{lane}/pause`
pub(super) async fn pause(call: &Call) -> Result<Response, Problem> {
    let by = call.caller.id.clone();
    act(call, "pause", |call| {
        let node = call.json()?;
        Ok(Act::Pause { by, why: request::text(request::object(&node)?, "why")?.to_owned() })
    })
    .await
}

/// `POST /wes/v1/dispatch/lanes/{lane}/resume`
pub(super) async fn resume(call: &Call) -> Result<Response, Problem> {
    act(call, "resume", |_| Ok(Act::Resume)).await
}

async fn act(call: &Call, op: &str, read: impl FnOnce(&Call) -> Result<Act, Problem>) -> Result<Response, Problem> {
    let (query, body) = (Query::of(call)?, call.json());
    let said = body.as_ref().ok().and_then(|body| body.get("tenant")?.as_str());
    let visible = VisibleLanes::of(call, query.planner()?.or(said), ACTORS)?;
    let dispatch = dispatch(call)?;
    let act = read(call)?;
    let view = lanes::find(call, &visible, &call.path_value("lane")?).await?;
    // It has events of any warehouse, and an act on it affects all of them.
    if view.lane.purpose.is_polled() && *visible.warehouses != Warehouses::All {
        return Err(Problem::new(Code::Forbidden, "the credential is not for every warehouse of this lane"));
    }
    let (lane, name) = (view.lane.id(), view.lane.name());
    let reply = dispatch.act(lane, act).await?;
    audit(call, op, reply.decision(), &view.lane.tenant, &[("lane", &name)]);
    answered(lane, &name, &reply)
}

fn answered(id: LaneId, name: &str, reply: &Reply) -> Result<Response, Problem> {
    let no_lane = || Problem::new(Code::UnknownLane, "there is no such lane");
    let Reply::Lane(reply) = reply else { return Err(no_lane()) };
    match reply {
        lane::Reply::OnLane { lane, replay, died } => {
            let mut body = Object::new()
                .text("lane", name)
                .text("lane_id", &id.to_string())
                .value("settled", lane.settled)
                .value("paused", lane.paused.is_some())
                .value("blocked", lane.blocked);
            if let Some(letter) = died {
                // One that was sent again is still the letter that it was.
                let (lane, seq) = letter.entry.redrive_of.unwrap_or((id, lane.settled));
                body = body.text("dead_letter", &letter_id(lane, seq));
            }
            let body = body.value("replay", replay).end();
            Ok(Answer { replayed: *replay, ..Answer::ok(body) }.response())
        }
        lane::Reply::NotHead { settled } => {
            let detail = format!("only the head can be skipped; everything up to {settled} is settled");
            Err(Problem::new(Code::NotHead, detail).with("settled", &settled.to_string()))
        }
        lane::Reply::NoLane | lane::Reply::Ahead { .. } | lane::Reply::LaneLost => Err(no_lane()),
    }
}
