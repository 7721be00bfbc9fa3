//! `/wes/v1`: publishing for planners, transports, lanes and dead letters, and polling for executors.
//! Routes translate and ask the dispatch; none of them decides.

mod acts;
mod bulk;
pub(super) mod lanes;
pub(super) mod letters;
mod poll;
mod publish;
mod routes;
mod transport;

use fencepost::{
    dispatch::{
        Dispatch,
        envelope::{EnvelopeRefusal, Rule},
    },
    policy::identity::{Role, Warehouses},
};
use fencepost_kernel::{Tenant, json::JsonNode, lane::LanePurpose};

pub(super) use routes::ROUTES;

use super::{
    call::Call,
    query::{LIMIT_DEFAULT, LIMIT_MAX, Query, array},
    reply::quoted,
};
use crate::{
    log::Level,
    problem::{Code, Problem},
};

/// Rows that one request looks at, with any filter: the rest is behind `next_cursor`.
const SCAN_MAX: usize = 10_000;

/// Roles that may look at the lanes of every planner.
const LOOKERS: &[Role] = &[Role::Admin, Role::Viewer];
/// Roles that may act on the lanes of every planner.
const ACTORS: &[Role] = &[Role::Admin];

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Malformed, detail)
}

fn dispatch(call: &Call) -> Result<&Dispatch, Problem> {
    call.dispatch()
}

// The same, where secrets and cursors can be sealed.
fn keyed(call: &Call) -> Result<&Dispatch, Problem> {
    let dispatch = dispatch(call)?;
    if dispatch.vault().can_seal() {
        return Ok(dispatch);
    }
    let detail = "the server's key file is not there, and what is stored needs it; an operator must bring it back";
    Err(Problem::new(Code::TransportUnsupported, detail))
}

// The planner that calls: the route admits no other caller.
fn planner(call: &Call) -> Tenant {
    Tenant::new(call.caller.id.as_str())
}

fn allowed(warehouses: &Warehouses, warehouse: &str) -> Result<(), Problem> {
    if warehouses.allow(warehouse) {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden, "the credential is not for that warehouse"))
}

/// The problem for a client whose envelope is refused.
fn wrong(refusal: &EnvelopeRefusal) -> Problem {
    let code = match refusal.rule {
        Rule::Shape => Code::Malformed,
        Rule::Size => Code::TooLarge,
        Rule::Planner => Code::Forbidden,
        Rule::Sense => Code::Invalid,
    };
    Problem::new(code, refusal.to_string()).with("pointer", &quoted(&refusal.pointer))
}

/// Whose lanes and letters a caller may see, or act on.
struct VisibleLanes<'c> {
    /// Only this planner's; none where all.
    planner: Option<Tenant>,
    warehouses: &'c Warehouses,
}

impl<'c> VisibleLanes<'c> {
    /// `everywhere` are the roles that reach every planner; a planner reaches its own lanes, and the route admits no
    /// other.
    fn of(call: &'c Call, named: Option<&str>, everywhere: &[Role]) -> Result<Self, Problem> {
        if everywhere.iter().any(|role| call.caller.has(*role)) {
            return Ok(Self { planner: named.map(Tenant::new), warehouses: &call.caller.warehouses });
        }
        if named.is_some_and(|named| named != call.caller.id) {
            return Err(Problem::new(Code::Forbidden, "the credential is not that planner's"));
        }
        Ok(Self { planner: Some(Tenant::new(call.caller.id.as_str())), warehouses: &call.caller.warehouses })
    }

    fn covers(&self, planner: &Tenant, warehouse: &str) -> bool {
        self.planner.as_ref().is_none_or(|own| own == planner) && self.warehouses.allow(warehouse)
    }

    /// A lane that an executor polls has events of any warehouse: it is seen whole.
    fn covers_lane(&self, planner: &Tenant, purpose: &LanePurpose) -> bool {
        match purpose.as_warehouse() {
            Some(warehouse) => self.covers(planner, warehouse),
            None => purpose.as_executor().is_some() && self.planner.as_ref().is_none_or(|own| own == planner),
        }
    }
}

// Configuration with an unknown member is refused: a typing error must not be a silent default.
fn only(node: &JsonNode<'_>, at: &str, names: &[&str]) -> Result<(), Problem> {
    match node.members().iter().find(|(name, _)| !names.contains(&&**name)) {
        None => Ok(()),
        Some((name, _)) if names.is_empty() => Err(malformed(format!("{at} takes nothing, not {name:?}"))),
        Some((name, _)) => Err(malformed(format!("{at} takes {}, not {name:?}", names.join(", ")))),
    }
}

// The word of a person about a lane or a letter, for the log.
fn audit(call: &Call, op: &str, decision: &str, tenant: &Tenant, about: &[(&'static str, &str)]) {
    let line = call.app.log.line(Level::Info, call.app.fencepost.engine().now().0, "decision");
    let line = line.text("op", op).text("decision", decision).text("tenant", tenant.as_str());
    let line = line.text("by", &call.caller.id).text("trace_id", &call.trace);
    drop(about.iter().fold(line, |line, (name, value)| line.text(name, value)));
}
