//! What a careless server may read a path as: two paths that are one to it are near each other.
//! Never says which route takes a request, only which must not.
//! Called by the gateway.

use super::pattern::{Pattern, Segment, covers, decoded};

/// A path, or the paths of a pattern, as read carelessly: a code is its character, a coded slash or backslash is a
/// slash, nothing counts behind a semicolon, and neither do case and empty parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Near(Vec<Segment>);

impl Near {
    /// Of a path.
    pub fn of(path: &str) -> Self {
        let decoded: Vec<u8> = decoded(path).collect();
        Self(parts(&String::from_utf8_lossy(&decoded)))
    }

    /// Whether each path of the other is also one of this.
    pub fn covers(&self, other: &Near) -> bool {
        covers(&self.0, &other.0)
    }
}

impl From<&Pattern> for Near {
    fn from(pattern: &Pattern) -> Self {
        let read = |segment: &Segment| match segment {
            Segment::Literal(text) => parts(text),
            other => vec![other.clone()],
        };
        Self(pattern.segments.iter().flat_map(read).collect())
    }
}

fn parts(text: &str) -> Vec<Segment> {
    let parts = text.split(['/', '\\']).map(|part| part.split(';').next().unwrap_or_default());
    parts.filter(|part| !part.is_empty()).map(|part| Segment::Literal(part.to_lowercase())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::policy::pattern;

    #[test]
    fn a_pattern_is_near_what_a_careless_server_reads_as_one_of_its_paths() {
        for (pattern, path, near) in [
            ("POST /a/b", "/A%2fb", true),
            ("POST /a/b", "/a%5CB/", true),
            ("POST /a/b", "/a;x=1/b%3By", true),
            ("POST /A:b/", "/a%3ab", true),
            ("POST /a%2Fb", "/a/b", true),
            ("POST /a/{x}", "/a%2Fb", true),
            ("POST /a/{x}", "/a/%2F", false),
            ("POST /a/{*rest}", "/a%2Fb%2Fc", true),
            ("POST /É", "/%C3%A9", true),
            ("POST /a/b", "/a%252Fb", false),
            ("POST /a/b", "/a", false),
            ("POST /", "/", true),
            ("POST /{*all}", "/", false),
        ] {
            let read = Near::from(&pattern::parse(pattern).unwrap());
            assert_eq!(read.covers(&Near::of(path)), near, "{pattern} {path}");
        }
    }
}
