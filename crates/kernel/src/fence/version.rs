//! Versions of one source, and their order. Never guesses: an integer and a text do not compare.

use std::cmp::Ordering;

/// What a sender calls the state of its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    /// A counter.
    Integer(i128),
    /// Anything that orders as text, such as an ISO time.
    Text(String),
}

impl Version {
    /// Reads a key field: digits are a counter, all else is text.
    pub fn from_field(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Integer)
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    /// The order of two versions, none where one is an integer and the other a text.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}
