//! The policy: one file with the effects, the callers, and the server's limits.
//! Never serves what `check` refuses: reading and linting are one step, and an error yields no policy.
//! Called by the command line, and by programs that embed the library.
//!
//! Layers, later over earlier: `defaults.yml` and `contracts/` (both built in), the user's file,
//! `FENCEPOST_` variables. They are laid over each other as trees and read once.

pub mod answers;
pub mod callers;
pub mod changes;
pub mod check;
pub mod collections;
pub mod config;
pub mod credentials;
pub mod dispatch;
pub mod duration;
pub mod egress;
pub mod finding;
pub mod formats;
pub mod gateway;
pub mod identity;
pub mod ingest;
pub mod near;
pub mod network;
pub mod pattern;
pub mod routes;
pub mod rules;
pub mod server;
pub mod settings;
pub mod signature;

mod directory;
mod fit;
mod holders;
mod layers;
mod names;
mod read;
mod scopes;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencepost_kernel::Scope;

pub use finding::{Finding, Severity};
pub use holders::{instant, instant_text};
pub use layers::CLIENT_VARIABLES;
pub use scopes::{ANSWER_DIGEST, SIGNED_DELIVERY, WES_DISPATCH, WMS_INGEST, is_own};
pub use server::ServerSettings;
pub use yaml::{Layer, Mark, PolicyText};

use collections::Collections;
use identity::{Holder, Sha};
use read::Reader;
use routes::GatewayRule;
use settings::GlobalSettings;
use yaml::YamlNode;

pub use fit::NoScope;

/// The default configuration: every key, with a comment each.
pub const DEFAULTS: &str = include_str!("defaults.yml");

/// The contracts whose scopes and collections are built in, by file name.
pub const CONTRACTS: [(&str, &str); 5] = [
    ("contracts/gateway.yml", include_str!("../../../contracts/gateway.yml")),
    ("contracts/nexa.yml", include_str!("../../../contracts/nexa.yml")),
    ("contracts/opsdeploy.yml", include_str!("../../../contracts/opsdeploy.yml")),
    ("contracts/wes.yml", include_str!("../../../contracts/wes.yml")),
    ("contracts/wms-ingest.yml", include_str!("../../../contracts/wms-ingest.yml")),
];

/// Every section of a policy file.
const SECTIONS: [&str; 16] = [
    "require_headers",
    "reject_on_body_mismatch",
    "stores",
    "logging",
    "on_conflict",
    "audit_retention",
    "scopes",
    "routes",
    "identities",
    "collections",
    "warehouses",
    "retention",
    "server",
    "dispatch",
    "gateway",
    "ingest",
];

/// Sections of a contract that are built in. Its others count when a user names its file.
const BUILT_IN: [&str; 2] = ["scopes", "collections"];

/// Sections that are part of the format, and that this release does not serve: it refuses them.
const UNSERVED: [&str; 2] = ["warehouses", "retention"];

/// A policy that passed every check.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Headers that a write through the gateway must carry.
    pub require_headers: Vec<String>,
    /// Whether another body under a known key is refused, where a scope does not say.
    pub reject_on_body_mismatch: bool,
    /// Where fences are kept, and how long.
    pub stores: settings::Stores,
    pub logging: settings::Logging,
    /// The gateway's answer to a conflict.
    pub on_conflict: settings::OnConflict,
    /// How long an act of an operator stays in the audit, in milliseconds.
    pub audit_retention_ms: u64,
    /// Every scope by its name: the user's, and the built-in ones that it did not replace.
    pub scopes: BTreeMap<String, Arc<Scope>>,
    /// The names among them that are built in.
    pub built_in: BTreeSet<String>,
    /// Built-in scopes that the store at hand cannot carry, and why.
    pub unfit: BTreeMap<String, String>,
    pub routes: Vec<GatewayRule>,
    /// The kinds of items that partners may send: the user's, and the built-in ones that it did not replace.
    pub collections: Arc<Collections>,
    /// Callers, with the hashes of their tokens.
    pub identities: Vec<Holder>,
    /// The server's addresses and limits.
    pub server: ServerSettings,
    /// How events leave.
    pub dispatch: dispatch::DispatchSettings,
    /// Limits of the gateway.
    pub gateway: gateway::GatewaySettings,
    /// Limits of ingest, and what its quarantine does by itself.
    pub ingest: ingest::IngestSettings,
    /// Warnings and notes; never an error.
    pub findings: Vec<Finding>,
    /// The hash of the file's text, where there is a file.
    pub sha256: Option<Sha>,
}

impl Policy {
    /// The built-in scopes and defaults; no identities, no routes.
    pub fn builtin() -> Self {
        Self::load(None, []).unwrap_or_else(|findings| {
            // INVARIANT builtin-passes: a test checks that the built-in policy passes its own check.
            panic!("the built-in policy is broken:\n{}", finding::human(&findings))
        })
    }

    /// A file laid over the built-in policy.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Vec<Finding>> {
        Self::load(Some((file_name, text)), [])
    }

    /// A file, where there is one, and then the `FENCEPOST_` variables among those given, laid over the built-in
    /// policy. Every error found is returned, not only the first.
    pub fn load(
        file: Option<(&str, &str)>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Vec<Finding>> {
        let (policy, findings) = read_layers(file, variables);
        let sha256 = file.map(|(_, text)| Sha::of(text));
        match policy {
            Some(policy) if !finding::has_errors(&findings) => Ok(Self { findings, sha256, ..policy }),
            _ => Err(findings),
        }
    }
}

/// Reads and lints all layers. The policy is there where its shape could be understood.
fn read_layers(
    file: Option<(&str, &str)>,
    variables: impl IntoIterator<Item = (String, String)>,
) -> (Option<Policy>, Vec<Finding>) {
    let mut reader = Reader::default();
    let Some(mut tree) = parse_layer(&mut reader, Layer::Defaults, "defaults.yml", DEFAULTS) else {
        return (None, reader.findings);
    };
    for (name, text) in CONTRACTS {
        if let Some(mut contract) = parse_layer(&mut reader, Layer::Contracts, name, text) {
            if let yaml::YamlValue::Map(entries) = &mut contract.value {
                entries.retain(|entry| BUILT_IN.contains(&entry.key.as_str()));
            }
            layers::overlay(&mut tree, contract);
        }
    }
    if let Some((name, text)) = file {
        match parse_layer(&mut reader, Layer::File, name, text) {
            Some(over) if reader.entries(&over, "a policy").is_some() => layers::overlay(&mut tree, over),
            _ => return (None, reader.findings),
        }
    }
    let (nodes, unknown) = layers::environment(variables);
    reader.findings.extend(unknown);
    nodes.into_iter().for_each(|node| layers::overlay(&mut tree, node));
    let policy = read_tree(&mut reader, &tree);
    let mut findings = reader.findings;
    // In the order of the file, errors before notes on one line; findings without a line come last.
    findings.sort_by_key(|f| (f.line == 0, f.line, f.col, f.severity));
    findings.dedup();
    (policy, findings)
}

fn parse_layer(reader: &mut Reader, layer: Layer, name: &str, text: &str) -> Option<YamlNode> {
    let source = Arc::new(PolicyText { name: name.into(), layer });
    let (tree, findings) = yaml::parse(&source, text);
    reader.findings.extend(findings);
    tree
}

fn read_tree(reader: &mut Reader, tree: &YamlNode) -> Option<Policy> {
    let root = reader.fields(tree, "a policy", &SECTIONS)?;
    let server = root.get("server").and_then(|node| server::read(reader, node));
    let dispatch = root.get("dispatch").and_then(|node| dispatch::read(reader, node));
    let gateway = root.get("gateway").and_then(|node| gateway::read(reader, node));
    let routes = routes::read(reader, root.get("routes"));
    let (routes, unread_routes): (Vec<GatewayRule>, Vec<_>) =
        routes.into_iter().map(|read| (read.route, read.unread)).unzip();
    let ingest = root.get("ingest").and_then(|node| ingest::read(reader, node));
    let collections = root.get("collections").map(|node| collections::read(reader, node)).unwrap_or_default();
    let identities = root.get("identities").map(|node| holders::read(reader, node)).unwrap_or_default();
    let mut unread = read::Unread::new();
    // Where a setting is wrong, scopes are still read under its default: one run shows every mistake.
    let settings = settings::read(reader, &root, &mut unread, default_settings)?;
    let scopes = root.get("scopes").map_or(Some(Vec::new()), |node| scopes::read(reader, node, &settings));
    let scopes = scopes.unwrap_or_else(|| {
        unread.insert("scopes");
        Vec::new()
    });
    let seen = check::Understood {
        settings: &settings,
        scopes: &scopes,
        routes: &routes,
        unread_routes: &unread_routes,
        unread: &unread,
        identities: &identities,
        collections: &collections,
        ingest: ingest.as_ref(),
        listen: server.as_ref().map(|server| server.listen),
        timeout: gateway.as_ref().map(|gateway| gateway.timeout),
    };
    check::lint(&mut reader.findings, &seen);
    reader.findings.extend(unserved(&root));
    Some(Policy {
        require_headers: settings.require_headers,
        reject_on_body_mismatch: settings.reject_on_body_mismatch,
        stores: settings.stores,
        logging: settings.logging,
        on_conflict: settings.on_conflict,
        audit_retention_ms: settings.audit_retention_ms,
        built_in: scopes
            .iter()
            .filter(|read| read.layer == Layer::Contracts)
            .map(|read| read.scope.name.to_string())
            .collect(),
        unfit: BTreeMap::new(),
        scopes: scopes.into_iter().map(|read| (read.scope.name.to_string(), Arc::new(read.scope))).collect(),
        routes,
        collections: Arc::new(Collections::of(collections)),
        identities: identities.into_iter().map(|read| read.holder).collect(),
        server: server?,
        dispatch: dispatch?,
        gateway: gateway?,
        ingest: ingest?.settings,
        findings: Vec::new(),
        sha256: None,
    })
}

fn default_settings() -> Option<GlobalSettings> {
    let mut reader = Reader::default();
    let tree = parse_layer(&mut reader, Layer::Defaults, "defaults.yml", DEFAULTS)?;
    let root = reader.fields(&tree, "a policy", &SECTIONS)?;
    settings::read(&mut reader, &root, &mut read::Unread::new(), || None)
}

fn unserved(root: &read::Fields<'_>) -> Vec<Finding> {
    let refused = |section: &str| {
        let message = format!("this release does not serve `{section}`");
        let fix = format!("remove `{section}`, or keep it in a file of its own until a release serves it");
        root.mark_of(section).finding(Severity::Error, "unserved", message, Some(fix))
    };
    UNSERVED.iter().filter(|name| root.get(name).is_some()).map(|name| refused(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
