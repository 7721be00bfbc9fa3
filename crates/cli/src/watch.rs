//! Checks once a second what changes beside a running server: the credentials file, the key file, the store's health.
//! Never logs a finding twice, unless it has changed. Called by `serve`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fencepost::{
    dispatch::{Dispatch, Resealed, SealAnew},
    policy::{finding, identity::Refresh},
};
use fencepost_wire::{
    http::App,
    log::{Level, Log},
};

/// How often files and the engine's health are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often stored transports are checked while some cannot be opened. Otherwise `PASS_EVERY_SHARED` holds, on a store
/// that nodes share: another node may have sealed one with a key that is missing here.
const PASS_EVERY: Duration = Duration::from_secs(10);
const PASS_EVERY_SHARED: Duration = Duration::from_secs(300);

pub async fn run(app: Arc<App>) {
    let (mut told, mut away) = (false, false);
    let mut passes = Passes { is_shared: app.fencepost.engine().promises().shared, ..Passes::default() };
    let dispatch = app.dispatch.as_ref().ok();
    loop {
        let now = app.fencepost.engine().now().0;
        if let Some(dispatch) = dispatch {
            let changed = keys_changed(dispatch, &app.log, now);
            passes.look(dispatch, changed, &app.log, now).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let now = app.fencepost.engine().now().0;
        credentials(&app, now);
        match app.fencepost.engine().ready().await {
            Err(why) if !away => {
                away = true;
                app.log.line(Level::Error, now, "the store does not answer").text("why", &why.to_string());
            }
            Ok(()) if away => {
                away = false;
                app.log.line(Level::Info, now, "the store answers again");
            }
            _ => {}
        }
        if let Some(why) = app.fencepost.engine().stopped().filter(|_| !told) {
            told = true;
            app.log.line(Level::Error, now, "the store has stopped; nothing is acknowledged any more").text("why", why);
        }
    }
}

fn credentials(app: &App, now_ms: u64) {
    match app.directory.refresh() {
        Ok(Refresh::Same) => {}
        Ok(Refresh::Read) => drop(app.log.line(Level::Info, now_ms, "credentials read again")),
        Ok(Refresh::Partly(findings)) => drop(
            app.log
                .line(Level::Error, now_ms, "credentials read again, but for those who differ from the policy")
                .text("why", finding::human(&findings).trim_end()),
        ),
        Err(findings) => drop(
            app.log
                .line(Level::Error, now_ms, "credentials not read; the known ones stay")
                .text("why", finding::human(&findings).trim_end()),
        ),
    }
}

fn keys_changed(dispatch: &Dispatch, log: &Log, now_ms: u64) -> bool {
    match dispatch.refresh_keys() {
        Ok(false) => false,
        Ok(true) => {
            let keys = dispatch.vault().fingerprints();
            log.line(Level::Info, now_ms, "keys read again").text("keys", &keys.join(", "));
            true
        }
        Err(why) => {
            log.line(Level::Error, now_ms, "keys not read; the known ones stay").text("why", &why);
            false
        }
    }
}

/// Passes over stored transports: each seals those of an older key with the first, and logs those that do not open.
#[derive(Default)]
struct Passes {
    is_shared: bool,
    /// When the last complete pass ended; none where the next is due at once.
    last: Option<Instant>,
    /// The result of that pass.
    found: Resealed,
    /// The error that ended the last pass; empty where it was complete.
    failed: String,
}

impl Passes {
    // Runs a pass if one is due. Logs its result only where that has changed.
    async fn look(&mut self, dispatch: &Dispatch, keys_changed: bool, log: &Log, now_ms: u64) {
        let is_old = |last: Instant| match (self.found.unreadable > 0, self.is_shared) {
            (true, _) => last.elapsed() >= PASS_EVERY,
            (false, shared) => shared && last.elapsed() >= PASS_EVERY_SHARED,
        };
        if keys_changed {
            self.last = None;
        }
        if !self.last.is_none_or(is_old) {
            return;
        }
        // A node of an earlier release may share the store. There only a second key asks for a new sealing.
        let anew = match self.is_shared && dispatch.vault().fingerprints().len() < 2 {
            true => SealAnew::No,
            false => SealAnew::Yes,
        };
        match dispatch.reseal(anew).await {
            Ok(found) => {
                self.tell(&found, log, now_ms);
                (self.last, self.found, self.failed) = (Some(Instant::now()), found, String::new());
            }
            // Retried every second until the store answers.
            Err(error) => {
                let why = error.to_string();
                if self.failed != why {
                    log.line(Level::Warn, now_ms, "transports are not sealed anew yet; trying again").text("why", &why);
                    self.failed = why;
                }
            }
        }
    }

    fn tell(&self, found: &Resealed, log: &Log, now_ms: u64) {
        if found.resealed > 0 {
            log.line(Level::Info, now_ms, "transports sealed anew with the first key")
                .number("count", found.resealed as u64);
        }
        let known = (self.found.unreadable, &self.found.missing, &self.found.why);
        if known == (found.unreadable, &found.missing, &found.why) {
            return;
        }
        match &found.why {
            Some(why) => drop(
                log.line(Level::Error, now_ms, "transports cannot be opened; nothing is sent to them")
                    .number("count", found.unreadable as u64)
                    .text("missing_keys", &found.missing.iter().cloned().collect::<Vec<_>>().join(", "))
                    .text("why", why)
                    .text("next", "put those keys back into the key file, or PUT the transports again"),
            ),
            None => drop(log.line(Level::Info, now_ms, "every stored transport can be opened again")),
        }
    }
}
