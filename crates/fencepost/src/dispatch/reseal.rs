//! Goes over stored transports: finds those whose key is missing, and seals the others anew with the first key, so that older
//! keys can be retired. Never overwrites what somebody put meanwhile.
//! Called at start, when the list of keys changes, and now and then while a key is missing.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
};

use fencepost_kernel::{
    Command, RowKey,
    dispatch::{self, PutRoute},
    key::Kind,
    row::Record,
};

use super::{Dispatch, sealing_keys};
use crate::engine::{Engine, Error};

/// Transports read in one step.
const READ_MAX: usize = 1_000;

/// Whether a pass over stored transports writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealAnew {
    /// What an older key or an earlier release sealed is sealed with the first key.
    Yes,
    /// Nothing is written: a node of an earlier release may share the store.
    No,
}

/// How stored transports are sealed after a pass over them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Sealed anew by this pass.
    pub resealed: usize,
    /// Those that cannot be opened: they are left as they are.
    pub unreadable: usize,
    /// The fingerprints of the keys that some of those are sealed with and that are missing here.
    pub missing: BTreeSet<String>,
    /// What is wrong with the first of those.
    pub why: Option<String>,
}

impl Dispatch {
    /// Goes over every stored transport. One that cannot be opened is counted, and no reason to leave the others. Lanes that
    /// wait for a key that is back are looked at again.
    pub async fn reseal(&self, anew: SealAnew) -> Result<Resealed, Error> {
        let done = self.reseal_all(anew).await?;
        *self.resealed.lock().unwrap_or_else(PoisonError::into_inner) = Some(done.clone());
        self.driver.look_at_held();
        Ok(done)
    }

    /// Reads the file of keys again if it changed since; says whether the keys did. What an earlier pass found does not count
    /// then.
    pub fn refresh_keys(&self) -> Result<bool, String> {
        let changed = self.vault.refresh()?;
        if changed {
            *self.resealed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(changed)
    }

    /// What the last pass found; none where none came to its end.
    pub fn resealed(&self) -> Option<Resealed> {
        self.resealed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fingerprints of the keys that stored transports need and that are missing here, as far as the last pass and the
    /// lanes that this process drives tell.
    pub fn missing_keys(&self) -> BTreeSet<String> {
        let mut missing = self.resealed().map(|found| found.missing).unwrap_or_default();
        missing.extend(self.driver.missing_keys());
        missing
    }

    async fn reseal_all(&self, anew: SealAnew) -> Result<Resealed, Error> {
        let mut done = Resealed::default();
        let mut after: Option<RowKey> = None;
        loop {
            let page = self.engine.scan(Kind::Route, after, READ_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(done) };
            after = Some(*last);
            for (_, row) in &page {
                let Record::Dispatch(dispatch::Record::Route(known)) = &row.record else { continue };
                match self.vault.reseal(known) {
                    Ok(None) => {}
                    Ok(Some(_)) if anew == SealAnew::No => {}
                    Ok(Some(route)) => {
                        let lane = route.lane();
                        let put = PutRoute { route, seen_to: None, over: Some(Arc::clone(known)) };
                        self.engine.ask(Command::Dispatch(dispatch::Command::PutRoute(Box::new(put)))).await?;
                        // Its driver must not go on with what a retired key has sealed.
                        self.driver.look_at(lane);
                        done.resealed += 1;
                    }
                    Err(why) => {
                        done.unreadable += 1;
                        done.missing.extend(self.vault.missing_key(known));
                        done.why.get_or_insert(why);
                    }
                }
            }
        }
    }
}

/// Whether any stored transport is sealed: a new key would not open it.
pub async fn has_sealed_rows(engine: &Engine) -> Result<bool, Error> {
    let mut after: Option<RowKey> = None;
    loop {
        let page = engine.scan(Kind::Route, after, READ_MAX).await?;
        let Some((last, _)) = page.last() else { return Ok(false) };
        after = Some(*last);
        if page.iter().any(|(_, row)| matches!(&row.record, Record::Dispatch(dispatch::Record::Route(route)) if !sealing_keys(route).is_empty())) {
            return Ok(true);
        }
    }
}
