//! Several nodes on one PostgreSQL: the list of nodes, and the row format they share through a rolling upgrade.

use std::{collections::BTreeSet, time::Duration};

use fencepost_kernel::{Millis, fence::scope::OnLapse};
use fencepost_store::{Error, Store, Verdict::Applied, WriteSet, address::Opener, codec};
use fencepost_testkit::until_within;
use futures::executor::block_on;

use super::postgres_rig::{DAY_MS, NOW, Rig, opener, pending, put, sealed, set};

/// Long enough for several heartbeats of the nodes.
const BEATS: Duration = Duration::from_secs(20);

fn until(what: &str, done: impl FnMut() -> bool) {
    until_within(BEATS, what, done);
}

fn claim(number: u64) -> [WriteSet; 1] {
    [set(number, [put(number, None, sealed(number, u64::MAX))])]
}

fn older(node: &str) -> Opener {
    Opener { format_max: Some(codec::VERSION - 1), ..opener(node) }
}

/// The newest format that an older node reads, as the database shows it.
fn old_format() -> String {
    (codec::VERSION - 1).to_string()
}

#[test]
fn nodes_see_one_another_and_what_each_of_them_holds() {
    let rig = Rig::new();
    let (one, url) = rig.fresh("one");
    let other = rig.open(&url, "other");
    let visitor = rig.try_open(&url, &Opener { address: String::new(), ..opener("visitor") }).unwrap();
    let held = |number| set(number, [put(number, None, pending(number, NOW * 2, OnLapse::Hold))]);
    block_on(one.commit(&[held(1), held(2), claim(3)[0].clone()], Millis(NOW))).unwrap();
    block_on(other.commit(&[held(4)], Millis(NOW))).unwrap();
    block_on(visitor.commit(&claim(5), Millis(NOW))).unwrap();
    let nodes = block_on(visitor.nodes()).unwrap();
    let told: Vec<_> = nodes.iter().map(|node| (node.id.as_str(), node.address.as_str(), node.holds)).collect();
    assert_eq!(told, [("one", "one:80", Some(2)), ("other", "other:80", Some(1))]);
    assert_eq!(nodes[0].format, codec::VERSION);
    let seen = nodes[0].seen;
    until("a second sign of life", || block_on(one.nodes()).unwrap()[0].seen > seen);
    rig.server.sql(&url, "UPDATE fencepost_fences SET node = 'one', revision = 77 WHERE revision = 4");
    assert_eq!(block_on(one.nodes()).unwrap()[0].holds, Some(3));

    // One that is gone is forgotten in time; its time floor is not.
    drop(other);
    let floor = block_on(one.time_floor()).unwrap();
    until("the other's row is still there", || {
        rig.server.sql(&url, "UPDATE fencepost_nodes SET seen = seen - interval '90 seconds' WHERE id = 'other'");
        block_on(one.nodes()).unwrap().len() == 1
    });
    assert!(block_on(one.time_floor()).unwrap() >= floor);
}

// A rolling upgrade: while a node of the older release lives, everybody writes what it reads.
#[test]
fn a_newer_row_format_is_written_only_once_every_node_reads_it() {
    let rig = Rig::new();
    let url = rig.server.fresh_database();
    let old = rig.try_open(&url, &older("old")).unwrap();
    let new = rig.open(&url, "new");
    let formats = || rig.server.sql(&url, "SELECT DISTINCT get_byte(record, 0) FROM fencepost_fences ORDER BY 1");
    let agreed = || rig.server.sql(&url, "SELECT format FROM fencepost_meta");
    block_on(old.commit(&claim(1), Millis(NOW))).unwrap();
    block_on(new.commit(&claim(2), Millis(NOW))).unwrap();
    // Both have spoken again since, and nothing has changed.
    let seen = || rig.server.sql(&url, "SELECT min(seen - started) > interval '2 seconds' FROM fencepost_nodes");
    until("both nodes have beaten", || seen() == "t");
    assert_eq!((formats(), agreed()), (old_format(), old_format()));
    assert_eq!(block_on(old.load(&[super::postgres_rig::key(2)])).unwrap()[0].as_ref().unwrap().revision.0, 2);

    drop(old);
    rig.server.sql(&url, "UPDATE fencepost_nodes SET seen = seen - interval '31 seconds' WHERE id = 'old'");
    let newest = codec::VERSION.to_string();
    until("the format is raised", || agreed() == newest);
    let mut number = 10;
    until("the new node writes it", || {
        number += 1;
        block_on(new.commit(&claim(number), Millis(NOW))).unwrap() == [Applied]
            && formats() == format!("{}\n{newest}", old_format())
    });
    let refused = rig.try_open(&url, &older("old")).map(drop);
    assert!(
        matches!(&refused, Err(Error::Broken(why)) if why.contains(&format!("row format {newest}"))),
        "{refused:?}"
    );
    assert_eq!(agreed(), newest);
}

// The database's clock is set forward by a minute in a rolling upgrade: every row of a node is then as old as that.
#[test]
fn forward_step_of_the_clock_raises_no_format_past_a_living_older_node() {
    let rig = Rig::new();
    let url = rig.server.fresh_database();
    let old = rig.try_open(&url, &older("old")).unwrap();
    let _new = rig.open(&url, "new");
    let agreed = || rig.server.sql(&url, "SELECT format FROM fencepost_meta");
    let mut looks = BTreeSet::new();
    until("the newer node finds it silent three times", || {
        rig.server.sql(&url, "UPDATE fencepost_nodes SET seen = seen - interval '60 seconds' WHERE id = 'old'");
        looks.insert(rig.server.sql(&url, "SELECT seen FROM fencepost_nodes WHERE id = 'new'"));
        looks.len() > 3
    });
    // One that starts then does not, either.
    rig.server.sql(&url, "UPDATE fencepost_nodes SET seen = seen - interval '60 seconds' WHERE id = 'old'");
    let _third = rig.open(&url, "third");
    assert_eq!(agreed(), old_format());
    assert_eq!(block_on(old.commit(&claim(1), Millis(NOW))).unwrap(), [Applied]);
}

#[test]
fn a_node_that_was_silent_while_the_others_went_on_stops_serving() {
    let rig = Rig::new();
    let url = rig.server.fresh_database();
    let old = rig.try_open(&url, &older("old")).unwrap();
    block_on(old.commit(&claim(1), Millis(NOW))).unwrap();
    rig.server.sql(&url, &format!("UPDATE fencepost_meta SET format = {}", codec::VERSION));
    until("the node stops", || matches!(block_on(old.commit(&[], Millis(NOW))), Err(Error::Broken(_))));
    assert!(matches!(block_on(old.load(&[super::postgres_rig::key(1)])), Err(Error::Broken(_))));
}

#[test]
fn a_node_that_is_long_gone_leaves_its_time_to_the_others() {
    let rig = Rig::new();
    let (one, url) = rig.fresh("one");
    // Far past the database's own clock, so that only this commit can have brought it.
    let ahead = Millis(one.now().unwrap().0 + DAY_MS);
    block_on(one.commit(&claim(1), ahead)).unwrap();
    drop(one);
    rig.server.sql(&url, "UPDATE fencepost_nodes SET seen = seen - interval '2 days'");
    let other = rig.open(&url, "other");
    until("the row is pruned", || rig.server.sql(&url, "SELECT count(*) FROM fencepost_nodes") == "1");
    assert!(block_on(other.time_floor()).unwrap() >= ahead);
}
