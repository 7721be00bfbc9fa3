//! A front between the clients and a node that lies now and then. The bugs are planted here, outside the product.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::super::client::{Answer, Client};

/// A lie of the front, told in a few of the requests where it applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    None,
    /// A seal is acknowledged and not passed on.
    SealForgotten,
    /// A claim in flight gets the answer that its holder got.
    GrantRepeated,
    /// A claim in flight is let in all the same, with a token of its own.
    LeaseIgnored,
    /// A claim is let in that the node never heard of.
    ClaimForgotten,
    /// A receipt comes back changed.
    ReceiptChanged,
    /// A seal is passed on and answered with 503, as if nothing had been done.
    SealDenied,
    /// Another's token is taken for the right one: a refused seal is acknowledged.
    FenceOpened,
    /// Something fails in a way that nobody may see.
    Internal,
}

const ONE_IN: u8 = 4;

/// A front; its threads end with the test's process.
pub struct Front {
    pub address: SocketAddr,
}

struct Liar {
    node: SocketAddr,
    lie: Lie,
    random: Mutex<fastrand::Rng>,
    /// The answer that let somebody in, by the request's key.
    granted: Mutex<BTreeMap<String, Answer>>,
}

impl Front {
    pub fn start(node: SocketAddr, lie: Lie, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let random = fastrand::Rng::with_seed(seed).into();
        let liar = Arc::new(Liar { node, lie, random, granted: Mutex::default() });
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let liar = liar.clone();
                // Ends with its client.
                thread::spawn(move || drop(liar.serve(client)));
            }
        });
        Self { address }
    }
}

impl Liar {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut reader = BufReader::new(client.try_clone()?);
        let mut node = Client::new(self.node, "dev-partner");
        let mut writer = client;
        loop {
            let (path, body) = request(&mut reader)?;
            let answer = self.answer(&mut node, &path, &body)?;
            let (status, length) = (answer.status, answer.body.len());
            let head =
                format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            writer.write_all(&[head.as_bytes(), &answer.body].concat())?;
        }
    }

    fn answer(&self, node: &mut Client, path: &str, body: &str) -> io::Result<Answer> {
        let lies = self.random.lock().unwrap().u8(..ONE_IN) == 0;
        let (claim, seal) = (path.ends_with("/claim"), path.ends_with("/seal"));
        match self.lie {
            Lie::SealForgotten if seal && lies => return Ok(made(200, r#"{"decision":"sealed","replay":false}"#)),
            Lie::ClaimForgotten if claim && lies => return Ok(made(201, &new(u64::MAX >> 12))),
            Lie::Internal if lies => return Ok(made(500, r#"{"code":"internal"}"#)),
            _ => {}
        }
        let mut answer = node.try_post(path, body)?;
        let key = body.split("index_hash").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let mut granted = self.granted.lock().unwrap();
        let earlier = granted.get(key).cloned();
        let text = answer.text();
        match (self.lie, &earlier) {
            (Lie::GrantRepeated, Some(earlier)) if claim && lies && text.contains("in-flight") => {
                answer = earlier.clone();
            }
            (Lie::LeaseIgnored, Some(earlier)) if claim && lies && text.contains("in-flight") => {
                answer = made(201, &new(earlier.token() + 1));
            }
            (Lie::ReceiptChanged, _) if lies && text.contains("\"duplicate\"") => {
                answer.body = text.replace("e0,\t", "e0, ").into_bytes();
            }
            (Lie::SealDenied, _) if seal && lies && text.contains("\"sealed\"") => {
                answer = made(503, r#"{"code":"store-unavailable","detail":"nothing was done"}"#);
            }
            (Lie::FenceOpened, _) if seal && lies && text.contains("fenced-off") => {
                answer = made(200, r#"{"decision":"sealed","replay":false}"#);
            }
            _ => {}
        }
        if answer.status == 201 && claim {
            granted.insert(key.to_owned(), answer.clone());
        }
        Ok(answer)
    }
}

fn new(token: u64) -> String {
    format!(r#"{{"decision":"new","token":{token},"attempt":1,"recovering":false}}"#)
}

fn made(status: u16, body: &str) -> Answer {
    Answer { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
}

// The path and the body of the next request.
fn request(reader: &mut impl BufRead) -> io::Result<(String, String)> {
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).ok_or_else(gone)?.to_owned();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(gone());
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    String::from_utf8(body).map(|body| (path, body)).map_err(io::Error::other)
}
