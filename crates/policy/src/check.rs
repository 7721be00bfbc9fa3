//! Lints a policy: finds settings that are well-formed and would still let an effect happen twice, or never.
//! Never reads text itself: it judges what the section readers understood.
//! Called by `Policy::load`, so that no server runs a policy that `fencepost check` refuses.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_kernel::fence::scope::{PER_SOURCE, RequiredDurability};

use super::collections::ParsedCollection;
use super::duration;
use super::finding::{Finding, Severity};
use super::holders;
use super::identity::{Role, Warehouses};
use super::ingest::ParsedIngest;
use super::names::{self, Looks};
use super::read::{Unread, nearest};
use super::routes::{GatewayRule, is_pointer};
use super::scopes::{Marked, ParsedScope, WMS_INGEST};
use super::settings::{FenceStore, GlobalSettings};
use super::yaml::{Layer, Mark};

mod answers;
mod callers;
mod collections;
mod hooks;
mod ingest;
mod routes;
mod schema;

pub(super) use routes::loops;

/// Every finding about a policy file. The file passes where none is an error.
pub fn check(file: &str, text: &str) -> Vec<Finding> {
    super::read_layers(Some((file, text)), []).1
}

/// Collects the findings of the lints.
struct Lints<'a> {
    findings: &'a mut Vec<Finding>,
    /// The fields that could not be read, of the item that is being judged.
    unread: Unread,
}

/// The fields that a lint depends on beside its own. Where one of these could not be read, the lint is silent: it would
/// judge a default that the user did not write.
fn rests_on(rule: &str) -> &'static [&'static str] {
    match rule {
        "time-in-key" | "random-in-key" | "bucket-in-key" => &["scope.allow_fields"],
        "allow-unused" | "version-not-in-key" | "key-too-much" => &["scope.key"],
        "short-retention" => &["scope.retain", "scope.horizon", "scope.margin", "stores"],
        "unusual-retention" | "long-retention" => &["scope.retain", "scope.horizon", "stores"],
        "lease-over-max" => &["scope.lease", "scope.lease_max"],
        "durability" | "store-url" => &["stores"],
        "quarantine-retention" => &["scope.retain", "stores"],
        "own-scope-key" => &["scope.key"],
        "unknown-scope" => &["scope", "scopes"],
        "key-incomplete" => &["key", "scope.key"],
        "lease-under-timeout" => &["timeout", "scope.lease", "scope.lease_max"],
        "path-name" | "constant-key" | "unreachable-route" | "overlapping-routes" => &["match"],
        "order-without-source" => &["source"],
        "tenant-without-verify" | "ack-without-verify" => &["verify"],
        "header-not-required" => &["require_headers", "verify", "match"],
        "ack-before-seal" => &["on_error", "replay", "scope.durability", "stores"],
        "seal-on-error" => &["replay"],
        "no-tenant" => &["tenant", "scope", "key", "origins"],
        "no-principal" => &["callers", "verify", "key", "origins", "require_headers"],
        "principal-not-compared" => &["scope.reject_on_body_mismatch", "reject_on_body_mismatch"],
        "no-credential" => &["credentials"],
        "no-warehouse" => &["roles", "warehouses"],
        "no-planner" => &["roles", "planners"],
        _ => &[],
    }
}

impl Lints<'_> {
    fn say(&mut self, severity: Severity, mark: &Mark, rule: &'static str, message: String, fix: impl Into<String>) {
        if rests_on(rule).iter().any(|field| self.unread.contains(field)) {
            return;
        }
        // A user cannot act on a warning about a built-in scope. Our tests see these: they check contracts as files.
        if severity == Severity::Error || mark.source.layer > Layer::Contracts {
            self.findings.push(mark.finding(severity, rule, message, Some(fix.into())));
        }
    }

    fn error(&mut self, mark: &Mark, rule: &'static str, message: String, fix: impl Into<String>) {
        self.say(Severity::Error, mark, rule, message, fix);
    }

    fn warning(&mut self, mark: &Mark, rule: &'static str, message: String, fix: impl Into<String>) {
        self.say(Severity::Warning, mark, rule, message, fix);
    }
}

/// The sections of a policy, as far as they could be read.
pub(super) struct Understood<'a> {
    pub settings: &'a GlobalSettings,
    pub scopes: &'a [ParsedScope],
    pub routes: &'a [GatewayRule],
    /// The fields of each route that could not be read.
    pub unread_routes: &'a [Unread],
    pub identities: &'a [holders::ParsedIdentity],
    pub collections: &'a [ParsedCollection<'a>],
    /// The `ingest` section, if it could be read.
    pub ingest: Option<&'a ParsedIngest>,
    /// The sections that could not be read.
    pub unread: &'a Unread,
    /// Where the server listens, if that could be read.
    pub listen: Option<SocketAddr>,
    /// The longest silence of an upstream whose route does not say, if that could be read.
    pub timeout: Option<Duration>,
}

impl Understood<'_> {
    // The fields that could not be read: of a route, of its scope, and of the policy as a whole.
    fn unread_of(&self, index: usize) -> Unread {
        let scope = self.scopes.iter().find(|read| *read.scope.name == *self.routes[index].scope);
        let scope = scope.iter().flat_map(|read| &read.unread);
        self.unread.iter().chain(&self.unread_routes[index]).chain(scope).copied().collect()
    }
}

/// Runs every lint.
pub(super) fn lint(findings: &mut Vec<Finding>, understood: &Understood<'_>) {
    let mut lints = Lints { findings, unread: understood.unread.clone() };
    store(&mut lints, understood.settings);
    for scope in understood.scopes {
        lints.unread = understood.unread | &scope.unread;
        key_fields(&mut lints, scope);
        retention(&mut lints, scope);
        rules(&mut lints, scope, understood.settings);
        if *scope.scope.name == *WMS_INGEST {
            ingest::lint(&mut lints, scope, understood.ingest);
        }
    }
    routes::lint(&mut lints, understood);
    hooks::lint(&mut lints, understood);
    callers::lint(&mut lints, understood);
    answers::lint(&mut lints, understood);
    collections::lint(&mut lints, understood);
    for read in understood.identities {
        lints.unread = read.unread.clone();
        identity(&mut lints, read);
    }
}

fn store(lints: &mut Lints<'_>, settings: &GlobalSettings) {
    let stores = &settings.stores;
    let scheme = match stores.fence {
        FenceStore::Embedded => return,
        FenceStore::Postgres => "postgres",
        FenceStore::Redis => "redis",
    };
    if stores.url.is_none() {
        let message = format!("`fence: {scheme}` names no address");
        let fix = format!("start with `fencepost serve --store {scheme}://host:port`, or add `url` beside `fence`");
        lints.say(Severity::Note, &stores.fence_mark, "store-url", message, fix);
    }
}

fn key_fields(lints: &mut Lints<'_>, read: &ParsedScope) {
    let name = &read.scope.name;
    let allowed = |field: &str| read.allowed.iter().any(|(allowed, _)| allowed.text == field);
    for field in &read.key {
        // The lookup takes key fields as query parameters, where these two names have a meaning already.
        if ["tenant", "scope"].contains(&field.text.as_str()) {
            let message = format!("`{}` cannot be a key field: tenant and scope are part of every key", field.text);
            lints.error(&field.mark, "reserved-field", message, "remove it, or give it another name");
        }
        if !allowed(&field.text) {
            suspicious(lints, &field.text, &field.text, name, &field.mark);
        }
    }
    for (field, _) in &read.allowed {
        if !read.key.iter().any(|key| key.text == field.text) {
            let message = format!("`allow_fields` allows `{}`, which is no key field of {name}", field.text);
            lints.warning(&field.mark, "allow-unused", message, "remove it, or correct its name");
        }
    }
    if let (Some(seq), Some(mark)) = (&read.scope.again, &read.again_mark)
        && (read.scope.key.contains(seq) || ["tenant", "scope"].contains(&seq.as_str()))
    {
        let message = format!("the sequence `{seq}` of {name} is also a name in its key");
        lints.error(
            mark,
            "again-in-key",
            message,
            "remove it from `key`: Fencepost adds it for deliberate repetitions",
        );
    }
}

fn suspicious(lints: &mut Lints<'_>, name: &str, field: &str, scope: &str, mark: &Mark) {
    let allow = format!("or say why it is stable: `allow_fields: {{ {field}: reason }}` in scope {scope}");
    match names::look(name) {
        Looks::Fine => {}
        Looks::Time => {
            let message = format!("`{name}` looks like a time: a retry would carry another, and run again");
            lints.error(mark, "time-in-key", message, format!("use what the sender keeps over its retries, {allow}"));
        }
        Looks::Random => {
            let message = format!("`{name}` looks like a value made anew for each try: no retry would be recognised");
            lints.error(
                mark,
                "random-in-key",
                message,
                format!("use an id that the sender keeps over its retries, {allow}"),
            );
        }
        Looks::Bucket => {
            let message = format!("`{name}` looks like a rounded time: a retry past its boundary runs again");
            lints.warning(mark, "bucket-in-key", message, format!("use an id that the sender keeps, {allow}"));
        }
    }
}

fn retention(lints: &mut Lints<'_>, read: &ParsedScope) {
    let scope = &read.scope;
    let (name, retain) = (&scope.name, duration::display(scope.retain_ms));
    if let Some(horizon_ms) = scope.horizon_ms {
        let least = read.margin.retain_ms_min(horizon_ms);
        if scope.retain_ms < least {
            let horizon = duration::display(horizon_ms);
            let least = duration::display(least);
            let message =
                format!("{name} forgets after {retain}, but its senders retry for {horizon}: {least} is the least");
            let fix = format!("set `retain: {least}` or more, or state a smaller `margin` (default 2x the horizon)");
            lints.error(&read.retain_mark, "short-retention", message, fix);
        }
    }
    usual_retention(lints, read);
    if let Some(ttl) = &read.ttl_overruled {
        let other = duration::display(ttl.ms);
        let message = format!("`stores.ttl` keeps {name} for {other}, but the scope says {retain}: the scope counts");
        lints.warning(&ttl.mark, "two-retentions", message, "say it in one place");
    }
}

const DAY_MS: u64 = 24 * 3_600_000;

/// Compares three built-in scopes with the retention that is usual for them. A declared horizon is better knowledge,
/// but the horizon of BATCH_JOB is its run, after which it may be run again for a day.
fn usual_retention(lints: &mut Lints<'_>, read: &ParsedScope) {
    let scope = &read.scope;
    let (name, retain) = (&scope.name, duration::display(scope.retain_ms));
    let (least, most, why) = match (name.as_ref(), scope.horizon_ms) {
        ("WEBHOOK", None) => (7 * DAY_MS, 14 * DAY_MS, "webhook providers retry for days: 7 to 14 days are usual"),
        ("API_WRITE", None) => (DAY_MS, 3 * DAY_MS, "clients retry for a day or more: 24 to 72 hours are usual"),
        ("BATCH_JOB", run_ms) => {
            let why = "a batch is run again within a day of its end: its run plus one day is usual";
            (run_ms.unwrap_or(DAY_MS).saturating_add(DAY_MS), u64::MAX, why)
        }
        _ => return,
    };
    if scope.retain_ms < least {
        let message = format!("{name} forgets after {retain}; {why}");
        let or = if scope.horizon_ms.is_none() { ", or declare `horizon`" } else { "" };
        let fix = format!("keep it for at least {}{or}", duration::display(least));
        lints.warning(&read.retain_mark, "unusual-retention", message, fix);
    }
    if scope.retain_ms > most {
        let message = format!("{name} is kept for {retain}; {why}");
        let fix = format!("{} are enough; declare `horizon` where senders retry for longer", duration::display(most));
        lints.say(Severity::Note, &read.retain_mark, "long-retention", message, fix);
    }
}

fn rules(lints: &mut Lints<'_>, read: &ParsedScope, settings: &GlobalSettings) {
    let scope = &read.scope;
    let name = &scope.name;
    if scope.lease_ms > scope.lease_ms_max {
        let (lease, most) = (duration::display(scope.lease_ms), duration::display(scope.lease_ms_max));
        let message = format!("{name} leases for {lease} by default, over its own `lease_max` of {most}");
        lints.error(&read.lease_mark, "lease-over-max", message, "lower `lease`, or raise `lease_max`");
    }
    if let Some((field, per)) = &read.version {
        for (marked, role) in per.iter().map(|marked| (marked, "per")).chain([(field, "field")]) {
            let source = role == "per" && marked.text == PER_SOURCE;
            if !source && !scope.key.contains(&marked.text) {
                let message = format!("version `{role}` names `{}`, which is no key field of {name}", marked.text);
                lints.error(&marked.mark, "version-not-in-key", message, near(&marked.text, &scope.key));
            }
        }
        if let Some(Marked { mark, text }) = per.iter().find(|per| per.text == field.text) {
            let message =
                format!("`{text}` is the version itself: with it in `per`, no two versions would be compared");
            lints.error(mark, "version-per-itself", message, "remove it from `per`");
        }
    }
    for pointer in read.mask.iter().filter(|pointer| !is_pointer(&pointer.text) || pointer.text.is_empty()) {
        let message = format!("`{}` is not a JSON pointer", pointer.text);
        lints.error(&pointer.mark, "mask-pointer", message, "write it with a slash for each step: /card/number");
    }
    if let Some(mark) = &read.durability_mark
        && settings.stores.fence == FenceStore::Redis
        && scope.durability == RequiredDurability::Synced
    {
        let message = format!("{name} asks for `durability: synced`: `serve` refuses a Redis that syncs later");
        lints.say(
            Severity::Note,
            mark,
            "durability",
            message,
            "run Redis with `appendonly yes` and `appendfsync always`",
        );
    }
}

fn near(name: &str, known: &[String]) -> String {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    match nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", names.join(", ")),
    }
}

fn identity(lints: &mut Lints<'_>, holders::ParsedIdentity { holder, mark, .. }: &holders::ParsedIdentity) {
    let identity = &holder.identity;
    if holder.tokens.is_empty() && holder.certificates.is_empty() {
        let message = format!("{} has no credential here", identity.id);
        let fix = format!("run `fencepost credential create {}`, or add the hash of a token", identity.id);
        lints.say(Severity::Note, mark, "no-credential", message, fix);
    }
    let nowhere = matches!(&identity.warehouses, Warehouses::Named(named) if named.is_empty());
    if nowhere && (identity.has(Role::Planner) || identity.has(Role::Executor)) {
        let message = format!("{} is a planner or executor without a warehouse, and can act in none", identity.id);
        lints.warning(mark, "no-warehouse", message, "list its `warehouses`, or write `warehouses: all`");
    }
    if identity.has(Role::Executor) && identity.planners.is_empty() {
        let message = format!("{} is an executor that serves no planner: nobody may send it events", identity.id);
        lints.warning(mark, "no-planner", message, "list its `planners`");
    }
}
