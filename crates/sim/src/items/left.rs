//! Items as their rows tell them, in the words of the history. Never judges. Called by `world` at the end, and for reads.

use std::collections::BTreeMap;

use fencepost::ingest::{HistoryPage, SCOPE};
use fencepost_kernel::{
    Row, RowKey, Tenant,
    fence::State,
    item::{self, ItemId, Missing},
    key::Kind,
};
use fencepost_store::{Memory, Store};
use futures::FutureExt;
use std::sync::Arc;

use super::{Items, PARTNERS, names};
use crate::history::items::{Acceptance, ItemsLeft, SentVersion, ShownItem, StayLeft, tag_of};

impl Items {
    /// Whether some arrival waits to be followed up.
    pub(crate) fn any_arrival(rows: &Memory) -> bool {
        !scan(rows, Kind::Arrival).is_empty()
    }

    /// Every item, as its rows tell it.
    pub(crate) fn left(rows: &Memory) -> ItemsLeft {
        let ids: BTreeMap<ItemId, String> = PARTNERS
            .into_iter()
            .flat_map(|tenant| names().map(move |(collection, id)| (tenant, collection, id)))
            .map(|(tenant, collection, id)| {
                (ItemId::new(&Tenant::new(tenant), collection, id), format!("{tenant}/{collection}/{id}"))
            })
            .collect();
        let named = |id: ItemId| ids.get(&id).cloned().unwrap_or_else(|| format!("foreign {id:?}"));
        let mut left = ItemsLeft::default();
        for (key, row) in scan(rows, Kind::Item) {
            let Some(item) = row.record.as_item() else { continue };
            let name = named(key.item_id());
            if let Some(number) = item.quarantine {
                left.open.insert(name.clone(), number);
            }
            if let Some(current) = &item.current {
                let versions = BTreeMap::from([(item.seq, acceptance(current))]);
                left.items.insert(name, ShownItem { seq: item.seq, versions });
            }
        }
        for (key, row) in scan(rows, Kind::ItemVersion) {
            let Some(replaced) = row.record.as_replaced() else { continue };
            let (name, number) = (named(key.item_id()), key.version_number());
            let versions = &mut left.items.entry(name.clone()).or_default().versions;
            if versions.insert(number, acceptance(&replaced.accepted)).is_some() {
                left.doubled.push(format!("{name} {number}"));
            }
        }
        for (key, row) in scan(rows, Kind::Quarantine) {
            let Some(stay) = row.record.as_quarantined() else { continue };
            let tenant = stay.tenant.as_str();
            let told = StayLeft {
                number: stay.number,
                version: stay.version.as_ref().and_then(|version| SentVersion::parse(&version.to_string())),
                tag: tag_of(&String::from_utf8_lossy(&stay.content)),
                id: stay.from.correlation_id.to_string(),
                missing: stay.unresolved.iter().map(|missed| format!("{tenant}/{}", missing(missed))).collect(),
                resolved: stay.resolved.as_ref().map(|resolved| resolved.how.name()),
            };
            left.stays.insert(named(key.item_id()), told);
        }
        for (_, row) in scan(rows, Kind::Waiting) {
            let Some(waiting) = row.record.as_waiting() else { continue };
            left.waiting.insert((named(waiting.missing), named(waiting.item)));
        }
        left.arrivals = scan(rows, Kind::Arrival).iter().map(|(key, _)| named(key.item_id())).collect();
        for (_, row) in scan(rows, Kind::Fence) {
            let Some(fence) = row.record.as_fence().filter(|fence| *fence.scope == *SCOPE) else { continue };
            let id = fence.fields.first().map(|(_, id)| id.clone()).unwrap_or_default();
            let text = match &fence.state {
                State::Sealed { receipt, .. } => String::from_utf8_lossy(&receipt.body).into_owned(),
                state => format!("{state:?}"),
            };
            left.answers.insert(format!("{}/{id}", fence.tenant), text);
        }
        left
    }
}

fn scan(rows: &Memory, kind: Kind) -> Vec<(RowKey, Arc<Row>)> {
    rows.scan(kind, None, usize::MAX).now_or_never().and_then(Result::ok).unwrap_or_default()
}

/// Collection and source id.
pub(super) fn missing(missing: &Missing) -> String {
    format!("{}/{}", missing.collection, missing.source_id)
}

/// A page of an item's history.
pub(super) fn shown(page: &HistoryPage) -> ShownItem {
    let mut versions: BTreeMap<u64, Acceptance> =
        page.replaced.iter().map(|(number, replaced)| (*number, acceptance(&replaced.accepted))).collect();
    // It was read first: a page that was read later may have the same version as a replaced one.
    if let Some(current) = &page.item.current {
        versions.entry(page.item.seq).or_insert_with(|| acceptance(current));
    }
    ShownItem { seq: page.item.seq, versions }
}

fn acceptance(accepted: &item::Accepted) -> Acceptance {
    let content = String::from_utf8_lossy(&accepted.content).into_owned();
    Acceptance {
        version: accepted.version.as_ref().and_then(|version| SentVersion::parse(&version.to_string())),
        tag: tag_of(&content),
        content,
        id: accepted.from.correlation_id.to_string(),
        retired: accepted.retired.as_ref().map(|retired| retired.from.correlation_id.to_string()),
    }
}
