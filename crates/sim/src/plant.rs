//! Bugs that are built in on purpose, in the simulated parts only, to show that the auditor would see them.
//! Never touches production code: a plant is a lying store, a lying clock or a lying client.
//! Chosen by the tests and by `--plant`.

use std::str::FromStr;

/// A bug built in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// The client layer swaps in whatever token is current, as if a seal were not checked.
    NoTokenCheck,
    /// The store acknowledges a commit that is not synced yet.
    ReplyBeforeSync,
    /// The engine's clock follows the wall of its callers.
    CallersClock,
    /// A shared store does not compare where a write set has one row: the later of two nodes wins.
    LostUpdate,
    /// The store does not keep the mark of a doubt, as if a told doubt wrote nothing.
    UnmarkedDoubt,
    /// A node that starts after the server's clock was set back goes by that clock.
    NodeBehind,
    /// A commit does not compare the rows that it holds because it found them absent.
    AbsentNotHeld,
    /// After a failover a node goes on reading from the old primary.
    OldPrimaryReads,
    /// The store does not keep the entries of the audit.
    UnauditedAct,
    /// The store does not keep that an outcome was given up.
    UnforgottenAnswer,
    /// The client layer tells an operator that there was a doubt and it is resolved, where there was none.
    ResolvesAnything,
    /// The client layer tells an operator that the same was said before, where it was not.
    ReplaysAnything,
    /// The store acknowledges some appends to a lane and does not keep the entry.
    AppendLost,
    /// The store keeps a lane as it was before its last acknowledgement.
    AckForgotten,
    /// The store keeps a lane as settled one event further than it is.
    SettledAhead,
    /// The store does not keep dead letters.
    LetterForgotten,
    /// The store does not keep pauses of lanes.
    PauseForgotten,
    /// The store does not keep when a failed event is to be tried again.
    WaitForgotten,
    /// The way out says that some events were acknowledged, and never sends them.
    NeverSent,
    /// A node sees no other that drives lanes, and takes theirs.
    TwoDrivers,
    /// The engine's clock runs at twice the speed.
    FastClock,
    /// The client layer sends items as if they had no version: an older one overwrites.
    OlderOverwrites,
    /// The store keeps a stay in quarantine open that a release has ended.
    ReleasedTwice,
    /// The store neither compares nor marks an absent item that another begins to wait for: one that arrives in that moment is
    /// missed.
    ArrivalUnseen,
    /// The store does not keep that an item arrived that others wait for.
    ArrivalForgotten,
    /// The store keeps the items of some requests without their fences.
    TornRequest,
    /// The store does not keep versions of items that others replaced.
    HistoryForgotten,
    /// The client layer sends a dry run as a request.
    TrialWrites,
}

impl Plant {
    pub const ALL: [Self; 28] = [
        Self::NoTokenCheck,
        Self::ReplyBeforeSync,
        Self::CallersClock,
        Self::LostUpdate,
        Self::UnmarkedDoubt,
        Self::NodeBehind,
        Self::AbsentNotHeld,
        Self::OldPrimaryReads,
        Self::UnauditedAct,
        Self::UnforgottenAnswer,
        Self::ResolvesAnything,
        Self::ReplaysAnything,
        Self::AppendLost,
        Self::AckForgotten,
        Self::SettledAhead,
        Self::LetterForgotten,
        Self::PauseForgotten,
        Self::WaitForgotten,
        Self::NeverSent,
        Self::TwoDrivers,
        Self::FastClock,
        Self::OlderOverwrites,
        Self::ReleasedTwice,
        Self::ArrivalUnseen,
        Self::ArrivalForgotten,
        Self::TornRequest,
        Self::HistoryForgotten,
        Self::TrialWrites,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoTokenCheck => "no-token-check",
            Self::ReplyBeforeSync => "reply-before-sync",
            Self::CallersClock => "callers-clock",
            Self::LostUpdate => "lost-update",
            Self::UnmarkedDoubt => "unmarked-doubt",
            Self::NodeBehind => "node-behind",
            Self::AbsentNotHeld => "absent-not-held",
            Self::OldPrimaryReads => "old-primary-reads",
            Self::UnauditedAct => "unaudited-act",
            Self::UnforgottenAnswer => "unforgotten-answer",
            Self::ResolvesAnything => "resolves-anything",
            Self::ReplaysAnything => "replays-anything",
            Self::AppendLost => "append-lost",
            Self::AckForgotten => "ack-forgotten",
            Self::SettledAhead => "settled-ahead",
            Self::LetterForgotten => "letter-forgotten",
            Self::PauseForgotten => "pause-forgotten",
            Self::WaitForgotten => "wait-forgotten",
            Self::NeverSent => "never-sent",
            Self::TwoDrivers => "two-drivers",
            Self::FastClock => "fast-clock",
            Self::OlderOverwrites => "older-overwrites",
            Self::ReleasedTwice => "released-twice",
            Self::ArrivalUnseen => "arrival-unseen",
            Self::ArrivalForgotten => "arrival-forgotten",
            Self::TornRequest => "torn-request",
            Self::HistoryForgotten => "history-forgotten",
            Self::TrialWrites => "trial-writes",
        }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|plant| plant.name() == name).ok_or_else(|| format!("known plants: {}", known()))
    }
}
