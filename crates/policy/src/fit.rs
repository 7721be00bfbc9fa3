//! Decides whether a store can carry a policy, before any request is served.
//! Never lowers the demand of a scope: a user's scope that does not fit is refused, a built-in one is left out.
//! Called by `Fencepost` when it opens a store or replaces its policy, and by a reload.

use std::sync::Arc;

use fencepost_kernel::{Scope, fence::scope::RequiredDurability as Asked};
use fencepost_store::{Durability, Promises};

use super::read::nearest;
use super::{Policy, WMS_INGEST, is_own};

/// Why a name gives no scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoScope {
    /// The policy has no scope of this name.
    Unknown,
    /// The store cannot carry this built-in scope; the text says why.
    Unfit(String),
}

impl Policy {
    pub fn scope(&self, name: &str) -> Result<&Arc<Scope>, NoScope> {
        self.scopes.get(name).ok_or_else(|| match self.unfit.get(name) {
            Some(why) => NoScope::Unfit(why.clone()),
            None => NoScope::Unknown,
        })
    }

    /// The scope that a misspelled name most likely means.
    pub fn nearest_scope(&self, name: &str) -> Option<&str> {
        let known: Vec<&str> = self.scopes.keys().map(String::as_str).collect();
        nearest(name, &known)
    }

    /// The policy for a store with these promises, without the built-in scopes that do not fit; or why it is refused.
    pub fn fit(mut self, promises: &Promises) -> Result<Self, String> {
        let misfits: Vec<(String, String)> =
            self.scopes.values().filter_map(|scope| Some((scope.name.to_string(), misfit(scope, promises)?))).collect();
        let mut refused = Vec::new();
        for (name, why) in misfits {
            // A scope of Fencepost's own only switches a part of it, which the store does not serve in any case.
            if self.built_in.contains(&name) || is_own(&name) {
                self.scopes.remove(&name);
                self.unfit.insert(name, why);
            } else {
                refused.push(format!("scope {name} {why}"));
            }
        }
        if refused.is_empty() { Ok(self) } else { Err(refused.join("; ")) }
    }
}

fn misfit(scope: &Scope, promises: &Promises) -> Option<String> {
    if scope.durability == Asked::Synced && promises.durability < Durability::Synced {
        let because = &promises.because;
        return Some(format!("asks for `durability: synced`, which this store does not offer: {because}"));
    }
    if *scope.name == *WMS_INGEST && !promises.many_rows {
        let why = "is sealed in one commit with the items of its request, and this store commits rows one by one: use the embedded store or PostgreSQL";
        return Some(why.to_owned());
    }
    let rows = match (&scope.version, &scope.again) {
        (Some(_), _) => "orders versions",
        (_, Some(_)) => "counts repetitions",
        _ => return None,
    };
    (!promises.many_rows).then(|| {
        format!("{rows}, which takes several rows in one commit, and this store commits them one by one: keep everything in one slot (`?slots=one`) or use another store")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn promises(durability: Durability, many_rows: bool) -> Promises {
        Promises { durability, because: "appendfsync everysec".to_owned(), shared: true, many_rows, lanes: false }
    }

    #[test]
    fn a_scope_that_asks_for_a_sync_is_refused_where_there_is_none() {
        let policy = || Policy::parse("p.yml", "scopes: {A: {key: [id], durability: synced}}").unwrap();
        assert!(policy().fit(&promises(Durability::Synced, true)).is_ok());
        let why = policy().fit(&promises(Durability::Delayed, true)).unwrap_err();
        assert!(why.contains("scope A") && why.contains("everysec"), "{why}");
    }

    #[test]
    fn a_scope_of_several_rows_is_refused_where_rows_commit_alone() {
        let mine = Policy::parse("p.yml", "scopes: {A: {key: [id], again: {seq: resendSeq}}}").unwrap();
        assert!(mine.fit(&promises(Durability::Synced, false)).unwrap_err().contains("slots=one"));
    }

    #[test]
    fn a_replaced_ingest_scope_is_left_out_where_rows_commit_alone_and_the_policy_is_not_refused() {
        let mine = "scopes: {WMS_INGEST: {key: [correlation_id], reject_on_body_mismatch: false}}";
        let policy = Policy::parse("p.yml", mine).unwrap();
        assert!(policy.clone().fit(&promises(Durability::Synced, true)).unwrap().scope(WMS_INGEST).is_ok());
        let policy = policy.fit(&promises(Durability::Synced, false)).unwrap();
        assert!(matches!(policy.scope(WMS_INGEST), Err(NoScope::Unfit(_))));
    }

    #[test]
    fn built_in_scopes_that_do_not_fit_are_left_out_and_say_why() {
        let policy = Policy::builtin().fit(&promises(Durability::Delayed, false)).unwrap();
        assert!(policy.scope("INDEX_BUILD").is_ok());
        assert!(matches!(policy.scope("BOOKING"), Err(NoScope::Unfit(why)) if why.contains("repetitions")));
        assert!(matches!(policy.scope("WEBHOOK"), Err(NoScope::Unfit(why)) if why.contains("versions")));
        assert!(matches!(policy.scope(WMS_INGEST), Err(NoScope::Unfit(why)) if why.contains("PostgreSQL")));
        assert_eq!(policy.scope("NONE").unwrap_err(), NoScope::Unknown);
    }
}
