//! A request body made comparable: a digest that decides, and a masked copy that explains.
//! Never keeps a value under a masked pointer, and never decides anything itself.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::json::{self, Node};

/// Bodies up to this size are kept for the diff; of larger ones only digest and size.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What is compared, and kept, of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// SHA-256 of the canonical form; two bodies are the same where this is.
    pub digest: [u8; 32],
    /// Bytes as sent.
    pub size: u64,
    /// The canonical JSON with masked values, for the diff.
    pub kept: Option<Bytes>,
}

impl Body {
    /// A JSON body; `mask` holds the pointers whose values must not be kept.
    pub fn json(node: &Node<'_>, mask: &[String]) -> Self {
        let canonical = json::canonical(node);
        let digest = Sha256::digest(&canonical).into();
        let kept = (canonical.len() <= KEPT_BYTES_MAX)
            .then(|| if mask.is_empty() { canonical } else { json::canonical_masked(node, mask) });
        // Without the room that white space and escapes took: what is kept must not weigh more than it says.
        let kept = kept.map(|kept| Bytes::from(kept.into_boxed_slice()));
        Self { digest, size: node.raw.len() as u64, kept }
    }

    /// Bytes that are not JSON: compared as they are, explained by digest and size only.
    pub fn opaque(bytes: &[u8]) -> Self {
        Self { digest: Sha256::digest(bytes).into(), size: bytes.len() as u64, kept: None }
    }

    /// The same body asked of another place is another request: method, path and query take part.
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

    /// The same request of another user is another request: whose answer it is takes part.
    pub fn asked_by(mut self, principal: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((principal.len() as u64).to_be_bytes());
        hash.update(principal);
        hash.update(self.digest);
        self.digest = hash.finalize().into();
        self
    }
}
