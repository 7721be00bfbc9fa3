//! Lays one tree over another: defaults, contracts, the user's file, the environment.
//! Never merges a scope or a collection into a built-in one of the same name: it replaces it, so a file shows the whole
//! rule.
//! Called by `Policy::load`.

use std::sync::Arc;

use super::finding::{Finding, Severity};
use super::read::nearest;
use super::yaml::{self, Layer, Mark, PolicyText, YamlEntry, YamlNode, YamlValue};

/// Mappings merge, name by name; anything else replaces the earlier value.
pub fn overlay(base: &mut YamlNode, over: YamlNode) {
    merge(base, over, &[]);
}

fn merge(base: &mut YamlNode, over: YamlNode, path: &[&str]) {
    // An empty section, its lines all commented out, changes nothing.
    if matches!((&base.value, &over.value), (YamlValue::Map(_) | YamlValue::Seq(_), YamlValue::Null)) {
        return;
    }
    let whole = matches!(path, ["scopes" | "collections", _]);
    match (&mut base.value, over) {
        (YamlValue::Map(entries), YamlNode { value: YamlValue::Map(overs), .. }) if !whole => {
            for over in overs {
                match entries.iter_mut().find(|entry| entry.key == over.key) {
                    Some(entry) => {
                        let path: Vec<&str> = path.iter().copied().chain([over.key.as_str()]).collect();
                        merge(&mut entry.value, over.value, &path);
                        entry.mark = over.mark;
                    }
                    None => entries.push(over),
                }
            }
        }
        (_, over) => *base = over,
    }
}

/// Variables of this prefix are ours, so a misspelt one is an error and not silence.
const PREFIX: &str = "FENCEPOST_";

/// Variables that the command line's clients read; not configuration.
pub const CLIENT_VARIABLES: [&str; 4] = ["FENCEPOST_CONFIG", "FENCEPOST_STORE", "FENCEPOST_TOKEN", "FENCEPOST_URL"];

/// Sections that an environment variable may set: all but those whose names the user makes.
const FROM_ENVIRONMENT: [&str; 10] = [
    "server",
    "dispatch",
    "gateway",
    "ingest",
    "stores",
    "logging",
    "on_conflict",
    "audit_retention",
    "require_headers",
    "reject_on_body_mismatch",
];

/// The tree that the `FENCEPOST_` variables make; two underscores are one step inward.
pub fn environment(variables: impl IntoIterator<Item = (String, String)>) -> (Vec<YamlNode>, Vec<Finding>) {
    let (mut nodes, mut findings) = (Vec::new(), Vec::new());
    let mut variables: Vec<_> = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    variables.sort();
    for (name, value) in variables {
        if CLIENT_VARIABLES.contains(&name.as_str()) || from_orchestrator(&name) {
            continue;
        }
        let source = Arc::new(PolicyText { name: name.clone(), layer: Layer::Environment });
        let mark = Mark { source: Arc::clone(&source), line: 0, col: 0 };
        let path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_lowercase).collect();
        let section = path.first().map_or("", String::as_str);
        if !FROM_ENVIRONMENT.contains(&section) {
            findings.push(unknown_variable(&mark, &name, section));
            continue;
        }
        let (parsed, wrong) = yaml::parse(&source, &value);
        findings.extend(wrong);
        // An empty value is an empty text, which each reader then refuses by its own name.
        let empty = YamlValue::Scalar { text: String::new(), plain: false };
        let leaf = match parsed {
            Some(node) if !value.trim().is_empty() => node,
            _ => YamlNode { mark: mark.clone(), value: empty },
        };
        nodes.push(path.into_iter().rev().fold(leaf, |value, key| YamlNode {
            mark: mark.clone(),
            value: YamlValue::Map(vec![YamlEntry { key, mark: mark.clone(), value }]),
        }));
    }
    (nodes, findings)
}

/// Kubernetes makes these by itself in every pod beside a service called `fencepost`.
fn from_orchestrator(name: &str) -> bool {
    name == "FENCEPOST_PORT"
        || name == "FENCEPOST_SERVICE_HOST"
        || name == "FENCEPOST_SERVICE_PORT"
        || name.starts_with("FENCEPOST_SERVICE_PORT_")
        || name.starts_with("FENCEPOST_PORT_")
}

fn unknown_variable(mark: &Mark, name: &str, section: &str) -> Finding {
    let known: Vec<String> = FROM_ENVIRONMENT.iter().map(|section| section.to_uppercase()).collect();
    let sections: Vec<&str> = known.iter().map(String::as_str).collect();
    let head = section.to_uppercase();
    let fix = match nearest(&head, &sections) {
        Some(near) => format!("did you mean {}?", name.replacen(&head, near, 1)),
        None => match nearest(name, &CLIENT_VARIABLES) {
            Some(near) => format!("did you mean {near}?"),
            None => format!(
                "a variable is FENCEPOST_SECTION__KEY, such as FENCEPOST_SERVER__LISTEN; sections: {}",
                FROM_ENVIRONMENT.join(", ")
            ),
        },
    };
    let message = "this variable sets nothing that Fencepost knows";
    mark.finding(Severity::Error, "unknown-variable", message, Some(fix))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tree(layer: Layer, text: &str) -> YamlNode {
        let source = Arc::new(PolicyText { name: "x".into(), layer });
        yaml::parse(&source, text).0.unwrap()
    }

    fn laid(base: &str, over: &str) -> YamlNode {
        let mut base = tree(Layer::Defaults, base);
        overlay(&mut base, tree(Layer::File, over));
        base
    }

    fn text(node: Option<&YamlNode>) -> Option<&str> {
        match &node?.value {
            YamlValue::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    #[test]
    fn mappings_merge_and_the_rest_is_replaced() {
        let node =
            laid("server: {listen: a, log: {level: info, decisions: true}}\n", "server: {log: {level: debug}}\n");
        let server = node.get("server").unwrap();
        assert_eq!(text(server.get("listen")), Some("a"));
        assert_eq!(text(server.get("log").unwrap().get("level")), Some("debug"));
        assert_eq!(text(server.get("log").unwrap().get("decisions")), Some("true"));
    }

    #[test]
    fn a_scope_of_the_same_name_is_replaced_whole() {
        let node = laid("scopes: {A: {key: [x], lease: 1s}, B: {key: [y]}}\n", "scopes: {A: {key: [z]}}\n");
        let scopes = node.get("scopes").unwrap();
        assert!(scopes.get("A").unwrap().get("lease").is_none());
        assert!(scopes.get("B").is_some());
    }

    #[test]
    fn a_collection_of_the_same_name_is_replaced_whole() {
        let schema = "{type: object, required: [a]}";
        let base = format!("collections: {{A: {{group: master, schema: {schema}}}, B: {{group: master}}}}\n");
        let node = laid(&base, "collections: {A: {schema: {type: object}}}\n");
        let collections = node.get("collections").unwrap();
        let a = collections.get("A").unwrap();
        assert!(a.get("group").is_none() && a.get("schema").unwrap().get("required").is_none());
        assert!(collections.get("B").is_some());
    }

    #[test]
    fn an_empty_section_changes_nothing() {
        let node = laid("server: {listen: a}\n", "server:\n");
        assert_eq!(text(node.get("server").unwrap().get("listen")), Some("a"));
    }

    fn variables(pairs: &[(&str, &str)]) -> (Vec<YamlNode>, Vec<String>) {
        let (nodes, findings) = environment(pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())));
        (nodes, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn two_underscores_are_one_step_inward() {
        let (nodes, findings) = variables(&[("FENCEPOST_SERVER__LIMITS__WAIT_MAX", "5s"), ("PATH", "/bin")]);
        assert_eq!(findings, [""; 0]);
        let limits = nodes[0].get("server").and_then(|node| node.get("limits")).unwrap();
        assert_eq!(text(limits.get("wait_max")), Some("5s"));
    }

    #[test]
    fn an_unknown_variable_is_refused_with_the_nearest_name() {
        let (_, findings) = variables(&[
            ("FENCEPOST_SERVR__LISTEN", "x"),
            ("FENCEPOST_TOKN", "x"),
            ("FENCEPOST_SCOPES__BOOKING__RETAIN", "1d"),
        ]);
        assert_eq!(findings.len(), 3);
        assert!(findings.iter().any(|f| f.contains("did you mean FENCEPOST_SERVER__LISTEN?")), "{findings:?}");
        assert!(findings.iter().any(|f| f.contains("did you mean FENCEPOST_TOKEN?")), "{findings:?}");
    }

    #[test]
    fn client_and_orchestrator_variables_are_left_alone() {
        let (nodes, findings) = variables(&[
            ("FENCEPOST_TOKEN", "fp_x"),
            ("FENCEPOST_URL", "http://x"),
            ("FENCEPOST_SERVICE_HOST", "10.0.0.1"),
            ("FENCEPOST_PORT_7411_TCP_ADDR", "10.0.0.1"),
        ]);
        assert!(nodes.is_empty() && findings.is_empty(), "{findings:?}");
    }
}
