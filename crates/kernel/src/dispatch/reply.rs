//! What a caller is told about events for a warehouse.
//! Made by `dispatch`.

use std::sync::Arc;

use super::Publication;
use crate::{
    lane::{DeadLetter, LaneId},
    time::Millis,
};

/// What a caller is told. A refusal is a reply, not an error.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The event is in its lane.
    Published {
        /// Where. Its position is 0 until the store has given one.
        publication: Publication,
        /// Until when a repetition is known as one.
        expires: Millis,
    },
    /// The warehouse has no transport.
    NoRoute,
    /// What it cancels was never published.
    UnknownOriginal,
    /// The transport is as asked for.
    Routed {
        /// Whether it already was.
        replay: bool,
    },
    /// Events are still on their way over the transport that is to be left.
    NotDrained {
        /// The lane.
        lane: LaneId,
        /// Its last position.
        tail: u64,
        /// Everything up to here is settled.
        settled: u64,
    },
    /// There is no such letter.
    NoLetter,
    /// The letter's event was cancelled.
    LetterCancelled {
        /// By which event.
        by: String,
    },
    /// The receiver no longer remembers whether it has seen the event.
    PastRetention {
        /// How long it remembers.
        receiver_retain_ms: u64,
    },
    /// Somebody has decided otherwise.
    LetterDecided(Arc<DeadLetter>),
    /// What became of the letter.
    Letter {
        /// The letter.
        letter: Arc<DeadLetter>,
        /// Whether it already was so.
        replay: bool,
    },
}

impl Reply {
    /// The word for the decision, in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published",
            Self::NoRoute => "no_transport",
            Self::UnknownOriginal => "unknown_original",
            Self::Routed { .. } => "routed",
            Self::NotDrained { .. } => "not_drained",
            Self::NoLetter => "no_letter",
            Self::LetterCancelled { .. } => "letter_cancelled",
            Self::PastRetention { .. } => "past_retention",
            Self::LetterDecided(_) => "letter_decided",
            Self::Letter { letter, .. } => letter.fate.name(),
        }
    }

    /// The same reply with the position that the store has given.
    pub(crate) fn with_position(mut self, seq: u64) -> Self {
        match &mut self {
            Self::Published { publication, .. } => publication.seq = seq,
            Self::Letter { letter, .. } => *letter = letter.with_position(seq).into(),
            Self::NoRoute
            | Self::UnknownOriginal
            | Self::Routed { .. }
            | Self::NotDrained { .. }
            | Self::NoLetter
            | Self::LetterCancelled { .. }
            | Self::PastRetention { .. }
            | Self::LetterDecided(_) => {}
        }
        self
    }
}
