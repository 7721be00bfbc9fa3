//! A diff is a patch that works: json-patch applies it to the first body and must get the second.

use std::time::Instant;

use fencepost_kernel::{
    fence::{
        Mismatch,
        body::{Body, KEPT_BYTES_MAX},
        diff::{Diff, OPERATIONS_MAX, PATCH_BYTES_MAX, between},
    },
    json,
};
use proptest::prelude::*;
use serde_json::{Value as Oracle, json};

use super::{json_oracle::documents, world::cases};

pub fn mismatch(first: &str, second: &str, mask: &[String]) -> Mismatch {
    let body = |text: &str| Body::json(&json::parse(text.as_bytes()).unwrap(), mask);
    Mismatch { first: body(first), second: body(second), effect_id: None }
}

fn diff(first: &Oracle, second: &Oracle) -> Diff {
    between(&mismatch(&first.to_string(), &second.to_string(), &[]), &[])
}

#[track_caller]
fn check(first: Oracle, second: Oracle, expected: Oracle) {
    let diff = diff(&first, &second);
    let patch: Oracle = serde_json::from_str(&diff.patch.unwrap()).unwrap();
    assert_eq!(patch, expected);
    assert_eq!((diff.operations, diff.truncated), (expected.as_array().unwrap().len(), false));
}

/// Two documents of which the second is the first with one place changed, added or removed.
fn revised() -> impl Strategy<Value = (Oracle, Oracle)> {
    (documents(), documents(), any::<u64>()).prop_map(|(first, other, choice)| {
        let mut second = first.clone();
        revise(&mut second, other, choice);
        (first, second)
    })
}

fn revise(at: &mut Oracle, other: Oracle, choice: u64) {
    let (what, rest) = (choice % 5, choice / 5);
    match at {
        Oracle::Array(items) if !items.is_empty() => {
            let index = rest as usize % items.len();
            match what {
                0 => items.insert(index, other),
                1 => drop(items.remove(index)),
                _ => revise(&mut items[index], other, rest),
            }
        }
        Oracle::Object(members) if !members.is_empty() => {
            let name = members.keys().nth(rest as usize % members.len()).unwrap().clone();
            match what {
                0 => drop(members.insert("new/~".into(), other)),
                1 => drop(members.remove(&name)),
                _ => revise(members.get_mut(&name).unwrap(), other, rest),
            }
        }
        leaf => *leaf = other,
    }
}

fn applies(first: &Oracle, second: &Oracle) -> Result<(), TestCaseError> {
    let diff = diff(first, second);
    if diff.truncated {
        prop_assert_eq!(diff.operations, OPERATIONS_MAX);
        return Ok(());
    }
    let patch: json_patch::Patch = serde_json::from_str(&diff.patch.unwrap()).unwrap();
    prop_assert_eq!(patch.0.len(), diff.operations);
    let mut patched = first.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    let form = |value: &Oracle| json::canonical(&json::parse(value.to_string().as_bytes()).unwrap());
    prop_assert_eq!(form(&patched), form(second));
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn patch_leads_from_any_body_to_any_other((first, second) in (documents(), documents())) {
        applies(&first, &second)?;
    }

    #[test]
    fn patch_leads_from_a_body_to_its_revision((first, second) in revised()) {
        applies(&first, &second)?;
    }
}

#[test]
fn diff_names_only_what_differs() {
    check(
        json!({"a": 1, "b": {"c": [1, 2]}}),
        json!({"a": 1.0, "b": {"c": [1, 3]}}),
        json!([
            {"op": "replace", "path": "/b/c/1", "value": 3}
        ]),
    );
    check(
        json!({"gone": 1, "kept": 2}),
        json!({"kept": 2, "new": 3}),
        json!([
            {"op": "remove", "path": "/gone"}, {"op": "add", "path": "/new", "value": 3}
        ]),
    );
    check(
        json!({"a/b": {"~": 1}}),
        json!({"a/b": {"~": 2}}),
        json!([{"op": "replace", "path": "/a~1b/~0", "value": 2}]),
    );
    check(json!([1]), json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"a": 1}}]));
    check(json!({"": 1}), json!({"": null}), json!([{"op": "replace", "path": "/", "value": null}]));
}

#[test]
fn inserted_element_is_one_operation() {
    check(json!([1, 2, 3, 4]), json!([1, 2, 9, 3, 4]), json!([{"op": "add", "path": "/2", "value": 9}]));
    check(json!([1, 2, 9, 3, 4]), json!([1, 2, 3, 4]), json!([{"op": "remove", "path": "/2"}]));
    check(json!([1, 1, 1]), json!([1, 1]), json!([{"op": "remove", "path": "/2"}]));
}

#[test]
fn diff_stops_at_its_limit_and_says_so() {
    let numbers = |count: usize, offset: usize| Oracle::from((0..count).map(|n| n + offset).collect::<Vec<_>>());
    for (count, truncated) in [(OPERATIONS_MAX, false), (OPERATIONS_MAX + 1, true), (5_000, true)] {
        let diff = diff(&numbers(count, 0), &numbers(count, 100_000));
        assert_eq!((diff.operations, diff.truncated), (OPERATIONS_MAX, truncated));
        let patch: Oracle = serde_json::from_str(&diff.patch.unwrap()).unwrap();
        assert_eq!(patch.as_array().unwrap().len(), OPERATIONS_MAX);
    }
}

#[test]
fn a_long_name_is_not_said_a_hundred_times() {
    let name = "n".repeat(KEPT_BYTES_MAX - 2_000);
    let numbers = |offset: usize| json!({&name: (0..90).map(|n| n + offset).collect::<Vec<_>>()});
    let diff = diff(&numbers(0), &numbers(1_000));
    assert!(diff.truncated && diff.operations > 0);
    let patch = diff.patch.unwrap();
    assert!(patch.len() <= PATCH_BYTES_MAX + 1_000, "{}", patch.len());
    let patch: Oracle = serde_json::from_str(&patch).unwrap();
    assert_eq!(patch.as_array().unwrap().len(), diff.operations);
}

#[test]
fn bodies_without_a_kept_copy_have_no_patch() {
    let large = format!("\"{}\"", "x".repeat(KEPT_BYTES_MAX));
    for mismatch in [
        mismatch(&large, "1", &[]),
        mismatch("1", &large, &[]),
        Mismatch { first: Body::opaque(b"a"), second: Body::opaque(b"b"), effect_id: None },
    ] {
        assert_eq!(between(&mismatch, &[]), Diff { patch: None, truncated: false, operations: 0 });
    }
    let fits = format!("\"{}\"", "x".repeat(KEPT_BYTES_MAX - 2));
    assert!(between(&mismatch(&fits, "1", &[]), &[]).patch.is_some());
    assert_eq!(mismatch(&large, "1", &[]).first.size, large.len() as u64);
}

#[test]
fn the_kept_part_of_a_body_takes_no_more_room_than_it_has() {
    let spaced = format!("{{{}}}", " ".repeat(KEPT_BYTES_MAX));
    let kept = mismatch(&spaced, "1", &[]).first.kept.unwrap();
    assert_eq!(kept.try_into_mut().unwrap().capacity(), "{}".len());
}

// Two bodies of 64 KiB made of nothing but names; member by member search would need about 10^8 comparisons.
#[test]
fn wide_bodies_are_compared_in_good_time() {
    let wide = |value: usize| {
        let mut members = Vec::new();
        let mut size = 2;
        for n in 0.. {
            let member = format!("\"{n:x}\":{value}");
            size += member.len() + 1;
            if size > KEPT_BYTES_MAX - 16 {
                break;
            }
            members.push(member);
        }
        format!("{{{}}}", members.join(","))
    };
    let mismatch = mismatch(&wide(1), &format!("{},\"zz\":1}}", wide(1).trim_end_matches('}')), &[]);
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(between(&mismatch, &[]).operations, 1);
    }
    assert!(began.elapsed().as_secs() < 5, "took {:?}", began.elapsed());
}
