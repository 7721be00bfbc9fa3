//! A restart, in order or by kill -9, loses nothing, and what is owed goes out at once.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    super::server::{Serve, Server},
    planner::Planner,
    receiver::{Receiver, Say},
};

/// Less than the gap before a second attempt: an attempt that comes sooner did not wait for its turn.
const AT_ONCE: Duration = Duration::from_millis(4_500);
const LANES: usize = 4;
const EACH: usize = 6;

// A backlog on some lanes, whose receiver has been killed.
fn owing(data: &Path, receiver: &mut Receiver) -> Server {
    let server = Serve::dev(data).start();
    let mut planner = Planner::of(&server);
    for lane in 0..LANES {
        planner.pushed(&format!("WH-{lane}"), receiver);
    }
    receiver.kill();
    for n in 0..EACH {
        for lane in 0..LANES {
            planner.release(&format!("{lane}-{n}"), &format!("WH-{lane}"));
        }
    }
    for lane in 0..LANES {
        planner.lane_where(&format!("WH-{lane}"), "its head failed", |lane| lane["state"] == "retrying");
    }
    server
}

fn all_came(receiver: &Receiver, started: Instant, how: &str) {
    let came = receiver.until(LANES * EACH);
    for lane in 0..LANES {
        let name = format!("fgai-wms:WH-{lane}");
        let own: Vec<String> = came.iter().filter(|one| one.lane() == name).map(|one| one.id()).collect();
        let sent: Vec<String> = (0..EACH).map(|n| format!("{lane}-{n}")).collect();
        assert_eq!(own, sent);
    }
    let took = came[LANES * EACH - 1].at - started;
    eprintln!("restart: after {how}, {} events of {LANES} lanes came within {took:?}", LANES * EACH);
    assert!(took < AT_ONCE, "they waited for their turn: {took:?}");
}

#[test]
fn after_sigterm_everything_owed_goes_out_at_once_and_in_order() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let server = owing(dir.path(), &mut receiver);
    server.signal(Signal::TERM);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    receiver.restart();
    let started = Instant::now();
    let _server = Serve::dev(dir.path()).start();
    all_came(&receiver, started, "SIGTERM");
}

#[test]
fn after_kill_9_everything_owed_goes_out_at_once_and_in_order() {
    let (dir, mut receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    owing(dir.path(), &mut receiver).kill();
    receiver.restart();
    let started = Instant::now();
    let _server = Serve::dev(dir.path()).start();
    all_came(&receiver, started, "kill -9");
}

#[test]
fn an_event_under_way_at_a_kill_comes_again_as_the_same_event() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let server = Serve::dev(dir.path()).start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Hold);
    planner.release("a", "WH-1");
    receiver.until(1);
    server.kill();
    receiver.say(Say::Status(200));
    let server = Serve::dev(dir.path()).start();
    let came = receiver.until(2);
    assert_eq!((came[0].id(), came[0].seq(), &came[0].body), (came[1].id(), came[1].seq(), &came[1].body));
    Planner::of(&server).drained("WH-1");
}

#[test]
fn sigterm_lets_a_delivery_that_is_under_way_end_and_remembers_it() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let server = Serve::dev(dir.path()).start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    receiver.say(Say::Hold);
    planner.release("a", "WH-1");
    planner.release("b", "WH-1");
    receiver.until(1);
    server.signal(Signal::TERM);
    let address = server.address;
    super::super::server::until("new connections are refused", || {
        std::net::TcpStream::connect(address).is_err().then_some(())
    });
    receiver.release();
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(receiver.count(), 1, "nothing new leaves");
    let server = Serve::dev(dir.path()).start();
    Planner::of(&server).drained("WH-1");
    let came: Vec<String> = receiver.heard().iter().map(|one| one.id()).collect();
    assert_eq!(came, ["a", "b"], "what was acknowledged is not sent again");
}

#[test]
fn a_lane_that_is_stopped_stays_stopped_over_a_restart() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let server = Serve::dev(dir.path()).start();
    let mut planner = Planner::of(&server);
    planner.pushed("WH-1", &receiver);
    planner.pushed("WH-2", &receiver);
    receiver.say(Say::Status(410));
    planner.release("a", "WH-1");
    planner.lane_where("WH-1", "the lane is stopped", |lane| lane["state"] == "paused");
    server.kill();
    receiver.say(Say::Status(200));
    let server = Serve::dev(dir.path()).start();
    let mut planner = Planner::of(&server);
    planner.release("b", "WH-2");
    planner.drained("WH-2");
    assert_eq!(planner.lane("WH-1")["state"], "paused");
    assert_eq!(receiver.count(), 2);
    planner.act("WH-1", "resume", serde_json::json!({})).ok(200);
    assert_eq!(receiver.nth(3).id(), "a");
}
