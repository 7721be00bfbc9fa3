//! The replies to commands about events for a warehouse. A refusal is a reply, not an error.
//! Called by `dispatch`, which makes them; `fencepost` and `wire` read them.

use std::sync::Arc;

use super::PublishReceipt;
use crate::{
    lane::{DeadLetter, LaneId},
    time::Millis,
};

/// The result of a command.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The event is in its lane.
    Published {
        /// Its place in the lane. The position is 0 until the store has given one.
        publication: PublishReceipt,
        /// Until when a repeated publication is recognised as one.
        expires: Millis,
    },
    /// The warehouse has no transport yet.
    NoTransport,
    /// The event to be cancelled was never published.
    UnknownOriginal,
    /// The warehouse's transport is set as requested.
    TransportPut {
        /// Whether it was set so already.
        replay: bool,
    },
    /// The lane that the warehouse would leave still has events that are not settled.
    NotDrained {
        lane: LaneId,
        /// Its last position.
        tail: u64,
        /// The position up to which its events are settled.
        settled: u64,
    },
    /// The lane has no dead letter at that position.
    NoLetter,
    /// A later event cancelled the letter's event.
    LetterCancelled {
        /// The id of the cancelling event.
        by: String,
    },
    /// The receiver no longer remembers whether it has seen the event.
    PastRetention {
        /// How long it remembers events, in milliseconds.
        receiver_retain_ms: u64,
    },
    /// The letter has another decision already.
    LetterDecided(Arc<DeadLetter>),
    /// The letter is decided as requested.
    Letter {
        letter: Arc<DeadLetter>,
        /// Whether it was decided so already.
        replay: bool,
    },
}

impl Reply {
    /// The word for this reply in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published",
            Self::NoTransport => "no_transport",
            Self::UnknownOriginal => "unknown_original",
            Self::TransportPut { .. } => "routed",
            Self::NotDrained { .. } => "not_drained",
            Self::NoLetter => "no_letter",
            Self::LetterCancelled { .. } => "letter_cancelled",
            Self::PastRetention { .. } => "past_retention",
            Self::LetterDecided(_) => "letter_decided",
            Self::Letter { letter, .. } => letter.fate.name(),
        }
    }

    /// The same reply with the position that the store assigned.
    pub(crate) fn with_position(mut self, seq: u64) -> Self {
        match &mut self {
            Self::Published { publication, .. } => publication.seq = seq,
            Self::Letter { letter, .. } => *letter = letter.with_position(seq).into(),
            Self::NoTransport
            | Self::UnknownOriginal
            | Self::TransportPut { .. }
            | Self::NotDrained { .. }
            | Self::NoLetter
            | Self::LetterCancelled { .. }
            | Self::PastRetention { .. }
            | Self::LetterDecided(_) => {}
        }
        self
    }
}
