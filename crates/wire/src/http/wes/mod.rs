//! `/wes/v1`: what planners publish, where it goes, what became of it, and what executors come for.
//! Routes translate and ask the dispatch; none of them decides.

mod acts;
mod bulk;
mod envelope;
pub(super) mod lanes;
pub(super) mod letters;
pub(super) mod poll;
pub(super) mod publish;
pub(super) mod transport;

use fencepost::{
    dispatch::Dispatch,
    policy::identity::{Role, Warehouses},
};
use fencepost_kernel::{Tenant, json::Node, lane::Place};

pub(super) use acts::{pause, resume, skip};
pub(super) use bulk::redrive_many;

use super::call::Call;
use crate::{
    log::Level,
    problem::{Code, Problem},
};

/// How many rows one request looks at, whatever it filters for: what is left is behind `next`.
const SCAN_MAX: usize = 10_000;
/// How many items a page may have, and has where nobody says.
const LIMIT_MAX: usize = 1_000;
const LIMIT_DEFAULT: usize = 100;

/// Those who may look at the lanes of every planner.
const LOOKERS: &[Role] = &[Role::Admin, Role::Viewer];
/// Those who may act on the lanes of every planner.
const ACTORS: &[Role] = &[Role::Admin];

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Malformed, detail)
}

fn dispatch(call: &Call) -> Result<&Dispatch, Problem> {
    call.app.dispatch.as_ref().map_err(|why| Problem::new(Code::StoreUnsupported, why.as_str()))
}

// The planner that calls.
fn planner(call: &Call) -> Result<Tenant, Problem> {
    call.require(&[Role::Planner])?;
    Ok(Tenant::new(call.caller.id.as_str()))
}

fn allowed(warehouses: &Warehouses, warehouse: &str) -> Result<(), Problem> {
    if warehouses.allow(warehouse) {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden, "the credential is not for that warehouse"))
}

/// The decoded query string. Names that nobody asks for are ignored.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(call: &Call) -> Result<Self, Problem> {
        call.query().map(Self)
    }

    /// The value of a name; none where it is absent or empty.
    fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value.filter(|value| !value.is_empty())),
            _ => Err(malformed(format!("`{name}` is repeated"))),
        }
    }

    /// The planner that is meant. Everywhere else an admin names a tenant, and a planner is one.
    fn planner(&self) -> Result<Option<&str>, Problem> {
        match (self.one("planner_id")?, self.one("tenant")?) {
            (Some(planner), Some(tenant)) if planner != tenant => Err(malformed("`planner_id` and `tenant` differ")),
            (planner, tenant) => Ok(planner.or(tenant)),
        }
    }

    fn number(&self, name: &str, min: usize, max: usize, default: usize) -> Result<usize, Problem> {
        let Some(text) = self.one(name)? else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| malformed(format!("`{name}` must be from {min} to {max}")))
    }

    fn limit(&self) -> Result<usize, Problem> {
        self.number("limit", 1, LIMIT_MAX, LIMIT_DEFAULT)
    }
}

/// Whose lanes and letters a caller may see, or act on.
struct Reach<'c> {
    /// Only this planner's; none where all.
    planner: Option<Tenant>,
    warehouses: &'c Warehouses,
}

impl<'c> Reach<'c> {
    /// `everywhere` are the roles that reach every planner; a planner reaches what is its own.
    fn of(call: &'c Call, named: Option<&str>, everywhere: &[Role]) -> Result<Self, Problem> {
        if everywhere.iter().any(|role| call.caller.has(*role)) {
            return Ok(Self { planner: named.map(Tenant::new), warehouses: &call.caller.warehouses });
        }
        let roles: Vec<Role> = everywhere.iter().copied().chain([Role::Planner]).collect();
        call.require(&roles)?;
        if named.is_some_and(|named| named != call.caller.id) {
            return Err(Problem::new(Code::Forbidden, "the credential is not that planner's"));
        }
        Ok(Self { planner: Some(Tenant::new(call.caller.id.as_str())), warehouses: &call.caller.warehouses })
    }

    fn covers(&self, planner: &Tenant, warehouse: &str) -> bool {
        self.planner.as_ref().is_none_or(|own| own == planner) && self.warehouses.allow(warehouse)
    }

    /// A lane that an executor polls has events of any warehouse: it is seen whole.
    fn covers_lane(&self, planner: &Tenant, place: &Place) -> bool {
        match place {
            Place::Warehouse(warehouse) => self.covers(planner, warehouse),
            Place::Executor(_) => self.planner.as_ref().is_none_or(|own| own == planner),
        }
    }
}

// A JSON array of what is JSON already.
fn array<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_ref());
    }
    out.push(b']');
    out
}

// Configuration is refused where it says what nobody knows: a typing error must not be a silent default.
fn only(node: &Node<'_>, at: &str, names: &[&str]) -> Result<(), Problem> {
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
