//! An application that reads no request body, as CPython's `http.server` does where a handler does not ask for it: what
//! is left of a body is read as the next request. Raw sockets, kept alive, closed where the request says so.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::upstream::{Heard, bytes, head};

/// The path of every request that is hidden in another: no rule of a test leads there.
pub const SMUGGLED: &str = "/smuggled";

pub struct Undrained {
    pub address: SocketAddr,
    ledger: Arc<Mutex<Vec<Heard>>>,
}

impl Undrained {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, ledger) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = ledger.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let ledger = kept.clone();
                thread::spawn(move || serve(stream, &ledger));
            }
        });
        Self { address, ledger }
    }

    /// Every head that it took for a request, hidden ones too.
    pub fn heard(&self) -> Vec<Heard> {
        self.ledger.lock().unwrap().clone()
    }

    /// The same, without so many of the first.
    pub fn heard_from(&self, first: usize) -> Vec<Heard> {
        self.ledger.lock().unwrap()[first..].to_vec()
    }

    #[track_caller]
    pub fn assert_nothing_smuggled(&self) {
        assert_none_smuggled(&self.heard());
    }
}

#[track_caller]
pub fn assert_none_smuggled(heard: &[Heard]) {
    let smuggled: Vec<_> = heard.iter().filter(|heard| heard.target.contains(SMUGGLED)).collect();
    assert!(smuggled.is_empty(), "the upstream ran {smuggled:?}");
}

/// Every upstream of these tests answers with the request it took it for.
pub fn echo(heard: &Heard) -> Vec<u8> {
    let case = heard.header("x-case").unwrap_or("none");
    let body = format!("{{\"target\":\"{}\",\"case\":\"{case}\"}}", heard.target);
    if heard.method == "HEAD" { bytes(200, "", "") } else { bytes(201, "content-type: application/json\r\n", &body) }
}

fn serve(stream: TcpStream, ledger: &Mutex<Vec<Heard>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let [method, target, version] = words[..] else { return refuse(&mut stream) };
        if !version.starts_with("HTTP/1.") {
            return refuse(&mut stream);
        }
        let (method, target) = (method.to_owned(), target.to_owned());
        let Some(head) = head(&mut stream) else { return refuse(&mut stream) };
        let heard = Heard { method, target, head, body: Vec::new() };
        ledger.lock().unwrap().push(heard.clone());
        // A slow handler, made exact: it answers once somebody else's request is behind its own.
        if heard.target.contains(SMUGGLED) {
            wait_for_the_next(&mut stream, &heard.head)?;
        }
        stream.get_mut().write_all(&echo(&heard)).ok()?;
        if heard.all("connection").iter().any(|value| value.eq_ignore_ascii_case("close")) {
            let _ = stream.get_mut().shutdown(Shutdown::Write);
            return Some(());
        }
    }
}

/// Reads a request's own body, and waits for the first byte of another request.
pub fn wait_for_the_next(stream: &mut BufReader<TcpStream>, head: &[(String, String)]) -> Option<()> {
    let length = head.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(Some(0), |(_, length)| length.parse().ok())?;
    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
    stream.fill_buf().ok().map(|_| ())
}

fn refuse(stream: &mut BufReader<TcpStream>) -> Option<()> {
    stream.get_mut().write_all(&bytes(400, "connection: close\r\n", "")).ok()
}
