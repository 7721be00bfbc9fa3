//! The items of one world: its partners, what they sent, and each node's way to take it. In a third of all worlds.
//! Never decides about an item: the engine does. Drawn by `world`; `nodes` makes a desk for each node.

mod desk;
mod left;
mod partner;

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use fencepost::{
    ingest::IngestRules,
    policy::{Policy, ingest::IngestSettings},
};

pub(crate) use self::{desk::Desk, partner::partner};
use crate::{
    history::items::{ItemAsk, SentItem, SentVersion, VersionForm},
    recorder::Recorder,
};

/// The partners. Items of the first are released by themselves.
pub(crate) const PARTNERS: [&str; 2] = ["acme", "zeta"];
/// Which of them that is.
const RELEASES_BY_ITSELF: usize = 0;
/// Each collection with its source ids. Those after the first refer to those before, and the last to itself.
const COLLECTIONS: [(&str, &[&str]); 4] = [
    ("uoms", &["EA", "KG"]),
    ("skus", &["s0", "s1", "s2"]),
    ("boms", &["b0", "b1"]),
    ("locations", &["l0", "l1", "l2"]),
];
/// So many contents are made before versions rise by one.
const CONTENTS_A_VERSION: u64 = 12;

/// The items of one world, and what was sent.
pub(crate) struct Items {
    rules: [IngestRules; PARTNERS.len()],
    sent: Mutex<Sent>,
    /// How long a node rests between two looks at most.
    rest_ms_max: u64,
    over: AtomicBool,
}

#[derive(Default)]
struct Sent {
    requests: Vec<Request>,
    /// Stays in quarantine that partners were told of.
    stays: Vec<(usize, String, u64)>,
    contents: u64,
    /// The follow-ups that found something: the node, and from when to when.
    follow_ups: Vec<(usize, u64, u64)>,
}

/// A partner's request; its partner may send it several times.
#[derive(Clone)]
struct Request {
    partner: usize,
    id: String,
    ask: ItemAsk,
}

impl Items {
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Option<Self> {
        let quarantine_retain_ms = [3_000, 60_000, 30 * 24 * 3_600_000][rng.usize(0..3)];
        let rules = builtin()?;
        let with = |auto_release| {
            let settings = IngestSettings { auto_release, quarantine_retain_ms, ..rules.settings };
            IngestRules { settings, ..rules.clone() }
        };
        let rest_ms_max = [300, 2_000, 6_000][rng.usize(0..3)];
        let rules = [0, 1].map(|partner| with(partner == RELEASES_BY_ITSELF));
        Some(Self { rules, sent: Mutex::default(), rest_ms_max, over: AtomicBool::new(false) })
    }

    /// Says whose items are released by themselves.
    pub(crate) fn announce(&self, recorder: &Recorder) {
        recorder.releases_by_itself(PARTNERS[RELEASES_BY_ITSELF]);
        recorder.tally("world_with_items");
    }

    /// Nodes look for arrivals no more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh_id(&self, partner: usize, ask: ItemAsk) -> Request {
        let mut sent = self.sent();
        // Both partners count from one: they use the same ids.
        let own = sent.requests.iter().filter(|request| request.partner == partner).count();
        let request = Request { partner, id: format!("r{own}"), ask };
        sent.requests.push(request.clone());
        request
    }

    // Items of one collection, the same one twice now and then.
    fn some_items(&self, rng: &mut fastrand::Rng) -> Vec<SentItem> {
        let (collection, ids) = COLLECTIONS[[0, 0, 1, 1, 1, 2, 2, 3, 3][rng.usize(0..9)]];
        let some = |rng: &mut fastrand::Rng| format!("{collection}/{}", ids[rng.usize(0..ids.len())]);
        (0..[1, 1, 2, 3][rng.usize(0..4)])
            .map(|_| {
                let name = some(rng);
                self.item_of(rng, &name)
            })
            .collect()
    }

    fn item_of(&self, rng: &mut fastrand::Rng, name: &str) -> SentItem {
        let (collection, source_id) = name.split_once('/').unwrap_or((name, ""));
        let tag = {
            let mut sent = self.sent();
            sent.contents += 1;
            sent.contents
        };
        let form = match (collection == "locations", rng.u8(0..40)) {
            (true, 1..) | (false, 0) => VersionForm::Dotted,
            _ => VersionForm::Number,
        };
        let rank = tag / CONTENTS_A_VERSION + rng.u64(0..5);
        let version = (rng.u8(0..6) > 0).then_some(SentVersion { form, rank });
        let malformed = rng.u8(0..30) == 0;
        let mut refs = match collection {
            "skus" => vec![some_name(rng, 0)],
            "boms" => vec![some_name(rng, 1), some_name(rng, 1)],
            "locations" if rng.u8(0..3) > 0 => vec![some_name(rng, 3)],
            _ => Vec::new(),
        };
        if malformed {
            refs.clear();
        }
        let content = content(collection, source_id, version, tag, &refs, malformed);
        refs.dedup();
        // An item that refers to itself is rejected like one that does not fit its schema.
        let malformed = malformed || refs.iter().any(|other| other == name);
        SentItem { name: name.to_owned(), version, tag, content, refs, malformed }
    }

    /// A follow-up found something; whether another node's did at the same time.
    fn followed_at_once(&self, node: usize, began_ms: u64, ended_ms: u64) -> bool {
        let mut sent = self.sent();
        let meets = |(other, from, to): &(usize, u64, u64)| *other != node && *from <= ended_ms && began_ms <= *to;
        let met = sent.follow_ups.iter().any(meets);
        sent.follow_ups.push((node, began_ms, ended_ms));
        met
    }
}

// Read once: schemas are compiled with it.
fn builtin() -> Option<IngestRules> {
    static RULES: OnceLock<Option<IngestRules>> = OnceLock::new();
    RULES.get_or_init(|| IngestRules::of(&Policy::builtin())).clone()
}

fn some_name(rng: &mut fastrand::Rng, collection: usize) -> String {
    let (name, ids) = COLLECTIONS[collection];
    format!("{name}/{}", ids[rng.usize(0..ids.len())])
}

/// Every name that an item of this world may have.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    COLLECTIONS.into_iter().flat_map(|(collection, ids)| ids.iter().map(move |id| (collection, *id)))
}

fn content(
    collection: &str,
    source_id: &str,
    version: Option<SentVersion>,
    tag: u64,
    refs: &[String],
    malformed: bool,
) -> String {
    let version = match version {
        None => String::new(),
        Some(version @ SentVersion { form: VersionForm::Number, .. }) => format!(r#""source_version":{version},"#),
        Some(version @ SentVersion { form: VersionForm::Dotted, .. }) => format!(r#""source_version":"{version}","#),
    };
    let id = |name: &String| name.split('/').nth(1).unwrap_or_default().to_owned();
    let rest = match (collection, refs) {
        _ if malformed => format!(r##""note":"#{tag}#""##),
        ("skus", [uom]) => format!(r##""name":"#{tag}#","base_uom":"{}""##, id(uom)),
        ("boms", [parent, part]) => {
            format!(
                r##""name":"#{tag}#","parent_sku":"{}","components":[{{"sku":"{}","qty":1}}]"##,
                id(parent),
                id(part)
            )
        }
        ("locations", [parent]) => format!(r##""name":"#{tag}#","kind":"BIN","parent":"{}""##, id(parent)),
        ("locations", _) => format!(r##""name":"#{tag}#","kind":"WAREHOUSE""##),
        _ => format!(r##""name":"#{tag}#""##),
    };
    format!(r#"{{"source_id":"{source_id}",{version}{rest}}}"#)
}
