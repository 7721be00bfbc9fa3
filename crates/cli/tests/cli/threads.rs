//! Which threads serve connections, as the system sees them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rustix::thread::sched_getaffinity;
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
    // Long enough to be answered off the fast path, and one that is not.
    let answer = server.acme().batch(&commands).ok(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.iter().filter(|result| result["status"] == 201).count(), 100);
    server.acme().claim("INDEX_BUILD", &json!({"index_hash": "x"})).token();
}

/// A server whose control group seems to allow it this many microseconds of processor time in each 100,000; none for no limit.
fn limited(quota_us: Option<u64>, dir: &Path) -> Server {
    let groups = dir.join("groups");
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap();
    for membership in memberships.lines() {
        let [_, controllers, group] = membership.splitn(3, ':').collect::<Vec<_>>()[..] else { panic!("{membership}") };
        let group = group.trim_start_matches('/');
        // The second version of control groups has one tree for all controllers, and no name for it.
        let (folder, files) = match controllers.split(',').find(|name| ["", "cpu"].contains(name)) {
            Some("") => {
                let quota = quota_us.map_or("max".to_owned(), |us| us.to_string());
                (groups.join(group), [("cgroup.controllers", "cpu".to_owned()), ("cpu.max", format!("{quota} 100000"))])
            }
            Some(_) => {
                let quota = quota_us.map_or("-1".to_owned(), |us| us.to_string());
                let files = [("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", "100000".to_owned())];
                (groups.join("cpu").join(group), files)
            }
            None => continue,
        };
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }
    let mut unshare = command("unshare");
    unshare.args(["--mount", "sh", "-c", r#"mount --bind "$0" /sys/fs/cgroup && exec "$@""#]).arg(groups).arg(BINARY);
    Serve::under(unshare, &dir.join("data")).arg("--dev").start()
}

#[test]
fn threads_are_bound_one_to_a_processor_unless_a_cpu_limit_is_set() {
    let processors = sched_getaffinity(None).unwrap().count() as usize;
    assert!(processors > 1, "this test needs two processors");
    for (quota_us, wanted) in [(None, processors), (Some(150_000), 0)] {
        let dir = tempfile::tempdir().unwrap();
        let server = limited(quota_us, dir.path());
        works(&server);
        let bound = bound(&server);
        let is_one = |list: &String| list.parse::<usize>().is_ok();
        assert!(bound.len() == wanted && bound.iter().all(is_one), "{quota_us:?}: {bound:?}");
    }
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
