//! An application behind the gateway, on loopback: counts what reaches it, keeps every head and body, and answers with
//! exactly the bytes that it is told, at once, later or never.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

use super::super::server::PATIENCE;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Heard {
    pub method: String,
    pub target: String,
    pub head: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.head.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub fn attempt(&self) -> u64 {
        self.header("fencepost-attempt").unwrap().parse().unwrap()
    }
}

#[derive(Clone, Debug)]
pub enum Say {
    /// These bytes; the connection stays.
    Bytes(Vec<u8>),
    /// These bytes, and then the connection ends.
    Last(Vec<u8>),
    /// Nothing until [`Upstream::release`], then this.
    Hold(Box<Say>),
    /// 200 and a body of so many bytes, made while it is sent.
    Stream(u64),
}

/// A whole answer.
pub fn said(status: u16, headers: &str, body: &str) -> Say {
    Say::Bytes(bytes(status, headers, body))
}

pub fn bytes(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// The bytes of a streamed answer come in blocks of this.
pub fn block() -> Vec<u8> {
    (0..64 << 10).map(|index: u32| (index % 251) as u8).collect()
}

type Script = Box<dyn FnMut(&Heard) -> Say + Send>;

struct State {
    ledger: Vec<Heard>,
    script: Script,
    released: bool,
    connections: usize,
}

#[derive(Clone)]
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let closing = stream.try_clone().ok()?;
        let mut stream = BufReader::new(stream);
        while let Some(heard) = hear(&mut stream) {
            let mut say = {
                let mut state = self.lock();
                let say = (state.script)(&heard);
                state.ledger.push(heard);
                say
            };
            self.0.1.notify_all();
            if let Say::Hold(then) = say {
                drop(self.0.1.wait_timeout_while(self.lock(), PATIENCE, |state| !state.released).unwrap());
                say = *then;
            }
            match say {
                Say::Bytes(bytes) => stream.get_mut().write_all(&bytes).ok()?,
                Say::Last(bytes) => {
                    let _ = stream.get_mut().write_all(&bytes);
                    let _ = closing.shutdown(Shutdown::Both);
                    return None;
                }
                Say::Stream(count) => pour(stream.get_mut(), count)?,
                Say::Hold(_) => return None,
            }
        }
        None
    }
}

fn pour(out: &mut TcpStream, count: u64) -> Option<()> {
    let head =
        format!("HTTP/1.1 200 Said\r\ncontent-type: application/octet-stream\r\ncontent-length: {count}\r\n\r\n");
    out.write_all(head.as_bytes()).ok()?;
    let block = block();
    let mut left = count;
    while left > 0 {
        let part = left.min(block.len() as u64) as usize;
        out.write_all(&block[..part]).ok()?;
        left -= part as u64;
    }
    Some(())
}

fn hear(stream: &mut impl BufRead) -> Option<Heard> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let head = head(stream)?;
    let mut heard = Heard { method, target, head, body: Vec::new() };
    if heard.header("transfer-encoding").is_some() {
        heard.body = chunks(stream)?;
    } else if let Some(length) = heard.header("content-length") {
        heard.body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut heard.body).ok()?;
    }
    Some(heard)
}

/// Header lines to the empty one, names in small letters.
pub fn head(stream: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => head.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return (line == "\r\n").then_some(head),
        }
    }
}

/// A chunked body, to its end.
pub fn chunks(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let size = u64::from_str_radix(line.trim_end().split(';').next()?, 16).ok()?;
        if size == 0 {
            head(stream)?;
            return Some(body);
        }
        let read = stream.by_ref().take(size).read_to_end(&mut body).ok()?;
        let mut end = [0; 2];
        stream.read_exact(&mut end).ok()?;
        (read as u64 == size && &end == b"\r\n").then_some(())?;
    }
}

pub struct Upstream {
    pub address: SocketAddr,
    shared: Shared,
}

impl Upstream {
    /// One that answers everything with 201 and its number.
    pub fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let mut number = 0;
        let script = move |_: &Heard| {
            number += 1;
            said(201, "content-type: application/json\r\n", &format!("{{\"charge\": {number}}}"))
        };
        let state = State { ledger: Vec::new(), script: Box::new(script), released: false, connections: 0 };
        let shared = Shared(Arc::new((Mutex::new(state), Condvar::new())));
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                serving.lock().connections += 1;
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Sets its answers from now on.
    pub fn script(&self, script: impl FnMut(&Heard) -> Say + Send + 'static) {
        let mut state = self.shared.lock();
        (state.script, state.released) = (Box::new(script), false);
    }

    /// Sets one answer for every request from now on.
    pub fn say(&self, say: Say) {
        self.script(move |_| say.clone());
    }

    /// Answers the requests that it holds back.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.0.1.notify_all();
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.shared.lock().ledger.clone()
    }

    /// Everything but so many of the first.
    pub fn heard_from(&self, first: usize) -> Vec<Heard> {
        self.shared.lock().ledger[first..].to_vec()
    }

    pub fn last(&self) -> Heard {
        self.shared.lock().ledger.last().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.shared.lock().ledger.len()
    }

    /// How often somebody connected.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Everything, as soon as there are so many.
    #[track_caller]
    pub fn until(&self, count: usize) -> Vec<Heard> {
        let short = |state: &mut State| state.ledger.len() < count;
        let (state, over) = self.shared.0.1.wait_timeout_while(self.shared.lock(), PATIENCE, short).unwrap();
        assert!(!over.timed_out(), "{count} requests never came, only {}", state.ledger.len());
        state.ledger.clone()
    }
}
