//! Writes rows within a transaction whose other rows are locked already.
//! Never commits. Called by a commit of ours and within a transaction of the user's.

use super::{
    columns::{Columns, Keys, Put},
    fault::Failed,
    link::Run,
    sql,
};
use crate::judge::Change;

/// Writes every change, and says whether all of them went through: a row that was not there may be there by now, and
/// then the transaction must be undone.
pub(super) async fn write(run: Run<'_>, changes: &[Change<'_>], node: &str, format: u8) -> Result<bool, Failed> {
    let puts = changes.iter().filter_map(|change| {
        let (revision, record) = change.after?;
        let expect = change.before.map(|known| known.revision);
        Some(Put { key: change.key, expect, revision, record })
    });
    let columns = Columns::new(puts, format);
    let gone: Keys = changes.iter().filter(|change| change.after.is_none()).map(|change| &change.key).collect();
    let mut written = 0;
    if columns.has_fences() {
        written += run.query(sql::WRITE_FENCES, &columns.fences(&[&node])).await?.len();
    }
    if columns.has_rows() {
        written += run.query(sql::WRITE_ROWS, &columns.rows(&[&node])).await?.len();
    }
    if !gone.fences.is_empty() {
        run.query(sql::DELETE_FENCES, &[&gone.fences]).await?;
    }
    if !gone.ids.is_empty() {
        run.query(sql::DELETE_ROWS, &[&gone.ids, &gone.kinds]).await?;
    }
    Ok(written == columns.len())
}
