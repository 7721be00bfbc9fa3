//! The clients of `crates/client` and `sdk/`, each against the real binary, by one list of behaviours.
//! `stage` is what they all play on; a missing python3 or node is a failure, never a skip.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::server::{command, text};
use stage::Stage;

mod rust;
mod rust_gateway;
mod stage;
mod tls;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").join(name)
}

/// Runs a program's own tests in its folder, with a stage of their own, and shows what they said if they fail.
fn passes(program: &str, args: &[&str], language: &str, environment: &[(&str, &OsStr)]) {
    let stage = Stage::new();
    let output = command(program)
        .args(args)
        .current_dir(folder(language))
        .env("HOME", stage.dir.path())
        .env("FENCEPOST_URL", stage.url())
        .env("FENCEPOST_ROAD", stage.road_url())
        .envs(environment.iter().copied())
        .output()
        .unwrap_or_else(|error| panic!("{program} does not start: {error}; ./test --install brings it"));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    // A runner that finds no test ends well, too.
    let ran = ["Ran 0 tests", "tests 0\n"].iter().all(|nothing| !said.contains(nothing));
    assert!(ran, "no test ran:\n{said}");
}

#[test]
fn the_python_client_keeps_its_promises() {
    let nowhere = std::env::temp_dir();
    let environment = [("PYTHONDONTWRITEBYTECODE", OsStr::new("1")), ("PYTHONPYCACHEPREFIX", nowhere.as_os_str())];
    passes("python3", &["-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", "."], "python", &environment);
}

#[test]
fn the_typescript_client_keeps_its_promises() {
    passes("node", &["--test", "test/index.test.js"], "typescript", &[]);
}

#[test]
fn the_types_of_the_typescript_client_are_what_users_write() {
    // Node is needed to run anything; the compiler only for this, and it is no package of Debian's.
    if command("tsc").arg("--version").output().is_err() {
        println!("NOT CHECKED: there is no tsc here (npm install --global typescript)");
        return;
    }
    let output = command("tsc").args(["-p", "."]).current_dir(folder("typescript")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
}
