//! `Idempotency-Key`: the structured-field string cases of the HTTP working group, and what bare values may be.

use fencepost::idempotency_key::{Malformed, NAME, parse};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

const TABLE: &str = include_str!("../vectors/idempotency_key.json");

/// The result of reading these header lines. A line that no HTTP message can hold never gets as far as a key.
fn read(lines: &[&[u8]]) -> Value {
    let mut headers = HeaderMap::new();
    for line in lines {
        let Ok(value) = HeaderValue::from_bytes(line) else { return json!({"refused": "unreadable"}) };
        headers.append(NAME, value);
    }
    match parse(&headers) {
        Ok(key) => json!({"key": key}),
        Err(Malformed::Repeated) => json!({"refused": "repeated"}),
        Err(Malformed::Empty) => json!({"refused": "empty"}),
        Err(Malformed::TooLong) => json!({"refused": "too long"}),
        Err(Malformed::Unreadable) => json!({"refused": "unreadable"}),
    }
}

#[test]
fn each_row_of_the_table_ends_as_it_says() {
    let table: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    assert!(table.len() > 40);
    for mut row in table {
        let (says, lines) = (row["says"].take(), row["lines"].take());
        let lines: Vec<&[u8]> =
            lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap().as_bytes()).collect();
        row.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(read(&lines), row, "{says}");
    }
}

#[test]
fn no_header_is_no_key() {
    assert_eq!(parse(&HeaderMap::new()), Ok(None));
}

#[test]
fn a_string_holds_printable_ascii_and_escapes_two_characters_only() {
    for byte in 0..=u8::MAX {
        let refused = json!({"refused": "unreadable"});
        let text = format!(" {} ", char::from(byte));
        let plain = matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        let expected = if plain { json!({"key": text}) } else { refused.clone() };
        assert_eq!(read(&[&[b'"', b' ', byte, b' ', b'"']]), expected, "{byte:#04x}");
        let escaped = matches!(byte, b'"' | b'\\');
        let expected = if escaped { json!({"key": char::from(byte)}) } else { refused };
        assert_eq!(read(&[&[b'"', b'\\', byte, b'"']]), expected, "escaped {byte:#04x}");
    }
}

#[test]
fn a_bare_value_and_its_string_are_one_key() {
    for byte in 0..=u8::MAX {
        let bare = read(&[&[b'k', byte, b'k']]);
        if byte.is_ascii_graphic() && !matches!(byte, b',' | b'"' | b'\\') {
            assert_eq!(bare, read(&[&[b'"', b'k', byte, b'k', b'"']]), "{byte:#04x}");
            assert_eq!(bare, json!({"key": format!("k{}k", char::from(byte))}));
        } else if byte != b'\\' {
            assert_eq!(bare, json!({"refused": "unreadable"}), "{byte:#04x}");
        }
    }
    assert_eq!(read(&[br"k\k"]), read(&[br#""k\\k""#]));
}

#[test]
fn each_refusal_says_what_to_do_about_it() {
    for (malformed, text) in [
        (Malformed::Repeated, "more than once"),
        (Malformed::Empty, "is empty"),
        (Malformed::TooLong, "longer than 255 bytes"),
        (Malformed::Unreadable, "RFC 9651 string"),
    ] {
        let shown = malformed.to_string();
        assert!(shown.starts_with("Idempotency-Key") && shown.contains(text), "{shown}");
        // The layer writes it into JSON as it stands.
        assert!(!shown.contains(['"', '\\']), "{shown}");
    }
}
