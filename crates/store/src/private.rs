//! Directories and files that belong to one user: nobody else on the machine may read receipts, bodies or key files.
//! Never loosens a mode, and never touches what it cannot tell to be a store's. Called where a data directory is opened.

use std::{fs, io, path::Path};

/// Makes a directory, and those above it that are missing, for its owner only. One that is there stays as it is.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// What [`tighten`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tightened {
    /// Files and directories that others could reach, and no longer can.
    pub changed: usize,
    /// Whether some of it stays as it was: it is another user's, or the directory is one that others share.
    pub open: bool,
}

/// Takes what is in a data directory away from everybody but its owner: the directory itself 0700, where nothing but `within`
/// is in it, and these with all that is in them 0700 and 0600. What is not there is passed over.
#[cfg(unix)]
pub fn tighten(dir: &Path, within: &[&str]) -> io::Result<Tightened> {
    use std::os::unix::fs::PermissionsExt;

    const STICKY: u32 = 0o1000;
    /// Of the filesystem, where the directory is one of its own.
    const FOUND: &str = "lost+found";
    let mut done = Tightened::default();
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 != 0 {
        // A directory that others share, such as /tmp, or one with other things in it, is not ours to close.
        let names: Vec<_> = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        let ours = names.iter().all(|name| name == FOUND || within.iter().any(|known| name == *known));
        let may = ours && mode & STICKY == 0;
        match may.then(|| fs::set_permissions(dir, fs::Permissions::from_mode(0o700))) {
            Some(Ok(())) => done.changed += 1,
            // Another user's, as with volumes that a group was given: what is in it is still closed.
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
    // What a link leads to was put there by a person, who knows why.
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
        for entry in fs::read_dir(path)? {
            close(&entry?.path(), done)?;
        }
    }
    Ok(())
}

/// Modes are a notion of Unix.
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
        // One with other things in it: who reads those must not be kept from them.
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
