//! Requests of HTTP/2 whose fields would be more than themselves once they are lines of HTTP/1.

use super::{
    Case, UPSTREAMS,
    http2::{
        Field, block,
        bytes::{DATA, END_HEADERS, END_STREAM, HEADERS, frame},
        field, hello,
    },
};

const HIDDEN: &[u8] = b"POST /smuggled HTTP/1.1\r\nhost: x\r\nfencepost-tenant: globex\r\ncontent-length: 0\r\n\r\n";

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
pub fn cases() -> Vec<Case> {
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
