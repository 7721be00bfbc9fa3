//! Answers too large to keep: sealed first, passed through in bounded memory, told by their digest.

use std::io::BufRead;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use super::super::client::Answer;
use super::{
    World,
    caller::{Ask, post, read, read_head},
    replayed, until,
    upstream::{Say, block},
};

const KEPT_MAX: u64 = 64 << 10;
const POLICY: &str = r#"
gateway: { answer_bytes_max: 64KiB }
scopes:
  REPORT: { key: [id], retain: 1h, lease: 2s }
routes:
  - { match: "POST /reports", upstream: "UPSTREAM", scope: REPORT, key: { id: "header:Idempotency-Key" } }
"#;

fn report(key: &str) -> Ask {
    post("/reports").key(key).json("{}")
}

/// The digest of what the upstream streams.
fn digest(count: u64) -> String {
    let (block, mut hash, mut left) = (block(), Sha256::new(), count);
    while left > 0 {
        let part = left.min(block.len() as u64);
        hash.update(&block[..part as usize]);
        left -= part;
    }
    format!("sha-256=:{}:", BASE64_STANDARD.encode(hash.finalize()))
}

fn omitted(answer: &Answer) -> bool {
    let marks = (answer.header("fencepost-body"), answer.body.is_empty(), replayed(answer));
    marks == (Some("omitted"), true, true)
}

/// A replay as soon as it has its digest.
fn with_digest(world: &World, asked: &Ask) -> Answer {
    until("there is a digest", || Some(world.send(asked)).filter(|answer| answer.header("repr-digest").is_some()))
}

#[test]
fn an_answer_over_the_limit_passes_once_and_is_told_by_its_digest() {
    let world = World::new(POLICY);
    for (key, size) in [("one-over", KEPT_MAX + 1), ("many", 1_000_000)] {
        world.upstream.say(Say::Stream(size));
        let calls = world.upstream.count();
        let first = world.send(&report(key));
        assert_eq!((first.status, first.body.len() as u64, replayed(&first)), (200, size, false));
        assert!(first.header("idempotency-expires").is_some());
        let second = with_digest(&world, &report(key));
        assert!(omitted(&second) && second.status == 200, "{:?}", second.headers);
        assert_eq!(second.header("repr-digest"), Some(digest(size).as_str()));
        assert_eq!(second.header("content-type"), Some("application/octet-stream"));
        assert_eq!(second.header("idempotency-expires"), first.header("idempotency-expires"));
        assert_eq!(world.upstream.count(), calls + 1);
    }
    let world = world.killed();
    assert_eq!(world.send(&report("many")).header("repr-digest"), Some(digest(1_000_000).as_str()));
    world.upstream.say(Say::Stream(KEPT_MAX));
    assert_eq!(world.send(&report("just")).body.len() as u64, KEPT_MAX);
    let second = world.send(&report("just"));
    assert_eq!((second.body.len() as u64, second.header("fencepost-body"), replayed(&second)), (KEPT_MAX, None, true));
}

#[test]
fn it_is_sealed_before_its_first_byte_leaves_and_its_client_may_go() {
    let world = World::new(POLICY);
    let size = 64 << 20;
    world.upstream.say(Say::Stream(size));
    // No client reads the body: it is still under way.
    let mut slow = report("k").begin(world.address());
    assert_eq!(read_head(&mut slow).unwrap().status, 200);
    let meanwhile = world.send(&report("k"));
    assert!(omitted(&meanwhile), "{:?}", meanwhile.headers);
    assert_eq!(meanwhile.header("repr-digest"), None, "it is not known yet");
    drop(slow);
    assert_eq!(with_digest(&world, &report("k")).header("repr-digest"), Some(digest(size).as_str()));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn an_answer_that_breaks_off_past_the_limit_does_not_run_again() {
    let world = World::new(POLICY);
    let mut half = b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n".to_vec();
    half.extend_from_slice(&vec![7; 200_000]);
    world.upstream.say(Say::Last(half));
    assert!(read(&mut report("k").begin(world.address())).is_err(), "half an answer never looks whole");
    let second = world.send(&report("k"));
    assert!(omitted(&second) && second.header("repr-digest").is_none());
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_digest_is_never_that_of_the_keys_life_before() {
    let world = World::new(&POLICY.replace("retain: 1h", "retain: 2s"));
    world.upstream.say(Say::Stream(64 << 20));
    let mut slow = report("k").begin(world.address());
    let begun = std::time::Instant::now();
    read_head(&mut slow).unwrap();
    // Its digest is made a second after its seal, and so stays for a second longer.
    until("a second has passed", || (begun.elapsed().as_millis() > 1_000).then_some(()));
    drop(slow);
    with_digest(&world, &report("k"));
    world.upstream.say(Say::Stream(100_000));
    let next = until("the first is forgotten", || Some(world.send(&report("k"))).filter(|answer| !replayed(answer)));
    assert_eq!(next.body.len(), 100_000);
    assert_eq!(with_digest(&world, &report("k")).header("repr-digest"), Some(digest(100_000).as_str()));
    assert_eq!(world.upstream.count(), 2);
}

fn resident_kib(world: &World, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.server.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_huge_answer_passes_in_bounded_memory() {
    let size: u64 = 1 << 30;
    let world = World::new(POLICY);
    world.send(&report("warm"));
    world.upstream.say(Say::Stream(size));
    let before = resident_kib(&world, "VmRSS:");
    for (what, asked) in [("fenced", report("k")), ("passing", super::caller::ask("GET", "/reports"))] {
        let mut stream = asked.begin(world.address());
        assert_eq!(read_head(&mut stream).unwrap().status, 200);
        let mut left = size;
        while left > 0 {
            let got = stream.fill_buf().unwrap().len();
            assert!(got > 0, "{what}: {left} bytes never came");
            stream.consume(got.min(left as usize));
            left -= got.min(left as usize) as u64;
        }
        let grown = resident_kib(&world, "VmHWM:").saturating_sub(before);
        eprintln!("{what}: {} MiB passed, {} MiB more in memory", size >> 20, grown >> 10);
        assert!(grown < 64 << 10, "{what}: {grown} KiB more in memory");
    }
    assert!(omitted(&world.send(&report("k"))));
}
