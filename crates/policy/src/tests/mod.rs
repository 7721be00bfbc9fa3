//! Tests of the policy as a whole, through the functions that the command line and the server call.

mod builtin;
mod callers;
mod changes;
mod collections;
mod credentials;
mod directory;
mod lints;
mod loading;
mod promises;
mod sections;
mod unread;

use super::*;

/// The CI template that the format grew from; it must stay valid word for word.
const TEMPLATE: &str = include_str!("idempotency.yml");

/// Findings as one line each: `line severity rule`.
fn rules(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{} {} {}", f.line, f.severity, f.rule)).collect()
}

/// The policy of a text that has no errors.
fn policy(text: &str) -> Policy {
    Policy::parse("p.yml", text).unwrap_or_else(|findings| panic!("{}", finding::human(&findings)))
}
