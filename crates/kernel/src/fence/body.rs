//! Makes request bodies comparable: a digest that decides, and a masked copy that explains.
//! Never keeps a value under a masked pointer and decides nothing. Called by `fencepost` and `wire` to make claims.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::json::{self, JsonNode};

/// The largest body that is kept for the diff, in bytes; of larger ones only digest and size are kept.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The digest and the copy of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// SHA-256 of the canonical form: bodies with equal digests are the same.
    pub digest: [u8; 32],
    /// Length in bytes, as sent.
    pub size: u64,
    /// The canonical JSON with masked values, for the diff; `None` where it is too large or not JSON.
    pub kept: Option<Bytes>,
}

impl Body {
    /// A JSON body; `mask` holds the pointers whose values must not be kept.
    pub fn json(node: &JsonNode<'_>, mask: &[String]) -> Self {
        let canonical = json::canonical(node);
        let digest = Sha256::digest(&canonical).into();
        let kept = (canonical.len() <= KEPT_BYTES_MAX)
            .then(|| if mask.is_empty() { canonical } else { json::canonical_masked(node, mask) });
        // Gives back spare capacity: a kept body must not take more memory than its length says.
        let kept = kept.map(|kept| Bytes::from(kept.into_boxed_slice()));
        Self { digest, size: node.raw.len() as u64, kept }
    }

    /// Bytes that are not JSON: compared as they are, explained by digest and size only.
    pub fn opaque(bytes: &[u8]) -> Self {
        Self { digest: Sha256::digest(bytes).into(), size: bytes.len() as u64, kept: None }
    }

    /// Adds method, path and query to the digest: the same body sent to another place is another request.
    pub fn asked_of(mut self, method: &str, path_and_query: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [method, path_and_query] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(self.digest);
        self.digest = hash.finalize().into();
        self
    }

    /// Adds the user to the digest: the same request of another user must not get this user's answer.
    pub fn asked_by(mut self, principal: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((principal.len() as u64).to_be_bytes());
        hash.update(principal);
        hash.update(self.digest);
        self.digest = hash.finalize().into();
        self
    }
}
