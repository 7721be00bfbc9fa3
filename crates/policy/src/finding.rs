//! A finding about a policy: where it is, how bad it is, and what to do.
//! Never decides whether to go on: the caller looks for errors among the findings.
//! Called by every reader and lint in `policy`; `fencepost check` and a start show the findings.

use std::fmt;

use serde_json::{Value, json};

/// How bad a finding is. Only an error makes `check` fail and a start refuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Must be fixed before the policy can be served.
    Error,
    /// Served, but likely a mistake.
    Warning,
    /// Worth knowing.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// One thing found in a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name of the rule, such as `time-in-key`.
    pub rule: &'static str,
    /// The file as it was named, or the environment variable.
    pub file: String,
    /// The line, from 1; 0 where there are no lines (an environment variable).
    pub line: u32,
    /// The column in characters, from 1; 0 where there are no lines.
    pub col: u32,
    /// The problem, in words for people.
    pub message: String,
    /// The advice on how to fix it.
    pub fix: Option<String>,
}

impl Finding {
    /// Whether this finding makes `check` fail.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.col)?;
        }
        write!(f, ": {}: {}", self.severity, self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// Whether any of the findings is an error.
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(Finding::is_error)
}

/// The findings for people, one after the other, each ending in a newline.
pub fn human(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// The findings for programs: one JSON object.
pub fn json(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    json!({
        "errors": count(Severity::Error),
        "warnings": count(Severity::Warning),
        "notes": count(Severity::Note),
        "findings": rows(findings),
    })
    .to_string()
}

/// The findings as a JSON array.
pub fn rows(findings: &[Finding]) -> Value {
    findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.severity.to_string(),
                "rule": finding.rule,
                "file": finding.file,
                "line": finding.line,
                "col": finding.col,
                "message": finding.message,
                "fix": finding.fix,
            })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finding(line: u32, fix: Option<&str>) -> Finding {
        Finding {
            severity: Severity::Error,
            rule: "unknown-key",
            file: "f.yml".into(),
            line,
            col: 3,
            message: "unknown key `retian`".into(),
            fix: fix.map(Into::into),
        }
    }

    #[test]
    fn a_finding_reads_as_file_line_column_then_the_fix() {
        let shown = finding(2, Some("write `retain`")).to_string();
        assert_eq!(shown, "f.yml:2:3: error: unknown key `retian`\n  fix: write `retain`");
        assert_eq!(finding(0, None).to_string(), "f.yml: error: unknown key `retian`");
    }

    #[test]
    fn the_json_form_counts_and_escapes() {
        let mut quoted = finding(1, None);
        quoted.message = "a \"quoted\" name".into();
        quoted.severity = Severity::Warning;
        let shown = json(&[finding(2, None), quoted]);
        let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((value["errors"].as_u64(), value["warnings"].as_u64()), (Some(1), Some(1)));
        assert_eq!(value["findings"][1]["message"], "a \"quoted\" name");
    }
}
