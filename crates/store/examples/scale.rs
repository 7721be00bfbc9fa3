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
    command::CommitId,
    fence::{Fence, Receipt, Record, State, Token},
    scope::OnLapse,
};
use fencepost_store::{Embedded, Store, Verdict, WriteSet, embedded::Options};
use futures::executor::block_on;

const BATCH: u64 = 256;
const NOW: u64 = 1_767_225_600_000;
const WEEK_MS: u64 = 7 * 24 * 3_600_000;
/// Claims are sealed this many batches later, so that both are under way at once.
const LAG: usize = 4;

fn main() {
    let mut keys = 1_000_000u64;
    let mut dir = None;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().unwrap_or_default();
        match flag.as_str() {
            "--keys" => keys = value.parse().expect("--keys takes a number"),
            "--dir" => dir = Some(PathBuf::from(value)),
            _ => panic!("unknown flag {flag}; known are --keys N and --dir DIR"),
        }
    }
    let own = dir.is_none();
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join(format!("fencepost-scale-{}", std::process::id())));
    measure(&dir, keys);
    if own {
        std::fs::remove_dir_all(&dir).expect("the directory was made by this run");
    }
}

fn measure(dir: &std::path::Path, keys: u64) {
    let store = Embedded::open(dir, Options::default()).expect("the store opens");
    let window = (keys / 10).clamp(BATCH, 500_000).min(100_000.max(keys / 20));
    let mut commits = Vec::new();
    let mut waiting: VecDeque<(u64, Vec<RowKey>)> = VecDeque::new();
    let mut marks = vec![(0u64, Instant::now())];
    let mut rss_max = 0;
    for batch in 0..keys.div_ceil(BATCH) {
        let claimed: Vec<RowKey> = (batch * BATCH..(batch + 1) * BATCH).map(row_key).collect();
        commits.push(step(&store, &claimed, batch * BATCH, 2 * batch + 1, pending));
        waiting.push_back((batch, claimed));
        if waiting.len() > LAG {
            let (earlier, rows) = waiting.pop_front().expect("it was just filled");
            commits.push(step(&store, &rows, earlier * BATCH, 2 * earlier + 2, sealed));
        }
        if batch % 64 == 0 {
            marks.push(((batch + 1) * BATCH, Instant::now()));
            rss_max = rss_max.max(rss_bytes());
        }
    }
    for (batch, rows) in waiting {
        commits.push(step(&store, &rows, batch * BATCH, 2 * batch + 2, sealed));
    }
    marks.push((keys, Instant::now()));
    let whole = marks[marks.len() - 1].1 - marks[0].1;
    println!("keys                       {keys}");
    println!("cycles/s, first 100k       {:.0}", rate(&marks, 0, 100_000));
    println!("cycles/s, last {window:<11} {:.0}", rate(&marks, keys - window, keys));
    println!("cycles/s, whole run        {:.0}", keys as f64 / whole.as_secs_f64());
    commits.sort();
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)] {
        let at = ((commits.len() - 1) as f64 * part) as usize;
        println!("commit of {BATCH}, {name:<6}       {:.2} ms", commits[at].as_secs_f64() * 1e3);
    }
    println!(
        "commits over 100 ms        {}",
        commits.iter().filter(|took| **took > Duration::from_millis(100)).count()
    );
    println!("RSS while writing, max     {} MiB", rss_max >> 20);
    println!("disk/key before compaction {:.0} bytes", bytes_per_key(&store, keys));
    let begun = Instant::now();
    store.compact().expect("the store compacts");
    println!("compaction                 {:.1} s", begun.elapsed().as_secs_f64());
    println!("disk/key after compaction  {:.0} bytes", bytes_per_key(&store, keys));
    read(&store, keys);
    println!("RSS at the end             {} MiB", rss_bytes() >> 20);
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
        .map(|(at, (key, row))| WriteSet {
            id: CommitId(id * BATCH + at as u64),
            writes: vec![Write {
                key: *key,
                expect: row.map(|row| row.revision),
                put: Some(record(first + at as u64)),
            }],
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
    Record::Fence(Fence {
        tenant: Tenant::new("nexa"),
        scope: "BOOKING".to_owned(),
        fields: vec![("booking_id".to_owned(), format!("B-{index:010}")), ("leg".to_owned(), "1".to_owned())],
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
    fence(index, State::Pending { lease_expires, on_lapse: OnLapse::Recover, forget_at })
}

fn sealed(index: u64) -> Record {
    let at = Millis(NOW + index / 50 + 7);
    // 40 bytes that do not repeat from one receipt to the next: the hard case for compression.
    let mut body = scatter(!index).to_vec();
    body.extend_from_slice(&index.to_le_bytes());
    let receipt = Receipt { effect_id: format!("E-{index:010}"), body: body.into() };
    fence(index, State::Sealed { receipt, at, expires: at.plus(WEEK_MS) })
}

fn rate(marks: &[(u64, Instant)], from: u64, to: u64) -> f64 {
    let begin = marks.iter().rev().find(|(keys, _)| *keys <= from).unwrap_or(&marks[0]);
    let end = marks.iter().find(|(keys, _)| *keys >= to).unwrap_or(&marks[marks.len() - 1]);
    (end.0 - begin.0) as f64 / (end.1 - begin.1).as_secs_f64()
}

fn bytes_per_key(store: &Embedded, keys: u64) -> f64 {
    store.disk_bytes().expect("the directory is readable") as f64 / keys as f64
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
