//! A message as its queue names it, and how its names become key fields.
//! Never reads the message itself. Made by whoever receives messages.

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Field values longer than this are known by their digest.
const FIELD_BYTES_MAX: usize = 512;

/// One message, as its queue names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic, or the name of the queue.
    pub topic: String,
    /// The partition; 0 where a queue has none.
    pub partition: i32,
    /// The position within the partition.
    pub offset: i64,
    /// The key; empty where there is none. See [`field`] for bytes that are no text.
    pub key: String,
    /// What tells this message from all others of its key. See [`dedupe_id`].
    pub dedupe_id: String,
    /// The message itself.
    pub body: Bytes,
}

/// A value of any bytes as a key field: the text itself, or its digest where it is no plain text of a sensible length.
pub fn field(bytes: &[u8]) -> String {
    let reserved = |text: &str| ["sha256:", "offset:", "dead:"].iter().any(|prefix| text.starts_with(prefix));
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= FIELD_BYTES_MAX && !text.contains('\0') && !reserved(text) => text.to_owned(),
        _ => Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// What the producer says, where it says something; else the offset, which a redelivery repeats and a producer's own
/// second copy does not.
pub fn dedupe_id(said: Option<&[u8]>, offset: i64) -> String {
    said.filter(|said| !said.is_empty()).map_or_else(|| format!("offset:{offset}"), field)
}
