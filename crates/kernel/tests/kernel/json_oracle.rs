//! Strict JSON against serde_json: they accept the same documents save for what is documented as stricter here
//! (repeated names, depth 64, absurd exponents) and for numbers, which serde_json bounds to a double.

use fencepost_kernel::json::{JsonNode, JsonProblem, Value, canonical, parse};
use proptest::prelude::*;
use serde_json::Value as Oracle;

use super::world::cases;

/// Any document, with names and texts that need escapes and sort differently in UTF-8 and UTF-16.
pub fn documents() -> impl Strategy<Value = Oracle> {
    let text =
        proptest::string::string_regex("[a-c/~\"\\\\\u{0}-\u{1f}\u{7f}é\u{ffff}\u{10000}😀]{0,4}").unwrap().boxed();
    let leaf = prop_oneof![
        Just(Oracle::Null),
        any::<bool>().prop_map(Oracle::from),
        any::<i64>().prop_map(Oracle::from),
        (-5i64..5).prop_map(Oracle::from),
        // Eighths survive every reader exactly; serde_json rounds longer fractions.
        any::<i16>().prop_map(|eighths| Oracle::from(f64::from(eighths) / 8.0)),
        text.clone().prop_map(Oracle::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Oracle::from),
            proptest::collection::btree_map(text.clone(), inner, 0..6)
                .prop_map(|members| Oracle::Object(members.into_iter().collect())),
        ]
    })
}

/// Texts that are nearly JSON: tokens in any order, with short strings of anything between.
fn nearly_json() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        8 => proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", " ", "\n", "\"a\":", "\"b\":1", "null", "true", "false", "nul", "\"a\"", "\"\\u0061\"",
            "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "\"\\udc00\\ud83d\"", "\"\\", "\"\u{7f}\"", "\"\u{1f}\"", "0", "-0", "01", "1.", ".5", "1.5",
            "1e5", "1E+5", "1e-", "-", "+1", "1e400", "1e9999999999999999", "\u{feff}", "\"é\"", "'a'", "//",
        ]).prop_map(str::to_owned),
        1 => proptest::string::string_regex("[\\x00-\\x7f]{0,3}").unwrap(),
    ];
    proptest::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
}

/// A document with a few bytes changed, removed or doubled.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edits = proptest::collection::vec((any::<proptest::sample::Index>(), 0..4u8, any::<u8>()), 1..4);
    (documents(), edits).prop_map(|(document, edits)| {
        let mut bytes = document.to_string().into_bytes();
        for (at, what, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (parse(bytes), serde_json::from_slice::<Oracle>(bytes)) {
        (Ok(node), Ok(oracle)) => prop_assert!(means(&node, &oracle), "{:?} read as {:?}", node, oracle),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => {
            prop_assert!(error.to_string().contains("number out of range"), "only serde refuses: {error}")
        }
        (Err(refused), Ok(_)) => prop_assert!(
            matches!(refused.problem, JsonProblem::Repeated(_) | JsonProblem::Depth | JsonProblem::Exponent),
            "only we refuse: {refused}"
        ),
    }
    Ok(())
}

/// Whether both readers understood the same; numbers as far as a double can tell.
fn means(node: &JsonNode<'_>, oracle: &Oracle) -> bool {
    match (&node.value, oracle) {
        (Value::Null, Oracle::Null) => true,
        (Value::Bool(ours), Oracle::Bool(theirs)) => ours == theirs,
        (Value::Number, Oracle::Number(theirs)) => {
            let (ours, theirs) = (node.raw.parse::<f64>().unwrap(), theirs.as_f64().unwrap());
            (ours - theirs).abs() <= ours.abs() * 1e-14
        }
        (Value::String(ours), Oracle::String(theirs)) => ours == theirs,
        (Value::Array(ours), Oracle::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| means(ours, theirs))
        }
        (Value::Object(ours), Oracle::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, ours)| theirs.get(&**name).is_some_and(|theirs| means(ours, theirs)))
        }
        _ => false,
    }
}

fn form(bytes: &[u8]) -> Vec<u8> {
    canonical(&parse(bytes).unwrap())
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn nearly_json_is_judged_alike(text in nearly_json()) {
        agree(text.as_bytes())?;
    }

    #[test]
    fn damaged_documents_are_judged_alike(bytes in damaged()) {
        agree(&bytes)?;
    }

    #[test]
    fn documents_are_read_alike_and_written_in_one_form(document in documents()) {
        let (compact, pretty) = (document.to_string(), serde_json::to_string_pretty(&document).unwrap());
        agree(compact.as_bytes())?;
        agree(pretty.as_bytes())?;
        let once = form(compact.as_bytes());
        prop_assert_eq!(&form(pretty.as_bytes()), &once);
        prop_assert_eq!(&form(&once), &once);
        let oracle: Oracle = serde_json::from_slice(&once).unwrap();
        prop_assert!(means(&parse(compact.as_bytes()).unwrap(), &oracle));
    }

    #[test]
    fn one_form_is_one_meaning(one in documents(), two in documents()) {
        let same = form(one.to_string().as_bytes()) == form(two.to_string().as_bytes());
        let agreed = means(&parse(one.to_string().as_bytes()).unwrap(), &two);
        // A double may call two integers equal that are not; the other way round there is no excuse.
        prop_assert!(!same || agreed);
    }

    #[test]
    fn number_has_one_form_however_it_is_written(digits in "[0-9]{1,45}", point in 0..46usize, shift in -60i64..60, zeros in 0..4usize) {
        let trimmed = digits.trim_start_matches('0');
        let digits = if trimmed.is_empty() { "0" } else { trimmed };
        let point = point.min(digits.len());
        let (whole, fraction) = digits.split_at(point);
        let whole = if whole.is_empty() { "0" } else { whole };
        let exponent = shift + fraction.len() as i64;
        let pointed = format!("{whole}.{fraction}{}e{exponent}", "0".repeat(zeros + usize::from(fraction.is_empty())));
        prop_assert_eq!(form(pointed.as_bytes()), form(format!("{digits}e{shift}").as_bytes()), "{}", pointed);
        let other = format!("{}1e{shift}", if digits == "0" { "" } else { digits });
        prop_assert_ne!(form(pointed.as_bytes()), form(other.as_bytes()));
    }
}
