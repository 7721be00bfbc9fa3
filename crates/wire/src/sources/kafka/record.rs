//! One record of a topic: the message that is fenced, and the headers that its handler and its dead letter get.
//! Never keeps anything of the client library's buffers. Called by `kafka` for every record that comes.

use bytes::Bytes;
use fencepost::queue::{self, Message};
use fencepost_kernel::json;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message as _, OwnedHeaders};

use super::redrive::{self, Place};
use crate::trace::TraceId;

/// A record and its message.
pub(super) struct Record {
    pub message: Message,
    /// The key as it came.
    pub key: Option<Vec<u8>>,
    pub headers: Option<OwnedHeaders>,
    pub trace: TraceId,
    /// Its own offset; for a dead letter that was copied back, the offset that its message had before.
    pub first_offset: i64,
    /// Whether it has no value at all, as opposed to an empty one.
    pub tombstone: bool,
}

impl Record {
    /// `tenant` is the consumer's.
    pub fn new(record: &BorrowedMessage<'_>, dedupe_header: &str, tenant: &str) -> Self {
        let headers = record.headers().map(|headers| headers.detach());
        let place = Place { topic: record.topic(), partition: record.partition(), offset: record.offset() };
        let said = find(headers.as_ref(), dedupe_header);
        let message = Message {
            topic: record.topic().to_owned(),
            partition: record.partition(),
            offset: record.offset(),
            key: queue::field(record.key().unwrap_or_default()),
            dedupe_id: redrive::dedupe_id(said, headers.as_ref(), place, tenant),
            body: Bytes::copy_from_slice(record.payload().unwrap_or_default()),
        };
        let traceparent = find(headers.as_ref(), "traceparent").and_then(|value| HeaderValue::from_bytes(value).ok());
        Self {
            message,
            key: record.key().map(<[u8]>::to_vec),
            trace: TraceId::of(traceparent.as_ref()),
            first_offset: redrive::first_offset(headers.as_ref(), place),
            headers,
            tombstone: record.payload().is_none(),
        }
    }

    /// Where it is: `topic/partition/offset`.
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.message.topic, self.message.partition, self.message.offset)
    }

    /// The bytes of memory that it takes while it waits.
    pub fn bytes(&self) -> usize {
        let header = |one: Header<'_, &[u8]>| one.key.len() + one.value.map_or(0, <[u8]>::len);
        let headers = self.headers.as_ref().map_or(0, |headers| headers.iter().map(header).sum());
        self.message.body.len() + self.key.as_ref().map_or(0, Vec::len) + headers
    }

    /// The HTTP headers that its handler gets.
    pub fn http_headers(&self) -> HeaderMap {
        let mut all = HeaderMap::new();
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                all.insert(HeaderName::from_static(name), value);
            }
        };
        put("fencepost-topic", &visible(self.message.topic.as_bytes()));
        put("fencepost-partition", &self.message.partition.to_string());
        put("fencepost-offset", &self.message.offset.to_string());
        if let Some(key) = &self.key {
            put("fencepost-key", &visible(key));
        }
        if self.tombstone {
            put("fencepost-tombstone", "true");
        }
        for name in
            [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate"), header::CONTENT_TYPE]
        {
            let said = find(self.headers.as_ref(), name.as_str()).and_then(|value| HeaderValue::from_bytes(value).ok());
            if let Some(said) = said {
                all.insert(name, said);
            }
        }
        if !all.contains_key(header::CONTENT_TYPE) {
            let json = json::parse(&self.message.body).is_ok();
            let kind = if json { "application/json" } else { "application/octet-stream" };
            all.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        all
    }
}

fn find<'a>(headers: Option<&'a OwnedHeaders>, name: &str) -> Option<&'a [u8]> {
    headers?.iter().find(|header| header.key.eq_ignore_ascii_case(name))?.value
}

// Percent-encodes everything but visible ASCII, and the percent sign itself.
fn visible(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| match byte {
        b'!'..=b'~' if *byte != b'%' => text + char::from(*byte).encode_utf8(&mut [0; 4]),
        _ => format!("{text}%{byte:02X}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_bytes_is_a_header_that_says_the_same() {
        for (key, expected) in [
            (&b"o-7"[..], "o-7"),
            (b"100%", "100%25"),
            (b"a b\r\n", "a%20b%0D%0A"),
            ("\u{e9}".as_bytes(), "%C3%A9"),
            (b"\xff", "%FF"),
        ] {
            assert_eq!(visible(key), expected);
        }
    }
}
