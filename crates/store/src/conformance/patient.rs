//! Law 6: a row vanishes by itself only past its expiry.
//! Never demands that it vanishes: the store chooses when.

use fencepost_kernel::fence::State;
use fencepost_kernel::{Millis, fence::scope::OnLapse, key::Kind};

use super::{
    Harness, LawViolation,
    rows::{DAY_MS, NOW, commit, doubtful, fence, fence_key, key, put, read, record, sealed, set},
    same,
};
use crate::Store;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let soon = NOW.plus(DAY_MS);
    let forgotten = State::Pending {
        lease_expires: NOW,
        on_lapse: OnLapse::Recover,
        forget_at: Some(soon),
        doubted_at: None,
        held_by: None,
    };
    let kept = [
        (key(Kind::VersionHead, 1), record(Kind::VersionHead, 1)),
        (key(Kind::AgainHead, 1), record(Kind::AgainHead, 1)),
        (key(Kind::Alias, 1), record(Kind::Alias, 1)),
        (key(Kind::Trace, 1), record(Kind::Trace, 1)),
        (fence_key(1), record(Kind::Fence, 1)),
        (fence_key(2), doubtful(2, NOW)),
        (fence_key(3), sealed(3, soon.plus(DAY_MS))),
    ];
    let expiring = [(fence_key(4), sealed(4, soon)), (fence_key(5), fence(5, forgotten))];
    let writes = kept.iter().chain(&expiring).map(|(key, record)| put(*key, None, record.clone()));
    commit(&*store, set(1, writes.collect::<Vec<_>>())).await?;

    // A moment before the expiry, everything is there.
    pass_time(&*store, 2, Millis(soon.0 - 1)).await?;
    harness.sweep(&store, Millis(soon.0 - 1));
    for (key, record) in kept.iter().chain(&expiring) {
        same("a row before its expiry", read(&*store, *key).await?, Some((1, record.clone())))?;
    }

    // At the expiry, a row may go; the others stay.
    pass_time(&*store, 3, soon).await?;
    harness.sweep(&store, soon);
    for (key, record) in &kept {
        same("a row that has not expired", read(&*store, *key).await?, Some((1, record.clone())))?;
    }
    for (key, record) in expiring {
        // The row may be gone or still there, but never another row.
        if let Some(found) = read(&*store, key).await? {
            same("an expired row that is still there", found, (1, record))?;
        }
    }
    Ok(())
}

async fn pass_time(store: &dyn Store, id: u64, now: Millis) -> Result<(), LawViolation> {
    store.commit(&[set(id, [put(fence_key(100 + id), None, record(Kind::Fence, id))])], now).await?;
    Ok(())
}
