//! Claim, effect and seal in the caller's own PostgreSQL transaction: the effect happens exactly once, with no window.
//! Never commits: the caller does, and with it everything stands or falls.
//! What is published in a transaction will come in the same style.

use bytes::Bytes;
use fencepost_kernel::{Command, Reply};
use fencepost_store::postgres::in_tx;
use tokio_postgres::Transaction;

use crate::{Claim, Claimed, Effect, Engine, Error, engine, once::sealed};

/// What the rows say wrote them: no node holds such a claim.
const IN_TRANSACTION: &str = "transaction";

impl Effect<'_> {
    /// Asks for the right to act, as part of a transaction on the database that holds the fences.
    ///
    /// Nobody else sees the claim before the transaction commits, and if it does not, there was none. Somebody else who
    /// claims the same key meanwhile waits for the end of this transaction, so keep it short. Where the effect is a
    /// row of the same database and [`Claim::seal_in`] follows before the commit, the effect is exactly once: there is no
    /// moment at which one is there without the other.
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
        let command = Command::Claim(self.command()?);
        let reply = fencepost.engine().ask_in(tx, &command).await.map_err(Error::Engine)?;
        let Command::Claim(claim) = command else { return Err(Error::FencedOff) };
        fencepost.claimed(claim, reply)
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

impl Engine {
    /// The reply to one command, decided and written in the caller's transaction. It counts when that commits.
    pub async fn ask_in(&self, tx: &mut Transaction<'_>, command: &Command) -> Result<Reply, engine::Error> {
        Ok(in_tx::ask(tx, IN_TRANSACTION, command, || self.next_id()).await?)
    }
}
