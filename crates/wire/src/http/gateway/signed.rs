//! Lets signed bytes have their effect once per rule. Where a scheme signs no time, a recorded delivery counts for ever,
//! and with another path, header or query it would have another key: so the bytes have a fence of their own, which says
//! under which key they were let in. Another key is refused for as long as that fence is remembered.
//! Never acts without the effect's own claim. Called by the gateway before that claim, and by the flight after it.

use fencepost::{Engine, policy::SIGNED_DELIVERY};
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

/// What signed bytes are remembered by.
const FIELDS: [&str; 2] = ["rule", "digest"];
/// It never has to keep anybody out by its lease: also past it, other content is a conflict, and the same is let in.
const LEASE_MS: u64 = 1;

/// The signed bytes of a delivery, and the key that it has.
pub(super) struct Signed {
    target: Target,
    effect: FenceKey,
}

/// Signed bytes that are let in under their effect's key, until that is settled.
#[derive(Clone)]
pub(super) struct Bound {
    target: Target,
    token: Token,
    effect: FenceKey,
}

impl Signed {
    /// None where nothing is signed, or a signed time makes recordings worthless.
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

    // Compared as a body is: the key that the bytes were let in under.
    fn body(&self) -> Body {
        Body::opaque(&self.effect.0)
    }

    /// Refuses bytes that are known under another key, before anything is written for them.
    pub(super) async fn admit(&self, call: &Call, entry: &Entry) -> Result<(), Problem> {
        let Some(known) = call.app.fencepost.engine().explain(self.target.key).await? else { return Ok(()) };
        let other = known.fence.body.as_ref().is_some_and(|body| body.digest != self.body().digest);
        // What was released may be let in under another key; the claim decides.
        if other && known.phase != Phase::Released { Err(self.refused(call, entry)) } else { Ok(()) }
    }

    /// Lets the bytes in under their effect's key, once that is claimed. None where they are already.
    pub(super) async fn bind(self, call: &Call, entry: &Entry) -> Result<Option<Bound>, Problem> {
        let (target, body) = (self.target.clone(), Some(self.body()));
        let claim = fence::Claim { target, body, version: None, source: None, lease_ms: LEASE_MS, trace: None };
        match call.app.fencepost.engine().ask(Command::Fence(fence::Command::Claim(claim))).await? {
            Reply::Fence(fence::Reply::New(granted)) => {
                Ok(Some(Bound { target: self.target, token: granted.token, effect: self.effect }))
            }
            Reply::Fence(fence::Reply::Duplicate { .. }) | Reply::Fence(fence::Reply::InFlight { .. }) => Ok(None),
            Reply::Fence(_) | Reply::Lane(_) | Reply::Dispatch(_) | Reply::Done => Err(self.refused(call, entry)),
        }
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
        // Never acknowledged, whatever the rule says of other conflicts: a provider's own redelivery has the key that it had before.
        let own = entry.route.answers.on_conflict(call.policy.on_conflict).status;
        let status = if (400..500).contains(&own) { own } else { call.policy.on_conflict.status };
        let problem = Problem::new(Code::Conflict, detail).answered_with(status);
        // What the bytes were let in under is told there.
        marked(entry, reply::explained(problem, &self.target.key), "conflict")
    }
}

impl Bound {
    /// With the seal of the effect: the bytes are remembered for as long as its answer.
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

    /// With the release of the effect: nothing happened, and the bytes may come under any key.
    pub(super) fn release(&self) -> Command {
        Command::Fence(fence::Command::Release(Release { target: self.target.clone(), token: self.token }))
    }
}

/// The reply to a command about an effect, decided together with what it means for its signed bytes.
pub(super) async fn settle(
    engine: &Engine,
    effect: Command,
    bytes: Option<Command>,
) -> Result<Reply, fencepost::engine::Error> {
    match bytes {
        None => engine.ask(effect).await,
        Some(bytes) => {
            let replies = engine.ask_all(vec![effect, bytes]).await?;
            replies.into_iter().next().ok_or_else(|| fencepost::engine::Error::Unknown("no reply".to_owned()))
        }
    }
}
