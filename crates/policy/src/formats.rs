//! Findings for tools that show them beside the lines: SARIF 2.1.0 and GitHub's workflow commands.
//! Never leaves a finding out, whatever its severity.
//! Called by `fencepost check`.

use serde_json::{Value, json};

use super::finding::{Finding, Severity};
use super::rules;

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The findings as one SARIF log with one run.
pub fn sarif(findings: &[Finding]) -> String {
    let mut named: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
    named.sort_unstable();
    named.dedup();
    let rules: Vec<Value> = named
        .iter()
        .map(|rule| {
            let about = rules::about(rule).unwrap_or(rule);
            json!({ "id": rule, "shortDescription": { "text": about }, "helpUri": rules::HELP })
        })
        .collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            // Viewers show a result only where it has a line: a finding without one is placed on the first.
            let region = json!({ "startLine": finding.line.max(1), "startColumn": finding.col.max(1) });
            let place = json!({ "artifactLocation": { "uri": uri(&finding.file) }, "region": region });
            json!({
                "ruleId": finding.rule,
                "ruleIndex": named.binary_search(&finding.rule).unwrap_or_default(),
                "level": finding.severity.to_string(),
                "message": { "text": text(finding) },
                "locations": [{ "physicalLocation": place }],
            })
        })
        .collect();
    let driver = json!({
        "name": "fencepost",
        "version": env!("CARGO_PKG_VERSION"),
        "informationUri": "https://fencepost.dev",
        "rules": rules,
    });
    let run = json!({ "tool": { "driver": driver }, "columnKind": "unicodeCodePoints", "results": results });
    format!("{:#}\n", json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] }))
}

/// The findings as workflow commands, one a line.
pub fn github(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        let place = match finding.line {
            0 => String::new(),
            line => format!(",line={line},col={}", finding.col),
        };
        let (file, said) = (property(&finding.file), data(&text(finding)));
        format!("::{command} file={file}{place},title={}::{said}\n", property(finding.rule))
    };
    findings.iter().map(line).collect()
}

fn text(finding: &Finding) -> String {
    match &finding.fix {
        Some(fix) => format!("{}\nfix: {fix}", finding.message),
        None => finding.message.clone(),
    }
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A file's name as a URI reference: relative to where the run started, unless it is absolute.
fn uri(file: &str) -> String {
    let mut out = if file.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in file.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finding(severity: Severity, line: u32) -> Finding {
        let fix = Some("a, b: c".to_owned());
        let message = "100%\r\nwrong".to_owned();
        Finding { severity, rule: "time-in-key", file: "a b/c,d:e.yml".into(), line, col: 7, message, fix }
    }

    #[test]
    fn a_workflow_command_escapes_what_would_end_it() {
        assert_eq!(
            github(&[finding(Severity::Error, 3), finding(Severity::Note, 0)]),
            "::error file=a b/c%2Cd%3Ae.yml,line=3,col=7,title=time-in-key::100%25%0D%0Awrong%0Afix: a, b: c\n\
             ::notice file=a b/c%2Cd%3Ae.yml,title=time-in-key::100%25%0D%0Awrong%0Afix: a, b: c\n"
        );
    }

    #[test]
    fn sarif_has_what_its_schema_requires() {
        let log: Value = serde_json::from_str(&sarif(&[finding(Severity::Warning, 0)])).unwrap();
        let run = &log["runs"][0];
        assert_eq!((&log["version"], &run["tool"]["driver"]["name"]), (&json!("2.1.0"), &json!("fencepost")));
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "time-in-key");
        let result = &run["results"][0];
        assert_eq!((&result["ruleId"], &result["level"]), (&json!("time-in-key"), &json!("warning")));
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b/c%2Cd%3Ae.yml");
        assert_eq!(place["region"], json!({"startLine": 1, "startColumn": 7}), "lines count from 1");
        assert_eq!(uri("/etc/p.yml"), "file:///etc/p.yml");
        assert_eq!(serde_json::from_str::<Value>(&sarif(&[])).unwrap()["runs"][0]["results"], json!([]));
    }
}
