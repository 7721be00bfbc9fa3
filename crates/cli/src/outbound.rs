//! Starts the driver that delivers events, as the configuration says, and posts alerts.
//! Never starts on a store that cannot carry lanes. Called by `serve`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use fencepost::{
    Fencepost,
    clock::SystemClock,
    dispatch::{Dispatch, DriverSettings, MASK, SCOPE, Vault, has_sealed_rows, origin, shown_url},
    engine::Engine,
    policy::Policy,
};
use fencepost_kernel::Millis;
use fencepost_wire::{
    deliveries::Alerts,
    log::{Level, Log},
    metrics::Metrics,
    sinks::{
        Sinks,
        kafka::{self, KafkaSink},
        webhook::{self, Egress, WebhookSink},
    },
};
use tokio::sync::mpsc;

/// The key under --dev, where nothing is secret. It is fixed, since nodes that share a store must share the key.
const DEV_KEY: [u8; 32] = *b"fencepost dev key: not a secret.";
/// The file of keys in the data directory, unless the policy names another.
pub const KEY_FILE: &str = "secret.key";
/// Attempts to post an alert; after the last one it is only in the log.
const POSTS_MAX: u32 = 4;
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait before the second attempt; each later wait is four times as long.
const POST_AGAIN: Duration = Duration::from_millis(500);

/// The vault under --dev, with its public key.
pub fn dev_vault() -> Vault {
    Vault::fixed(DEV_KEY)
}

/// Which addresses webhooks may reach.
pub fn egress(policy: &Policy, dev: bool) -> anyhow::Result<Egress> {
    Egress::new(&policy.dispatch.egress_allow, dev).map_err(anyhow::Error::msg).context("dispatch.egress_allow")
}

/// Starts the driver of lanes. The inner error says why this server has none.
pub async fn start(
    fencepost: &Fencepost,
    node: &str,
    egress: Egress,
    dev: bool,
    log: &Log,
    metrics: &Metrics,
) -> anyhow::Result<Result<Dispatch, String>> {
    let engine = fencepost.engine();
    if !engine.promises().lanes {
        return Ok(Err("this store carries fences only: events need PostgreSQL or a directory".to_owned()));
    }
    let policy = fencepost.policy();
    let settings = &policy.dispatch;
    let Ok(scope) = policy.scope(SCOPE) else { return Ok(Err(format!("the scope {SCOPE} is not served here"))) };
    let vault = Arc::new(if dev {
        dev_vault()
    } else {
        let path = match key_file(&policy, engine.promises().shared) {
            Ok(path) => path,
            // A server that is used for fences alone needs no key.
            Err(why) => {
                log.line(Level::Warn, engine.now().0, "no events are dispatched").text("why", &why);
                return Ok(Err(why));
            }
        };
        open_vault(engine, &path, log).await?
    });
    let sending = webhook::WebhookSettings {
        attempt_ms_max: settings.timeout.as_millis() as u64,
        authorities: settings.ca.clone(),
        idle_per_host_max: settings.per_host_max,
        ..webhook::WebhookSettings::default()
    };
    let webhook = WebhookSink::new(egress, vault.clone(), Arc::new(SystemClock::default()), &sending)
        .map_err(anyhow::Error::msg)?;
    let kafka = settings.kafka_brokers.clone().map(|brokers| {
        let (account, attempt_ms_max) = (settings.kafka_account.clone(), sending.attempt_ms_max);
        let message_bytes_max = settings.kafka_message_bytes_max;
        KafkaSink::new(kafka::KafkaSinkSettings { brokers, account, attempt_ms_max, message_bytes_max })
    });
    let kafka = kafka.transpose().map_err(anyhow::Error::msg).context("dispatch.kafka_brokers")?;
    let sink = Sinks { webhook, kafka };
    let clock = || {
        let weak = engine.downgrade();
        move || weak.upgrade().map_or_else(Default::default, |engine| engine.now())
    };
    let figures = metrics.deliveries.clone();
    let (alerts, posts) = Alerts::new(log.clone(), figures, clock(), settings.alert_webhook.is_some());
    if let (Some(posts), Some(url)) = (posts, settings.alert_webhook.clone()) {
        tokio::task::spawn_blocking({
            let (log, now) = (log.clone(), clock());
            move || post(posts, &url, &log, now, POST_AGAIN)
        });
    }
    let driving = DriverSettings {
        node: node.to_owned(),
        in_flight_max: settings.in_flight_max,
        per_host_max: settings.per_host_max,
        blocked_after: settings.blocked_after,
    };
    let dispatch = Dispatch::start(engine.clone(), scope.clone(), vault, Arc::new(sink), alerts, driving).await?;
    Ok(Ok(dispatch))
}

// Makes a key only where no stored transport needs one yet. A new key would open none of the sealed transports, and
// would hide that theirs is missing.
async fn open_vault(engine: &Engine, path: &Path, log: &Log) -> anyhow::Result<Vault> {
    let has_keys = path.metadata().is_ok_and(|file| file.len() > 0);
    if has_keys || !has_sealed_rows(engine).await? {
        return Vault::open(path).map_err(anyhow::Error::msg);
    }
    log.line(Level::Error, engine.now().0, "the key file is missing, and stored transports are sealed: no key is made, and lanes of webhooks do not start")
        .text("file", &path.display().to_string())
        .text("next", "put the key file back there; it is read within a second. If it is lost: docs/guides/dispatch.md, \"The keys that seal secrets\"");
    Ok(Vault::awaiting(path))
}

// The path of the key file. Nodes that share a store need a named one: with a key each, none could read another's.
fn key_file(policy: &Policy, shared: bool) -> Result<PathBuf, String> {
    match &policy.dispatch.key_file {
        Some(path) => Ok(path.clone()),
        None if shared => Err("dispatch.key_file is not named: nodes that share a store need the same key. Make a file \
             with `openssl rand -hex 32`, give it to every node, and name it in --config or as FENCEPOST_DISPATCH__KEY_FILE"
            .to_owned()),
        None => Ok(policy.server.data.join(KEY_FILE)),
    }
}

// Removes the secret parts of the receiver's url from an error's text, which may repeat the url.
fn masked(text: &str, url: &str) -> String {
    let shown = shown_url(url);
    // A user name and a password come before the host.
    let shown = match shown.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{MASK}@{host}"),
        _ => shown,
    };
    let rest = &url[origin(url).len()..];
    let text = text.replace(url, &shown);
    if rest.len() > 1 { text.replace(rest, MASK) } else { text }
}

// Posts alerts one after the other, until the channel is closed.
fn post(mut posts: mpsc::Receiver<String>, url: &str, log: &Log, now: impl Fn() -> Millis, again: Duration) {
    // A redirect would turn the alert into a GET of something else.
    let agent = ureq::Agent::config_builder().timeout_global(Some(POST_TIMEOUT)).max_redirects(0).build();
    let agent: ureq::Agent = agent.into();
    while let Some(alert) = posts.blocking_recv() {
        let mut wait = again;
        for tried in 1..=POSTS_MAX {
            let sent = agent.post(url).header("content-type", "application/json").send(&alert);
            let sent = sent.map_err(|error| masked(&error.to_string(), url)).and_then(|answer| match answer.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("the receiver answered {status}")),
            });
            match sent {
                Ok(()) => break,
                Err(error) if tried == POSTS_MAX => {
                    log.line(Level::Error, now().0, "an alert could not be posted")
                        .text("why", &error)
                        .text("alert", &alert);
                }
                Err(_) => std::thread::sleep(wait),
            }
            wait *= 4;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{self, BufRead, BufReader, Read, Write},
        net::TcpListener,
        sync::{Mutex, PoisonError},
        thread,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // A receiver that gives these answers, one per connection: its url, and at the end the request lines that it got.
    fn receiver(answers: Vec<String>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/alerts", listener.local_addr().unwrap());
        let serving = thread::spawn(move || {
            let lines = answers.iter().map(|answer| {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
                }
                let length = head
                    .to_lowercase()
                    .split_once("content-length: ")
                    .map_or(0, |(_, rest)| rest.split_once("\r\n").unwrap().0.parse().unwrap());
                stream.read_exact(&mut vec![0; length]).unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
                head.lines().next().unwrap().to_owned()
            });
            lines.collect()
        });
        (url, serving)
    }

    fn post_one(url: &str) -> String {
        let (sender, posts) = mpsc::channel(1);
        sender.try_send("{}".to_owned()).unwrap();
        drop(sender);
        let page = Page::default();
        let log = Log::new(Level::Info, page.clone());
        post(posts, url, &log, || Millis(1_780_000_000_000), Duration::from_millis(1));
        log.flush();
        let text = page.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn an_alert_follows_no_redirect_and_is_posted_again() {
        let (url, serving) = receiver(vec!["302 Found\r\nlocation: /elsewhere".to_owned(), "200 OK".to_owned()]);
        assert_eq!(post_one(&url), "");
        assert_eq!(serving.join().unwrap(), ["POST /alerts HTTP/1.1"; 2]);
    }

    #[test]
    fn an_alert_that_cannot_be_posted_is_logged_with_its_time() {
        let (url, serving) = receiver(vec!["500 Not Today".to_owned(); POSTS_MAX as usize]);
        let text = post_one(&url);
        assert!(text.contains("an alert could not be posted") && text.contains("2026-05-28T20:26:40"), "{text}");
        assert_eq!(serving.join().unwrap().len(), POSTS_MAX as usize);
    }

    #[test]
    fn an_error_about_the_receiver_of_alerts_shows_nothing_secret_of_its_url() {
        let url = "https://me:hush@alerts.example/T00/token?k=hush";
        let said = masked(&format!("bad uri: {url}; no /T00/token?k=hush there"), url);
        assert_eq!(said, "bad uri: https://***@alerts.example/***; no *** there");
        let text = post_one("http://127.0.0.1:1/T00/hush?k=hush now");
        assert!(text.contains("an alert could not be posted") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn nodes_that_share_a_store_are_told_to_share_a_key() {
        let mut policy = Policy::builtin();
        assert_eq!(key_file(&policy, false).unwrap(), policy.server.data.join("secret.key"));
        let refused = key_file(&policy, true).unwrap_err().to_string();
        assert!(refused.contains("dispatch.key_file") && refused.contains("the same key"), "{refused}");
        policy.dispatch.key_file = Some("shared.key".into());
        assert_eq!(key_file(&policy, true).unwrap(), PathBuf::from("shared.key"));
    }
}
