//! The tools that read an OpenAPI document: client generators, a compiler and a fuzzer. Called by tests.
//! Never looks on the PATH: other versions behave differently. `./test` installs pinned ones into the cache folder.

use std::path::PathBuf;

use super::programs::cache;

/// `./test` names this folder, too; a new set of versions gets a new name.
const FOLDER: &str = "openapi-1";

/// The path of a tool. Panics where it is not installed.
fn tool(path: &str) -> PathBuf {
    let program = cache().map(|cache| cache.join(FOLDER).join(path)).filter(|program| program.exists());
    program.unwrap_or_else(|| panic!("no {path} in the cache folder: run ./test --install"))
}

/// A Python tool: `python`, `openapi-python-client` or `schemathesis`.
pub fn python_tool(name: &str) -> PathBuf {
    tool(&format!("python/bin/{name}"))
}

/// A Node tool: `openapi-typescript` or `tsc`.
pub fn node_tool(name: &str) -> PathBuf {
    tool(&format!("node/node_modules/.bin/{name}"))
}
