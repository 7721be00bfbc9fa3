//! Typed reading of a YAML tree: each field is read as its type, and each error names its place.
//! Never stops at the first mistake, and never lets an unknown name pass.
//! Called by the section readers of `policy`.

use std::collections::BTreeSet;

use super::duration;
use super::finding::{Finding, Severity};
use super::yaml::{Layer, Mark, YamlEntry, YamlNode, YamlValue};

/// Reads values of a tree, and collects the findings.
#[derive(Default)]
pub struct Reader {
    /// Everything found so far, in the order of reading.
    pub findings: Vec<Finding>,
}

/// A mapping whose names have been compared with the known ones.
pub struct Fields<'a> {
    entries: &'a [YamlEntry],
    /// Where the mapping starts.
    pub mark: &'a Mark,
    /// The mapping's name in messages, such as `scope BOOKING`.
    pub what: String,
}

/// The names of fields that are there and could not be read. Each has an error of its own. A lint that depends on one
/// of them would judge a default that the user did not write.
pub type Unread = BTreeSet<&'static str>;

impl<'a> Fields<'a> {
    /// An empty mapping, in place of one that could not be read.
    pub fn none(mark: &'a Mark, what: impl Into<String>) -> Self {
        Self { entries: &[], mark, what: what.into() }
    }

    /// The value under a name, if the name is there.
    pub fn get(&self, key: &str) -> Option<&'a YamlNode> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The place of a name, or of the mapping where the name is not in it.
    pub fn mark_of(&self, key: &str) -> &'a Mark {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.mark, |entry| &entry.mark)
    }
}

impl Reader {
    /// Records an error.
    pub fn error(&mut self, mark: &Mark, rule: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.findings.push(mark.finding(Severity::Error, rule, message, Some(fix.into())));
    }

    /// Reads one field where it is there, and adds its name to `unread` where that fails.
    pub fn field<'a, T>(
        &mut self,
        fields: &Fields<'a>,
        name: &'static str,
        unread: &mut Unread,
        read: impl FnOnce(&mut Self, &'a YamlNode) -> Option<T>,
    ) -> Option<T> {
        let node = fields.get(name)?;
        self.noting(name, unread, |reader| read(reader, node))
    }

    /// Calls `read`, and adds the name to `unread` where that records an error.
    pub fn noting<T>(&mut self, name: &'static str, unread: &mut Unread, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.findings.len();
        let value = read(self);
        if self.findings[before..].iter().any(Finding::is_error) {
            unread.insert(name);
        }
        value
    }

    fn shape(&mut self, node: &YamlNode, what: &str, wanted: &str, fix: &str) {
        let found = describe(node, wanted);
        let message = format!("{what} must be {wanted}, not {found}");
        self.error(&node.mark, "wrong-type", message, fix);
    }

    /// A mapping; each name that is not known is an error. An empty value counts as an empty mapping.
    pub fn fields<'a>(&mut self, node: &'a YamlNode, what: impl Into<String>, known: &[&str]) -> Option<Fields<'a>> {
        let what = what.into();
        let entries = self.entries(node, &what)?;
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            self.unknown(&entry.mark, &format!("unknown key `{}` in {what}", entry.key), &entry.key, known);
        }
        Some(Fields { entries, mark: &node.mark, what })
    }

    /// The entries of a mapping whose names the user chooses.
    pub fn entries<'a>(&mut self, node: &'a YamlNode, what: &str) -> Option<&'a [YamlEntry]> {
        match &node.value {
            YamlValue::Map(entries) => Some(entries),
            YamlValue::Null => Some(&[]),
            _ => {
                self.shape(node, what, "a mapping", "write `name: value` lines, indented under it");
                None
            }
        }
    }

    /// The items of a list. An empty value counts as an empty list.
    pub fn items<'a>(&mut self, node: &'a YamlNode, what: &str) -> Option<&'a [YamlNode]> {
        match &node.value {
            YamlValue::Seq(items) => Some(items),
            YamlValue::Null => Some(&[]),
            _ => {
                self.shape(node, what, "a list", "write `[a, b]`, or lines that start with `- `");
                None
            }
        }
    }

    /// Records an error for a name that is not known, with the nearest known one.
    pub fn unknown(&mut self, mark: &Mark, message: &str, name: &str, known: &[&str]) {
        let fix = match nearest(name, known) {
            Some(near) if mark.source.layer == Layer::Environment => {
                // The name is part of the variable's name: the fix has the whole variable, ready to copy.
                let variable = &mark.source.name;
                format!("did you mean {}?", variable.replace(&name.to_uppercase(), &near.to_uppercase()))
            }
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        self.error(mark, "unknown-key", message, fix);
    }

    /// Any scalar that is not empty, as it was written.
    pub fn text(&mut self, node: &YamlNode, what: &str) -> Option<String> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !text.is_empty() => Some(text.clone()),
            YamlValue::Scalar { .. } => {
                self.error(&node.mark, "wrong-type", format!("{what} is empty"), "give it a value or remove the line");
                None
            }
            _ => {
                self.shape(node, what, "a text", "give it a value or remove the line");
                None
            }
        }
    }

    /// A list of texts without repetition.
    pub fn texts(&mut self, node: &YamlNode, what: &str) -> Option<Vec<String>> {
        let mut texts: Vec<String> = Vec::new();
        for item in self.items(node, what)? {
            let Some(text) = self.text(item, &format!("each of {what}")) else { continue };
            if texts.contains(&text) {
                self.error(&item.mark, "duplicate", format!("`{text}` stands twice in {what}"), "keep one");
            } else {
                texts.push(text);
            }
        }
        Some(texts)
    }

    /// `true` or `false`, unquoted.
    pub fn boolean(&mut self, node: &YamlNode, what: &str) -> Option<bool> {
        match &node.value {
            YamlValue::Scalar { text, plain: true } if text == "true" => Some(true),
            YamlValue::Scalar { text, plain: true } if text == "false" => Some(false),
            _ => {
                self.shape(node, what, "true or false", "write true or false, without quotes");
                None
            }
        }
    }

    /// A whole number within bounds.
    pub fn integer(&mut self, node: &YamlNode, what: &str, bounds: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let number = match &node.value {
            YamlValue::Scalar { text, plain: true } => text.parse::<u64>().ok(),
            _ => None,
        };
        let range = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        match number {
            Some(number) if bounds.contains(&number) => Some(number),
            _ => {
                self.shape(node, what, &range, "write the digits alone");
                None
            }
        }
    }

    /// A span of time above zero, in milliseconds.
    pub fn duration(&mut self, node: &YamlNode, what: &str) -> Option<u64> {
        let parsed = duration::parse(&self.text(node, what)?);
        let parsed = parsed.and_then(|ms| if ms > 0 { Ok(ms) } else { Err("a span of zero has no effect".into()) });
        self.accept(node, what, parsed, "write a number and a unit: 200ms 30s 10m 48h 14d")
    }

    /// A size above zero, in bytes.
    pub fn size(&mut self, node: &YamlNode, what: &str) -> Option<u64> {
        let parsed = duration::parse_size(&self.text(node, what)?);
        let parsed =
            parsed.and_then(|size| if size > 0 { Ok(size) } else { Err("a size of zero has no effect".into()) });
        self.accept(node, what, parsed, "write a number and a unit: 16KiB 4MiB")
    }

    /// The value that belongs to one of a few words.
    pub fn word<T: Copy>(&mut self, node: &YamlNode, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, what)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.value_unknown(&node.mark, &format!("{what} cannot be `{text}`"), &text, &names);
        }
        found
    }

    /// Records an error for a value that is not known, with the nearest known one.
    pub fn value_unknown(&mut self, mark: &Mark, message: &str, name: &str, known: &[&str]) {
        let listed = known.join(", ");
        let fix = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`? known: {listed}"),
            None => format!("known: {listed}"),
        };
        self.error(mark, "unknown-value", message, fix);
    }

    /// The result of a parser. Its error is recorded at the node's place.
    pub fn accept<T>(&mut self, node: &YamlNode, what: &str, parsed: Result<T, String>, fix: &str) -> Option<T> {
        parsed.map_err(|why| self.error(&node.mark, "wrong-value", format!("{what}: {why}"), fix)).ok()
    }
}

fn describe(node: &YamlNode, wanted: &str) -> String {
    match &node.value {
        YamlValue::Null => "nothing".into(),
        // A text in place of a list or mapping may be a secret without its brackets: it is not shown.
        YamlValue::Scalar { .. } if ["a list", "a mapping"].contains(&wanted) => "a single text".into(),
        YamlValue::Scalar { text, plain: true } => format!("`{text}`"),
        YamlValue::Scalar { text, plain: false } => format!("the quoted text \"{text}\""),
        YamlValue::Seq(_) => "a list".into(),
        YamlValue::Map(_) => "a mapping".into(),
    }
}

/// The known name nearest to this one, where one is near enough to be the one that was meant.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase().replace('-', "_")), *known))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, known)| *distance <= 1.max(known.len().max(name.len()) / 3))
        .map(|(_, known)| known)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::super::yaml::{self, PolicyText};
    use super::*;

    fn node(text: &str) -> YamlNode {
        let source = Arc::new(PolicyText { name: "p.yml".into(), layer: Layer::File });
        yaml::parse(&source, text).0.unwrap()
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_name() {
        let mut reader = Reader::default();
        reader.fields(&node("retian: 7d\nzzz: 1\nkey: [a]\n"), "scope BOOKING", &["key", "retain", "lease"]);
        let shown: Vec<String> = reader.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "p.yml:1:1: error: unknown key `retian` in scope BOOKING\n  fix: did you mean `retain`?",
                "p.yml:2:1: error: unknown key `zzz` in scope BOOKING\n  fix: known here: key, retain, lease",
            ]
        );
    }

    #[test]
    fn the_nearest_name_ignores_case_and_dashes_and_gives_up_when_far() {
        let known = ["retain", "lease_max", "on_lapse"];
        for (name, near) in [
            ("Retain", Some("retain")),
            ("lease-max", Some("lease_max")),
            ("leasemax", Some("lease_max")),
            ("onlapse", Some("on_lapse")),
            ("colour", None),
        ] {
            assert_eq!(nearest(name, &known), near, "{name}");
        }
    }

    #[test]
    fn each_type_refuses_the_others() {
        let good = node("b: true\ni: 5\nd: 2d\ns: 4KiB\nt: x\n");
        let mut reader = Reader::default();
        let get = |name| good.get(name).unwrap();
        assert_eq!(reader.boolean(get("b"), "b"), Some(true));
        assert_eq!(reader.integer(get("i"), "i", 1..=9), Some(5));
        assert_eq!(reader.duration(get("d"), "d"), Some(172_800_000));
        assert_eq!(reader.size(get("s"), "s"), Some(4_096));
        assert_eq!(reader.text(get("t"), "t").as_deref(), Some("x"));
        assert_eq!(reader.findings, []);

        let bad = node("b: yes\nq: \"true\"\ni: 50\nd: 7\nz: 0s\nt:\nl: x\n");
        let get = |name| bad.get(name).unwrap();
        assert_eq!(reader.boolean(get("b"), "b"), None);
        assert_eq!(reader.boolean(get("q"), "q"), None);
        assert_eq!(reader.integer(get("i"), "i", 1..=9), None);
        assert_eq!(reader.duration(get("d"), "d"), None);
        assert_eq!(reader.duration(get("z"), "z"), None);
        assert_eq!(reader.text(get("t"), "t"), None);
        assert_eq!(reader.items(get("l"), "l").map(<[YamlNode]>::len), None);
        assert_eq!(reader.findings.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    }
}
