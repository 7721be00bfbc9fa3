//! The order of versions, form by form, and which texts have which form.

use std::cmp::Ordering;

use fencepost_kernel::item::ItemVersion;

/// Versions in their order, those of one line equal; each is compared with each.
#[track_caller]
fn check(read: impl Fn(&str) -> ItemVersion, lines: &[&[&str]]) {
    let mut wrong = Vec::new();
    let all = lines.iter().enumerate().flat_map(|(rank, line)| line.iter().map(move |text| (rank, *text)));
    for (rank, text) in all.clone() {
        for (other_rank, other) in all.clone() {
            let order = read(text).order(&read(other));
            if order != Some(rank.cmp(&other_rank)) {
                wrong.push(format!("{text} and {other}: {order:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn integers_order_by_value() {
    let read = |text: &str| ItemVersion::Integer(text.parse().unwrap());
    let most = i128::MAX.to_string();
    check(read, &[&["-5"], &["0", "-0"], &["9", "009"], &["10"], &["18446744073709551616"], &[&most]]);
}

#[test]
fn times_order_by_the_moment_that_they_name() {
    let read = |text: &str| ItemVersion::time(text).unwrap();
    check(
        read,
        &[
            &["2023-12-31T23:59:59.999999999Z"],
            &["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2023-12-31t19:00:00.000-05:00"],
            &["2024-01-01T00:00:00.1Z", "2024-01-01T00:00:00.100000Z"],
            &["2024-01-01T00:00:00.11Z"],
            &["2024-02-29"],
            &["2024-03-01", "2024-02-29T23:59:60Z"],
            &["2024-12-31T23:30:00-01:00", "2025-01-01T00:30:00Z"],
            &["2025-01-01T00:00:00-01:00"],
        ],
    );
}

#[test]
fn dotted_versions_order_by_number_then_releases_above_pre_releases() {
    let read = |text: &str| ItemVersion::dotted(text).unwrap();
    check(
        read,
        &[
            &["0.9"],
            // The list of semantic versioning, section 11.
            &["1.0.0-alpha"],
            &["1.0.0-alpha.1"],
            &["1.0.0-alpha.beta"],
            &["1.0.0-beta"],
            &["1.0.0-beta.2"],
            &["1.0.0-beta.11"],
            &["1.0.0-rc.1"],
            &["1", "1.0", "1.0.0", "v1.0.0", "1.0.0+build.7", "01.00", "1.0.0.0+a-b"],
            &["1.0.0.1-1"],
            &["1.0.0.1"],
            &["1.9.0"],
            &["1.10.0-1"],
            &["1.10.0-2"],
            &["1.10.0-10"],
            // Numbers are below words, and a word with a hyphen is a word.
            &["1.10.0-1-1"],
            &["1.10.0-a"],
            &["1.10.0", "v1.10"],
            &["2"],
            &["10.0"],
            &["20260524031401999.0"],
            &["100000000000000000000000000000000000000000000000"],
        ],
    );
}

#[test]
fn other_texts_order_by_their_bytes() {
    check(|text| ItemVersion::Text(text.to_owned()), &[&[""], &["A10"], &["A9"], &["Z"], &["a"], &["a "], &["\u{e9}"]]);
}

#[test]
fn text_has_the_form_that_it_is_shaped_like() {
    for (text, form) in [
        ("2026-05-24", "a time"),
        ("2026-05-24T03:14:01Z", "a time"),
        ("2026-02-29", "a dotted version"),
        ("1", "a dotted version"),
        ("v1", "a dotted version"),
        ("1.2-x", "a dotted version"),
        ("1.2+5", "a dotted version"),
        ("", "a text"),
        ("v", "a text"),
        ("1.", "a text"),
        ("1..2", "a text"),
        (".1", "a text"),
        ("-1", "a text"),
        ("1.2-", "a text"),
        ("1.2+", "a text"),
        ("1.2-a..b", "a text"),
        ("1.2-\u{e9}", "a text"),
        ("1.2 ", "a text"),
        ("V1", "a text"),
        ("vv1", "a text"),
        ("1.x", "a text"),
        ("rev-7", "a text"),
        ("\u{661}", "a text"),
    ] {
        assert_eq!(ItemVersion::any(text).form(), form, "{text:?}");
        assert_eq!(ItemVersion::any(text).to_string(), text);
        assert_eq!(
            ItemVersion::dotted(text).is_some(),
            form == "a dotted version" || form == "a time" && text.len() == 10
        );
    }
    assert_eq!(ItemVersion::time("1.2"), None);
}

#[test]
fn versions_of_two_forms_have_no_order() {
    let forms = [
        ItemVersion::Integer(1),
        ItemVersion::dotted("1").unwrap(),
        ItemVersion::time("2026-05-24").unwrap(),
        ItemVersion::Text("1".to_owned()),
    ];
    for (at, one) in forms.iter().enumerate() {
        for (other_at, other) in forms.iter().enumerate() {
            assert_eq!(one.order(other), (at == other_at).then_some(Ordering::Equal), "{one} and {other}");
        }
    }
}
