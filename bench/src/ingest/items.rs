//! The items that all contestants send, and fencepost's side over HTTP: new items, and the same ones again.
//! Never trusts a status alone: each item's verdict is read out of every reply.
//! Called by `ingest`.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use memchr::memmem::Finder;

use crate::http::{Connection, KEY_HOLE, Reply, Template};
use crate::keys::{KEY_LEN, Numbering, first_of, scatter};
use crate::load::{self, Connect, Driver};

/// The length of an item, in bytes.
pub const ITEM_BYTES: usize = 300;
/// Added to a salt for the correlation ids of repeats: no other id is like them.
const REPEATS: u64 = 1 << 32;
/// The unit that every item refers to.
const UOM: &str = "EA";

/// A SKU with ten fields, valid by `contracts/wms-ingest.yml`. Its source id is the key hole.
pub fn item() -> String {
    let start = format!(
        r#"{{"source_id":"{KEY_HOLE}","source_version":1,"name":"Flange gasket DN50, PN16","base_uom":"{UOM}","barcode":"4006381333931","weight_kg":0.482,"hazmat":false,"storage":{{"zone":"A7","ambient":true}},"supplier":"ACME-0042","description":""#
    );
    const TEXT: &str = "Spiral wound, 316L with graphite filler, inner ring; fits EN 1092-1 type B1. Box of 12.";
    let left = ITEM_BYTES - start.len() - 2;
    format!("{start}{}\"}}", &TEXT[..left])
}

/// The document of a request: so many items, each with a key hole.
pub fn document(per_request: usize) -> String {
    format!(r#"{{"items":[{}]}}"#, vec![item(); per_request].join(","))
}

/// The document that brings what every item refers to.
pub fn uoms() -> String {
    format!(r#"{{"items":[{{"source_id":"{UOM}","source_version":1,"name":"Each"}}]}}"#)
}

fn submit(collection: &str, body: &str) -> Template {
    let headers = format!("X-Correlation-Id: {KEY_HOLE}\r\n");
    Template::post_with(&format!("/wms-ingest/v1/master/{collection}"), &headers, body)
}

/// Sends what the items refer to, which nothing else does.
pub fn prepare(port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut request = submit("uoms", &uoms());
        request.hole(0).copy_from_slice(&[b'u'; KEY_LEN]);
        let mut connection = Connection::open(port).await?;
        expect_all(&connection.exchange(request.bytes()).await?, 1, &ACCEPTED)
    })
}

/// Requests with new items; each must be accepted.
#[derive(Clone)]
pub struct Sends {
    pub port: u16,
    /// Turns numbers into source ids and correlation ids.
    pub numbering: Numbering,
    pub per_request: usize,
    /// Where the numbers of items come from: all connections share one counter, or each has its own.
    pub shared: Option<Arc<AtomicU64>>,
}

/// A connection of `Sends`.
pub struct SendsDriver {
    connection: Connection,
    plan: Sends,
    next: u64,
    request: Template,
}

impl Connect for Sends {
    type Driver = SendsDriver;
    async fn connect(&self, connection: usize) -> Result<SendsDriver> {
        let request = submit("skus", &document(self.per_request));
        let next = first_of(connection);
        Ok(SendsDriver { connection: Connection::open(self.port).await?, plan: self.clone(), next, request })
    }
}

impl Driver for SendsDriver {
    async fn step(&mut self) -> Result<()> {
        let Sends { numbering, per_request, shared, .. } = &self.plan;
        let count = *per_request as u64;
        let first = match shared {
            Some(shared) => shared.fetch_add(count, Ordering::Relaxed),
            None => self.next,
        };
        self.next += count;
        numbering.write(first, self.request.hole(0));
        fill(&mut self.request, *numbering, first, *per_request);
        expect_all(&self.connection.exchange(self.request.bytes()).await?, *per_request, &ACCEPTED)
    }
}

fn fill(request: &mut Template, numbering: Numbering, first: u64, per_request: usize) {
    for (item, number) in (first..).take(per_request).enumerate() {
        numbering.write(number, request.hole(item + 1));
    }
}

/// Requests with items that are known, each under a new correlation id; each item must be a replay.
#[derive(Clone)]
pub struct Repeats {
    /// How the items were sent first.
    pub sent: Sends,
    /// The salt of that.
    pub salt: u64,
    /// So many items were sent, a request full each time.
    pub known: u64,
}

/// A connection of `Repeats`.
pub struct RepeatsDriver {
    connection: Connection,
    plan: Repeats,
    turn: u64,
    request: Template,
}

impl Connect for Repeats {
    type Driver = RepeatsDriver;
    async fn connect(&self, connection: usize) -> Result<RepeatsDriver> {
        let request = submit("skus", &document(self.sent.per_request));
        let turn = first_of(connection);
        Ok(RepeatsDriver { connection: Connection::open(self.sent.port).await?, plan: self.clone(), turn, request })
    }
}

impl Driver for RepeatsDriver {
    async fn step(&mut self) -> Result<()> {
        let Repeats { sent: Sends { numbering, per_request, .. }, salt, known } = &self.plan;
        let per_request = *per_request;
        let again = scatter(self.turn) % (known / per_request as u64);
        Numbering::new(salt + REPEATS).write(self.turn, self.request.hole(0));
        self.turn += 1;
        fill(&mut self.request, *numbering, again * per_request as u64, per_request);
        expect_all(&self.connection.exchange(self.request.bytes()).await?, per_request, &REPLAY)
    }
}

/// Sends at least `count` new items, and says how many.
pub fn send_first(sends: &Sends, count: u64, connections: usize) -> Result<u64> {
    let next = Arc::new(AtomicU64::new(0));
    let sends = Sends { shared: Some(next.clone()), ..sends.clone() };
    let more = next.clone();
    load::until_done(connections, sends, move || more.load(Ordering::Relaxed) < count)?;
    Ok(next.load(Ordering::Relaxed))
}

static ACCEPTED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""status":"ACCEPTED""#));
static REPLAY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""status":"REPLAY""#));
static STATUS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""status":""#));

fn expect_all(reply: &Reply<'_>, count: usize, verdict: &Finder<'_>) -> Result<()> {
    let wanted = String::from_utf8_lossy(verdict.needle());
    let all = STATUS.find_iter(reply.body).count();
    let good = verdict.find_iter(reply.body).count();
    if reply.status != 200 {
        return Err(reply.unexpected(&format!("200 with {count} times {wanted}")));
    }
    ensure!((good, all) == (count, count), "{good} of {all} verdicts were {wanted}, and {count} were sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_its_length_and_seven_fields_at_least() {
        let text = item();
        assert_eq!(text.len(), ITEM_BYTES);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value.as_object().unwrap().len() >= 7);
    }

    #[test]
    fn items_are_valid_by_the_contract() {
        let policy = fencepost::policy::Policy::builtin();
        for (name, text) in [("skus", document(3)), ("uoms", uoms())] {
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            for item in document["items"].as_array().unwrap() {
                assert!(policy.collections.get(name).unwrap().faults(item, 1).is_empty());
            }
        }
    }

    #[test]
    fn a_request_has_a_hole_for_its_id_and_one_an_item() {
        let mut request = submit("skus", &document(2));
        Numbering::new(1).write(9, request.hole(0));
        fill(&mut request, Numbering::new(1), 5, 2);
        let text = String::from_utf8(request.bytes().to_vec()).unwrap();
        assert!(!text.contains(KEY_HOLE));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(value["items"].as_array().unwrap().len(), 2);
        assert!(head.contains("X-Correlation-Id: "));
    }

    #[test]
    fn one_item_with_another_verdict_is_an_error() {
        let reply = |body: &'static [u8]| Reply { status: 200, body };
        let good = br#"{"results":[{"status":"ACCEPTED"},{"status":"ACCEPTED"}]}"#;
        let bad = br#"{"results":[{"status":"ACCEPTED"},{"status":"QUARANTINED"}]}"#;
        assert!(expect_all(&reply(good), 2, &ACCEPTED).is_ok());
        assert!(expect_all(&reply(good), 3, &ACCEPTED).is_err());
        assert!(expect_all(&reply(bad), 2, &ACCEPTED).is_err());
        assert!(expect_all(&reply(bad), 1, &ACCEPTED).is_err());
    }
}
