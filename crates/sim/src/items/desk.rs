//! One node's way to take items: each partner's requests, and the background work that follows arrivals up.
//! Never repeats a request by itself: the partner does. Made by `nodes`, called by the partners.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use fencepost::{
    engine::{Engine, Error},
    ingest::{Ingest, IngestRequest, IngestSignals, items::read_items},
};
use fencepost_kernel::{
    Reply, Tenant,
    fence::{self, State, body::Body},
    item::{self, Change, ChangeVerdict, ItemId, QuarantineId, Retirement, Submit},
    json::{self, Value},
    key::Kind,
};
use tokio::time::{sleep, timeout};

use super::{Items, PARTNERS, RELEASES_BY_ITSELF, Request, left};
use crate::{
    clock::Clocks,
    history::items::{ItemAnswer, ItemAsk, ItemVerdict, SentItem, VerdictLine, read_lines, tag_of, write_line},
    hold::Gate,
    plant::Plant,
    recorder::Recorder,
};

/// So many accepted versions are read of an item at most: more than one ever has.
const HISTORY_MAX: usize = 10_000;

/// The items of one node.
#[derive(Clone)]
pub(crate) struct Desk {
    ingests: [Ingest; PARTNERS.len()],
    signals: Arc<IngestSignals>,
    plant: Option<Plant>,
}

impl Desk {
    pub(crate) fn new(items: &Items, engine: &Engine, plant: Option<Plant>) -> Option<Self> {
        let signals = Arc::<IngestSignals>::default();
        let ingest = |partner: usize| Ingest::new(engine.clone(), items.rules[partner].clone(), signals.clone());
        engine.keeps(Kind::Item).then(|| Self { ingests: [ingest(0), ingest(1)], signals: signals.clone(), plant })
    }

    /// Follows arrivals up for as long as the node lives, now and then late.
    pub(crate) async fn follow_up(
        self,
        items: Arc<Items>,
        clocks: Arc<Clocks>,
        recorder: Arc<Recorder>,
        gate: Arc<Gate>,
        node: usize,
    ) {
        let mut rng = fastrand::Rng::with_seed(node as u64);
        while !items.over.load(Ordering::Relaxed) {
            let rest = Duration::from_millis(rng.u64(1..=items.rest_ms_max));
            if rng.bool() {
                sleep(rest).await;
            } else {
                let _ = timeout(rest, self.signals.arrival()).await;
            }
            gate.opened().await;
            let began_ms = clocks.elapsed_ms();
            match self.ingests[RELEASES_BY_ITSELF].follow_up().await {
                Ok(0) => {}
                Ok(followed) => {
                    recorder.count("arrival_followed_up", format_args!("{followed} at node {node}"));
                    if items.followed_at_once(node, began_ms, clocks.elapsed_ms()) {
                        recorder.tally("arrival_followed_up_by_two");
                    }
                }
                Err(error) => recorder.count("follow_up_failed", error),
            }
        }
    }

    /// Asks the node.
    pub(super) async fn ask(&self, request: &Request) -> Result<ItemAnswer, Error> {
        let (ingest, tenant) = (&self.ingests[request.partner], Tenant::new(PARTNERS[request.partner]));
        let (collection, changes) = match &request.ask {
            ItemAsk::Send(items) | ItemAsk::Try(items) => self.changes(ingest, &tenant, items),
            ItemAsk::Delete { name } => {
                let (collection, source_id) = parts(name);
                let item = ItemId::new(&tenant, collection, source_id);
                let cause = Retirement::Deleted;
                (collection, vec![Change::Retire { item, source_id: source_id.to_owned(), cause }])
            }
            ItemAsk::Release { name, number, foreign } => {
                let (collection, source_id) = parts(name);
                let owner = if *foreign { Tenant::new(PARTNERS[1 - request.partner]) } else { tenant.clone() };
                let quarantine = QuarantineId { item: ItemId::new(&owner, collection, source_id), number: *number };
                (collection, ingest.release_of(&tenant, quarantine).await?.into_iter().collect())
            }
            ItemAsk::Read { name } => {
                let (collection, source_id) = parts(name);
                let page = ingest.history(ItemId::new(&tenant, collection, source_id), None, HISTORY_MAX).await?;
                return Ok(ItemAnswer::Shown(page.map(|page| left::shown(&page))));
            }
        };
        let asked = IngestRequest {
            tenant,
            by: PARTNERS[request.partner].into(),
            correlation_id: request.id.as_str().into(),
            compared: Body::opaque(format!("{:?}", request.ask).as_bytes()),
            trace: None,
            answer,
        };
        let reply = match request.ask {
            // As the wire does: a repeat gets its answer, also where the stay is not known any more.
            ItemAsk::Release { .. } if changes.is_empty() => match ingest.reply_to_known(&asked).await? {
                Some(reply) => reply,
                None => return Ok(ItemAnswer::Refused("unknown_quarantine")),
            },
            ItemAsk::Try(_) if self.plant != Some(Plant::TrialWrites) => {
                ingest.preview(&asked, &collection.into(), changes).await?
            }
            _ => ingest.submit(&asked, &collection.into(), changes).await?,
        };
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let told = |replay, bytes: &Bytes| match request.ask {
            ItemAsk::Try(_) => ItemAnswer::Tried(read_lines(&text(bytes))),
            _ => ItemAnswer::Told { replay, text: text(bytes) },
        };
        Ok(match &reply {
            Reply::Item(item::Reply::Submitted { answer, .. }) => told(false, answer),
            Reply::Fence(fence::Reply::Duplicate { fence, .. }) => match &fence.state {
                State::Sealed { receipt, .. } => told(true, &receipt.body),
                State::Pending { .. } | State::Released { .. } => ItemAnswer::Refused("no receipt"),
            },
            Reply::Fence(fence::Reply::Conflict(_)) => ItemAnswer::Conflict,
            other => ItemAnswer::Refused(other.decision()),
        })
    }

    fn changes<'i>(&self, ingest: &Ingest, tenant: &Tenant, items: &'i [SentItem]) -> (&'i str, Vec<Change>) {
        let collection = items.first().map_or("uoms", |item| parts(&item.name).0);
        let contents: Vec<&str> = items.iter().map(|item| item.content.as_str()).collect();
        let whole = Bytes::from(format!(r#"{{"items":[{}]}}"#, contents.join(",")));
        let node = json::parse(&whole).ok();
        let list = match node.as_ref().and_then(|node| node.get("items")).map(|list| &list.value) {
            Some(Value::Array(list)) => list.as_slice(),
            _ => &[],
        };
        let known = ingest.rules().collections.get(collection);
        let mut changes = known.map(|known| read_items(known, tenant, list, &whole)).unwrap_or_default();
        // A planted bug: versions are read and not compared.
        if self.plant == Some(Plant::OlderOverwrites) {
            for change in &mut changes {
                if let Change::Put(put) = change {
                    put.version = None;
                }
            }
        }
        (collection, changes)
    }
}

fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

fn answer(submit: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    let lines = submit.changes.iter().zip(verdicts).map(|(change, verdict)| write_line(&line(submit, change, verdict)));
    let lines: Vec<String> = std::iter::once(submit.correlation_id.to_string()).chain(lines).collect();
    lines.join("\n").into()
}

fn line(submit: &Submit, change: &Change, verdict: &ChangeVerdict) -> VerdictLine {
    let (collection, content) = match change {
        Change::Put(put) | Change::Release { put, .. } => (&put.collection, Some(&put.content)),
        Change::Refuse { .. } | Change::Retire { .. } => (&submit.collection, None),
    };
    let verdict = match verdict {
        ChangeVerdict::Accepted { .. } => ItemVerdict::Accepted,
        ChangeVerdict::Replay { differs, .. } => ItemVerdict::Replay { differs: *differs },
        ChangeVerdict::Quarantined { quarantine, unresolved } | ChangeVerdict::Resent { quarantine, unresolved } => {
            ItemVerdict::Quarantined {
                number: quarantine.number,
                missing: unresolved.iter().map(left::missing).collect(),
            }
        }
        ChangeVerdict::Rejected(_) => ItemVerdict::Rejected,
        ChangeVerdict::Retired { replay, withdrawn, .. } => {
            ItemVerdict::Retired { replay: *replay, withdrawn: *withdrawn }
        }
        ChangeVerdict::AlreadyResolved { .. } => ItemVerdict::AlreadyResolved,
    };
    let name = format!("{collection}/{}", change.source_id().unwrap_or_default());
    VerdictLine { name, tag: content.and_then(|content| tag_of(&String::from_utf8_lossy(content))), verdict }
}
