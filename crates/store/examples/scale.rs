//! Measures the embedded store as it grows: speed at 100 thousand keys and at N, stalls, memory, bytes on disk.
//! Never measures an unsynced store: every batch is one synced commit, as the commit loop makes them.
//! Run: `cargo run --release -p fencepost-store --example scale -- --keys 10000000`

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    fence::{Fence, Receipt, State, Token, scope::OnLapse},
    row::{CommitId, Record},
};
use fencepost_store::{Embedded, Store, Verdict, WriteSet, embedded::Options};
use futures::executor::block_on;

const BATCH: u64 = 256;
const NOW: u64 = 1_767_225_600_000;
const WEEK_MS: u64 = 7 * 24 * 3_600_000;
/// Claims are sealed this many batches later, so that both are under way at once.
const LAG: usize = 4;

struct Arguments {
    keys: u64,
    /// How many keys an earlier run left in the directory.
    filled: u64,
    dir: Option<PathBuf>,
}

fn main() {
    let mut arguments = Arguments { keys: 1_000_000, filled: 0, dir: None };
    let mut flags = std::env::args().skip(1);
    while let Some(flag) = flags.next() {
        let value = flags.next().unwrap_or_default();
        match flag.as_str() {
            "--keys" => arguments.keys = value.parse().expect("--keys takes a number"),
            "--filled" => arguments.filled = value.parse().expect("--filled takes a number"),
            "--dir" => arguments.dir = Some(PathBuf::from(value)),
            _ => panic!("unknown flag {flag}; known are --keys N, --dir DIR and --filled N"),
        }
    }
    let scratch = std::env::temp_dir().join(format!("fencepost-scale-{}", std::process::id()));
    let dir = arguments.dir.clone().unwrap_or_else(|| scratch.join("large"));
    measure(&arguments, &dir, &scratch.join("small"));
    std::fs::remove_dir_all(&scratch).expect("the directory was made by this run");
}

/// A store that is being filled, cycle by cycle: claim, and a little later seal.
struct Filling {
    store: Embedded,
    next: u64,
    waiting: VecDeque<(u64, Vec<RowKey>)>,
    steps: Vec<Duration>,
}

impl Filling {
    fn open(dir: &std::path::Path, filled: u64) -> Self {
        let store = Embedded::open(dir, Options::default()).expect("the store opens");
        Self { store, next: filled.div_ceil(BATCH), waiting: VecDeque::new(), steps: Vec::new() }
    }

    fn keys(&self) -> u64 {
        self.next * BATCH
    }

    fn claim(&mut self) {
        let batch = self.next;
        let keys: Vec<RowKey> = (batch * BATCH..(batch + 1) * BATCH).map(row_key).collect();
        self.steps.push(step(&self.store, &keys, batch * BATCH, 2 * batch + 1, pending));
        self.waiting.push_back((batch, keys));
        self.next += 1;
    }

    fn seal(&mut self, lag: usize) {
        while self.waiting.len() > lag {
            let (batch, keys) = self.waiting.pop_front().expect("it is not empty");
            self.steps.push(step(&self.store, &keys, batch * BATCH, 2 * batch + 2, sealed));
        }
    }

    /// Fills until there are `keys`, all sealed; says how long that took.
    fn fill(&mut self, keys: u64) -> Duration {
        let begun = Instant::now();
        while self.keys() < keys {
            self.claim();
            self.seal(LAG);
        }
        self.seal(0);
        begun.elapsed()
    }
}

fn measure(arguments: &Arguments, dir: &std::path::Path, small: &std::path::Path) {
    let mut large = Filling::open(dir, arguments.filled);
    let mut rss_max = 0;
    let begun = Instant::now();
    while large.keys() < arguments.keys {
        large.fill((large.keys() + 50_000).min(arguments.keys));
        rss_max = rss_max.max(rss_bytes());
    }
    println!("keys                       {}", large.keys());
    if arguments.filled < arguments.keys {
        println!("cycles/s while filling     {:.0}", arguments.keys as f64 / begun.elapsed().as_secs_f64());
    }
    side_by_side(&mut large, small);
    percentiles(&mut large.steps);
    println!("RSS while writing, max     {} MiB", rss_max.max(rss_bytes()) >> 20);
    let (store, keys) = (&large.store, large.keys());
    println!("disk/key before compaction {:.0} bytes", bytes_per_key(store, keys));
    let begun = Instant::now();
    store.compact().expect("the store compacts");
    println!("compaction                 {:.1} s", begun.elapsed().as_secs_f64());
    println!("disk/key after compaction  {:.0} bytes", bytes_per_key(store, keys));
    read(store, keys);
    println!("RSS at the end             {} MiB", rss_bytes() >> 20);
}

/// Fills a fresh store to 100 thousand keys in turns with the large one, so that whatever else the machine does
/// meets both alike.
fn side_by_side(large: &mut Filling, dir: &std::path::Path) {
    let mut small = Filling::open(dir, 0);
    let (mut small_took, mut large_took) = (Duration::ZERO, Duration::ZERO);
    let begun_at = large.keys();
    while small.keys() < 100_000 {
        small_took += small.fill(small.keys() + 40 * BATCH);
        large_took += large.fill(large.keys() + 40 * BATCH);
    }
    let rate = |keys: u64, took: Duration| keys as f64 / took.as_secs_f64();
    let (small, large) = (rate(small.keys(), small_took), rate(large.keys() - begun_at, large_took));
    println!("cycles/s up to 100k keys   {small:.0}");
    println!("cycles/s beyond {begun_at:<10} {large:.0}  ({:.2} of that)", large / small);
}

fn percentiles(steps: &mut [Duration]) {
    steps.sort();
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)] {
        let at = ((steps.len() - 1) as f64 * part) as usize;
        println!("load and commit {BATCH}, {name:<5}  {:.2} ms", steps[at].as_secs_f64() * 1e3);
    }
    println!("of {:<8} over 100 ms   {}", steps.len(), steps.iter().filter(|took| took.as_millis() > 100).count());
}

fn read(store: &Embedded, keys: u64) {
    let count = keys.min(200_000);
    for (name, offset) in [("present", 0), ("absent", keys + BATCH)] {
        let begun = Instant::now();
        for step in 0..count {
            // A stride that is odd and large visits keys all over the store, each once.
            let index = offset + step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
            let found = store.peek(&row_key(index)).expect("the embedded store always answers").expect("the row reads");
            assert_eq!(found.is_some(), offset == 0);
        }
        println!("peeks/s, {name:<17} {:.0}", count as f64 / begun.elapsed().as_secs_f64());
    }
}

fn step(store: &Embedded, keys: &[RowKey], first: u64, id: u64, record: fn(u64) -> Record) -> Duration {
    let begun = Instant::now();
    let rows = block_on(store.load(keys)).expect("the rows load");
    let sets: Vec<WriteSet> = keys
        .iter()
        .zip(rows)
        .enumerate()
        .map(|(at, (key, row))| {
            WriteSet::new(
                CommitId(id * BATCH + at as u64),
                vec![Write { key: *key, expect: row.map(|row| row.revision), put: Some(record(first + at as u64)) }],
            )
        })
        .collect();
    let verdicts = block_on(store.commit(&sets, Millis(NOW + id))).expect("the commit goes through");
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Applied));
    begun.elapsed()
}

fn row_key(index: u64) -> RowKey {
    RowKey { kind: fencepost_kernel::key::Kind::Fence, id: scatter(index) }
}

/// 32 bytes that look as random as a digest, from a counter.
fn scatter(index: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut state = index;
    for chunk in bytes.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    bytes
}

fn fence(index: u64, state: State) -> Record {
    let first_seen = NOW + index / 50;
    Record::from(Fence {
        tenant: Tenant::new("nexa"),
        scope: "BOOKING".into(),
        fields: vec![("booking_id".to_owned(), format!("B-{index:010}")), ("leg".to_owned(), "1".to_owned())].into(),
        seq: None,
        first_seen: Millis(first_seen),
        token: Token(first_seen),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    })
}

fn pending(index: u64) -> Record {
    let lease_expires = Millis(NOW + index / 50 + 30_000);
    let forget_at = Some(lease_expires.plus(WEEK_MS));
    fence(
        index,
        State::Pending { lease_expires, on_lapse: OnLapse::Recover, forget_at, doubted_at: None, held_by: None },
    )
}

fn sealed(index: u64) -> Record {
    let at = Millis(NOW + index / 50 + 7);
    // 40 bytes that do not repeat from one receipt to the next: the hard case for compression.
    let mut body = scatter(!index).to_vec();
    body.extend_from_slice(&index.to_le_bytes());
    let receipt = Receipt { effect_id: format!("E-{index:010}"), body: body.into() };
    fence(index, State::Sealed { receipt, at, expires: at.plus(WEEK_MS) })
}

fn bytes_per_key(store: &Embedded, keys: u64) -> f64 {
    store.disk_bytes().expect("the directory is readable") as f64 / keys as f64
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
