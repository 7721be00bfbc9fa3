//! The replies that a fence should give, written from DESIGN 5 and not from the kernel: it shares no code with it.
//! Knows nothing of rows, revisions or events; judges replies only.

use std::collections::BTreeMap;

use fencepost_kernel::{
    Reply,
    fence::{self, State},
};

/// A request to a fence.
#[derive(Clone, Debug)]
pub enum Ask {
    Claim { lease_ms: u64 },
    Seal { token: u64, receipt: String },
    Renew { token: u64, lease_ms: u64 },
    Release { token: u64 },
    ResolveSealed { receipt: String },
    ResolveReleased,
}

/// One fence, as the design describes it.
pub struct Model {
    pub hold: bool,
    pub retain_ms: u64,
    life: Option<Life>,
    auditor: Auditor,
}

struct Life {
    token: u64,
    attempts: u32,
    /// An attempt lapsed, and nobody has said since what became of it.
    unknown: bool,
    resolved: Option<Option<String>>,
    stage: Stage,
}

#[derive(Clone)]
enum Stage {
    Held { until: u64 },
    Free { until: u64 },
    Done { receipt: String, until: u64 },
}

impl Model {
    pub fn new(hold: bool, retain_ms: u64) -> Self {
        Self { hold, retain_ms, life: None, auditor: Auditor::default() }
    }

    /// Compares a reply with what the design says, then takes note of it.
    pub fn judge(&mut self, ask: &Ask, reply: &Reply, now: u64) -> Result<(), String> {
        self.forget(now);
        let expected = self.expect(ask, now);
        let got = said(reply);
        if got != expected {
            return Err(format!("{ask:?} at {now}: got {got:?}, the design says {expected:?}"));
        }
        self.auditor.audit(ask, reply, now, (self.hold, self.retain_ms))
    }

    fn forget(&mut self, now: u64) {
        let over = self.life.as_ref().is_some_and(|life| match &life.stage {
            Stage::Held { until } => !self.hold && until + self.retain_ms <= now,
            Stage::Free { until } | Stage::Done { until, .. } => *until <= now,
        });
        if over {
            self.life = None;
        }
    }

    fn expect(&mut self, ask: &Ask, now: u64) -> String {
        let keep_until = now + self.retain_ms;
        match ask {
            Ask::Claim { lease_ms } => self.claim(now, *lease_ms),
            Ask::Seal { token, receipt } => match self.holder(*token) {
                Some(life) => match life.stage.clone() {
                    Stage::Held { .. } => {
                        life.stage = Stage::Done { receipt: receipt.clone(), until: keep_until };
                        "sealed".into()
                    }
                    Stage::Done { receipt: first, .. } if first == *receipt => "sealed again".into(),
                    Stage::Done { .. } => "conflict".into(),
                    Stage::Free { .. } => "fenced_off".into(),
                },
                None => "fenced_off".into(),
            },
            Ask::Renew { token, lease_ms } => {
                let hold = self.hold;
                match self.holder(*token).map(|life| &mut life.stage) {
                    Some(Stage::Held { until }) if hold && *until <= now => "in_doubt".into(),
                    Some(Stage::Held { until }) => {
                        *until = now + lease_ms;
                        "renewed".into()
                    }
                    _ => "fenced_off".into(),
                }
            }
            Ask::Release { token } => match self.holder(*token).map(|life| &mut life.stage) {
                Some(stage @ Stage::Held { .. }) => {
                    *stage = Stage::Free { until: keep_until };
                    "released".into()
                }
                Some(Stage::Free { .. }) => "released again".into(),
                _ => "fenced_off".into(),
            },
            Ask::ResolveSealed { receipt } => {
                let done = Stage::Done { receipt: receipt.clone(), until: keep_until };
                self.resolve(now, done, Some(receipt.clone()))
            }
            Ask::ResolveReleased => self.resolve(now, Stage::Free { until: keep_until }, None),
        }
    }

    fn claim(&mut self, now: u64, lease_ms: u64) -> String {
        let held = Stage::Held { until: now + lease_ms };
        let hold = self.hold;
        let Some(life) = &mut self.life else {
            self.life = Some(Life { token: 0, attempts: 1, unknown: false, resolved: None, stage: held });
            return "new 1".into();
        };
        match &life.stage {
            Stage::Done { receipt, .. } => return format!("duplicate {receipt}"),
            Stage::Held { until } if now < *until => return "in_flight".into(),
            Stage::Held { .. } if hold => return "in_doubt".into(),
            Stage::Held { .. } => life.unknown = true,
            Stage::Free { .. } => {}
        }
        life.attempts += 1;
        life.stage = held;
        format!("new {}{}", life.attempts, if life.unknown { " recovering" } else { "" })
    }

    fn resolve(&mut self, now: u64, stage: Stage, word: Option<String>) -> String {
        let hold = self.hold;
        let Some(life) = &mut self.life else { return "not_in_doubt".into() };
        match &life.stage {
            Stage::Held { until } if hold && *until <= now => {
                // The same word again is a repeat, even where a new doubt has come up since.
                if life.resolved.as_ref() == Some(&word) {
                    return "resolved again".into();
                }
                (life.stage, life.resolved) = (stage, Some(word));
                "resolved".into()
            }
            _ if life.resolved == Some(word) => "resolved again".into(),
            _ => "not_in_doubt".into(),
        }
    }

    fn holder(&mut self, token: u64) -> Option<&mut Life> {
        self.life.as_mut().filter(|life| life.token == token)
    }

    /// Takes note of the token that a claim was given: the design says that it grows, not what it is.
    pub fn given(&mut self, token: u64) {
        if let Some(life) = &mut self.life {
            life.token = token;
        }
    }
}

fn said(reply: &Reply) -> String {
    let again = |replay: &bool| format!("{}{}", reply.decision(), if *replay { " again" } else { "" });
    match reply {
        Reply::Fence(fence::Reply::New(granted)) => {
            format!("new {}{}", granted.attempt, if granted.recovering.is_some() { " recovering" } else { "" })
        }
        Reply::Fence(fence::Reply::Duplicate { fence, .. }) => match &fence.state {
            State::Sealed { receipt, .. } => format!("duplicate {}", String::from_utf8_lossy(&receipt.body)),
            other => format!("duplicate of {other:?}"),
        },
        Reply::Fence(fence::Reply::Sealed { replay, .. })
        | Reply::Fence(fence::Reply::Released { replay })
        | Reply::Fence(fence::Reply::Resolved { replay }) => again(replay),
        other => other.decision().into(),
    }
}

/// The promises themselves, checked over the replies alone, whatever the model thinks.
#[derive(Default)]
struct Auditor {
    highest: u64,
    /// Tokens that may act, and until when.
    live: BTreeMap<u64, u64>,
    /// The sealed effect, and until when duplicates get it.
    sealed: Option<(String, u64)>,
}

impl Auditor {
    fn audit(&mut self, ask: &Ask, reply: &Reply, now: u64, (hold, retain_ms): (bool, u64)) -> Result<(), String> {
        if self.sealed.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.sealed = None;
        }
        match (ask, reply) {
            (Ask::Claim { lease_ms }, Reply::Fence(fence::Reply::New(granted))) => {
                let token = granted.token.0;
                if token <= self.highest || token >= 1 << 53 {
                    return Err(format!("token {token} after {}", self.highest));
                }
                // Under hold, a claim whose lease ran out is in doubt: it still stands against everybody else.
                if let Some((other, _)) = self.live.iter().find(|(_, until)| hold || now < **until) {
                    return Err(format!("{token} was let in beside {other}"));
                }
                if self.sealed.is_some() {
                    return Err(format!("{token} was let in although the effect is sealed"));
                }
                self.highest = token;
                self.live = BTreeMap::from([(token, now + lease_ms)]);
            }
            (Ask::Claim { .. }, Reply::Fence(fence::Reply::Duplicate { .. })) => match &self.sealed {
                Some((receipt, _)) if said(reply) == format!("duplicate {receipt}") => {}
                other => return Err(format!("{} but sealed is {other:?}", said(reply))),
            },
            (Ask::Seal { token, receipt }, Reply::Fence(fence::Reply::Sealed { replay: false, expires, .. })) => {
                if self.live.remove(token).is_none() || *token != self.highest || self.sealed.is_some() {
                    return Err(format!("{token} sealed, but the right to act is {:?}", self.live));
                }
                self.sealed = Some((receipt.clone(), expires.0));
            }
            (Ask::Renew { token, lease_ms }, Reply::Fence(fence::Reply::Renewed { .. })) => {
                self.live.insert(*token, now + lease_ms);
            }
            (Ask::Release { token }, Reply::Fence(fence::Reply::Released { replay: false })) => {
                self.live.remove(token);
            }
            (Ask::ResolveReleased, Reply::Fence(fence::Reply::Resolved { replay: false })) => self.live.clear(),
            (Ask::ResolveSealed { receipt }, Reply::Fence(fence::Reply::Resolved { replay: false })) => {
                self.live.clear();
                self.sealed = Some((receipt.clone(), now + retain_ms));
            }
            _ => {}
        }
        Ok(())
    }
}
