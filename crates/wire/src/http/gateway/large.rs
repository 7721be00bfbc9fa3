//! An answer too large to keep: it streams to the client while its digest is made, and the digest is sealed at the end.
//! Never holds more than a few pieces in memory. Reads on for a while once the client has gone. Called by `granted_call`.

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use fencepost::{Engine, policy::ANSWER_DIGEST};
use fencepost_kernel::{
    Command, Reply, Scope,
    fence::{self, Target, Token},
};
use http_body_util::{BodyExt, channel::Channel};
use sha2::{Digest, Sha256};

use super::patient::Patient;
use crate::http::{call::Call, reply::Object};

/// The key fields of a digest's fence: the key of the answer's own fence, and the token that sealed it. The digest is
/// sealed later, so it expires later; the token keeps it apart from a later answer under the same key.
const FIELDS: [&str; 2] = ["idempotency_key", "token"];
/// How many pieces may wait for the client.
const PIECES_MAX: usize = 4;

/// An answer that is sealed without its body.
pub(super) struct Large<'c> {
    pub(super) call: &'c Call,
    pub(super) target: &'c Target,
    pub(super) token: Token,
    pub(super) rest: Patient,
    /// How long reading goes on once the client has gone.
    pub(super) patience: Duration,
}

impl Large<'_> {
    /// The body for the client. Reading goes on in a task of its own.
    pub(super) fn stream(self, first: Bytes) -> Body {
        let (mut client, body) = Channel::new(PIECES_MAX);
        let (engine, target) = (self.call.app.fencepost.engine().clone(), self.target.clone());
        let (token, mut rest) = (self.token, self.rest);
        let patience = self.patience;
        self.call.app.gateway.go_on(async move {
            let (mut hash, mut size) = (Sha256::new(), 0u64);
            let mut next = Some(Ok(first));
            // Reading goes on without the client for a while: the upstream may still be at work.
            let mut gone: Option<Instant> = None;
            while let Some(piece) = next {
                match piece {
                    Ok(data) => {
                        hash.update(&data);
                        size += data.len() as u64;
                        if gone.is_none() && client.send_data(data).await.is_err() {
                            gone = Some(Instant::now() + patience);
                        }
                    }
                    Err(failed) => return client.abort(failed),
                }
                if gone.is_some_and(|until| Instant::now() > until) {
                    return;
                }
                next = loop {
                    match rest.frame().await {
                        Some(Ok(frame)) => match frame.into_data() {
                            Ok(data) => break Some(Ok(data)),
                            Err(_) => continue,
                        },
                        Some(Err(failed)) => break Some(Err(failed)),
                        None => break None,
                    }
                };
            }
            drop(client);
            keep(&engine, beside(&target, token), &hash.finalize().into(), size).await;
        });
        Body::new(body)
    }
}

/// Seals the digest of an answer's body, with the retention of the answer's own fence.
async fn keep(engine: &Engine, target: Option<Target>, digest: &[u8; 32], size: u64) {
    let Some(target) = target else { return };
    let lease_ms = target.scope.lease_ms;
    let claim =
        fence::ClaimFence { target: target.clone(), body: None, version: None, source: None, lease_ms, trace: None };
    let Ok(Reply::Fence(fence::Reply::New(granted))) = engine.ask(Command::Fence(fence::Command::Claim(claim))).await
    else {
        return;
    };
    let hex = fencepost_kernel::FenceKey(*digest).hex();
    let receipt = Object::new().text("sha256", &hex).value("bytes", size).end();
    let effect_id = format!("sha256:{}", &*hex);
    let seal = fence::Seal { target, token: granted.token, effect_id, receipt: receipt.into() };
    // If this fails, a replay has no digest. The seal of the answer itself is not affected.
    let _ = engine.ask(Command::Fence(fence::Command::Seal(seal))).await;
}

/// The SHA-256 of an answer's body, where it was read to its end.
pub(super) async fn digest(engine: &Engine, answer: &Target, token: Token) -> Option<[u8; 32]> {
    let found = engine.explain(beside(answer, token)?.key).await.ok()??;
    let fencepost_kernel::fence::State::Sealed { receipt, .. } = &found.fence.state else { return None };
    let hex = receipt.effect_id.strip_prefix("sha256:")?;
    fencepost::policy::identity::Sha::from_hex(hex).map(|sha| sha.0)
}

fn beside(answer: &Target, token: Token) -> Option<Target> {
    let scope = Scope { retain_ms: answer.scope.retain_ms, ..Scope::new(ANSWER_DIGEST, FIELDS) };
    let values = [answer.key.to_string(), token.0.to_string()];
    let fields = FIELDS.map(str::to_owned).into_iter().zip(values).collect();
    Target::new(answer.tenant.clone(), scope.into(), fields, None).ok()
}
