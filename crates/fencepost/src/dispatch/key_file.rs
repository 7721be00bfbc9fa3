//! Reads and changes the file of master keys: one per line, 64 hex digits each. The first seals, all of them open.
//! Never writes the file in place, makes it readable to others or shows a key: people see fingerprints.
//! Called by the vault to read, and by `fencepost credential rotate-key` to change the file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use super::vault::{KEY_LEN, fingerprint, hex};

/// More keys than this are refused: each is tried on a poller's cursor.
pub const KEYS_MAX: usize = 16;
/// Follows a key that does not seal yet.
const STAGED: &str = " staged";

/// A master key. Its debug form is its fingerprint.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey(pub(super) [u8; KEY_LEN]);

impl MasterKey {
    /// The name by which people know the key: it reveals nothing of it.
    pub fn fingerprint(&self) -> String {
        hex(&fingerprint(&self.0))
    }

    fn new() -> io::Result<Self> {
        let mut key = [0; KEY_LEN];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(key))
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({})", self.fingerprint())
    }
}

/// A change to the list of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyChange {
    /// A new key seals from now on; the others still open.
    Rotate,
    /// A new key opens, and does not seal yet: for nodes that share a store, each of which must know it first.
    Stage,
    /// The staged key seals from now on. Without a staged key it is refused, so a repeated call changes nothing.
    Promote,
    /// Every key but the first leaves the list. They are kept in a file beside it, which a person deletes.
    DropOld,
}

/// The keys of a file. A file that is missing or empty gets a new key.
pub(super) fn read_or_make(path: &Path) -> Result<Vec<MasterKey>, String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.is_empty() => parse(path, &text),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => parse(path, &make(path).map_err(|error| failed(path, &error))?),
    }
}

/// The keys of an existing file.
pub fn read(path: &Path) -> Result<Vec<MasterKey>, String> {
    parse(path, &fs::read_to_string(path).map_err(|error| failed(path, &error))?)
}

/// Changes the list, and returns the new one. A server that reads the file sees the old list or the new one, whole.
pub fn change(path: &Path, change: KeyChange) -> Result<Vec<MasterKey>, String> {
    let io = |error: io::Error| failed(path, &error);
    let mut name = path.file_name().ok_or_else(|| format!("{}: not the name of a file", path.display()))?.to_owned();
    // Locked: of two changes at once, one would overwrite the other, and a key that has sealed would be lost.
    name.push(".lock");
    // Only a server makes the file: in one that no server reads, keys would look as if they were in use.
    fs::metadata(path).map_err(io)?;
    let lock = private().create(true).truncate(false).open(path.with_file_name(name)).map_err(io)?;
    lock.lock().map_err(io)?;
    let text = fs::read_to_string(path).map_err(io)?;
    let mut keys = parse(path, &text)?;
    let mut staged = staged(&text);
    match change {
        KeyChange::Rotate => keys.insert(0, MasterKey::new().map_err(io)?),
        KeyChange::Stage if staged.is_some() => {
            return Err(format!("{}: a key is staged already; promote it first", path.display()));
        }
        KeyChange::Stage => {
            let key = MasterKey::new().map_err(io)?;
            staged = Some(key.clone());
            keys.push(key);
        }
        KeyChange::Promote => {
            let Some(promoted) = staged.take() else {
                return Err(format!("{}: no key is staged; stage one first, unless it was promoted", path.display()));
            };
            keys.retain(|key| *key != promoted);
            keys.insert(0, promoted);
        }
        KeyChange::DropOld => {
            keep_dropped(path, &keys[1..]).map_err(io)?;
            keys.truncate(1);
            staged = None;
        }
    }
    if keys.len() > KEYS_MAX {
        let path = path.display();
        return Err(format!("{path}: a file holds up to {KEYS_MAX} keys; drop old ones with `--drop-old` first"));
    }
    replace(path, &keys, staged.as_ref()).map_err(io)?;
    Ok(keys)
}

/// The file that keeps dropped keys, so that a mistake can be undone.
pub fn dropped(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".dropped");
    path.with_file_name(name)
}

fn keep_dropped(path: &Path, keys: &[MasterKey]) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut file = private().append(true).create(true).open(dropped(path))?;
    let lines: String = keys.iter().map(|key| hex(&key.0) + "\n").collect();
    file.write_all(lines.as_bytes())?;
    file.sync_all()
}

fn replace(path: &Path, keys: &[MasterKey], staged: Option<&MasterKey>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().create_new(true).open(&fresh)?;
    let mark = |key: &MasterKey| if Some(key) == staged { STAGED } else { "" };
    let text: String = keys.iter().map(|key| hex(&key.0) + mark(key) + "\n").collect();
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    keep_owner(path, &fresh)?;
    fs::rename(&fresh, path)?;
    // Data that the new key seals may be durable a moment later: the key must be durable first.
    File::open(dir_of(path))?.sync_all()
}

// A command that root runs must leave the file to the user that the server runs as.
#[cfg(unix)]
fn keep_owner(old: &Path, new: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, chown};
    let (Ok(old), made) = (fs::metadata(old), fs::metadata(new)?) else { return Ok(()) };
    if (old.uid(), old.gid()) == (made.uid(), made.gid()) {
        return Ok(());
    }
    chown(new, Some(old.uid()), Some(old.gid()))
}

#[cfg(not(unix))]
fn keep_owner(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Puts a new key into the file, or reads that of a process that was faster.
fn make(path: &Path) -> io::Result<String> {
    let dir = dir_of(path);
    fencepost_store::private::create_dir(dir)?;
    let mut file = private().read(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        text = hex(&MasterKey::new()?.0);
        file.write_all(text.as_bytes())?;
        // Data that it seals may be durable a moment later: the key must be durable first.
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    Ok(text)
}

// The key that opens and does not seal yet.
fn staged(text: &str) -> Option<MasterKey> {
    text.lines().find_map(|line| from_hex(line.trim().strip_suffix(STAGED)?).map(MasterKey))
}

fn parse(path: &Path, text: &str) -> Result<Vec<MasterKey>, String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let key = |line: &&str| from_hex(line.strip_suffix(STAGED).unwrap_or(line)).map(MasterKey);
    let keys: Option<Vec<MasterKey>> = lines.iter().map(key).collect();
    // The error does not show the lines: one may be a key with one wrong digit.
    match keys {
        Some(keys) if (1..=KEYS_MAX).contains(&keys.len()) => Ok(keys),
        _ => Err(format!("{}: a key is 64 hex digits; 1 to {KEYS_MAX} of them, each on its line", path.display())),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn from_hex(text: &str) -> Option<[u8; KEY_LEN]> {
    if text.len() != 2 * KEY_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_LEN];
    for (place, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *place = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
    }

    #[test]
    fn a_file_is_made_once_for_its_owner_only_and_read_ever_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("secret.key");
        let made: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| read_or_make(&path).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(made.iter().all(|keys| keys.len() == 1 && *keys == made[0]));
        assert_eq!(read(&path).unwrap(), made[0]);
        #[cfg(unix)]
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_file_may_be_written_by_hand_but_not_wrongly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        fs::write(&path, format!("{}\n\n  {}\r\n", "0B".repeat(32), "0c".repeat(32))).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), [MasterKey([11; 32]), MasterKey([12; 32])]);
        let good = "0b".repeat(32);
        for wrong in [
            "0b",
            " \n",
            &"0b".repeat(33),
            &"xy".repeat(32),
            &"+b".repeat(32),
            &"é".repeat(32),
            &format!("{good}\n0b"),
            &format!("{good}\n").repeat(KEYS_MAX + 1),
        ] {
            fs::write(&path, wrong).unwrap();
            assert!(read_or_make(&path).unwrap_err().contains("64 hex digits"), "{wrong}");
            assert!(change(&path, KeyChange::Rotate).unwrap_err().contains("64 hex digits"), "{wrong}");
            assert_eq!(fs::read_to_string(&path).unwrap(), wrong, "it was left alone");
        }
    }

    #[test]
    fn each_change_keeps_the_keys_that_still_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        let first = read_or_make(&path).unwrap();
        let rotated = change(&path, KeyChange::Rotate).unwrap();
        assert_eq!((rotated.len(), &rotated[1]), (2, &first[0]));
        let staged = change(&path, KeyChange::Stage).unwrap();
        assert_eq!(staged[..2], rotated);
        let promoted = change(&path, KeyChange::Promote).unwrap();
        assert_eq!(promoted, [staged[2].clone(), staged[0].clone(), staged[1].clone()]);
        assert!(change(&path, KeyChange::Promote).is_err(), "said twice, it is done once");
        assert_eq!(read(&path).unwrap(), promoted);
        let left = change(&path, KeyChange::DropOld).unwrap();
        assert_eq!(left, promoted[..1]);
        assert_eq!(read(&path).unwrap(), left);
        assert_eq!(parse(&path, &fs::read_to_string(dropped(&path)).unwrap()).unwrap(), promoted[1..]);
        assert!(change(&path, KeyChange::Promote).unwrap_err().contains("no key is staged"));
        #[cfg(unix)]
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }

    #[test]
    fn changes_at_once_lose_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        read_or_make(&path).unwrap();
        let made: Vec<MasterKey> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| change(&path, KeyChange::Rotate).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()[0].clone()).collect()
        });
        let keys = read(&path).unwrap();
        assert_eq!(keys.len(), 9);
        assert!(made.iter().all(|key| keys.contains(key)));
    }

    #[test]
    fn no_change_makes_a_file_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        for refused in [KeyChange::Rotate, KeyChange::Stage, KeyChange::Promote, KeyChange::DropOld] {
            assert!(change(&path, refused).unwrap_err().contains("secret.key"), "{refused:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
