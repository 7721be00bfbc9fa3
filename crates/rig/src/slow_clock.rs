//! Shifts the wall clock of one server: a library between the server and the C library. Called by this crate's servers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, at);
    if (done == 0 && clock == CLOCK_REALTIME) at->tv_sec += SHIFT;
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return done;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// Builds the library in `dir`. Named in `LD_PRELOAD`, it sets a program's wall clock `shift_s` seconds ahead.
pub(crate) fn library(dir: &Path, shift_s: i64) -> PathBuf {
    let (source, library) = (dir.join("clock.c"), dir.join(format!("clock{shift_s}.so")));
    std::fs::write(&source, SOURCE).unwrap();
    let mut build = Command::new("cc");
    build.arg(format!("-DSHIFT=({shift_s}L)")).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
