//! A disk that can crash: a base image and a journal, of which only a synced prefix is certain to survive.
//! A write set is one checksummed record: recovery keeps it whole or drops it and all that follows.
//! Never interprets a row. Owned by the store twin, handed from one run to the next.

use std::collections::BTreeMap;

use fencepost_kernel::{RowKey, key::Kind};

/// Stored bytes under one key; none where the row was removed.
pub(crate) type Stored = Vec<(RowKey, Option<Vec<u8>>)>;

/// The surviving part of one store.
#[derive(Default)]
pub(crate) struct Disk {
    image: BTreeMap<RowKey, Vec<u8>>,
    floor_ms: u64,
    journal: Vec<u8>,
    synced_len: usize,
}

/// A crash's effect on the unsynced end of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Lost,
    /// All of it did.
    Kept,
    /// It was cut at some byte.
    Torn,
    /// Some of it arrived, followed by garbage.
    Garbled,
}

impl Disk {
    /// The disk of a server that takes over with these rows.
    pub(crate) fn holding(image: BTreeMap<RowKey, Vec<u8>>, floor_ms: u64) -> Self {
        Self { image, floor_ms, ..Self::default() }
    }

    /// Loses the unsynced writes; the machine lives on.
    pub(crate) fn drop_unsynced(&mut self) {
        self.journal.truncate(self.synced_len);
    }

    /// The record of one write set.
    pub(crate) fn record(now_ms: u64, rows: &Stored) -> Vec<u8> {
        let mut content = now_ms.to_le_bytes().to_vec();
        for (key, bytes) in rows {
            content.push(key.kind as u8);
            content.extend_from_slice(&key.id);
            content.push(u8::from(bytes.is_some()));
            let bytes = bytes.as_deref().unwrap_or_default();
            content.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            content.extend_from_slice(bytes);
        }
        let mut record = (content.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(&checksum(&content).to_le_bytes());
        record.append(&mut content);
        record
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.journal.extend_from_slice(bytes);
    }

    pub(crate) fn sync(&mut self) {
        self.synced_len = self.journal.len();
    }

    pub(crate) fn unsynced_len(&self) -> usize {
        self.journal.len() - self.synced_len
    }

    /// The power goes: synced bytes stay, and of the rest as much as `tail` leaves.
    pub(crate) fn crash(&mut self, tail: Tail, rng: &mut fastrand::Rng) {
        let unsynced_len = self.unsynced_len();
        let kept = match tail {
            Tail::Lost => 0,
            Tail::Kept => unsynced_len,
            Tail::Torn | Tail::Garbled => rng.usize(0..=unsynced_len),
        };
        let cut = self.synced_len + kept;
        if tail == Tail::Garbled {
            self.journal[cut..].iter_mut().for_each(|byte| *byte ^= 0x5a);
        } else {
            self.journal.truncate(cut);
        }
    }

    /// Replays the journal onto the image, up to the first record that is not whole.
    pub(crate) fn recover(&mut self) -> (&BTreeMap<RowKey, Vec<u8>>, u64) {
        let journal = std::mem::take(&mut self.journal);
        let mut rest = journal.as_slice();
        while let Some((content, after)) = whole_record(rest) {
            self.apply(content);
            rest = after;
        }
        self.synced_len = 0;
        (&self.image, self.floor_ms)
    }

    fn apply(&mut self, content: &[u8]) -> Option<()> {
        let (now, mut rest) = content.split_first_chunk::<8>()?;
        self.floor_ms = self.floor_ms.max(u64::from_le_bytes(*now));
        while !rest.is_empty() {
            let (kind, after) = rest.split_first()?;
            let (id, after) = after.split_first_chunk::<32>()?;
            let (present, after) = after.split_first()?;
            let (len, after) = after.split_first_chunk::<4>()?;
            let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let key = RowKey { kind: Kind::from_u8(*kind)?, id: *id };
            match present {
                0 => self.image.remove(&key),
                _ => self.image.insert(key, bytes.to_vec()),
            };
            rest = after;
        }
        Some(())
    }
}

fn whole_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let (content, after) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    (checksum(content) == u64::from_le_bytes(*sum)).then_some((content, after))
}

// FNV-1a: enough to tell a torn record from a whole one.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> RowKey {
        RowKey { kind: Kind::Fence, id: [n; 32] }
    }

    #[test]
    fn a_cut_at_any_byte_keeps_whole_records_only() {
        let first = Disk::record(7, &vec![(key(1), Some(vec![1; 10])), (key(2), Some(vec![2; 10]))]);
        let second = Disk::record(9, &vec![(key(1), None), (key(3), Some(vec![3]))]);
        for cut in 0..=first.len() + second.len() {
            let mut disk = Disk::default();
            disk.append(&first);
            disk.append(&second);
            disk.journal.truncate(cut);
            let (image, floor) = disk.recover();
            let keys: Vec<u8> = image.keys().map(|key| key.id[0]).collect();
            let expected: (Vec<u8>, u64) = match cut {
                cut if cut < first.len() => (vec![], 0),
                cut if cut < first.len() + second.len() => (vec![1, 2], 7),
                _ => (vec![2, 3], 9),
            };
            assert_eq!((keys, floor), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_crash_never_touches_what_was_synced() {
        for tail in [Tail::Lost, Tail::Kept, Tail::Torn, Tail::Garbled] {
            let mut disk = Disk::default();
            disk.append(&Disk::record(7, &vec![(key(1), Some(vec![1]))]));
            disk.sync();
            disk.append(&Disk::record(8, &vec![(key(1), Some(vec![2]))]));
            disk.crash(tail, &mut fastrand::Rng::with_seed(3));
            let (image, _) = disk.recover();
            let left = &image[&key(1)];
            assert!(left == &[1] || (left == &[2] && tail != Tail::Lost), "{tail:?}: {left:?}");
        }
    }
}
