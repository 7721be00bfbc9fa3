//! `/wms-ingest/v1`: items from partners, their quarantine, and jobs.
//! Routes translate and ask the library; none of them decides.

mod items;
mod jobs;
mod quarantine;
mod read;
mod reply;
mod request;
mod routes;
mod versions;

use fencepost::{
    ingest::{Ingest, IngestRules},
    policy::{
        collections::{Collection, Group},
        identity::Role,
    },
};
use fencepost_kernel::{Tenant, key::Kind};
use std::sync::Arc;

pub(super) use routes::{OPERATORS_ROUTES, ROUTES};

use super::call::Call;
use crate::problem::{Code, Problem};

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Malformed, detail)
}

// Items by the policy that the request began under; what an operator changes through them is in the audit.
fn ingest(call: &Call) -> Result<Ingest, Problem> {
    let engine = call.engine();
    let rules = IngestRules::of(&call.policy).filter(|_| engine.promises().keeps(Kind::Item));
    let unfit = "this store keeps fences only; ingest needs the embedded store or PostgreSQL";
    let rules = rules.ok_or_else(|| Problem::new(Code::StoreUnsupported, unfit))?;
    if !engine.keeps(Kind::Item) {
        let detail = "a node of an older release shares the store and knows no items; ask again once it is gone";
        return Err(Problem::new(Code::StoreUnavailable, detail).retry_after(60));
    }
    Ok(Ingest::new(engine.clone(), rules, call.app.fencepost.ingest_signals()))
}

// The collection that the path names, within its group.
fn collection<'i>(call: &Call, ingest: &'i Ingest, group: Group) -> Result<&'i Arc<Collection>, Problem> {
    let name = call.path_value("collection")?;
    let found = ingest.rules().collections.get(&name).filter(|collection| collection.group == group);
    found.ok_or_else(|| {
        let place = format!(" under {}", group.name());
        unknown_collection(&name, &place, ingest.rules().collections.iter().filter(|known| known.group == group))
    })
}

// The collection of a name, whatever its group.
fn known_collection<'i>(ingest: &'i Ingest, name: &str) -> Result<&'i Arc<Collection>, Problem> {
    let collections = &ingest.rules().collections;
    collections.get(name).ok_or_else(|| unknown_collection(name, "", collections.iter()))
}

fn unknown_collection<'i>(name: &str, place: &str, known: impl Iterator<Item = &'i Arc<Collection>>) -> Problem {
    let known: Vec<&str> = known.map(|collection| &*collection.name).collect();
    let detail = format!("there is no collection {name:?}{place}; there are {}", known.join(", "));
    Problem::new(Code::UnknownCollection, detail)
}

// Whose items: the caller's own or, for an admin, those of the tenant that it names.
fn tenant(call: &Call) -> Result<Tenant, Problem> {
    let named = call.query_tenant()?;
    if call.caller.has(Role::Viewer) && !call.caller.is_tenant() {
        return named.map(Tenant::new).ok_or_else(|| malformed("name the partner with `tenant=`"));
    }
    call.tenant(named.as_deref())
}
