//! One bound on the bytes of request bodies and answers in memory, over all connections.
//! Never waits and never copies: a request without room is refused. Answers are always charged, since their bytes
//! exist already; while they take too much, no new request begins.
//! Called by `cli` to make it, by the front for answers, and by the routes for request bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http::Response;

/// Request bodies may take three quarters of the budget; the rest is reserved for answers.
const REQUESTS_SHARE: (usize, usize) = (3, 4);
/// Bodies of clients that are not authenticated yet may take one eighth.
const UNAUTHENTICATED_SHARE: (usize, usize) = (1, 8);

/// How many bytes are held for clients, and the bound.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    held: AtomicUsize,
    /// The part of `held` for clients that are not authenticated yet.
    unauthenticated: AtomicUsize,
    refused: AtomicU64,
}

/// Whether the client of these bytes is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A client whose credential or signature was checked.
    Authenticated,
    /// A client whose signature can be checked only over the whole body.
    Unauthenticated,
}

/// The budget has no room for these bytes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

/// Marks a response whose bytes are not its own: it streams, or it is one document that all requests share.
#[derive(Debug, Clone, Copy)]
pub struct Unbuffered;

impl Budget {
    /// A budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            held: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// An empty charge; bytes are added as they arrive.
    pub fn charge(self: &Arc<Self>, standing: Standing) -> Charge {
        Charge { budget: self.clone(), bytes: 0, standing }
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The bound on the bytes held.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Requests refused so far because the budget had no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a new request may begin.
    pub(super) fn has_room(&self) -> bool {
        self.held() < share(self.bytes_max, REQUESTS_SHARE)
    }

    /// The charge for a response whose bytes are in memory; none for one that streams or is shared.
    pub(super) fn answer<B: http_body::Body>(self: &Arc<Self>, response: &Response<B>) -> Option<Charge> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok())?;
        if bytes == 0 || response.extensions().get::<Unbuffered>().is_some() {
            return None;
        }
        let mut charge = self.charge(Standing::Authenticated);
        charge.add(bytes);
        Some(charge)
    }

    /// Counts a refused request.
    pub(super) fn refuse(&self) -> NoRoom {
        self.refused.fetch_add(1, Ordering::Relaxed);
        NoRoom
    }
}

fn share(bytes: usize, (of, parts): (usize, usize)) -> usize {
    bytes / parts * of
}

/// Bytes held for one request or answer; given back on drop.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
    standing: Standing,
}

impl Charge {
    /// Adds bytes of a request, if there is room.
    pub fn try_add(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.add_within(bytes, share(self.budget.bytes_max, REQUESTS_SHARE))
    }

    /// Adds bytes of an answer, which may fill the whole budget.
    pub fn try_add_answer(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.add_within(bytes, self.budget.bytes_max)
    }

    // Added first and taken back if too much: two concurrent calls never both get the last room.
    fn add_within(&mut self, bytes: usize, bytes_max: usize) -> Result<(), NoRoom> {
        self.add(bytes);
        let budget = &self.budget;
        let unknown_max = share(budget.bytes_max, UNAUTHENTICATED_SHARE);
        let unknown =
            self.standing == Standing::Unauthenticated && budget.unauthenticated.load(Ordering::Relaxed) > unknown_max;
        if unknown || budget.held() > bytes_max {
            self.take_back(bytes);
            return Err(self.budget.refuse());
        }
        Ok(())
    }

    fn take_back(&mut self, bytes: usize) {
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        if self.standing == Standing::Unauthenticated {
            self.budget.unauthenticated.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.bytes -= bytes;
    }

    /// Adds bytes that exist already, whether there is room or not.
    pub fn add(&mut self, bytes: usize) {
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        if self.standing == Standing::Unauthenticated {
            self.budget.unauthenticated.fetch_add(bytes, Ordering::Relaxed);
        }
        self.bytes += bytes;
    }

    /// Records that the client is authenticated: its bytes no longer count as those of unknown clients.
    pub fn authenticated(&mut self) {
        if self.standing == Standing::Unauthenticated {
            self.budget.unauthenticated.fetch_sub(self.bytes, Ordering::Relaxed);
            self.standing = Standing::Authenticated;
        }
    }

    /// The same bytes, charged until the last slice of them is dropped.
    pub fn attach(self, data: Bytes) -> Bytes {
        Bytes::from_owner(Charged { data, _charge: self })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.take_back(self.bytes);
    }
}

struct Charged {
    data: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[test]
    fn request_bodies_leave_a_quarter_for_answers_and_unknown_clients_get_an_eighth() {
        let budget = Budget::new(800);
        let mut unknown = budget.charge(Standing::Unauthenticated);
        assert_eq!(unknown.try_add(100), Ok(()));
        assert_eq!(unknown.try_add(1), Err(NoRoom));
        assert_eq!(budget.charge(Standing::Unauthenticated).try_add(1), Err(NoRoom));
        let mut known = budget.charge(Standing::Authenticated);
        assert_eq!(known.try_add(500), Ok(()));
        assert_eq!(known.try_add(1), Err(NoRoom));
        assert!(!budget.has_room());
        assert_eq!(budget.charge(Standing::Authenticated).try_add_answer(200), Ok(()));
        assert_eq!(budget.charge(Standing::Authenticated).try_add_answer(201), Err(NoRoom));
        let answer = budget.answer(&Response::new(Full::new(Bytes::from_static(&[0; 300])))).unwrap();
        assert_eq!((budget.held(), budget.refused()), (900, 4));
        drop((unknown, known, answer));
        assert_eq!((budget.held(), budget.has_room()), (0, true));
    }

    #[test]
    fn signed_body_no_longer_counts_as_unknown_once_it_was_verified() {
        let budget = Budget::new(800);
        let mut verified = budget.charge(Standing::Unauthenticated);
        verified.try_add(100).unwrap();
        verified.authenticated();
        assert_eq!(budget.charge(Standing::Unauthenticated).try_add(100), Ok(()));
        drop(verified);
        assert_eq!((budget.held(), budget.unauthenticated.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn attached_bytes_are_charged_until_their_last_slice_is_dropped() {
        let budget = Budget::new(100);
        let whole = Bytes::from(vec![7; 50]);
        let charge = budget.answer(&Response::new(Full::new(whole.clone()))).unwrap();
        let mut data = charge.attach(whole);
        let slice = data.split_to(1);
        drop(data);
        assert_eq!(budget.held(), 50);
        drop(slice);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn shared_and_streaming_answers_are_not_charged() {
        let budget = Budget::new(100);
        let mut response = Response::new(Full::new(Bytes::from_static(b"shared")));
        response.extensions_mut().insert(Unbuffered);
        assert!(budget.answer(&response).is_none());
        assert!(budget.answer(&Response::new(Full::new(Bytes::new()))).is_none());
    }
}
