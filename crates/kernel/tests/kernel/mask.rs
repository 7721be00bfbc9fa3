//! Masked values: never stored, never shown, and still compared.

use fencepost_kernel::{
    fence::{body::Body, diff::between},
    json::{canonical_masked, parse},
};
use proptest::prelude::*;
use serde_json::{Value as Oracle, json};

use super::{diff::mismatch, json_oracle::documents, world::cases};

fn masks(pointers: &[&str]) -> Vec<String> {
    pointers.iter().map(|pointer| (*pointer).to_owned()).collect()
}

#[track_caller]
fn check(pointers: &[&str], document: Oracle, expected: Oracle) {
    let text = document.to_string();
    let masked = canonical_masked(&parse(text.as_bytes()).unwrap(), &masks(pointers));
    assert_eq!(serde_json::from_slice::<Oracle>(&masked).unwrap(), expected);
}

#[test]
fn pointers_reach_through_objects_and_arrays() {
    check(&["/card"], json!({"card": "4111", "n": 1}), json!({"card": "***", "n": 1}));
    check(&["/card"], json!({"card": {"no": 4111}, "x": {"card": 1}}), json!({"card": "***", "x": {"card": 1}}));
    check(&["/p/1/no"], json!({"p": [{"no": 1}, {"no": 2}]}), json!({"p": [{"no": 1}, {"no": "***"}]}));
    check(&["/p/*/no"], json!({"p": [{"no": 1}, {"no": 2}, 3]}), json!({"p": [{"no": "***"}, {"no": "***"}, 3]}));
    check(&["/*/no"], json!({"a": {"no": 1}, "b": {"no": null}}), json!({"a": {"no": "***"}, "b": {"no": "***"}}));
    check(&["/*"], json!([1, [2], {"a": 3}]), json!(["***", "***", "***"]));
    check(&[""], json!({"a": 1}), json!("***"));
    check(&["/"], json!({"": 1, "a": 2}), json!({"": "***", "a": 2}));
}

#[test]
fn pointers_are_unescaped_once_and_match_whole_steps() {
    check(&["/a~1b"], json!({"a/b": 1, "a": {"b": 2}}), json!({"a/b": "***", "a": {"b": 2}}));
    check(&["/a~01b"], json!({"a~1b": 1, "a/b": 2}), json!({"a~1b": "***", "a/b": 2}));
    check(&["/~0"], json!({"~": 1, "~0": 2}), json!({"~": "***", "~0": 2}));
    check(&["/car"], json!({"card": 1, "car": 2}), json!({"card": 1, "car": "***"}));
    check(&["/p/01"], json!({"p": [1, 2]}), json!({"p": [1, 2]}));
    check(&["/a/b/c"], json!({"a": {"b": 1}}), json!({"a": {"b": 1}}));
    // An escaped name in the document is the same name.
    let masked = canonical_masked(&parse(br#"{"c\u0061rd":1}"#).unwrap(), &masks(&["/card"]));
    assert_eq!(masked, br#"{"card":"***"}"#);
}

#[test]
fn masked_values_are_still_compared() {
    let mask = masks(&["/card"]);
    let body = |text: &str| Body::json(&parse(text.as_bytes()).unwrap(), &mask);
    assert_ne!(body(r#"{"card":1}"#).digest, body(r#"{"card":2}"#).digest);
    assert_eq!(body(r#"{"card":1}"#).kept, body(r#"{"card":2}"#).kept);
}

fn patch(first: Oracle, second: Oracle, mask: &[&str]) -> Oracle {
    let mask = masks(mask);
    let diff = between(&mismatch(&first.to_string(), &second.to_string(), &mask), &mask);
    serde_json::from_str(&diff.patch.unwrap()).unwrap()
}

#[test]
fn difference_that_is_masked_names_the_places_that_are_there() {
    let replace = |path: &str| json!({"op": "replace", "path": path, "value": "***"});
    assert_eq!(
        patch(json!({"card": 1, "n": 1}), json!({"card": 2, "n": 1}), &["/card", "/cvc"]),
        json!([replace("/card")])
    );
    assert_eq!(
        patch(json!({"p": [{"no": 1}, {"no": 2}]}), json!({"p": [{"no": 1}, {"no": 3}]}), &["/p/*/no"]),
        json!([replace("/p/0/no"), replace("/p/1/no")])
    );
    // Where something can be shown, that is the difference.
    assert_eq!(
        patch(json!({"card": 1, "n": 1}), json!({"card": 2, "n": 2}), &["/card"]),
        json!([{"op": "replace", "path": "/n", "value": 2}])
    );
}

#[test]
fn mask_added_to_the_policy_later_hides_what_was_kept_before() {
    let first = r#"{"card":"4111","n":1}"#;
    let mut mismatch = mismatch(first, r#"{"card":"4222"}"#, &masks(&["/card"]));
    mismatch.first = Body::json(&parse(first.as_bytes()).unwrap(), &[]);
    let diff = between(&mismatch, &masks(&["/card"]));
    assert_eq!(diff.patch.unwrap(), r#"[{"op":"remove","path":"/n"}]"#);
    // Also where the kept value itself would be shown: the first body as the second of an older conflict.
    std::mem::swap(&mut mismatch.first, &mut mismatch.second);
    let patch = between(&mismatch, &masks(&["/card"])).patch.unwrap();
    assert!(!patch.contains("4111"), "{patch}");
}

/// Puts a secret at `/s`, `/l/*/s` and `/~1` of a document of its own.
fn with_secrets(noise: Oracle, secrets: &[u32]) -> Oracle {
    let secret = |n: u32| json!(format!("secret-{n}"));
    let list: Vec<Oracle> = secrets.iter().map(|n| json!({"s": secret(*n), "n": n % 3})).collect();
    json!({"s": {"deep": [secret(secrets.len() as u32)]}, "l": list, "/": secret(7), "noise": noise})
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn masked_values_never_leak(
        noise in (documents(), documents()),
        secrets in (proptest::collection::vec(any::<u32>(), 0..5), proptest::collection::vec(any::<u32>(), 0..5)),
    ) {
        let mask = masks(&["/s", "/l/*/s", "/~1"]);
        let (first, second) = (with_secrets(noise.0, &secrets.0), with_secrets(noise.1, &secrets.1));
        let mismatch = mismatch(&first.to_string(), &second.to_string(), &mask);
        for kept in [&mismatch.first.kept, &mismatch.second.kept] {
            prop_assert!(!String::from_utf8_lossy(kept.as_ref().unwrap()).contains("secret"));
        }
        let patch = between(&mismatch, &mask).patch.unwrap();
        prop_assert!(!patch.contains("secret"), "{}", patch);
        prop_assert!(secrets.0 == secrets.1 || mismatch.first.digest != mismatch.second.digest);
    }
}
