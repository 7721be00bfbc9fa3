//! A route's method and path, and which of two patterns takes the other's requests.
//! Never looks at more of a request than its path.
//! Called by `routes`, by `check` and by the gateway.

use std::fmt;

/// One part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// This text alone.
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

/// Reads `POST /orders/{id}`.
pub fn parse(text: &str) -> Result<Pattern, String> {
    let (method, path) = text.split_once(' ').ok_or_else(|| format!("`{text}` has no method and path"))?;
    let method = match method {
        "*" => None,
        word if !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase()) => Some(word.to_owned()),
        word => return Err(format!("`{word}` is not a method in capitals, or `*`")),
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
    let Some(inner) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
        return if part.contains(['{', '}', '*']) {
            Err(format!("`{part}` mixes text and a name; a name takes a whole part: `{{id}}`"))
        } else {
            Ok(Segment::Literal(part.into()))
        };
    };
    let (rest, name) = inner.strip_prefix('*').map_or((false, inner), |name| (true, name));
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!("`{part}` needs a name of letters, digits and `_`"));
    }
    Ok(if rest { Segment::Rest(name.into()) } else { Segment::Any(name.into()) })
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
            Segment::Literal(text) => write!(f, "/{text}"),
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

    /// What its names stand for in a path, as written there; none where the path does not fit. No name takes an
    /// empty part.
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
                Segment::Literal(text) if text == part => {}
                Segment::Any(name) if !part.is_empty() => bound.push((name.as_str(), part)),
                _ => return None,
            }
            rest = after;
        }
        Some(bound)
    }

    /// The same with its text in lower case.
    pub fn in_lower_case(&self) -> Self {
        let lower = |segment: &Segment| match segment {
            Segment::Literal(text) => Segment::Literal(text.to_ascii_lowercase()),
            other => other.clone(),
        };
        Self { method: self.method.clone(), segments: self.segments.iter().map(lower).collect() }
    }

    /// Whether each request of the other is also one of this.
    pub fn covers(&self, other: &Pattern) -> bool {
        let method = self.method.is_none() || self.method == other.method;
        method && covers(&self.segments, &other.segments)
    }

    /// Whether some request is one of both.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let method = self.method.is_none() || other.method.is_none() || self.method == other.method;
        method && overlaps(&self.segments, &other.segments)
    }
}

fn covers(wide: &[Segment], narrow: &[Segment]) -> bool {
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
        ] {
            assert!(parse(text).is_err(), "{text}");
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
        ] {
            let (one, other) = (parse(first).unwrap(), parse(second).unwrap());
            assert_eq!(one.covers(&other), covers, "{first} covers {second}");
            assert_eq!(one.overlaps(&other), overlaps, "{first} overlaps {second}");
        }
    }
}
