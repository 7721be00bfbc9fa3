//! A Fencepost over the memory store, with a clock that moves only when told to.

use std::sync::Arc;

use fencepost::{
    Fencepost,
    clock::Clock,
    engine::EngineLimits,
    kernel::{Scope, fence::scope::OnLapse},
    policy::Policy,
    store::{Store, memory::Memory},
};
use fencepost_testkit::clock::ManualClock;

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

pub async fn world() -> (Fencepost, Arc<ManualClock>) {
    let hand = ManualClock::new();
    (over(Arc::new(Memory::default()), hand.clone(), EngineLimits::default()).await, hand)
}
