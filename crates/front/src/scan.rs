//! Follows the byte stream of a connection, message by message, and says how much of it may be passed on.
//! Never does I/O and never keeps a byte: the sizes of the reads change nothing.
//! Called only by `guard`.

use super::chunk::{Chunked, End};
use super::head::{self, Framing, Seek};
use super::refusal::Refusal;

/// Chunk extensions and trailers of one body together. Nothing here reads them; hyper's own bound is 16 KiB.
const FRILLS_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug)]
enum State {
    Head(Seek),
    Sized(u64),
    Chunked(Chunked),
}

/// A connection's place in its stream of requests.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    heads: u64,
    content: u64,
    line_bytes_max: usize,
    head_bytes_max: usize,
}

/// How much of a slice may be passed on, and why not more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The bytes after these begin the next head, unless `stop` says that they are bad.
    pub(super) good: usize,
    pub(super) stop: Option<Stop>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A head that must not be served.
    Refused(Refusal),
    /// A body that is malformed; its request was passed on already.
    Broken,
}

impl Scanner {
    pub(super) fn new(line_bytes_max: usize, head_bytes_max: usize) -> Self {
        Scanner { state: State::Head(Seek::default()), heads: 0, content: 0, line_bytes_max, head_bytes_max }
    }

    /// Well-formed heads so far.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Content bytes of all bodies so far, without their framing.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    pub(super) fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Head(_))
    }

    /// `data` starts where the last scan's good part ended: an unfinished head is passed in again, whole.
    pub(super) fn scan(&mut self, data: &[u8]) -> Scan {
        let mut good = 0;
        while good < data.len() {
            let rest = &data[good..];
            match &mut self.state {
                State::Head(seek) => match seek.end(rest, self.line_bytes_max, self.head_bytes_max) {
                    Ok(None) => break,
                    Ok(Some(len)) => match head::check(&rest[..len]) {
                        Ok(framing) => {
                            self.heads += 1;
                            self.state = match framing {
                                Framing::Sized(0) => State::Head(Seek::default()),
                                Framing::Sized(len) => State::Sized(len),
                                Framing::Chunked => State::Chunked(Chunked::new()),
                            };
                            good += len;
                        }
                        Err(refusal) => return Scan { good, stop: Some(Stop::Refused(refusal)) },
                    },
                    Err(refusal) => return Scan { good, stop: Some(Stop::Refused(refusal)) },
                },
                State::Sized(left) => {
                    let taken = (*left).min(rest.len() as u64);
                    *left -= taken;
                    self.content += taken;
                    // At most the slice's length, so it fits.
                    good += taken as usize;
                    if *left == 0 {
                        self.state = State::Head(Seek::default());
                    }
                }
                State::Chunked(chunked) => {
                    let walk = chunked.walk(rest, FRILLS_BYTES_MAX);
                    self.content += walk.content;
                    good += walk.used;
                    match walk.end {
                        None => {}
                        Some(End::Done) => self.state = State::Head(Seek::default()),
                        Some(End::Broken) => return Scan { good, stop: Some(Stop::Broken) },
                    }
                }
            }
        }
        Scan { good, stop: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans like the guard: bytes that are not good yet are kept and passed in again.
    fn pieces(stream: &[u8], size: usize) -> (usize, u64, u64, Option<Stop>) {
        let mut scanner = Scanner::new(60, 120);
        let (mut passed, mut kept) = (0, Vec::new());
        for piece in stream.chunks(size) {
            kept.extend_from_slice(piece);
            let scan = scanner.scan(&kept);
            passed += scan.good;
            kept.drain(..scan.good);
            if scan.stop.is_some() {
                return (passed, scanner.heads(), scanner.content(), scan.stop);
            }
        }
        (passed, scanner.heads(), scanner.content(), None)
    }

    #[test]
    fn however_the_stream_is_cut_the_judgement_is_the_same() {
        let good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let sized = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nGET / H";
        let chunked = "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n";
        for last in [
            "",
            "GET",
            good,
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\nGET /",
            "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX",
            "GET /0123456789012345678901234567890123456789012345678901234567890123456789",
        ] {
            let stream = format!("{good}{sized}{good}{chunked}{sized}{last}");
            let whole = pieces(stream.as_bytes(), stream.len());
            assert!(whole.1 >= 5 && whole.2 >= 17, "{last:?}: {whole:?}");
            for size in 1..stream.len() {
                assert_eq!(pieces(stream.as_bytes(), size), whole, "{last:?} in pieces of {size}");
            }
        }
    }
}
