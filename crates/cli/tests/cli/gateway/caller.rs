//! A client of the gateway that hides nothing: one request on one connection, exact bytes both ways.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

use super::super::{client::Answer, server::PATIENCE};
use super::upstream::{chunks, head};

/// A request being put together.
#[derive(Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

pub fn post(path: &str) -> Ask {
    ask("POST", path).header("authorization: Bearer dev-partner")
}

/// Without a credential.
pub fn ask(method: &str, path: &str) -> Ask {
    Ask { method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
}

impl Ask {
    pub fn header(mut self, line: &str) -> Self {
        self.headers.push(line.to_owned());
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header(&format!("idempotency-key: {key}"))
    }

    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.header("content-type: application/json").body(body)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let Self { method, path, headers, body } = self;
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let framed = lines.contains("transfer-encoding:") || (body.is_empty() && method != "POST");
        let length = if framed { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: shop.example\r\n{lines}{length}\r\n").into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Sends, and leaves the answer to be read.
    pub fn begin(&self, to: SocketAddr) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&self.bytes()).unwrap();
        BufReader::new(stream)
    }

    #[track_caller]
    pub fn send(&self, to: SocketAddr) -> Answer {
        let mut stream = self.begin(to);
        let answer = if self.method == "HEAD" { read_head(&mut stream) } else { read(&mut stream) };
        answer.unwrap_or_else(|error| panic!("{} {}: {error}", self.method, self.path))
    }
}

/// Status and headers of an answer that is not 1xx.
pub fn read_head(stream: &mut impl BufRead) -> io::Result<Answer> {
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(gone)?;
        let headers = head(stream).ok_or_else(gone)?;
        if status >= 200 {
            return Ok(Answer { status, headers, body: Vec::new() });
        }
    }
}

/// A whole answer, chunked or not.
pub fn read(stream: &mut impl BufRead) -> io::Result<Answer> {
    let mut answer = read_head(stream)?;
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    if answer.header("transfer-encoding").is_some() {
        answer.body = chunks(stream).ok_or_else(gone)?;
    } else if let Some(length) = answer.header("content-length") {
        answer.body = vec![0; length.parse().map_err(|_| gone())?];
        stream.read_exact(&mut answer.body)?;
    }
    Ok(answer)
}

/// Sends again, and again: each time the first answer comes back.
#[track_caller]
pub fn replayed_twice(to: SocketAddr, asked: &Ask, first: &Answer) {
    for _ in 0..2 {
        let again = asked.send(to);
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.header("etag"), first.header("etag"));
    }
}
