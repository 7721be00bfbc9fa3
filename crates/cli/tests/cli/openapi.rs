//! The OpenAPI document as other tools read it: clients that they generate compile and work, and a fuzzer finds no answer that the
//! document does not know. A tool that is not installed is a failure, never a skip.

use std::{env, path::Path, process::Command};

use fencepost_rig::openapi::{node_tool, python_tool};

use super::server::{Serve, Server, command, text};

const SMOKE: &str = include_str!("openapi/smoke.py");
const SCHEMATHESIS: &str = include_str!("openapi/schemathesis.toml");
/// A claim that waits holds the fuzzer up.
const POLICY: &str = "server: { limits: { wait_max: 50ms } }\n";

fn serve(dir: &Path) -> Server {
    std::fs::write(dir.join("fencepost.yml"), POLICY).unwrap();
    Serve::dev(&dir.join("data")).arg("--config").arg(dir.join("fencepost.yml")).start()
}

fn document(server: &Server, dir: &Path) -> std::path::PathBuf {
    let file = dir.join("openapi.json");
    std::fs::write(&file, server.acme().get("/openapi.json").text()).unwrap();
    file
}

/// Runs a tool to its end, with its siblings on the PATH; what it said where it fails.
fn passes(tool: &mut Command, dir: &Path) {
    let beside = Path::new(tool.get_program()).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([beside].into_iter().chain(env::split_paths(&path))).unwrap();
    let output = tool.current_dir(dir).env("PATH", path).env("HOME", dir).output().unwrap();
    assert!(output.status.success(), "{tool:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn python_client_generated_from_the_document_compiles_and_works() {
    let dir = tempfile::tempdir().unwrap();
    let (server, dir) = (serve(dir.path()), dir.path());
    let document = document(&server, dir);
    // The tool knows no lines of JSON: they are a text to it.
    let config = dir.join("generate.yml");
    std::fs::write(&config, "content_type_overrides: { application/x-ndjson: text/plain }\n").unwrap();
    let mut generate = command(python_tool("openapi-python-client"));
    // A warning is a part of the document that the client would be without.
    generate.args(["generate", "--fail-on-warning", "--meta", "none", "--output-path", "fencepost_api", "--path"]);
    passes(generate.arg(document).arg("--config").arg(config), dir);
    let mut python = command(python_tool("python"));
    passes(python.args(["-W", "error", "-m", "compileall", "-q", "fencepost_api"]), dir);
    std::fs::write(dir.join("smoke.py"), SMOKE).unwrap();
    passes(command(python_tool("python")).args(["smoke.py", &server.url()]), dir);
}

#[test]
fn typescript_client_generated_from_the_document_compiles() {
    let dir = tempfile::tempdir().unwrap();
    let (server, dir) = (serve(dir.path()), dir.path());
    let document = document(&server, dir);
    passes(command(node_tool("openapi-typescript")).arg(document).args(["--output", "api.ts"]), dir);
    let used = r#"
        import type { components, operations } from "./api";
        type Problem = components["schemas"]["Problem"];
        export const where = (problem: Problem): string[] => (problem.diff ?? []).map((step) => step.path);
        export const claim: operations["claim"]["requestBody"]["content"]["application/json"] =
            { scope: "BOOKING", key: { groupId: "G-1" } };
        export const poll: components["schemas"]["Transport"] = { poll: {} };
        // @ts-expect-error a transport is one of three
        export const both: components["schemas"]["Transport"] = { executor_id: "wes" };
    "#;
    std::fs::write(dir.join("used.ts"), used).unwrap();
    passes(command(node_tool("tsc")).args(["--noEmit", "--strict", "api.ts", "used.ts"]), dir);
}

/// Every identity of `--dev`, and none.
const ROLES: [Option<&str>; 7] = [
    Some("dev-admin"),
    Some("dev-viewer"),
    Some("dev-planner"),
    Some("dev-executor"),
    Some("dev-partner"),
    Some("dev-partner-2"),
    None,
];

// With `FENCEPOST_LONG` for a minute each, with chance and in sequences; else an admin alone, the cases that the schemas name.
#[test]
fn fuzzer_with_any_role_gets_no_answer_that_the_document_does_not_know() {
    let is_long = env::var_os("FENCEPOST_LONG").is_some();
    let roles = if is_long { &ROLES[..] } else { &ROLES[..1] };
    let effort = if is_long { ["--max-time", "60"] } else { ["--phases", "coverage"] };
    for role in roles {
        let dir = tempfile::tempdir().unwrap();
        let (server, dir) = (serve(dir.path()), dir.path());
        std::fs::write(dir.join("schemathesis.toml"), SCHEMATHESIS).unwrap();
        let mut fuzz = command(python_tool("schemathesis"));
        fuzz.args(["--config-file", "schemathesis.toml", "run", &format!("{}/openapi.json", server.url())]);
        fuzz.args(["--no-color", "--seed", "1", "--generation-database", "none"]).args(effort);
        if let Some(token) = role {
            fuzz.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
        passes(&mut fuzz, dir);
    }
}
