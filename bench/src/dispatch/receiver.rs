//! The executor of the benchmark, in its own process: reads a delivery, answers 200 and records its time of arrival.
//! Never checks a signature or parses JSON, so its figures are the cost of receiving alone. It has one thread.
//! Called by `main` (the hidden subcommand); `world` sends it requests.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::events;

/// The path of deliveries that are answered.
pub const DELIVER: &str = "/deliver";
/// The path of deliveries that are read and never answered.
pub const SILENT: &str = "/silent";
/// `GET /wait/N` is answered, with the count, once N different events have arrived.
pub const WAIT: &str = "/wait/";
/// Answers the time of each event's first arrival: eight bytes each, zero for an event that did not arrive.
pub const TIMES: &str = "/times";

const BUFFER_LEN: usize = 16 * 1024;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The deliveries that have arrived.
#[derive(Default)]
struct Ledger {
    times_ns: Vec<u64>,
    distinct: u64,
    again: u64,
    /// The number of different events that a request to `/wait/` waits for.
    awaited: u64,
}

impl Ledger {
    /// Records an arrival; true where the number that a request waits for is now reached.
    fn record(&mut self, number: usize, now_ns: u64) -> bool {
        if number >= self.times_ns.len() {
            self.times_ns.resize(number + 1, 0);
        }
        if self.times_ns[number] != 0 {
            self.again += 1;
            return false;
        }
        self.times_ns[number] = now_ns;
        self.distinct += 1;
        self.distinct == self.awaited
    }
}

#[derive(Default)]
struct Desk {
    ledger: RefCell<Ledger>,
    reached: Notify,
}

/// Serves until killed.
pub fn serve(port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let desk = Rc::new(Desk::default());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let desk = desk.clone();
            // A broken connection is the client's failure: a delivery that is missing is found at the end.
            tokio::task::spawn_local(async move { attend(stream, &desk).await });
        }
    })
}

/// The parsed head of a request.
struct Head {
    path: String,
    head_len: usize,
    body_len: usize,
}

async fn attend(mut stream: TcpStream, desk: &Desk) -> Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    let mut filled = 0;
    loop {
        let head = loop {
            if let Some(head) = parse(&buffer[..filled])? {
                break head;
            }
            if !read_some(&mut stream, &mut buffer, &mut filled).await? {
                return Ok(());
            }
        };
        let end = head.head_len + head.body_len;
        while filled < end {
            read_some(&mut stream, &mut buffer, &mut filled).await?;
        }
        answer(&mut stream, desk, &head.path, &buffer[head.head_len..end]).await?;
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

// Reads more bytes; false at the end of the stream.
async fn read_some(stream: &mut TcpStream, buffer: &mut Vec<u8>, filled: &mut usize) -> Result<bool> {
    if *filled == buffer.len() {
        buffer.resize(2 * buffer.len(), 0);
    }
    let read = stream.read(&mut buffer[*filled..]).await?;
    *filled += read;
    anyhow::ensure!(read > 0 || *filled == 0, "a request was cut short");
    Ok(read > 0)
}

async fn answer(stream: &mut TcpStream, desk: &Desk, path: &str, body: &[u8]) -> Result<()> {
    match path {
        DELIVER | SILENT => {
            let number = events::number_of(body).context("not an event of ours")?;
            if desk.ledger.borrow_mut().record(number, now_ns()) {
                desk.reached.notify_one();
            }
            if path == SILENT {
                // Reads until the client closes the connection.
                while stream.read(&mut [0; 64]).await? > 0 {}
            }
            stream.write_all(OK).await?;
        }
        TIMES => {
            let times: Vec<u8> = desk.ledger.borrow().times_ns.iter().flat_map(|ns| ns.to_le_bytes()).collect();
            reply(stream, &times).await?;
        }
        _ => {
            if let Some(count) = path.strip_prefix(WAIT) {
                let count: u64 = count.parse()?;
                while desk.ledger.borrow().distinct < count {
                    desk.ledger.borrow_mut().awaited = count;
                    desk.reached.notified().await;
                }
            }
            let said = {
                let ledger = desk.ledger.borrow();
                format!(r#"{{"distinct":{},"again":{}}}"#, ledger.distinct, ledger.again)
            };
            reply(stream, said.as_bytes()).await?;
        }
    }
    Ok(())
}

async fn reply(stream: &mut TcpStream, body: &[u8]) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    Ok(())
}

fn parse(bytes: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_len) = request.parse(bytes)? else { return Ok(None) };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let body_len = match length {
        Some(length) => std::str::from_utf8(length.value)?.parse()?,
        None => 0,
    };
    Ok(Some(Head { path: request.path.context("a request without a path")?.to_owned(), head_len, body_len }))
}

/// The monotonic clock in nanoseconds; all processes of this machine share it.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_once_and_keeps_its_first_time() {
        let mut ledger = Ledger { awaited: 2, ..Ledger::default() };
        assert!(!ledger.record(3, 10));
        assert!(!ledger.record(3, 20));
        assert!(ledger.record(0, 30));
        assert_eq!((ledger.distinct, ledger.again, ledger.times_ns), (2, 1, vec![30, 0, 0, 10]));
    }

    #[test]
    fn a_head_without_a_length_has_no_body_and_half_a_head_is_none() {
        let head = parse(b"GET /times HTTP/1.1\r\nHost: x\r\n\r\n").unwrap().unwrap();
        assert_eq!((head.path.as_str(), head.head_len, head.body_len), (TIMES, 32, 0));
        assert!(parse(b"POST /deliver HTTP/1.1\r\nContent-Le").unwrap().is_none());
    }
}
