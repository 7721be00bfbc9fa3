//! Where the time of one request goes: the steps that the server takes, one after the other on one thread, each timed.
//! Never leaves a step out: rows are read and committed in an embedded store, with its sync.
//! Called by `ingest`.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use axum::body::Bytes;
use fencepost::Fencepost;
use fencepost::ingest::{IngestRequest, IngestRules, SCOPE, items::read_items};
use fencepost::kernel::fence::{ClaimFence, Source, Target, body::Body};
use fencepost::kernel::item::{self, Submit, Verdict};
use fencepost::kernel::json::{self, JsonNode};
use fencepost::kernel::law::{follow, footprint};
use fencepost::kernel::row::CommitId;
use fencepost::kernel::{Command, Millis, Reply, Row, RowKey, Rows, Tenant, decide};
use fencepost::policy::{Policy, collections::Collection};
use fencepost::store::{Embedded, Store, WriteSet, embedded};

use super::items::{document, uoms};
use crate::http::KEY_HOLE;
use crate::keys::{KEY_LEN, Numbering};
use crate::stats::median;
use crate::stop;

/// The least number of requests that the medians are made of.
const REQUESTS_MIN: usize = 5;
const TENANT: &str = "dev-partner";

/// A step, and the part of the work that its time is counted to.
pub struct Step {
    pub part: &'static str,
    pub name: &'static str,
    /// Median over the requests, in microseconds.
    pub us: f64,
}

/// The time of one request.
pub struct Shares {
    pub steps: Vec<Step>,
    /// Median of a whole request through the library, with its commit thread, in microseconds.
    pub library_us: f64,
    /// So many requests were measured.
    pub requests: usize,
}

/// Measures requests with new items for `length`.
pub fn measure(dir: &Path, per_request: usize, length: Duration) -> Result<Shares> {
    std::fs::create_dir_all(dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut steps = StepByStep::open(&dir.join("steps"))?;
        steps.request("uoms", &uoms()).await?;
        steps.times.clear();
        let library = Fencepost::open(dir.join("library")).await.map_err(|error| anyhow!("{error}"))?;
        through_library(&library, "uoms", 0, &Bytes::from(uoms())).await?;
        let mut whole = Vec::new();
        let end = Instant::now() + length;
        while whole.len() < REQUESTS_MIN || Instant::now() < end {
            stop::check()?;
            let number = whole.len() as u64 + 1;
            let text = filled(per_request, number);
            steps.request("skus", &text).await?;
            let body = Bytes::from(text);
            let began = Instant::now();
            through_library(&library, "skus", number, &body).await?;
            whole.push(us(began));
        }
        library.close().await;
        let all = ORDER.iter().map(|&(part, name)| {
            let times = steps.times.get(name).with_context(|| format!("nothing measured for {name}"))?;
            Ok(Step { part, name, us: median(times) })
        });
        Ok(Shares { steps: all.collect::<Result<_>>()?, library_us: median(&whole), requests: whole.len() })
    })
}

/// The steps in their order, each with its part.
const ORDER: [(&str, &str); 9] = [
    ("JSON", "parse the body"),
    ("JSON", "its canonical form and digest"),
    ("JSON", "items to changes, but for the schema"),
    ("schema", "each item by its schema"),
    ("read", "rows of the items and the reference"),
    ("decision", "decide"),
    ("JSON", "write the answer"),
    ("commit", "commit, with its sync"),
    ("free", "free what the request made"),
];

struct StepByStep {
    rules: IngestRules,
    store: Embedded,
    times: BTreeMap<&'static str, Vec<f64>>,
    next: u64,
}

impl StepByStep {
    fn open(dir: &Path) -> Result<StepByStep> {
        let rules = IngestRules::of(&Policy::builtin()).context("the built-in policy has no ingest")?;
        let store = Embedded::open(dir, embedded::Options::default()).map_err(|error| anyhow!("{error}"))?;
        Ok(StepByStep { rules, store, times: BTreeMap::new(), next: 0 })
    }

    fn note(&mut self, name: &'static str, began: Instant) {
        self.times.entry(name).or_default().push(us(began));
    }

    async fn request(&mut self, collection: &str, text: &str) -> Result<()> {
        self.next += 1;
        let collection = self.rules.collections.get(collection).context("no such collection")?.clone();
        let tenant = Tenant::new(TENANT);
        let body = Bytes::from(text.to_owned());
        let schema_us = schema_us(&collection, text)?;

        let began = Instant::now();
        let node = json::parse(&body).map_err(|error| anyhow!("{error}"))?;
        self.note("parse the body", began);

        let began = Instant::now();
        let compared = compared(&node, &self.rules, &collection);
        self.note("its canonical form and digest", began);

        let began = Instant::now();
        let changes = read_items(&collection, &tenant, list(&node)?, &body);
        self.times.entry("items to changes, but for the schema").or_default().push(us(began) - schema_us);
        self.times.entry("each item by its schema").or_default().push(schema_us);

        let count = changes.len();
        let correlation_id: Arc<str> = format!("request-{}", self.next).into();
        let fields = vec![("correlation_id".to_owned(), correlation_id.to_string())];
        let target = Target::new(tenant.clone(), self.rules.scope.clone(), fields, None);
        let target = target.map_err(|_| anyhow!("the scope {SCOPE} has other fields"))?;
        let source = Some(Source { kind: "ingest".to_owned(), id: collection.name.to_string() });
        let claim = ClaimFence { target, body: Some(compared), version: None, source, lease_ms: 1, trace: None };
        let command = Command::from(item::Command::Submit(Box::new(Submit {
            tenant,
            claim: Some(claim.into()),
            by: TENANT.into(),
            correlation_id,
            collection: collection.name.clone(),
            changes,
            auto_release: self.rules.settings.auto_release,
            quarantine_retain_ms: self.rules.settings.quarantine_retain_ms,
            answer,
        })));

        let began = Instant::now();
        let rows = self.read(&command).await?;
        self.note("rows of the items and the reference", began);

        let began = Instant::now();
        let decision = decide(&command, &rows, now());
        let decided_us = us(began);

        let Reply::Item(item::Reply::Submitted { verdicts, .. }) = &decision.reply else {
            bail!("a new request was answered with {}", decision.reply.decision())
        };
        let accepted = verdicts.iter().filter(|verdict| verdict.status() == "ACCEPTED").count();
        ensure!(accepted == count, "{accepted} of {count} new items were accepted");
        let Command::Item(item::Command::Submit(submit)) = &command else { bail!("another command") };
        let began = Instant::now();
        drop(answer(submit, verdicts));
        let answer_us = us(began);
        self.times.entry("write the answer").or_default().push(answer_us);
        self.times.entry("decide").or_default().push(decided_us - answer_us);

        let set = WriteSet { id: CommitId(self.next), writes: decision.writes, also: decision.also };
        let sets = [set];
        let began = Instant::now();
        let verdicts = self.store.commit(&sets, now()).await.map_err(|error| anyhow!("{error}"))?;
        self.note("commit, with its sync", began);
        ensure!(verdicts.iter().all(|verdict| verdict.applied()), "a commit without rivals was refused");

        let began = Instant::now();
        drop((sets, rows, decision.reply, command, node));
        self.note("free what the request made", began);
        Ok(())
    }

    async fn read(&self, command: &Command) -> Result<Loaded> {
        let mut rows = Loaded::default();
        let mut keys = Vec::new();
        footprint(command, &mut |key| keys.push(key));
        loop {
            keys.retain(|key| !rows.0.contains_key(key));
            if keys.is_empty() {
                return Ok(rows);
            }
            keys.sort_unstable();
            keys.dedup();
            let found = self.store.load(&keys).await.map_err(|error| anyhow!("{error}"))?;
            rows.0.extend(keys.drain(..).zip(found));
            follow(command, &rows, &mut |key| keys.push(key));
        }
    }
}

// The same request through the library, as the server asks it.
async fn through_library(library: &Fencepost, collection: &str, number: u64, body: &Bytes) -> Result<()> {
    let ingest = library.ingest().context("this store keeps no items")?;
    let rules = ingest.rules();
    let collection = rules.collections.get(collection).context("no such collection")?;
    let node = json::parse(body).map_err(|error| anyhow!("{error}"))?;
    let tenant = Tenant::new(TENANT);
    let request = IngestRequest {
        tenant: tenant.clone(),
        by: TENANT.into(),
        correlation_id: format!("request-{number}").into(),
        compared: compared(&node, rules, collection),
        trace: None,
        answer,
    };
    let changes = read_items(collection, &tenant, list(&node)?, body);
    match ingest.submit(&request, &collection.name, changes).await.map_err(|error| anyhow!("{error}"))? {
        Reply::Item(item::Reply::Submitted { .. }) => Ok(()),
        other => bail!("a new request was answered with {}", other.decision()),
    }
}

fn compared(node: &JsonNode<'_>, rules: &IngestRules, collection: &Collection) -> Body {
    let place = format!("/wms-ingest/v1/master/{}?mode=upsert", collection.name);
    Body::json(node, &rules.scope.mask).asked_of("POST", &place)
}

fn list<'n, 'a>(node: &'n JsonNode<'a>) -> Result<&'n [JsonNode<'a>]> {
    match node.get("items").map(|items| &items.value) {
        Some(json::Value::Array(items)) => Ok(items),
        _ => bail!("a document without items"),
    }
}

// The schema alone, over trees that are made before.
fn schema_us(collection: &Collection, text: &str) -> Result<f64> {
    let mut document: serde_json::Value = serde_json::from_str(text)?;
    let items = document["items"].as_array_mut().context("a document without items")?;
    let began = Instant::now();
    let faults: usize = items.iter().map(|item| collection.faults(item, 1).len()).sum();
    let took = us(began);
    ensure!(faults == 0, "an item does not fit its schema");
    Ok(took)
}

fn filled(per_request: usize, number: u64) -> String {
    let mut text = document(per_request);
    let places: Vec<usize> = text.match_indices(KEY_HOLE).map(|(at, _)| at).collect();
    for (item, at) in places.into_iter().enumerate() {
        let mut key = [0; KEY_LEN];
        Numbering::new(number).write(item as u64, &mut key);
        text.replace_range(at..at + KEY_LEN, &String::from_utf8_lossy(&key));
    }
    text
}

// As long as the server's answer, and made in as many pieces.
fn answer(submit: &Submit, verdicts: &[Verdict]) -> Bytes {
    let results: Vec<Vec<u8>> = submit
        .changes
        .iter()
        .zip(verdicts)
        .map(|(change, verdict)| {
            let mut result = br#"{"source_id":"#.to_vec();
            json::write_string(&mut result, change.source_id().unwrap_or_default());
            result.extend_from_slice(br#","status":"#);
            json::write_string(&mut result, verdict.status());
            if let Verdict::Accepted { item, .. } = verdict {
                result.extend_from_slice(br#","internal_id":"#);
                json::write_string(&mut result, &item.internal());
            }
            result.push(b'}');
            result
        })
        .collect();
    let mut answer = br#"{"results":["#.to_vec();
    answer.extend_from_slice(&results.join(&b','));
    answer.extend_from_slice(b"]}");
    answer.into()
}

fn us(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

fn now() -> Millis {
    Millis(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64))
}

/// Rows that were read, and those that were not there.
#[derive(Default)]
struct Loaded(HashMap<RowKey, Option<Arc<Row>>, BuildHasherDefault<Quick>>);

impl Rows for Loaded {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.0.get(key).and_then(Option::as_deref)
    }
}

/// A hash about as quick as the engine's: the standard one would count as a part of the decision.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        // The table takes the highest bits and the lowest ones.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_a_request_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let shares = measure(dir.path(), 3, Duration::ZERO).unwrap();
        assert_eq!((shares.requests, shares.steps.len()), (REQUESTS_MIN, ORDER.len()));
        assert!(shares.library_us > 0.0);
    }
}
