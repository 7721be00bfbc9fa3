//! Books each room once, however often it runs and wherever it is killed: claim, booking and receipt are one PostgreSQL
//! transaction. Called by people and by tests.
//!
//!     cargo run -p fencepost-examples --bin book_in_postgres -- postgres://localhost/hotel 101 102 103

use anyhow::{Context, bail};
use fencepost::{Claimed, Fencepost, policy::Policy};
use tokio_postgres::{Client, NoTls};

const POLICY: &str = "scopes: { ROOM: { key: [room], retain: 30d } }";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context("usage: book_in_postgres DATABASE_URL ROOM...")?;
    let Ok(policy) = Policy::parse("example", POLICY) else { bail!("the policy of this example is wrong") };

    let once = Fencepost::connect(&url, policy).await?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    // There is no unique index: only the fence prevents a second booking of a room.
    client.batch_execute("CREATE TABLE IF NOT EXISTS bookings (room text NOT NULL, guest text NOT NULL)").await?;
    for room in arguments {
        println!("{}", book(&once, &mut client, &room).await?);
    }
    once.close().await;
    Ok(())
}

async fn book(once: &Fencepost, client: &mut Client, room: &str) -> anyhow::Result<String> {
    let mut tx = client.transaction().await?;
    let booking = match once.scope("ROOM").key([("room", room)]).claim_in(&mut tx).await? {
        Claimed::Duplicate(earlier) => format!("{room} was booked before: {}", earlier.effect_id),
        Claimed::New(claim) => {
            tx.execute("INSERT INTO bookings (room, guest) VALUES ($1, 'Ada')", &[&room]).await?;
            claim.seal_in(&mut tx, format!("booking of {room}"), format!(r#"{{"room":"{room}"}}"#)).await?;
            format!("{room} is booked")
        }
    };
    tx.commit().await?;
    Ok(booking)
}
