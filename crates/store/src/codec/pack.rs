//! Packs runs of bytes with LZ4 where that saves space: bodies, and receipts from format 2 on.
//! Never trusts the length that a packed run claims. Called only by the codec.

use bytes::Bytes;

use super::wire::{Damage, Reader, put_bytes, put_uint};

/// Shorter runs do not shrink enough to be worth unpacking at every read.
const PACK_BYTES_MIN: usize = 256;
/// No LZ4 block unpacks to more than this many times its size.
const UNPACK_RATIO_MAX: usize = 256;

/// The packed form; none where it saves less than an eighth.
pub(super) fn pack(bytes: &Bytes) -> Option<Vec<u8>> {
    if bytes.len() < PACK_BYTES_MIN {
        return None;
    }
    let packed = lz4_flex::block::compress(bytes);
    (packed.len() < bytes.len() - bytes.len() / 8).then_some(packed)
}

/// Appends `bytes`, as `packed` where that is given.
pub(super) fn put(out: &mut Vec<u8>, bytes: &Bytes, packed: Option<&[u8]>) {
    match packed {
        Some(packed) => {
            put_uint(out, bytes.len() as u64);
            put_bytes(out, packed);
        }
        None => put_bytes(out, bytes),
    }
}

/// Reads back a run that [`put`] appended: a slice of `whole`, without a copy, where it is not packed.
pub(super) fn take(reader: &mut Reader<'_>, whole: &Bytes, packed: bool) -> Result<Bytes, Damage> {
    if !packed {
        return reader.shared(whole);
    }
    let len = reader.uint()?;
    let packed = reader.bytes()?;
    // A length that no block of this size can reach must not size an allocation.
    if len > (packed.len() * UNPACK_RATIO_MAX) as u64 {
        return Err(Damage("a packed run claims more bytes than it can hold"));
    }
    let bytes =
        lz4_flex::block::decompress(packed, len as usize).map_err(|_| Damage("a packed run does not unpack"))?;
    if bytes.len() as u64 != len {
        return Err(Damage("a packed run unpacks to another length"));
    }
    Ok(bytes.into())
}
