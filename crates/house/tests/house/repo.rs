//! The files of this repository, as the other tests read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder that holds the workspace.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The text of a file, by its path from the root.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder, as sorted paths from the root, without the folders that git ignores.
pub fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kept = !["target", ".git", "fencepost-data"].iter().any(|left_out| path == Path::new(left_out));
            match entry.file_type().unwrap().is_dir() {
                true if kept => open.push(path),
                false if kept => found.push(path.to_str().unwrap().to_owned()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Every Markdown page.
pub fn pages() -> Vec<String> {
    files("").into_iter().filter(|path| path.ends_with(".md")).collect()
}

/// The lines of a page outside its fenced blocks.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The texts in backticks in a page's prose.
pub fn quoted(text: &str) -> Vec<&str> {
    prose(text).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}
