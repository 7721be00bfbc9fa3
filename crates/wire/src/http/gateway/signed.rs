//! Lets signed bytes have their effect once per rule. A scheme that signs no time accepts a recorded delivery for ever,
//! and with another path, header or query the recording would have another key. So the bytes have a fence of their own,
//! which stores the key that they were let in under; another key is refused for as long as that fence is remembered.
//! Never acts without the effect's own claim. Called by the gateway before that claim, and by the flight after it.

use fencepost::policy::SIGNED_DELIVERY;
use fencepost_kernel::{
    Command, FenceKey, Reply, Scope,
    fence::{self, Phase, Release, Seal, Target, Token, body::Body},
};
use sha2::{Digest, Sha256};

use super::{Entry, decided::marked};
use crate::{
    http::{
        call::Call,
        reply::{self, Object},
    },
    log::Level,
    problem::{Code, Problem},
};

/// The key fields of the fence of signed bytes.
const FIELDS: [&str; 2] = ["rule", "digest"];
/// The lease need not keep other callers out: even past it, another effect key is a conflict, and the same key is let
/// in.
const LEASE_MS: u64 = 1;

/// The fence of a delivery's signed bytes, and the key of its effect.
pub(super) struct Signed {
    target: Target,
    effect: FenceKey,
}

/// The claim on signed bytes that are let in, to be settled together with their effect.
#[derive(Clone)]
pub(super) struct Bound {
    target: Target,
    token: Token,
    effect: FenceKey,
}

impl Signed {
    /// None where nothing is signed, or where a signed time makes recordings useless.
    pub(super) fn of(call: &Call, entry: &Entry, effect: &Target) -> Option<Self> {
        entry.route.verify.as_ref().filter(|verify| !verify.scheme.is_timed())?;
        let scope = Scope { retain_ms: effect.scope.retain_ms, ..Scope::new(SIGNED_DELIVERY, FIELDS) };
        // These schemes sign the body and nothing else.
        let digest = FenceKey(Sha256::digest(&call.body).into());
        let values = [entry.endpoint.to_string(), digest.to_string()];
        let fields = FIELDS.map(str::to_owned).into_iter().zip(values).collect();
        let target = Target::new(effect.tenant.clone(), scope.into(), fields, None)
            .expect("both fields are there, and neither is long");
        Some(Self { target, effect: effect.key })
    }

    // The effect's key, in place of a body: the kernel refuses another one as a conflict.
    fn body(&self) -> Body {
        Body::opaque(&self.effect.0)
    }

    /// Refuses bytes that are known under another key, before anything is written for them.
    pub(super) async fn admit(&self, call: &Call, entry: &Entry) -> Result<(), Problem> {
        let Some(known) = call.app.fencepost.engine().explain(self.target.key).await? else { return Ok(()) };
        let other = known.fence.body.as_ref().is_some_and(|body| body.digest != self.body().digest);
        // Released bytes may be let in under another key; the claim decides.
        if other && known.phase != Phase::Released { Err(self.refused(call, entry)) } else { Ok(()) }
    }

    /// Claims the bytes for their effect's key, once that key is claimed. None where they are bound to it already.
    pub(super) async fn bind(self, call: &Call, entry: &Entry) -> Result<Option<Bound>, Problem> {
        let (target, body) = (self.target.clone(), Some(self.body()));
        let claim = fence::ClaimFence { target, body, version: None, source: None, lease_ms: LEASE_MS, trace: None };
        let reply = call.app.fencepost.engine().ask(Command::Fence(fence::Command::Claim(claim))).await?;
        if let Reply::Fence(fence::Reply::New(granted)) = reply {
            return Ok(Some(Bound { target: self.target, token: granted.token, effect: self.effect }));
        }
        let is_bound = matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. } | fence::Reply::InFlight { .. }));
        if is_bound { Ok(None) } else { Err(self.refused(call, entry)) }
    }

    fn refused(&self, call: &Call, entry: &Entry) -> Problem {
        let app = &call.app;
        app.log
            .line(Level::Warn, app.fencepost.engine().now().0, "a signed delivery came again under another key")
            .text("endpoint", &entry.endpoint)
            .text("idempotency_key", &self.effect.hex())
            .text("trace_id", &call.trace);
        let detail = "these signed bytes came before under another key: the path, a header or the query differs, which is \
                      not signed";
        // Never acknowledged, even if the rule acknowledges other conflicts: a provider's own redelivery keeps its key.
        let own = entry.route.answers.on_conflict(call.policy.on_conflict).status;
        let status = if (400..500).contains(&own) { own } else { call.policy.on_conflict.status };
        let problem = Problem::new(Code::Conflict, detail).answered_with(status);
        // The page of that fence names the key that the bytes were let in under.
        marked(entry, reply::explained(problem, &self.target.key), "conflict")
    }
}

impl Bound {
    /// Goes with the effect's seal: the bytes are remembered for as long as the effect's answer.
    pub(super) fn seal(&self) -> Command {
        let effect_id = self.effect.to_string();
        let receipt = Object::new().text("idempotency_key", &effect_id).end().into();
        Command::Fence(fence::Command::Seal(Seal {
            target: self.target.clone(),
            token: self.token,
            effect_id,
            receipt,
        }))
    }

    /// Goes with the effect's release: nothing happened, so the bytes may come again under any key.
    pub(super) fn release(&self) -> Command {
        Command::Fence(fence::Command::Release(Release { target: self.target.clone(), token: self.token }))
    }
}
