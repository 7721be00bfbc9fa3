//! Checks request heads: where one ends, whether it is well-formed, and how its body is framed.
//! Never more lenient than hyper, which parses the same bytes again: two readings of one message allow smuggling.
//! Called by `scan`, `plain` and `http2`.

use std::mem::MaybeUninit;

use super::refusal::{self, Refusal, malformed};
use super::target;

/// hyper's default; with more headers both refuse.
pub(super) const HEADERS_MAX: usize = 100;

/// Headers that must not occur twice: a second value would change the caller or the meaning of the request.
pub(super) const SINGLES: [(&str, &str); 3] = [
    ("content-type", "Content-Type is given more than once"),
    ("authorization", "Authorization is given more than once"),
    ("idempotency-key", "Idempotency-Key is given more than once"),
];

/// How many bytes after the head belong to the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Sized(u64),
    Chunked,
}

/// Finds the end of a head that may arrive in pieces; looks at each byte once.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seek {
    seen: usize,
    line: usize,
    blank: bool,
    first_line_done: bool,
}

impl Seek {
    /// The head's length once its last line is complete. `head` must start at the head's first byte and hold at least
    /// the bytes of the last call.
    pub(super) fn end(
        &mut self,
        head: &[u8],
        line_bytes_max: usize,
        bytes_max: usize,
    ) -> Result<Option<usize>, Refusal> {
        let fresh = self.seen;
        for found in memchr::memchr_iter(b'\n', &head[fresh..]) {
            let lf = fresh + found;
            if lf == self.line || head[lf - 1] != b'\r' {
                return Err(malformed("a line of the head ends without CRLF"));
            }
            let empty = lf - 1 == self.line;
            self.line = lf + 1;
            if !self.first_line_done && empty {
                // RFC 9112, 2.2: a server should ignore one empty line before the request line.
                if std::mem::replace(&mut self.blank, true) {
                    return Err(malformed("more than one empty line before the request line"));
                }
            } else if !self.first_line_done {
                self.first_line_done = true;
                if lf > line_bytes_max {
                    return Err(refusal::LINE_TOO_LONG);
                }
            } else if empty {
                let len = lf + 1;
                return if len > bytes_max { Err(refusal::HEAD_TOO_LARGE) } else { Ok(Some(len)) };
            }
        }
        self.seen = head.len();
        if !self.first_line_done && head.len() > line_bytes_max {
            return Err(refusal::LINE_TOO_LONG);
        }
        if head.len() > bytes_max {
            return Err(refusal::HEAD_TOO_LARGE);
        }
        Ok(None)
    }
}

/// A parsed head that may be served.
pub(super) struct Head<'h, 'b> {
    pub(super) method: &'b str,
    pub(super) target: &'b str,
    /// The minor version: 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub(super) version: u8,
    pub(super) headers: &'h [httparse::Header<'b>],
    pub(super) framing: Framing,
}

/// Checks one whole head, including its empty line.
pub(super) fn check(head: &[u8]) -> Result<Framing, Refusal> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    read(head, &mut slots).map(|head| head.framing)
}

/// As `check`, for callers that need more of the head than its framing.
pub(super) fn read<'h, 'b>(
    head: &'b [u8],
    slots: &'h mut [MaybeUninit<httparse::Header<'b>>; HEADERS_MAX],
) -> Result<Head<'h, 'b>, Refusal> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, slots) {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        Ok(_) => return Err(malformed("the head has an empty line where none may be")),
        Err(error) => return Err(unparsable(head, error)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(malformed("the request line is incomplete"));
    };
    let authority = target::check(method, target)?;
    let framing = fields(request.headers, version, authority)?;
    Ok(Head { method, target, version, headers: request.headers, framing })
}

fn unparsable(head: &[u8], error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::Version => {
            let line = head.split(|b| *b == b'\r').find(|line| !line.is_empty()).unwrap_or_default();
            match line.rsplit(|b| *b == b' ').next() {
                Some(version) if version.starts_with(b"HTTP/") => refusal::VERSION,
                _ => malformed("the request line does not end with an HTTP version"),
            }
        }
        httparse::Error::TooManyHeaders => refusal::HEAD_TOO_LARGE,
        httparse::Error::HeaderName => malformed("a header name is not a token followed by a colon"),
        httparse::Error::HeaderValue => malformed("a header value holds a control character"),
        httparse::Error::Token => malformed("the request line is not method, target and version"),
        httparse::Error::NewLine => malformed("a CR is not followed by an LF"),
        _ => malformed("the head is not a request"),
    }
}

fn fields(headers: &[httparse::Header<'_>], version: u8, authority: Option<&str>) -> Result<Framing, Refusal> {
    let (mut host, mut length, mut chunked) = (None, None, false);
    let mut singles = [false; SINGLES.len()];
    for header in headers {
        // Compares lengths first: most headers are none of these.
        match header.name.len() {
            4 if header.name.eq_ignore_ascii_case("host") => {
                if host.replace(header.value).is_some() {
                    return Err(malformed("Host is given more than once"));
                }
                target::check_host(header.value)?;
            }
            // Some clients offer h2c with every request, and continue in HTTP/1.1 when it is ignored.
            7 if header.name.eq_ignore_ascii_case("upgrade") && !header.value.eq_ignore_ascii_case(b"h2c") => {
                return Err(refusal::not_implemented("no protocol can be upgraded to here"));
            }
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                if length.is_some() {
                    return Err(malformed("Content-Length is given more than once"));
                }
                length = Some(decimal(header.value).ok_or(malformed("Content-Length is not a number"))?);
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                if std::mem::replace(&mut chunked, true) {
                    return Err(malformed("Transfer-Encoding is given more than once"));
                }
                if version == 0 {
                    return Err(malformed("Transfer-Encoding does not exist in HTTP/1.0"));
                }
                if !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(malformed("Transfer-Encoding is not exactly chunked"));
                }
            }
            12 | 13 | 15 => {
                let single = SINGLES.iter().position(|(name, _)| header.name.eq_ignore_ascii_case(name));
                if let Some(at) = single
                    && std::mem::replace(&mut singles[at], true)
                {
                    return Err(malformed(SINGLES[at].1));
                }
            }
            _ => {}
        }
    }
    if version == 1 && host.is_none() {
        return Err(malformed("Host is missing"));
    }
    if let (Some(authority), Some(host)) = (authority, host) {
        target::check_same_host(authority, host)?;
    }
    match (length, chunked) {
        (Some(_), true) => Err(malformed("Content-Length and Transfer-Encoding are both given")),
        (None, true) => Ok(Framing::Chunked),
        (length, false) => Ok(Framing::Sized(length.unwrap_or(0))),
    }
}

/// Digits only: no sign, no list, no space. The bound is hyper's.
fn decimal(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
    let number = value.iter().fold(0u64, |sum, b| sum.wrapping_mul(10).wrapping_add(u64::from(b.wrapping_sub(b'0'))));
    digits.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_length_is_digits_within_bounds() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"0042"), Some(42));
        for bad in ["", "+1", "-1", "1 ", "1,1", "0x1", "1_0", "18446744073709551616"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }
}
