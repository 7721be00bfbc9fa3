//! The pattern of a route: a method and a path. Also whether one pattern takes another's requests.
//! Never looks at more of a request than its method and path.
//! Called by `routes`, by `check` and by the gateway.

use std::fmt::{self, Write};

use super::read::nearest;

/// One part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// This text alone, percent-decoded: it fits every spelling of these characters.
    Literal(String),
    /// `{name}`: any one part.
    Any(String),
    /// `{*name}`: all that follows, at least one part.
    Rest(String),
}

/// A method and a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The method; `None` is `*`, any.
    pub method: Option<String>,
    /// The path's parts.
    pub segments: Vec<Segment>,
}

/// The methods that are registered with IANA, and PURGE, which caches take.
const METHODS: [&str; 41] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Reads `POST /orders/{id}`.
pub fn parse(text: &str) -> Result<Pattern, String> {
    let (method, path) = text.split_once(' ').ok_or_else(|| format!("`{text}` has no method and path"))?;
    let method = match method {
        "*" => None,
        word if METHODS.contains(&word) => Some(word.to_owned()),
        word => {
            let near = nearest(word, &METHODS).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(format!("`{word}` is not an HTTP method, or `*` for any{near}"));
        }
    };
    let rest = path.strip_prefix('/').ok_or_else(|| format!("the path `{path}` does not start with `/`"))?;
    if path.contains(['?', '#', ' ']) {
        return Err(format!("`{path}` is more than a path"));
    }
    let parts: Vec<&str> = rest.split('/').collect();
    let mut segments: Vec<Segment> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let segment = segment(part)?;
        if matches!(segment, Segment::Rest(_)) && index + 1 < parts.len() {
            return Err(format!("`{part}` takes all that follows, so it must come last"));
        }
        if name(&segment).is_some_and(|new| segments.iter().filter_map(name).any(|old| old == new)) {
            return Err(format!("`{part}` stands twice"));
        }
        segments.push(segment);
    }
    Ok(Pattern { method, segments })
}

fn segment(part: &str) -> Result<Segment, String> {
    // The syntax of names in other routers. Text that begins with `:` can be written `%3A`, with `<` `%3C`.
    let other = part.strip_prefix(':').or_else(|| part.strip_prefix('<').and_then(|part| part.strip_suffix('>')));
    if let Some(name) = other {
        return Err(format!("`{part}` would be taken as plain text; write `{{{name}}}` for a part that varies"));
    }
    let Some(inner) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
        return if part.contains(['{', '}', '*']) {
            Err(format!("`{part}` mixes text and a name; a name takes a whole part: `{{id}}`"))
        } else {
            literal(part)
        };
    };
    let (rest, name) = inner.strip_prefix('*').map_or((false, inner), |name| (true, name));
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!("`{part}` needs a name of letters, digits and `_`"));
    }
    Ok(if rest { Segment::Rest(name.into()) } else { Segment::Any(name.into()) })
}

fn literal(part: &str) -> Result<Segment, String> {
    let coded = |rest: &str| rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    match String::from_utf8(decoded(part).collect()) {
        Ok(text) if part.split('%').skip(1).all(coded) => Ok(Segment::Literal(text)),
        _ => Err(format!("`{part}` is not percent-encoded UTF-8; a percent sign is `%25`")),
    }
}

/// The bytes that a part of a path stands for: `%3A` is a colon. A percent sign before anything else is itself.
pub(super) fn decoded(part: &str) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut rest = part.as_bytes();
    std::iter::from_fn(move || {
        let coded = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let byte = coded.or_else(|| rest.first().copied())?;
        rest = &rest[if coded.is_some() { 3 } else { 1 }..];
        Some(byte)
    })
}

// Writes a text as a `match` could hold it, on one line.
fn write_literal(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().enumerate().try_for_each(|(at, letter)| match letter {
        ':' | '<' if at == 0 => write!(f, "%{:02X}", u32::from(letter)),
        '%' | '/' | '?' | '#' | '{' | '}' | '*' | '\0'..=' ' | '\x7f' => write!(f, "%{:02X}", u32::from(letter)),
        letter => f.write_char(letter),
    })
}

fn name(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Literal(_) => None,
        Segment::Any(name) | Segment::Rest(name) => Some(name),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method.as_deref().unwrap_or("*"))?;
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Literal(text) => f.write_char('/').and_then(|()| write_literal(f, text)),
            Segment::Any(name) => write!(f, "/{{{name}}}"),
            Segment::Rest(name) => write!(f, "/{{*{name}}}"),
        })
    }
}

impl Pattern {
    /// The names that its path binds.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(name)
    }

    /// Each name with its part of the path, not decoded; none where the path does not fit. Text fits in any spelling of
    /// its characters, and no name takes an empty part.
    pub fn bind<'r>(&'r self, path: &'r str) -> Option<Vec<(&'r str, &'r str)>> {
        let mut rest = path.strip_prefix('/')?;
        let mut bound = Vec::new();
        let last = self.segments.len() - 1;
        for (index, segment) in self.segments.iter().enumerate() {
            if let Segment::Rest(name) = segment {
                bound.push((name.as_str(), rest));
                return (!rest.is_empty()).then_some(bound);
            }
            let (part, after) = match rest.split_once('/') {
                Some((part, after)) if index < last => (part, after),
                None if index == last => (rest, ""),
                _ => return None,
            };
            match segment {
                Segment::Literal(text) if decoded(part).eq(text.bytes()) => {}
                Segment::Any(name) if !part.is_empty() => bound.push((name.as_str(), part)),
                _ => return None,
            }
            rest = after;
        }
        Some(bound)
    }

    /// Whether it takes requests of this method.
    pub fn takes(&self, method: &str) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method)
    }

    /// Whether this pattern takes every request that the other takes.
    pub fn covers(&self, other: &Pattern) -> bool {
        let method = self.method.is_none() || self.method == other.method;
        method && covers(&self.segments, &other.segments)
    }

    /// Whether both patterns take some request.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let method = self.method.is_none() || other.method.is_none() || self.method == other.method;
        method && overlaps(&self.segments, &other.segments)
    }
}

/// Whether each path of the second is also one of the first.
pub(super) fn covers(wide: &[Segment], narrow: &[Segment]) -> bool {
    match (wide, narrow) {
        ([], []) => true,
        ([Segment::Rest(_)], [_, ..]) => true,
        ([Segment::Any(_), wide @ ..], [Segment::Any(_) | Segment::Literal(_), narrow @ ..]) => covers(wide, narrow),
        ([Segment::Literal(a), wide @ ..], [Segment::Literal(b), narrow @ ..]) => a == b && covers(wide, narrow),
        _ => false,
    }
}

fn overlaps(one: &[Segment], other: &[Segment]) -> bool {
    match (one, other) {
        ([], []) => true,
        ([Segment::Rest(_)], [_, ..]) | ([_, ..], [Segment::Rest(_)]) => true,
        ([Segment::Literal(a), ..], [Segment::Literal(b), ..]) if a != b => false,
        ([_, one @ ..], [_, other @ ..]) => overlaps(one, other),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn malformed_patterns_are_refused() {
        for text in [
            "/cases",
            "post /cases",
            "POST cases",
            "POST /a?b=1",
            "POST /{*all}/x",
            "POST /a{id}",
            "POST /{}",
            "POST /{a}/{a}",
            "POST /a%",
            "POST /a%2",
            "POST /a%zz",
            "POST /a%FFb",
            "PSOT /orders",
            "POST /orders/:id",
            "POST /orders/<id>",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_methods_and_names_of_other_routers_are_refused_with_what_to_write() {
        for (text, said) in [
            ("PSOT /orders", "`PSOT` is not an HTTP method, or `*` for any; did you mean POST?"),
            ("post /orders", "`post` is not an HTTP method, or `*` for any; did you mean POST?"),
            ("FETCHALL /orders", "`FETCHALL` is not an HTTP method, or `*` for any"),
            ("POST /o/:id", "`:id` would be taken as plain text; write `{id}` for a part that varies"),
            ("POST /o/<id>/x", "`<id>` would be taken as plain text; write `{id}` for a part that varies"),
        ] {
            assert_eq!(parse(text).unwrap_err(), said);
        }
    }

    #[test]
    fn names_come_from_the_path() {
        let pattern = parse("PUT /orders/{id}/{*rest}").unwrap();
        assert_eq!(pattern.names().collect::<Vec<_>>(), ["id", "rest"]);
    }

    #[test]
    fn a_path_fits_part_by_part_and_gives_the_names_their_values() {
        let none: Option<&[(&str, &str)]> = None;
        for (pattern, path, bound) in [
            ("POST /a", "/a", Some(&[][..])),
            ("POST /a", "/a/", none),
            ("POST /a", "/a/b", none),
            ("POST /a", "//a", none),
            ("POST /a/{x}", "/a/1%202", Some(&[("x", "1%202")])),
            ("POST /a/{x}", "/a/", none),
            ("POST /a/{x}", "/a", none),
            ("POST /{*all}", "/a//b", Some(&[("all", "a//b")])),
            ("POST /{*all}", "/", none),
            ("POST /", "/", Some(&[])),
            ("PUT /o/{id}/{*rest}", "/o/7/x/y", Some(&[("id", "7"), ("rest", "x/y")])),
            ("POST /café", "/caf%C3%A9", Some(&[])),
            ("POST /caf%c3%a9", "/caf%C3%A9", Some(&[])),
            ("POST /%70ay", "/pay", Some(&[])),
            ("POST /a:b", "/a%3Ab", Some(&[])),
            ("POST /a%2Fb", "/a%2fb", Some(&[])),
            ("POST /a%2Fb", "/a/b", none),
            ("POST /%7Bid%7D%25%20", "/{id}%25%20", Some(&[])),
            ("POST /%7Bid%7D", "/7", none),
            ("POST /a%2541", "/aA", none),
            ("POST /%3Aid", "/:id", Some(&[])),
            ("POST /%3Cid>", "/<id>", Some(&[])),
        ] {
            let pattern = parse(pattern).unwrap();
            assert_eq!(pattern.bind(path).as_deref(), bound, "{pattern} {path}");
            assert_eq!(parse(&pattern.to_string()).unwrap(), pattern);
        }
    }

    #[test]
    fn covering_and_overlapping_are_told_apart() {
        for (first, second, covers, overlaps) in [
            ("POST /a", "POST /a", true, true),
            ("POST /a", "PUT /a", false, false),
            ("* /a", "PUT /a", true, true),
            ("PUT /a", "* /a", false, true),
            ("POST /{x}", "POST /a", true, true),
            ("POST /a", "POST /{x}", false, true),
            ("POST /a/{x}", "POST /{y}/b", false, true),
            ("POST /{*all}", "POST /a/b", true, true),
            ("POST /a/{*all}", "POST /a", false, false),
            ("POST /a/{x}", "POST /a/{*all}", false, true),
            ("POST /a/b", "POST /a", false, false),
            ("POST /a:b", "POST /a%3ab", true, true),
        ] {
            let (one, other) = (parse(first).unwrap(), parse(second).unwrap());
            assert_eq!(one.covers(&other), covers, "{first} covers {second}");
            assert_eq!(one.overlaps(&other), overlaps, "{first} overlaps {second}");
        }
    }
}
