//! HTTP/2 as no library writes it: fields that would be more than themselves once they are lines of HTTP/1, and frames
//! as h2spec has them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use super::{super::super::server::PATIENCE, Case, UPSTREAMS};

#[path = "../../../../../wire/tests/server/http2_bytes.rs"]
#[allow(dead_code)]
mod bytes;

use bytes::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame, literal,
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

const HIDDEN: &[u8] = b"POST /smuggled HTTP/1.1\r\nhost: x\r\nfencepost-tenant: globex\r\ncontent-length: 0\r\n\r\n";

/// The stream of a lawful request behind a case.
const LATER: u32 = 201;

/// What becomes of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// The connection ends.
    Connection,
    /// Its stream is reset or refused, or the connection ends.
    Refused,
    /// The next request on the connection is served.
    Served,
}

type Field = (Vec<u8>, Vec<u8>);

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn block(fields: &[Field]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A request with fields that are not as they should be.
struct Odd {
    name: String,
    pseudo: [Field; 4],
    more: Vec<Field>,
    trailers: Vec<Field>,
}

fn odd_requests(path: &str) -> Vec<Odd> {
    let usual = || {
        [field(":method", "GET"), field(":scheme", "http"), field(":path", path), field(":authority", "shop.example")]
    };
    let mut all = Vec::new();
    let mut push = |what: &str, (name, value): Field, pseudo: [Field; 4], more: Vec<Field>, trailers: Vec<Field>| {
        let shown = format!("{what} {:?}: {:?}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        all.push(Odd { name: shown, pseudo, more, trailers });
    };
    for (name, value) in FIELDS {
        push("field", field(name, value), usual(), vec![field(name, value)], vec![]);
    }
    let twice = vec![field("content-length", "4"), field("content-length", "90")];
    push("fields", field("content-length", "4 and 90"), usual(), twice, vec![]);
    for (name, value) in PSEUDO {
        let value = value.replace("{path}", path);
        let mut pseudo = usual();
        pseudo.iter_mut().find(|(known, _)| known == name.as_bytes()).unwrap().1 = value.clone().into_bytes();
        push("pseudo", field(name, &value), pseudo, vec![], vec![]);
    }
    for (name, value) in TRAILERS {
        push("trailer", field(name, value), usual(), vec![], vec![field(name, value)]);
    }
    all
}

const FIELDS: [(&str, &str); 48] = [
    ("x", "a\r\nx-injected: 1"),
    ("x", "a\nx-injected: 1"),
    ("x", "a\rx-injected: 1"),
    ("x", "a\r\n\r\nPOST /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"),
    ("x", "a\0x-injected: 1"),
    ("x", "a\x0bb"),
    ("x", " a"),
    ("x\r\nx-injected", "1"),
    ("x: 1\r\nx-injected", "1"),
    ("x: 1\r\n\r\nPOST /smuggled HTTP/1.1\r\nhost", "x"),
    ("x-injected ", "1"),
    (" x-injected", "1"),
    ("x-injected:", "1"),
    (":x-injected", "1"),
    ("X-Injected", "1"),
    ("x_injected", "1"),
    ("x\0injected", "1"),
    ("x\u{e9}", "1"),
    ("", "1"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "identity"),
    ("transfer_encoding", "chunked"),
    ("connection", "close"),
    ("connection", "content-length"),
    ("proxy-connection", "keep-alive"),
    ("keep-alive", "timeout=5"),
    ("upgrade", "h2c"),
    ("http2-settings", "AAMAAABkAAQAAP__"),
    ("te", "gzip"),
    ("te", "trailers"),
    ("content-length", "0"),
    ("content-length", "4"),
    ("content-length", "90000"),
    ("content-length", "4, 4"),
    ("content-length", "+4"),
    ("content-length", "0x4"),
    ("content-length", "\t4"),
    ("host", "x"),
    ("host", "shop.example\r\nx-injected: 1"),
    ("cookie", "a=b\r\nx-injected: 1"),
    ("expect", "100-continue"),
    ("fencepost-tenant", "globex"),
    ("fencepost_tenant", "globex"),
    (":path", "/smuggled"),
    (":method", "POST"),
    (":status", "200"),
    (":protocol", "websocket"),
    ("x-original-url", "/smuggled"),
];

const PSEUDO: [(&str, &str); 34] = [
    (":path", "{path} HTTP/1.1\r\nx-injected: 1\r\nx: "),
    (":path", "{path} HTTP/1.1\r\n\r\nPOST /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"),
    (":path", "{path}\r\n"),
    (":path", "{path}\n/smuggled"),
    (":path", "{path} /smuggled"),
    (":path", "{path}\t"),
    (":path", "{path}\0"),
    (":path", "{path}?a b"),
    (":path", "{path}#/smuggled"),
    (":path", "{path}/../../smuggled"),
    (":path", "{path}/%2e%2e/%2e%2e/smuggled"),
    (":path", "{path}%0d%0ax-injected:%201"),
    (":path", "http://x/smuggled"),
    (":path", "//x/smuggled"),
    (":path", "smuggled"),
    (":path", "*"),
    (":path", ""),
    (":method", "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\nGET"),
    (":method", "GET\r\nx-injected: 1"),
    (":method", "GET "),
    (":method", "get"),
    (":method", ""),
    (":method", "CONNECT"),
    (":method", "TRACE"),
    (":authority", "a\r\nx-injected: 1"),
    (":authority", "a b"),
    (":authority", "u@a"),
    (":authority", "a/smuggled"),
    (":authority", "a:99999"),
    (":authority", ""),
    (":scheme", "http://x/smuggled?"),
    (":scheme", "http\r\nx-injected: 1"),
    (":scheme", "ftp"),
    (":scheme", ""),
];

const TRAILERS: [(&str, &str); 9] = [
    ("fencepost-tenant", "globex"),
    ("x-injected", "1"),
    ("x", "a\r\nx-injected: 1"),
    ("content-length", "5"),
    ("transfer-encoding", "chunked"),
    ("host", "x"),
    ("idempotency-key", "forged"),
    (":path", "/smuggled"),
    (":method", "POST"),
];

/// Every odd request as a read, a read with a body and a write, under each kind of rule.
pub fn injections() -> Vec<Case> {
    let mut cases = Vec::new();
    for upstream in UPSTREAMS {
        for rule in ["write", "body"] {
            for odd in odd_requests(&format!("/{upstream}/{rule}")) {
                for (kind, method, data) in
                    [("read", "GET", false), ("read of a body", "GET", true), ("write", "POST", true)]
                {
                    let number = cases.len();
                    let mut fields = odd.pseudo.to_vec();
                    if fields[0].1 == b"GET" {
                        fields[0].1 = method.into();
                    }
                    if method == "POST" {
                        fields.push(field("authorization", "Bearer dev-partner"));
                    }
                    fields.push(field("idempotency-key", &format!("injection-{number}")));
                    fields.extend(odd.more.clone());
                    let last = if data || !odd.trailers.is_empty() { 0 } else { END_STREAM };
                    let mut bytes = [hello(), frame(HEADERS, END_HEADERS | last, 1, &block(&fields))].concat();
                    if data {
                        let last = if odd.trailers.is_empty() { END_STREAM } else { 0 };
                        bytes.extend(frame(DATA, last, 1, HIDDEN));
                    }
                    if !odd.trailers.is_empty() {
                        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&odd.trailers)));
                    }
                    cases.push(Case::new(format!("{kind} {rule} {}", odd.name), upstream, bytes));
                }
            }
        }
    }
    cases
}

struct Frames(TcpStream);

impl Frames {
    fn after(to: SocketAddr, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Whoever has closed already has answered.
        let _ = stream.write_all(bytes);
        Self(stream)
    }

    /// Kind, flags, stream and payload of the next frame; none once the connection has ended.
    fn next(&mut self) -> Result<Option<(u8, u8, u32, Vec<u8>)>, String> {
        let mut head = [0; 9];
        if let Err(error) = self.0.read_exact(&mut head) {
            let waits = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            return if waits { Err("neither answered nor closed".to_owned()) } else { Ok(None) };
        }
        // A connection that was not taken for HTTP/2 is answered in HTTP/1, and closed.
        if head.starts_with(b"HTTP/1.") {
            return Ok(None);
        }
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if self.0.read_exact(&mut payload).is_err() {
            return Ok(None);
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Some((head[3], head[4], stream, payload)))
    }
}

/// Sends a case, and waits until its stream or connection has come to an end.
pub fn exchange(to: SocketAddr, case: &Case) -> Result<(), String> {
    let mut frames = Frames::after(to, &case.bytes);
    loop {
        match frames.next()? {
            None | Some((RESET | GOAWAY, ..)) => return Ok(()),
            Some((HEADERS | DATA, flags, 1, _)) if flags & END_STREAM != 0 => return Ok(()),
            Some(_) => {}
        }
    }
}

/// Whether an answer's header block begins with a status of 4xx: an entry of the static table, or a literal in it.
fn is_refusal(block: &[u8]) -> bool {
    let from = block.iter().position(|byte| byte & 0xe0 != 0x20).unwrap_or(0);
    match block[from..] {
        [0x8c | 0x8d, ..] => true,
        // Huffman codes: a 4 begins with 011010.
        [0x08 | 0x48, length, first, ..] if length & 0x80 != 0 => first >> 2 == 0b01_1010,
        [0x08 | 0x48, _, first, ..] => first == b'4',
        _ => false,
    }
}

/// Sends a case and judges what it led to.
pub fn judge(to: SocketAddr, case: &Case, expected: Expected) -> Result<(), String> {
    let mut frames = Frames::after(to, &case.bytes);
    loop {
        let next = frames.next()?;
        let ended = matches!(next, None | Some((GOAWAY, ..)));
        match (expected, next) {
            (Expected::Connection | Expected::Refused, _) if ended => return Ok(()),
            (Expected::Served, _) if ended => return Err("the connection ended".to_owned()),
            (Expected::Refused, Some((RESET, ..))) => return Ok(()),
            (Expected::Refused, Some((HEADERS, _, stream, block))) if stream < LATER && is_refusal(&block) => {
                return Ok(());
            }
            (Expected::Served, Some((HEADERS, _, LATER, block))) if !is_refusal(&block) => return Ok(()),
            (_, Some((HEADERS, _, LATER, _))) => return Err("the next request was answered".to_owned()),
            _ => {}
        }
    }
}

fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        field(":method", method),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", "shop.example"),
    ];
    fields.extend(more.iter().map(|(name, value)| field(name, value)));
    block(&fields)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Frames as h2spec sends them, by the sections of RFC 9113 and RFC 7541. A lawful request follows those that must do no harm.
pub fn frames() -> Vec<(Case, Expected)> {
    use Expected::{Connection, Refused, Served};
    let mut all: Vec<(Case, Expected)> = Vec::new();
    for upstream in UPSTREAMS {
        let path = format!("/{upstream}/write");
        let get = request("GET", &path, &[]);
        let whole = END_HEADERS | END_STREAM;
        let one = |stream| frame(HEADERS, whole, stream, &get);
        let open = |stream| frame(HEADERS, END_HEADERS, stream, &get);
        let with = |more: &[(&str, &str)]| frame(HEADERS, whole, 1, &request("GET", &path, more));
        let partial = frame(HEADERS, END_STREAM, 1, &get[..10]);
        let u32s = |value: u32| value.to_be_bytes().to_vec();
        let itself = [u32s(1), vec![255]].concat();
        let raw = |fields: &[Field]| frame(HEADERS, whole, 1, &block(fields));
        let late_pseudo = [field("x", "y"), field(":method", "GET")].to_vec();
        let no_method = raw(&[field(":scheme", "http"), field(":path", &path), field(":authority", "a")]);
        let no_scheme = raw(&[field(":method", "GET"), field(":path", &path), field(":authority", "a")]);
        let no_path = raw(&[field(":method", "GET"), field(":scheme", "http"), field(":authority", "a")]);
        let cases: Vec<(&str, Expected, Vec<u8>)> = vec![
            ("4.1 unknown frame", Served, frame(0xfa, 0, 0, b"unknown")),
            ("4.1 unknown flags", Served, frame(PING, 0xfe, 0, &[0; 8])),
            ("4.1 reserved bit", Served, frame(PING, 0, 0x8000_0000, &[0; 8])),
            ("4.2 data too large", Connection, [open(1), frame(DATA, END_STREAM, 1, &[0; 16_385])].concat()),
            ("4.2 headers too large", Connection, frame(HEADERS, whole, 1, &[0; 16_385])),
            ("4.3 index 0", Connection, frame(HEADERS, whole, 1, &[0x80])),
            ("4.3 priority within a block", Connection, [partial.clone(), frame(PRIORITY, 0, 1, &[0; 5])].concat()),
            ("4.3 headers within a block", Connection, [partial.clone(), one(3)].concat()),
            ("5.1 data on idle", Connection, frame(DATA, END_STREAM, 1, b"x")),
            ("5.1 reset on idle", Connection, frame(RESET, 0, 1, &u32s(8))),
            ("5.1 window on idle", Connection, frame(WINDOW_UPDATE, 0, 1, &u32s(100))),
            ("5.1 continuation on idle", Connection, frame(CONTINUATION, END_HEADERS, 1, &get)),
            ("5.1 data behind the end", Refused, [one(1), frame(DATA, END_STREAM, 1, b"x")].concat()),
            ("5.1 headers behind the end", Refused, [one(1), one(1)].concat()),
            (
                "5.1 continuation behind the end",
                Connection,
                [one(1), frame(CONTINUATION, END_HEADERS, 1, &get)].concat(),
            ),
            (
                "5.1 data behind a reset",
                Refused,
                [open(1), frame(RESET, 0, 1, &u32s(8)), frame(DATA, END_STREAM, 1, b"x")].concat(),
            ),
            ("5.1 headers behind a reset", Refused, [open(1), frame(RESET, 0, 1, &u32s(8)), one(1)].concat()),
            ("5.1.1 even stream", Connection, one(2)),
            ("5.1.1 lower stream", Connection, [one(5), one(3)].concat()),
            (
                "5.3.1 headers depend on themselves",
                Refused,
                frame(HEADERS, whole | WITH_PRIORITY, 1, &[itself.clone(), get.clone()].concat()),
            ),
            ("5.3.1 priority depends on itself", Refused, [open(1), frame(PRIORITY, 0, 1, &itself)].concat()),
            ("5.5 unknown frame within a block", Connection, [partial.clone(), frame(0xfa, 0, 1, b"x")].concat()),
            ("6.1 data on stream 0", Connection, frame(DATA, END_STREAM, 0, b"x")),
            (
                "6.1 data padded too far",
                Connection,
                [open(1), frame(DATA, END_STREAM | PADDED, 1, &[6, b'x'])].concat(),
            ),
            ("6.2 headers on stream 0", Connection, frame(HEADERS, whole, 0, &get)),
            ("6.2 headers padded too far", Connection, frame(HEADERS, whole | PADDED, 1, &[&[255][..], &get].concat())),
            ("6.3 priority on stream 0", Connection, frame(PRIORITY, 0, 0, &[0; 5])),
            ("6.3 priority of 4 bytes", Refused, [open(1), frame(PRIORITY, 0, 1, &[0; 4])].concat()),
            ("6.4 reset on stream 0", Connection, frame(RESET, 0, 0, &u32s(8))),
            ("6.4 reset of 3 bytes", Connection, [open(1), frame(RESET, 0, 1, &[0; 3])].concat()),
            ("6.5 settings acknowledged with a payload", Connection, frame(SETTINGS, 1, 0, &[0; 6])),
            ("6.5 settings on a stream", Connection, frame(SETTINGS, 0, 1, &[0; 6])),
            ("6.5 settings of 3 bytes", Connection, frame(SETTINGS, 0, 0, &[0; 3])),
            ("6.5.2 push 2", Connection, setting(2, 2)),
            ("6.5.2 window too large", Connection, setting(4, 0x8000_0000)),
            ("6.5.2 frame size too small", Connection, setting(5, 16_383)),
            ("6.5.2 frame size too large", Connection, setting(5, 16_777_216)),
            ("6.5.2 unknown setting", Served, setting(0xff, 1)),
            ("6.7 ping on a stream", Connection, frame(PING, 0, 1, &[0; 8])),
            ("6.7 ping of 6 bytes", Connection, frame(PING, 0, 0, &[0; 6])),
            ("6.7 ping answered unasked", Served, frame(PING, 1, 0, &[0; 8])),
            ("6.8 goaway on a stream", Connection, frame(GOAWAY, 0, 1, &[0; 8])),
            ("6.9 window of the connection by 0", Connection, frame(WINDOW_UPDATE, 0, 0, &u32s(0))),
            ("6.9 window of a stream by 0", Refused, [open(1), frame(WINDOW_UPDATE, 0, 1, &u32s(0))].concat()),
            ("6.9 window of 3 bytes", Connection, frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
            (
                "6.9.1 window of the connection past its end",
                Connection,
                frame(WINDOW_UPDATE, 0, 0, &u32s(0x7fff_ffff)).repeat(2),
            ),
            (
                "6.9.1 window of a stream past its end",
                Refused,
                [open(1), frame(WINDOW_UPDATE, 0, 1, &u32s(0x7fff_ffff)).repeat(2)].concat(),
            ),
            (
                "6.10 continuation on stream 0",
                Connection,
                [partial.clone(), frame(CONTINUATION, END_HEADERS, 0, &get)].concat(),
            ),
            ("6.10 continuation of nothing", Connection, [one(1), frame(CONTINUATION, END_HEADERS, 3, &get)].concat()),
            (
                "6.10 continuation behind data",
                Connection,
                [open(1), frame(DATA, 0, 1, b"x"), frame(CONTINUATION, END_HEADERS, 1, &get)].concat(),
            ),
            (
                "6.10 block in three",
                Served,
                [
                    frame(HEADERS, END_STREAM, 1, &get[..10]),
                    frame(CONTINUATION, 0, 1, &get[10..20]),
                    frame(CONTINUATION, END_HEADERS, 1, &get[20..]),
                ]
                .concat(),
            ),
            ("7 reset with an unknown code", Served, [open(1), frame(RESET, 0, 1, &u32s(0xff))].concat()),
            (
                "8.1 second headers without an end",
                Refused,
                [open(1), frame(HEADERS, END_HEADERS, 1, &block(&[field("x", "y")]))].concat(),
            ),
            ("8.1.2 capital letters", Refused, with(&[("X-Test", "ok")])),
            ("8.1.2.1 unknown pseudo", Refused, with(&[(":test", "ok")])),
            ("8.1.2.1 pseudo of answers", Refused, with(&[(":status", "200")])),
            (
                "8.1.2.1 pseudo in trailers",
                Refused,
                [open(1), frame(DATA, 0, 1, b"x"), frame(HEADERS, whole, 1, &block(&[field(":method", "GET")]))]
                    .concat(),
            ),
            (
                "8.1.2.1 pseudo behind a field",
                Refused,
                frame(HEADERS, whole, 1, &[get.clone(), block(&late_pseudo)].concat()),
            ),
            ("8.1.2.2 connection", Refused, with(&[("connection", "keep-alive")])),
            ("8.1.2.2 te", Refused, with(&[("te", "trailers, deflate")])),
            ("8.1.2.3 empty path", Refused, frame(HEADERS, whole, 1, &request("GET", "", &[]))),
            ("8.1.2.3 no method", Refused, no_method),
            ("8.1.2.3 no scheme", Refused, no_scheme),
            ("8.1.2.3 no path", Refused, no_path),
            ("8.1.2.3 two methods", Refused, with(&[(":method", "GET")])),
            ("8.1.2.3 two schemes", Refused, with(&[(":scheme", "http")])),
            ("8.1.2.3 two paths", Refused, with(&[(":path", "/")])),
            ("8.1.2.6 length without data", Refused, with(&[("content-length", "1")])),
            (
                "8.1.2.6 length of other data",
                Refused,
                [
                    frame(HEADERS, END_HEADERS, 1, &request("POST", &path, &[("content-length", "1")])),
                    frame(DATA, END_STREAM, 1, b"test"),
                ]
                .concat(),
            ),
            (
                "8.1.2.6 length of two frames",
                Refused,
                [
                    frame(HEADERS, END_HEADERS, 1, &request("POST", &path, &[("content-length", "1")])),
                    frame(DATA, 0, 1, b"te"),
                    frame(DATA, END_STREAM, 1, b"st"),
                ]
                .concat(),
            ),
            ("8.2 promise", Connection, frame(PUSH_PROMISE, END_HEADERS, 1, &[u32s(2), get.clone()].concat())),
            (
                "7541 2.3.3 index out of range",
                Connection,
                frame(HEADERS, whole, 1, &[get.clone(), vec![0xff, 0x20]].concat()),
            ),
            (
                "7541 4.2 size update at the end",
                Connection,
                frame(HEADERS, whole, 1, &[get.clone(), vec![0x3f, 0x01]].concat()),
            ),
            (
                "7541 5.2 padding of 8 bits",
                Connection,
                frame(
                    HEADERS,
                    whole,
                    1,
                    &[get.clone(), b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff".to_vec()].concat(),
                ),
            ),
            (
                "7541 5.2 end of string within one",
                Connection,
                frame(
                    HEADERS,
                    whole,
                    1,
                    &[get.clone(), b"\x00\x85\xf2\xb2\x4a\x87\xff\x83\xff\xff\xff\xff\xff".to_vec()].concat(),
                ),
            ),
            (
                "7541 6.3 size update too large",
                Connection,
                frame(HEADERS, whole, 1, &[vec![0x3f, 0xe1, 0xff, 0xff, 0x7f], get.clone()].concat()),
            ),
        ];
        for (name, expected, said) in cases {
            let later = if expected == Served { one(LATER) } else { Vec::new() };
            let bytes = [hello(), said, later].concat();
            all.push((Case::new(format!("{name}, {upstream}"), upstream, bytes), expected));
        }
        let wrong = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec();
        all.push((Case::new(format!("3.4 wrong preface, {upstream}"), upstream, wrong), Connection));
    }
    all
}
