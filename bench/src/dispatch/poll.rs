//! Measures one poller that drains a long backlog: whether the last page costs as much as the first.
//! Never skips an acknowledgement; each event must be on exactly one page. Called by `dispatch`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Bench;
use super::events::{self, EXECUTOR};
use super::planner::{self, Load};
use super::table::{Finding, Goal};
use super::world::{World, drive};
use crate::http::Connection;
use crate::stats::median;

/// Events of a page.
const PAGE: u64 = 100;
/// Connections that fill the backlog, and the events in each of their requests.
const FILLERS: usize = 8;
const PER_REQUEST: usize = 1_000;
/// The pages at either end that are compared: this share of all, and at least this many.
const END: f64 = 0.01;
const END_LEAST: usize = 10;

/// How long reading and acknowledging one page took.
struct Page {
    read: Duration,
    acked: Duration,
}

/// Fills a backlog, drains it and compares the first pages with the last.
pub fn backlog(bench: &Bench<'_>) -> Result<Vec<Finding>> {
    let events = bench.sizes.backlog;
    let world = World::start(bench.ground, bench.store, "poll")?;
    let port = world.port()?;
    let (fill, drain, pages) = drive(async {
        planner::route_to_poller(port, 0).await?;
        let began = Instant::now();
        let load = Load { port, connections: FILLERS, per_request: PER_REQUEST, numbers: 0..events, lanes: 0..1 };
        load.publish().await?;
        let fill = began.elapsed();
        let began = Instant::now();
        let pages = drained(port, events).await?;
        Ok((fill, began.elapsed(), pages))
    })?;
    let share = ((pages.len() as f64 * END) as usize).max(END_LEAST).min(pages.len());
    let ends = |took: fn(&Page) -> Duration| {
        let ms = |pages: &[Page]| median(&pages.iter().map(|page| took(page).as_secs_f64() * 1e3).collect::<Vec<_>>());
        (ms(&pages[..share]), ms(&pages[pages.len() - share..]))
    };
    let (first, last) = ends(|page| page.read + page.acked);
    let (first_read, last_read) = ends(|page| page.read);
    let more = json!({
        "events": events, "pages": pages.len(), "pages_compared": share, "fill_per_second": events as f64 / fill.as_secs_f64(),
        "drain_per_second": events as f64 / drain.as_secs_f64(), "peak_rss_bytes": world.peak_bytes()?,
    });
    let mark = |ms| ("first pages, ms".to_owned(), ms);
    let label = format!("backlog of {events}: last pages, read and ack, ms");
    let both = Finding::ratio('f', &label, last, mark(first), Goal::AtMost(1.2)).with(more);
    let read = Finding::ratio('f', "  of that the read", last_read, mark(first_read), Goal::AtMost(1.2));
    let rate = Finding::alone('f', "  drained, events/s", events as f64 / drain.as_secs_f64());
    Ok(vec![both, read, rate])
}

async fn drained(port: u16, events: u64) -> Result<Vec<Page>> {
    let mut connection = Connection::open(port).await?;
    let mut seen = vec![false; events as usize];
    let mut pages = Vec::new();
    let request = events::request("GET", &format!("/wes/v1/dispatch/pending?limit={PAGE}"), EXECUTOR, "");
    loop {
        let began = Instant::now();
        let reply = connection.exchange(&request).await?;
        let read = began.elapsed();
        ensure!(reply.status == 200, reply.unexpected("200 and a page"));
        let cursor = next_cursor(reply.body)?.to_owned();
        if cursor.is_empty() {
            break;
        }
        for number in events::numbers_in(reply.body) {
            let number = number.context("an event that nobody published")?;
            let seen = seen.get_mut(number).context("an event past the last")?;
            ensure!(!std::mem::replace(seen, true), "event {number} is on two pages");
        }
        let ack = events::request("POST", "/wes/v1/dispatch/ack", EXECUTOR, &format!(r#"{{"cursor":"{cursor}"}}"#));
        let began = Instant::now();
        let reply = connection.exchange(&ack).await?;
        ensure!(reply.status == 200, reply.unexpected("200 for an acknowledgement"));
        pages.push(Page { read, acked: began.elapsed() });
    }
    let missing = seen.iter().filter(|seen| !**seen).count();
    ensure!(missing == 0, "{missing} events were on no page");
    Ok(pages)
}

// The cursor is the last member of a page, so the events before it need not be parsed.
fn next_cursor(page: &[u8]) -> Result<&str> {
    const NAME: &[u8] = br#""next_cursor":""#;
    let at = memchr::memmem::rfind(page, NAME).context("a page without a cursor")? + NAME.len();
    let end = page.strip_suffix(br#""}"#).context("a page that ends otherwise")?.len();
    Ok(std::str::from_utf8(page.get(at..end).context("a page that ends otherwise")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_the_last_member_of_a_page() {
        let page = br#"{"events":[{"next_cursor":"no"}],"next_cursor":"yes"}"#;
        assert_eq!(next_cursor(page).unwrap(), "yes");
        assert_eq!(next_cursor(br#"{"events":[],"next_cursor":""}"#).unwrap(), "");
        assert!(next_cursor(b"{}").is_err());
    }
}
