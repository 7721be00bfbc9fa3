//! The public vectors of RFC 6902 (its appendix A, and the community's tests) as data. First the oracle is judged by them;
//! then its judgement counts: our diff between any two of their documents must lead it from one to the other.
//! Two cases have no row: A.13 and its like name a member twice, which JSON that we read may not do (`json.rs` has that).

use fencepost_kernel::fence::diff::between;
use json_patch::Patch;
use serde_json::Value as Oracle;

use super::diff::mismatch;

const VECTORS: &str = include_str!("../vectors/json_patch.json");

fn vectors() -> Vec<Oracle> {
    serde_json::from_str(VECTORS).unwrap()
}

/// The document after the patch; none where the patch is refused, as it is read or as it is applied.
fn applied(document: &Oracle, patch: &Oracle) -> Option<Oracle> {
    let patch: Patch = serde_json::from_value(patch.clone()).ok()?;
    let mut patched = document.clone();
    json_patch::patch(&mut patched, &patch).ok()?;
    Some(patched)
}

/// Our diff, applied to the first.
#[track_caller]
fn lead(first: &Oracle, second: &Oracle) -> (usize, Option<Oracle>) {
    let diff = between(&mismatch(&first.to_string(), &second.to_string(), &[]), &[]);
    assert!(!diff.truncated, "{first} to {second}");
    let patch = serde_json::from_str(&diff.patch.unwrap()).unwrap();
    (diff.operations, applied(first, &patch))
}

#[test]
fn oracle_passes_the_public_vectors() {
    let vectors = vectors();
    assert_eq!((vectors.len(), vectors.iter().filter(|row| row.get("to").is_none()).count()), (106, 30));
    for row in &vectors {
        assert_eq!(applied(&row["from"], &row["patch"]).as_ref(), row.get("to"), "{}", row["name"]);
    }
}

#[test]
fn diff_leads_where_the_vector_does_and_back() {
    for row in vectors().iter().filter(|row| row.get("to").is_some()) {
        let (from, to) = (&row["from"], &row["to"]);
        for (from, to) in [(from, to), (to, from)] {
            let (operations, led) = lead(from, to);
            assert_eq!(led.as_ref(), Some(to), "{}", row["name"]);
            assert_eq!(operations == 0, from == to, "{}", row["name"]);
        }
    }
}

#[test]
fn diff_leads_from_any_document_of_the_vectors_to_any_other() {
    let vectors = vectors();
    let documents: Vec<&Oracle> = vectors.iter().flat_map(|row| [row.get("from"), row.get("to")]).flatten().collect();
    for first in &documents {
        for second in &documents {
            assert_eq!(lead(first, second).1.as_ref(), Some(*second), "{first} to {second}");
        }
    }
}
