//! Makes directories and files private: no other user of the machine may read receipts, bodies or key files.
//! Never loosens a mode, and never touches files that may not be a store's. Called where a data directory is opened.

use std::{fs, io, path::Path};

/// Makes a directory and its missing parents, for their owner only. One that exists stays as it is.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The result of [`tighten`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tightened {
    /// How many files and directories other users could reach, and no longer can.
    pub changed: usize,
    /// Whether something stays open: it belongs to another user, or the directory is shared with others.
    pub open: bool,
}

/// Closes a data directory to other users: the directory itself becomes 0700, if it holds nothing but `within`, and
/// these with all that is in them become 0700 and 0600. Missing names are skipped.
#[cfg(unix)]
pub fn tighten(dir: &Path, within: &[&str]) -> io::Result<Tightened> {
    use std::os::unix::fs::PermissionsExt;

    const STICKY: u32 = 0o1000;
    /// Belongs to the filesystem, where the directory is the root of one.
    const FOUND: &str = "lost+found";
    let mut done = Tightened::default();
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 != 0 {
        // A directory that is shared, such as /tmp, or that holds other things too, is not ours to close.
        let names: Vec<_> = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        let ours = names.iter().all(|name| name == FOUND || within.iter().any(|known| name == *known));
        let may = ours && mode & STICKY == 0;
        match may.then(|| fs::set_permissions(dir, fs::Permissions::from_mode(0o700))) {
            Some(Ok(())) => done.changed += 1,
            // It is another user's, such as a volume that a group was given, or shared: its entries are still closed.
            _ => done.open = true,
        }
    }
    for name in within {
        close(&dir.join(name), &mut done)?;
    }
    Ok(done)
}

#[cfg(unix)]
fn close(path: &Path, done: &mut Tightened) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        // A compaction may have removed it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // An operator made the link: its target is left alone.
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.permissions().mode();
    if mode & 0o077 != 0 {
        match fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)) {
            Ok(()) => done.changed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => done.open = true,
            Err(error) => return Err(error),
        }
    }
    if meta.is_dir() {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            close(&entry?.path(), done)?;
        }
    }
    Ok(())
}

/// Does nothing: file modes exist only on Unix.
#[cfg(not(unix))]
pub fn tighten(_: &Path, _: &[&str]) -> io::Result<Tightened> {
    Ok(Tightened::default())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_directory_is_its_owners_and_one_that_is_there_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("a").join("b");
        create_dir(&made).unwrap();
        assert_eq!((mode(&made), mode(made.parent().unwrap())), (0o700, 0o700));
        set(&made, 0o755);
        create_dir(&made).unwrap();
        assert_eq!(mode(&made), 0o755);
    }

    #[test]
    fn a_store_that_others_can_read_is_closed_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("db").join("keyspaces");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("0.jnl"), "j").unwrap();
        for (path, open) in [(dir.path(), 0o755), (&dir.path().join("db"), 0o755), (&tree, 0o755)] {
            set(path, open);
        }
        set(&tree.join("0.jnl"), 0o644);
        assert_eq!(tighten(dir.path(), &["db", "lock"]).unwrap(), Tightened { changed: 4, open: false });
        assert_eq!((mode(dir.path()), mode(&tree), mode(&tree.join("0.jnl"))), (0o700, 0o700, 0o600));
        assert_eq!(tighten(dir.path(), &["db", "lock"]).unwrap(), Tightened::default());
    }

    #[test]
    fn a_directory_that_others_share_is_not_closed_but_the_store_in_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("db")).unwrap();
        set(&dir.path().join("db"), 0o755);
        set(dir.path(), 0o1777);
        assert_eq!(tighten(dir.path(), &["db"]).unwrap(), Tightened { changed: 1, open: true });
        assert_eq!((mode(dir.path()), mode(&dir.path().join("db"))), (0o1777, 0o700));
        // A directory with other things in it: their readers must not lose them.
        let other = dir.path().join("other");
        fs::create_dir_all(other.join("db")).unwrap();
        fs::write(other.join("index.html"), "").unwrap();
        for (path, open) in [(&other, 0o755), (&other.join("db"), 0o755), (&other.join("index.html"), 0o644)] {
            set(path, open);
        }
        assert_eq!(tighten(&other, &["db"]).unwrap(), Tightened { changed: 1, open: true });
        assert_eq!((mode(&other), mode(&other.join("db")), mode(&other.join("index.html"))), (0o755, 0o700, 0o644));
    }
}
