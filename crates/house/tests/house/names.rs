//! Names: a public type's name is unique in the workspace, and words that only this repository understood stay away.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Ident, Item, Visibility};

use super::repo::{files, read};

/// Names that every capability or command of the command line has for its own, as its path says: `fence::Command`.
const SHARED: [&str; 5] = ["Args", "Command", "Error", "Record", "Reply"];

/// Words that needed an explanation, each with what to say instead.
const GIVEN_UP: [(&str, &str); 16] = [
    ("aloft", "in flight"),
    ("aside", "what it is: the HTTP/2 runtime, off the fast path"),
    ("crowd", "many callers, or concurrent"),
    ("ear", "listener"),
    ("glance", "answer from a snapshot"),
    ("heir", "next owner"),
    ("herald", "notify"),
    ("leans", "depends on"),
    ("lift", "raise, or remove"),
    ("luck", "guess statistics"),
    ("poke", "notice"),
    ("pokes", "notices"),
    ("rumour", "may have changed"),
    ("sky", "in-flight effects"),
    ("told_in", "position row"),
    ("unplaced", "position pending"),
];

/// `about` keeps the word in its output, which users may query. A directory is moved aside.
const KEPT: [(&str, &str); 3] = [
    ("crates/store/src/postgres/about.rs", "poke"),
    ("crates/store/src/embedded/fault.rs", "aside"),
    ("crates/store/tests/store/damage.rs", "aside"),
];

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|word| word == "test")
    })
}

/// The names of the public types among these items and in the modules between them.
fn public_types(items: &[Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Mod(item) => {
                if let Some((_, items)) = item.content.as_ref().filter(|_| !is_test(&item.attrs)) {
                    names.extend(public_types(items));
                }
                continue;
            }
            _ => continue,
        };
        if matches!(visibility, Visibility::Public(_)) {
            names.push(name.to_string());
        }
    }
    names
}

/// The words of a text in lower case: `InFlightEffects` and `in_flight_effects` have three each.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphabetic()).flat_map(|name| {
        let mut words: Vec<String> = Vec::new();
        let mut lower = false;
        for c in name.chars() {
            if words.is_empty() || lower && c.is_uppercase() {
                words.push(String::new());
            }
            lower = c.is_lowercase();
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        words
    })
}

/// The names of a text, with their underscores.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

fn sources(kept: impl Fn(&str) -> bool) -> Vec<String> {
    let sources: Vec<_> = files("crates").into_iter().filter(|path| path.ends_with(".rs") && kept(path)).collect();
    assert!(sources.len() > 200, "the sources are not found any more");
    sources
}

#[test]
fn public_type_name_is_unique_in_the_workspace() {
    let in_src = |path: &str| path.contains("/src/") && !path.contains("/tests/") && !path.ends_with("/tests.rs");
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources(in_src) {
        for name in public_types(&syn::parse_file(&read(&path)).unwrap().items) {
            places.entry(name).or_default().push(path.clone());
        }
    }
    assert!(places.len() > 200, "the public types are not found any more");
    places.retain(|name, places| places.len() > 1 && !SHARED.contains(&name.as_str()));
    assert!(places.is_empty(), "give each of these types a name that says what it is:\n{places:#?}");
}

#[test]
fn word_that_only_this_repository_understood_is_not_used() {
    let mut found = Vec::new();
    for path in sources(|path| !path.ends_with("/house/names.rs")) {
        let text = read(&path);
        let words: BTreeSet<String> = words(&text).collect();
        for (word, instead) in GIVEN_UP {
            let used = if word.contains('_') { names(&text).any(|name| name == word) } else { words.contains(word) };
            if used && !KEPT.contains(&(path.as_str(), word)) {
                found.push(format!("{path}: {word} (say: {instead})"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn types_and_words_are_found_where_they_are() {
    let source = "pub struct A; pub(crate) struct B; mod m { pub enum C {} } #[cfg(test)] mod t { pub trait D {} }";
    assert_eq!(public_types(&syn::parse_file(source).unwrap().items), ["A", "C"]);
    let found: Vec<String> = words("let in_flight = InFlightSky::of(&rare); // HTTPS").collect();
    assert_eq!(found, ["let", "in", "flight", "in", "flight", "sky", "of", "rare", "https"]);
}
