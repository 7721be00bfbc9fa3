//! The receipt kept in the fence of a publication: the event's lane and position, as text in the format of every
//! release since the first. Clients never see these bytes; the wire writes its own.
//! Never decides. The store adds the position when it appends, by `Record::with_position`.

use bytes::Bytes;

use super::Original;
use crate::{
    fence::{self, Fence, Receipt, State},
    json,
    lane::LaneId,
};

/// Where the event of a publication went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    pub lane_id: LaneId,
    pub lane: String,
    /// The position in it.
    pub seq: u64,
    /// State of the event that this one cancels.
    pub original: Option<Original>,
}

impl PublishReceipt {
    /// Reads the receipt in a publication's sealed fence.
    pub fn of(fence: &Fence) -> Option<Self> {
        let State::Sealed { receipt, .. } = &fence.state else { return None };
        let node = json::parse(&receipt.body).ok()?;
        let lane_id = LaneId::from_hex(node.get("lane_id")?.as_str()?)?;
        // A receipt may only name lanes of its own tenant.
        if !lane_id.is_of(&fence.tenant) {
            return None;
        }
        Some(Self {
            lane_id,
            lane: node.get("lane")?.as_str()?.to_owned(),
            seq: node.get("seq")?.as_u64()?,
            original: node.get("original").and_then(|name| Original::from_name(name.as_str()?)),
        })
    }

    /// The text that is kept, but for the position at its end.
    pub(crate) fn text_before_position(lane_id: LaneId, lane: &str, original: Option<Original>) -> Bytes {
        let mut out = br#"{"accepted":true,"replay":true,"lane":"#.to_vec();
        json::write_string(&mut out, lane);
        out.extend_from_slice(format!(r#","lane_id":"{lane_id}""#).as_bytes());
        if let Some(original) = original {
            out.extend_from_slice(format!(r#","original":"{}""#, original.name()).as_bytes());
        }
        out.extend_from_slice(br#","seq":"#);
        out.into()
    }
}

/// The fence of a publication with the position of its event. A row of any other kind has no receipt, and stays as it is.
pub(crate) fn fence_with_position(record: &fence::Record, seq: u64) -> fence::Record {
    let fence::Record::Fence(fence) = record else { return record.clone() };
    let mut fence = Fence::clone(fence);
    if let State::Sealed { receipt: Receipt { body, .. }, .. } = &mut fence.state {
        let mut text = body.to_vec();
        text.extend_from_slice(format!("{seq}}}").as_bytes());
        *body = text.into();
    }
    fence::Record::Fence(fence.into())
}

/// The position in the receipt of a publication's fence.
pub(crate) fn position_of_fence(record: &fence::Record) -> Option<u64> {
    let fence::Record::Fence(fence) = record else { return None };
    PublishReceipt::of(fence).map(|publication| publication.seq)
}
