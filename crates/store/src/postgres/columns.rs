//! Turns rows into columns: one array per column, so that any number of rows is one statement.
//! Never reads back the columns that people read: they are derived from the record here, beside the stored bytes.
//! Called wherever rows are written.

use std::borrow::Cow;

use fencepost_kernel::{
    RowKey,
    fence::{Fence, State, scope::OnLapse},
    key::Kind,
    row::{CommitId, Record},
};
use serde_json::Value;
use tokio_postgres::types::ToSql;

use super::{
    about::{about, readable},
    stamp::Stamp,
};
use crate::codec;

/// The parts of each expiry index: on a database of many machines, no single machine then takes all new entries.
pub(super) const BUCKETS: u8 = 8;

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// A row to write, if the stored row still has the expected revision.
#[derive(Clone, Copy)]
pub(super) struct Put<'a> {
    pub(super) key: RowKey,
    pub(super) expect: Option<CommitId>,
    pub(super) revision: CommitId,
    pub(super) record: &'a Record,
}

/// Addresses of rows, by table.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) fences: Vec<Vec<u8>>,
    pub(super) ids: Vec<Vec<u8>>,
    pub(super) kinds: Vec<i16>,
}

impl<'k> FromIterator<&'k RowKey> for Keys {
    fn from_iter<I: IntoIterator<Item = &'k RowKey>>(keys: I) -> Self {
        let mut own = Self::default();
        for key in keys {
            if key.kind == Kind::Fence {
                own.fences.push(key.id.to_vec());
            } else {
                own.ids.push(key.id.to_vec());
                own.kinds.push(key.kind as i16);
            }
        }
        own
    }
}

#[derive(Default)]
struct Fences<'a> {
    key: Vec<Vec<u8>>,
    expect: Vec<Option<i64>>,
    bucket: Vec<i16>,
    tenant: Vec<Cow<'a, str>>,
    scope: Vec<Cow<'a, str>>,
    fields: Vec<String>,
    seq: Vec<Option<i64>>,
    state: Vec<&'static str>,
    on_lapse: Vec<Option<&'static str>>,
    token: Vec<i64>,
    attempt: Vec<i64>,
    effect_id: Vec<Option<Cow<'a, str>>>,
    source_kind: Vec<Option<Cow<'a, str>>>,
    source_id: Vec<Option<Cow<'a, str>>>,
    first_seen: Vec<Stamp>,
    lease_expires: Vec<Option<Stamp>>,
    sealed_at: Vec<Option<Stamp>>,
    released_at: Vec<Option<Stamp>>,
    expires_at: Vec<Option<Stamp>>,
    due_at: Vec<Option<Stamp>>,
    revision: Vec<i64>,
    record: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Rows {
    id: Vec<Vec<u8>>,
    kind: Vec<i16>,
    expect: Vec<Option<i64>>,
    bucket: Vec<i16>,
    about: Vec<String>,
    expires_at: Vec<Option<Stamp>>,
    due_at: Vec<Option<Stamp>>,
    revision: Vec<i64>,
    record: Vec<Vec<u8>>,
}

/// Rows to be written, by table.
#[derive(Default)]
pub(super) struct Columns<'a> {
    fences: Fences<'a>,
    rows: Rows,
}

impl<'a> Columns<'a> {
    /// The columns of `puts`, their bytes in the given row format.
    pub(super) fn new(puts: impl IntoIterator<Item = Put<'a>>, format: u8) -> Self {
        let mut own = Self::default();
        for put in puts {
            let bytes = codec::encode(&put.key, put.record, put.revision, format);
            match put.record.as_fence() {
                Some(fence) => own.fences.add(&put, fence, bytes),
                None => own.rows.add(&put, about(&put.key, put.record), bytes),
            }
        }
        own
    }

    pub(super) fn len(&self) -> usize {
        self.fences.key.len() + self.rows.id.len()
    }

    pub(super) fn has_fences(&self) -> bool {
        !self.fences.key.is_empty()
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.id.is_empty()
    }

    /// Whether no row but fences is expected to be there.
    pub(super) fn has_only_new_rows(&self) -> bool {
        self.rows.expect.iter().all(Option::is_none)
    }

    /// The parameters of the statements that write fences, in their order.
    pub(super) fn fences<'p>(&'p self, more: &[Param<'p>]) -> Vec<Param<'p>> {
        let own = &self.fences;
        let mut params: Vec<Param<'p>> = vec![
            &own.key,
            &own.expect,
            &own.bucket,
            &own.tenant,
            &own.scope,
            &own.fields,
            &own.seq,
            &own.state,
            &own.on_lapse,
            &own.token,
            &own.attempt,
            &own.effect_id,
            &own.source_kind,
            &own.source_id,
            &own.first_seen,
            &own.lease_expires,
            &own.sealed_at,
            &own.released_at,
            &own.expires_at,
            &own.due_at,
            &own.revision,
            &own.record,
        ];
        params.extend_from_slice(more);
        params
    }

    /// The parameters of the statements that write the other rows, in their order.
    pub(super) fn rows<'p>(&'p self, more: &[Param<'p>]) -> Vec<Param<'p>> {
        let own = &self.rows;
        let mut params: Vec<Param<'p>> = vec![
            &own.id,
            &own.kind,
            &own.expect,
            &own.bucket,
            &own.about,
            &own.expires_at,
            &own.due_at,
            &own.revision,
            &own.record,
        ];
        params.extend_from_slice(more);
        params
    }
}

impl<'a> Fences<'a> {
    fn add(&mut self, put: &Put<'a>, fence: &'a Fence, bytes: Vec<u8>) {
        let (state, at) = match &fence.state {
            State::Pending { .. } => ("pending", None),
            State::Sealed { at, .. } => ("sealed", Some(Stamp(*at))),
            State::Released { at, .. } => ("released", Some(Stamp(*at))),
        };
        let (lease, on_lapse) = match &fence.state {
            State::Pending { lease_expires, on_lapse: OnLapse::Hold, .. } => {
                (Some(Stamp(*lease_expires)), Some("hold"))
            }
            State::Pending { lease_expires, .. } => (Some(Stamp(*lease_expires)), Some("recover")),
            _ => (None, None),
        };
        let effect_id = match &fence.state {
            State::Sealed { receipt, .. } => Some(readable(&receipt.effect_id)),
            _ => None,
        };
        let fields = fence.fields.iter().map(|(name, value)| (readable(name).into_owned(), readable(value).into()));
        self.key.push(put.key.id.to_vec());
        self.expect.push(put.expect.map(|CommitId(id)| id as i64));
        self.bucket.push(bucket(&put.key));
        self.tenant.push(readable(fence.tenant.as_str()));
        self.scope.push(readable(&fence.scope));
        self.fields.push(Value::Object(fields.collect()).to_string());
        self.seq.push(fence.seq.map(|seq| seq as i64));
        self.state.push(state);
        self.on_lapse.push(on_lapse);
        self.token.push(fence.token.0 as i64);
        self.attempt.push(fence.attempt.into());
        self.effect_id.push(effect_id);
        self.source_kind.push(fence.source.as_ref().map(|source| readable(&source.kind)));
        self.source_id.push(fence.source.as_ref().map(|source| readable(&source.id)));
        self.first_seen.push(Stamp(fence.first_seen));
        self.lease_expires.push(lease);
        self.sealed_at.push(at.filter(|_| state == "sealed"));
        self.released_at.push(at.filter(|_| state == "released"));
        self.expires_at.push(fence.expires_at().map(Stamp));
        self.due_at.push(fence.due_at().map(Stamp));
        self.revision.push(put.revision.0 as i64);
        self.record.push(bytes);
    }
}

impl Rows {
    fn add(&mut self, put: &Put<'_>, about: Value, bytes: Vec<u8>) {
        self.id.push(put.key.id.to_vec());
        self.kind.push(put.key.kind as i16);
        self.expect.push(put.expect.map(|CommitId(id)| id as i64));
        self.bucket.push(bucket(&put.key));
        self.about.push(about.to_string());
        self.expires_at.push(put.record.expires_at().map(Stamp));
        self.due_at.push(put.record.due_at().map(Stamp));
        self.revision.push(put.revision.0 as i64);
        self.record.push(bytes);
    }
}

// The last byte: the first ones already order the table.
fn bucket(key: &RowKey) -> i16 {
    i16::from(key.id[31] % BUCKETS)
}
