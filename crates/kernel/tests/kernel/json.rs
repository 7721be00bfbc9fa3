//! Strict JSON by example: refused documents with their reasons, and the one form in which equal documents are equal.

use std::time::Instant;

use fencepost_kernel::json::{JsonProblem, canonical, parse};

#[track_caller]
fn form(text: &str) -> String {
    String::from_utf8(canonical(&parse(text.as_bytes()).unwrap_or_else(|refused| panic!("{text}: {refused}")))).unwrap()
}

#[track_caller]
fn refuse(text: impl AsRef<[u8]>, expected: JsonProblem) {
    let text = text.as_ref();
    match parse(text) {
        Err(refused) => assert_eq!(refused.problem, expected, "{}", String::from_utf8_lossy(text)),
        Ok(_) => panic!("accepted {}", String::from_utf8_lossy(text)),
    }
}

#[track_caller]
fn same(texts: &[&str]) {
    for text in texts {
        assert_eq!(form(text), form(texts[0]), "{text} and {}", texts[0]);
    }
}

#[track_caller]
fn distinct(texts: &[&str]) {
    for (index, one) in texts.iter().enumerate() {
        for two in &texts[index + 1..] {
            assert_ne!(form(one), form(two), "{one} and {two}");
        }
    }
}

#[test]
fn numbers_compare_by_exact_decimal_value() {
    same(&["1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000", "1e-0", "1e00000000000000000000"]);
    same(&["0", "-0", "0.0", "-0.0", "0e5", "-0e-999999", "0e999999"]);
    same(&["100", "1e2", "1E2", "100.00", "10000e-2"]);
    same(&["-12.5", "-1.25e1", "-125e-1", "-12.500"]);
    same(&["0.000001", "1e-6", "0.1e-5"]);
    same(&["1e400000", "10e399999", "0.1e400001"]);
    same(&["1e-400000", "10e-400001", "0.1e-399999"]);
    distinct(&["9007199254740992", "9007199254740993", "9007199254740994", "9007199254740992.5"]);
    distinct(&["0.1", "0.10000000000000001", "0.1000000000000000055511151231257827"]);
    distinct(&["1", "-1", "10", "0.1", "1e400000", "1e400001", "-1e400000", "1e-400000", "0"]);
}

#[test]
fn long_numbers_have_one_form_on_both_sides_of_the_exponent_threshold() {
    for zeros in 0..60 {
        let plain = format!("12{}", "0".repeat(zeros));
        let power = format!("12e{zeros}");
        let point = format!("1.2e{}", zeros + 1);
        same(&[&plain, &power, &point]);
        let plain = format!("0.{}12", "0".repeat(zeros));
        let power = format!("12e-{}", zeros + 2);
        same(&[&plain, &power]);
    }
    let long = "123456789".repeat(20);
    same(&[&long, &format!("{long}.0"), &format!("{long}0e-1")]);
    same(&[&format!("0.{long}"), &format!("{long}e-180")]);
}

// Digests of these forms are stored: whatever changes one makes a conflict of every duplicate that is on its way.
#[test]
fn form_of_a_number_never_changes() {
    let long = "1".repeat(40);
    for (text, expected) in [
        ("1.50", "1.5"),
        ("-0.0", "0"),
        ("1e39", &format!("1{}", "0".repeat(39))),
        ("1e40", "1e40"),
        (&long, &long),
        (&format!("{long}2"), &format!("{long}2e0")),
        (&format!("{long}2.5"), &format!("{long}2.5")),
        ("0.0000001", "0.0000001"),
        ("1.2e-7", "0.00000012"),
        ("1e-8", "1e-8"),
        ("-123e-12", "-123e-12"),
    ] {
        assert_eq!(form(text), expected);
    }
}

#[test]
fn exponents_that_no_reader_agrees_on_are_refused() {
    assert_eq!(form("1e999999999999999"), "1e999999999999999");
    // The bound holds for the value, not for how it is written: else a form could be one that is refused.
    assert_eq!(form("0.1e999999999999999"), "1e999999999999998");
    refuse("10e999999999999999", JsonProblem::Exponent);
    refuse("0.1e-999999999999999", JsonProblem::Exponent);
    same(&["0", "0e999999999999999", "0.000e-999999999999999"]);
    refuse("1e1000000000000000", JsonProblem::Exponent);
    refuse("1e-1000000000000000", JsonProblem::Exponent);
    refuse(format!("1e{}", "9".repeat(1000)), JsonProblem::Exponent);
}

#[test]
fn members_sort_by_utf16_code_units() {
    // The vector of RFC 8785, 3.2.3.
    let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
        "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
        \"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\
        \"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(form(text), expected);
    // Above the basic plane, UTF-8 would say otherwise.
    assert_eq!(form("{\"\u{ffff}\":1,\"\u{10000}\":2}"), "{\"\u{10000}\":2,\"\u{ffff}\":1}");
    assert_eq!(form(r#"{"aa":1,"a":2,"":3,"b":4}"#), r#"{"":3,"a":2,"aa":1,"b":4}"#);
}

#[test]
fn strings_have_the_escapes_of_rfc_8785_and_no_others() {
    // The vector of RFC 8785, 3.2.2.2.
    let text = r#"["\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"]"#;
    assert_eq!(form(text), "[\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"]");
    assert_eq!(form(r#""\b\t\n\f\r\u0000\u001F\u007f""#), "\"\\b\\t\\n\\f\\r\\u0000\\u001f\u{7f}\"");
    same(&[r#""\ud83d\ude00""#, "\"\u{1f600}\"", r#""\uD83D\uDE00""#]);
    // Not normalised: two spellings of one glyph are two strings.
    distinct(&["\"\u{e9}\"", "\"e\u{301}\""]);
}

#[test]
fn white_space_and_member_order_do_not_matter_but_array_order_does() {
    same(&[r#"{"a":[1,2],"b":null}"#, " {\r\n\t\"b\" : null , \"a\" : [ 1 , 2 ] } \n"]);
    distinct(&["[1,2]", "[2,1]", "[[1],2]", "[1,[2]]", "[12]", "[\"1\",2]"]);
    distinct(&["null", "false", "true", "0", "\"\"", "[]", "{}", "\"null\""]);
}

#[test]
fn repeated_member_names_are_refused_also_where_only_escapes_differ() {
    refuse(r#"{"a":1,"a":1}"#, JsonProblem::Repeated("a".into()));
    refuse(r#"{"a":1,"b":2,"\u0061":3}"#, JsonProblem::Repeated("a".into()));
    refuse(r#"[{"x":{"":1,"":2}}]"#, JsonProblem::Repeated(String::new()));
    refuse("{\"\u{1f600}\":1,\"\\ud83d\\ude00\":2}", JsonProblem::Repeated("\u{1f600}".into()));
    assert!(parse(br#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
}

#[test]
fn depth_64_is_read_and_65_refused() {
    let nested =
        |open: &str, close: &str, depth: usize| format!("{}{}{}", open.repeat(depth), "1", close.repeat(depth));
    assert!(parse(nested("[", "]", 64).as_bytes()).is_ok());
    assert!(parse(nested("{\"a\":", "}", 64).as_bytes()).is_ok());
    refuse(nested("[", "]", 65), JsonProblem::Depth);
    refuse(nested("{\"a\":", "}", 65), JsonProblem::Depth);
    refuse("[".repeat(1_000_000), JsonProblem::Depth);
    // Depth is how deep, not how many.
    assert!(parse(format!("[{}[]]", "[],".repeat(1000)).as_bytes()).is_ok());
}

#[test]
fn bad_utf8_is_refused_wherever_it_stands() {
    for bytes in
        [&b"\"\xff\""[..], b"\xff", b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"\"\xf4\x90\x80\x80\"", b"1\xe2\x82"]
    {
        refuse(bytes, JsonProblem::Encoding);
    }
    assert_eq!(parse(b"\"ab\xff\"").unwrap_err().offset, 3);
}

#[test]
fn half_a_surrogate_pair_is_refused() {
    for text in
        [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\n""#, r#""\ud83d\ud83d""#, r#""\ude00\ud83d""#]
    {
        refuse(text, JsonProblem::Surrogate);
    }
    refuse(r#"{"\udfff":1}"#, JsonProblem::Surrogate);
    refuse(r#""\ud83d\udbff""#, JsonProblem::Surrogate);
    refuse(r#""\ud83d\ue000""#, JsonProblem::Surrogate);
}

#[test]
fn cut_off_documents_are_told_apart_from_wrong_ones() {
    let text = r#"{"a":[1.5e+3,true,null,"x\u00e9\n"],"b":{}}"#;
    for end in 0..text.len() {
        refuse(&text[..end], JsonProblem::End);
    }
    for (text, at) in
        [("[1,]", 3), ("{,}", 1), ("{\"a\" 1}", 5), ("nul1", 0), ("01", 1), ("\u{feff}1", 0), ("[1 2]", 3)]
    {
        let refused = parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused.offset, at, "{text}: {refused}");
    }
    refuse("1 2", JsonProblem::Trailing);
    refuse("{}}", JsonProblem::Trailing);
    for text in ["+1", ".5", "-", "1.", "1e", "NaN", "Infinity", "'a'", "\"\t\"", "\"\u{1}\"", r#""\x41""#, "[1\u{a0}]"]
    {
        assert!(parse(text.as_bytes()).is_err(), "accepted {text}");
    }
}

#[test]
fn text_is_kept_to_the_byte() {
    let node = parse(br#" {"receipt" : { "n":1.50 , "s":"\u0041" } } "#).unwrap();
    let receipt = node.get("receipt").unwrap();
    assert_eq!(receipt.raw, r#"{ "n":1.50 , "s":"\u0041" }"#);
    assert_eq!(receipt.get("s").unwrap().as_str(), Some("A"));
    assert_eq!(receipt.get("n").unwrap().as_integer(), None);
    assert_eq!(parse(b"18446744073709551615").unwrap().as_u64(), Some(u64::MAX));
    assert_eq!(parse(b"18446744073709551616").unwrap().as_u64(), None);
    assert_eq!(parse(b"-1").unwrap().as_u64(), None);
}

// A bound generous enough for any machine, and far below what a quadratic reader would need.
#[test]
fn wide_and_long_documents_are_read_in_linear_time() {
    let began = Instant::now();
    let members: Vec<String> = (0..200_000).map(|n| format!("\"{n}\":{n}")).collect();
    let wide = format!("{{{}}}", members.join(","));
    assert_eq!(parse(wide.as_bytes()).unwrap().members().len(), 200_000);
    assert!(!form(&wide).is_empty());
    let digits = "7".repeat(2_000_000);
    assert!(form(&digits).starts_with("777"));
    assert!(form(&format!("0.{digits}")).starts_with("0.777"));
    let escapes = format!("\"{}\"", "\\u0041".repeat(300_000));
    assert_eq!(form(&escapes).len(), 300_002);
    assert!(began.elapsed().as_secs() < 10, "took {:?}", began.elapsed());
}
