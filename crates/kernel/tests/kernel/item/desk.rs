//! A partner's items in a store in a map, asked for in texts: `a@3 needs b&c + delete d` is one command of two changes.
//! `check` runs a table: what was asked before, the command, its verdicts, and the item after it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Command, Decision, Reply, RowKey, Tenant,
    fence::Target,
    item::{
        self, Change, ChangeVerdict, ForgetVersion, Item, ItemFault, ItemId, ItemReference, ItemVersion, Missing, Put,
        Quarantined, Retirement, Settle, StayOutcome, Submit, Waiting,
    },
    row::CommitId,
};

use super::super::world::{World, claim_body};

pub const RETAIN_MS: u64 = 500;

/// Items and the settings that commands carry.
#[derive(Clone)]
pub struct Desk {
    pub world: World,
    pub auto_release: bool,
}

pub fn tenant() -> Tenant {
    Tenant::new("acme")
}

/// The collection and the source id of a name: `a` is `skus/a`.
pub fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("skus", name))
}

pub fn id_of(name: &str) -> ItemId {
    let (collection, source_id) = parts(name);
    ItemId::new(&tenant(), collection, source_id)
}

pub fn reference(name: &str) -> ItemReference {
    let (collection, source_id) = parts(name);
    let missing =
        Missing { collection: collection.into(), source_id: source_id.into(), reason: "MISSING_DEPENDENCY".into() };
    ItemReference { item: id_of(name), missing }
}

/// An item as it is sent: `a@3=x needs b&c`. Its content is what follows `=`, or follows from the rest.
pub fn put(text: &str) -> Put {
    let (head, needs) = text.split_once(" needs ").unwrap_or((text, ""));
    let (head, content) = head.split_once('=').unwrap_or((head, ""));
    let (name, version) = head.split_once('@').map_or((head, None), |(name, version)| (name, Some(version)));
    let version = version.map(|text| text.parse().map_or_else(|_| ItemVersion::any(text), ItemVersion::Integer));
    let (collection, source_id) = parts(name);
    let content = if content.is_empty() { format!(r#"{{"as":{:?}}}"#, text) } else { content.to_owned() };
    Put {
        item: id_of(name),
        collection: collection.into(),
        source_id: source_id.to_owned(),
        version,
        content: content.into(),
        references: needs.split('&').filter(|name| !name.is_empty()).map(reference).collect(),
    }
}

fn retire(name: &str, cause: Retirement) -> Change {
    Change::Retire { item: id_of(name), source_id: parts(name).1.to_owned(), cause }
}

/// The answer in every test: the words of the verdicts.
fn answer(_: &Submit, verdicts: &[ChangeVerdict]) -> Bytes {
    verdicts.iter().map(ChangeVerdict::status).collect::<Vec<_>>().join(" ").into()
}

impl Desk {
    pub fn new() -> Self {
        Self { world: World::new(), auto_release: false }
    }

    /// One that asked all these commands, `;` between them.
    pub fn after(commands: &str) -> Self {
        Self::new().and(commands)
    }

    pub fn releasing(commands: &str) -> Self {
        Self { auto_release: true, ..Self::new() }.and(commands)
    }

    fn and(mut self, commands: &str) -> Self {
        for command in commands.split("; ").filter(|command| !command.is_empty()) {
            self.ask(command);
            self.world.pass(1);
        }
        self
    }

    fn change(&self, text: &str) -> Change {
        match text.split_once(' ') {
            Some(("delete", name)) => retire(name, Retirement::Deleted),
            Some(("cancel", name)) => retire(name, Retirement::Cancelled),
            Some(("unlist", name)) => retire(name, Retirement::Unlisted),
            Some(("release", text)) => {
                let put = put(text);
                let row = self.quarantined_row(put.item);
                let number = row.map_or(1, |row| row.number);
                Change::Release { quarantine: item::QuarantineId { item: put.item, number }, put }
            }
            Some(("refuse", name)) => {
                let fault = ItemFault { pointer: "/name".into(), message: "is missing".into() };
                Change::Refuse { source_id: Some(name.to_owned()), faults: vec![fault] }
            }
            _ => Change::Put(put(text)),
        }
    }

    pub fn submit(&self, changes: Vec<Change>) -> Submit {
        Submit {
            tenant: tenant(),
            claim: None,
            by: "ann".into(),
            correlation_id: "c1".into(),
            collection: "skus".into(),
            changes,
            auto_release: self.auto_release,
            quarantine_retain_ms: RETAIN_MS,
            answer,
        }
    }

    /// The command of a text, over the quarantines that are there now.
    pub fn command(&self, text: &str) -> Submit {
        self.submit(text.split(" + ").map(|change| self.change(change)).collect())
    }

    /// The same under a request's fence, whose body is the text.
    pub fn request(&self, target: &Target, text: &str) -> Command {
        self.claimed(target, text, self.command(text))
    }

    pub fn claimed(&self, target: &Target, body: &str, submit: Submit) -> Command {
        let Command::Fence(fencepost_kernel::fence::Command::Claim(claim)) = claim_body(target, &format!("{body:?}"))
        else {
            unreachable!()
        };
        Self::of(Submit { claim: Some(claim.into()), ..submit })
    }

    pub fn of(submit: Submit) -> Command {
        item::Command::Submit(submit.into()).into()
    }

    pub fn decide(&self, text: &str) -> Decision {
        self.world.decide(&Self::of(self.command(text)))
    }

    /// Asks, and says what came of it: the verdicts, with ` + ` between them.
    pub fn ask(&mut self, text: &str) -> String {
        let reply = self.world.run(&Self::of(self.command(text)));
        said(&reply)
    }

    pub fn verdicts(&mut self, text: &str) -> Arc<[ChangeVerdict]> {
        match self.world.run(&Self::of(self.command(text))) {
            Reply::Item(item::Reply::Submitted { verdicts, .. }) => verdicts,
            other => panic!("a command was answered with {other:?}"),
        }
    }

    pub fn settle(&mut self, name: &str, arrived: CommitId) {
        let settle = Settle { item: id_of(name), arrived };
        let reply = self.world.run(&item::Command::Settle(settle.into()).into());
        assert_eq!(reply.decision(), "done");
    }

    /// Forgets a version of an item: the version that the next one must be above, and whether nothing was changed.
    pub fn forget_version(&mut self, name: &str, version: &str) -> (Option<String>, bool) {
        let (collection, source_id) = parts(name);
        let forget = ForgetVersion {
            tenant: tenant(),
            collection: collection.into(),
            source_id: source_id.to_owned(),
            version: version.to_owned(),
            by: "operator".into(),
            why: "sent by mistake".to_owned(),
        };
        match self.world.run(&item::Command::ForgetVersion(forget.into()).into()) {
            Reply::Item(item::Reply::VersionForgotten { replay, highest }) => {
                (highest.map(|highest| highest.to_string()), replay)
            }
            other => panic!("it was answered with {other:?}"),
        }
    }

    pub fn item(&self, name: &str) -> Option<Arc<Item>> {
        self.world.record(RowKey::item(id_of(name))).map(|record| record.as_item().unwrap().clone())
    }

    /// Writes an item's row past every rule.
    pub fn put_item(&mut self, item: Item) {
        self.world.put(RowKey::item(item.id()), item::Record::Item(item.into()).into());
    }

    pub fn quarantined(&self, name: &str) -> Option<Arc<Quarantined>> {
        self.quarantined_row(id_of(name))
    }

    fn quarantined_row(&self, item: ItemId) -> Option<Arc<Quarantined>> {
        self.world.record(RowKey::quarantine(item)).map(|record| record.as_quarantined().unwrap().clone())
    }

    /// The accepted versions before the present one, in their order.
    pub fn history(&self, name: &str) -> Vec<String> {
        let item = id_of(name);
        let seq = self.item(name).map_or(0, |item| item.seq);
        let row = |n| self.world.record(RowKey::item_version(item, n)).map(|record| record.as_replaced().unwrap());
        let rows = (1..seq).map(|n| word(row(n).expect("no gap in the history").accepted.version.as_ref()));
        let rows = rows.collect();
        assert!(row(0).is_none() && row(seq).is_none(), "the present version is in its item's row alone");
        rows
    }

    /// An item in words: `3 after 1,2 floor 2 wanted, open 4 for b`.
    pub fn state(&self, name: &str) -> String {
        let Some(item) = self.item(name) else { return "absent".to_owned() };
        let mut words = vec![item.current.as_ref().map_or("none".to_owned(), |current| word(current.version.as_ref()))];
        words.extend(item.current.as_ref().and_then(|current| current.retired.as_ref()).map(|retired| {
            match retired.cause {
                Retirement::Deleted => "deleted".to_owned(),
                Retirement::Cancelled => "cancelled".to_owned(),
                Retirement::Unlisted => "unlisted".to_owned(),
            }
        }));
        let history = self.history(name);
        words.extend((!history.is_empty()).then(|| format!("after {}", history.join(","))));
        words.extend(item.floor.as_ref().map(|floor| format!("floor {floor}")));
        words.extend(item.wanted.then(|| "wanted".to_owned()));
        let quarantined = self.quarantined(name);
        let open = quarantined.as_ref().filter(|row| row.resolved.is_none()).map(|row| row.number);
        assert_eq!(item.quarantine, open, "the item's row agrees with that of its quarantine");
        match quarantined {
            None => words.join(" "),
            Some(row) => format!("{}, {}", words.join(" "), stay(&row)),
        }
    }

    /// Which item waits for which: `a for b`.
    pub fn waiting(&self) -> String {
        let rows = self.world.rows().filter_map(|(key, record)| {
            let Waiting { missing, item, .. } = &**record.as_waiting()?;
            assert_eq!(*key, RowKey::waiting(*missing, *item));
            Some(format!("{} for {}", self.name_of(*item), self.name_of(*missing)))
        });
        let mut rows: Vec<String> = rows.collect();
        rows.sort();
        rows.join(", ")
    }

    /// The items that have arrived, and which write says so.
    pub fn arrivals(&self) -> Vec<(String, CommitId)> {
        let rows = self.world.rows().filter_map(|(key, record)| {
            let arrival = record.as_arrival()?;
            Some((arrival.source_id.clone(), self.world.revision(*key)?))
        });
        rows.collect()
    }

    fn name_of(&self, item: ItemId) -> String {
        self.world.record(RowKey::item(item)).unwrap().as_item().unwrap().source_id.clone()
    }
}

fn word(version: Option<&ItemVersion>) -> String {
    version.map_or("unversioned".to_owned(), ToString::to_string)
}

fn stay(row: &Quarantined) -> String {
    let version = word(row.version.as_ref());
    match &row.resolved {
        None => format!("open {version} for {}", names(&row.unresolved)),
        Some(resolved) => {
            let how = match resolved.how {
                StayOutcome::Accepted => "accepted",
                StayOutcome::Released => "released",
                StayOutcome::Withdrawn => "withdrawn",
            };
            format!("{version} {how}")
        }
    }
}

fn names(missing: &[Missing]) -> String {
    missing.iter().map(|missing| missing.source_id.as_str()).collect::<Vec<_>>().join("&")
}

/// A reply in a few words.
pub fn said(reply: &Reply) -> String {
    match reply {
        Reply::Item(item::Reply::Submitted { verdicts, .. }) => {
            verdicts.iter().map(verdict).collect::<Vec<_>>().join(" + ")
        }
        other => other.decision().to_owned(),
    }
}

fn verdict(verdict: &ChangeVerdict) -> String {
    let more = match verdict {
        ChangeVerdict::Accepted { reactivated: true, .. } => " reactivated".to_owned(),
        ChangeVerdict::Replay { differs: true, .. } => " differs".to_owned(),
        ChangeVerdict::Retired { replay: true, .. } => " again".to_owned(),
        ChangeVerdict::Quarantined { unresolved, .. } | ChangeVerdict::Resent { unresolved, .. } => {
            format!(" for {}", names(unresolved))
        }
        _ => String::new(),
    };
    format!("{}{more}", verdict.status())
}

/// One row of a table: what was asked before, the command, what is answered, and the item `a` after it.
pub type Case<'t> = (&'t str, &'t str, &'t str, &'t str);

#[track_caller]
pub fn check(table: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (before, command, expected, state) in table {
        let mut desk = Desk::after(before);
        let got = (desk.ask(command), desk.state("a"));
        if got != ((*expected).to_owned(), (*state).to_owned()) {
            wrong.push(format!("after `{before}`, `{command}`: got {got:?}, expected {:?}", (expected, state)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Commands that are answered like this and change no row.
#[track_caller]
pub fn check_unchanged(table: &[(&str, &str, &str)]) {
    for (before, command, expected) in table {
        let desk = Desk::after(before);
        let decision = desk.decide(command);
        assert_eq!(said(&decision.reply), *expected, "after `{before}`, `{command}`");
        assert!(decision.only_answers(), "after `{before}`, `{command}` writes {:?}", decision.writes);
    }
}
