//! Finds the parts of a request that two servers may read differently: with a key from such a part, the gateway and the
//! upstream could mean different effects. Pure: looks at text and names the fault. Called by `key`.

use fencepost_kernel::json::JsonNode;

use super::key;

/// The fault in a value of the path, as it was sent; none where every server reads it the same. An extension is not
/// judged: `report.pdf` may well be a name.
pub(super) fn path_value(raw: &str) -> Option<&'static str> {
    raw.trim_end_matches('/').split('/').find_map(|part| {
        let text = String::from_utf8_lossy(&decoded(part)).into_owned();
        let coded = |rest: &str| rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        if text.contains(['/', '\\']) {
            Some("a coded slash or backslash")
        } else if text.contains(';') {
            Some("a semicolon")
        } else if text.contains(['?', '#']) {
            Some("a coded `?` or `#`")
        } else if text.contains(char::is_control) {
            Some("a control character")
        } else if text.ends_with('.') {
            Some("a dot at the end")
        } else if text.trim() != text {
            Some("a space around it")
        } else if text.split('%').skip(1).any(coded) {
            Some("a percent sign coded twice")
        } else {
            None
        }
    })
}

/// A path with each character in one spelling: as itself where a path may hold it, else as `%XX` in upper case.
pub(super) fn one_spelling(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (index, part) in path.split('/').enumerate() {
        if index > 0 {
            out.push('/');
        }
        for byte in decoded(part) {
            if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

fn decoded(part: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut out, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let coded = match after {
            [high, low, ..] if first == b'%' => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(coded.unwrap_or(first));
        rest = if coded.is_some() { &after[2..] } else { after };
    }
    out
}

/// Whether two different header names are the same to a CGI server, which reads all but letters and digits as `_`.
pub(super) fn same_header(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    !one.eq_ignore_ascii_case(other) && one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Whether some server takes two different query names for one: ASP.NET ignores case; PHP reads `.` and ` ` as `_`, and
/// `id[]` and `id` as one variable, of which the last counts. `id[a]` and `id[b]` are two.
pub(super) fn same_parameter(one: &str, other: &str) -> bool {
    fn plain(name: &str) -> String {
        let name = name.split('\0').next().unwrap_or_default().trim_start();
        // PHP reads an unclosed bracket as `_`, too.
        let joins = |c: char| matches!(c, '.' | ' ') || (c == '[' && !name.contains(']'));
        name.chars().map(|c| if joins(c) { '_' } else { c }).flat_map(char::to_lowercase).collect()
    }
    let within = |part: &str, whole: &str| part.strip_prefix(whole).is_some_and(|rest| rest.starts_with('['));
    let (first, second) = (plain(one), plain(other));
    one != other && (first == second || within(&first, &second) || within(&second, &first))
}

/// The name of a member on the way of an RFC 6901 pointer that differs from the pointer's in case alone: a server that
/// ignores case could read it instead.
pub(super) fn other_case<'n>(document: &'n JsonNode<'_>, pointer: &str) -> Option<&'n str> {
    let mut node = document;
    for step in key::steps(pointer) {
        if let Some((other, _)) = node.members().iter().find(|(name, _)| same_member(name, &step)) {
            return Some(other);
        }
        node = key::next(node, &step)?;
    }
    None
}

// Folds case as Go does, by Unicode: `ſ` is an `s`, and the Kelvin sign a `k`.
fn same_member(name: &str, step: &str) -> bool {
    fn folded(text: &str) -> impl Iterator<Item = char> {
        text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
    }
    name != step && folded(name).eq(folded(step))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fencepost_kernel::json;

    use super::*;

    #[test]
    fn a_path_value_that_servers_read_differently_is_refused() {
        for good in
            ["7", "k%C3%B6ln+1", "7.json", "report.pdf", "a:b@c", "x/y", "x/y/", "100%25", "50%25%20off", "a%2Eb"]
        {
            assert_eq!(path_value(good), None, "{good}");
        }
        for (bad, part) in [
            ("7;x=1", "semicolon"),
            ("7%3Bx", "semicolon"),
            ("7.", "dot"),
            ("7%2e", "dot"),
            ("7..", "dot"),
            ("7%20", "space"),
            ("%207", "space"),
            ("7%C2%A0", "space"),
            ("7%09", "control"),
            ("7%00", "control"),
            ("a%2Fb", "slash"),
            ("a%5cb", "slash"),
            ("a\\b", "slash"),
            ("7%3Fx", "`?`"),
            ("7%23x", "`?`"),
            ("%2537", "twice"),
            ("7%252e", "twice"),
            ("x/7./y", "dot"),
        ] {
            assert!(path_value(bad).is_some_and(|why| why.contains(part)), "{bad}: {:?}", path_value(bad));
        }
    }

    #[test]
    fn a_path_has_one_spelling() {
        for (path, one) in [
            ("/shops/k%c3%b6ln+1/orders", "/shops/k%C3%B6ln+1/orders"),
            ("/a%3Ab%40", "/a:b@"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%20b", "/a%20b"),
            ("/100%25", "/100%25"),
            ("/a|b", "/a%7Cb"),
            ("/", "/"),
            ("/a/", "/a/"),
        ] {
            assert_eq!((one_spelling(path).as_str(), one_spelling(one).as_str()), (one, one), "{path}");
        }
    }

    #[test]
    fn names_that_some_server_takes_for_one_are_told() {
        for (one, other, same) in [
            ("x-order-id", "x_order_id", true),
            ("X-Order-Id", "x.order_id", true),
            ("x-order-id", "X-Order-ID", false),
            ("x-order-id", "x-orderid", false),
        ] {
            assert_eq!(same_header(one, other), same, "{one} {other}");
        }
        for (one, other, same) in [
            ("id", "ID", true),
            ("id", "id[]", true),
            ("id", "id[0]", true),
            ("id", " id", true),
            ("id", "id\0x", true),
            ("my_id", "my.id", true),
            ("id", "id", false),
            ("id", "ids", false),
            ("my_id", "my[id", true),
            ("filter[id]", "filter", true),
            ("filter[id]", "filter[ID]", true),
            ("filter[id]", "filter[id][x]", true),
            ("filter[id]", "filter[state]", false),
        ] {
            assert_eq!(same_parameter(one, other), same, "{one} {other}");
        }
    }

    #[test]
    fn a_member_that_differs_in_case_alone_is_told() {
        for (document, pointer, other) in [
            (r#"{"id":"A","ID":"B"}"#, "/id", Some("ID")),
            (r#"{"Id":"A"}"#, "/id", Some("Id")),
            (r#"{"Order":{"id":1},"order":{"id":2}}"#, "/order/id", Some("Order")),
            (r#"{"order":{"iD":1,"id":2}}"#, "/order/id", Some("iD")),
            (r#"{"lines":[{"SKU":1}]}"#, "/lines/0/sku", Some("SKU")),
            (r#"{"task":1,"ta\u017fk":2}"#, "/task", Some("ta\u{17f}k")),
            (r#"{"\u212aey":1,"key":2}"#, "/key", Some("\u{212a}ey")),
            (r#"{"id":"A","other":{"ID":1}}"#, "/id", None),
            (r#"{"id":"A","i_d":1}"#, "/id", None),
        ] {
            let parsed = json::parse(document.as_bytes()).unwrap();
            assert_eq!(other_case(&parsed, pointer), other, "{document} {pointer}");
        }
    }
}
