//! Tests that the examples do what they say, also when they are killed.

#![allow(clippy::unwrap_used)]

mod examples {
    mod documents;
    mod nexa;
}

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use fencepost_rig::PostgresServer;

const ROOMS: usize = 60;
const KILLS: usize = 12;
/// Rooms with a booking and no receipt, or with a receipt and no booking.
const APART: &str = "SELECT count(*) FROM (SELECT room FROM bookings) b
    FULL JOIN (SELECT fields->>'room' AS room FROM fencepost_fences WHERE state = 'sealed') f USING (room)
    WHERE b.room IS NULL OR f.room IS NULL";
const TWICE: &str = "SELECT count(*) FROM (SELECT room FROM bookings GROUP BY room HAVING count(*) > 1) twice";

/// Released shippers without an event, and events of shippers that were not released.
const UNTOLD: &str = "SELECT count(*) FROM (SELECT 'release-' || shipper AS id FROM released) r
    FULL JOIN (SELECT about->>'correlation_id' AS id FROM fencepost_rows WHERE kind = 9) e USING (id)
    WHERE r.id IS NULL OR e.id IS NULL";
/// Whether the lane has as many entries as its last position says: no gap and no entry twice.
const WHOLE: &str = "SELECT coalesce(max((about->>'seq')::bigint), 0) = count(*) FROM fencepost_rows WHERE kind = 9";

fn start(program: &str, url: &str, prefix: &str) -> Child {
    let things = (0..ROOMS).map(|thing| format!("{prefix}{thing}"));
    Command::new(program).arg(url).args(things).stdout(Stdio::piped()).spawn().unwrap()
}

fn book(url: &str) -> Child {
    start(env!("CARGO_BIN_EXE_book_in_postgres"), url, "")
}

fn release(url: &str) -> Child {
    start(env!("CARGO_BIN_EXE_release_in_postgres"), url, "SH-")
}

// Runs two processes over the same things and kills both half-way; returns how many were seen done.
fn killed(starting: fn(&str) -> Child, url: &str, done: &str, rng: &mut fastrand::Rng) -> usize {
    let mut both = [starting(url), starting(url)];
    let wanted = rng.usize(0..8);
    let output = BufReader::new(both[0].stdout.take().unwrap());
    let seen = output.lines().map_while(Result::ok).filter(|line| line.contains(done)).take(wanted).count();
    thread::sleep(Duration::from_micros(rng.u64(0..4_000)));
    for child in &mut both {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    seen
}

#[test]
fn a_booking_and_its_receipt_are_one_wherever_the_process_is_killed() {
    let server = PostgresServer::start();
    let url = server.fresh_database();
    let mut rng = fastrand::Rng::new();
    for _ in 0..KILLS {
        if killed(book, &url, "is booked", &mut rng) > 0 {
            assert_eq!((server.sql(&url, APART), server.sql(&url, TWICE)), ("0".to_owned(), "0".to_owned()));
        }
    }
    let last = book(&url).wait_with_output().unwrap();
    assert!(last.status.success());
    assert_eq!(String::from_utf8(last.stdout).unwrap().lines().count(), ROOMS);
    assert_eq!((server.sql(&url, APART), server.sql(&url, TWICE)), ("0".to_owned(), "0".to_owned()));
    assert_eq!(server.sql(&url, "SELECT count(*) FROM bookings"), ROOMS.to_string());
}

#[test]
fn a_row_and_the_event_that_tells_of_it_are_one_wherever_the_process_is_killed() {
    let server = PostgresServer::start();
    let url = server.fresh_database();
    let mut rng = fastrand::Rng::new();
    for _ in 0..KILLS {
        if killed(release, &url, "is released", &mut rng) > 0 {
            assert_eq!((server.sql(&url, UNTOLD), server.sql(&url, WHOLE)), ("0".to_owned(), "t".to_owned()));
        }
    }
    let last = release(&url).wait_with_output().unwrap();
    assert!(last.status.success());
    assert_eq!(String::from_utf8(last.stdout).unwrap().lines().count(), ROOMS);
    assert_eq!((server.sql(&url, UNTOLD), server.sql(&url, WHOLE)), ("0".to_owned(), "t".to_owned()));
    assert_eq!(server.sql(&url, "SELECT count(*) FROM released"), ROOMS.to_string());
}
