//! Flags that are refused before anything is consumed, and help that teaches.

use super::{
    super::server::{BINARY, command, dev, fencepost, text},
    scene::refused,
};

fn with(args: &[&str]) -> (bool, String) {
    let mut command = command(BINARY);
    command.args(["consume", "--brokers", "127.0.0.1:1", "--group", "g", "--topic", "orders"]).args(args);
    let (ended, said) = refused(command);
    (ended.success(), said)
}

#[test]
fn flags_that_would_break_the_promise_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (to, data) = (["--to", "http://127.0.0.1:1/"], dir.path().join("fences"));
    let data = ["--data", data.to_str().unwrap()];
    for (more, word) in [
        (&["--set", "enable.auto.commit=true"][..], "enable.auto.commit cannot be set"),
        (&["--set", "no.such.setting=1"], "no.such.setting"),
        (&["--dead-letter", "orders"], "which is consumed itself"),
        (&["--topic", "orders.dead"], "which is consumed itself"),
        (&["--config", "/no/such/policy.yml"], "/no/such/policy.yml"),
        (&["--attempts-max", "0"], "--attempts-max"),
    ] {
        let (fine, said) = with(&[&to, &data, more].concat());
        assert!(!fine && said.contains(word), "{more:?}: {said}");
    }
    let (fine, said) = with(&["--to", "https://elsewhere.example/", data[0], data[1]]);
    assert!(!fine && said.contains("is not an http url"), "{said}");
}

#[test]
fn a_directory_that_a_server_has_is_refused_with_a_way_out() {
    let server = dev();
    let data = server.dir.path().join("data");
    let (fine, said) = with(&["--to", "http://127.0.0.1:1/", "--data", data.to_str().unwrap()]);
    assert!(!fine && said.contains("in use by another Fencepost") && said.contains("--store postgres://"), "{said}");
}

#[test]
fn help_says_what_is_promised_and_shows_how() {
    let said = text(&fencepost(["consume", "--help"]).stdout);
    for words in
        ["Promised:", "Not promised:", "Examples:", "Fencepost-Recovering", "--dedupe-header", "leaves the group"]
    {
        assert!(said.contains(words), "{words}:\n{said}");
    }
}
