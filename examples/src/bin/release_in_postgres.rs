//! Releases each shipper once, however often it runs or is killed: its row and event are one PostgreSQL transaction.
//! A Fencepost server on the same database sends the events; here an executor polls them. Called by people and tests.
//!
//!     cargo run -p fencepost-examples --bin release_in_postgres -- postgres://localhost/wms SH-1 SH-2 SH-3

use anyhow::{Context, bail};
use fencepost::{
    Fencepost,
    dispatch::Publication,
    kernel::{
        Command, Millis, Reply, Tenant,
        dispatch::{self, PutTransport, Transport, WarehouseTransport},
        lane::AfterDead,
    },
    policy::Policy,
};
use tokio_postgres::{Client, NoTls};

const PLANNER: &str = "fgai-wms";
const WAREHOUSE: &str = "WH-1";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context("usage: release_in_postgres DATABASE_URL SHIPPER...")?;
    let once = Fencepost::connect(&url, Policy::builtin()).await?;
    route(&once).await?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS released (shipper text NOT NULL)").await?;
    for shipper in arguments {
        println!("{}", release(&once, &mut client, &shipper).await?);
    }
    once.close().await;
    Ok(())
}

// Usually a planner does this once, with PUT /wes/v1/warehouses/WH-1/transport.
async fn route(once: &Fencepost) -> anyhow::Result<()> {
    let route = WarehouseTransport {
        planner: Tenant::new(PLANNER),
        warehouse: WAREHOUSE.to_owned(),
        executor: "dev-wes".to_owned(),
        transport: Transport::Poll,
        after_dead: AfterDead::Continue,
        receiver_retain_ms: 7 * 24 * 3_600_000,
        at: Millis(0),
    };
    match once
        .engine()
        .ask(&Command::Dispatch(dispatch::Command::PutTransport(Box::new(PutTransport {
            transport: route,
            seen_to: None,
            over: None,
        }))))
        .await?
    {
        Reply::Dispatch(dispatch::Reply::TransportPut { .. }) => Ok(()),
        reply => bail!("the warehouse has no transport: {}", reply.decision()),
    }
}

async fn release(once: &Fencepost, client: &mut Client, shipper: &str) -> anyhow::Result<String> {
    let envelope = format!(
        r#"{{"kind":"SHIPPER_RELEASED","correlation_id":"release-{shipper}","planner_id":"{PLANNER}","warehouse_id":"{WAREHOUSE}",
        "document_ref":{{"type":"SHIPPER","id":"{shipper}"}},"routing":{{"ops":[{{"op_id":"op-1","kind":"PICK"}}]}}}}"#
    );
    let event = Publication::envelope(PLANNER, envelope).map_err(anyhow::Error::msg)?;
    let mut tx = client.transaction().await?;
    let published = once.publish_in(&mut tx, event).await?;
    if published.replay {
        return Ok(format!("{shipper} was released before, at position {}", published.seq));
    }
    tx.execute("INSERT INTO released (shipper) VALUES ($1)", &[&shipper]).await?;
    tx.commit().await?;
    Ok(format!("{shipper} is released at position {}", published.seq))
}
