//! Lints the scope of ingest requests, which a user may replace, against what ingest itself relies on.
//! Called by `check`.

use super::{Lints, duration};
use crate::{ingest::ParsedIngest, scopes::ParsedScope};

/// The only key field: ingest gives no other.
const KEY_FIELD: &str = "correlation_id";

/// Runs every lint on the scope WMS_INGEST.
pub fn lint(lints: &mut Lints<'_>, read: &ParsedScope, ingest: Option<&ParsedIngest>) {
    let name = &read.scope.name;
    let wrong = read.key.iter().find(|field| field.text != KEY_FIELD).or(read.key.get(1));
    if let Some(field) = wrong {
        let message = format!("{name} has the key field `{}`; ingest gives `{KEY_FIELD}` and no other", field.text);
        lints.error(&field.mark, "own-scope-key", message, format!("write `key: [{KEY_FIELD}]`"));
    }
    let Some(ingest) = ingest else { return };
    let (own_ms, retain_ms) = (ingest.settings.quarantine_retain_ms, read.scope.retain_ms);
    if own_ms < retain_ms {
        let (own, retain) = (duration::display(own_ms), duration::display(retain_ms));
        let message = format!(
            "`quarantine_retain` is {own}, and answers are repeated for {retain} ({name}): one could name a quarantine that is forgotten"
        );
        // The later file made the two differ.
        let marks = [&ingest.quarantine_retain_mark, &read.retain_mark];
        let mark = marks.into_iter().max_by_key(|mark| mark.source.layer).unwrap_or(&read.retain_mark);
        let fix = format!("set `quarantine_retain: {retain}` or more, or a shorter `retain` in the scope {name}");
        lints.error(mark, "quarantine-retention", message, fix);
    }
}
