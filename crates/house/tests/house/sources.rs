//! How sources look: every file says what it is, stays one idea, and names nothing of the machine it was written on.

use std::fs;

use super::repo::{files, read, root};

/// Past this a file is two ideas.
const LINES_MAX: usize = 600;

fn sources() -> Vec<String> {
    let all = files("crates").into_iter().chain(files("bench"));
    all.filter(|path| path.contains("/src/") && path.ends_with(".rs")).collect()
}

#[test]
fn every_source_file_opens_with_what_it_is_and_is_one_idea() {
    assert!(sources().len() > 50, "the sources are not found any more");
    for path in sources() {
        let text = read(&path);
        assert!(text.starts_with("//!"), "{path} does not open with a line of `//!`");
        let lines = text.lines().count();
        assert!(lines < LINES_MAX, "{path} has {lines} lines: it is two ideas");
    }
}

#[test]
fn no_name_says_nothing() {
    for path in files("") {
        for part in path.split('/') {
            let stem = part.split('.').next().unwrap();
            let empty = ["utils", "util", "helpers", "helper", "common", "manager", "misc"].contains(&stem);
            assert!(!empty, "{path}: {stem} does not say what is in it");
        }
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    // In pieces, so that this file does not name them either.
    let forbidden = [["../", "shared"], ["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|parts| parts.concat());
    for path in files("") {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for word in &forbidden {
            assert!(!text.contains(word.as_str()), "{path} names {word}");
        }
    }
}
