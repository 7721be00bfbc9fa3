//! A position in a lane as a poller holds it: opaque, and checked by a keyed digest, so that one we never served is known.
//! Never says anything to who has no key. Called by the routes that pollers use.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::key::LaneId;

const MAC_LEN: usize = 16;
const LEN: usize = 24 + 8 + MAC_LEN;

/// What only we know.
#[derive(Clone)]
pub struct CursorKey(pub [u8; 32]);

/// The text for a position.
pub fn write(key: &CursorKey, lane: LaneId, seq: u64) -> String {
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend_from_slice(&lane.0);
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(&mac(key, &bytes)[..MAC_LEN]);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The position behind a text; none where it is not ours, or damaged.
pub fn read(key: &CursorKey, text: &str) -> Option<(LaneId, u64)> {
    let (lane, rest) = text.split_at_checked(48)?;
    let lane = LaneId::from_hex(lane)?;
    let seq = u64::from_str_radix(rest.get(..16)?, 16).ok()?;
    // One form only: the same cursor compares equal as a text. Compared whole, so that time tells nothing.
    let ours = write(key, lane, seq);
    let same = ours.len() == text.len() && ours.bytes().zip(text.bytes()).fold(0, |odd, (a, b)| odd | (a ^ b)) == 0;
    same.then_some((lane, seq))
}

fn mac(key: &CursorKey, message: &[u8]) -> [u8; 32] {
    // A shorter key counts as one with zeros behind it.
    let mut block = [0; 64];
    block[..32].copy_from_slice(&key.0);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(message);
    mac.finalize().into_bytes().into()
}
