//! Decides which parts of an HTTP answer are stored, and which answers are outcomes at all.
//! Never stores a cookie or a credential. Pure. Called by the tower layer and the gateway.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// The only headers that are stored and replayed.
pub const STORED_HEADERS: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::LOCATION, header::ETAG];

/// The meaning of an answer for its fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// An outcome: seal it.
    Seal,
    /// Nothing happened and a retry may do better: release.
    Release,
    /// The outcome is unknown: the claim keeps its lease, then lapses.
    Unknown,
}

/// Judges a status: 2xx, 3xx and deterministic 4xx are outcomes; those that a retry may change are not.
pub fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        401 | 403 | 408 | 409 | 425 | 429 => Meaning::Release,
        200..=499 => Meaning::Seal,
        _ => Meaning::Unknown,
    }
}

/// Whether an answer's body is a stream of events. Such a body is for a listener and may never end: it is never stored.
pub fn endless(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.as_bytes().get(..EVENTS.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

/// A stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stored headers, in the order of [`STORED_HEADERS`].
    pub headers: HeaderMap,
    /// The body, or none where it was too large to keep.
    pub body: Option<Bytes>,
}

impl StoredAnswer {
    /// Keeps only the headers that may be stored.
    pub fn new(status: StatusCode, headers: &HeaderMap, body: Option<Bytes>) -> Self {
        let kept = STORED_HEADERS
            .iter()
            .flat_map(|name| headers.get_all(name).iter().map(move |value| (name.clone(), value.clone())));
        Self { status, headers: kept.collect(), body }
    }

    /// The receipt: status, headers and body in one piece.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.body.as_ref().map_or(0, Bytes::len));
        out.put_u8(1);
        out.put_u16(self.status.as_u16());
        out.put_u8(u8::from(self.body.is_none()));
        out.put_u16(self.headers.len() as u16);
        for (name, value) in &self.headers {
            let index = STORED_HEADERS.iter().position(|stored| stored == name).unwrap_or(usize::MAX);
            out.put_u8(index as u8);
            out.put_u32(value.len() as u32);
            out.put_slice(value.as_bytes());
        }
        if let Some(body) = &self.body {
            out.put_slice(body);
        }
        out.freeze()
    }

    /// Reads a receipt back; none where it is not one of ours. The body is shared, not copied.
    pub fn decode(receipt: &Bytes) -> Option<Self> {
        let mut rest = receipt.clone();
        let mut take = |length: usize| (rest.len() >= length).then(|| rest.split_to(length));
        if take(1)?[0] != 1 {
            return None;
        }
        let status = StatusCode::from_u16(u16::from_be_bytes(take(2)?[..].try_into().ok()?)).ok()?;
        let omitted = take(1)?[0] == 1;
        let count = u16::from_be_bytes(take(2)?[..].try_into().ok()?);
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let name = STORED_HEADERS.get(usize::from(take(1)?[0]))?.clone();
            let length = u32::from_be_bytes(take(4)?[..].try_into().ok()?);
            headers.append(name, HeaderValue::from_maybe_shared(take(length as usize)?).ok()?);
        }
        let body = if omitted { None } else { Some(rest) };
        Some(Self { status, headers, body })
    }
}
