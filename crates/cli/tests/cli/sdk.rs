//! The clients of `crates/client` and `sdk/`, each against the real binary, by one list of behaviours: the Rust client's tests.
//! `stage` is what they all play on; a missing python3 or node is a failure, never a skip.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use fencepost_rig::openapi::node_tool;

use super::server::{command, text};
use stage::Stage;

mod rust;
mod rust_gateway;
mod rust_mistakes;
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

/// Letters and digits alone: a name is a function in two languages and a sentence in the third.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The texts between two marks, wherever they come.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split_once(end)).map(|(name, _)| name).collect()
}

#[test]
fn a_behaviour_of_the_rust_client_is_tested_in_the_other_languages_too() {
    let read = |paths: &[PathBuf]| paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>();
    let files =
        |language: &str, names: &[&str]| names.iter().map(|name| folder(language).join(name)).collect::<Vec<_>>();
    let python = read(&files("python", &["tests/test_fences.py", "tests/test_mistakes.py", "tests/test_gateway.py"]));
    let typescript = read(&files("typescript", &["test/fences.js", "test/mistakes.js", "test/gateway.js"]));
    let rust = [include_str!("sdk/rust.rs"), include_str!("sdk/rust_mistakes.rs"), include_str!("sdk/rust_gateway.rs")];
    let known = [
        ("Python", between(&python, "    def test_", "(")),
        ("TypeScript", [between(&typescript, "\ntest('", "',"), between(&typescript, "\ntest(\"", "\",")].concat()),
    ];
    let behaviours = rust.iter().flat_map(|file| {
        between(file, "\")]\nasync fn ", "(").into_iter().chain(between(file, "test]\nasync fn ", "("))
    });
    let mut count = 0;
    for behaviour in behaviours {
        count += 1;
        for (language, names) in &known {
            let there = names.iter().any(|name| plain(name) == plain(behaviour));
            assert!(there, "{language} has no test of: {behaviour}");
        }
    }
    assert!(count >= 25, "only {count} behaviours are found");
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
    let output = command(node_tool("tsc")).args(["-p", "."]).current_dir(folder("typescript")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
}
