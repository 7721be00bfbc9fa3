//! An entry of the audit, and its address.
//! Addresses are in order of time, the newest first, so that a page of the audit is a range.

use crate::{
    fence::HolderTrace,
    key::{Kind, RowKey, Tenant},
    time::Millis,
};

/// An act of an operator that changed something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// The time of the commit.
    pub at: Millis,
    /// The identity of the credential.
    pub by: String,
    /// The operation, such as `pauseLane`.
    pub op: String,
    /// The result, as the word of the decision.
    pub outcome: String,
    /// The thing that the act is about, and the operator's reason.
    pub subject: Subject,
    /// The trace of the request, where it had one.
    pub trace: Option<HolderTrace>,
    /// When the entry is dropped.
    pub expires: Millis,
}

impl AuditEntry {
    pub(crate) fn weight_bytes(&self) -> usize {
        let Self { by, op, outcome, subject: Subject { tenant, on, why }, .. } = self;
        let tenant = tenant.as_ref().map_or(0, |tenant| tenant.as_str().len());
        by.len() + op.len() + outcome.len() + tenant + on.len() + why.as_ref().map_or(0, String::len)
    }
}

/// The thing that a command is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// The tenant whose it is, where it is one's.
    pub tenant: Option<Tenant>,
    /// The fence as SCOPE/KEY, the lane by its name, the dead letter by its id, the policy by its file.
    pub on: String,
    /// The reason that the operator gave.
    pub why: Option<String>,
}

/// All entries begin alike, so that they lie side by side in a store that orders its rows by id.
const PREFIX: [u8; 8] = *b"\0audit\0\0";

impl RowKey {
    /// The key of an entry of the audit. `id` tells entries of one millisecond apart; one node's ids grow.
    pub fn audit(at: Millis, id: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&PREFIX);
        key[8..16].copy_from_slice(&(!at.0).to_be_bytes());
        key[24..].copy_from_slice(&(!id).to_be_bytes());
        Self { kind: Kind::Audit, id: key }
    }

    /// The time and the number that the key of an entry was made of.
    pub fn audit_place(&self) -> (Millis, u64) {
        let number = |from: usize| u64::from_be_bytes(std::array::from_fn(|at| self.id[from + at]));
        (Millis(!number(8)), !number(24))
    }

    /// The bytes that the keys of all entries of the audit begin with.
    pub fn audit_prefix() -> &'static [u8] {
        &PREFIX
    }
}
