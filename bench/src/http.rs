//! One HTTP/1.1 keep-alive connection: prebuilt request bytes out, one reply in.
//! Never interprets a body, and never accepts a reply that it cannot delimit by Content-Length.
//! Called by the drivers of `fence`, `gateway` and `noop`, by `server`, `dispatch` and `ingest`.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection with its reply buffer.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// A reply, borrowed from the connection's buffer.
pub struct Reply<'a> {
    /// The status code.
    pub status: u16,
    pub body: &'a [u8],
}

impl Reply<'_> {
    /// An error that quotes the start of an unexpected reply.
    pub fn unexpected(&self, wanted: &str) -> anyhow::Error {
        let start = &self.body[..self.body.len().min(300)];
        anyhow::anyhow!("expected {wanted}, got {} {}", self.status, String::from_utf8_lossy(start))
    }
}

impl Connection {
    /// Connects to a port of this machine.
    pub async fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 8 * 1024], filled: 0 })
    }

    /// Sends one request and reads its whole reply.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Reply<'_>> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let (status, head_len, body_len) = loop {
            self.read_some().await?;
            if let Some(head) = parse_head(&self.buffer[..self.filled])? {
                break head;
            }
        };
        let end = head_len + body_len;
        while self.filled < end {
            self.read_some().await?;
        }
        if self.filled > end {
            bail!("{} bytes after the end of the reply", self.filled - end);
        }
        Ok(Reply { status, body: &self.buffer[head_len..end] })
    }

    async fn read_some(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]).await? {
            0 => bail!("the server closed the connection"),
            n => self.filled += n,
        }
        Ok(())
    }
}

/// Returns status, head length and body length; `None` while the head is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let head_len = match response.parse(bytes)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(head_len) => head_len,
    };
    let status = response.code.context("a reply without a status")?;
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .context("a reply without Content-Length")?;
    let body_len = std::str::from_utf8(length.value)?.trim().parse().context("Content-Length")?;
    Ok(Some((status, head_len, body_len)))
}

/// A POST of JSON with fixed-width holes that are patched in place, so that nothing is formatted while measuring.
#[derive(Clone)]
pub struct Template {
    bytes: Vec<u8>,
    holes: Vec<std::ops::Range<usize>>,
}

/// Marks a hole for a key in a template's body.
pub const KEY_HOLE: &str = "KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK";
/// Marks a hole for a token; it is filled right-aligned, since JSON allows spaces before a number.
pub const TOKEN_HOLE: &str = "TTTTTTTTTTTTTTTTTTTT";

impl Template {
    /// Builds the request; holes are numbered in the order of the body.
    pub fn post(path: &str, body: &str) -> Template {
        Template::post_with(path, "", body)
    }

    /// The same with further header lines, each ended by CR LF. Their holes come before those of the body.
    pub fn post_with(path: &str, headers: &str, body: &str) -> Template {
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer dev-partner\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut holes: Vec<_> = [KEY_HOLE, TOKEN_HOLE]
            .iter()
            .flat_map(|hole| text.match_indices(hole).map(|(at, text)| at..at + text.len()))
            .collect();
        holes.sort_by_key(|hole| hole.start);
        Template { bytes: text.into_bytes(), holes }
    }

    /// The bytes of the hole with this number, to be overwritten.
    pub fn hole(&mut self, number: usize) -> &mut [u8] {
        let range = self.holes[number].clone();
        &mut self.bytes[range]
    }

    /// Writes a number into a hole, right-aligned.
    pub fn fill_number(&mut self, number: usize, mut value: u64) {
        for digit in self.hole(number).iter_mut().rev() {
            *digit = match value {
                0 => b' ',
                _ => b'0' + (value % 10) as u8,
            };
            value /= 10;
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_delimited_by_its_content_length() {
        let whole = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse_head(whole).unwrap(), Some((201, 43, 2)));
        assert_eq!(parse_head(&whole[..30]).unwrap(), None);
        assert!(parse_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn holes_are_filled_in_place_and_stay_json() {
        let body = format!(r#"{{"key":"{KEY_HOLE}","token":{TOKEN_HOLE}}}"#);
        let mut template = Template::post("/x", &body);
        template.hole(0).copy_from_slice(&[b'a'; 32]);
        template.fill_number(1, 4207);
        let text = String::from_utf8(template.bytes().to_vec()).unwrap();
        let sent = text.split("\r\n\r\n").nth(1).unwrap();
        let value: serde_json::Value = serde_json::from_str(sent).unwrap();
        assert_eq!(value["token"], 4207);
        assert_eq!(value["key"], "a".repeat(32));
    }
}
