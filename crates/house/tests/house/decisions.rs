//! Every decision is in the index and names only code that exists, and every dependency has its reason.

use std::collections::BTreeSet;

use super::{
    layers::packages,
    repo::{files, quoted, read},
};

/// Names in decisions that belong to other programs and libraries, or to what was not taken.
const FOREIGN: [&str; 11] = [
    "MarkedYaml",
    "SEEK_HOLE",
    "SeqNo",
    "SuperVersions",
    "WriteBatch",
    "arbitrary_precision",
    "bytes_1",
    "pg_dump",
    "sched_yield",
    "serde_yaml",
    "serde_yml",
];

#[test]
fn every_decision_is_linked_from_the_index() {
    let index = read("docs/decisions/README.md");
    for path in files("docs/decisions") {
        let name = path.trim_start_matches("docs/decisions/");
        if name != "README.md" {
            let number = name.split('-').next().unwrap();
            assert!(number.len() == 4 && number.parse::<u16>().is_ok(), "{path} does not begin with four digits");
            assert!(index.contains(&format!("]({name})")), "docs/decisions/README.md does not link {name}");
        }
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let page = read("docs/decisions/0007-dependencies.md");
    for package in packages() {
        for dependency in &package.dependencies {
            let own = dependency.name.starts_with("fencepost");
            let said = page.contains(&format!("| `{}` |", dependency.name));
            assert!(own || said, "0007-dependencies.md has no line for {} of {}", dependency.name, package.name);
        }
    }
}

/// Every word of a text that could be a name in code.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Whether a word has the form of a name that only code uses: `snake_case` or `CamelCase`.
fn is_name_of_code(word: &str) -> bool {
    let camel = word.starts_with(|letter: char| letter.is_ascii_uppercase())
        && word.chars().skip(1).any(|letter| letter.is_ascii_uppercase())
        && word.chars().any(|letter| letter.is_ascii_lowercase());
    camel || word.trim_matches('_').contains('_')
}

#[test]
fn decisions_name_only_code_that_exists() {
    let sources: String = ["crates", "bench", "examples", "sdk", "contracts"]
        .into_iter()
        .flat_map(files)
        .filter(|path| [".rs", ".sql", ".yml", ".lua", ".toml", ".py", ".ts"].iter().any(|end| path.ends_with(end)))
        .filter(|path| !path.contains("/node_modules/") && !path.ends_with("house/decisions.rs"))
        .map(|path| read(&path))
        .collect();
    let known: BTreeSet<&str> = words(&sources).collect();
    let mut foreign = BTreeSet::from(FOREIGN);
    let mut gone = Vec::new();
    for path in files("docs/decisions") {
        let page = read(&path);
        for word in quoted(&page).into_iter().flat_map(words).filter(|word| is_name_of_code(word)) {
            let is_foreign = FOREIGN.contains(&word);
            foreign.remove(word);
            // Metrics and tables are named without `fencepost_`, which is put before all of them.
            let is_known = known.contains(word) || known.contains(word.trim_start_matches("fencepost_"));
            if !is_foreign && !is_known {
                gone.push(format!("{path}: `{word}`"));
            }
        }
    }
    assert_eq!(gone, [""; 0], "no source has these names any more");
    assert_eq!(foreign, BTreeSet::new(), "no decision names these any more");
}
