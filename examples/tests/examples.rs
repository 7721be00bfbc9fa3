//! The examples do what they say, also when they are killed.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use fencepost_rig::Postgres;

const ROOMS: usize = 60;
const KILLS: usize = 12;
/// Rooms that were booked, and how many bookings have no receipt or receipts no booking.
const APART: &str = "SELECT count(*) FROM (SELECT room FROM bookings) b
    FULL JOIN (SELECT fields->>'room' AS room FROM fencepost_fences WHERE state = 'sealed') f USING (room)
    WHERE b.room IS NULL OR f.room IS NULL";
const TWICE: &str = "SELECT count(*) FROM (SELECT room FROM bookings GROUP BY room HAVING count(*) > 1) twice";

fn book(url: &str) -> Child {
    let rooms = (0..ROOMS).map(|room| room.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_book_in_postgres"));
    command.arg(url).args(rooms).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_booking_and_its_receipt_are_one_wherever_the_process_is_killed() {
    let server = Postgres::start();
    let url = server.fresh_database();
    let mut rng = fastrand::Rng::new();
    for _ in 0..KILLS {
        // Two at once, over the same rooms: they also meet.
        let mut both = [book(&url), book(&url)];
        let wanted = rng.usize(0..8);
        let output = BufReader::new(both[0].stdout.take().unwrap());
        let seen = output.lines().map_while(Result::ok).filter(|line| line.ends_with("is booked")).take(wanted).count();
        thread::sleep(Duration::from_micros(rng.u64(0..4_000)));
        for child in &mut both {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        if seen > 0 {
            assert_eq!((server.sql(&url, APART), server.sql(&url, TWICE)), ("0".to_owned(), "0".to_owned()));
        }
    }
    let last = book(&url).wait_with_output().unwrap();
    assert!(last.status.success());
    assert_eq!(String::from_utf8(last.stdout).unwrap().lines().count(), ROOMS);
    assert_eq!((server.sql(&url, APART), server.sql(&url, TWICE)), ("0".to_owned(), "0".to_owned()));
    assert_eq!(server.sql(&url, "SELECT count(*) FROM bookings"), ROOMS.to_string());
}
