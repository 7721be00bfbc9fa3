//! Every error code has its page, and every page its code.

use std::collections::BTreeMap;

use fencepost_wire::problem::Code;

use super::repo::{files, read};

/// Every code that a client can see, with its status: the server's table, and what the library's layer answers by itself.
fn codes() -> BTreeMap<String, u16> {
    let mut codes: BTreeMap<String, u16> = Code::ALL
        .iter()
        .map(|code| {
            let (status, name, _) = code.parts();
            (name.to_owned(), status)
        })
        .collect();
    let layer = read("crates/fencepost/src/layer.rs");
    let mut own = 0;
    for call in layer.split("problem(").skip(1) {
        let mut parts = call.split(',').map(str::trim);
        let status = parts.next().and_then(|status| status.parse().ok());
        let name = parts.next().and_then(|name| name.strip_prefix('"')?.strip_suffix('"'));
        if let (Some(status), Some(name)) = (status, name) {
            codes.entry(name.to_owned()).or_insert(status);
            own += 1;
        }
    }
    assert!(own > 5, "the layer's codes are not found any more");
    codes
}

#[test]
fn every_code_has_a_page_that_names_its_status() {
    for (code, status) in codes() {
        let page = read(&format!("docs/errors/{code}.md"));
        assert!(page.starts_with(&format!("# {code}\n")), "docs/errors/{code}.md does not open with its code");
        assert!(page.contains(&format!("Status {status}")), "docs/errors/{code}.md does not say `Status {status}`");
        for part in ["## Why", "## What to do", "## Example"] {
            assert!(page.contains(part), "docs/errors/{code}.md has no part {part:?}");
        }
    }
}

#[test]
fn every_page_has_a_code_and_a_line_in_the_index() {
    let (codes, index) = (codes(), read("docs/errors/README.md"));
    let pages = files("docs/errors");
    let names = pages.iter().map(|path| path.trim_start_matches("docs/errors/").trim_end_matches(".md"));
    let names: Vec<&str> = names.filter(|name| *name != "README").collect();
    let idle: Vec<&&str> = names.iter().filter(|name| !codes.contains_key(**name)).collect();
    assert!(idle.is_empty(), "pages about codes that nothing answers: {idle:?}");
    let unlisted: Vec<&&str> = names.iter().filter(|name| !index.contains(&format!("]({name}.md)"))).collect();
    assert!(unlisted.is_empty(), "docs/errors/README.md does not link {unlisted:?}");
}

/// Where the outcome is unknown, a retry may have the effect a second time: no page may say that it never does harm.
#[test]
fn no_page_promises_that_a_retry_after_an_unknown_outcome_is_harmless() {
    let index = read("docs/errors/README.md");
    for code in ["upstream-failed", "upstream-timeout", "effect-failed"] {
        let row = index.lines().find(|line| line.starts_with(&format!("| [{code}]"))).unwrap();
        let helps = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert!(helps.starts_with("perhaps") && helps.contains("again"), "{row}");
    }
    assert!(index.contains("the effect may have happened") && !index.contains("never does harm"));
}

/// An example that names a title, detail or member of an earlier release misleads who programs against it.
#[test]
fn every_example_has_the_title_of_its_code_and_members_that_the_contract_names() {
    let contract: serde_json::Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let known = contract["components"]["schemas"]["Problem"]["properties"].as_object().unwrap();
    for code in Code::ALL {
        let (_, name, title) = code.parts();
        let page = read(&format!("docs/errors/{name}.md"));
        let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
        let example: serde_json::Value = serde_json::from_str(example).unwrap_or_else(|bad| panic!("{name}: {bad}"));
        assert_eq!((&example["code"], &example["title"]), (&name.into(), &title.into()), "docs/errors/{name}.md");
        let strange: Vec<_> =
            example.as_object().unwrap().keys().filter(|member| !known.contains_key(*member)).collect();
        assert!(strange.is_empty(), "docs/errors/{name}.md shows {strange:?}");
    }
}
