//! Versions, tags and answers as texts: the partners' answers are written so, and read by everybody who looks at them.
//! Never holds a type of the kernel.

use std::fmt;

use super::{ItemVerdict, SentVersion, VerdictLine, VersionForm};

impl SentVersion {
    /// Reads a version as it is kept.
    pub fn parse(text: &str) -> Option<Self> {
        let (form, rank) = match text.strip_prefix("1.").and_then(|rest| rest.strip_suffix(".0")) {
            Some(rank) => (VersionForm::Dotted, rank),
            None => (VersionForm::Number, text),
        };
        Some(Self { form, rank: rank.parse().ok()? })
    }
}

impl fmt::Display for SentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            VersionForm::Number => write!(f, "{}", self.rank),
            VersionForm::Dotted => write!(f, "1.{}.0", self.rank),
        }
    }
}

/// The tag in some content.
pub fn tag_of(content: &str) -> Option<u64> {
    content.split('#').nth(1)?.parse().ok()
}

/// Writes one line of an answer.
pub fn write_line(line: &VerdictLine) -> String {
    let VerdictLine { name, tag, verdict } = line;
    let tag = tag.map_or_else(|| "-".to_owned(), |tag| tag.to_string());
    let verdict = match verdict {
        ItemVerdict::Accepted => "ACCEPTED".to_owned(),
        ItemVerdict::Replay { differs } => format!("REPLAY {differs}"),
        ItemVerdict::Quarantined { number, missing } => format!("QUARANTINED {number} {}", missing.join(",")),
        ItemVerdict::Rejected => "REJECTED".to_owned(),
        ItemVerdict::Retired { replay, withdrawn } => format!("RETIRED {replay} {withdrawn}"),
        ItemVerdict::AlreadyResolved => "RESOLVED".to_owned(),
    };
    format!("{name} {tag} {verdict}")
}

/// Reads an answer: its first line is the request's id.
pub fn read_lines(text: &str) -> Vec<VerdictLine> {
    text.lines().skip(1).filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<VerdictLine> {
    let mut words = line.split(' ');
    let (name, tag) = (words.next()?.to_owned(), words.next()?.parse().ok());
    let verdict = match words.next()? {
        "ACCEPTED" => ItemVerdict::Accepted,
        "REPLAY" => ItemVerdict::Replay { differs: words.next()? == "true" },
        "QUARANTINED" => ItemVerdict::Quarantined {
            number: words.next()?.parse().ok()?,
            missing: words.next()?.split(',').map(str::to_owned).collect(),
        },
        "REJECTED" => ItemVerdict::Rejected,
        "RETIRED" => ItemVerdict::Retired { replay: words.next()? == "true", withdrawn: words.next()? == "true" },
        "RESOLVED" => ItemVerdict::AlreadyResolved,
        _ => return None,
    };
    Some(VerdictLine { name, tag, verdict })
}
