//! A message as its queue names it, and how its names become key fields.
//! Never reads the message itself. Called by the consumers of queues.

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Longer field values are replaced by their digest.
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
    /// The id that tells this message from all others of its key. See [`dedupe_id`].
    pub dedupe_id: String,
    /// The bytes of the message.
    pub body: Bytes,
}

/// Any bytes as a key field: the text, or its digest if it is no text, too long, or begins with a prefix of ours.
pub fn field(bytes: &[u8]) -> String {
    let reserved = |text: &str| ["sha256:", "offset:", "dead:"].iter().any(|prefix| text.starts_with(prefix));
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= FIELD_BYTES_MAX && !text.contains('\0') && !reserved(text) => text.to_owned(),
        _ => Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// The producer's own id, where it gives one; else the offset, which a redelivery repeats and a producer's own second
/// copy does not.
pub fn dedupe_id(said: Option<&[u8]>, offset: i64) -> String {
    said.filter(|said| !said.is_empty()).map_or_else(|| format!("offset:{offset}"), field)
}
