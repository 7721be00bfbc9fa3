//! Text to a tree in which every key and value knows its file, line and column.
//! Never guesses a type: a scalar stays the text it was, and the reader of the field says what it must be.
//! Called by `policy` for every layer of configuration, and by `credentials` for its file.

use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::finding::{Finding, Severity};
use super::rules;

/// No policy nests this deep; a deeper one is a mistake or an attack on the linter.
const DEPTH_MAX: usize = 32;

/// Where a text came from. Later layers win over earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layer {
    /// The embedded defaults.
    Defaults,
    /// The embedded contracts.
    Contracts,
    /// The file that the user named.
    File,
    /// An environment variable.
    Environment,
}

/// One text: its name in messages, and its layer.
#[derive(PartialEq, Eq, Debug)]
pub struct PolicyText {
    /// The file's name as the user wrote it, or the variable's.
    pub name: String,
    /// Which layer it belongs to.
    pub layer: Layer,
}

/// A place in a source.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The text.
    pub source: Arc<PolicyText>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub col: u32,
}

// Positions do not count in comparisons: a section that only moved within its file is the same.
impl PartialEq for Mark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Mark {}

impl Mark {
    /// A finding at this place.
    pub fn finding(
        &self,
        severity: Severity,
        rule: &'static str,
        message: impl Into<String>,
        fix: Option<String>,
    ) -> Finding {
        debug_assert!(rules::about(rule).is_some(), "{rule} is not in policy/rules.rs");
        let in_lines = self.source.layer != Layer::Environment;
        Finding {
            severity,
            rule,
            file: self.source.name.clone(),
            line: if in_lines { self.line } else { 0 },
            col: if in_lines { self.col } else { 0 },
            message: message.into(),
            fix,
        }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct YamlNode {
    /// Where it starts.
    pub mark: Mark,
    pub value: YamlValue,
}

/// The shapes a value can have.
#[derive(Clone, Debug)]
pub enum YamlValue {
    /// Nothing, `~` or `null`.
    Null,
    /// Any scalar, as it was written.
    Scalar {
        /// Its text, without quotes.
        text: String,
        /// Whether it was written without quotes, so that `true` can mean a boolean.
        plain: bool,
    },
    Seq(Vec<YamlNode>),
    /// A mapping, in the order of the file; names are unique.
    Map(Vec<YamlEntry>),
}

/// One pair of a mapping.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub mark: Mark,
    pub value: YamlNode,
}

impl YamlNode {
    /// The value under a name, where this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        match &self.value {
            YamlValue::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
            _ => None,
        }
    }
}

/// A collection whose end has not been seen.
enum Open {
    Seq { mark: Mark, items: Vec<YamlNode> },
    Map { mark: Mark, entries: Vec<YamlEntry>, pending: Option<(String, Mark)> },
}

/// Reads one document. An empty text is an empty mapping. Reading goes on past an error, so that one run shows every
/// mistake; a tree comes back even then, to find more of them.
pub fn parse(source: &Arc<PolicyText>, text: &str) -> (Option<YamlNode>, Vec<Finding>) {
    let mut tree = Tree { source, stack: Vec::new(), root: None, findings: Vec::new() };
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        match next {
            Ok((event, span)) => {
                if tree.event(event, span).is_break() {
                    return (None, tree.findings);
                }
            }
            Err(error) => {
                let mark = tree.mark(*error.marker());
                tree.findings.push(mark.finding(Severity::Error, "yaml", format!("not YAML: {}", error.info()), None));
                return (None, tree.findings);
            }
        }
    }
    let empty = YamlNode { mark: tree.mark(Marker::new(0, 1, 0)), value: YamlValue::Map(Vec::new()) };
    (Some(tree.root.unwrap_or(empty)), tree.findings)
}

struct Tree<'a> {
    source: &'a Arc<PolicyText>,
    stack: Vec<Open>,
    root: Option<YamlNode>,
    findings: Vec<Finding>,
}

type Flow = std::ops::ControlFlow<()>;

impl Tree<'_> {
    fn mark(&self, marker: Marker) -> Mark {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Mark {
            source: Arc::clone(self.source),
            line: number(marker.line()),
            col: number(marker.col()).saturating_add(1),
        }
    }

    fn refuse(&mut self, mark: &Mark, rule: &'static str, message: impl Into<String>, fix: &str) {
        self.findings.push(mark.finding(Severity::Error, rule, message, Some(fix.to_owned())));
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Flow {
        let mark = self.mark(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.plain_only(&mark, anchor, tag.is_some());
                let plain = style == ScalarStyle::Plain;
                let value = match text.as_ref() {
                    "" | "~" | "null" | "Null" | "NULL" if plain => YamlValue::Null,
                    text => YamlValue::Scalar { text: text.to_owned(), plain },
                };
                self.add(YamlNode { mark, value });
            }
            Event::SequenceStart(anchor, tag) => {
                self.plain_only(&mark, anchor, tag.is_some());
                self.stack.push(Open::Seq { mark, items: Vec::new() });
            }
            Event::MappingStart(anchor, tag) => {
                self.plain_only(&mark, anchor, tag.is_some());
                self.stack.push(Open::Map { mark, entries: Vec::new(), pending: None });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.stack.pop() {
                    Some(Open::Seq { mark, items }) => YamlNode { mark, value: YamlValue::Seq(items) },
                    Some(Open::Map { mark, entries, .. }) => YamlNode { mark, value: YamlValue::Map(entries) },
                    None => return Flow::Break(()),
                };
                self.add(node);
            }
            // Copies grow without bound when nested, and a finding would point at the wrong copy.
            Event::Alias(_) => {
                self.refuse(&mark, "yaml", "aliases (`*name`) are not read here", "write the value out");
                self.add(YamlNode { mark, value: YamlValue::Null });
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                self.refuse(&mark, "yaml", "a second document starts here", "keep one document per file");
                return Flow::Break(());
            }
            _ => {}
        }
        if self.stack.len() > DEPTH_MAX {
            let mark = self.mark(span.start);
            self.refuse(&mark, "yaml", format!("nested deeper than {DEPTH_MAX}"), "flatten it");
            return Flow::Break(());
        }
        Flow::Continue(())
    }

    fn plain_only(&mut self, mark: &Mark, anchor: usize, tagged: bool) {
        if anchor > 0 {
            self.refuse(mark, "yaml", "anchors (`&name`) are not read here", "write the value out where it is used");
        }
        if tagged {
            self.refuse(mark, "yaml", "tags (`!name`) are not read here", "remove the tag");
        }
    }

    fn add(&mut self, node: YamlNode) {
        match self.stack.last_mut() {
            None => self.root = (!matches!(node.value, YamlValue::Null)).then_some(node),
            Some(Open::Seq { items, .. }) => items.push(node),
            Some(Open::Map { pending: pending @ None, .. }) => {
                let (key, text) = match node.value {
                    YamlValue::Scalar { text, .. } => (Some(text.clone()), text),
                    _ => (None, String::new()),
                };
                *pending = Some((text, node.mark.clone()));
                if key.is_none() {
                    self.refuse(&node.mark, "yaml", "a name must be a plain text", "write `name: value`");
                }
            }
            Some(Open::Map { entries, pending, .. }) => {
                let Some((key, mark)) = pending.take() else { return };
                match entries.iter().find(|entry| entry.key == key).map(|entry| entry.mark.line) {
                    Some(line) => {
                        let message = format!("`{key}` stands twice in this mapping, first on line {line}");
                        self.refuse(&mark, "duplicate-key", message, "keep one of the two");
                    }
                    None => entries.push(YamlEntry { key, mark, value: node }),
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<YamlNode>, Vec<String>) {
        let source = Arc::new(PolicyText { name: "p.yml".into(), layer: Layer::File });
        let (node, findings) = parse(&source, text);
        (node, findings.iter().map(|f| format!("{}:{} {}", f.line, f.col, f.message)).collect())
    }

    #[test]
    fn every_value_knows_its_line_and_column() {
        let (node, findings) = read("a: 1\nb:\n  - x\n  - {c: \"d\"}\n");
        assert_eq!(findings, [""; 0]);
        let node = node.unwrap();
        let YamlValue::Seq(items) = &node.get("b").unwrap().value else { panic!("a list") };
        let c = items[1].get("c").unwrap();
        assert_eq!((items[0].mark.line, items[0].mark.col), (3, 5));
        assert_eq!((c.mark.line, c.mark.col), (4, 9));
        assert!(matches!(&c.value, YamlValue::Scalar { text, plain: false } if text == "d"));
    }

    #[test]
    fn an_empty_text_is_an_empty_mapping() {
        for text in ["", "# only a comment\n", "---\n"] {
            let (node, findings) = read(text);
            assert!(findings.is_empty(), "{text:?}: {findings:?}");
            assert!(matches!(node.unwrap().value, YamlValue::Map(entries) if entries.is_empty()), "{text:?}");
        }
    }

    #[test]
    fn every_duplicate_is_found_in_one_run() {
        let (node, findings) = read("a: 1\na: 2\nb: {x: 1, x: 2}\n");
        assert!(node.is_some());
        assert_eq!(
            findings,
            [
                "2:1 `a` stands twice in this mapping, first on line 1",
                "3:11 `x` stands twice in this mapping, first on line 3"
            ]
        );
    }

    #[test]
    fn an_unknown_feature_of_yaml_is_refused_by_name() {
        for (text, part) in [
            ("a: &x 1\n", "anchors"),
            ("a: &x 1\nb: *x\n", "aliases"),
            ("a: !!str 1\n", "tags"),
            ("a: 1\n---\nb: 2\n", "second document"),
            ("[a]: 1\n", "a name must be"),
            ("a: [1\nb: 2\n", "not YAML"),
        ] {
            let (_, findings) = read(text);
            assert!(findings.iter().any(|f| f.contains(part)), "{text:?}: {findings:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let (_, findings) = read(&deep);
        assert!(findings[0].contains("nested deeper"), "{:?}", findings[0]);
        // The scanner looks ahead and has its own bound; either way it is a finding and no overflow.
        for part in ["[", "{", "- ", "a: {"] {
            assert_eq!(read(&part.repeat(100_000)).1.len(), 1, "{part}");
        }
    }
}
