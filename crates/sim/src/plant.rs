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
}

impl Plant {
    pub const ALL: [Self; 10] = [
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
