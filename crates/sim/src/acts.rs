//! An operator that gives up what was sealed, on keys of its own, and the reading of the audit at the end of a world.
//! Knows only what it was told. Spawned by `world`.

use fencepost::engine::Engine;
use fencepost_kernel::{audit::Operator, fence::HolderTrace};

use crate::{
    client::{Client, granted},
    history::{Ask, AuditLine, ObservedAnswer, RequestOutcome},
};

/// Entries outlast every world.
const RETAIN_MS: u64 = 100 * 365 * 24 * 3_600_000;
/// Entries on one page.
const PAGE: usize = 50;

/// The engine for an operator's request. Its entry names the request by the trace.
pub(crate) fn acting(engine: &Engine, id: usize, ask: &Ask) -> Option<Engine> {
    let op = match ask {
        Ask::Resolve { .. } => "resolve",
        Ask::Forget { .. } => "forget",
        Ask::Claim { .. }
        | Ask::Seal { .. }
        | Ask::Renew { .. }
        | Ask::Release { .. }
        | Ask::Alias { .. }
        | Ask::Look => return None,
    };
    let trace = Some(HolderTrace((id as u128).to_be_bytes()));
    Some(engine.on_behalf_of(Operator { by: "operator".into(), op: op.into(), trace, retain_ms: RETAIN_MS }))
}

/// Claims, seals, asks again, gives up, and asks again: of any node, now and then late.
pub(crate) async fn forgetter(mut client: Client) {
    let claim = || Ask::Claim { body: None, version: None, lease_ms: 30_000, wait_ms: 0 };
    let mut effects = 0;
    loop {
        client.pause(2_000).await;
        let base = format!("acme/GONE/k{}", client.rng.u8(0..2));
        let asked = client.send(&base, None, claim()).await;
        let token = match (granted(&asked), asked) {
            (Some((token, _)), _) => {
                effects += 1;
                let (effect, receipt) = (format!("{}-{effects}", client.name), format!("[{base} {effects}]"));
                if client.send(&base, None, Ask::Seal { token, effect, receipt }).await == RequestOutcome::Maybe {
                    continue;
                }
                token
            }
            (None, RequestOutcome::Answered(ObservedAnswer::Duplicate { token, .. })) => token,
            (None, _) => continue,
        };
        if client.rng.bool() {
            client.send(&base, None, claim()).await;
        }
        for _ in 0..client.rng.u8(1..3) {
            client.send(&base, None, Ask::Forget { token }).await;
        }
    }
}

/// All entries of the audit; none where it is not kept, or where the node does not answer.
pub(crate) async fn read(engine: &Engine) -> Option<Vec<AuditLine>> {
    let mut lines = Vec::new();
    let mut after = None;
    loop {
        let page = engine.audit(after, PAGE).await.ok()?;
        let Some((last, _)) = page.last() else { return Some(lines) };
        after = Some(*last);
        lines.extend(page.iter().map(|(_, entry)| AuditLine {
            request: entry.trace.map(|trace| u128::from_be_bytes(trace.0) as usize),
            tenant: entry.subject.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()),
            on: entry.subject.on.clone(),
            outcome: entry.outcome.clone(),
            at: entry.at.0,
        }));
    }
}
