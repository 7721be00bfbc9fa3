//! Looks once a second at what changes beside a running server: the credentials file, the file of keys, the store's health.
//! Says each thing once: again only when it changes. Started by `serve`.

use std::{sync::Arc, time::Duration};

use fencepost::{
    dispatch::Dispatch,
    policy::{finding, identity::Refresh},
};
use fencepost_wire::{
    http::App,
    log::{Level, Log},
};

/// How often files and the engine's health are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub async fn run(app: Arc<App>) {
    let (mut told, mut away) = (false, false);
    // What is stored may be sealed with an older key, or as an earlier release did. On a store that nodes share, one of them
    // may be of that release: there only a second key says that the first is to be used.
    let dispatch = app.dispatch.as_ref().ok();
    let alone = !app.fencepost.engine().promises().shared;
    let mut reseal = dispatch.is_some_and(|dispatch| alone || dispatch.vault().fingerprints().len() > 1);
    loop {
        let now = app.fencepost.engine().now().0;
        if let Some(dispatch) = dispatch {
            reseal |= keys_changed(dispatch, &app.log, now);
            // What fails because the store does not answer is tried again.
            reseal = reseal && !resealed(dispatch, &app.log, now).await;
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
    match dispatch.vault().refresh() {
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

async fn resealed(dispatch: &Dispatch, log: &Log, now_ms: u64) -> bool {
    let Ok(done) = dispatch.reseal().await else { return false };
    if done.resealed > 0 {
        log.line(Level::Info, now_ms, "transports sealed anew with the first key")
            .number("count", done.resealed as u64);
    }
    if let Some(why) = &done.why {
        log.line(Level::Error, now_ms, "transports cannot be opened: their lanes wait for the key, or for a new PUT")
            .number("count", done.unreadable as u64)
            .text("why", why);
    }
    true
}
