//! Claim, effect and seal in the caller's own PostgreSQL transaction: the effect happens exactly once, with no window.
//! Never commits: the caller does, and with it everything stands or falls.
//! And the outbox: an event that is published in the same transaction leaves if, and only if, that commits.

use bytes::Bytes;
use fencepost_kernel::{
    Command, Reply,
    dispatch::{self, Original},
    fence::{self, diff},
};
use tokio_postgres::Transaction;

use crate::{
    Claim, Claimed, Effect, Error, Fencepost,
    claim::sealed,
    dispatch::{Publication, SCOPE, members},
    engine::IN_TRANSACTION,
};

impl Effect<'_> {
    /// Asks for the right to act, as part of a transaction on the database that holds the fences.
    ///
    /// No other caller sees the claim before the transaction commits, and if it does not, there was none. Another
    /// caller that claims the same key meanwhile waits for the end of this transaction, so keep it short. Where the
    /// effect is a row of the same database and [`Claim::seal_in`] follows before the commit, the effect is exactly
    /// once: there is no moment at which one is there without the other.
    ///
    /// ```no_run
    /// # async fn book(once: &fencepost::Fencepost, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use fencepost::Claimed;
    /// let mut tx = client.transaction().await?;
    /// let booking = once.scope("INDEX_BUILD").key([("index_hash", "9f2c")]);
    /// if let Claimed::New(claim) = booking.claim_in(&mut tx).await? {
    ///     tx.execute("INSERT INTO builds (hash) VALUES ('9f2c')", &[]).await?;
    ///     claim.seal_in(&mut tx, "build-1", "{}").await?;
    /// }
    /// tx.commit().await?; // the row, the claim and the receipt, or none of them
    /// # Ok(())
    /// # }
    /// ```
    pub async fn claim_in(self, tx: &mut Transaction<'_>) -> Result<Claimed, Error> {
        let fencepost = self.fencepost();
        let claim = self.command()?;
        let (target, lease_ms) = (claim.target.clone(), claim.lease_ms);
        let reply = fencepost
            .engine()
            .ask_in(tx, &Command::Fence(fence::Command::Claim(claim)))
            .await
            .map_err(Error::Engine)?;
        fencepost.claimed(target, lease_ms, reply)
    }
}

impl Claim {
    /// Records the outcome as part of a transaction: it counts when the transaction commits. The claim may have been
    /// made in the same transaction, or before it.
    pub async fn seal_in(
        &self,
        tx: &mut Transaction<'_>,
        effect_id: impl Into<String>,
        receipt: impl Into<Bytes>,
    ) -> Result<(), Error> {
        let seal = self.sealing(effect_id.into(), receipt.into());
        sealed(self.engine().ask_in(tx, &seal).await.map_err(Error::Engine)?)
    }
}

impl Fencepost {
    /// Publishes an event as part of a transaction on the database that holds the lanes: it is in its lane when, and only
    /// when, the transaction commits, and the node that drives the lane sends it then. The same `correlation_id` again is the
    /// same event.
    ///
    /// The lane is locked until the transaction ends, so that its order is the order of commits: keep it short, and
    /// publish last.
    ///
    /// ```no_run
    /// # async fn ship(once: &fencepost::Fencepost, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use fencepost::dispatch::Publication;
    /// let envelope = r#"{"kind":"SHIPPER_RELEASED","correlation_id":"cid-101","planner_id":"fgai-wms","warehouse_id":"WH-1",
    ///     "document_ref":{"type":"SHIPPER","id":"SH-1"},"routing":{"ops":[{"op_id":"op-1","kind":"PICK"}]}}"#;
    /// let mut tx = client.transaction().await?;
    /// tx.execute("UPDATE shippers SET state = 'RELEASED' WHERE id = 'SH-1'", &[]).await?;
    /// once.publish_in(&mut tx, Publication::envelope("fgai-wms", envelope)?).await?;
    /// tx.commit().await?; // the row and the event, or neither
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish_in(&self, tx: &mut Transaction<'_>, publication: Publication) -> Result<Published, Error> {
        let policy = self.policy();
        let scope = policy.scope(SCOPE).map_err(|_| Error::UnknownScope(SCOPE.to_owned()))?;
        let nodes = self.engine().alive().await.map_err(Error::Engine)?;
        let members = members(IN_TRANSACTION, nodes, self.engine().now());
        let command = publication.command(scope, members.into(), None).map_err(Error::Engine)?;
        let reply = self.engine().ask_in(tx, &command).await.map_err(Error::Engine)?;
        let why = if let Reply::Dispatch(dispatch::Reply::Published { publication, .. }) = reply {
            return Ok(published(publication, false));
        } else if let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = &reply {
            match dispatch::PublishReceipt::of(fence) {
                Some(publication) => return Ok(published(publication, true)),
                None => "its fence was not sealed by a publication",
            }
        } else if let Reply::Fence(fence::Reply::Conflict(mismatch)) = reply {
            let diff = diff::between(&mismatch, &scope.mask).patch;
            return Err(Error::Conflict { diff, effect_id: mismatch.effect_id });
        } else if let Reply::Dispatch(dispatch::Reply::NoTransport) = reply {
            "the warehouse has no transport"
        } else if let Reply::Dispatch(dispatch::Reply::UnknownOriginal) = reply {
            "what it cancels was never published"
        } else {
            "somebody holds its id"
        };
        Err(Error::NotPublished(why))
    }
}

fn published(at: dispatch::PublishReceipt, replay: bool) -> Published {
    let dispatch::PublishReceipt { lane, seq, original, lane_id: _ } = at;
    Published { lane, seq, replay, original }
}

/// Where a published event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The lane's name, such as `wms:WH-1`, or `wms:poll:EX-1` where its executor polls.
    pub lane: String,
    /// Its position there.
    pub seq: u64,
    /// Whether it was published before.
    pub replay: bool,
    /// State of the event that it cancels.
    pub original: Option<Original>,
}
