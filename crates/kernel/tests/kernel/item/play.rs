//! Plays commands against the rules and the model at once, in the ways in which a store has them: one by one, over rows of an
//! earlier moment, and several in one commit. After each, verdicts and rows are judged.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_kernel::{
    Command, Decision, Reply, RowKey,
    fence::{self, scope::OnLapse},
    item::{self, ChangeVerdict, ItemId, ItemVersion, Put, QuarantineId, Retirement},
    row::CommitId,
};

use super::{
    super::world::{World, scope, target_in},
    desk::{Desk, RETAIN_MS, id_of, reference},
    model::{Change, Gone, Model, Name, Said, Sent, Version},
};

/// Two collections, so that an item may need one of its own and one of the other.
pub const NAMES: [&str; 6] = ["skus/1", "skus/2", "skus/3", "uoms/1", "uoms/2", "uoms/3"];

/// When the rows of a group of commands are read, and when they are written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Timing {
    OneByOne,
    /// All are decided over the same rows, as on several nodes.
    SameRows,
    /// Each is decided over the writes of those before it, and all are committed together.
    OneCommit,
}

/// A command as a sender has it: the changes, and the request that asks for them.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    pub request: Option<u8>,
    pub changes: Vec<Asks>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Asks {
    Put(Name, Option<Version>, u8, Vec<Name>),
    Retire(Name, u8),
    /// A stay that was told of so many verdicts ago.
    Release(usize),
    Refuse,
}

/// A worker that follows up an arrival: it looks at one item after the other.
#[derive(Clone)]
struct Worker {
    item: ItemId,
    arrived: CommitId,
    after: Option<RowKey>,
    /// Read, and not yet released.
    next: Option<Change>,
}

pub struct Play {
    pub desk: Desk,
    pub model: Model,
    workers: Vec<Worker>,
    /// Every stay that a verdict told of, with what was sent.
    told: Vec<(Name, u64, Sent)>,
    numbers: BTreeMap<(Name, u64), u64>,
    contents: BTreeMap<String, Sent>,
    /// The changes and the answer of each request.
    requests: BTreeMap<u8, (Vec<Asks>, String)>,
}

fn name_of(item: ItemId) -> Name {
    NAMES.iter().position(|name| id_of(name) == item).unwrap()
}

fn names_of(missing: &[item::Missing]) -> Vec<Name> {
    let full = |missing: &item::Missing| format!("{}/{}", missing.collection, missing.source_id);
    missing.iter().map(|missing| NAMES.iter().position(|name| *name == full(missing)).unwrap()).collect()
}

fn version(version: Option<Version>) -> Option<ItemVersion> {
    version.map(|version| match version {
        Version::Number(number) => ItemVersion::Integer(number.into()),
        Version::Word(word) => ItemVersion::Text(format!("w{word}")),
    })
}

impl Play {
    pub fn new(auto_release: bool) -> Self {
        Self {
            desk: Desk { auto_release, ..Desk::new() },
            model: Model::default(),
            workers: Vec::new(),
            told: Vec::new(),
            numbers: BTreeMap::new(),
            contents: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    pub fn forget(&mut self) {
        self.desk.world.pass(RETAIN_MS);
        self.desk.world.sweep();
        self.model.forget();
    }

    /// The changes of a command, as the model has them. One that releases what nobody was told of is left out.
    fn changes(&mut self, asked: &Asked) -> Vec<Change> {
        let change = |asks: &Asks| match asks {
            Asks::Put(name, version, variant, needs) => {
                let content = format!(r#"{{"name":{name},"version":"{version:?}","n":{variant},"needs":{needs:?}}}"#);
                let sent = Sent { version: *version, content, needs: needs.clone() };
                Some((Change::Put(*name, sent.clone()), Some(sent)))
            }
            Asks::Retire(name, how) => {
                let how = [Gone::Deleted, Gone::Cancelled, Gone::Unlisted][usize::from(*how)];
                Some((Change::Retire(*name, how), None))
            }
            Asks::Release(back) => {
                let (name, nth, sent) = self.told.iter().rev().nth(*back)?;
                Some((Change::Release(*name, *nth, sent.clone()), None))
            }
            Asks::Refuse => Some((Change::Refuse, None)),
        };
        let (changes, sent): (Vec<_>, Vec<_>) = asked.changes.iter().filter_map(change).unzip();
        self.contents.extend(sent.into_iter().flatten().map(|sent| (sent.content.clone(), sent)));
        changes
    }

    fn put(&self, name: Name, sent: &Sent) -> Put {
        let (collection, source_id) = NAMES[name].split_once('/').unwrap();
        Put {
            item: id_of(NAMES[name]),
            collection: collection.into(),
            source_id: source_id.to_owned(),
            version: version(sent.version),
            content: sent.content.clone().into(),
            references: sent.needs.iter().map(|needed| reference(NAMES[*needed])).collect(),
        }
    }

    fn kernels(&self, change: &Change) -> item::Change {
        let source_id = |name: &Name| NAMES[*name].split_once('/').unwrap().1.to_owned();
        match change {
            Change::Put(name, sent) => item::Change::Put(self.put(*name, sent)),
            Change::Release(name, nth, sent) => {
                let quarantine = QuarantineId { item: id_of(NAMES[*name]), number: self.numbers[&(*name, *nth)] };
                item::Change::Release { quarantine, put: self.put(*name, sent) }
            }
            Change::Retire(name, gone) => {
                let cause = match gone {
                    Gone::Deleted => Retirement::Deleted,
                    Gone::Cancelled => Retirement::Cancelled,
                    Gone::Unlisted => Retirement::Unlisted,
                };
                item::Change::Retire { item: id_of(NAMES[*name]), source_id: source_id(name), cause }
            }
            Change::Refuse => item::Change::Refuse { source_id: None, faults: Vec::new() },
        }
    }

    fn command(&self, asked: &Asked, changes: &[Change]) -> Command {
        let submit = self.desk.submit(changes.iter().map(|change| self.kernels(change)).collect());
        let Some(request) = asked.request else { return Desk::of(submit) };
        let target = target_in(scope(OnLapse::Recover), &request.to_string());
        // The same changes are the same body.
        self.desk.claimed(&target, &format!("{:?}", asked.changes), submit)
    }

    /// Plays commands of one moment.
    pub fn group(&mut self, timing: Timing, group: &[Asked]) {
        let changes: Vec<Vec<Change>> = group.iter().map(|asked| self.changes(asked)).collect();
        let (mut view, mut view_model) = (self.desk.world.clone(), self.model.clone());
        let mut decided: Vec<(Decision, Model)> = Vec::new();
        if timing != Timing::OneByOne {
            for (asked, changes) in group.iter().zip(&changes) {
                let decision = view.decide(&self.command(asked, changes));
                decided.push((decision.clone(), view_model.clone()));
                if timing == Timing::OneCommit {
                    view.overlay(&decision);
                    if let Reply::Item(_) = decision.reply {
                        view_model.command(changes);
                    }
                }
            }
        }
        let mut later = Vec::new();
        for (at, (decision, view_model)) in decided.into_iter().enumerate() {
            // Within one commit, each rests on those before it.
            let stands = (timing == Timing::SameRows || later.is_empty())
                && (decision.only_answers() || self.desk.world.commit_also(&decision.writes, &decision.also).is_some());
            if stands {
                self.judge(&group[at], &changes[at], &decision.reply, Some(view_model));
            } else {
                later.push(at);
            }
        }
        let late = if timing == Timing::OneByOne { (0..group.len()).collect() } else { later };
        for at in late {
            let reply = self.desk.world.run(&self.command(&group[at], &changes[at]));
            self.judge(&group[at], &changes[at], &reply, None);
        }
        self.judge_rows();
    }

    /// Judges a reply by the model, as it is now. A change that wrote nothing may also be right for the moment of its rows.
    fn judge(&mut self, asked: &Asked, changes: &[Change], reply: &Reply, view: Option<Model>) {
        let known = asked.request.and_then(|request| self.requests.get(&request));
        match reply {
            Reply::Fence(fence::Reply::Duplicate { fence, .. }) => {
                let fence::State::Sealed { receipt, .. } = &fence.state else { panic!("{fence:?}") };
                let (first, answer) = known.expect("a request that was answered");
                assert_eq!((first, answer.as_bytes()), (&asked.changes, &receipt.body[..]));
            }
            Reply::Fence(fence::Reply::Conflict(_)) => {
                assert_ne!(known.expect("a request that was answered").0, asked.changes);
            }
            Reply::Item(item::Reply::NoSuchItem) => {
                let unknown = |model: &Model| model.clone().command(changes).is_none();
                assert!(unknown(&self.model) || view.as_ref().is_some_and(unknown), "{changes:?}");
            }
            Reply::Item(item::Reply::Submitted { verdicts, answer, .. }) => {
                assert!(known.is_none(), "a request is decided once");
                let answer = String::from_utf8(answer.to_vec()).unwrap();
                self.requests.extend(asked.request.map(|request| (request, (asked.changes.clone(), answer))));
                self.judge_verdicts(changes, verdicts, view);
            }
            other => panic!("{other:?}"),
        }
    }

    fn judge_verdicts(&mut self, changes: &[Change], verdicts: &[ChangeVerdict], view: Option<Model>) {
        assert_eq!(changes.len(), verdicts.len());
        let mut view = view.unwrap_or_else(|| self.model.clone());
        for (change, verdict) in changes.iter().zip(verdicts) {
            let before = view.clone();
            let in_view = view.apply(change).expect("an item that was there");
            let wrote_nothing = before == view;
            let said = if wrote_nothing { in_view } else { self.model.apply(change).expect("an item that is there") };
            self.judge_verdict(change, verdict, &said);
        }
    }

    fn judge_verdict(&mut self, change: &Change, verdict: &ChangeVerdict, said: &Said) {
        let own = match change {
            Change::Put(name, sent) | Change::Release(name, _, sent) => Some((*name, sent)),
            Change::Retire(..) | Change::Refuse => None,
        };
        let got = match verdict {
            ChangeVerdict::Accepted { reactivated, .. } => Said::Accepted { reactivated: *reactivated },
            ChangeVerdict::Replay { differs, .. } => Said::Replay { differs: *differs },
            ChangeVerdict::Rejected(_) => Said::Rejected,
            ChangeVerdict::Retired { replay, withdrawn, .. } => Said::Retired { again: *replay, withdrawn: *withdrawn },
            ChangeVerdict::AlreadyResolved { .. } => Said::Over,
            ChangeVerdict::Quarantined { quarantine, unresolved }
            | ChangeVerdict::Resent { quarantine, unresolved } => {
                let Said::Quarantined { nth, .. } = said else { panic!("{change:?}: {verdict:?}, expected {said:?}") };
                let (name, sent) = own.unwrap();
                let number = *self.numbers.entry((name, *nth)).or_insert(quarantine.number);
                assert_eq!((quarantine.item, quarantine.number), (id_of(NAMES[name]), number), "one id for one stay");
                let earlier = nth.checked_sub(1).and_then(|nth| self.numbers.get(&(name, nth)));
                assert!(earlier.is_none_or(|earlier| *earlier < number), "a later stay has a higher number");
                self.told.push((name, *nth, sent.clone()));
                Said::Quarantined { nth: *nth, missing: names_of(unresolved) }
            }
        };
        assert_eq!(got, *said, "{change:?}");
    }

    fn judge_rows(&self) {
        let mut waits = BTreeSet::new();
        for (name, known) in &self.model.items {
            let text = NAMES[*name];
            let item = self.desk.item(text);
            let current = item.as_ref().and_then(|item| item.current.as_ref());
            let last = known.accepted.last();
            let sent = |current: &item::Accepted| (current.version.clone(), current.content.to_vec());
            let expected = |sent: &Sent| (version(sent.version), sent.content.clone().into_bytes());
            assert_eq!(current.map(sent), last.map(expected), "the present version of {text}");
            assert_eq!(current.is_some_and(|current| current.retired.is_some()), known.gone.is_some(), "{text}");
            assert_eq!(item.as_ref().map_or(0, |item| item.seq), known.accepted.len() as u64);
            let highest = known.accepted.iter().filter_map(|sent| sent.version).max();
            assert_eq!(item.as_ref().and_then(|item| item.highest().cloned()), version(highest), "the floor of {text}");
            for (at, earlier) in known.accepted.iter().enumerate().rev().skip(1) {
                let row = self.desk.world.record(RowKey::item_version(id_of(text), at as u64 + 1));
                let replaced = row.and_then(|row| row.as_replaced()).expect("no gap in the history");
                assert_eq!(sent(&replaced.accepted), expected(earlier), "the history of {text}");
            }
            let row = self.desk.quarantined(text);
            assert_eq!(row.is_some(), known.stay.is_some() || known.remembered, "the quarantine of {text}");
            let open = row.filter(|row| row.resolved.is_none());
            assert_eq!(open.as_ref().map(|row| row.number), item.and_then(|item| item.quarantine), "one quarantine");
            let stay = open.as_ref().map(|row| (row.number, row.content.to_vec(), names_of(&row.unresolved)));
            let expected = known.stay.as_ref().map(|stay| {
                (self.numbers[&(*name, stay.nth)], stay.sent.content.clone().into_bytes(), stay.missing.clone())
            });
            assert_eq!(stay, expected, "the quarantine of {text}");
            for missing in known.stay.iter().flat_map(|stay| &stay.missing) {
                waits.insert(RowKey::waiting(id_of(NAMES[*missing]), id_of(text)));
                let wanted = self.desk.item(NAMES[*missing]).is_some_and(|item| item.wanted);
                assert!(wanted || self.model.active(*missing), "{} would come unnoticed", NAMES[*missing]);
            }
        }
        let rows = self.desk.world.rows().filter(|(_, record)| record.as_waiting().is_some());
        assert_eq!(
            rows.map(|(key, _)| *key).collect::<BTreeSet<_>>(),
            waits,
            "a row for each item that waits, and no other"
        );
        let histories: usize = self.model.items.values().map(|known| known.accepted.len().saturating_sub(1)).sum();
        let rows = self.desk.world.rows().filter(|(_, record)| record.as_replaced().is_some());
        assert_eq!(rows.count(), histories, "no history but of what was accepted");
    }

    /// A worker begins to follow up one of the arrivals, perhaps one that another follows up, too.
    pub fn begin(&mut self, nth: usize) {
        let world = &self.desk.world;
        let arrivals = world.rows().filter(|(_, record)| record.as_arrival().is_some());
        let arrivals: Vec<(ItemId, CommitId)> =
            arrivals.filter_map(|(key, _)| Some((key.item_id(), world.revision(*key)?))).collect();
        if let Some((item, arrived)) = arrivals.get(nth % arrivals.len().max(1)) {
            self.workers.push(Worker { item: *item, arrived: *arrived, after: None, next: None });
        }
    }

    /// A worker goes on: it reads what waits next, or releases what it has read, or is done.
    pub fn go_on(&mut self, nth: usize) {
        if self.workers.is_empty() {
            return;
        }
        let at = nth % self.workers.len();
        let mut worker = self.workers.swap_remove(at);
        if let Some(change) = worker.next.take() {
            let asked = Asked { request: None, changes: Vec::new() };
            let changes = [change];
            let reply = self.desk.world.run(&self.command(&asked, &changes));
            self.judge(&asked, &changes, &reply, None);
            self.judge_rows();
            self.workers.push(worker);
            return;
        }
        let of_this =
            |key: &RowKey| key.id.starts_with(RowKey::waiting_prefix(&worker.item)) && Some(*key) > worker.after;
        let rows = self.desk.world.rows();
        let next =
            rows.filter_map(|(key, record)| Some((*key, record.as_waiting()?.item))).find(|(key, _)| of_this(key));
        let Some((key, waiting)) = next else {
            let settle = item::Settle { item: worker.item, arrived: worker.arrived };
            self.desk.world.run(&item::Command::Settle(settle.into()).into());
            self.judge_rows();
            return;
        };
        worker.after = Some(key);
        let name = name_of(waiting);
        let row = self.desk.quarantined(NAMES[name]).filter(|row| row.resolved.is_none());
        worker.next = row.map(|row| {
            let content = String::from_utf8(row.content.to_vec()).unwrap();
            let nth = self.model.items[&name].stay.as_ref().unwrap().nth;
            assert_eq!(self.numbers[&(name, nth)], row.number);
            Change::Release(name, nth, self.contents[&content].clone())
        });
        self.workers.push(worker);
    }

    /// Follows up every arrival, until none is left.
    pub fn settle_all(&mut self) {
        for _ in 0..10_000 {
            if self.workers.is_empty() {
                self.begin(0);
            }
            if self.workers.is_empty() {
                return;
            }
            self.go_on(0);
        }
        panic!("arrivals without an end");
    }

    pub fn world(&mut self) -> &mut World {
        &mut self.desk.world
    }
}
