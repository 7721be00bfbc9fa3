//! Seals the secrets that transports sign with and the addresses they post to, so that a store, its backups and its readers
//! hold none. Never keeps or shows a master key: each use has a key of its own, derived from it under a label.
//! Called through `sealed`, by the sinks that sign, and for the cursors of pollers.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use bytes::Bytes;
use fencepost_kernel::lane::cursor::CursorKey;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};

use super::key_file::{self, MasterKey};
use crate::policy::credentials::FileStamp;

pub(super) const KEY_LEN: usize = 32;
/// The first byte of every encrypted part names its form. The first form was bound to no owner; it is read, and written
/// no more.
const UNBOUND: u8 = 1;
const BOUND: u8 = 2;
const PRINT_LEN: usize = 8;
/// In front of the encrypted bytes: the form, which key, and the nonce.
const HEAD_LEN: usize = 1 + PRINT_LEN + NONCE_LEN;

/// The owner of an encrypted secret. It decrypts for no other: a secret that is copied into another row is damaged
/// there.
#[derive(Clone, Copy, Debug)]
pub struct SealedFor<'a> {
    /// Whose transport.
    pub planner: &'a str,
    /// Of which warehouse.
    pub warehouse: &'a str,
    /// Which part of it.
    pub part: SealedPart<'a>,
}

/// Which part of a transport is sealed.
#[derive(Clone, Copy, Debug)]
pub enum SealedPart<'a> {
    /// The key that signs its deliveries.
    Secret,
    /// Path and query of its url, behind this scheme, host and port.
    UrlOf(&'a str),
}

/// Under which key something is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealedUnder {
    /// Under the first, and bound to its owner.
    First,
    /// Under an older one of the list, or in the form of an earlier release.
    Older,
    /// Under one that is not in the list.
    Unknown,
}

/// Encrypts and decrypts secrets. Nodes that share a store need the same master keys.
pub struct Vault {
    keys: RwLock<Arc<[Derived]>>,
    file: Option<PathBuf>,
    // The file's stamp when it was last read, and the message of the last refusal.
    seen: Mutex<(Option<FileStamp>, Option<String>)>,
}

struct Derived {
    secrets: LessSafeKey,
    cursors: CursorKey,
    print: [u8; PRINT_LEN],
}

impl Vault {
    /// With the master keys of a file. Where there is no such file one is made, for its owner's eyes only.
    pub fn open(path: &Path) -> Result<Self, String> {
        // Stamped before it is read: a change in between is then seen the next time.
        let stamp = FileStamp::of(path).ok();
        let keys = key_file::read_or_make(path)?;
        let vault = Self::of(&keys);
        Ok(Self { file: Some(path.to_owned()), seen: (stamp, None).into(), ..vault })
    }

    /// Without a key until there is such a file: nothing opens, and nothing can be sealed. For a store whose transports are
    /// sealed already: a new key would open none of them.
    pub fn awaiting(path: &Path) -> Self {
        Self { file: Some(path.to_owned()), ..Self::of(&[]) }
    }

    /// With this one master key.
    pub fn fixed(key: [u8; KEY_LEN]) -> Self {
        Self::of(&[MasterKey(key)])
    }

    /// With these master keys, the one that seals first.
    pub fn of(keys: &[MasterKey]) -> Self {
        let keys = keys.iter().map(|key| Derived::new(&key.0)).collect();
        Self { keys: RwLock::new(keys), file: None, seen: Default::default() }
    }

    /// Reads its file again if it changed since; says whether the keys did. A file that cannot be used is reported
    /// once, until it or its fault changes; the earlier keys stay.
    pub fn refresh(&self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::of(file).ok();
        if seen.0 == stamp && seen.1.is_none() {
            return Ok(false);
        }
        let read = key_file::read(file);
        let told = std::mem::replace(&mut *seen, (stamp.clone(), read.as_ref().err().cloned()));
        match read {
            Err(why) if told == (stamp, Some(why.clone())) => Ok(false),
            Err(why) => Err(why),
            Ok(keys) => {
                let keys: Arc<[Derived]> = keys.iter().map(|key| Derived::new(&key.0)).collect();
                let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
                let same = known.iter().map(|key| key.print).eq(keys.iter().map(|key| key.print));
                *known = keys;
                // That a file can be used again is reported, too.
                Ok(!same || told.1.is_some())
            }
        }
    }

    fn keys(&self) -> Arc<[Derived]> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The encrypted secret. Encrypting one secret twice gives different bytes: only decrypting shows that they are the
    /// same.
    pub fn seal(&self, owner: SealedFor<'_>, secret: &[u8]) -> Result<Bytes, String> {
        let keys = self.keys();
        let Some(key) = keys.first() else { return Err("there is no key to seal with".to_owned()) };
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| format!("no randomness: {error}"))?;
        let mut sealed = Vec::with_capacity(HEAD_LEN + secret.len() + CHACHA20_POLY1305.tag_len());
        sealed.push(BOUND);
        sealed.extend_from_slice(&key.print);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(secret);
        let (head, body) = sealed.split_at_mut(HEAD_LEN);
        let (nonce, bound) = (Nonce::assume_unique_for_key(nonce), owner.bound(head));
        let Ok(tag) = key.secrets.seal_in_place_separate_tag(nonce, Aad::from(bound), body) else {
            unreachable!("a secret is shorter than the cipher's 64 GiB")
        };
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed.into())
    }

    /// The secret again.
    pub fn open_sealed(&self, owner: SealedFor<'_>, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let (head, body) = sealed.split_at_checked(HEAD_LEN).ok_or("a sealed secret is cut short")?;
        let (print, nonce) = head[1..].split_at(PRINT_LEN);
        let bound = match head[0] {
            UNBOUND => head.to_vec(),
            BOUND => owner.bound(head),
            _ => return Err("a secret is sealed in a form that this release does not know".to_owned()),
        };
        let keys = self.keys();
        let Some(key) = keys.iter().find(|key| key.print == *print) else {
            let ours: Vec<String> = keys.iter().map(|key| hex(&key.print)).collect();
            let ours = if ours.is_empty() { "none".to_owned() } else { ours.join(", ") };
            let theirs = hex(print);
            return Err(format!("a secret is sealed with another key: with {theirs}, and the keys here are {ours}"));
        };
        let mut secret = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(start(nonce));
        let opened = key.secrets.open_in_place(nonce, Aad::from(bound), &mut secret);
        let len = opened.map_err(|_| "a sealed secret is damaged, or another transport's")?.len();
        secret.truncate(len);
        Ok(secret)
    }

    /// The fingerprint of the key of an encrypted part, where the list does not have that key. None where the part is
    /// damaged.
    pub(super) fn missing_key_of(&self, sealed: &[u8]) -> Option<String> {
        let print = sealing_key(sealed)?;
        let known = self.keys().iter().any(|key| key.print == print);
        (!known).then(|| hex(&print))
    }

    /// Whether there is a key to seal with.
    pub fn can_seal(&self) -> bool {
        !self.keys().is_empty()
    }

    /// Under which key something is sealed. It is not opened.
    pub fn sealed_under(&self, sealed: &[u8]) -> SealedUnder {
        let keys = self.keys();
        let print = sealed.get(1..=PRINT_LEN).unwrap_or_default();
        match keys.iter().position(|key| key.print == *print) {
            Some(0) if sealed.first() == Some(&BOUND) => SealedUnder::First,
            Some(_) => SealedUnder::Older,
            None => SealedUnder::Unknown,
        }
    }

    /// The keys that check the cursors of pollers: the first signs new ones, each of them is accepted.
    pub fn cursor_keys(&self) -> Vec<CursorKey> {
        self.keys().iter().map(|key| key.cursors.clone()).collect()
    }

    /// The fingerprints of its keys, the one that seals first.
    pub fn fingerprints(&self) -> Vec<String> {
        self.keys().iter().map(|key| hex(&key.print)).collect()
    }
}

impl Derived {
    fn new(key: &[u8; KEY_LEN]) -> Self {
        let Ok(secrets) = UnboundKey::new(&CHACHA20_POLY1305, &derive(key, "fencepost secrets 1")) else {
            unreachable!("the cipher takes keys of {KEY_LEN} bytes")
        };
        let cursors = CursorKey(derive(key, "fencepost cursors 1"));
        Self { secrets: LessSafeKey::new(secrets), cursors, print: fingerprint(key) }
    }
}

impl SealedFor<'_> {
    // The data that is authenticated beside the content. Each text has its length before it, so that no two owners give
    // the same bytes.
    fn bound(&self, head: &[u8]) -> Vec<u8> {
        let (label, origin) = match self.part {
            SealedPart::Secret => ("secret", ""),
            SealedPart::UrlOf(origin) => ("url", origin),
        };
        let mut out = head.to_vec();
        for text in [label, self.planner, self.warehouse, origin] {
            out.extend_from_slice(&(text.len() as u64).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({})", self.fingerprints().join(", "))
    }
}

pub(super) fn fingerprint(key: &[u8; KEY_LEN]) -> [u8; PRINT_LEN] {
    start(&derive(key, "fencepost fingerprint 1"))
}

fn derive(key: &[u8; KEY_LEN], label: &str) -> [u8; KEY_LEN] {
    let master = hmac::Key::new(hmac::HMAC_SHA256, key);
    start(hmac::sign(&master, label.as_bytes()).as_ref())
}

/// The fingerprint of the key that something is sealed with; none where it is damaged, or of a newer release.
pub(super) fn sealing_key(sealed: &[u8]) -> Option<[u8; PRINT_LEN]> {
    let whole = sealed.len() >= HEAD_LEN && matches!(sealed.first(), Some(&UNBOUND | &BOUND));
    whole.then(|| start(&sealed[1..]))
}

/// The first bytes; there are always enough.
fn start<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut out = [0; LEN];
    out.copy_from_slice(&bytes[..LEN]);
    out
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    const SECRET: &[u8] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OWNER: SealedFor<'_> = SealedFor { planner: "wms", warehouse: "WH-1", part: SealedPart::Secret };
    /// [`SECRET`], as the release before sealed it with the key `[7; 32]`: bound to nothing, the nonce made of the content.
    const OF_BEFORE: &str = "010d08e15a626c98c18b9fd6ced723edfa76f7648f1aed29e82512ffe119fa7734f1dde52c648d1f9b93f1c9e8798c70cae9fad4ce8e7b045d97b0f72964e7336db7ce861138beea9c24f8";

    fn keys(bytes: &[u8]) -> Vec<MasterKey> {
        bytes.iter().map(|byte| MasterKey([*byte; 32])).collect()
    }

    fn from_hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn an_encrypted_secret_opens_again_and_shows_nothing() {
        let vault = Vault::fixed([7; 32]);
        for secret in [SECRET, b"", &[0; 5_000]] {
            assert_eq!(vault.open_sealed(OWNER, &vault.seal(OWNER, secret).unwrap()).unwrap(), secret);
        }
        let sealed = vault.seal(OWNER, SECRET).unwrap();
        assert!(!sealed.windows(8).any(|window| SECRET.windows(8).any(|part| part == window)));
    }

    #[test]
    fn two_sealings_of_one_secret_are_unlike() {
        let vault = Vault::fixed([7; 32]);
        assert_ne!(vault.seal(OWNER, SECRET).unwrap(), vault.seal(OWNER, SECRET).unwrap());
    }

    #[test]
    fn a_secret_encrypted_for_one_owner_opens_for_no_other() {
        let vault = Vault::fixed([7; 32]);
        let of = |planner, warehouse, part| SealedFor { planner, warehouse, part };
        let url = SealedPart::UrlOf("https://one.example");
        let owners = [
            OWNER,
            of("wms", "WH-2", SealedPart::Secret),
            of("other", "WH-1", SealedPart::Secret),
            of("wmsW", "H-1", SealedPart::Secret),
            of("wms", "WH-1", url),
            of("wms", "WH-1", SealedPart::UrlOf("https://two.example")),
            of("wms", "WH-1", SealedPart::UrlOf("")),
        ];
        for (at, sealer) in owners.iter().enumerate() {
            let sealed = vault.seal(*sealer, SECRET).unwrap();
            for (by, opener) in owners.iter().enumerate() {
                assert_eq!(vault.open_sealed(*opener, &sealed).is_ok(), at == by, "{sealer:?} {opener:?}");
            }
        }
    }

    #[test]
    fn a_secret_of_the_release_before_still_opens_and_is_due_for_resealing() {
        let (vault, sealed) = (Vault::fixed([7; 32]), from_hex(OF_BEFORE));
        assert_eq!(vault.open_sealed(OWNER, &sealed).unwrap(), SECRET);
        assert_eq!(vault.sealed_under(&sealed), SealedUnder::Older);
    }

    #[test]
    fn every_key_of_the_list_opens_and_the_first_seals() {
        let (before, after) = (Vault::fixed([7; 32]), Vault::of(&keys(&[8, 7])));
        let old = before.seal(OWNER, SECRET).unwrap();
        assert_eq!(after.open_sealed(OWNER, &old).unwrap(), SECRET);
        let new = after.seal(OWNER, SECRET).unwrap();
        assert_eq!(Vault::fixed([8; 32]).open_sealed(OWNER, &new).unwrap(), SECRET);
        assert!(before.open_sealed(OWNER, &new).is_err());
        let under = |vault: &Vault, sealed| vault.sealed_under(sealed);
        assert_eq!((under(&after, &new), under(&after, &old)), (SealedUnder::First, SealedUnder::Older));
        assert_eq!((under(&before, &new), under(&before, b"")), (SealedUnder::Unknown, SealedUnder::Unknown));
    }

    #[test]
    fn another_key_is_named_and_damage_is_noticed_in_every_byte() {
        let vault = Vault::fixed([7; 32]);
        let sealed = vault.seal(OWNER, SECRET).unwrap();
        let refused = Vault::fixed([8; 32]).open_sealed(OWNER, &sealed).unwrap_err();
        assert!(refused.contains("another key") && refused.contains(&vault.fingerprints()[0]), "{refused}");
        for place in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[place] ^= 1;
            assert!(vault.open_sealed(OWNER, &damaged).is_err(), "byte {place}");
            // No form may be taken for another.
            damaged[place] ^= 1 ^ 3;
            assert!(vault.open_sealed(OWNER, &damaged).is_err(), "byte {place}");
            assert!(vault.open_sealed(OWNER, &sealed[..place]).is_err(), "cut at {place}");
        }
    }

    #[test]
    fn a_changed_file_comes_into_force_and_a_damaged_one_is_told_of_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret.key");
        let vault = Vault::open(&path).unwrap();
        let old = vault.seal(OWNER, SECRET).unwrap();
        assert_eq!((vault.refresh(), vault.refresh()), (Ok(false), Ok(false)));
        key_file::change(&path, key_file::KeyChange::Rotate).unwrap();
        assert_eq!(vault.refresh(), Ok(true));
        assert_eq!((vault.fingerprints().len(), vault.sealed_under(&old)), (2, SealedUnder::Older));
        let good = fs::read_to_string(&path).unwrap();
        for bad in ["junk", "other junk"] {
            fs::write(&path, bad).unwrap();
            assert!(vault.refresh().unwrap_err().contains("64 hex digits"));
            assert_eq!((vault.refresh(), vault.refresh()), (Ok(false), Ok(false)));
        }
        assert_eq!(vault.open_sealed(OWNER, &old).unwrap(), SECRET, "the known keys stay");
        fs::remove_file(&path).unwrap();
        assert!(vault.refresh().is_err());
        fs::write(&path, good).unwrap();
        assert_eq!((vault.refresh(), vault.refresh()), (Ok(true), Ok(false)));
    }

    #[test]
    fn each_use_has_a_key_of_its_own_and_none_is_shown() {
        let vault = Vault::of(&keys(&[7, 8]));
        let cursors = vault.cursor_keys();
        assert_eq!(cursors.len(), 2);
        assert!(cursors[0].0 != [7; 32] && cursors[0].0 != cursors[1].0);
        assert_ne!(hex(&cursors[0].0[..PRINT_LEN]), vault.fingerprints()[0]);
        assert_eq!(format!("{vault:?}"), format!("Vault({})", vault.fingerprints().join(", ")));
        assert_eq!(format!("{:?}", MasterKey([7; 32])), format!("MasterKey({})", vault.fingerprints()[0]));
    }
}
