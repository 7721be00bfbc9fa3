//! The public vectors of RFC 8785 (JCS) against our canonical form: the documents of its reference implementation, and the
//! numbers of its appendix B. Ours is JCS to the byte but for numbers: JCS writes the nearest double, we keep the exact
//! decimal value. A row whose number we write otherwise says how (`ours`), and whether what JCS wrote still counts as the
//! same document (`same`); where no double rounds anything away, it does.

use fencepost_kernel::json::{canonical, parse};
use proptest::prelude::*;
use serde_json::Value as Oracle;

use super::world::cases;

const VECTORS: &str = include_str!("../vectors/jcs.json");

fn vectors() -> Oracle {
    serde_json::from_str(VECTORS).unwrap()
}

#[track_caller]
fn form(text: &str) -> String {
    String::from_utf8(canonical(&parse(text.as_bytes()).unwrap_or_else(|refused| panic!("{text}: {refused}")))).unwrap()
}

#[test]
fn documents_have_the_form_of_jcs_but_for_numbers() {
    let vectors = vectors();
    let documents = vectors["documents"].as_array().unwrap();
    assert!(documents.iter().filter(|row| row["ours"].is_null()).count() >= 6);
    for row in documents {
        let [input, jcs] = ["input", "jcs"].map(|name| row[name].as_str().unwrap());
        assert_eq!(form(input), row["ours"].as_str().unwrap_or(jcs), "{}", row["name"]);
        assert_eq!(form(input) == form(jcs), row["same"].as_bool().unwrap_or(true), "{}", row["name"]);
    }
}

#[test]
fn numbers_of_appendix_b_are_equal_exactly_where_their_doubles_are() {
    let vectors = vectors();
    let rows: Vec<(f64, &str, &str)> = vectors["numbers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let double = f64::from_bits(u64::from_str_radix(row["bits"].as_str().unwrap(), 16).unwrap());
            let jcs = row["jcs"].as_str().unwrap();
            (double, jcs, row["ours"].as_str().unwrap_or(jcs))
        })
        .collect();
    assert_eq!(rows.len(), 24);
    for (double, jcs, ours) in &rows {
        assert_eq!(form(jcs), *ours);
        assert_eq!(form(ours), *ours, "a form is its own form");
        assert_eq!(jcs.parse::<f64>().unwrap(), *double);
        assert_eq!(ours.parse::<f64>().unwrap(), *double);
        for (other, text, _) in &rows {
            assert_eq!(form(jcs) == form(text), double == other, "{jcs} and {text}");
        }
    }
    // JCS refuses to write these, and no JSON can say them.
    for text in vectors["no_numbers"].as_array().unwrap() {
        assert!(parse(text.as_str().unwrap().as_bytes()).is_err(), "{text}");
    }
}

// Numbers that JCS would make equal, by way of a double, and we do not.
#[test]
fn decimals_that_share_a_double_stay_distinct() {
    for (one, other) in [
        ("9007199254740992", "9007199254740993"),
        ("333333333.33333329", "333333333.3333333"),
        ("295147905179352825856", "295147905179352830000"),
        ("1e23", "99999999999999991611392"),
        ("5e-324", "4.9406564584124654e-324"),
    ] {
        assert_eq!(one.parse::<f64>().unwrap(), other.parse::<f64>().unwrap());
        assert_ne!(form(one), form(other));
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    // As the 100 million numbers of the reference implementation are made: of random bits.
    #[test]
    fn doubles_are_equal_exactly_where_their_shortest_texts_are(bits in any::<u64>(), flipped in 0..64u32) {
        let (one, other) = (f64::from_bits(bits), f64::from_bits(bits ^ (1 << flipped)));
        prop_assume!(one.is_finite() && other.is_finite());
        let (plain, scientific) = (format!("{one}"), format!("{one:e}"));
        prop_assert_eq!(form(&plain), form(&scientific));
        prop_assert_eq!(form(&plain).parse::<f64>().unwrap(), one);
        prop_assert_eq!(form(&plain) == form(&format!("{other:e}")), one == other);
    }
}
