//! Tools that read an OpenAPI document: generators of clients, a compiler, and a fuzzer. `./test` installs them, pinned, into the
//! cache folder. Never looks for others on the PATH: another version would say other things.

use std::path::PathBuf;

use super::programs::cache;

/// The folder that `./test` names, too; a new set of versions gets a new name.
const FOLDER: &str = "openapi-1";

/// A program among the tools. Panics where it is not there.
fn tool(path: &str) -> PathBuf {
    let program = cache().map(|cache| cache.join(FOLDER).join(path)).filter(|program| program.exists());
    program.unwrap_or_else(|| panic!("no {path} in the cache folder: run ./test --install"))
}

/// A program of the Python tools: `python`, `openapi-python-client`, `schemathesis`.
pub fn python_tool(name: &str) -> PathBuf {
    tool(&format!("python/bin/{name}"))
}

/// A program of the Node tools: `openapi-typescript`, `tsc`.
pub fn node_tool(name: &str) -> PathBuf {
    tool(&format!("node/node_modules/.bin/{name}"))
}
