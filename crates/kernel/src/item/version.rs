//! Versions of items, and their order. Never compares versions of two forms.
//! Made by `fencepost::ingest` as the collection says; compared by `submit`.

use std::{cmp::Ordering, fmt};

use crate::time::rfc3339_nanos;

/// A sender's version of its item, as sent, with what orders it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ItemVersion {
    /// A counter.
    Integer(i128),
    /// A time, ordered by the moment that it names.
    Time(String),
    /// Numbers with dots between them, such as `1.10.0-rc.2`, ordered as semantic versioning does.
    Dotted(String),
    /// Any other text, ordered by its bytes.
    Text(String),
}

impl ItemVersion {
    /// An RFC 3339 time, or a date, which is its first moment in UTC.
    pub fn time(text: &str) -> Option<Self> {
        moment(text).map(|_| Self::Time(text.to_owned()))
    }

    /// A text that is shaped like a semantic version, with any number of parts.
    pub fn dotted(text: &str) -> Option<Self> {
        Dotted::read(text).map(|_| Self::Dotted(text.to_owned()))
    }

    /// A time or a dotted version where the text is one, else a text.
    pub fn any(text: &str) -> Self {
        Self::time(text).or_else(|| Self::dotted(text)).unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// The order of two versions; none where they are of two forms.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(moment(a).cmp(&moment(b))),
            (Self::Dotted(a), Self::Dotted(b)) => Some(Dotted::read(a)?.order(&Dotted::read(b)?)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// The form, in a word for people.
    pub fn form(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Time(_) => "a time",
            Self::Dotted(_) => "a dotted version",
            Self::Text(_) => "a text",
        }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Integer(_) => 0,
            Self::Time(text) | Self::Dotted(text) | Self::Text(text) => text.len(),
        }
    }
}

impl fmt::Display for ItemVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Time(text) | Self::Dotted(text) | Self::Text(text) => f.write_str(text),
        }
    }
}

fn moment(text: &str) -> Option<i128> {
    if text.len() == "2026-05-24".len() {
        return rfc3339_nanos(&format!("{text}T00:00:00Z"));
    }
    rfc3339_nanos(text)
}

/// The parts of a dotted version. The text after a `+` orders nothing.
struct Dotted<'t> {
    numbers: &'t str,
    /// Empty for a release.
    pre_release: &'t str,
}

impl<'t> Dotted<'t> {
    fn read(text: &'t str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = text.split_once('+').unwrap_or((text, "0"));
        let (numbers, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let named = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let pre_release_ok = text.len() == numbers.len() || pre_release.split('.').all(named);
        let whole = numbers.split('.').all(is_number) && pre_release_ok && build.split('.').all(named);
        whole.then_some(Self { numbers, pre_release })
    }

    fn order(&self, other: &Self) -> Ordering {
        let (mut own, mut others) = (self.numbers.split('.'), other.numbers.split('.'));
        loop {
            let (a, b) = (own.next(), others.next());
            if a.is_none() && b.is_none() {
                break;
            }
            // A part that is not there counts as zero.
            let order = by_number(a.unwrap_or("0"), b.unwrap_or("0"));
            if order.is_ne() {
                return order;
            }
        }
        match (self.pre_release, other.pre_release) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (a, b) => pre_release_order(a, b),
        }
    }
}

fn pre_release_order(a: &str, b: &str) -> Ordering {
    let (mut own, mut others) = (a.split('.'), b.split('.'));
    loop {
        let order = match (own.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (is_number(a), is_number(b)) {
                (true, true) => by_number(a, b),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => a.cmp(b),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

// Of any length: a build number may be a date with a time.
fn by_number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}
