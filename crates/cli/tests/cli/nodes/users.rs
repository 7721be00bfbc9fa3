//! Users whose transactions claim, act, seal and publish in the same database, and who begin again until they are told that
//! one was committed. Judged by what the database holds in the end. Never judged by what the product says of itself.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost::{Claimed, Fencepost, dispatch::Publication, policy::Policy};
use fencepost_rig::PostgresServer;
use tokio_postgres::{Client, NoTls};

use super::super::dispatch::{
    checker::Sent,
    planner::{PLANNER_ID, event},
};

const POLICY: &str = "scopes:\n  ROOM:\n    key: [room]\n    retain: 7d\n";
/// How long a user stays away whose transaction failed.
const BACK_OFF: Duration = Duration::from_millis(20);
/// How long a user waits for a server that may be gone.
const PATIENCE: Duration = Duration::from_secs(3);
pub const WAREHOUSE: &str = "WH-USERS";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Replies to users.
#[derive(Default)]
pub struct Users {
    over: AtomicBool,
    booked: Mutex<BTreeSet<i64>>,
    sent: Mutex<Vec<Sent>>,
}

impl Users {
    /// Books rooms one after the other, each until its booking is committed, while `meanwhile` runs.
    pub fn book<T>(&self, url: &str, meanwhile: impl FnOnce() -> T) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        self.over.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(self.work(url)));
            let _ends = Ends(&self.over);
            meanwhile()
        })
    }

    async fn work(&self, url: &str) {
        let policy = Policy::parse("users", POLICY).unwrap();
        let once = Fencepost::connect(url, policy).await.unwrap();
        let mut client = None;
        let first = self.sent.lock().unwrap().len() as i64;
        for room in first.. {
            let event = event(&format!("room-{room}"), WAREHOUSE).to_string();
            // The position is given once; a repetition gets the same.
            let sent = Sent {
                id: format!("room-{room}"),
                lane: format!("{PLANNER_ID}:{WAREHOUSE}"),
                body: event.clone().into_bytes(),
                publisher: (0, room as u64),
                seq: None,
            };
            self.sent.lock().unwrap().push(sent);
            loop {
                if self.over.load(Ordering::Acquire) {
                    return;
                }
                let booked = tokio::time::timeout(PATIENCE, book(&once, url, &mut client, room, &event)).await;
                match booked {
                    Ok(Ok(seq)) => {
                        self.booked.lock().unwrap().insert(room);
                        self.sent.lock().unwrap()[room as usize].seq = Some(seq);
                        break;
                    }
                    _ => client = None,
                }
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    pub fn booked(&self) -> usize {
        self.booked.lock().unwrap().len()
    }

    /// Each booking that a user was told of is there once, and each that is there has its receipt.
    pub fn assert_kept(&self, postgres: &PostgresServer, database: &str) {
        let ask = |sql: &str| postgres.sql(database, sql);
        assert_eq!(ask("SELECT count(*) - count(DISTINCT room) FROM bookings"), "0", "a room was booked twice");
        let there: BTreeSet<i64> = ask("SELECT room FROM bookings").lines().map(|room| room.parse().unwrap()).collect();
        let lost: Vec<_> = self.booked.lock().unwrap().difference(&there).copied().collect();
        assert!(lost.is_empty(), "acknowledged bookings are gone: {lost:?}");
        let sealed = "SELECT fields ->> 'room' FROM fencepost_fences WHERE scope = 'ROOM' AND state = 'sealed'";
        let sealed: BTreeSet<i64> = ask(sealed).lines().map(|room| room.parse().unwrap()).collect();
        assert_eq!(sealed, there, "an effect without its receipt, or a receipt without its effect");
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

// One transaction: the claim, the row, the receipt and the event. Its position, once all of it is committed.
async fn book(
    once: &Fencepost,
    url: &str,
    client: &mut Option<Client>,
    room: i64,
    event: &str,
) -> Result<u64, Failure> {
    if client.is_none() {
        let (new, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        *client = Some(new);
    }
    let Some(client) = client else { unreachable!() };
    let mut tx = client.transaction().await?;
    if let Claimed::New(claim) = once.scope("ROOM").key([("room", room.to_string())]).claim_in(&mut tx).await? {
        tx.execute("INSERT INTO bookings VALUES ($1)", &[&room]).await?;
        claim.seal_in(&mut tx, format!("booking of {room}"), "{}").await?;
    }
    let published = once.publish_in(&mut tx, Publication::envelope(PLANNER_ID, event.to_owned())?).await?;
    tx.commit().await?;
    Ok(published.seq)
}
