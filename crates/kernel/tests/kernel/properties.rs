//! Any interleaving of any number of claimants, over scopes that recover and scopes that hold: at most one live token,
//! one seal, one receipt. The model in `model` says what every reply should be.

use fencepost_kernel::{
    Command, Reply, Scope,
    fence::{self, ClaimFence, Target, Token, scope::OnLapse},
};
use proptest::prelude::*;

use super::{
    model::{Ask, Model},
    world::{World, cases, claim, release, resolve, resolve_sealed, scope, seal, target_in, target_of},
};

const RETAIN_MS: u64 = 40;
const CLAIMANTS: usize = 4;

/// The next step of one claimant. One that crashes forgets its token; one that was paused uses an old one.
#[derive(Clone, Debug)]
enum Act {
    Claim { lease_ms: u64 },
    Seal,
    SealOther,
    SealWith { paused: usize },
    Renew { lease_ms: u64 },
    RenewWith { paused: usize },
    Release,
    ReleaseWith { paused: usize },
    Crash,
    ResolveSealed,
    ResolveReleased,
}

/// Time passes, perhaps a sweep, then some claimants act over the same view of the store.
#[derive(Clone, Debug)]
struct Step {
    pass_ms: u64,
    sweep: bool,
    acts: Vec<(usize, Act)>,
}

fn acts() -> impl Strategy<Value = Act> {
    let lease_ms = 1..15u64;
    prop_oneof![
        6 => lease_ms.clone().prop_map(|lease_ms| Act::Claim { lease_ms }),
        4 => Just(Act::Seal),
        1 => Just(Act::SealOther),
        2 => (0..8usize).prop_map(|paused| Act::SealWith { paused }),
        2 => lease_ms.prop_map(|lease_ms| Act::Renew { lease_ms }),
        1 => (0..8usize).prop_map(|paused| Act::RenewWith { paused }),
        3 => Just(Act::Release),
        1 => (0..8usize).prop_map(|paused| Act::ReleaseWith { paused }),
        2 => Just(Act::Crash),
        1 => Just(Act::ResolveSealed),
        1 => Just(Act::ResolveReleased),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let acts = proptest::collection::vec((0..CLAIMANTS, acts()), 1..5);
    let pass_ms = prop_oneof![4 => Just(0u64), 4 => 1..12u64, 1 => 30..60u64];
    let step = (pass_ms, any::<bool>(), acts).prop_map(|(pass_ms, sweep, acts)| Step { pass_ms, sweep, acts });
    proptest::collection::vec(step, 1..40)
}

struct Play {
    world: World,
    target: Target,
    model: Model,
    held: [Option<u64>; CLAIMANTS],
    given: Vec<u64>,
}

impl Play {
    fn new(on_lapse: OnLapse) -> Self {
        let target = target_in(Scope { retain_ms: RETAIN_MS, ..scope(on_lapse) }, "1");
        let model = Model::new(on_lapse == OnLapse::Hold, RETAIN_MS);
        Self { world: World::new(), target, model, held: [None; CLAIMANTS], given: Vec::new() }
    }

    fn ask(&mut self, who: usize, act: &Act) -> Option<Ask> {
        let paused = |back: &usize| self.given.iter().rev().nth(*back).copied();
        let receipt = |token: u64| format!("{who}:{token}");
        Some(match act {
            Act::Claim { lease_ms } => Ask::Claim { lease_ms: *lease_ms },
            Act::Seal => self.held[who].map(|token| Ask::Seal { token, receipt: receipt(token) })?,
            Act::SealOther => self.held[who].map(|token| Ask::Seal { token, receipt: "other".into() })?,
            Act::SealWith { paused: back } => paused(back).map(|token| Ask::Seal { token, receipt: receipt(token) })?,
            Act::Renew { lease_ms } => self.held[who].map(|token| Ask::Renew { token, lease_ms: *lease_ms })?,
            Act::RenewWith { paused: back } => paused(back).map(|token| Ask::Renew { token, lease_ms: 5 })?,
            Act::Release => self.held[who].map(|token| Ask::Release { token })?,
            Act::ReleaseWith { paused: back } => paused(back).map(|token| Ask::Release { token })?,
            Act::ResolveSealed => Ask::ResolveSealed { receipt: format!("person {who}") },
            Act::ResolveReleased => Ask::ResolveReleased,
            Act::Crash => {
                self.held[who] = None;
                return None;
            }
        })
    }

    fn command(&self, ask: &Ask) -> Command {
        let target = &self.target;
        match ask {
            Ask::Claim { lease_ms } => {
                let target = target.clone();
                Command::Fence(fence::Command::Claim(ClaimFence {
                    target,
                    body: None,
                    version: None,
                    source: None,
                    lease_ms: *lease_ms,
                    trace: None,
                }))
            }
            Ask::Seal { token, receipt } => seal(target, Token(*token), receipt),
            Ask::Renew { token, lease_ms } => {
                let (target, token) = (target.clone(), Token(*token));
                Command::Fence(fence::Command::Renew(fencepost_kernel::fence::Renew {
                    target,
                    token,
                    lease_ms: *lease_ms,
                }))
            }
            Ask::Release { token } => release(target, Token(*token)),
            Ask::ResolveSealed { receipt } => resolve_sealed(target, receipt),
            Ask::ResolveReleased => resolve(target, fencepost_kernel::fence::DoubtOutcome::Released),
        }
    }

    /// Everybody decides over the same rows. Those that only read are answered from there; the others commit one
    /// after the other, and one whose rows have moved decides again.
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.world.pass(step.pass_ms);
        if step.sweep {
            self.world.sweep();
        }
        let mut writing = Vec::new();
        for (who, act) in &step.acts {
            let Some(ask) = self.ask(*who, act) else { continue };
            let decision = self.world.decide(&self.command(&ask));
            if decision.writes.is_empty() {
                self.heard(*who, &ask, &decision.reply)?;
            } else {
                writing.push((*who, ask, decision));
            }
        }
        for (who, ask, decision) in writing {
            if self.world.commit(&decision.writes) {
                self.heard(who, &ask, &decision.reply)?;
            } else {
                let reply = self.world.run(&self.command(&ask));
                self.heard(who, &ask, &reply)?;
            }
        }
        Ok(())
    }

    fn heard(&mut self, who: usize, ask: &Ask, reply: &Reply) -> Result<(), TestCaseError> {
        self.model.judge(ask, reply, self.world.now.0).map_err(TestCaseError::fail)?;
        if let Reply::Fence(fence::Reply::New(granted)) = reply {
            self.model.given(granted.token.0);
            self.held[who] = Some(granted.token.0);
            self.given.push(granted.token.0);
        }
        Ok(())
    }
}

fn play(on_lapse: OnLapse, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut play = Play::new(on_lapse);
    steps.iter().try_for_each(|step| play.step(step))
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn any_interleaving_has_one_live_token_and_one_receipt_where_a_lapse_recovers(steps in steps()) {
        play(OnLapse::Recover, &steps)?;
    }

    #[test]
    fn any_interleaving_has_one_live_token_and_one_receipt_where_a_lapse_is_a_doubt(steps in steps()) {
        play(OnLapse::Hold, &steps)?;
    }

    // The numbers that ran are 1, 2, 3 and so on, each once, whatever is asked in whatever order.
    #[test]
    fn any_interleaving_runs_a_sequence_in_order(asked in proptest::collection::vec((1..6u64, 0..4u8, 0..4u64), 1..60)) {
        let nth = |seq| target_of(Scope { retain_ms: 1_000_000, lease_ms: 5, ..scope(OnLapse::Recover) }, &[("id", "1")], Some(seq));
        let mut world = World::new();
        let (mut sealed, mut held) = (0u64, std::collections::BTreeMap::new());
        for (seq, what, pass_ms) in asked {
            world.pass(pass_ms);
            let token = held.get(&seq).copied();
            match (what, token) {
                (0 | 1, _) => if let Reply::Fence(fence::Reply::New(granted)) = world.run(&claim(&nth(seq))) {
                    prop_assert_eq!(seq, sealed + 1, "only the number after the last sealed one may run");
                    held.insert(seq, granted.token);
                },
                (2, Some(token)) => if let Reply::Fence(fence::Reply::Sealed { replay: false, .. }) = world.run(&seal(&nth(seq), token, "1")) {
                    prop_assert_eq!(seq, sealed + 1);
                    sealed = seq;
                },
                (3, Some(token)) => drop(world.run(&release(&nth(seq), token))),
                _ => {}
            }
        }
    }
}
