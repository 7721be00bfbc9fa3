//! Every attack that the security guide tells of names the test that holds it off.

use super::repo::{files, read};

#[test]
fn every_row_of_the_security_guide_names_tests_that_exist() {
    let guide = read("docs/guides/security.md");
    let sources: String = files("crates").iter().filter(|path| path.ends_with(".rs")).map(|path| read(path)).collect();
    let (mut rows, mut missing) = (0, Vec::new());
    for row in guide.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 3) {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if last == "test" || last.starts_with("---") {
            continue;
        }
        assert!(!names.is_empty(), "a row without a test: {row}");
        rows += 1;
        missing.extend(names.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).map(str::to_owned));
    }
    assert!(rows > 40, "the rows are not found any more");
    assert!(missing.is_empty(), "no test is called {missing:#?}");
}
