//! A point in store time: milliseconds since the Unix epoch, as the store's clock tells it.

use std::fmt;

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This point plus a span; the far end of time rather than an overflow.
    pub fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to this point, zero if it lies ahead.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
