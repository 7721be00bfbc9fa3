//! Goes over stored transports: finds those whose key is missing, and seals the others anew with the first key, so that
//! older keys can be retired. Never overwrites a transport that was put meanwhile.
//! Called at start, when the list of keys changes, and now and then while a key is missing.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
};

use fencepost_kernel::{
    Command, RowKey,
    dispatch::{self, PutTransport},
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
    /// Transports that an older key or an earlier release has sealed are sealed with the first key.
    Yes,
    /// Nothing is written: a node of an earlier release may share the store.
    No,
}

/// The result of a pass over stored transports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// How many transports this pass sealed anew.
    pub resealed: usize,
    /// How many cannot be opened: they are left as they are.
    pub unreadable: usize,
    /// The fingerprints of the keys that some of those are sealed with and that this process does not have.
    pub missing: BTreeSet<String>,
    /// The error of the first one that cannot be opened.
    pub why: Option<String>,
}

impl Dispatch {
    /// Goes over every stored transport. One that cannot be opened is counted and does not stop the pass. Then looks
    /// again at lanes that wait for a key, which may be back.
    pub async fn reseal(&self, anew: SealAnew) -> Result<Resealed, Error> {
        let done = self.reseal_all(anew).await?;
        *self.resealed.lock().unwrap_or_else(PoisonError::into_inner) = Some(done.clone());
        self.driver.look_at_held();
        Ok(done)
    }

    /// Reads the key file again if it has changed; returns whether the keys did, or a file that could not be used can
    /// be used again. The result of an earlier pass does not count then.
    pub fn refresh_keys(&self) -> Result<bool, String> {
        let changed = self.vault.refresh()?;
        if changed {
            *self.resealed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(changed)
    }

    /// The result of the last pass; none where none has ended since the keys changed.
    pub fn resealed(&self) -> Option<Resealed> {
        self.resealed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fingerprints of the keys that stored transports need and this process does not have, as far as the last pass
    /// and the lanes that it drives show.
    pub fn missing_keys(&self) -> BTreeSet<String> {
        let mut missing = self.resealed().map(|found| found.missing).unwrap_or_default();
        missing.extend(self.driver.missing_keys());
        missing
    }

    async fn reseal_all(&self, anew: SealAnew) -> Result<Resealed, Error> {
        let mut done = Resealed::default();
        let mut after: Option<RowKey> = None;
        loop {
            let page = self.engine.scan(Kind::Transport, after, READ_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(done) };
            after = Some(*last);
            for (_, row) in &page {
                let Record::Dispatch(dispatch::Record::Transport(known)) = &row.record else { continue };
                match self.vault.reseal(known) {
                    Ok(None) => {}
                    Ok(Some(_)) if anew == SealAnew::No => {}
                    Ok(Some(transport)) => {
                        let lane = transport.lane();
                        let put = PutTransport { transport, seen_to: None, over: Some(Arc::clone(known)) };
                        self.engine.ask(Command::Dispatch(dispatch::Command::PutTransport(Box::new(put)))).await?;
                        // Its driver must not go on with the row that a retired key has sealed.
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
        let page = engine.scan(Kind::Transport, after, READ_MAX).await?;
        let Some((last, _)) = page.last() else { return Ok(false) };
        after = Some(*last);
        if page.iter().any(|(_, row)| matches!(&row.record, Record::Dispatch(dispatch::Record::Transport(transport)) if !sealing_keys(transport).is_empty())) {
            return Ok(true);
        }
    }
}
