//! Sends the bytes of HTTP/2 connections and judges the frames that come back. Shared by `injections` and `frames`.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use super::{super::super::server::PATIENCE, Case};

#[path = "../../../../../wire/tests/server/http2_bytes.rs"]
#[allow(dead_code)]
pub mod bytes;

use bytes::{DATA, END_STREAM, GOAWAY, HEADERS, PREFACE, RESET, SETTINGS, frame, literal};

/// The stream of a lawful request behind a case.
pub const LATER: u32 = 201;

/// The result of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// The connection ends.
    Connection,
    /// Its stream is reset or refused, or the connection ends.
    Refused,
    /// The next request on the connection is served.
    Served,
}

pub type Field = (Vec<u8>, Vec<u8>);

pub fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

pub fn block(fields: &[Field]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

pub fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Kind, flags, stream and payload.
type Frame = (u8, u8, u32, Vec<u8>);

struct Frames(TcpStream);

impl Frames {
    fn after(to: SocketAddr, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that has closed already has answered.
        let _ = stream.write_all(bytes);
        Self(stream)
    }

    /// The next frame; none once the connection has ended.
    fn next(&mut self) -> Result<Option<Frame>, String> {
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
