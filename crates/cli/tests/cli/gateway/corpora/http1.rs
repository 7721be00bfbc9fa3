//! Combinations of HTTP/1 requests whose body could be read as another request: each way to say a length, in each
//! spelling that some server was seen to accept, with each method, under each kind of rule.

use super::{Case, UPSTREAMS};

/// A request that no rule takes, behind a case: it must be refused, not run.
pub const BEHIND: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Requests hidden in a body: a whole one, and the beginning of one that would swallow the next.
const HIDDEN: [(&str, &str); 2] = [
    (
        "whole",
        "POST /smuggled HTTP/1.1\r\nHost: x\r\nFencepost-Tenant: globex\r\nIdempotency-Key: forged\r\nContent-Length: 9\r\n\r\nSMUGGLED!",
    ),
    ("open", "GET /smuggled HTTP/1.1\r\nX-Swallow: "),
];

/// Every case, in a fixed order.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for upstream in UPSTREAMS {
        for (kind, hidden) in HIDDEN {
            for (framing, lines, body) in framings(hidden) {
                for method in ["GET", "HEAD", "OPTIONS", "POST"] {
                    for rule in ["write", "body"] {
                        let number = cases.len();
                        let credential = if method == "POST" { "Authorization: Bearer dev-partner\r\n" } else { "" };
                        let head = format!(
                            "{method} /{upstream}/{rule} HTTP/1.1\r\nHost: shop.example\r\n{credential}\
                             Idempotency-Key: attack-{number}\r\n"
                        );
                        let close: &[u8] = if contains(&lines, b"onnection:") { b"" } else { b"Connection: close\r\n" };
                        let bytes = [head.as_bytes(), close, &lines, b"\r\n", &body].concat();
                        cases.push(Case::new(format!("{method} {rule} {framing}, {kind}"), upstream, bytes));
                    }
                }
            }
            for (name, bytes) in heads(upstream, hidden) {
                cases.push(Case::new(format!("{name}, {kind}"), upstream, bytes));
            }
        }
    }
    cases
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

type Framing = (String, Vec<u8>, Vec<u8>);

/// Lines about the body, and the body.
fn framings(hidden: &str) -> Vec<Framing> {
    let mut all = lengths(hidden);
    all.extend(encodings(hidden));
    all.extend(chunks(hidden));
    all.extend(beside(hidden));
    all
}

fn lengths(hidden: &str) -> Vec<Framing> {
    let n = hidden.len();
    let lines = [
        String::new(),
        format!("Content-Length: {n}\r\n"),
        "Content-Length: 0\r\n".to_owned(),
        "Content-Length: 4\r\n".to_owned(),
        format!("Content-Length: 0000{n}\r\n"),
        format!("Content-Length: {n}\r\nContent-Length: {n}\r\n"),
        format!("Content-Length: {n}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: 0\r\nContent-Length: {n}\r\n"),
        format!("Content-Length: {n}, {n}\r\n"),
        format!("Content-Length: 0, {n}\r\n"),
        format!("Content-Length: +{n}\r\n"),
        format!("Content-Length: -{n}\r\n"),
        format!("Content-Length: 0x{n:x}\r\n"),
        format!("Content-Length: {n}.0\r\n"),
        format!("Content-Length: {n}e0\r\n"),
        "Content-Length:\r\n".to_owned(),
        "Content-Length: 18446744073709551620\r\n".to_owned(),
        format!("Content-Length: {n} 0\r\n"),
        format!("Content-Length: {n};0\r\n"),
        format!("Content-Length: \"{n}\"\r\n"),
        format!("Content-Length:\t{n}\r\n"),
        format!("Content-Length: \x0b{n}\r\n"),
        format!("Content-Length: {n}\x0c\r\n"),
        format!("Content-Length: {n}\0\r\n"),
        format!("Content-Length: {n}\u{a0}\r\n"),
        format!("Content-Length : {n}\r\n"),
        format!("Content-Length\t: {n}\r\n"),
        format!("Content_Length: {n}\r\n"),
        format!("Content_Length: {n}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: 0\r\nContent_Length: {n}\r\n"),
        format!("Content-Length\0: {n}\r\n"),
        format!(" Content-Length: {n}\r\n"),
        format!("X: y\r\n Content-Length: {n}\r\n"),
        format!("Content-Length:\r\n {n}\r\n"),
        format!("Content-Length: 0\r\n {n}\r\n"),
        format!("Content-Length: {n}\n"),
        format!("X: y\nContent-Length: {n}\r\n"),
        format!("X: y\rContent-Length: {n}\r\n"),
        format!("X: y\r\rContent-Length: {n}\r\n"),
        format!(":Content-Length: {n}\r\n"),
        format!("Content-Length:: {n}\r\n"),
    ];
    let framing = |line: &String| (format!("length {line:?}"), line.clone().into_bytes(), hidden.into());
    lines.iter().map(framing).collect()
}

fn encodings(hidden: &str) -> Vec<Framing> {
    const LINES: [&str; 22] = [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: CHUNKED\r\n",
        "Transfer-Encoding:  chunked \r\n",
        "Transfer-Encoding:\tchunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked\0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer_Encoding: chunked\r\n",
        "Transfer-Encoding\0: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
    ];
    let mut all = Vec::new();
    for line in LINES {
        // Read as chunks it ends before what is hidden; read by its length, or not read at all, it does not.
        let early = format!("0\r\n\r\n{hidden}");
        let whole = format!("{}0\r\n\r\n", chunk(hidden));
        for (name, body) in [("early", &early), ("whole", &whole)] {
            let n = body.len();
            let before = format!("Content-Length: {n}\r\n{line}");
            let behind = format!("{line}Content-Length: 4\r\n");
            for lines in [line.to_owned(), before, behind] {
                all.push((format!("encoding {lines:?} {name}"), lines.into_bytes(), body.clone().into_bytes()));
            }
        }
    }
    all
}

fn chunks(hidden: &str) -> Vec<Framing> {
    let (n, end) = (hidden.len(), "0\r\n\r\n");
    let bodies = [
        format!("{n:X}\r\n{hidden}\r\n{end}"),
        format!("{n:x};a=b\r\n{hidden}\r\n{end}"),
        format!("{n:x};a=\"\r\n{hidden}\r\n{end}"),
        format!("{n:x};\n{hidden}\r\n{end}"),
        format!("{n:x};a\n0\r\n\r\n{hidden}\r\n{end}"),
        format!("0;{end}{hidden}"),
        format!("0000{n:x}\r\n{hidden}\r\n{end}"),
        format!("0x{n:x}\r\n{hidden}\r\n{end}"),
        format!("+{n:x}\r\n{hidden}\r\n{end}"),
        format!("-{n:x}\r\n{hidden}\r\n{end}"),
        format!("{n:x} \r\n{hidden}\r\n{end}"),
        format!(" {n:x}\r\n{hidden}\r\n{end}"),
        format!("{n:x}\t\r\n{hidden}\r\n{end}"),
        format!("{n:x}_0\r\n{hidden}\r\n{end}"),
        format!("{n:x}\n{hidden}\n0\n\n"),
        format!("{n:x}\r{hidden}\r0\r\r"),
        format!("{n:x}\r\n{hidden}{end}"),
        format!("{n:x}\r\n{hidden}XX{end}"),
        format!("1\r\nZ\r\n{end}{hidden}"),
        format!("1\r\nZZZ{end}{hidden}"),
        format!("fffffffffffffff1\r\n{hidden}\r\n{end}"),
        format!("10000000000000000\r\n{hidden}\r\n{end}"),
        format!("\r\n{hidden}\r\n{end}"),
        format!("0\r\n{hidden}"),
        format!("0\r\nFencepost-Tenant: globex\r\nX-Injected: 1\r\n\r\n{hidden}"),
        format!("0\r\nContent-Length: {n}\r\nHost: y\r\n\r\n{hidden}"),
        format!("0\r\nX: y\r\n {hidden}\r\n\r\n"),
        format!("0\r\nX: y\nZ: {hidden}\r\n\r\n"),
    ];
    let framing = |(index, body): (usize, &String)| {
        (format!("chunks {index}"), b"Transfer-Encoding: chunked\r\n".to_vec(), body.clone().into_bytes())
    };
    bodies.iter().enumerate().map(framing).collect()
}

/// Headers that change what becomes of a body, or of another header.
fn beside(hidden: &str) -> Vec<Framing> {
    let n = hidden.len();
    let lines = [
        format!("Expect: 100-continue\r\nContent-Length: {n}\r\n"),
        format!("Expect: 200-ok\r\nContent-Length: {n}\r\n"),
        format!("Connection: close, content-length\r\nContent-Length: {n}\r\n"),
        format!("Connection: close, host\r\nContent-Length: {n}\r\n"),
        format!("Connection: close, fencepost-tenant\r\nContent-Length: {n}\r\n"),
        format!("Connection: close, idempotency-key\r\nContent-Length: {n}\r\n"),
        format!(
            "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: {n}\r\n"
        ),
        format!("Connection: Upgrade, close\r\nUpgrade: websocket\r\nContent-Length: {n}\r\n"),
        format!(
            "X-HTTP-Method-Override: POST\r\nX-Original-URL: /smuggled\r\nX-Rewrite-URL: /smuggled\r\nContent-Length: {n}\r\n"
        ),
        format!("Fencepost-Tenant: globex\r\nFencepost_Tenant: globex\r\nX_Injected: 1\r\nContent-Length: {n}\r\n"),
        format!("Trailer: Content-Length\r\nTE: trailers\r\nContent-Length: {n}\r\n"),
        format!("Content-Encoding: chunked\r\nContent-Length: {n}\r\n"),
    ];
    let framing = |line: &String| (format!("beside {line:?}"), line.clone().into_bytes(), hidden.into());
    lines.iter().map(framing).collect()
}

/// Request lines and line ends, with the hidden request where another reader would find one.
fn heads(upstream: &str, hidden: &str) -> Vec<(String, Vec<u8>)> {
    let (path, n) = (format!("/{upstream}/write"), hidden.len());
    let close = "Host: shop.example\r\nConnection: close\r\n";
    let heads = [
        (
            "version 1.0 chunked",
            format!("GET {path} HTTP/1.0\r\n{close}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "version 1.0 kept",
            format!("GET {path} HTTP/1.0\r\nHost: a\r\nConnection: close\r\nContent-Length: {n}\r\n\r\n{hidden}"),
        ),
        ("version 1.2", format!("GET {path} HTTP/1.2\r\n{close}Content-Length: {n}\r\n\r\n{hidden}")),
        ("version 0.9", format!("GET {path}\r\n{hidden}")),
        ("version twice", format!("GET {path} HTTP/1.1 HTTP/1.1\r\n{close}\r\n{hidden}")),
        ("version absent", format!("GET {path} \r\n{close}\r\n{hidden}")),
        ("two spaces", format!("GET  {path}  HTTP/1.1\r\n{close}\r\n{hidden}")),
        ("tabs", format!("GET\t{path}\tHTTP/1.1\r\n{close}\r\n{hidden}")),
        (
            "line feeds only",
            format!("GET {path} HTTP/1.1\nHost: a\nConnection: close\nContent-Length: {n}\n\n{hidden}"),
        ),
        ("carriage returns only", format!("GET {path} HTTP/1.1\rHost: a\rConnection: close\r\r{hidden}")),
        ("line break before", format!("\r\n\r\nGET {path} HTTP/1.1\r\n{close}\r\n{hidden}")),
        ("coded line break in the path", format!("GET {path}%0d%0aX-Injected:%201 HTTP/1.1\r\n{close}\r\n")),
        (
            "coded request in the query",
            format!("GET {path}?%20HTTP/1.1%0d%0aHost:%20a%0d%0a%0d%0aGET%20/smuggled HTTP/1.1\r\n{close}\r\n"),
        ),
        ("line break in the target", format!("GET {path}\r\n/smuggled HTTP/1.1\r\n{close}\r\n")),
        ("space in the target", format!("GET {path} /smuggled HTTP/1.1\r\n{close}\r\n")),
        ("whole address", format!("GET http://shop.example/smuggled HTTP/1.1\r\n{close}\r\n")),
        ("whole address of another", format!("GET http://x/smuggled HTTP/1.1\r\n{close}\r\n")),
        ("authority", format!("CONNECT shop.example:80 HTTP/1.1\r\n{close}\r\n{hidden}")),
        ("dots", format!("GET {path}/../../smuggled HTTP/1.1\r\n{close}\r\n")),
        ("coded dots", format!("GET {path}/%2e%2e/%2e%2e/smuggled HTTP/1.1\r\n{close}\r\n")),
        ("backslashes", format!("GET {path}\\..\\..\\smuggled HTTP/1.1\r\n{close}\r\n")),
        ("fragment", format!("GET {path}#/smuggled HTTP/1.1\r\n{close}\r\n")),
        ("method in small letters", format!("post {path} HTTP/1.1\r\n{close}Content-Length: {n}\r\n\r\n{hidden}")),
        ("method with a line break", format!("GET\r\nX {path} HTTP/1.1\r\n{close}\r\n{hidden}")),
        ("two hosts", format!("GET {path} HTTP/1.1\r\n{close}Host: x\r\n\r\n{hidden}")),
        ("host with a path", format!("GET {path} HTTP/1.1\r\nHost: a/smuggled\r\nConnection: close\r\n\r\n{hidden}")),
        ("no host", format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n{hidden}")),
        (
            "pipelined",
            format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            ),
        ),
        ("preface of http 2", format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}")),
    ];
    heads.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}
