//! Pages point only at what is there.

use super::repo::{files, pages, prose, quoted, read, root};

/// Whether quoted text names a file or folder of this repository, rather than a URL, a command or a piece of code.
fn is_path(text: &str) -> bool {
    let known = [".md", ".rs", ".toml", ".yml", ".json"].iter().any(|end| text.ends_with(end));
    let plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-/".contains(letter));
    plain && (known || text.contains('/')) && !text.starts_with('/') && !text.contains("//")
}

#[test]
fn every_path_in_the_architecture_and_the_readme_exists() {
    for page in ["ARCHITECTURE.md", "README.md"] {
        let text = read(page);
        let paths: Vec<&str> = quoted(&text).into_iter().filter(|quote| is_path(quote)).collect();
        assert!(!paths.is_empty(), "{page} names no path: is `is_path` still right?");
        for path in paths {
            assert!(root().join(path).exists(), "{page} names `{path}`, which is not there");
        }
    }
}

#[test]
fn every_relative_link_leads_somewhere() {
    for page in pages() {
        let folder = root().join(&page).parent().unwrap().to_owned();
        let text = read(&page);
        for link in prose(&text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !file.is_empty() && !file.contains("://") {
                assert!(folder.join(file).exists(), "{page} links to {link}, which is not there");
            }
        }
    }
}

#[test]
fn every_guide_is_linked_from_the_readme() {
    let readme = read("README.md");
    for guide in files("docs/guides") {
        assert!(readme.contains(&format!("]({guide})")), "README.md does not link {guide}");
    }
}

#[test]
fn every_crate_has_its_place_in_the_architecture() {
    let text = read("ARCHITECTURE.md");
    for manifest in files("crates").iter().filter(|path| path.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        assert!(text.contains(&format!("`{folder}`")), "ARCHITECTURE.md says nothing of `{folder}`");
    }
}

/// The names that sources state as `INVARIANT name`, with where.
fn invariants(within: fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files("crates").into_iter().filter(|path| path.ends_with(".rs") && within(path)) {
        for rest in read(&path).split("INVARIANT ").skip(1) {
            let name: String =
                rest.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '-').collect();
            found.push((name, path.clone()));
        }
    }
    found
}

#[test]
fn every_invariant_is_on_the_map_and_the_map_names_no_other() {
    let stated = invariants(|path| path.contains("/src/"));
    assert!(!stated.is_empty(), "no invariant is found any more");
    let page = read("ARCHITECTURE.md");
    let mapped: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**")).map(|(name, _)| name).collect();
    for (name, path) in &stated {
        assert!(mapped.contains(&name.as_str()), "ARCHITECTURE.md does not name {name} of {path}");
    }
    for name in mapped {
        assert!(
            stated.iter().any(|(stated, _)| stated == name),
            "ARCHITECTURE.md names {name}, which no source states"
        );
    }
}

#[test]
fn every_invariant_is_repeated_by_a_test() {
    let repeated = invariants(|path| path.contains("/tests/") && !path.starts_with("crates/house"));
    let tests: String = files("crates").iter().filter(|path| path.contains("/tests/")).map(|path| read(path)).collect();
    for (name, path) in invariants(|path| path.contains("/src/") && !path.contains("/tests/")) {
        let named = tests.contains(&format!("fn {}", name.replace('-', "_")));
        assert!(named || repeated.iter().any(|(known, _)| *known == name), "no test repeats {name} of {path}");
    }
}

#[test]
fn the_readme_shows_the_example_that_the_library_compiles() {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let library = read("crates/fencepost/src/lib.rs");
    let block: String = library
        .lines()
        .map(|line| line.trim_start_matches("//!").trim_start())
        .fold(String::new(), |all, line| all + line + "\n");
    let compiled =
        block.split("```").nth(1).unwrap().lines().filter(|line| !line.starts_with("# ")).collect::<String>();
    let readme = read("README.md");
    let shown =
        readme.split("```rust").nth(1).unwrap().split("```").next().unwrap().replace(r#""./fences""#, "dir.path()");
    assert_eq!(squeezed(&shown), squeezed(&compiled));
}
