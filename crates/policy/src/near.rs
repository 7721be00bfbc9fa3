//! The ways in which a careless server may read a path. Two paths that it may read as one are near each other.
//! Never says which route takes a request, only which must not.
//! Called by the gateway.

use super::pattern::{Pattern, Segment, covers, decoded};

/// How often a path is decoded at most: a correct server decodes it once, a careless one up to this often.
const DECODED_MAX: usize = 4;

/// A path, or the paths of a pattern, as a careless server reads it. Percent-encoding is decoded, a backslash is a
/// slash, a part ends at a semicolon, and dot segments are resolved. Case, empty parts, spaces around a part, dots at
/// its end, and control characters are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Near(Vec<Segment>);

impl Near {
    /// Every way in which a path may be read, the usual one first: decoded once or more often, up to its end or up to a
    /// decoded `?`, `#` or NUL.
    pub fn readings(path: &str) -> Vec<Self> {
        let mut readings = Vec::with_capacity(1);
        let mut add = |text: &str| {
            let read = Self(parts(text));
            if !readings.contains(&read) {
                readings.push(read);
            }
        };
        let mut text = path.to_owned();
        for _ in 0..DECODED_MAX {
            let next = String::from_utf8_lossy(&decoded(&text).collect::<Vec<u8>>()).into_owned();
            add(&next);
            if let Some((before, _)) = next.split_once(['?', '#', '\0']) {
                add(before);
            }
            if next == text {
                break;
            }
            text = next;
        }
        readings
    }

    /// Whether each path of the other is also one of this.
    pub fn covers(&self, other: &Near) -> bool {
        covers(&self.0, &other.0)
    }

    /// Whether each path of the other is one of this, lies below one, or is one with an extension (`/hook.json`): many
    /// servers give such a path to the handler of the shorter one.
    pub fn owns(&self, other: &Near) -> bool {
        owns(&self.0, &other.0)
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

fn owns(wide: &[Segment], narrow: &[Segment]) -> bool {
    match (wide, narrow) {
        ([], _) => true,
        ([Segment::Rest(_)], [_, ..]) => true,
        ([Segment::Any(_), wide @ ..], [Segment::Any(_) | Segment::Literal(_), narrow @ ..]) => owns(wide, narrow),
        ([Segment::Literal(a), wide @ ..], [Segment::Literal(b), narrow @ ..]) => {
            let extended = b.strip_prefix(a.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            extended && owns(wide, narrow)
        }
        _ => false,
    }
}

fn parts(text: &str) -> Vec<Segment> {
    let mut parts = Vec::new();
    for part in text.split(['/', '\\']) {
        let part: String = part.split(';').next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
        match part.trim() {
            "." => {}
            ".." => drop(parts.pop()),
            part => {
                let part = part.trim_end_matches(|c: char| c == '.' || c.is_whitespace());
                if !part.is_empty() {
                    parts.push(Segment::Literal(part.to_lowercase()));
                }
            }
        }
    }
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pattern;

    fn near(pattern: &str) -> Near {
        Near::from(&pattern::parse(pattern).unwrap())
    }

    #[test]
    fn a_pattern_is_near_what_a_careless_server_reads_as_one_of_its_paths() {
        for (pattern, path, expected) in [
            ("POST /a/b", "/A%2fb", true),
            ("POST /a/b", "/a%5CB/", true),
            ("POST /a/b", "/a;x=1/b%3By", true),
            ("POST /A:b/", "/a%3ab", true),
            ("POST /a%2Fb", "/a/b", true),
            ("POST /a/{x}", "/a%2Fb", true),
            ("POST /a/{x}", "/a/%2F", false),
            ("POST /a/{*rest}", "/a%2Fb%2Fc", true),
            ("POST /É", "/%C3%A9", true),
            ("POST /a/b", "/a%252Fb", true),
            ("POST /a/b", "/a/%2562", true),
            ("POST /a/b", "/a/%252562", true),
            ("POST /a/b", "/a/b.", true),
            ("POST /a/b", "/a./b..%20", true),
            ("POST /a/b", "/a/%20b%20", true),
            ("POST /a/b", "/a/b%C2%A0", true),
            ("POST /a/b", "/a/b%3Fx=1", true),
            ("POST /a/b", "/a/b%23x/y", true),
            ("POST /a/b", "/a/b%00.png", true),
            ("POST /a/b", "/a/b%2500x", true),
            ("POST /a/b", "/a/b%250A", true),
            ("POST /a/b", "/x/%252e%252e/a/b", true),
            ("POST /a/b", "/a/b/x%2F..", true),
            ("POST /a/b", "/a/b.json", false),
            ("POST /a/b", "/a/b/x", false),
            ("POST /a/b", "/a", false),
            ("POST /", "/", true),
            ("POST /{*all}", "/", false),
        ] {
            let covered = Near::readings(path).iter().any(|reading| near(pattern).covers(reading));
            assert_eq!(covered, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_owns_what_lies_below_it_and_its_extensions() {
        for (pattern, path, expected) in [
            ("POST /a/b", "/a/b", true),
            ("POST /a/b", "/a/b.json", true),
            ("POST /a/b", "/a/B.tar.gz", true),
            ("POST /a/b", "/a.php/b", true),
            ("POST /a/b", "/a/b/x/y", true),
            ("POST /a/b", "/a/b%2Fx", true),
            ("POST /a/b", "/a/b%3Fx/../c", true),
            ("POST /a/b", "/a/bc", false),
            ("POST /a/b", "/a/b-json", false),
            ("POST /a/b", "/a", false),
            ("POST /a/b.json", "/a/b", false),
            ("POST /a/{x}", "/a/7/y", true),
            ("POST /a/{*rest}", "/a", false),
        ] {
            let owned = Near::readings(path).iter().any(|reading| near(pattern).owns(reading));
            assert_eq!(owned, expected, "{pattern} {path}");
        }
        for (pattern, other, expected) in [
            ("POST /a/b", "POST /a/b/{*rest}", true),
            ("POST /a/b", "POST /a/{x}", false),
            ("POST /a/{x}", "POST /a/{y}/c", true),
            ("POST /a/b", "POST /{*all}", false),
        ] {
            assert_eq!(near(pattern).owns(&near(other)), expected, "{pattern} {other}");
        }
    }

    #[test]
    fn a_path_without_codes_is_read_in_one_way_and_many_codes_in_few() {
        assert_eq!(Near::readings("/orders/7").len(), 1);
        assert!(Near::readings(&format!("/{}41", "%25".repeat(5_000))).len() <= 2 * DECODED_MAX);
    }
}
