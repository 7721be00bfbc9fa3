//! Every decision is in the index, and every dependency has its reason.

use super::{
    layers::packages,
    repo::{files, read},
};

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
