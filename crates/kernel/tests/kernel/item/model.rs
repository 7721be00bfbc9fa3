//! The promises to partners about their items, in plain maps: one item at a time, with no rows, revisions or loading.
//! Shares no code with the rules. Judged against them by `play`.

use std::collections::BTreeMap;

/// An item, by its place in the list of names.
pub type Name = usize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    Number(u8),
    Word(u8),
}

impl Version {
    fn comparable(self, other: Self) -> bool {
        matches!((self, other), (Self::Number(_), Self::Number(_)) | (Self::Word(_), Self::Word(_)))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Sent {
    pub version: Option<Version>,
    pub content: String,
    pub needs: Vec<Name>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Gone {
    Deleted,
    Cancelled,
    Unlisted,
}

/// A stay in quarantine, the nth of its item.
#[derive(Clone, PartialEq, Debug)]
pub struct Stay {
    pub nth: u64,
    pub sent: Sent,
    pub missing: Vec<Name>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Known {
    pub accepted: Vec<Sent>,
    pub gone: Option<Gone>,
    pub stay: Option<Stay>,
    pub stays: u64,
    /// Whether the end of the last stay can still be read.
    pub remembered: bool,
}

#[derive(Clone, Debug)]
pub enum Change {
    Put(Name, Sent),
    Retire(Name, Gone),
    Release(Name, u64, Sent),
    Refuse,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    Accepted { reactivated: bool },
    Replay { differs: bool },
    Quarantined { nth: u64, missing: Vec<Name> },
    Rejected,
    Retired { again: bool, withdrawn: bool },
    Over,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    pub items: BTreeMap<Name, Known>,
}

impl Model {
    pub fn active(&self, name: Name) -> bool {
        self.items.get(&name).is_some_and(|known| !known.accepted.is_empty() && known.gone.is_none())
    }

    fn at(&mut self, name: Name) -> &mut Known {
        self.items.entry(name).or_default()
    }

    /// None where there is no such item.
    pub fn apply(&mut self, change: &Change) -> Option<Said> {
        match change {
            Change::Put(name, sent) => Some(self.put(*name, sent)),
            Change::Retire(name, gone) => self.retire(*name, *gone),
            Change::Release(name, nth, sent) => self.release(*name, *nth, sent),
            Change::Refuse => Some(Said::Rejected),
        }
    }

    /// The verdicts of a whole command; none where one of its items is unknown, and then nothing changes.
    pub fn command(&mut self, changes: &[Change]) -> Option<Vec<Said>> {
        let mut after = self.clone();
        let said = changes.iter().map(|change| after.apply(change)).collect::<Option<Vec<Said>>>()?;
        *self = after;
        Some(said)
    }

    fn put(&mut self, name: Name, sent: &Sent) -> Said {
        let missing: Vec<Name> = sent.needs.iter().copied().filter(|needed| !self.active(*needed)).collect();
        let missing = missing.iter().enumerate().filter(|(at, name)| !missing[..*at].contains(name));
        let missing: Vec<Name> = missing.map(|(_, name)| *name).collect();
        let known = self.at(name);
        let last = known.accepted.last();
        let reactivated = known.gone == Some(Gone::Unlisted) && last.is_some_and(|last| last.version == sent.version);
        let highest = known.accepted.iter().filter_map(|sent| sent.version).max();
        if let (Some(version), Some(highest)) = (sent.version, highest) {
            if !version.comparable(highest) {
                return Said::Rejected;
            }
            if version <= highest && !reactivated {
                let present = last.filter(|last| last.version == sent.version);
                return Said::Replay { differs: present.is_some_and(|last| last.content != sent.content) };
            }
        }
        let waiting = known.stay.as_ref().and_then(|stay| stay.sent.version);
        let mut lower = false;
        if let (Some(version), Some(waiting)) = (sent.version, waiting) {
            if !version.comparable(waiting) {
                return Said::Rejected;
            }
            lower = version < waiting;
        }
        if missing.is_empty() {
            known.accepted.push(sent.clone());
            known.gone = None;
            if !lower {
                known.end_stay();
            }
            return Said::Accepted { reactivated };
        }
        let nth = match &known.stay {
            Some(stay) => stay.nth,
            None => known.stays + 1,
        };
        if !lower {
            known.stays = nth;
            known.stay = Some(Stay { nth, sent: sent.clone(), missing: missing.clone() });
        }
        Said::Quarantined { nth, missing }
    }

    fn retire(&mut self, name: Name, gone: Gone) -> Option<Said> {
        let known = self.at(name);
        let (waited, withdrawn) = (known.stay.is_some(), known.accepted.is_empty());
        if withdrawn && !waited {
            return None;
        }
        let stays = matches!(
            (known.gone, gone),
            (Some(Gone::Deleted | Gone::Cancelled), _) | (Some(Gone::Unlisted), Gone::Unlisted)
        );
        if !stays && !withdrawn {
            known.gone = Some(gone);
        }
        known.end_stay();
        Some(Said::Retired { again: stays && !waited, withdrawn })
    }

    fn release(&mut self, name: Name, nth: u64, sent: &Sent) -> Option<Said> {
        let known = self.at(name);
        match &known.stay {
            None if !known.remembered => None,
            Some(stay) if stay.nth == nth && stay.sent == *sent => {
                let said = self.put(name, sent);
                if let Said::Replay { .. } = said {
                    self.at(name).end_stay();
                }
                Some(said)
            }
            Some(stay) if stay.nth == nth => Some(Said::Quarantined { nth, missing: stay.missing.clone() }),
            _ => Some(Said::Over),
        }
    }

    /// The ends of stays are forgotten.
    pub fn forget(&mut self) {
        self.items.values_mut().for_each(|known| known.remembered &= known.stay.is_some());
    }
}

impl Known {
    fn end_stay(&mut self) {
        self.remembered |= self.stay.take().is_some();
    }
}
