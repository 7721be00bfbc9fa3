//! Reads the first bytes of a cleartext connection, to tell HTTP/2 from HTTP/1.
//! Never reads on once the protocol is known: the bytes are handed on, which costs HTTP/1 one copy and no system call.
//! Called by `connection`.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// The first bytes of every HTTP/2 connection (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Most first requests are smaller than this.
const FIRST_BYTES: usize = 4 * 1024;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A connection before it is served: its protocol, the bytes read so far, and when it began.
#[derive(Debug)]
pub(super) struct First {
    pub(super) protocol: Protocol,
    pub(super) bytes: Vec<u8>,
    pub(super) begun: Instant,
}

impl First {
    /// The TLS handshake agreed on the protocol, and no byte was read.
    pub(super) fn nothing(protocol: Protocol) -> First {
        First { protocol, bytes: Vec::new(), begun: Instant::now() }
    }

    /// The protocol is not known yet.
    pub(super) fn unread() -> First {
        First { bytes: Vec::with_capacity(FIRST_BYTES), ..First::nothing(Protocol::Http1) }
    }

    /// Reads until the protocol is known or the client closes. Safe to cancel: the bytes read are kept.
    pub(super) async fn read<IO: AsyncRead + Unpin>(&mut self, io: &mut IO) -> io::Result<()> {
        while PREFACE.starts_with(&self.bytes) {
            if io.read_buf(&mut self.bytes).await? == 0 {
                break;
            }
            if self.bytes.starts_with(PREFACE) {
                self.protocol = Protocol::Http2;
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_preface_is_known_however_it_is_cut_and_nothing_else_is_taken_for_it() {
        let http2 = [PREFACE, b"\0\0\0\x04\0\0\0\0\0"].concat();
        let cases: [(&[u8], Protocol); 5] = [
            (&http2, Protocol::Http2),
            (b"POST / HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", Protocol::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", Protocol::Http1),
            (b"", Protocol::Http1),
        ];
        for (stream, protocol) in cases {
            for size in 1..stream.len().max(2) {
                let mut mock =
                    stream.chunks(size).fold(Box::new(tokio::io::empty()) as Box<Reader>, |before, piece| {
                        Box::new(before.chain(std::io::Cursor::new(piece.to_vec())))
                    });
                let mut first = First::unread();
                first.read(&mut mock).await.unwrap();
                assert_eq!(first.protocol, protocol, "{stream:?} in pieces of {size}");
                assert!(stream.starts_with(&first.bytes));
            }
        }
    }

    type Reader = dyn AsyncRead + Unpin;
}
