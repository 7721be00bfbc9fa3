//! Remembers the first fault that stops a store, and words it for the operator.
//! Never forgets one: after a failed write or sync nothing is acknowledged any more until a restart.
//! Called by every operation of the embedded store.

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Write},
    path::Path,
    sync::OnceLock,
};

use fencepost_kernel::RowKey;

use crate::{Error, codec::Damage};

pub(super) const WHAT_TO_DO: &str =
    "Restore it from a backup, or move the directory aside to begin an empty store (which forgets every fence)";

#[derive(Default)]
pub(super) struct Fault(OnceLock<String>);

impl Fault {
    /// Fails if a fault was recorded before.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.0.get().map_or(Ok(()), |why| Err(Error::Broken(why.clone())))
    }

    /// Stops the store; the first reason stays.
    pub(super) fn stop(&self, why: String) -> Error {
        Error::Broken(self.0.get_or_init(|| why).clone())
    }

    /// Stops the store, because a write or a sync failed.
    pub(super) fn write(&self, error: &fjall::Error, path: &Path) -> Error {
        let full = match error {
            // A background worker failed first and reported that only in its log: check whether the disk is full.
            fjall::Error::Poisoned => is_full(path),
            _ => io_error(error).is_some_and(|error| error.kind() == ErrorKind::StorageFull),
        };
        self.stop(if full {
            format!(
                "the disk under {} is full; nothing more is acknowledged. Free some space, then restart",
                path.display()
            )
        } else {
            format!(
                "writing to {} failed ({error}); nothing more is acknowledged, since what the disk kept is unknown. \
                 Check the disk, then restart",
                path.display()
            )
        })
    }

    /// The error of a failed read. Commits go on: each one checks the rows that it touches again.
    pub(super) fn read(&self, error: &fjall::Error) -> Error {
        Error::Broken(format!("reading failed ({error}). Check the disk. If the store is damaged: {WHAT_TO_DO}"))
    }

    /// The error of a row whose bytes are not those that were written.
    pub(super) fn damaged(&self, key: &RowKey, damage: Damage) -> Error {
        let id = fencepost_kernel::FenceKey(key.id);
        Error::Broken(format!("the {:?} row {id} cannot be read: {damage}. {WHAT_TO_DO}", key.kind))
    }
}

pub(super) fn io_error(error: &fjall::Error) -> Option<&io::Error> {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => Some(error),
        _ => None,
    }
}

fn is_full(path: &Path) -> bool {
    let probe = path.join("probe");
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&probe)
        .and_then(|mut file| file.write_all(&[0; 1 << 16]));
    // A probe file that stays behind does no harm: the next probe overwrites it.
    let _ = std::fs::remove_file(&probe);
    written.is_err_and(|error| error.kind() == ErrorKind::StorageFull)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_and_the_first_fault_stays() {
        let fault = Fault::default();
        assert!(fault.check().is_ok());
        let full = fjall::Error::Io(io::Error::from(ErrorKind::StorageFull));
        let told = fault.write(&full, Path::new("/data")).to_string();
        assert!(told.contains("the disk under /data is full"), "{told}");
        let later = fault.write(&fjall::Error::Io(io::Error::other("gone")), Path::new("/data")).to_string();
        assert_eq!(later, told);
        assert_eq!(fault.check().unwrap_err().to_string(), told);
    }

    #[test]
    fn a_failed_read_does_not_stop_commits() {
        let fault = Fault::default();
        assert!(matches!(fault.read(&fjall::Error::Io(io::Error::other("gone"))), Error::Broken(_)));
        assert!(fault.check().is_ok());
    }
}
