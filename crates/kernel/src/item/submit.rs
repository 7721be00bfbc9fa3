//! Decides what becomes of items that were sent, retired or released, and of what waits for them.
//! Never reads content but to compare it, and never looks at a row that its footprint does not name.
//! Called only from `item`.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Accepted, Arrival, Change, ChangeVerdict, Item, ItemFault, ItemId, ItemReference, Missing, Put, QuarantineId,
    Quarantined, Record, Replaced, Reply, Retired, Retirement, Sent, Settle, StayEnd, StayOutcome, Submit, Waiting,
    item_of, quarantined_of,
};
use crate::{
    fence::{self, Receipt, seal_claimed},
    json,
    key::RowKey,
    law::{self, Decision},
    row::{self, Rows, write},
    time::Millis,
};

pub(crate) fn footprint(submit: &Submit, add: &mut impl FnMut(RowKey)) {
    if let Some(claim) = &submit.claim {
        add(RowKey::fence(claim.target.key));
    }
    for change in &submit.changes {
        match change {
            Change::Put(put) => footprint_of_put(put, add),
            Change::Release { put, .. } => {
                footprint_of_put(put, add);
                add(RowKey::quarantine(put.item));
            }
            Change::Retire { item, .. } => add(RowKey::item(*item)),
            Change::Refuse { .. } => {}
        }
    }
}

fn footprint_of_put(put: &Put, add: &mut impl FnMut(RowKey)) {
    add(RowKey::item(put.item));
    put.references.iter().for_each(|reference| add(RowKey::item(reference.item)));
}

/// Names the rows that an item's row leads to. Those of a quarantine are looked at only where there may be one.
pub(crate) fn follow(submit: &Submit, rows: &impl Rows, add: &mut impl FnMut(RowKey)) {
    // An item that is active now may be retired before a later change of the same command refers to it.
    let retired: BTreeSet<ItemId> = submit.changes.iter().filter_map(retired_by).collect();
    let mut changed: BTreeMap<ItemId, u64> = BTreeMap::new();
    for change in &submit.changes {
        let (item, references): (ItemId, &[ItemReference]) = match change {
            Change::Put(put) | Change::Release { put, .. } => (put.item, &put.references),
            Change::Retire { item, .. } => (*item, &[]),
            Change::Refuse { .. } => continue,
        };
        let known = item_of(rows, item);
        let mut may_wait = known.is_some_and(|known| known.quarantine.is_some());
        let counts = |item: ItemId| is_active(item_of(rows, item)) && !retired.contains(&item);
        for reference in references.iter().filter(|reference| !counts(reference.item)) {
            add(RowKey::waiting(reference.item, item));
            may_wait = true;
        }
        if may_wait {
            add(RowKey::quarantine(item));
        }
        // Each further change of an item in this command may replace the version that the one before it makes.
        let before = changed.entry(item).or_insert(0);
        if *before > 0 || known.is_some_and(|known| known.current.is_some()) {
            add(RowKey::item_version(item, known.map_or(0, |known| known.seq) + *before));
        }
        *before += 1;
        if known.is_some_and(|known| known.wanted) {
            add(RowKey::arrival(item));
        }
    }
}

fn retired_by(change: &Change) -> Option<ItemId> {
    if let Change::Retire { item, .. } = change { Some(*item) } else { None }
}

pub(crate) fn submit(submit: &Submit, rows: &impl Rows, now: Millis) -> Decision {
    let mut decision = match &submit.claim {
        None => Decision::reply(law::Reply::Done),
        Some(claim) => {
            let claimed = fence::claim(claim, rows, now);
            let law::Reply::Fence(fence::Reply::New(_)) = claimed.reply else { return claimed };
            claimed
        }
    };
    let from = Sent { at: now, by: submit.by.clone(), correlation_id: submit.correlation_id.clone() };
    let mut draft = Draft { submit, rows, from, puts: BTreeMap::new(), drops: BTreeSet::new(), held: BTreeMap::new() };
    let mut verdicts = Vec::with_capacity(submit.changes.len());
    for change in &submit.changes {
        let Some(verdict) = draft.change(change) else { return Decision::reply(Reply::NoSuchItem) };
        verdicts.push(verdict);
    }
    let Draft { puts, drops, held, .. } = draft;
    let left_alone = |key: &RowKey| !puts.contains_key(key) && !drops.contains(key);
    decision.also.held.extend(held.into_iter().filter(|(key, _)| left_alone(key)));
    decision.also.drops.extend(drops);
    decision.writes.extend(puts.into_iter().map(|(key, record)| write(rows, key, Some(record.into()))));
    let answer = (submit.answer)(submit, &verdicts);
    let receipt = || Receipt { effect_id: summary(submit, &verdicts), body: answer.clone() };
    let expires =
        submit.claim.as_ref().map(|claim| seal_claimed(&mut decision, receipt(), claim.target.scope.retain_ms, now));
    decision.reply = Reply::Submitted { verdicts: verdicts.into(), answer, expires }.into();
    decision
}

// Counts the verdicts, for a person who asks what a request did.
fn summary(submit: &Submit, verdicts: &[ChangeVerdict]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in verdicts {
        *counts.entry(verdict.status()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    format!("{}: {}", submit.collection, counts.join(", "))
}

/// Ends the follow-up of an arrival, unless the item has arrived again since: then there may be new ones that wait.
pub(super) fn settle(settle: &Settle, rows: &impl Rows) -> Decision {
    let key = RowKey::arrival(settle.item);
    if rows.row(&key).is_none_or(|row| row.revision != settle.arrived) {
        return Decision::reply(Reply::Settled);
    }
    let mut writes = vec![write(rows, key, None)];
    // Nothing can begin to wait for an item that is there. For one that has gone again, something may.
    if let Some(item) = item_of(rows, settle.item).filter(|item| item.wanted && item.is_active()) {
        let item = Item { wanted: false, ..Item::clone(item) };
        writes.push(write(rows, RowKey::item(settle.item), Some(Record::Item(item.into()).into())));
    }
    Decision::new(writes, Reply::Settled)
}

/// Rows as the changes so far leave them.
struct Draft<'s, R> {
    submit: &'s Submit,
    rows: &'s R,
    from: Sent,
    puts: BTreeMap<RowKey, Record>,
    drops: BTreeSet<RowKey>,
    /// Rows that a verdict rests on and leaves alone.
    held: BTreeMap<RowKey, Option<row::CommitId>>,
}

impl<R: Rows> Draft<'_, R> {
    fn item(&self, item: ItemId) -> Option<&Arc<Item>> {
        if let Some(Record::Item(item)) = self.puts.get(&RowKey::item(item)) {
            return Some(item);
        }
        item_of(self.rows, item)
    }

    fn quarantined(&self, item: ItemId) -> Option<&Arc<Quarantined>> {
        if let Some(Record::Quarantined(quarantined)) = self.puts.get(&RowKey::quarantine(item)) {
            return Some(quarantined);
        }
        quarantined_of(self.rows, item)
    }

    // The item's row says whether there is one: without, the row of the quarantine need not be loaded.
    fn open_quarantine(&self, item: ItemId) -> Option<Arc<Quarantined>> {
        self.item(item)?.quarantine?;
        self.quarantined(item).filter(|quarantined| quarantined.resolved.is_none()).cloned()
    }

    // None where there is nothing to change.
    fn change(&mut self, change: &Change) -> Option<ChangeVerdict> {
        match change {
            Change::Put(put) => Some(self.put(put, &self.from.clone(), StayOutcome::Accepted)),
            Change::Refuse { faults, .. } => Some(ChangeVerdict::Rejected(faults.clone())),
            Change::Retire { item, cause, .. } => self.retire(*item, *cause),
            Change::Release { quarantine, put } => self.release(*quarantine, put),
        }
    }

    fn put(&mut self, put: &Put, from: &Sent, how: StayOutcome) -> ChangeVerdict {
        let known = self.item(put.item).cloned();
        let reactivated = known.as_ref().is_some_and(|known| returns(put, known));
        // INVARIANT item-order: versions compare with the accepted ones only, and an accepted version is never replaced by one that
        // is not above it.
        if let Some((version, known)) = put.version.as_ref().zip(known.as_ref())
            && let Some(highest) = known.highest()
        {
            match version.order(highest) {
                None => return mixed(version, highest, "accepted"),
                Some(order) if order.is_gt() || reactivated => {}
                Some(order) => {
                    let present = known.current.as_ref().filter(|current| current.version.is_some() && order.is_eq());
                    let differs = present.is_some_and(|present| !same(&present.content, &put.content));
                    return ChangeVerdict::Replay { item: put.item, differs };
                }
            }
        }
        let open = self.open_quarantine(put.item);
        let waiting = open.as_ref().and_then(|open| open.version.as_ref()).zip(put.version.as_ref());
        let older = match waiting.map(|(waiting, version)| (version.order(waiting), version, waiting)) {
            Some((None, version, waiting)) => return mixed(version, waiting, "quarantined"),
            Some((Some(order), ..)) => order.is_lt(),
            None => false,
        };
        let unresolved = self.unresolved(&put.references);
        // A higher version that waits is neither replaced nor resolved by a lower one.
        let open_and_older = open.as_ref().filter(|_| older);
        match (unresolved.is_empty(), open_and_older) {
            (true, _) => {
                self.accept(put, known.as_deref(), from);
                match open {
                    // It stays only as long as it is the higher one.
                    Some(_) if older => self.hold(RowKey::quarantine(put.item)),
                    Some(open) => self.resolve(&open, how),
                    None => {}
                }
                ChangeVerdict::Accepted { item: put.item, reactivated }
            }
            (false, Some(open)) => {
                ChangeVerdict::Quarantined { quarantine: open.id(), unresolved: missing(&unresolved) }
            }
            (false, None) => self.quarantine(put, known.as_deref(), open.as_deref(), &unresolved, from),
        }
    }

    // The commit stands only while the row is as it was read. One that the command itself writes is compared anyway.
    fn hold(&mut self, key: RowKey) {
        self.held.insert(key, self.rows.row(&key).map(|row| row.revision));
    }

    // The references that do not count now. Every row that was looked at stays as it is until the commit.
    fn unresolved<'p>(&mut self, references: &'p [ItemReference]) -> Vec<&'p ItemReference> {
        let mut unresolved: Vec<&ItemReference> = Vec::new();
        for reference in references {
            let key = RowKey::item(reference.item);
            if is_active(self.item(reference.item)) {
                self.hold(key);
            } else if !unresolved.iter().any(|known| known.item == reference.item) {
                unresolved.push(reference);
            }
        }
        unresolved
    }

    fn accept(&mut self, put: &Put, known: Option<&Item>, from: &Sent) {
        let mut item = known.cloned().unwrap_or_else(|| self.new_item(&put.collection, &put.source_id));
        let was_active = item.is_active();
        let floor = if put.version.is_none() { item.highest().cloned() } else { None };
        let accepted = Accepted {
            version: put.version.clone(),
            content: put.content.clone(),
            from: Sent { at: self.from.at, ..from.clone() },
            retired: None,
        };
        if let Some(accepted) = item.current.replace(accepted) {
            let replaced = Replaced {
                tenant: item.tenant.clone(),
                collection: item.collection.clone(),
                source_id: item.source_id.clone(),
                accepted,
                replaced_at: self.from.at,
            };
            self.puts.insert(RowKey::item_version(put.item, item.seq), Record::Replaced(replaced.into()));
        }
        (item.floor, item.seq) = (floor, item.seq + 1);
        // INVARIANT no-missed-arrival: the row that makes others be looked at again is written in the commit of the arrival.
        if item.wanted && !was_active && self.submit.auto_release {
            let arrival = Arrival {
                tenant: item.tenant.clone(),
                collection: item.collection.clone(),
                source_id: item.source_id.clone(),
                at: self.from.at,
            };
            self.puts.insert(RowKey::arrival(put.item), Record::Arrival(arrival.into()));
        }
        self.puts.insert(RowKey::item(put.item), Record::Item(item.into()));
    }

    // INVARIANT one-quarantine: an item has one row for its stay, so it has one open stay at most.
    fn quarantine(
        &mut self,
        put: &Put,
        known: Option<&Item>,
        open: Option<&Quarantined>,
        unresolved: &[&ItemReference],
        from: &Sent,
    ) -> ChangeVerdict {
        let last = self.quarantined(put.item).map(|last| last.number);
        let number = match open {
            Some(open) => open.number,
            None => last.map_or(0, |last| last.saturating_add(1)).max(self.from.at.0),
        };
        for old in open.into_iter().flat_map(|open| &open.unresolved) {
            let tenant = &self.submit.tenant;
            let key = RowKey::waiting(ItemId::new(tenant, &old.collection, &old.source_id), put.item);
            self.puts.remove(&key);
            self.drops.insert(key);
        }
        for reference in unresolved {
            self.want(reference);
            let key = RowKey::waiting(reference.item, put.item);
            self.drops.remove(&key);
            if self.rows.row(&key).is_some() {
                // It says all there is to say, as long as it is there: an acceptance that comes between drops it.
                self.hold(key);
            } else {
                let tenant = self.submit.tenant.clone();
                let waiting = Waiting { tenant, missing: reference.item, item: put.item };
                self.puts.insert(key, Record::Waiting(waiting.into()));
            }
        }
        let quarantined = Quarantined {
            tenant: self.submit.tenant.clone(),
            collection: put.collection.clone(),
            source_id: put.source_id.clone(),
            number,
            version: put.version.clone(),
            content: put.content.clone(),
            from: from.clone(),
            opened: open.map_or(self.from.at, |open| open.opened),
            unresolved: missing(unresolved),
            resolved: None,
        };
        let (quarantine, unresolved) = (quarantined.id(), quarantined.unresolved.clone());
        self.puts.insert(RowKey::quarantine(put.item), Record::Quarantined(quarantined.into()));
        if known.and_then(|known| known.quarantine) != Some(number) {
            // Read again: an item may refer to itself.
            let known = self.item(put.item).map(|known| Item::clone(known));
            let mut item = known.unwrap_or_else(|| self.new_item(&put.collection, &put.source_id));
            item.quarantine = Some(number);
            self.puts.insert(RowKey::item(put.item), Record::Item(item.into()));
        }
        ChangeVerdict::Quarantined { quarantine, unresolved }
    }

    // Marks what is missing, so that its arrival sees that something waits, and so that the two commits cannot pass each other
    // unseen: a row that is absent cannot be held on every store.
    fn want(&mut self, reference: &ItemReference) {
        let key = RowKey::item(reference.item);
        match self.item(reference.item) {
            Some(item) if item.wanted => self.hold(key),
            known => {
                let Missing { collection, source_id, .. } = &reference.missing;
                let known = known.map(|known| Item::clone(known));
                let mut item = known.unwrap_or_else(|| self.new_item(collection, source_id));
                item.wanted = true;
                self.puts.insert(key, Record::Item(item.into()));
            }
        }
    }

    fn resolve(&mut self, open: &Quarantined, how: StayOutcome) {
        let item = open.id().item;
        for old in &open.unresolved {
            let key = RowKey::waiting(ItemId::new(&open.tenant, &old.collection, &old.source_id), item);
            self.puts.remove(&key);
            self.drops.insert(key);
        }
        let expires = self.from.at.plus(self.submit.quarantine_retain_ms);
        let resolved = Some(StayEnd { how, from: self.from.clone(), expires });
        let quarantined = Quarantined { resolved, ..open.clone() };
        self.puts.insert(RowKey::quarantine(item), Record::Quarantined(quarantined.into()));
        if let Some(known) = self.item(item).filter(|known| known.quarantine.is_some()) {
            let known = Item { quarantine: None, ..Item::clone(known) };
            self.puts.insert(RowKey::item(item), Record::Item(known.into()));
        }
    }

    fn release(&mut self, quarantine: QuarantineId, put: &Put) -> Option<ChangeVerdict> {
        let row = self.quarantined(put.item).cloned()?;
        if row.resolved.is_some() || row.number != quarantine.number {
            return Some(ChangeVerdict::AlreadyResolved { quarantine });
        }
        if row.content != put.content {
            return Some(ChangeVerdict::Resent { quarantine, unresolved: row.unresolved.clone() });
        }
        let verdict = self.put(put, &row.from, StayOutcome::Released);
        if let ChangeVerdict::Replay { .. } = verdict {
            self.resolve(&row, StayOutcome::Released);
        }
        Some(verdict)
    }

    fn retire(&mut self, id: ItemId, cause: Retirement) -> Option<ChangeVerdict> {
        let open = self.open_quarantine(id);
        let known = self.item(id).cloned();
        let current = known.as_ref().and_then(|known| known.current.as_ref());
        if current.is_none() && open.is_none() {
            return None;
        }
        // An item that a list had left out may still be deleted. How it ended otherwise stays.
        let ended = current.and_then(|current| current.retired.as_ref());
        let ended = ended.filter(|ended| ended.cause != Retirement::Unlisted || cause == Retirement::Unlisted);
        let replay = ended.is_some() && open.is_none();
        if let Some(known) = known.as_ref().filter(|_| ended.is_none()) {
            let retired = Some(Retired { cause, from: self.from.clone() });
            let current = current.map(|current| Accepted { retired, ..current.clone() });
            let item = Item { current, ..Item::clone(known) };
            self.puts.insert(RowKey::item(id), Record::Item(item.into()));
        }
        if let Some(open) = &open {
            self.resolve(open, StayOutcome::Withdrawn);
        }
        Some(ChangeVerdict::Retired { item: id, cause, replay, withdrawn: current.is_none() })
    }

    fn new_item(&self, collection: &Arc<str>, source_id: &str) -> Item {
        Item::new(self.submit.tenant.clone(), collection.clone(), source_id.to_owned())
    }
}

fn is_active(item: Option<&Arc<Item>>) -> bool {
    item.is_some_and(|item| item.is_active())
}

// Whether it is the version that a complete list had left out, sent again.
fn returns(put: &Put, known: &Item) -> bool {
    let Some(current) = &known.current else { return false };
    let unlisted = current.retired.as_ref().is_some_and(|retired| retired.cause == Retirement::Unlisted);
    unlisted
        && match (&put.version, &current.version) {
            (Some(version), Some(left_out)) => version.order(left_out) == Some(Ordering::Equal),
            (None, None) => true,
            _ => false,
        }
}

fn missing(references: &[&ItemReference]) -> Vec<Missing> {
    references.iter().map(|reference| reference.missing.clone()).collect()
}

fn mixed(version: &super::ItemVersion, known: &super::ItemVersion, state: &str) -> ChangeVerdict {
    let (form, known_form) = (version.form(), known.form());
    let message = format!(
        "{form} cannot be compared with the {state} version {known}, which is {known_form}; send versions of one form"
    );
    ChangeVerdict::Rejected(vec![ItemFault { pointer: "/source_version".to_owned(), message }])
}

// Whether two texts are one JSON value.
fn same(first: &[u8], second: &[u8]) -> bool {
    let canonical = |text| json::parse(text).ok().map(|node| json::canonical(&node));
    first == second || canonical(first).is_some_and(|first| canonical(second) == Some(first))
}
