//! A small HTTP/1.1 client that hides nothing: exact bytes out, exact bytes in, one connection kept alive.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use fencepost_rig::contract::{self, Answered};
use serde_json::{Value, json};

use super::server::PATIENCE;

pub struct Client {
    address: SocketAddr,
    token: String,
    patience: Duration,
    stream: Option<BufReader<TcpStream>>,
    /// Method and path of the last request.
    asked: (String, String),
    /// Whether answers are held against the OpenAPI document.
    judges: bool,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self {
            address,
            token: token.to_owned(),
            patience: PATIENCE,
            stream: None,
            asked: Default::default(),
            judges: true,
        }
    }

    /// A client that waits no longer than this for an answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// For what may answer other than the server would.
    pub fn unjudging(mut self) -> Self {
        self.judges = false;
        self
    }

    fn stream(&mut self) -> io::Result<&mut BufReader<TcpStream>> {
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(self.patience))?;
            self.stream = Some(BufReader::new(stream));
        }
        Ok(self.stream.as_mut().unwrap())
    }

    /// Any request at all. Headers come with their line ends.
    pub fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<Answer> {
        self.begin(method, path, headers, body)?;
        self.finish()
    }

    /// Sends and does not wait for the answer.
    pub fn begin(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<()> {
        let length = body.len();
        let mut bytes =
            format!("{method} {path} HTTP/1.1\r\nhost: fencepost\r\n{headers}content-length: {length}\r\n\r\n")
                .into_bytes();
        bytes.extend_from_slice(body);
        self.asked = (method.to_owned(), path.to_owned());
        self.stream()?.get_mut().write_all(&bytes)
    }

    /// The answer to what was begun, held against the OpenAPI document. A connection that failed is not used again.
    pub fn finish(&mut self) -> io::Result<Answer> {
        let answer = Answer::read(self.stream()?);
        let over = answer.as_ref().map_or(true, |answer| answer.header("connection") == Some("close"));
        if over {
            self.stream = None;
        }
        if let Ok(Answer { status, body, .. }) = &answer
            && self.judges
        {
            let (method, path) = (self.asked.0.as_str(), self.asked.1.as_str());
            let content_type = answer.as_ref().ok().and_then(|answer| answer.header("content-type"));
            let breaches = contract::breaches(Answered { method, path, status: *status, content_type, body });
            assert!(breaches.is_empty(), "{breaches:#?}\n{}", String::from_utf8_lossy(body));
        }
        answer
    }

    fn own_headers(&self) -> String {
        format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", self.token)
    }

    pub fn try_post(&mut self, path: &str, body: impl AsRef<[u8]>) -> io::Result<Answer> {
        self.send("POST", path, &self.own_headers(), body.as_ref())
    }

    pub fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.try_post(path, body).unwrap()
    }

    pub fn begin_post(&mut self, path: &str, body: impl AsRef<[u8]>) {
        self.begin("POST", path, &self.own_headers(), body.as_ref()).unwrap();
    }

    pub fn put(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("PUT", path, &self.own_headers(), body.as_ref()).unwrap()
    }

    pub fn get(&mut self, path: &str) -> Answer {
        let headers = format!("authorization: Bearer {}\r\n", self.token);
        self.send("GET", path, &headers, b"").unwrap()
    }

    /// A claim with more members than scope and key.
    pub fn claim_with(&mut self, scope: &str, key: &Value, more: Value) -> Answer {
        self.post("/v1/fences/claim", with(json!({"scope": scope, "key": key}), more))
    }

    pub fn claim(&mut self, scope: &str, key: &Value) -> Answer {
        self.claim_with(scope, key, json!({}))
    }

    pub fn seal(&mut self, scope: &str, key: &Value, token: u64, effect_id: &str, receipt: Value) -> Answer {
        let body = json!({"scope": scope, "key": key, "token": token, "effect_id": effect_id, "receipt": receipt});
        self.post("/v1/fences/seal", body.to_string())
    }

    pub fn renew(&mut self, scope: &str, key: &Value, token: u64, lease_ms: u64) -> Answer {
        let body = json!({"scope": scope, "key": key, "token": token, "lease_ms": lease_ms});
        self.post("/v1/fences/renew", body.to_string())
    }

    pub fn release(&mut self, scope: &str, key: &Value, token: u64) -> Answer {
        self.post("/v1/fences/release", json!({"scope": scope, "key": key, "token": token}).to_string())
    }

    pub fn batch(&mut self, commands: &[Value]) -> Answer {
        self.post("/v1/fences/batch", json!({"commands": commands}).to_string())
    }

    /// Claims and seals, and gives the token.
    pub fn done(&mut self, scope: &str, key: &Value, effect_id: &str, receipt: Value) -> u64 {
        let token = self.claim(scope, key).token();
        self.seal(scope, key, token, effect_id, receipt).ok(200);
        token
    }

    pub fn lookup(&mut self, scope: &str, key: &Value, more: &str) -> Answer {
        let fields: String =
            key.as_object().unwrap().iter().map(|(name, value)| format!("&{name}={}", plain(value))).collect();
        self.get(&format!("/admin/idempotency/lookup?scope={scope}{fields}{more}"))
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One object with the members of another over it, as bytes for the wire.
pub fn with(mut body: Value, more: Value) -> String {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

impl Answer {
    pub fn read(stream: &mut impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(gone)?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None if line == "\r\n" => break,
                None => return Err(gone()),
            }
        }
        let mut answer = Self { status, headers, body: Vec::new() };
        let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body.resize(length, 0);
        stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|bad| panic!("{bad}: {}", self.text()))
    }

    /// The document, where the status is this.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The token of a claim that was let in.
    #[track_caller]
    pub fn token(&self) -> u64 {
        let body = self.ok(201);
        assert_eq!(body["decision"], "new");
        body["token"].as_u64().unwrap()
    }

    /// The problem document, where it is this one.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.ok(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        assert_eq!(body["code"], code, "{}", self.text());
        assert_eq!(body["status"], status);
        body
    }
}
