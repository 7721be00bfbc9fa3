//! Dependencies point one way, and what must not cross a border does not.

use std::process::Command;

use serde_json::Value;

use super::repo::{files, read, root};

/// A crate depends only on those before it.
const ORDER: [&str; 14] = [
    "fencepost-client",
    "fencepost-front",
    "fencepost-rig",
    "fencepost-kernel",
    "fencepost-store",
    "fencepost-policy",
    "fencepost",
    "fencepost-testkit",
    "fencepost-sim",
    "fencepost-wire",
    "fencepost-cli",
    "fencepost-examples",
    "fencepost-bench",
    "fencepost-house",
];

pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
}

pub struct Dependency {
    pub name: String,
    /// Whether users of the crate get it too; false for what only tests need.
    pub shipped: bool,
}

/// Every package of the workspace with its direct dependencies, as cargo understands them.
pub fn packages() -> Vec<Package> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let dependency =
        |value: &Value| Dependency { name: text(&value["name"]), shipped: value["kind"].as_str() != Some("dev") };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| Package {
            name: text(&package["name"]),
            dependencies: package["dependencies"].as_array().unwrap().iter().map(dependency).collect(),
        })
        .collect()
}

#[test]
fn no_crate_depends_on_one_above_it() {
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    for package in packages() {
        let own = rank(&package.name).unwrap_or_else(|| panic!("{} has no place in ORDER", package.name));
        for dependency in &package.dependencies {
            // For its tests, a crate may name itself, to switch a feature on, and the testkit, which is for nothing else.
            let of_tests = dependency.name == package.name || dependency.name == "fencepost-testkit";
            let below = rank(&dependency.name).is_none_or(|rank| rank < own);
            let allowed = if of_tests { !dependency.shipped } else { below };
            assert!(allowed, "{} must not depend on {}", package.name, dependency.name);
        }
    }
}

#[test]
fn no_crate_depends_on_what_its_layer_forbids() {
    let borders: [(&str, &[&str]); 5] = [
        (
            "fencepost-kernel",
            &["tokio", "futures", "fjall", "http", "axum", "hyper", "fastrand", "getrandom", "anyhow"],
        ),
        ("fencepost-store", &["http", "axum", "hyper", "anyhow"]),
        ("fencepost-policy", &["tokio", "futures", "fjall", "axum", "hyper", "clap", "anyhow"]),
        ("fencepost", &["axum", "hyper", "hyper-util", "clap", "anyhow"]),
        ("fencepost-wire", &["fencepost-store", "fjall", "clap", "anyhow"]),
    ];
    let packages = packages();
    for (name, forbidden) in borders {
        let package = packages.iter().find(|package| package.name == name).unwrap();
        for dependency in package.dependencies.iter().filter(|dependency| dependency.shipped) {
            assert!(!forbidden.contains(&dependency.name.as_str()), "{name} must not know {}", dependency.name);
        }
    }
}

#[test]
fn the_kernel_has_no_clock_no_files_no_network_no_chance_and_no_async() {
    let files_and_network =
        ["std::fs", "std::net", "std::io", "std::env", "std::process", "std::thread", "fs::", "net::"];
    let clock = ["SystemTime", "Instant"];
    // A HashMap's order is chance too.
    let chance = ["rand::", "fastrand", "getrandom", "RandomState", "HashMap", "HashSet"];
    let concurrency = ["tokio", "futures", "async ", ".await", "Mutex", "Atomic"];
    for path in files("crates/kernel/src") {
        for line in read(&path).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in files_and_network.iter().chain(&clock).chain(&chance).chain(&concurrency) {
                assert!(!line.contains(word), "{path} uses {word}: {line}");
            }
        }
    }
}
