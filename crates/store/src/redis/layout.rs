//! The keys of a row, of the index and of the due list beside it, and the slot that holds them.
//! Never spreads the keys of one script over two slots. Called by everything that names a key.
//!
//! Rows are indexed in buckets by the leading bits of their id, so that the order of buckets is the order of ids; small
//! indexes are cheap in time and memory. A shard is all keys with one hash tag, and so in one slot: all, or one bucket.

use fencepost_kernel::{RowKey, key::Kind};

const BUCKET_BITS: u32 = 10;
const BUCKETS: usize = 1 << BUCKET_BITS;
const SLOTS: u16 = 16_384;

/// The layout of keys under one prefix.
pub(super) struct Layout {
    prefix: String,
    /// The hash tag of each shard, and its slot.
    tags: Vec<(String, u16)>,
}

impl Layout {
    /// One shard for everything, or one for each bucket.
    pub(super) fn new(prefix: &str, one_slot: bool) -> Self {
        let tags: Vec<String> = match one_slot {
            true => vec![format!("{{{prefix}}}")],
            false => (0..BUCKETS).map(|bucket| format!("{{{prefix}/{bucket:03x}}}")).collect(),
        };
        let tags = tags.into_iter().map(|tag| {
            let slot = slot(&tag);
            (tag, slot)
        });
        Self { prefix: prefix.to_owned(), tags: tags.collect() }
    }

    pub(super) fn shards(&self) -> usize {
        self.tags.len()
    }

    /// Whether several rows may be committed together.
    pub(super) fn one_slot(&self) -> bool {
        self.shards() == 1
    }

    pub(super) fn bucket(&self, key: &RowKey) -> usize {
        usize::from(u16::from_be_bytes([key.id[0], key.id[1]]) >> (u16::BITS - BUCKET_BITS))
    }

    pub(super) fn shard_of(&self, bucket: usize) -> usize {
        if self.one_slot() { 0 } else { bucket }
    }

    pub(super) fn shard(&self, key: &RowKey) -> usize {
        self.shard_of(self.bucket(key))
    }

    pub(super) fn slot(&self, shard: usize) -> u16 {
        self.tags[shard].1
    }

    /// The key of a row. The id is kept as bytes: half the memory of its digits.
    pub(super) fn row(&self, key: &RowKey) -> Vec<u8> {
        let mut name = format!("{}:{}:", self.tags[self.shard(key)].0, key.kind as u8).into_bytes();
        name.extend_from_slice(&key.id);
        name
    }

    /// The key of an index: the ids of one kind in a bucket, in order.
    pub(super) fn index(&self, bucket: usize, kind: Kind) -> String {
        format!("{}:index:{}:{bucket:03x}", self.tags[self.shard_of(bucket)].0, kind as u8)
    }

    /// The key of a shard's due list: its due rows, earliest first.
    pub(super) fn due(&self, shard: usize) -> String {
        format!("{}:due", self.tags[shard].0)
    }

    /// The key of a shard's time floor: the latest time committed there.
    pub(super) fn floor(&self, shard: usize) -> String {
        format!("{}:floor", self.tags[shard].0)
    }

    /// The key that holds the name of the layout, and its slot.
    pub(super) fn mark(&self) -> (String, u16) {
        let name = format!("{{{}}}:layout", self.prefix);
        let slot = slot(&name);
        (name, slot)
    }

    /// The name of this layout: rows laid out in another way would not be found, and effects would run again.
    pub(super) fn name(&self) -> String {
        format!("1 shards={}", self.shards())
    }
}

/// A row's place in the due list: kind, then id, so that equal times come in key order.
pub(super) fn place(key: &RowKey) -> [u8; 33] {
    let mut place = [key.kind as u8; 33];
    place[1..].copy_from_slice(&key.id);
    place
}

/// The row behind a place.
pub(super) fn row_at(place: &[u8]) -> Option<RowKey> {
    let (kind, id) = place.split_first()?;
    Some(RowKey { kind: Kind::from_u8(*kind)?, id: id.try_into().ok()? })
}

// A key's slot, as Redis Cluster computes it: CRC16 (XMODEM) of the text in braces.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or(key, |(tag, _)| tag);
    let crc = tag.bytes().fold(0u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(leading: [u8; 2]) -> RowKey {
        let mut id = [9; 32];
        id[..2].copy_from_slice(&leading);
        RowKey { kind: Kind::Alias, id }
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!((slot("foo"), slot("{foo}:bar"), slot("a{foo}b{c}")), (12_182, 12_182, 12_182));
    }

    #[test]
    fn buckets_follow_the_order_of_ids_and_everything_of_a_bucket_is_in_its_slot() {
        let spread = Layout::new("fp", false);
        let of = |leading| spread.bucket(&key(leading));
        assert_eq!([of([0, 63]), of([0, 64]), of([255, 255])], [0, 1, 1023]);
        for leading in [[0, 0], [77, 1], [255, 255]] {
            let (key, bucket) = (key(leading), of(leading));
            let slot = spread.slot(bucket);
            assert!(spread.row(&key).starts_with(spread.tags[bucket].0.as_bytes()));
            for name in [spread.index(bucket, key.kind), spread.due(bucket), spread.floor(bucket)] {
                assert_eq!(self::slot(&name), slot);
            }
            assert_eq!(row_at(&place(&key)), Some(key));
        }
        let one = Layout::new("fp", true);
        assert_eq!((one.shards(), one.bucket(&key([255, 255])), one.shard(&key([255, 255]))), (1, 1023, 0));
        assert_eq!(self::slot(&one.index(1023, Kind::Fence)), one.slot(0));
        assert_ne!(one.name(), spread.name());
    }
}
