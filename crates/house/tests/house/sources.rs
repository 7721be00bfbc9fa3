//! How sources look: every file says what it is, stays one idea, reads plainly, and names nothing of the machine it was
//! written on.

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

#[test]
fn comments_and_functions_begin_with_their_subject() {
    let refused = ["who", "what", "nobody", "whoever", "nothing_that"];
    let is_refused = |sentence: &str| {
        let first = sentence.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap();
        first.starts_with(char::is_uppercase) && refused.contains(&first.to_ascii_lowercase().as_str())
    };
    let folders = ["crates", "examples", "bench", "sdk/python/fencepost", "sdk/python/tests", "sdk/typescript/src"];
    let folders = folders.into_iter().chain(["sdk/typescript/test"]);
    let sources = folders.flat_map(files).filter(|path| [".rs", ".py", ".js"].iter().any(|end| path.ends_with(end)));
    let (mut comments, mut functions) = (0, 0);
    for path in sources {
        for (line, number) in read(&path).lines().zip(1..) {
            if let Some((_, comment)) = ["//", "# ", "/** ", "\"\"\""].iter().find_map(|mark| line.split_once(mark)) {
                comments += 1;
                let bad = comment.trim_start_matches(['/', '!', ' ']).split(". ").any(is_refused);
                assert!(!bad, "{path}:{number}: begin the sentence with its subject, not with who, what or nobody");
            }
            if let Some((_, name)) = ["fn ", "def test_", "test('"].iter().find_map(|mark| line.split_once(mark)) {
                functions += 1;
                let bad =
                    refused.iter().filter_map(|word| name.strip_prefix(word)).any(|rest| rest.starts_with(['_', ' ']));
                assert!(!bad, "{path}:{number}: begin the name with its subject, not with who, what or nobody");
            }
        }
    }
    assert!(comments > 5_000 && functions > 5_000, "only {comments} comments and {functions} functions are found");
}
