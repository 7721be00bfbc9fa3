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

#[test]
fn every_invariant_is_named_in_the_architecture_and_exists_in_the_code() {
    let page = read("ARCHITECTURE.md");
    let mut known = Vec::new();
    for path in files("crates").iter().filter(|path| path.contains("/src/") && path.ends_with(".rs")) {
        let text = read(path);
        for rest in text.split("INVARIANT ").skip(1) {
            let name = rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next().unwrap();
            assert!(page.contains(&format!("- **{name}**")), "ARCHITECTURE.md does not name {name} of {path}");
            known.push(name.to_owned());
        }
    }
    for name in page.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**")).map(|(name, _)| name) {
        assert!(known.iter().any(|known| known == name), "ARCHITECTURE.md names {name}, which no code states");
    }
}
