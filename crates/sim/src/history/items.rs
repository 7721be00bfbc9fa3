//! The history of items in one world: requests of partners, their answers, and the items at the end.
//! Never holds a type of the kernel: the auditor reads this and nothing else. Written by the recorder.

mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::HistoryStamp;
pub use text::{read_lines, tag_of, write_line};

/// A version as its sender means it. Two of one form compare by their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentVersion {
    /// A number, or a text such as `1.7.0`.
    pub form: VersionForm,
    /// Its place among those of its form.
    pub rank: u64,
}

/// How a version is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionForm {
    /// `7`
    Number,
    /// `1.7.0`
    Dotted,
}

/// An item in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentItem {
    /// Collection and source id.
    pub name: String,
    /// Its version, where it has one.
    pub version: Option<SentVersion>,
    /// A number in its content that no other content of this world has.
    pub tag: u64,
    /// Its bytes.
    pub content: String,
    /// The items that it refers to, each once.
    pub refs: Vec<String>,
    /// Whether it lacks what its collection asks for.
    pub malformed: bool,
}

/// A partner's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemAsk {
    /// To take these items, of one collection.
    Send(Vec<SentItem>),
    /// A dry run of these.
    Try(Vec<SentItem>),
    /// To make an item count no more.
    Delete {
        /// Collection and source id.
        name: String,
    },
    /// To look at a stay in quarantine again.
    Release {
        /// The item.
        name: String,
        /// The number of the stay.
        number: u64,
        /// Whether the stay is another partner's.
        foreign: bool,
    },
    /// For an item with its history.
    Read {
        /// Collection and source id.
        name: String,
    },
}

/// The verdict on one change, as the answer says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemVerdict {
    /// It is the present version.
    Accepted,
    /// This version or a higher one is known.
    Replay {
        /// Whether the present version has other content.
        differs: bool,
    },
    /// It is in quarantine.
    Quarantined {
        /// The number of the stay.
        number: u64,
        /// The items that are missing.
        missing: Vec<String>,
    },
    /// It is not what its collection asks for, or its version cannot be compared.
    Rejected,
    /// It counts no more.
    Retired {
        /// Whether that was so before.
        replay: bool,
        /// Whether no version was ever accepted.
        withdrawn: bool,
    },
    /// The stay had ended before.
    AlreadyResolved,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictLine {
    /// The item.
    pub name: String,
    /// The tag of its content; none where the change has no content.
    pub tag: Option<u64>,
    /// The result.
    pub verdict: ItemVerdict,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemAnswer {
    /// All changes were decided.
    Told {
        /// Whether it is the answer to an earlier request of this id.
        replay: bool,
        /// Its bytes.
        text: String,
    },
    /// The same, had it been sent.
    Tried(Vec<VerdictLine>),
    /// Another request has this id.
    Conflict,
    /// Not done, for this reason.
    Refused(&'static str),
    /// The accepted versions by their numbers, and the number of the present one; none where none was accepted.
    Shown(Option<ShownItem>),
}

/// An item with its history.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShownItem {
    /// The number of the present version.
    pub seq: u64,
    /// Accepted versions by number, with the present one.
    pub versions: BTreeMap<u64, Acceptance>,
}

/// One accepted version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The version as it is kept.
    pub version: Option<SentVersion>,
    /// Its bytes.
    pub content: String,
    /// The tag in them.
    pub tag: Option<u64>,
    /// The correlation id of the request that sent it.
    pub id: String,
    /// The correlation id of the request that retired it.
    pub retired: Option<String>,
}

/// The outcome of a request, as far as its sender can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It was answered.
    Answered(ItemAnswer),
    /// It certainly did not happen.
    NotApplied,
    /// It may have happened.
    Maybe,
}

/// One request, once for each time that it was sent.
#[derive(Clone, Debug)]
pub struct ItemOp {
    /// The run of the store it was sent in.
    pub run: usize,
    /// The node of that run it was sent to.
    pub node: usize,
    /// The partner.
    pub tenant: &'static str,
    /// The correlation id; empty where a request has none.
    pub id: String,
    /// The question.
    pub ask: ItemAsk,
    /// When it was handed to the engine.
    pub invoked: HistoryStamp,
    /// When its sender knew what can be known.
    pub closed: Option<HistoryStamp>,
    /// Its outcome.
    pub outcome: ItemOutcome,
}

/// A stay in quarantine at the end.
#[derive(Clone, Debug)]
pub struct StayLeft {
    /// Its number.
    pub number: u64,
    /// The version in quarantine.
    pub version: Option<SentVersion>,
    /// The tag of its content.
    pub tag: Option<u64>,
    /// The correlation id of the request that sent it.
    pub id: String,
    /// The items that are missing.
    pub missing: BTreeSet<String>,
    /// How it ended; none while it is open.
    pub resolved: Option<&'static str>,
}

/// Everything about items at the end. Items are named by tenant, collection and source id, requests by tenant and id.
#[derive(Clone, Debug, Default)]
pub struct ItemsLeft {
    /// The line at which it was read.
    pub line: usize,
    /// Accepted versions.
    pub items: BTreeMap<String, ShownItem>,
    /// Two rows for one version of an item, where there are any.
    pub doubled: Vec<String>,
    /// The number of the open stay, by item.
    pub open: BTreeMap<String, u64>,
    /// The last stay of each item.
    pub stays: BTreeMap<String, StayLeft>,
    /// Which item waits for which: the missing one first.
    pub waiting: BTreeSet<(String, String)>,
    /// Arrivals that were not followed up.
    pub arrivals: BTreeSet<String>,
    /// The answers that are kept for repeats.
    pub answers: BTreeMap<String, String>,
}

/// Everything that happened to items.
#[derive(Clone, Debug, Default)]
pub struct ItemHistory {
    /// Every request.
    pub ops: Vec<ItemOp>,
    /// The partners whose items are released by themselves.
    pub auto_release: BTreeSet<&'static str>,
    /// The items at the end; none where the last run could not start.
    pub left: Option<ItemsLeft>,
}

impl ItemOp {
    /// The name of the request among all partners'.
    pub fn key(&self) -> String {
        format!("{}/{}", self.tenant, self.id)
    }

    /// Whether it asks for a change that its id stands for.
    pub fn changes(&self) -> bool {
        matches!(self.ask, ItemAsk::Send(_) | ItemAsk::Delete { .. } | ItemAsk::Release { .. })
    }
}

impl fmt::Display for ItemAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, items) = match self {
            Self::Send(items) => ("send", items),
            Self::Try(items) => ("try", items),
            Self::Delete { name } => return write!(f, "delete {name}"),
            Self::Release { name, number, foreign } => {
                return write!(f, "release {name} {number}{}", if *foreign { " of another" } else { "" });
            }
            Self::Read { name } => return write!(f, "read {name}"),
        };
        f.write_str(word)?;
        for item in items {
            let version = item.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
            write!(
                f,
                " {}@{version}#{} needs {:?}{}",
                item.name,
                item.tag,
                item.refs,
                if item.malformed { "!" } else { "" }
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ItemOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer) => write!(f, "{answer:?}"),
            Self::NotApplied => write!(f, "not applied"),
            Self::Maybe => write!(f, "unknown"),
        }
    }
}
