//! Events on their way out: publishing, lanes, pollers, dead letters; and the driver that pushes due events.
//! Never decides: the kernel does. Never touches the outside world within a commit.
//! Called by the wire and by users of the library.

mod driver;
pub mod envelope;
mod hosts;
pub mod key_file;
mod polls;
mod reseal;
mod sealed;
mod shared;
mod sink;
mod table;
mod vault;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fencepost_kernel::{
    Command, LaneId, Millis, Reply, RowKey, Scope, Tenant,
    dispatch::{self, LetterVerdict, OnLetter, Publish, PutTransport, WarehouseTransport},
    fence::{self, ClaimFence, Source, Target, body::Body},
    json,
    key::Kind,
    lane::{self, Act, DeadLetter, Entry, Lane, Members, OnLane, cursor},
    row::Record,
};

pub use driver::{Alarm, DriverSettings};
pub use reseal::{Resealed, SealAnew, has_sealed_rows};
pub use sealed::{MASK, OpenWebhook, origin, sealing_keys, shown_url};
pub use sink::{Delivery, Sink};
pub use table::LaneCounts;
pub use vault::{SealedFor, SealedPart, SealedUnder, Vault};

use crate::engine::{Engine, Error};
use driver::Driver;
use polls::Polls;
#[cfg(feature = "postgres")]
pub(crate) use shared::members;

pub use fencepost_policy::WES_DISPATCH as SCOPE;
/// The longest envelope, as it is delivered.
pub const ENVELOPE_BYTES_MAX: usize = 256 << 10;

/// An event to be published.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The tenant that publishes.
    pub planner: Tenant,
    /// Its id of the event: the same id is the same event.
    pub correlation_id: String,
    /// Its kind, such as `SHIPPER_RELEASED`.
    pub kind: String,
    /// Where it goes.
    pub warehouse: String,
    /// The exact bytes that are delivered.
    pub body: Bytes,
    /// The part of the body that is compared when the same id is published again.
    pub compared: Body,
    /// The id of the event that it cancels.
    pub cancels: Option<String>,
}

impl Publication {
    /// The event in an envelope, as it shall be delivered: a JSON object of up to 256 KiB, checked by the same rules as over
    /// HTTP.
    pub fn envelope(planner: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Result<Self, String> {
        let (planner, body) = (Tenant::new(planner), body.into());
        // Not parsed where it is too large anyway.
        if body.len() > ENVELOPE_BYTES_MAX {
            return Err(format!("an envelope may have up to {ENVELOPE_BYTES_MAX} bytes, not {}", body.len()));
        }
        let node = json::parse(&body).map_err(|bad| bad.to_string())?;
        let envelope = envelope::read(planner.as_str(), &node, body.len()).map_err(|refusal| refusal.to_string())?;
        Ok(Self {
            correlation_id: envelope.correlation_id.to_owned(),
            kind: envelope.kind.to_owned(),
            warehouse: envelope.warehouse.to_owned(),
            cancels: envelope.cancels.map(str::to_owned),
            compared: Body::json(&node, &[]),
            planner,
            body: body.clone(),
        })
    }

    fn target(&self, scope: &Arc<Scope>, correlation_id: &str) -> Result<Target, Error> {
        let fields = vec![("correlation_id".to_owned(), correlation_id.to_owned())];
        let target = Target::new(self.planner.clone(), scope.clone(), fields, None);
        target.map_err(|wrong| Error::Unavailable(format!("the scope {SCOPE} has other fields: {wrong}")))
    }

    // The fence of the event that it cancels.
    fn original(&self, scope: &Arc<Scope>) -> Result<Option<Target>, Error> {
        self.cancels.as_ref().map(|original| self.target(scope, original)).transpose()
    }

    pub(crate) fn command(
        self,
        scope: &Arc<Scope>,
        members: Arc<Members>,
        served: Option<u64>,
    ) -> Result<Command, Error> {
        let (target, cancels) = (self.target(scope, &self.correlation_id)?, self.original(scope)?);
        let Self { correlation_id, kind, warehouse, body, compared, .. } = self;
        let source = Some(Source { kind: kind.clone(), id: warehouse.clone() });
        let claim = ClaimFence { target, body: Some(compared), version: None, source, lease_ms: 1, trace: None };
        // When it is decided, it is dated.
        let published = Millis(0);
        let entry = Entry { correlation_id, kind, subject: warehouse, body, published, redrive_of: None }.into();
        Ok(Command::Dispatch(dispatch::Command::Publish(Box::new(Publish { claim, entry, cancels, members, served }))))
    }
}

/// A lane, and how long it is.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// How far it has come.
    pub lane: Arc<Lane>,
    /// The last position.
    pub tail: u64,
    /// How its events leave, where they still go this way.
    pub transport: Option<Arc<WarehouseTransport>>,
    /// The fingerprint of the key that its transport is sealed with, where this process does not have it.
    pub missing_key: Option<String>,
}

/// A dead letter, and where it died.
#[derive(Clone, Debug)]
pub struct LocatedDeadLetter {
    /// The lane in which the event first died.
    pub lane: LaneId,
    /// The event's position in it.
    pub seq: u64,
    /// The event, why it died, and what a person decided since.
    pub letter: Arc<DeadLetter>,
}

/// Everything about events on their way out. Clones share it; the driver runs while one of them, or of the engine, lives.
///
/// The driver learns of every new event from the engine, even where the caller goes away before its answer. After an
/// act that changed nothing it is told from here, too: a person who repeats an act may see a lane that the driver
/// missed.
#[derive(Clone)]
pub struct Dispatch {
    engine: Engine,
    scope: Arc<Scope>,
    vault: Arc<Vault>,
    polls: Arc<Polls>,
    driver: Arc<Driver>,
    /// The result of the last pass over stored transports; none before its end.
    resealed: Arc<Mutex<Option<Resealed>>>,
}

/// How often a change of transport looks whether the lane is drained by now.
const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// How many entries are looked at in one read, when a lane that is left is searched for one warehouse. They are read whole,
/// with their bodies.
const SEARCH_PAGE: usize = 100;

/// How far a lane that is left was searched for events of one warehouse.
#[derive(Default)]
struct Search {
    lane: Option<LaneId>,
    /// The last that was found: until it is settled, there is nothing to search for.
    found: u64,
    /// Up to here there is no other.
    clear_to: u64,
}

impl Dispatch {
    /// Starts the driver. `scope` fences publications; `sink` is the way out. Must be called on a Tokio runtime that outlives
    /// it.
    pub async fn start(
        engine: Engine,
        scope: Arc<Scope>,
        vault: Arc<Vault>,
        sink: Arc<dyn Sink>,
        alarm: Arc<dyn Alarm>,
        settings: DriverSettings,
    ) -> Result<Self, Error> {
        let polls = Arc::new(Polls::new(engine.promises().shared));
        let driver = Driver::start(&engine, vault.clone(), sink, alarm, polls.clone(), settings).await?;
        Ok(Self { engine, scope, vault, polls, driver, resealed: Arc::default() })
    }

    /// The same, for one request of an operator: see [`Engine::on_behalf_of`].
    pub fn with_engine(&self, engine: Engine) -> Self {
        Self { engine, ..self.clone() }
    }

    /// The keys that encrypt secrets and sign cursors.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// How lanes stand in this process, for metrics.
    pub fn counts(&self) -> LaneCounts {
        LaneCounts { polling: self.polls.waiting(), ..self.driver.counts() }
    }

    /// Starts no new attempts. Those under way may end.
    pub fn stop(&self) {
        self.driver.stop();
        self.polls.close();
    }

    /// Waits until the attempts under way have ended and are recorded, up to `at_most`: an event that a receiver has
    /// acknowledged by then is not sent again after a restart. Called after `stop`.
    pub async fn rest(&self, at_most: Duration) {
        if tokio::time::timeout(at_most, self.driver.rest()).await.is_err() {
            // Another node must not send an event that may still be under way here.
            return;
        }
        // Its lanes go to others at once. Where that cannot be said, they wait until this node has been silent for long.
        let _ = self.engine.leave().await;
    }

    /// Publishes in order, in one commit.
    pub async fn publish(&self, publications: Vec<Publication>) -> Result<Vec<Reply>, Error> {
        let mut commands = Vec::with_capacity(publications.len());
        for publication in publications {
            commands.push(self.command(publication).await?);
        }
        self.engine.ask_all(commands).await
    }

    async fn command(&self, publication: Publication) -> Result<Command, Error> {
        let served = match publication.original(&self.scope)? {
            Some(original) => self.served(&original).await?,
            None => None,
        };
        publication.command(&self.scope, self.members(), served)
    }

    // How much of the lane of an event pollers may have seen.
    async fn served(&self, original: &Target) -> Result<Option<u64>, Error> {
        let row = self.row(RowKey::fence(original.key)).await?;
        let Some(Record::Fence(fence::Record::Fence(fence))) = row else { return Ok(None) };
        Ok(dispatch::PublishReceipt::of(&fence).and_then(|at| self.polls.served(at.lane_id)))
    }

    fn members(&self) -> Arc<Members> {
        self.driver.members()
    }

    /// Says where the events of a warehouse go. A change of transport needs a drained lane, and waits for it as long as
    /// `drain` says.
    pub async fn put_transport(&self, transport: WarehouseTransport, drain: Option<Duration>) -> Result<Reply, Error> {
        let until = drain.map(|drain| tokio::time::Instant::now() + drain);
        let (mut seen_to, mut search) = (None, Search::default());
        loop {
            let put = PutTransport { transport: transport.clone(), seen_to, over: None };
            let reply = self.engine.ask(Command::Dispatch(dispatch::Command::PutTransport(Box::new(put)))).await?;
            let Reply::Dispatch(dispatch::Reply::NotDrained { lane, tail, settled }) = reply else {
                self.driver.look_at(transport.lane());
                return Ok(reply);
            };
            // A lane that an executor polls has events of other warehouses, too: only ours must be gone.
            let clear = self.clear_of(lane, &transport, settled, tail, &mut search).await?;
            if clear && seen_to < Some(tail) {
                seen_to = Some(tail);
                continue;
            }
            if until.is_none_or(|until| tokio::time::Instant::now() >= until) {
                return Ok(reply);
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    // Whether no unsettled entry of a lane is for this warehouse. No entry is searched twice.
    async fn clear_of(
        &self,
        lane: LaneId,
        transport: &WarehouseTransport,
        settled: u64,
        tail: u64,
        search: &mut Search,
    ) -> Result<bool, Error> {
        let shared = self.lane(lane).await?.is_some_and(|view| view.lane.purpose.is_polled());
        if !shared {
            return Ok(false);
        }
        if search.lane != Some(lane) {
            *search = Search { lane: Some(lane), ..Search::default() };
        }
        if search.found > settled {
            return Ok(false);
        }
        search.clear_to = search.clear_to.max(settled);
        while search.clear_to < tail {
            let page = self.entries(lane, search.clear_to, SEARCH_PAGE).await?;
            if let Some((seq, _)) = page.iter().find(|(_, entry)| entry.subject == transport.warehouse) {
                (search.found, search.clear_to) = (*seq, *seq);
                return Ok(false);
            }
            let Some((last, _)) = page.last() else { break };
            search.clear_to = *last;
        }
        Ok(true)
    }

    /// Where the events of a warehouse go.
    pub async fn transport(&self, planner: &Tenant, warehouse: &str) -> Result<Option<Arc<WarehouseTransport>>, Error> {
        Ok(self.row(RowKey::transport(planner, warehouse)).await?.and_then(|record| record.as_transport().cloned()))
    }

    /// A lane, where there is one.
    pub async fn lane(&self, lane: LaneId) -> Result<Option<LaneView>, Error> {
        Ok(self.views(&[lane]).await?.pop())
    }

    /// Lanes in the order of their addresses.
    pub async fn lanes(
        &self,
        planner: Option<&Tenant>,
        after: Option<LaneId>,
        limit: usize,
    ) -> Result<Vec<LaneView>, Error> {
        let after = after.map(RowKey::lane);
        let found = self.scan(Kind::Lane, planner, after, limit).await?;
        self.views(&found.iter().map(|(key, _)| key.place().0).collect::<Vec<_>>()).await
    }

    // Those of the lanes that exist, each with its tail as of the same moment.
    async fn views(&self, lanes: &[LaneId]) -> Result<Vec<LaneView>, Error> {
        let keys: Vec<RowKey> = lanes.iter().flat_map(|lane| [RowKey::lane(*lane), RowKey::tail(*lane)]).collect();
        let rows = self.engine.load(&keys).await?;
        let mut views: Vec<LaneView> = rows
            .chunks_exact(2)
            .filter_map(|pair| {
                let record = |at: usize| pair[at].as_ref().map(|row| &row.record);
                let Some(Record::Lane(lane::Record::Lane(lane))) = record(0) else { return None };
                let tail = if let Some(Record::Lane(lane::Record::Tail(tail))) = record(1) { tail.last } else { 0 };
                Some(LaneView { lane: lane.clone(), tail, transport: None, missing_key: None })
            })
            .collect();
        let warehouse = |view: &LaneView| Some(RowKey::transport(&view.lane.tenant, view.lane.purpose.as_warehouse()?));
        let keys: Vec<RowKey> = views.iter().filter_map(warehouse).collect();
        let transports = self.engine.load(&keys).await?;
        let pushed = views.iter_mut().filter(|view| view.lane.purpose.as_warehouse().is_some());
        for (view, row) in pushed.zip(transports) {
            if let Some(Record::Dispatch(dispatch::Record::Transport(transport))) = row.as_ref().map(|row| &row.record)
            {
                view.transport = (transport.lane() == view.lane.id()).then(|| transport.clone());
                view.missing_key = view.transport.as_ref().and_then(|transport| self.vault.missing_key(transport));
            }
        }
        Ok(views)
    }

    /// Dead letters in the order of their lanes and positions.
    pub async fn letters(
        &self,
        planner: Option<&Tenant>,
        after: Option<(LaneId, u64)>,
        limit: usize,
    ) -> Result<Vec<LocatedDeadLetter>, Error> {
        let after = after.map(|(lane, seq)| RowKey::dead_letter(lane, seq));
        let found = self.scan(Kind::DeadLetter, planner, after, limit).await?;
        let letter = |(key, record): (RowKey, Record)| {
            let (lane, seq) = key.place();
            Some(LocatedDeadLetter { lane, seq, letter: record.as_dead_letter()?.clone() })
        };
        Ok(found.into_iter().filter_map(letter).collect())
    }

    /// One dead letter.
    pub async fn letter(&self, lane: LaneId, seq: u64) -> Result<Option<Arc<DeadLetter>>, Error> {
        Ok(self.row(RowKey::dead_letter(lane, seq)).await?.and_then(|record| record.as_dead_letter().cloned()))
    }

    /// A person's word on a dead letter.
    pub async fn decide_letter(
        &self,
        lane: LaneId,
        seq: u64,
        verdict: LetterVerdict,
        by: &str,
    ) -> Result<Reply, Error> {
        let on = OnLetter { lane, seq, verdict, by: by.to_owned(), members: self.members() };
        let reply = self.engine.ask(Command::Dispatch(dispatch::Command::Letter(Box::new(on)))).await?;
        if let Reply::Dispatch(dispatch::Reply::Letter { letter, .. }) = &reply {
            self.driver.look_at(letter.purpose.lane(&letter.tenant));
        }
        Ok(reply)
    }

    /// Something that a person does to a lane: skip its head, pause it, let it go on.
    pub async fn act(&self, lane: LaneId, act: Act) -> Result<Reply, Error> {
        let reply = self.engine.ask(Command::Lane(lane::Command::Act(Box::new(OnLane { lane, act })))).await?;
        self.driver.look_at(lane);
        Ok(reply)
    }

    /// Entries of a lane after a position; none while a person has stopped it. Where there are none, waits for one up to
    /// `wait`.
    pub async fn pending(
        &self,
        lane: LaneId,
        after: u64,
        limit: usize,
        wait: Duration,
    ) -> Result<Vec<(u64, Arc<Entry>)>, Error> {
        let page = self.polls.wait(lane, wait, || self.handed_out(lane, after, limit)).await?;
        if let Some((seq, _)) = page.last() {
            self.polls.serve(lane, *seq);
        }
        Ok(page)
    }

    // The lane is read after its entries, and each time: it may be paused while a poller waits.
    async fn handed_out(&self, lane: LaneId, after: u64, limit: usize) -> Result<Vec<(u64, Arc<Entry>)>, Error> {
        let page = self.entries(lane, after, limit).await?;
        let stopped = |row: Record| matches!(row, Record::Lane(lane::Record::Lane(lane)) if lane.paused.is_some());
        if !page.is_empty() && self.row(RowKey::lane(lane)).await?.is_some_and(stopped) {
            return Ok(Vec::new());
        }
        Ok(page)
    }

    /// The poller of a lane has received everything up to a position.
    pub async fn ack(&self, lane: LaneId, upto: u64) -> Result<Reply, Error> {
        let act = Act::Ack { upto, epoch: None };
        let command = Command::Lane(lane::Command::Act(Box::new(OnLane { lane, act })));
        let reply = self.engine.ask(&command).await?;
        // Settled events leave the store a bounded part at a time, in the background.
        if matches!(&reply, Reply::Lane(lane::Reply::OnLane { lane, .. }) if lane.trimmed < lane.settled) {
            let engine = self.engine.clone();
            tokio::spawn(async move {
                while let Ok(Reply::Lane(lane::Reply::OnLane { lane, .. })) = engine.ask(&command).await
                    && lane.trimmed < lane.settled
                {}
            });
        }
        Ok(reply)
    }

    /// The text for a position, as pollers hold it. It holds while the lane has this epoch.
    pub fn cursor(&self, lane: LaneId, epoch: u64, seq: u64) -> String {
        let keys = self.vault.cursor_keys();
        keys.first().map(|key| cursor::write(key, epoch, lane, seq)).unwrap_or_default()
    }

    /// The lane and the position behind such a text; none where it is not ours, or of before a restore.
    pub async fn read_cursor(&self, text: &str) -> Result<Option<(LaneView, u64)>, Error> {
        let Some(lane) = cursor::lane(text) else { return Ok(None) };
        let Some(view) = self.lane(lane).await? else { return Ok(None) };
        // One that was served before a rotation still counts.
        let keys = self.vault.cursor_keys();
        let read = keys.iter().find_map(|key| cursor::read(key, view.lane.owner.epoch, text));
        Ok(read.map(|(_, seq)| (view, seq)))
    }

    async fn entries(&self, lane: LaneId, after: u64, limit: usize) -> Result<Vec<(u64, Arc<Entry>)>, Error> {
        self.engine.entries(lane, after, limit).await
    }

    async fn row(&self, key: RowKey) -> Result<Option<Record>, Error> {
        Ok(self.engine.load(&[key]).await?.pop().flatten().map(|row| row.record.clone()))
    }

    // Rows of one kind whose addresses begin with a planner's lanes.
    async fn scan(
        &self,
        kind: Kind,
        planner: Option<&Tenant>,
        after: Option<RowKey>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Record)>, Error> {
        let prefix = planner.map(LaneId::prefix);
        let prefix = prefix.as_ref().map_or(&[][..], |prefix| prefix);
        let found = self.engine.range(kind, prefix, after, limit).await?;
        Ok(found.into_iter().map(|(key, row)| (key, row.record.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancellation(members: &str) -> String {
        format!(r#"{{"kind":"CANCELLED","correlation_id":"c","cancels_correlation_id":"o",{members}}}"#)
    }

    #[test]
    fn envelope_is_bounded_as_it_is_delivered_and_names_its_planner() {
        let envelope = |planner: &str, bytes: usize| {
            let text = cancellation(&format!(r#""warehouse_id":"W","planner_id":"{planner}""#));
            Publication::envelope("wms", format!("{text}{}", " ".repeat(bytes - text.len())))
        };
        assert!(envelope("wms", ENVELOPE_BYTES_MAX).is_ok_and(|event| event.body.len() == ENVELOPE_BYTES_MAX));
        assert!(envelope("wms", ENVELOPE_BYTES_MAX + 1).is_err_and(|why| why.contains("262144 bytes")));
        assert!(envelope("other", 1_000).is_err_and(|why| why.contains("`/planner_id`")));
    }

    #[test]
    fn library_refuses_what_http_refuses() {
        let refused = |body: String| Publication::envelope("wms", body).expect_err("it breaks a rule");
        let polled = cancellation(r#""warehouse_id":"poll:x","planner_id":"wms""#);
        assert_eq!(
            refused(polled),
            "`/warehouse_id` must not begin with `poll:`",
            "its lane would have the name of another"
        );
        assert_eq!(refused(cancellation(r#""warehouse_id":"W""#)), "`/planner_id` is missing");
        let release = r#"{"kind":"SHIPPER_RELEASED","correlation_id":"c","warehouse_id":"W","planner_id":"wms"}"#;
        assert_eq!(refused(release.to_owned()), "`/document_ref` is missing");
        assert!(refused(release.replace("SHIPPER_RELEASED", "SHIPPED")).starts_with("`/kind` must be one of "));
        assert!(refused("{".to_owned()).contains("JSON"));
    }
}
