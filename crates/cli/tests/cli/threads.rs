//! Which threads serve connections, as the system sees them.

use std::{collections::BTreeSet, fs, path::PathBuf, thread::available_parallelism};

use serde_json::json;

use super::server::{BINARY, Serve, Server, command};

fn processors_of(status: &str) -> String {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

// Where each of the threads that serve connections may run.
fn bound(server: &Server) -> BTreeSet<String> {
    let tasks = format!("/proc/{}/task", server.pid().as_raw_pid());
    let tasks = fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let serves = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm")).unwrap();
        name.trim().strip_prefix("fencepost-").is_some_and(|rest| rest.parse::<usize>().is_ok())
    };
    tasks.filter(serves).map(|task| processors_of(&fs::read_to_string(task.join("status")).unwrap())).collect()
}

fn works(server: &Server) {
    let commands: Vec<_> = (0..100)
        .map(|n| json!({"op": "claim", "scope": "INDEX_BUILD", "key": {"index_hash": format!("{n:064}")}}))
        .collect();
    // Long enough to be answered aside, and one that is not.
    let answer = server.acme().batch(&commands).ok(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.iter().filter(|result| result["status"] == 201).count(), 100);
    server.acme().claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
}

#[test]
fn threads_are_bound_one_to_a_processor_unless_a_cpu_limit_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    works(&server);
    let bound = bound(&server);
    let alone = |processors: &String| processors.parse::<usize>().is_ok();
    let all = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    let whole = all > 1 && available_parallelism().unwrap().get() == all;
    assert!(bound.len() == if whole { all } else { 0 } && bound.iter().all(alone), "{bound:?}");
}

#[test]
fn nothing_is_bound_where_that_is_not_wanted_or_there_is_one_processor() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Serve::dev(dir.path()).env("FENCEPOST_SERVER__THREADS", "shared").start();
    works(&shared);
    assert_eq!(bound(&shared), BTreeSet::new());
    shared.kill();

    let dir = tempfile::tempdir().unwrap();
    let first = processors_of(&fs::read_to_string("/proc/self/status").unwrap());
    let first = first.split([',', '-']).next().unwrap().to_owned();
    let mut taskset = command("taskset");
    taskset.args(["-c", &first, BINARY]);
    let one = Serve::under(taskset, dir.path()).arg("--dev").start();
    works(&one);
    assert_eq!(bound(&one), BTreeSet::new());
}
