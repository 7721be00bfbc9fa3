//! A Fencepost over the memory store, with a clock that moves only when told to.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost::{
    Fencepost,
    clock::Clock,
    engine::EngineLimits,
    kernel::{Scope, fence::scope::OnLapse},
    policy::Policy,
    store::{Store, memory::Memory},
};

pub struct Hand(AtomicU64);

impl Hand {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_000_000)))
    }

    pub fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub fn policy() -> Policy {
    let mut policy = Policy::builtin();
    let held = Scope { on_lapse: OnLapse::Hold, ..Scope::new("HELD", ["id"]) };
    for scope in [Scope::new("JOB", ["id"]), held] {
        policy.scopes.insert(scope.name.to_string(), Arc::new(scope));
    }
    policy
}

pub async fn over(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: EngineLimits) -> Fencepost {
    Fencepost::over(store, clock, policy(), limits, Box::new(()), None).await.unwrap()
}

pub async fn world() -> (Fencepost, Arc<Hand>) {
    let hand = Hand::new();
    (over(Arc::new(Memory::default()), hand.clone(), EngineLimits::default()).await, hand)
}
