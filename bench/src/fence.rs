//! Drives fencepost over HTTP: claim then seal one by one, the same in batches of a hundred, replays of sealed keys.
//! Never trusts a status alone: it reads the decision, the token and the receipt out of every body.
//! Called by `contest` and `scale`; `noop` sends its claims, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, bail};
use memchr::memmem::{FindIter, Finder, find_iter};

use crate::http::{Connection, KEY_HOLE, Reply, TOKEN_HOLE, Template};
use crate::keys::{EFFECT_ID, Numbering, RECEIPT, first_of, scatter};
use crate::load::{Connect, Driver};

/// Commands in one batch request.
pub const BATCH: usize = 100;

/// How a connection of `Batches` chooses the numbers of its keys.
#[derive(Clone)]
pub enum Numbers {
    /// Each connection counts in a number space of its own.
    PerConnection,
    /// All connections share one counter, so the keys written are exactly 0..n.
    Shared(Arc<AtomicU64>),
}

impl Numbers {
    fn take(&self, own: &mut u64, count: u64) -> u64 {
        match self {
            Numbers::PerConnection => {
                *own += count;
                *own - count
            }
            Numbers::Shared(next) => next.fetch_add(count, Ordering::Relaxed),
        }
    }
}

fn target() -> String {
    format!(r#""scope":"API_WRITE","key":{{"method":"POST","path":"/orders","idempotency_key":"{KEY_HOLE}"}}"#)
}

fn seal_fields() -> String {
    format!(r#"{},"token":{TOKEN_HOLE},"effect_id":"{EFFECT_ID}","receipt":{RECEIPT}"#, target())
}

/// The claim that cycles and replays send; hole 0 is the key.
pub fn claim_template() -> Template {
    Template::post("/v1/fences/claim", &format!("{{{}}}", target()))
}

fn batch_template(command: &str) -> Template {
    let commands = vec![command; BATCH].join(",");
    Template::post("/v1/fences/batch", &format!(r#"{{"commands":[{commands}]}}"#))
}

/// Cycles of one claim and one seal, each its own request.
#[derive(Clone)]
pub struct Cycles {
    /// The ports of the servers; connections are spread over them.
    pub ports: Vec<u16>,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
}

/// A connection of `Cycles`.
pub struct CyclesDriver {
    connection: Connection,
    numbering: Numbering,
    next: u64,
    claim: Template,
    seal: Template,
}

impl Connect for Cycles {
    type Driver = CyclesDriver;
    async fn connect(&self, connection: usize) -> Result<CyclesDriver> {
        Ok(CyclesDriver {
            connection: Connection::open(self.ports[connection % self.ports.len()]).await?,
            numbering: self.numbering,
            next: first_of(connection),
            claim: claim_template(),
            seal: Template::post("/v1/fences/seal", &format!("{{{}}}", seal_fields())),
        })
    }
}

impl Driver for CyclesDriver {
    async fn step(&mut self) -> Result<()> {
        self.numbering.write(self.next, self.claim.hole(0));
        self.numbering.write(self.next, self.seal.hole(0));
        self.next += 1;
        let reply = self.connection.exchange(self.claim.bytes()).await?;
        if reply.status != 201 || !contains(&reply, &NEW) {
            return Err(reply.unexpected("201 new"));
        }
        let token = Tokens::of(&reply).next().context("a claim without a token")?;
        self.seal.fill_number(1, token);
        let reply = self.connection.exchange(self.seal.bytes()).await?;
        if reply.status != 200 || contains(&reply, &REPLAY) {
            return Err(reply.unexpected("200 sealed"));
        }
        Ok(())
    }
}

/// Cycles of one request with a hundred claims, then one with their hundred seals.
#[derive(Clone)]
pub struct Batches {
    pub port: u16,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
    /// The source of the key numbers.
    pub numbers: Numbers,
}

/// A connection of `Batches`.
pub struct BatchesDriver {
    connection: Connection,
    numbering: Numbering,
    numbers: Numbers,
    own: u64,
    claims: Template,
    seals: Template,
}

impl Connect for Batches {
    type Driver = BatchesDriver;
    async fn connect(&self, connection: usize) -> Result<BatchesDriver> {
        Ok(BatchesDriver {
            connection: Connection::open(self.port).await?,
            numbering: self.numbering,
            numbers: self.numbers.clone(),
            own: first_of(connection),
            claims: batch_template(&format!(r#"{{"op":"claim",{}}}"#, target())),
            seals: batch_template(&format!(r#"{{"op":"seal",{}}}"#, seal_fields())),
        })
    }
}

impl Driver for BatchesDriver {
    async fn step(&mut self) -> Result<()> {
        let first = self.numbers.take(&mut self.own, BATCH as u64);
        for (command, number) in (first..).take(BATCH).enumerate() {
            self.numbering.write(number, self.claims.hole(command));
            self.numbering.write(number, self.seals.hole(2 * command));
        }
        let reply = self.connection.exchange(self.claims.bytes()).await?;
        expect_all(&reply, b"201")?;
        let mut tokens = Tokens::of(&reply);
        for command in 0..BATCH {
            let token = tokens.next().context("a claim in a batch without a token")?;
            self.seals.fill_number(2 * command + 1, token);
        }
        if tokens.next().is_some() {
            bail!("more tokens than claims");
        }
        let reply = self.connection.exchange(self.seals.bytes()).await?;
        expect_all(&reply, b"200")?;
        if contains(&reply, &REPLAY) {
            return Err(reply.unexpected("first seals"));
        }
        Ok(())
    }
}

/// Claims of keys that are sealed already; each must be answered as a duplicate.
#[derive(Clone)]
pub struct Replays {
    pub port: u16,
    /// Turns key numbers into keys.
    pub numbering: Numbering,
    /// Keys 0..sealed were sealed before the measurement.
    pub sealed: u64,
}

/// A connection of `Replays`.
pub struct ReplaysDriver {
    connection: Connection,
    plan: Replays,
    turn: u64,
    claim: Template,
}

impl Connect for Replays {
    type Driver = ReplaysDriver;
    async fn connect(&self, connection: usize) -> Result<ReplaysDriver> {
        Ok(ReplaysDriver {
            connection: Connection::open(self.port).await?,
            plan: self.clone(),
            turn: first_of(connection),
            claim: claim_template(),
        })
    }
}

impl Driver for ReplaysDriver {
    async fn step(&mut self) -> Result<()> {
        // Scattered, so that keys asked in a row do not lie side by side on disk.
        let number = scatter(self.turn) % self.plan.sealed;
        self.turn += 1;
        self.plan.numbering.write(number, self.claim.hole(0));
        let reply = self.connection.exchange(self.claim.bytes()).await?;
        if reply.status != 200 || !contains(&reply, &DUPLICATE) || !contains(&reply, &SEALED) {
            return Err(reply.unexpected("200 duplicate with the receipt"));
        }
        Ok(())
    }
}

/// Seals keys until `next` reaches `count`, a hundred a request.
pub fn fill(port: u16, numbering: Numbering, next: &Arc<AtomicU64>, count: u64, connections: usize) -> Result<()> {
    let batches = Batches { port, numbering, numbers: Numbers::Shared(next.clone()) };
    let next = next.clone();
    crate::load::until_done(connections, batches, move || next.load(Ordering::Relaxed) < count)
}

// Built once and not per reply: the load generator shares the machine with the server.
static NEW: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""decision":"new""#));
static REPLAY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""replay":true"#));
static DUPLICATE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""decision":"duplicate""#));
static SEALED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(RECEIPT));
static TOKEN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""token":"#));

fn contains(reply: &Reply<'_>, wanted: &Finder<'_>) -> bool {
    wanted.find(reply.body).is_some()
}

fn expect_all(reply: &Reply<'_>, status: &[u8]) -> Result<()> {
    const FIELD: &[u8] = br#""status":"#;
    let statuses = find_iter(reply.body, FIELD).map(|at| &reply.body[at + FIELD.len()..]);
    let (good, bad): (Vec<_>, Vec<_>) = statuses.partition(|rest| rest.starts_with(status));
    if reply.status != 200 || good.len() != BATCH || !bad.is_empty() {
        let wanted = format!("{BATCH} results of {}", String::from_utf8_lossy(status));
        return Err(reply.unexpected(&wanted));
    }
    Ok(())
}

/// Iterates over the tokens of a reply, in their order.
struct Tokens<'a> {
    body: &'a [u8],
    found: FindIter<'a, 'static>,
}

impl<'a> Tokens<'a> {
    fn of(reply: &Reply<'a>) -> Tokens<'a> {
        Tokens { body: reply.body, found: TOKEN.find_iter(reply.body) }
    }
}

impl Iterator for Tokens<'_> {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let digits = &self.body[self.found.next()? + TOKEN.needle().len()..];
        let value = digits.iter().take_while(|byte| byte.is_ascii_digit());
        Some(value.fold(0, |sum: u64, digit| sum.wrapping_mul(10) + u64::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &[u8]) -> Reply<'_> {
        Reply { status: 200, body }
    }

    #[test]
    fn tokens_are_read_in_order() {
        let body =
            br#"{"results":[{"status":201,"body":{"token":17}},{"status":201,"body":{"token":18,"attempt":1}}]}"#;
        assert_eq!(Tokens::of(&reply(body)).collect::<Vec<_>>(), [17, 18]);
    }

    #[test]
    fn one_wrong_result_in_a_batch_is_an_error() {
        let with = |last: &str| {
            let mut results = vec![r#"{"status":201}"#; BATCH - 1];
            results.push(last);
            format!(r#"{{"results":[{}]}}"#, results.join(","))
        };
        assert!(expect_all(&reply(with(r#"{"status":201}"#).as_bytes()), b"201").is_ok());
        assert!(expect_all(&reply(with(r#"{"status":409}"#).as_bytes()), b"201").is_err());
        assert!(expect_all(&reply(with("{}").as_bytes()), b"201").is_err());
    }

    #[test]
    fn templates_are_json_with_every_hole() {
        let mut seals = batch_template(&format!(r#"{{"op":"seal",{}}}"#, seal_fields()));
        for command in 0..BATCH {
            Numbering::new(1).write(command as u64, seals.hole(2 * command));
            seals.fill_number(2 * command + 1, 9);
        }
        let text = String::from_utf8(seals.bytes().to_vec()).unwrap();
        let value: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(value["commands"].as_array().unwrap().len(), BATCH);
        assert_eq!(value["commands"][99]["token"], 9);
    }
}
