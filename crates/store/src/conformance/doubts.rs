//! A doubt that a caller has seen stays until a person ends it: no earlier renewal undoes it, and it survives a crash.
//! Never makes up a write: asks the kernel what to write, as an engine would. Called by the suite.

use std::{collections::BTreeMap, sync::Arc};

use fencepost_kernel::{
    Command, Millis, Reply, Row, RowKey, Rows, Tenant, decide,
    fence::{
        self, ClaimFence, DoubtOutcome, Renew, Resolve, State, Target, Token,
        scope::{OnLapse, Scope},
    },
    row::CommitId,
};

use super::{Harness, LawViolation, holds, rows::NOW, same};
use crate::{Store, Verdict, WriteSet};

const LEASE_MS: u64 = 500;

pub(super) async fn check(harness: &mut dyn Harness) -> Result<(), LawViolation> {
    let store = harness.open();
    let token = Doubt("one").is_told(&*store, 10).await?;
    Doubt("one").ends(&*store, 20, token).await?;
    let token = Doubt("other").is_told(&*store, 30).await?;
    let Some(found) = harness.crash(store) else { return Ok(()) };
    Doubt("other").ends(&*found, 40, token).await
}

/// The key whose claim falls into doubt, by its only field.
struct Doubt(&'static str);

impl Doubt {
    // Uses the commit ids from `id` on.
    async fn is_told(&self, store: &dyn Store, id: u64) -> Result<Token, LawViolation> {
        let Reply::Fence(fence::Reply::New(granted)) = self.ask(store, id, &self.claim(), NOW).await? else {
            return Err(LawViolation("a claim of a new key is not granted".to_owned()));
        };
        // Decided before the lease ended, and delayed on its way to the store.
        let late = self.decided(store, id + 1, &self.renew(granted.token), NOW.plus(1)).await?;
        let over = NOW.plus(LEASE_MS);
        for id in [id + 2, id + 3] {
            let told = self.ask(store, id, &self.claim(), over).await?;
            let doubt = matches!(told, Reply::Fence(fence::Reply::InDoubt { .. }));
            holds("a claim after the lease is told of a doubt", doubt)?;
        }
        same("the verdict on the renewal", store.commit(&[late.0], over).await?, vec![Verdict::Moved])?;
        Ok(granted.token)
    }

    async fn ends(&self, store: &dyn Store, id: u64, token: Token) -> Result<(), LawViolation> {
        let row = self.row(store).await?;
        let fence = row.and_then(|row| row.record.as_fence().cloned());
        let marked = fence.is_some_and(|fence| matches!(fence.state, State::Pending { doubted_at: Some(_), .. }));
        holds("the doubt is marked", marked)?;
        let over = NOW.plus(LEASE_MS + 1);
        let late = self.ask(store, id, &self.renew(token), over).await?;
        holds("its holder is told, too", matches!(late, Reply::Fence(fence::Reply::InDoubt { .. })))?;
        let resolved = self.ask(store, id + 1, &self.resolve(token), over).await?;
        holds("a person ends it", matches!(resolved, Reply::Fence(fence::Reply::Resolved { replay: false })))?;
        let next = self.ask(store, id + 2, &self.claim(), over).await?;
        holds("and the key is free", matches!(next, Reply::Fence(fence::Reply::New(_))))
    }

    async fn row(&self, store: &dyn Store) -> Result<Option<Arc<Row>>, LawViolation> {
        Ok(store.load(&[RowKey::fence(self.target().key)]).await?.pop().flatten())
    }

    async fn decided(
        &self,
        store: &dyn Store,
        id: u64,
        command: &Command,
        now: Millis,
    ) -> Result<(WriteSet, Reply), LawViolation> {
        let found = self.row(store).await?.map(|row| (RowKey::fence(self.target().key), row));
        let decision = decide(command, &Found(found.into_iter().collect()), now);
        Ok((WriteSet::new(CommitId(id), decision.writes), decision.reply))
    }

    async fn ask(&self, store: &dyn Store, id: u64, command: &Command, now: Millis) -> Result<Reply, LawViolation> {
        let (set, reply) = self.decided(store, id, command, now).await?;
        if !set.writes.is_empty() {
            same("the verdict on what it writes", store.commit(&[set], now).await?, vec![Verdict::Applied])?;
        }
        Ok(reply)
    }

    fn target(&self) -> Target {
        let mut scope = Scope::new("PAY", ["k"]);
        scope.on_lapse = OnLapse::Hold;
        let fields = vec![("k".to_owned(), self.0.to_owned())];
        Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("the field that the scope names")
    }

    fn claim(&self) -> Command {
        let (body, version, source, trace) = (None, None, None, None);
        let (target, lease_ms) = (self.target(), LEASE_MS);
        Command::Fence(fence::Command::Claim(ClaimFence { target, body, version, source, lease_ms, trace }))
    }

    fn renew(&self, token: Token) -> Command {
        Command::Fence(fence::Command::Renew(Renew { target: self.target(), token, lease_ms: 60_000 }))
    }

    fn resolve(&self, token: Token) -> Command {
        let (by, why) = ("ann".to_owned(), "asked the bank".to_owned());
        let (target, token, outcome) = (self.target(), Some(token), DoubtOutcome::Released);
        Command::Fence(fence::Command::Resolve(Resolve { target, token, outcome, by, why }))
    }
}

#[derive(Default)]
struct Found(BTreeMap<RowKey, Arc<Row>>);

impl Rows for Found {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.0.get(key).map(Arc::as_ref)
    }
}
