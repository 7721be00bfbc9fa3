//! What a caller is told about a lane.
//! Made by `lane::acts`.

use std::sync::Arc;

use super::{DeadLetter, Lane};

/// What a caller is told. A refusal is a reply, not an error.
#[derive(Clone, Debug)]
pub enum Reply {
    /// How the lane stands after what happened to it.
    OnLane {
        /// The lane.
        lane: Arc<Lane>,
        /// Whether nothing changed.
        replay: bool,
        /// The letter that came of it.
        died: Option<Arc<DeadLetter>>,
    },
    /// There is no such lane, or none at that position.
    NoLane,
    /// Not the head of the lane.
    NotHead {
        /// Everything up to here is settled.
        settled: u64,
    },
    /// The position is past the lane's end.
    Ahead {
        /// The last one.
        tail: u64,
    },
    /// Another node drives the lane by now.
    LaneLost,
}

impl Reply {
    /// The word for the decision, in logs, metrics and answers.
    pub fn decision(&self) -> &'static str {
        match self {
            Self::OnLane { .. } => "lane",
            Self::NoLane => "no_lane",
            Self::NotHead { .. } => "not_head",
            Self::Ahead { .. } => "ahead",
            Self::LaneLost => "lane_lost",
        }
    }
}
