//! The rows about items.
//! Never decides: `submit` does.

use std::sync::Arc;

use bytes::Bytes;

use super::{ItemId, ItemVersion, QuarantineId};
use crate::{key::Tenant, time::Millis};

/// An item of a partner: its present version, and what is remembered of it. It is there too, without a version, while another
/// item waits for it or while it is in quarantine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    /// The partner's own id.
    pub source_id: String,
    /// The version that was accepted last; none before the first.
    pub current: Option<Accepted>,
    /// The highest version ever accepted, where the present one has none.
    pub floor: Option<ItemVersion>,
    /// How many versions were accepted. The present one has this number.
    pub seq: u64,
    /// The number of its stay in quarantine, while that is open.
    pub quarantine: Option<u64>,
    /// Whether others wait for it, or once did.
    pub wanted: bool,
}

impl Item {
    /// An item of which nothing is accepted yet.
    pub fn new(tenant: Tenant, collection: Arc<str>, source_id: String) -> Self {
        let (current, floor, seq, quarantine, wanted) = (None, None, 0, None, false);
        Self { tenant, collection, source_id, current, floor, seq, quarantine, wanted }
    }

    pub fn id(&self) -> ItemId {
        ItemId::new(&self.tenant, &self.collection, &self.source_id)
    }

    /// The version that a new one must be above.
    pub fn highest(&self) -> Option<&ItemVersion> {
        self.current.as_ref().and_then(|current| current.version.as_ref()).or(self.floor.as_ref())
    }

    /// Whether others may refer to it.
    pub fn is_active(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.retired.is_none())
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        let own = self.tenant.as_str().len() + self.collection.len() + self.source_id.len();
        own + self.current.as_ref().map_or(0, Accepted::weight_bytes)
            + self.floor.as_ref().map_or(0, ItemVersion::weight_bytes)
    }
}

/// One accepted version of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// None where the sender gave none.
    pub version: Option<ItemVersion>,
    /// The item, as it was sent.
    pub content: Bytes,
    pub from: Sent,
    /// Since when it does not count any more.
    pub retired: Option<Retired>,
}

impl Accepted {
    pub(crate) fn weight_bytes(&self) -> usize {
        self.content.len() + self.from.weight_bytes() + self.version.as_ref().map_or(0, ItemVersion::weight_bytes)
    }
}

/// The request that brought something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub at: Millis,
    /// The identity of the credential.
    pub by: Arc<str>,
    /// The request's correlation id; empty where no request brought it.
    pub correlation_id: Arc<str>,
}

impl Sent {
    pub(crate) fn weight_bytes(&self) -> usize {
        self.by.len() + self.correlation_id.len()
    }
}

/// How an item ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retired {
    pub cause: Retirement,
    pub from: Sent,
}

/// Why an item does not count any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retirement {
    /// Its sender deleted it.
    Deleted,
    /// Its sender cancelled it.
    Cancelled,
    /// It was missing from a complete list.
    Unlisted,
}

impl Retirement {
    /// The item's status on the wire.
    pub fn status(self) -> &'static str {
        match self {
            Self::Deleted | Self::Unlisted => "INACTIVE",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// A version that another one has replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    pub source_id: String,
    pub accepted: Accepted,
    /// When another version took its place.
    pub replaced_at: Millis,
}

/// An item in quarantine because something that it refers to is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    pub source_id: String,
    /// Tells the stays of one item apart: it grows with each.
    pub number: u64,
    pub version: Option<ItemVersion>,
    /// The item, as it was sent last.
    pub content: Bytes,
    /// The request that sent this content.
    pub from: Sent,
    /// When the stay began.
    pub opened: Millis,
    pub unresolved: Vec<Missing>,
    /// How the stay ended; none while it is open.
    pub resolved: Option<StayEnd>,
}

impl Quarantined {
    pub fn id(&self) -> QuarantineId {
        let item = ItemId::new(&self.tenant, &self.collection, &self.source_id);
        QuarantineId { item, number: self.number }
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        let names: usize = self.unresolved.iter().map(|missing| missing.source_id.len() + 64).sum();
        self.content.len() + self.source_id.len() + self.from.weight_bytes() + names
    }
}

/// Something that an item refers to and that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub collection: Arc<str>,
    pub source_id: String,
    /// The word for why that matters, as the collection says it.
    pub reason: Arc<str>,
}

/// How a stay in quarantine ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StayEnd {
    pub how: StayOutcome,
    pub from: Sent,
    /// When the row is dropped.
    pub expires: Millis,
}

/// The act that ended a stay in quarantine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StayOutcome {
    /// The item was sent again and accepted.
    Accepted,
    /// It was released: by its sender, or because what was missing arrived.
    Released,
    /// Its sender deleted or cancelled it.
    Withdrawn,
}

impl StayOutcome {
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Released, Self::Withdrawn];

    /// The word for it on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "ACCEPTED",
            Self::Released => "RELEASED",
            Self::Withdrawn => "WITHDRAWN",
        }
    }
}

/// An item in quarantine waits for another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub tenant: Tenant,
    pub missing: ItemId,
    pub item: ItemId,
}

/// An item has arrived that others may wait for: they are to be looked at again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub tenant: Tenant,
    pub collection: Arc<str>,
    pub source_id: String,
    /// When it arrived; it is due from then on.
    pub at: Millis,
}
