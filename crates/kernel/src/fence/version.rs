//! Versions of one source, and their order. Never compares integers with texts. Called by `fence`, `wire`, the codec.

use std::cmp::Ordering;

/// A sender's version of its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    Integer(i128),
    /// Any text whose order is that of its bytes, such as an ISO time.
    Text(String),
}

impl Version {
    /// Reads a key field: digits are an integer, anything else is a text.
    pub fn from_field(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Integer)
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    /// The order of two versions; `None` between an integer and a text.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}
