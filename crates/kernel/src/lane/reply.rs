//! The replies to commands about a lane. A refusal is a reply, not an error.
//! Called by `lane::acts`, which makes them; `fencepost` and `wire` read them.

use std::sync::Arc;

use super::{DeadLetter, Lane};

/// The result of a command.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The act was applied.
    OnLane {
        /// The lane afterwards.
        lane: Arc<Lane>,
        /// Whether nothing changed.
        replay: bool,
        /// The dead letter that the act made, if it made one.
        died: Option<Arc<DeadLetter>>,
    },
    /// The lane does not exist, or a poller acknowledged a lane that is not polled.
    NoLane,
    /// The position is not the head of the lane, or an attempt was reported while the lane is blocked.
    NotHead {
        /// The position up to which events are settled.
        settled: u64,
    },
    /// The position is past the lane's end.
    Ahead {
        /// The last position.
        tail: u64,
    },
    /// Another node drives the lane now.
    LaneLost,
}

impl Reply {
    /// The word for this reply in logs, metrics and answers.
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
