//! Reads the server's time, and the guarantees that its own settings give.
//! Never believes a setting that it has not read. Called when a store is opened.

use fencepost_kernel::Millis;
use tokio_postgres::Client;

use super::{fault::Failed, sql, stamp::Stamp};
use crate::{Durability, Promises, shared_clock::SharedClock};

/// The clock, started past the time floor, and the promises that the server's settings allow.
pub(super) async fn ask(client: &Client) -> Result<(SharedClock, Promises), Failed> {
    let floor = client.query_one(sql::TIME_FLOOR, &[]).await?;
    let clock = SharedClock::new(floor.get::<_, Option<Stamp>>(0).map_or(Millis(0), |floor| floor.0));
    clock.heard(floor.get::<_, Stamp>(1).0);
    let settings = "SELECT current_setting('fsync', true), current_setting('full_page_writes', true)";
    let settings = client.query_one(settings, &[]).await?;
    let (fsync, pages): (Option<&str>, Option<&str>) = (settings.get(0), settings.get(1));
    let (durability, because) = match (fsync, pages) {
        (Some("on"), Some("on")) => (Durability::Synced, "fsync, full_page_writes and synchronous_commit are on"),
        (Some("off"), _) => (Durability::Delayed, "fsync is off: a power cut may lose or damage what was acknowledged"),
        (Some(_), _) => (Durability::Delayed, "full_page_writes is off: a power cut may damage what was acknowledged"),
        (None, _) => (Durability::Delayed, "the server does not say whether it syncs (it has no setting fsync)"),
    };
    Ok((clock, Promises { durability, because: because.to_owned(), shared: true, many_rows: true, lanes: true }))
}
