//! A process that is out of file descriptors waits for some, and goes on.
//! The bound holds for a whole process, so the front runs in one of its own: this test binary again.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_front::Limits;

use super::bytes_on_the_wire::{Client, Front, GET, status};

const CHILD: &str = "FENCEPOST_TEST_OUT_OF_FILES";
const IDLE_MS: u64 = 1_000;

#[test]
fn a_process_out_of_files_neither_spins_nor_stops() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if std::env::var_os(CHILD).is_some() {
        return runtime.block_on(async {
            let limits = Limits { head_ms_max: 60_000, idle_ms_max: IDLE_MS, ..Limits::default() };
            let front = Front::start(limits).await;
            println!("\nlistening on {}", front.addr);
            std::future::pending().await
        });
    }
    let exe = std::env::current_exe().unwrap();
    let name = "server::files::a_process_out_of_files_neither_spins_nor_stops";
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" --exact \"$1\" --nocapture", exe.to_str().unwrap(), name])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let addr = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned)).unwrap();
    let judged = std::panic::catch_unwind(|| runtime.block_on(use_up_connections(&addr, child.id())));
    child.kill().unwrap();
    child.wait().unwrap();
    judged.unwrap();
}

async fn use_up_connections(addr: &str, pid: u32) {
    let connect = || {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nonblocking(true).unwrap();
        Client { stream: tokio::net::TcpStream::from_std(stream).unwrap() }
    };
    let mut clock = connect();
    clock.send(GET).await;
    clock.answer().await;
    // The kernel connects them, whether or not the process can accept them.
    let connections: Vec<_> = (0..60).map(|_| connect()).collect();
    let mut last = connect();
    last.send(GET).await;

    let before = processor_time(pid);
    assert_eq!(clock.rest().await, "");
    let spent = processor_time(pid) - before;
    assert!(spent < Duration::from_millis(IDLE_MS / 4), "{spent:?} within a second of waiting");
    assert!(last.stream.try_read(&mut [0]).is_err(), "there were too few connections");

    drop(connections);
    assert_eq!(status(&last.answer().await), 200);
}

/// User and system time of a process, from ticks of a hundredth of a second.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}
