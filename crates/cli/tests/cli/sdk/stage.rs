//! The stage of the clients' tests: a server with a gateway rule, the upstream behind it, and a road to the server on
//! which answers get lost, are refused for a while, or meet a server that has just died.
//!
//! Tests in other languages speak to the road's own paths:
//! `POST /_stage/faults` with `503:1,lose` (the next request gets 503 and `Retry-After: 1`, the one after it is carried
//! out and its answer lost; `brief:500` is a claim at a server that lets nobody wait for more than 500 ms),
//! `POST /_stage/crash` (kill -9; started again after two requests found nobody),
//! `POST /_stage/let-go` (the upstream answers requests whose body says `hold`, from now on),
//! `GET /_stage/requests` and `GET /_stage/calls` (how many came along the road, and how many reached the upstream).

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use tempfile::TempDir;

use super::super::server::{BINARY, PATIENCE, Serve, Server, command};

/// A request under way that found nobody, before the server is there again.
const REFUSED_MAX: usize = 2;

pub struct Stage {
    pub dir: TempDir,
    world: Arc<World>,
    road: SocketAddr,
}

struct World {
    /// The server's address, the same in every life.
    address: SocketAddr,
    data: std::path::PathBuf,
    config: std::path::PathBuf,
    server: Mutex<Option<Server>>,
    faults: Mutex<VecDeque<String>>,
    refused: AtomicUsize,
    requests: AtomicUsize,
    calls: AtomicUsize,
    let_go: (Mutex<bool>, Condvar),
}

/// One request as it came.
#[derive(Clone)]
struct Asked {
    method: String,
    path: String,
    head: Vec<String>,
    body: Vec<u8>,
}

impl Asked {
    /// A claim that waits no longer than this. Spaces keep the length that its head tells.
    fn briefly(&self, ms: &str) -> Self {
        let text = String::from_utf8(self.body.clone()).unwrap();
        let (before, rest) = text.split_once("\"wait_ms\":").unwrap();
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        let body = format!("{before}\"wait_ms\":{ms:>digits$}{}", &rest[digits..]).into_bytes();
        Self { body, ..self.clone() }
    }
}

impl Stage {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = dir.path().join("fencepost.yml");
        let policy = format!(
            "scopes: {{BRIEF: {{key: [id], lease: 1s, lease_max: 2s}}}}\nroutes:\n  - match: \"POST /charges\"\n    upstream: \"http://{}\"\n    scope: API_WRITE\n    \
             key: {{ method: \"request:method\", path: \"request:path\", idempotency_key: \"header:Idempotency-Key\" }}\n",
            upstream.local_addr().unwrap()
        );
        std::fs::write(&config, policy).unwrap();
        let data = dir.path().join("data");
        let server = start("127.0.0.1:0", &data, &config);
        let world = Arc::new(World {
            address: server.address,
            data,
            config,
            server: Mutex::new(Some(server)),
            faults: Mutex::default(),
            refused: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            let_go: Default::default(),
        });
        serve(upstream, world.clone(), |world, asked| {
            let number = world.calls.fetch_add(1, SeqCst) + 1;
            if asked.body.windows(4).any(|four| four == b"hold") {
                let (gone, changed) = &world.let_go;
                drop(changed.wait_while(gone.lock().unwrap(), |gone| !*gone));
            }
            let body = format!("{{\"charge\": {number}, \"asked\": {}}}", asked.body.len());
            Some(answer("201 Created", "content-type: application/json\r\nlocation: /charges/1\r\n", &body))
        });
        let road = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = road.local_addr().unwrap();
        serve(road, world.clone(), World::pass);
        Self { dir, world, road: address }
    }

    /// Straight to the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.world.address)
    }

    /// Along the road.
    pub fn road_url(&self) -> String {
        format!("http://{}", self.road)
    }

    /// Sets the faults for the next requests on the road.
    pub fn faults(&self, list: &str) {
        self.world.set_faults(list);
    }

    /// kill -9; the server comes back after two requests found nobody.
    pub fn crash(&self) {
        self.world.crash();
    }

    /// The upstream answers what it has held.
    pub fn let_go(&self) {
        self.world.let_go();
    }

    /// How many requests came along the road.
    pub fn requests(&self) -> usize {
        self.world.requests.load(SeqCst)
    }

    /// How many requests reached the upstream.
    pub fn calls(&self) -> usize {
        self.world.calls.load(SeqCst)
    }
}

impl Drop for Stage {
    // The threads of the road live as long as the process and hold the world: the server ends here.
    fn drop(&mut self) {
        drop(self.world.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn start(address: &str, data: &std::path::Path, config: &std::path::Path) -> Server {
    Serve::on(address, command(BINARY), data).arg("--dev").arg("--config").arg(config).start()
}

impl World {
    fn set_faults(&self, list: &str) {
        *self.faults.lock().unwrap() = list.split(',').map(str::to_owned).collect();
    }

    fn let_go(&self) {
        *self.let_go.0.lock().unwrap() = true;
        self.let_go.1.notify_all();
    }

    fn crash(&self) {
        self.refused.store(0, SeqCst);
        drop(self.server.lock().unwrap().take());
    }

    fn pass(&self, asked: &Asked) -> Option<Vec<u8>> {
        let said = |text: &str| Some(answer("200 OK", "", text));
        match asked.path.strip_prefix("/_stage/") {
            Some("faults") => {
                self.set_faults(&String::from_utf8_lossy(&asked.body));
                return said("set");
            }
            Some("crash") => {
                self.crash();
                return said("gone");
            }
            Some("let-go") => {
                self.let_go();
                return said("going");
            }
            Some("requests") => return said(&self.requests.load(SeqCst).to_string()),
            Some("calls") => return said(&self.calls.load(SeqCst).to_string()),
            _ => {}
        }
        self.requests.fetch_add(1, SeqCst);
        let fault = self.faults.lock().unwrap().pop_front();
        if let Some(ms) = fault.as_deref().and_then(|fault| fault.strip_prefix("brief:")) {
            return self.forward(&asked.briefly(ms));
        }
        if let Some((status, seconds)) = fault.as_deref().and_then(|fault| fault.split_once(':')) {
            return Some(answer(&format!("{status} Not now"), &format!("retry-after: {seconds}\r\n"), ""));
        }
        let answered = self.forward(asked);
        if answered.is_none() && self.refused.fetch_add(1, SeqCst) + 1 == REFUSED_MAX {
            *self.server.lock().unwrap() = Some(start(&self.address.to_string(), &self.data, &self.config));
        }
        answered.filter(|_| fault.as_deref() != Some("lose"))
    }

    /// The server's answer as it comes, to the end of the connection.
    fn forward(&self, asked: &Asked) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let mut bytes = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", asked.method, asked.path).into_bytes();
        for line in asked.head.iter().filter(|line| !line.to_ascii_lowercase().starts_with("connection:")) {
            bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&asked.body);
        stream.write_all(&bytes).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        (!answer.is_empty()).then_some(answer)
    }
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

/// One request a connection; no answer is a connection that ends without one.
fn serve(
    listener: TcpListener,
    world: Arc<World>,
    act: impl Fn(&World, &Asked) -> Option<Vec<u8>> + Copy + Send + 'static,
) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), world) = (stream, world.clone()) else { return };
            thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                if let Some(answer) = read(&mut stream).and_then(|asked| act(&world, &asked)) {
                    let _ = stream.write_all(&answer);
                }
            });
        }
    });
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>| -> Option<()> {
        let mut part = [0; 16 << 10];
        let count = stream.read(&mut part).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&part[..count]);
        Some(())
    };
    let end = loop {
        match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(end) => break end,
            None => more(&mut bytes)?,
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes.split_off(end + 4);
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let head: Vec<String> = lines.map(str::to_owned).collect();
    let header = |name: &str| {
        let same = |line: &&String| line.split_once(':').is_some_and(|(known, _)| known.eq_ignore_ascii_case(name));
        head.iter().find(same).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    if header("transfer-encoding").is_some() {
        while !body.ends_with(b"0\r\n\r\n") {
            more(&mut body)?;
        }
    } else {
        let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
        while body.len() < length {
            more(&mut body)?;
        }
    }
    Some(Asked { method, path, head, body })
}
