//! Seals stored transports anew with the first key, so that older keys can be retired.
//! Never overwrites what somebody put meanwhile. Called at start and when the list of keys changes.

use std::sync::{Arc, PoisonError};

use fencepost_kernel::{Command, RowKey, command::PutRoute, fence::Record, key::Kind};

use super::Dispatch;
use crate::engine::Error;

/// Transports read in one step.
const READ_MAX: usize = 1_000;

/// How stored transports are sealed after a pass over them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Sealed anew by this pass.
    pub resealed: usize,
    /// Those that cannot be opened: they are left as they are.
    pub unreadable: usize,
    /// What is wrong with the first of those.
    pub why: Option<String>,
}

impl Dispatch {
    /// Seals every stored transport with the first key of the vault. One that cannot be opened is counted, and no reason to
    /// leave the others.
    pub async fn reseal(&self) -> Result<Resealed, Error> {
        let remember = |found| *self.resealed.lock().unwrap_or_else(PoisonError::into_inner) = found;
        remember(None);
        let done = self.reseal_all().await?;
        remember(Some(done.clone()));
        Ok(done)
    }

    /// What the last pass found; none where there was none, or it did not come to its end.
    pub fn resealed(&self) -> Option<Resealed> {
        self.resealed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn reseal_all(&self) -> Result<Resealed, Error> {
        let mut done = Resealed::default();
        let mut after: Option<RowKey> = None;
        loop {
            let page = self.engine.scan(Kind::Route, after, READ_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(done) };
            after = Some(*last);
            for (_, row) in &page {
                let Record::Route(known) = &row.record else { continue };
                match self.vault.reseal(known) {
                    Ok(None) => {}
                    Ok(Some(route)) => {
                        let lane = route.lane();
                        let put = PutRoute { route, seen_to: None, over: Some(Arc::clone(known)) };
                        self.engine.ask(Command::PutRoute(Box::new(put))).await?;
                        // Its driver must not go on with what a retired key has sealed.
                        self.driver.look_at(lane);
                        done.resealed += 1;
                    }
                    Err(why) => {
                        done.unreadable += 1;
                        done.why.get_or_insert(why);
                    }
                }
            }
        }
    }
}
