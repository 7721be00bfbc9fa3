//! The stored form of a counter. Its due time comes first, so that a store can read it without the rest.
//! Never stores a small value in fewer bytes: a counter that grows keeps its row size. Called only by the codec.

use fencepost_kernel::{Millis, merge::Counter};

use super::wire::{Damage, Reader, put_uint};

pub(super) fn put(out: &mut Vec<u8>, counter: &Counter) {
    out.push(u8::from(counter.due.is_some()));
    if let Some(due) = counter.due {
        put_uint(out, due.0);
    }
    out.extend_from_slice(&counter.value.to_le_bytes());
}

pub(super) fn take(reader: &mut Reader<'_>) -> Result<Counter, Damage> {
    let due = (reader.flags(1)? != 0).then(|| reader.uint()).transpose()?.map(Millis);
    Ok(Counter { value: i128::from_le_bytes(reader.array()?), due })
}
