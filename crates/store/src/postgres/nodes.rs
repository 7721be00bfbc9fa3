//! The nodes that share the store: each node's own row, its heartbeat, and the row format that all of them read.
//! Never lets a node write what another living node cannot read, and never lowers the format again.
//! Called when a store is opened, then every two seconds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use fencepost_kernel::Millis;
use tokio::{sync::Notify, time::timeout};
use tokio_postgres::{Client, Transaction};

use super::{Inner, columns::Param, fault::Failed, link::dial, stamp::Stamp};
use crate::{Error, Node, address::Opener, shared_clock::BEHIND_MS};

/// The interval between the heartbeats of a node.
const BEAT: Duration = Duration::from_secs(2);
/// The same while the database's clock is behind the nodes' time, and after a failed heartbeat. Only the nodes know the
/// time then, and a node that starts must not grant leases that are over for the others.
const BEAT_SOON: Duration = Duration::from_millis(250);
/// How long a node sends frequent heartbeats after its start: by then every other node has sent one with its time.
const SETTLED: Duration = Duration::from_millis(2_500);
/// Every so many heartbeats a node deletes nodes that are long gone: first at number `PRUNES_AT`, after two seconds.
const PRUNES: u32 = 300;
const PRUNES_AT: u32 = 8;
/// A node that is silent by the database's clock holds the row format back until this process has seen no heartbeat of
/// it for so long: that clock may have been set forward, and a living node sends one every two seconds.
const WATCHED: Duration = Duration::from_secs(5);

// Stores the time of the start as a floor: after a failover a moment later, time must not fall below it.
const REGISTER: &str = "INSERT INTO fencepost_nodes (id, address, release, format, started, seen, floor, drives)
    VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(),
        greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes)), false)
    ON CONFLICT (id) DO UPDATE SET address = $2, release = $3, format = $4, started = clock_timestamp(),
        seen = clock_timestamp(), drives = false,
        floor = greatest(clock_timestamp(), (SELECT max(floor) FROM fencepost_nodes))";

/// Every node holds the format back, except those that the caller found silent and that have sent nothing since. If
/// such a node wakes up, it finds a format that it cannot read, and stops.
const RAISE: &str = "UPDATE fencepost_meta SET format = living.format
    FROM (SELECT min(node.format) AS format FROM fencepost_nodes node WHERE NOT EXISTS (
        SELECT 1 FROM unnest($1::text[], $2::text[]) AS silent (id, seen)
        WHERE silent.id = node.id AND silent.seen::timestamptz = node.seen)) living
    WHERE fencepost_meta.format < living.format";

/// The nodes that read only up to a lower format and are silent by the database's clock.
const ELDERS: &str = "SELECT id, seen::text FROM fencepost_nodes
    WHERE format < $1 AND seen <= clock_timestamp() - interval '30 seconds'";

// Inserts the node's row again if it was pruned while the node was stopped. Waits for no disk: a heartbeat is old in a
// moment, so it need not last.
// Stores the node's time as its floor, and returns the latest of all floors: where the database's clock is behind the
// nodes' time, they follow the node that is ahead.
const SAY: &str = "INSERT INTO fencepost_nodes (id, address, release, format, started, seen, floor, drives)
    VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), $6, $5)
    ON CONFLICT (id) DO UPDATE SET seen = clock_timestamp(), drives = $5, floor = greatest(fencepost_nodes.floor, $6)
    RETURNING clock_timestamp(), (SELECT format FROM fencepost_meta),
        (SELECT min(format) FROM fencepost_nodes
         WHERE seen > clock_timestamp() - interval '30 seconds' AND id <> $1),
        set_config('synchronous_commit', 'off', true),
        greatest($6, (SELECT max(floor) FROM fencepost_nodes))";

// Nodes that have been gone for a day leave their time floor to this one.
const PRUNE: &str = "WITH gone AS (
        DELETE FROM fencepost_nodes WHERE seen < clock_timestamp() - interval '1 day' AND id <> $1 RETURNING floor
    ) UPDATE fencepost_nodes SET floor = greatest(floor, (SELECT max(floor) FROM gone))
    WHERE id = $1 AND EXISTS (SELECT 1 FROM gone)";

const LIST: &str = "SELECT node.id, node.address, node.release, node.format, node.started, node.seen,
        coalesce(held.count, 0)
    FROM fencepost_nodes node LEFT JOIN (
        SELECT node, count(*) AS count FROM fencepost_fences
        WHERE state = 'pending' AND (expires_at IS NULL OR expires_at > now()) GROUP BY node
    ) held ON held.node = node.id
    WHERE (node.address <> '' OR held.count > 0) AND node.seen > clock_timestamp() - interval '60 seconds' ORDER BY node.id";

const ALIVE: &str = "SELECT id, seen, clock_timestamp() FROM fencepost_nodes
    WHERE address <> '' AND drives AND seen > clock_timestamp() - interval '1 day'";

// A node without an address serves no clients. The row stays: it holds the node's time floor.
const LEAVE: &str = "UPDATE fencepost_nodes SET address = '' WHERE id = $1";

const NOBODY: &[String] = &[];

/// Registers the node, and returns the row format that it must write. Locks the one row that holds the format, so that
/// no node raises it meanwhile past the format that this node reads.
pub(super) async fn register(client: &mut Client, opener: &Opener, format_max: u8) -> Result<u8, Failed> {
    let transaction = client.transaction().await?;
    readable(agreed(&transaction).await?, format_max)?;
    let format = i16::from(format_max);
    transaction.execute(REGISTER, &[&opener.node, &opener.address, &opener.release, &format]).await?;
    // Nodes that are gone hold it back too, until a heartbeat has watched them.
    transaction.execute(RAISE, &[&NOBODY, &NOBODY]).await?;
    let agreed = readable(agreed(&transaction).await?, format_max)?;
    transaction.commit().await?;
    Ok(agreed)
}

// The agreed format, locked until the transaction ends. Another holder of the lock is soon done, or the server ends it
// after five idle seconds.
async fn agreed(transaction: &Transaction<'_>) -> Result<i16, Failed> {
    transaction.batch_execute("SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '15s'").await?;
    Ok(transaction.query_one("SELECT format FROM fencepost_meta WHERE id = 1 FOR UPDATE", &[]).await?.get(0))
}

// Takes the same lock as above, on a connection of its own: it happens once in the life of a format.
async fn raise(client: &mut Client, (silent, seen): (Vec<String>, Vec<String>)) -> Result<(), Failed> {
    let transaction = client.transaction().await?;
    agreed(&transaction).await?;
    transaction.execute(RAISE, &[&silent, &seen]).await?;
    transaction.commit().await?;
    Ok(())
}

/// Whether rows in the agreed format can be read here.
pub(super) fn readable(agreed: i16, format_max: u8) -> Result<u8, Error> {
    u8::try_from(agreed).ok().filter(|format| (1..=format_max).contains(format)).ok_or_else(|| {
        Error::Broken(format!(
            "the nodes of this store have agreed on row format {agreed}, and this release reads up to {format_max}: \
             run the newer release"
        ))
    })
}

/// Sends heartbeats while the store exists; one soon after an answer that showed the database's clock behind.
pub(super) async fn beat(store: Weak<Inner>, behind: Arc<Notify>) {
    let (mut turn, mut pause, started) = (0u32, BEAT_SOON, Instant::now());
    loop {
        tokio::time::sleep(BEAT_SOON).await;
        let _ = timeout(pause.saturating_sub(BEAT_SOON), behind.notified()).await;
        let Some(store) = store.upgrade() else { return };
        // A failure needs no handling: every operation reports it. The next heartbeat comes soon, so that the others do
        // not take this node for gone because one of its own commits delayed a heartbeat.
        let said = store.once_alive(turn % PRUNES == PRUNES_AT).await;
        let calm = matches!(said, Ok(Clock::Leads)) && started.elapsed() > SETTLED;
        pause = if calm { BEAT } else { BEAT_SOON };
        turn = turn.wrapping_add(1);
    }
}

/// The last heartbeat of each node, and when it was found here. The server's clock may step by more than a lease at any
/// moment, and all earlier heartbeats are then as old as the step: only a changed heartbeat is a sign of life.
#[derive(Default)]
pub(super) struct Sightings(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    looked: Option<Instant>,
    /// The time in each node's last heartbeat, and about when it was sent, by the local clock.
    nodes: HashMap<String, (Millis, Instant)>,
}

impl Sightings {
    /// How long each node has been silent. By the server's clock at first sight, and always for this node itself: the
    /// others saw its heartbeat when it was written, or later.
    fn silent_ms(&self, me: &str, told: Vec<(String, Millis, u64)>) -> Vec<(String, u64)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let looked_ms =
            known.looked.replace(now).map_or(u64::MAX, |looked| now.duration_since(looked).as_millis() as u64);
        known.nodes.retain(|node, _| told.iter().any(|(living, ..)| living == node));
        let silent = |(node, seen, by_server_ms): (String, Millis, u64)| {
            if node == me {
                return (node, by_server_ms);
            }
            let ago = |ms| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
            let said = match known.nodes.get(&node) {
                Some((before, said)) if *before == seen => *said,
                // It was sent after the last look, whatever the server's clock says.
                Some(_) => ago(by_server_ms.min(looked_ms)),
                None => ago(by_server_ms),
            };
            known.nodes.insert(node.clone(), (seen, said));
            (node, now.duration_since(said).as_millis() as u64)
        };
        told.into_iter().map(silent).collect()
    }
}

/// Nodes of older releases that are silent by the database's clock: the last heartbeat of each, and since when this
/// process has seen no other.
#[derive(Default)]
pub(super) struct SilentOldNodes(Mutex<HashMap<String, (String, Instant)>>);

impl SilentOldNodes {
    /// The silent nodes and their last heartbeats, if each of them was watched for [`WATCHED`]; else none.
    fn silent(&self, told: Vec<(String, String)>, now: Instant) -> Option<(Vec<String>, Vec<String>)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|node, (seen, _)| told.iter().any(|(silent, said)| silent == node && said == seen));
        for (node, seen) in &told {
            known.entry(node.clone()).or_insert_with(|| (seen.clone(), now));
        }
        let watched = known.values().all(|(_, since)| now.duration_since(*since) >= WATCHED);
        watched.then(|| told.into_iter().unzip())
    }
}

/// How the database's clock compares with the latest time of any node.
enum Clock {
    Leads,
    Behind,
}

impl Inner {
    async fn once_alive(&self, prune: bool) -> Result<Clock, Error> {
        let failed = |error: tokio_postgres::Error| Failed::Server(error).of_nothing();
        let session = self.keeping.session().await?;
        let (node, format) = (&self.opener.node, i16::from(self.format_max));
        let drives = self.drives.load(Ordering::Acquire);
        let now = Stamp(self.clock.now());
        let params: [Param<'_>; 6] = [node, &self.opener.address, &self.opener.release, &format, &drives, &now];
        let said = self.within(&session, session.query(SAY, &params)).await?.map_err(failed)?;
        let mut clock = Clock::Leads;
        if let Some(row) = said.first() {
            let [server, lived] = [0, 4].map(|column| row.get::<_, Stamp>(column).0);
            self.clock.heard(server.max(lived));
            if lived.since(server) > BEHIND_MS {
                clock = Clock::Behind;
            }
            let agreed: i16 = row.get(1);
            match readable(agreed, self.format_max) {
                Ok(agreed) => self.set_format(agreed),
                Err(error) => return Err(self.stop(error)),
            }
            let others: Option<i16> = row.get(2);
            let next = format.min(others.unwrap_or(format));
            if next > agreed {
                let silent_old = self.within(&session, session.query(ELDERS, &[&next])).await?.map_err(failed)?;
                let silent_old = silent_old.iter().map(|row| (row.get(0), row.get(1))).collect();
                if let Some(silent) = self.silent_old.silent(silent_old, Instant::now()) {
                    raise(&mut dial(&self.target).await?, silent).await.map_err(Failed::of_nothing)?;
                }
            }
        }
        if prune {
            self.within(&session, session.query(PRUNE, &[node])).await?.map_err(failed)?;
        }
        Ok(clock)
    }

    /// Marks the node as one that drives lanes, with a heartbeat at once.
    pub(super) async fn drive(&self) -> Result<(), Error> {
        self.drives.store(true, Ordering::Release);
        self.once_alive(false).await.map(drop)
    }

    /// The nodes that serve clients and drive lanes, and when each one's last heartbeat was, by the store's clock.
    pub(super) async fn alive(&self) -> Result<Vec<(String, Millis)>, Error> {
        let rows = self.ask(&self.keeping, ALIVE, &[]).await?;
        if let Some(row) = rows.last() {
            self.clock.heard(row.get::<_, Stamp>(2).0);
        }
        let now = self.clock.now();
        let told: Vec<(String, Millis, u64)> = rows
            .iter()
            .map(|row| {
                let [seen, server] = [1, 2].map(|column| row.get::<_, Stamp>(column).0);
                (row.get(0), seen, server.since(seen))
            })
            .collect();
        let silent = self.sightings.silent_ms(&self.opener.node, told);
        Ok(silent.into_iter().map(|(node, silent_ms)| (node, Millis(now.0.saturating_sub(silent_ms)))).collect())
    }

    /// Marks the node as one that serves no clients any more.
    pub(super) async fn leave(&self) -> Result<(), Error> {
        self.ask(&self.keeping, LEAVE, &[&self.opener.node]).await.map(drop)
    }

    /// The nodes that were seen in the last minute and serve clients or hold claims.
    pub(super) async fn list(&self) -> Result<Vec<Node>, Error> {
        let session = self.keeping.session().await?;
        let rows = self.within(&session, session.query(LIST, &[])).await?;
        let rows = rows.map_err(|error| Failed::Server(error).of_nothing())?;
        let at = |row: &tokio_postgres::Row, column: usize| -> Millis { row.get::<_, Stamp>(column).0 };
        let node = |row: &tokio_postgres::Row| Node {
            id: row.get(0),
            address: row.get(1),
            release: row.get(2),
            format: u8::try_from(row.get::<_, i16>(3)).unwrap_or(u8::MAX),
            started: at(row, 4),
            seen: at(row, 5),
            holds: u64::try_from(row.get::<_, i64>(6)).ok(),
        };
        Ok(rows.iter().map(node).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_MS: u64 = 6_000;

    fn silent(sightings: &Sightings, seen: [u64; 2], server: u64) -> [u64; 2] {
        let told = ["one", "other"].into_iter().zip(seen);
        let told = told.map(|(node, seen)| (node.to_owned(), Millis(seen), Millis(server).since(Millis(seen))));
        let silent = sightings.silent_ms("one", told.collect());
        [silent[0].1, silent[1].1]
    }

    #[test]
    fn older_node_that_a_forward_step_made_look_silent_is_watched_before_the_format_is_raised() {
        let (silent_old, begun) = (SilentOldNodes::default(), Instant::now());
        let told = |seen: &str| vec![("old".to_owned(), seen.to_owned())];
        assert_eq!(silent_old.silent(told("10:00:00"), begun), None);
        // The node is alive, and the clock steps once more.
        assert_eq!(silent_old.silent(told("10:05:01"), begun + WATCHED), None);
        let silent = silent_old.silent(told("10:05:01"), begun + WATCHED * 2);
        assert_eq!(silent, Some((vec!["old".to_owned()], vec!["10:05:01".to_owned()])));
        assert_eq!(silent_old.silent(Vec::new(), begun), Some(<(Vec<_>, Vec<_>)>::default()));
    }

    #[test]
    fn a_step_of_the_servers_clock_takes_nobody_else_for_dead() {
        let sightings = Sightings::default();
        assert_eq!(silent(&sightings, [99_000, 99_000], 100_000)[0], 1_000);
        // The clock steps forward by a minute between two heartbeats. This node takes only itself for silent.
        let [own, other] = silent(&sightings, [99_000, 99_000], 160_000);
        assert!(own > LEASE_MS && other < LEASE_MS, "{own} {other}");
        let [own, other] = silent(&sightings, [160_500, 160_400], 161_000);
        assert!(own < LEASE_MS && other < LEASE_MS, "{own} {other}");
        // A node that is seen for the first time can only be judged by the server's clock.
        assert!(silent(&Sightings::default(), [160_000, 99_000], 161_000)[1] > LEASE_MS);
    }
}
