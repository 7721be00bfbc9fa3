//! Seals the secrets that routes sign with, so that a store, its backups and its readers hold none.
//! Never keeps or shows the master key: each use has a key of its own, derived from it under a label.
//! Called by the route that takes secrets, by the sinks that sign with them, and for the cursors of pollers.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
};

use bytes::Bytes;
use fencepost_kernel::cursor::CursorKey;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};

const KEY_LEN: usize = 32;
/// The first byte of everything sealed, so that another form can be told from this one.
const FORM: u8 = 1;
const PRINT_LEN: usize = 8;
/// In front of what is encrypted: the form, which key, and the nonce.
const HEAD_LEN: usize = 1 + PRINT_LEN + NONCE_LEN;

/// What seals and opens. Nodes that share a store need the same master key.
pub struct Vault {
    secrets: LessSafeKey,
    nonces: hmac::Key,
    cursors: [u8; KEY_LEN],
    print: [u8; PRINT_LEN],
}

impl Vault {
    /// With the master key of a file: 64 hex digits. Where there is no such file one is made, for its owner's eyes only.
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let text = match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => text,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => make(path).map_err(failed)?,
        };
        let key = from_hex(text.trim()).ok_or_else(|| format!("{}: a key is 64 hex digits", path.display()))?;
        Ok(Self::fixed(key))
    }

    /// With this master key.
    pub fn fixed(key: [u8; KEY_LEN]) -> Self {
        let master = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let derive = |label: &str| -> [u8; KEY_LEN] { start(hmac::sign(&master, label.as_bytes()).as_ref()) };
        let Ok(secrets) = UnboundKey::new(&CHACHA20_POLY1305, &derive("fencepost secrets 1")) else {
            unreachable!("the cipher takes keys of {KEY_LEN} bytes")
        };
        Self {
            secrets: LessSafeKey::new(secrets),
            nonces: hmac::Key::new(hmac::HMAC_SHA256, &derive("fencepost nonces 1")),
            cursors: derive("fencepost cursors 1"),
            print: start(&derive("fencepost fingerprint 1")),
        }
    }

    /// What may be stored. One secret always has one sealed form: a route that is put again compares equal.
    pub fn seal(&self, secret: &[u8]) -> Bytes {
        // A nonce made of the content under its own key: it repeats only where the content does, and needs no chance.
        let nonce: [u8; NONCE_LEN] = start(hmac::sign(&self.nonces, secret).as_ref());
        let mut sealed = Vec::with_capacity(HEAD_LEN + secret.len() + CHACHA20_POLY1305.tag_len());
        sealed.push(FORM);
        sealed.extend_from_slice(&self.print);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(secret);
        let (head, body) = sealed.split_at_mut(HEAD_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let Ok(tag) = self.secrets.seal_in_place_separate_tag(nonce, Aad::from(&*head), body) else {
            unreachable!("a secret is shorter than the cipher's 64 GiB")
        };
        sealed.extend_from_slice(tag.as_ref());
        sealed.into()
    }

    /// The secret again.
    pub fn open_sealed(&self, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let (head, body) = sealed.split_at_checked(HEAD_LEN).ok_or("a sealed secret is cut short")?;
        let (print, nonce) = head[1..].split_at(PRINT_LEN);
        if head[0] != FORM {
            return Err("a secret is sealed in a form that this release does not know".to_owned());
        }
        if print != self.print {
            let (theirs, ours) = (hex(print), hex(&self.print));
            return Err(format!("a secret is sealed with another key: with {theirs}, and this is {ours}"));
        }
        let mut secret = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(start(nonce));
        let opened = self.secrets.open_in_place(nonce, Aad::from(head), &mut secret);
        let len = opened.map_err(|_| "a sealed secret is damaged")?.len();
        secret.truncate(len);
        Ok(secret)
    }

    /// What the cursors of pollers are checked with.
    pub fn cursor_key(&self) -> CursorKey {
        CursorKey(self.cursors)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({})", hex(&self.print))
    }
}

/// A new key in the file, or that of a process that was faster.
fn make(path: &Path) -> io::Result<String> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        let mut key = [0; KEY_LEN];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        text = hex(&key);
        file.write_all(text.as_bytes())?;
        // What it seals may be durable a moment later: then it must be, too.
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    Ok(text)
}

/// The first bytes; there are always enough.
fn start<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut out = [0; LEN];
    out.copy_from_slice(&bytes[..LEN]);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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

    const SECRET: &[u8] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn what_is_sealed_opens_again_and_shows_nothing() {
        let vault = Vault::fixed([7; 32]);
        for secret in [SECRET, b"", &[0; 5_000]] {
            assert_eq!(vault.open_sealed(&vault.seal(secret)).unwrap(), secret);
        }
        let sealed = vault.seal(SECRET);
        assert!(!sealed.windows(8).any(|window| SECRET.windows(8).any(|part| part == window)));
        assert_ne!(vault.seal(b"one")[1 + PRINT_LEN..HEAD_LEN], vault.seal(b"two")[1 + PRINT_LEN..HEAD_LEN]);
    }

    #[test]
    fn one_secret_has_one_sealed_form_under_one_key() {
        assert_eq!(Vault::fixed([7; 32]).seal(SECRET), Vault::fixed([7; 32]).seal(SECRET));
        assert_ne!(Vault::fixed([7; 32]).seal(SECRET), Vault::fixed([8; 32]).seal(SECRET));
    }

    #[test]
    fn another_key_is_named_and_damage_is_noticed_in_every_byte() {
        let vault = Vault::fixed([7; 32]);
        let sealed = vault.seal(SECRET);
        let refused = Vault::fixed([8; 32]).open_sealed(&sealed).unwrap_err();
        assert!(refused.contains("another key") && refused.contains(&hex(&vault.print)), "{refused}");
        for place in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[place] ^= 1;
            assert!(vault.open_sealed(&damaged).is_err(), "byte {place}");
            assert!(vault.open_sealed(&sealed[..place]).is_err(), "cut at {place}");
        }
    }

    #[test]
    fn a_key_file_is_made_once_for_its_owner_only_and_read_ever_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("vault.key");
        let vaults: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| Vault::open(&path).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let sealed = vaults[0].seal(SECRET);
        for vault in vaults.iter().chain([&Vault::open(&path).unwrap()]) {
            assert_eq!(vault.open_sealed(&sealed).unwrap(), SECRET);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(from_hex(&text).is_some(), "{text}");
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);
    }

    #[test]
    fn a_key_file_may_be_written_by_hand_but_not_wrongly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.key");
        fs::write(&path, format!("{}\n", "0B".repeat(32))).unwrap();
        assert_eq!(Vault::open(&path).unwrap().seal(SECRET), Vault::fixed([11; 32]).seal(SECRET));
        for wrong in ["0b", &"0b".repeat(33), &"xy".repeat(32), &"+b".repeat(32), &"é".repeat(32)] {
            fs::write(&path, wrong).unwrap();
            assert!(Vault::open(&path).unwrap_err().contains("64 hex digits"), "{wrong}");
            assert_eq!(fs::read_to_string(&path).unwrap(), wrong, "it was left alone");
        }
    }

    #[test]
    fn each_use_has_a_key_of_its_own_and_none_is_shown() {
        let vault = Vault::fixed([7; 32]);
        assert_ne!(vault.cursor_key().0, [7; 32]);
        assert_ne!(vault.cursor_key().0, Vault::fixed([8; 32]).cursor_key().0);
        assert_ne!(vault.cursor_key().0[..PRINT_LEN], vault.print);
        assert_eq!(format!("{vault:?}"), format!("Vault({})", hex(&vault.print)));
    }
}
