//! Sends every case of `cases.txt` to a server, and judges what came back. Knows bytes and sockets only, so that other crates' tests can include it.
//!
//! A case passes if the server answers with one of its statuses, or closes where that is allowed, serves nothing behind it, and lets
//! nothing through. In `cases.txt`, `\r \n \t \s \\ \xNN` are escapes (`\s` is a space), `{text*N}` is text repeated, and `{path}` is where
//! the server under test would do something. Flags: `end` sends nothing more and closes the sending half; `gateway` needs a fenced route.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const CASES: &str = include_str!("cases.txt");

/// Sent behind every case that does not end: it must never be served.
const BEHIND: &[u8] = b"GET /behind-the-refused HTTP/1.1\r\nHost: a\r\n\r\n";

/// Past this a server has forgotten its client.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server behind the address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// A front that hands every clean request on.
    Front,
    /// A gateway whose `path` is a route that takes JSON and is fenced by a field of it.
    #[allow(dead_code)]
    Gateway,
}

pub struct Case {
    pub name: String,
    pub bytes: Vec<u8>,
    statuses: Vec<u16>,
    may_close: bool,
    pub ends: bool,
    gateway: bool,
}

/// Runs the corpus. `reached` counts what came through to the service or the upstream so far.
/// Returns how many cases were run; panics with all that failed.
pub fn run(addr: SocketAddr, path: &str, against: Against, reached: impl Fn() -> usize) -> usize {
    let cases: Vec<_> = cases(path).into_iter().filter(|case| against == Against::Gateway || !case.gateway).collect();
    let before = reached();
    let mut failures = Vec::new();
    for case in &cases {
        let answer = exchange(addr, case);
        if let Err(why) = judge(case, &answer) {
            failures.push(format!("{}: {why}", case.name));
        }
        if reached() != before + failures.iter().filter(|failure| failure.ends_with(THROUGH)).count() {
            failures.push(format!("{}{THROUGH}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
    cases.len()
}

const THROUGH: &str = ": came through";

pub fn cases(path: &str) -> Vec<Case> {
    let (mut cases, mut section) = (Vec::new(), None);
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((head, template)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
            section = Some((head.split('|').map(str::trim).collect::<Vec<_>>(), template));
            continue;
        }
        let (head, template) = section.as_ref().expect("a case stands in a section");
        let flags = head.get(2).copied().unwrap_or_default();
        cases.push(Case {
            name: format!("{}: {}", head[0], line.chars().take(80).collect::<String>()),
            bytes: unescaped(&repeated(&template.replace("@@", line).replace("{path}", path))),
            statuses: head[1].split(", ").filter_map(|status| status.parse().ok()).collect(),
            may_close: head[1].contains("close"),
            ends: flags.contains("end"),
            gateway: flags.contains("gateway"),
        });
    }
    cases
}

fn exchange(addr: SocketAddr, case: &Case) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(addr).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // A server that has refused may stop reading; only its answer counts.
    let _ = stream.write_all(&case.bytes);
    if case.ends {
        let _ = stream.shutdown(Shutdown::Write);
    } else {
        let _ = stream.write_all(BEHIND);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err("neither answered nor closed".to_owned())
        }
        // A reset ends the connection as well as a close.
        _ => Ok(answer),
    }
}

fn judge(case: &Case, answer: &Result<Vec<u8>, String>) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer.as_ref().map_err(Clone::clone)?);
    let statuses: Vec<u16> = text
        .split("HTTP/1.")
        .skip(1)
        .filter_map(|rest| rest.get(2..5).and_then(|status| status.parse().ok()))
        // An invitation to send the body is no answer.
        .filter(|status| *status != 100)
        .collect();
    match statuses[..] {
        [] if case.may_close => Ok(()),
        [status] if case.statuses.contains(&status) => Ok(()),
        [] => Err("closed without a word".to_owned()),
        _ => Err(format!("answered {statuses:?}, not {:?}", case.statuses)),
    }
}

fn repeated(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        let inner = from[1..].find('}').map(|close| &from[1..=close]);
        match inner.and_then(|inner| inner.rsplit_once('*')).map(|(text, n)| (text, n.parse::<usize>())) {
            Some((text, Ok(n))) => {
                out.push_str(&text.repeat(n));
                rest = &from[inner.map_or(0, str::len) + 2..];
            }
            _ => {
                out.push('{');
                rest = &from[1..];
            }
        }
    }
    out + rest
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (byte, used) = match after {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b's', ..] => (b' ', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => {
                let digit = |b: u8| (b as char).to_digit(16).expect("a hexadecimal digit") as u8;
                (digit(*high) << 4 | digit(*low), 3)
            }
            _ => panic!("an unknown escape in {text:?}"),
        };
        out.push(byte);
        rest = &after[used..];
    }
    out
}
