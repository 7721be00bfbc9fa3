//! Items from partners: sent, retired, released from quarantine, and read. An item and the answer to the request that brought
//! it are one commit.
//! Never decides: the kernel does. Never reads or writes the API's JSON, but for the items themselves.
//! Called by the wire and by users of the library.

mod follow_up;
pub mod items;
pub mod jobs;
mod named_rows;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Scope, Tenant,
    fence::{self, ClaimFence, HolderTrace, Source, Target, body::Body},
    item::{
        self, Change, ChangeVerdict, ForgetVersion, Item, ItemFault, ItemId, Put, QuarantineId, Quarantined, Replaced,
        Submit,
    },
    key::Kind,
};
use fencepost_policy::{Policy, collections::Collections, ingest::IngestSettings};
use tokio::sync::Notify;

pub use fencepost_policy::WMS_INGEST as SCOPE;
pub use named_rows::NAMED_BYTES_MAX;

use crate::engine::{Engine, Error};

/// The rules of one policy: what items must be, and how requests are remembered.
#[derive(Clone, Debug)]
pub struct IngestRules {
    /// The scope of the requests' fences.
    pub scope: Arc<Scope>,
    /// The kinds of items.
    pub collections: Arc<Collections>,
    /// Limits and switches.
    pub settings: IngestSettings,
}

impl IngestRules {
    /// The rules of a policy; none where its store cannot keep items.
    pub fn of(policy: &Policy) -> Option<Self> {
        let scope = policy.scope(SCOPE).ok()?.clone();
        Some(Self { scope, collections: policy.collections.clone(), settings: policy.ingest })
    }

    // Content that was right when it was sent may not be under the rules of today.
    fn read_kept(&self, quarantined: &Quarantined) -> Result<Put, Vec<ItemFault>> {
        let Some(collection) = self.collections.get(&quarantined.collection) else {
            let message = format!("there is no collection {:?} any more", &*quarantined.collection);
            return Err(vec![ItemFault { pointer: String::new(), message }]);
        };
        items::read_kept(collection, &quarantined.tenant, &quarantined.content)
    }
}

/// One request of a partner.
#[derive(Clone, Debug)]
pub struct IngestRequest {
    /// The partner.
    pub tenant: Tenant,
    /// The identity of the credential.
    pub by: Arc<str>,
    /// The partner's id of the request: the same id is the same request.
    pub correlation_id: Arc<str>,
    /// The part of the request that is compared when the same id comes again.
    pub compared: Body,
    /// The trace of the request, where it has one.
    pub trace: Option<HolderTrace>,
    /// Writes the answer, which is sealed with the changes.
    pub answer: fn(&Submit, &[ChangeVerdict]) -> Bytes,
}

/// An item, and versions that it had before.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// The item.
    pub item: Arc<Item>,
    /// Replaced versions with their numbers, the newest first.
    pub replaced: Vec<(u64, Arc<Replaced>)>,
    /// Whether there are older ones.
    pub more: bool,
}

/// Items of partners, by the rules of one policy. Clones share it.
#[derive(Clone)]
pub struct Ingest {
    engine: Engine,
    rules: Arc<IngestRules>,
    signals: Arc<IngestSignals>,
}

/// Wakes the background work of one process.
#[derive(Default, Debug)]
pub struct IngestSignals {
    /// Something may have arrived that items in quarantine wait for.
    arrived: Notify,
    /// There may be a job to move on.
    queued: Notify,
}

impl IngestSignals {
    /// Waits until something may have arrived that items in quarantine wait for.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

impl Ingest {
    /// Items in an engine's store. `signals` is what [`run`] and [`jobs::run`] wait for.
    pub fn new(engine: Engine, rules: IngestRules, signals: Arc<IngestSignals>) -> Self {
        Self { engine, rules: rules.into(), signals }
    }

    /// The rules.
    pub fn rules(&self) -> &IngestRules {
        &self.rules
    }

    /// Changes items of one collection, all in one commit with the answer to the request. The reply is about the request's fence
    /// where it was seen before.
    pub async fn submit(
        &self,
        request: &IngestRequest,
        collection: &Arc<str>,
        changes: Vec<Change>,
    ) -> Result<Reply, Error> {
        let claim = ClaimFence {
            source: Some(Source { kind: "ingest".to_owned(), id: collection.to_string() }),
            ..self.claim(request)?
        };
        let submit = Submit { claim: Some(claim.into()), ..self.submit_without_claim(request, collection, changes) };
        let reply = self.engine.ask(Command::from(item::Command::Submit(submit.into()))).await?;
        if self.rules.settings.auto_release && matches!(reply, Reply::Item(_)) {
            self.signals.arrived.notify_one();
        }
        Ok(reply)
    }

    /// The reply to a request whose id was seen before: what it was answered, or that it was another one. None for a fresh id.
    pub async fn reply_to_known(&self, request: &IngestRequest) -> Result<Option<Reply>, Error> {
        let claim = fence::Command::Claim(self.claim(request)?);
        let reply = self.engine.preview(&claim.into()).await?;
        Ok(Some(reply).filter(|reply| !matches!(reply, Reply::Fence(fence::Reply::New(_)))))
    }

    /// Whether a request of this id was answered, and is remembered.
    pub async fn knows(&self, request: &IngestRequest) -> Result<bool, Error> {
        let target = self.target(&request.tenant, &request.correlation_id)?;
        let row = self.engine.load(&[RowKey::fence(target.key)]).await?.pop().flatten();
        let now = self.engine.now();
        Ok(row.is_some_and(|row| row.record.expires_at().is_none_or(|expires| expires > now)))
    }

    // It is sealed in the commit that makes it, so it needs no lease.
    fn claim(&self, request: &IngestRequest) -> Result<ClaimFence, Error> {
        let target = self.target(&request.tenant, &request.correlation_id)?;
        let body = Some(request.compared.clone());
        Ok(ClaimFence { target, body, version: None, source: None, lease_ms: 1, trace: request.trace })
    }

    /// Lets the next version of an item be accepted, whatever it is: for a version that was sent too high by mistake.
    pub async fn forget_version(&self, forget: ForgetVersion) -> Result<Reply, Error> {
        self.engine.ask(Command::from(item::Command::ForgetVersion(forget.into()))).await
    }

    /// Says what would become of the changes. Changes nothing, and does not look at the request's id.
    pub async fn preview(
        &self,
        request: &IngestRequest,
        collection: &Arc<str>,
        changes: Vec<Change>,
    ) -> Result<Reply, Error> {
        let submit = self.submit_without_claim(request, collection, changes);
        self.engine.preview(&Command::from(item::Command::Submit(submit.into()))).await
    }

    fn submit_without_claim(&self, request: &IngestRequest, collection: &Arc<str>, changes: Vec<Change>) -> Submit {
        Submit {
            tenant: request.tenant.clone(),
            claim: None,
            by: request.by.clone(),
            correlation_id: request.correlation_id.clone(),
            collection: collection.clone(),
            changes,
            auto_release: self.rules.settings.auto_release,
            quarantine_retain_ms: self.rules.settings.quarantine_retain_ms,
            answer: request.answer,
        }
    }

    /// The fence of a request.
    pub fn target(&self, tenant: &Tenant, correlation_id: &str) -> Result<Target, Error> {
        let fields = vec![("correlation_id".to_owned(), correlation_id.to_owned())];
        let target = Target::new(tenant.clone(), self.rules.scope.clone(), fields, None);
        target.map_err(|wrong| Error::Unavailable(format!("the scope {SCOPE} has other fields: {wrong}")))
    }

    /// The change that looks at an item in quarantine again; none where the partner has no such quarantine, or has none any more.
    pub async fn release_of(&self, tenant: &Tenant, quarantine: QuarantineId) -> Result<Option<Change>, Error> {
        let known = self.quarantine(quarantine.item).await?;
        let known = known.filter(|known| known.tenant == *tenant && known.number == quarantine.number);
        Ok(known.map(|known| follow_up::release_change(&self.rules, &known)))
    }

    /// The last quarantine of an item, unless it ended so long ago that it counts as dropped.
    pub async fn quarantine(&self, item: ItemId) -> Result<Option<Arc<Quarantined>>, Error> {
        let row = self.engine.load(&[RowKey::quarantine(item)]).await?.pop().flatten();
        let now = self.engine.now();
        let kept = |known: &Arc<Quarantined>| known.resolved.as_ref().is_none_or(|resolved| resolved.expires > now);
        Ok(row.and_then(|row| row.record.as_quarantined().cloned()).filter(kept))
    }

    /// An item, where it or something that refers to it was ever sent.
    pub async fn item(&self, id: ItemId) -> Result<Option<Arc<Item>>, Error> {
        let row = self.engine.load(&[RowKey::item(id)]).await?.pop().flatten();
        Ok(row.and_then(|row| row.record.as_item().cloned()))
    }

    /// An item with versions that were replaced, the newest first: those below the number `below`, up to a hundred.
    pub async fn history(&self, id: ItemId, below: Option<u64>, limit: usize) -> Result<Option<HistoryPage>, Error> {
        let (limit, mut reads) = (limit.min(HISTORY_MAX), 1);
        loop {
            let Some(item) = self.item(id).await?.filter(|item| item.current.is_some()) else { return Ok(None) };
            // A version that replaced the one just read is not among those that it had replaced.
            let before = below.unwrap_or(item.seq);
            let found = self.engine.range(Kind::ItemVersion, &id.0, Some(RowKey::item_version(id, before)), limit + 1);
            let found = found.await?;
            // A row read alone may be of a commit that a range does not show yet: then the version that it replaced is not there.
            let is_whole = below.is_some()
                || item.seq <= 1
                || found.first().is_some_and(|(key, _)| key.version_number().saturating_add(1) == item.seq);
            if !is_whole && reads < HISTORY_READS_MAX {
                reads += 1;
                tokio::task::yield_now().await;
                continue;
            }
            let more = found.len() > limit;
            let numbered = found
                .into_iter()
                .take(limit)
                .filter_map(|(key, row)| Some((key.version_number(), row.record.as_replaced()?.clone())));
            return Ok(Some(HistoryPage { item, replaced: numbered.collect(), more }));
        }
    }

    /// Quarantines in the order of their addresses, of a partner or of one of its collections.
    pub async fn quarantines(
        &self,
        tenant: &Tenant,
        collection: Option<&str>,
        after: Option<ItemId>,
        limit: usize,
    ) -> Result<Vec<Arc<Quarantined>>, Error> {
        let prefix = match collection {
            Some(collection) => ItemId::collection_prefix(tenant, collection).to_vec(),
            None => ItemId::tenant_prefix(tenant).to_vec(),
        };
        let found = self.engine.range(Kind::Quarantine, &prefix, after.map(RowKey::quarantine), limit).await?;
        Ok(found.into_iter().filter_map(|(_, row)| row.record.as_quarantined().cloned()).collect())
    }

    /// Items in quarantine that wait for another one, in the order of their addresses.
    pub async fn waiting_for(
        &self,
        missing: ItemId,
        after: Option<ItemId>,
        limit: usize,
    ) -> Result<Vec<(ItemId, Option<Arc<Quarantined>>)>, Error> {
        let after = after.map(|after| RowKey::waiting(missing, after));
        let found = self.engine.range(Kind::Waiting, RowKey::waiting_prefix(&missing), after, limit).await?;
        let waiting: Vec<ItemId> = found.iter().filter_map(|(_, row)| Some(row.record.as_waiting()?.item)).collect();
        let rows: Vec<RowKey> = waiting.iter().copied().map(RowKey::quarantine).collect();
        let rows = self.engine.load(&rows).await?;
        let quarantined = rows.into_iter().map(|row| row.and_then(|row| row.record.as_quarantined().cloned()));
        Ok(waiting.into_iter().zip(quarantined).collect())
    }

    /// How many quarantines are open, and since when the oldest is.
    async fn open_quarantines(&self) -> Result<OpenQuarantines, Error> {
        let mut open = OpenQuarantines::default();
        let mut after = None;
        while open.count < COUNTED_MAX {
            let page = self.engine.due(Kind::Quarantine, after, COUNTED_AT_ONCE).await?;
            let Some((last, row)) = page.last() else { break };
            after = row.record.due_at().map(|due| (due, *last));
            open.oldest = open.oldest.or_else(|| page.first().and_then(|(_, row)| row.record.due_at()));
            open.count += page.len();
        }
        Ok(open)
    }
}

/// Quarantines that are open, as the background work saw them last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenQuarantines {
    /// How many, counted up to [`COUNTED_MAX`].
    pub count: usize,
    /// Since when the oldest one is.
    pub oldest: Option<Millis>,
}

/// Follows up arrivals, and counts what is in quarantine. `current` is asked each time for the rules in force: `None` ends the
/// work, `Some(None)` waits until items can be kept. Runs beside the server, on a Tokio runtime.
pub async fn run(
    signals: Arc<IngestSignals>,
    current: impl Fn() -> Option<Option<Ingest>>,
    counted: impl Fn(OpenQuarantines),
) {
    let mut counted_at: Option<Instant> = None;
    loop {
        let _ = tokio::time::timeout(LOOK_EVERY, signals.arrival()).await;
        let Some(ingest) = current() else { return };
        let Some(ingest) = ingest else { continue };
        // An arrival whose follow-up fails stays due, and is tried again.
        let followed = if ingest.rules.settings.auto_release { ingest.follow_up().await } else { Ok(0) };
        if counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY)
            && let Ok(open) = ingest.open_quarantines().await
        {
            counted(open);
            counted_at = Some(Instant::now());
        }
        if followed.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The most replaced versions in one page of a history, whatever is asked for.
const HISTORY_MAX: usize = 100;
/// How often a history is read until its newest version and the one before it are of one commit. An archived one stays away.
const HISTORY_READS_MAX: usize = 8;
/// How often arrivals are looked for where none was announced: those of other nodes, and those from before a crash.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often open quarantines are counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// More open quarantines than this are not counted.
pub const COUNTED_MAX: usize = 10_000;
/// How many of them are read at once.
const COUNTED_AT_ONCE: usize = 50;
