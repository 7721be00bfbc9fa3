//! A position in a lane as a poller holds it: opaque, with a keyed digest that shows whether we served it.
//! Never trusts a text without the digest for it. Called by the capabilities whose lanes are polled.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::lane::LaneId;

const MAC_LEN: usize = 16;
const LEN: usize = 24 + 8 + MAC_LEN;

/// The secret key of the digests.
#[derive(Clone)]
pub struct CursorKey(pub [u8; 32]);

/// The text for a position. It is valid under this epoch of the lane only: a restored store assigns positions anew, and
/// an old cursor would name another event.
pub fn write(key: &CursorKey, epoch: u64, lane: LaneId, seq: u64) -> String {
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend_from_slice(&lane.0);
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(&mac(key, epoch, &bytes)[..MAC_LEN]);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lane that a text names. Not verified.
pub fn lane(text: &str) -> Option<LaneId> {
    LaneId::from_hex(text.get(..48)?)
}

/// The position in a text; `None` where we did not serve it, it is damaged, or of another epoch.
pub fn read(key: &CursorKey, epoch: u64, text: &str) -> Option<(LaneId, u64)> {
    let lane = lane(text)?;
    let seq = u64::from_str_radix(text.get(48..64)?, 16).ok()?;
    // One spelling only: equal cursors are equal texts. Compared in constant time, so timing reveals nothing.
    let ours = write(key, epoch, lane, seq);
    let same = ours.len() == text.len() && ours.bytes().zip(text.bytes()).fold(0, |odd, (a, b)| odd | (a ^ b)) == 0;
    same.then_some((lane, seq))
}

fn mac(key: &CursorKey, epoch: u64, message: &[u8]) -> [u8; 32] {
    // HMAC pads a short key with zeros; this writes the padded block.
    let mut block = [0; 64];
    block[..32].copy_from_slice(&key.0);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(&epoch.to_be_bytes());
    mac.update(message);
    mac.finalize().into_bytes().into()
}
