//! A machine whose clock was never set: refused with a sentence. The clock is a library between the binary and the system's.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::server::{BINARY, Serve, command, text};

const BEFORE_1970: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, at);
    if (done == 0 && clock == CLOCK_REALTIME) at->tv_sec = -10L * 366 * 24 * 3600;
    return done;
}
"#;

fn preloaded() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
    fs::write(&source, BEFORE_1970).unwrap();
    let built = command("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    (dir, library)
}

#[test]
fn a_clock_before_1970_is_refused_with_a_sentence_by_every_command() {
    let (dir, library) = preloaded();
    let (data, library) = (dir.path().join("data"), library.to_str().unwrap());
    let (status, said) = Serve::dev(&data).env("LD_PRELOAD", library).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("clock is before 1970, by 10 years") && !said.contains("panicked"), "{said}");
    assert!(!data.exists(), "nothing was made");
    for args in [&["credential", "create", "acme", "--role", "partner"][..], &["credential", "list"], &["doctor"]] {
        let output = command(BINARY).args(args).arg("--data").arg(&data).env("LD_PRELOAD", library).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("before 1970") && !said.contains("panicked"), "{args:?}: {said}");
    }
}
