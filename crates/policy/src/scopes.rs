//! Reads the `scopes` section into the kernel's scopes, and keeps the places that the lints point at.
//! Never judges a rule: a well-formed but unwise one is for `check`.
//! Called by `Policy::load`.

use fencepost_kernel::fence::scope::{self, BodyMismatch, OnLapse, RequiredDurability, Scope, VersionRule};

use super::duration;
use super::read::{Fields, Reader, Unread};
use super::settings::{GlobalSettings, Span};
use super::yaml::{Layer, Mark, YamlNode};

const KEYS: [&str; 14] = [
    "key",
    "retain",
    "lease",
    "lease_max",
    "on_lapse",
    "again",
    "horizon",
    "margin",
    "version",
    "source",
    "mask",
    "durability",
    "reject_on_body_mismatch",
    "allow_fields",
];

/// The fields that lints judge, by their names in `Unread`.
const LINTED: [&str; 9] = [
    "scope.key",
    "scope.retain",
    "scope.lease",
    "scope.lease_max",
    "scope.horizon",
    "scope.margin",
    "scope.durability",
    "scope.reject_on_body_mismatch",
    "scope.allow_fields",
];

/// The default retention of QUEUE_MESSAGE: messages wait on queues longer than requests are retried.
const QUEUE_RETAIN_MS: u64 = 14 * 24 * 3_600_000;

/// How much longer than its senders retry a scope must remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Margin {
    /// This many horizons more.
    Times(u64),
    /// This much time more, in milliseconds.
    Span(u64),
}

impl Margin {
    /// The shortest retention that is safe under this horizon, in milliseconds.
    pub fn retain_ms_min(self, horizon_ms: u64) -> u64 {
        match self {
            Self::Times(times) => horizon_ms.saturating_mul(times.saturating_add(1)),
            Self::Span(span) => horizon_ms.saturating_add(span),
        }
    }
}

/// A text and its place in the file.
#[derive(Clone, Debug)]
pub struct Marked {
    /// The text as written.
    pub text: String,
    /// Where it begins.
    pub mark: Mark,
}

/// A scope as read, with the places of its fields.
#[derive(Debug)]
pub struct ParsedScope {
    /// The scope as the kernel uses it.
    pub scope: Scope,
    /// The layer that it comes from.
    pub layer: Layer,
    /// Its key fields.
    pub key: Vec<Marked>,
    /// Where its retention was decided: its own `retain`, `stores.ttl`, or the scope.
    pub retain_mark: Mark,
    /// Set where `stores.ttl` of the same layer says another retention.
    pub ttl_overruled: Option<Span>,
    /// The place of `lease`.
    pub lease_mark: Mark,
    /// How much longer than the horizon it must remember.
    pub margin: Margin,
    /// The place of `again.seq`.
    pub again_mark: Option<Mark>,
    /// The version's field and then its `per` fields.
    pub version: Option<(Marked, Vec<Marked>)>,
    /// Where `durability` was asked for.
    pub durability_mark: Option<Mark>,
    /// Pointers under `mask`.
    pub mask: Vec<Marked>,
    /// Key fields that may look like a time or a random value, and why.
    pub allowed: Vec<(Marked, String)>,
    /// Its fields that could not be read, each as `scope.NAME`.
    pub unread: Unread,
}

/// The scope under which an event's publication is remembered.
pub const WES_DISPATCH: &str = "WES_DISPATCH";
/// The scope under which the gateway remembers the key that a signed delivery was let in under.
pub const SIGNED_DELIVERY: &str = "SIGNED_DELIVERY";
/// The scope under which the gateway remembers the digest of an answer that is too large to keep.
pub const ANSWER_DIGEST: &str = "ANSWER_DIGEST";

/// The scope under which a partner's ingest request is remembered.
pub const WMS_INGEST: &str = "WMS_INGEST";

/// Whether only Fencepost itself seals a scope. It trusts the receipts there, so no caller and no rule may write them.
pub fn is_own(scope: &str) -> bool {
    [WES_DISPATCH, WMS_INGEST, SIGNED_DELIVERY, ANSWER_DIGEST].contains(&scope)
}

/// Every scope of the merged tree.
pub fn read(reader: &mut Reader, node: &YamlNode, settings: &GlobalSettings) -> Option<Vec<ParsedScope>> {
    let entries = reader.entries(node, "`scopes`")?;
    let read = entries
        .iter()
        .map(|entry| {
            if !name_fits(&entry.key) {
                let message = format!("`{}` cannot name a scope", entry.key);
                reader.error(&entry.mark, "scope-name", message, "use up to 64 letters, digits, `_`, `-` and `.`");
            }
            scope(reader, &entry.key, &entry.mark, &entry.value, settings)
        })
        .collect();
    Some(read)
}

/// Names go into metrics, logs and query strings: only letters, digits, `_`, `-` and `.` are allowed.
fn name_fits(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn scope(reader: &mut Reader, name: &str, mark: &Mark, node: &YamlNode, settings: &GlobalSettings) -> ParsedScope {
    let mut unread = Unread::new();
    let un = &mut unread;
    let fields = reader.fields(node, format!("scope {name}"), &KEYS).unwrap_or_else(|| {
        un.extend(LINTED);
        Fields::none(&node.mark, name)
    });
    let key = reader.noting("scope.key", un, |reader| match fields.get("key") {
        Some(node) => marked_texts(reader, node, "`key`"),
        None => Vec::new(),
    });
    if key.is_empty() && !un.contains("scope.key") {
        let message = format!("scope {name} has no key fields");
        reader.error(mark, "no-key", message, "list what makes the effect unique: `key: [caseUrn, groupId]`");
        un.insert("scope.key");
    }
    let mut scope = Scope::new(name, key.iter().map(|field| field.text.clone()));

    let own = span(reader, &fields, "retain", "scope.retain", un);
    let own = own.and_then(|ms| Some(Span { ms, mark: fields.get("retain")?.mark.clone() }));
    let (retain, ttl_overruled) = retention(name, own, settings);
    scope.retain_ms = retain.as_ref().map_or_else(
        || if name == "QUEUE_MESSAGE" { QUEUE_RETAIN_MS } else { scope::RETAIN_MS_DEFAULT },
        |span| span.ms,
    );

    if let Some(ms) = span(reader, &fields, "lease_max", "scope.lease_max", un) {
        scope.lease_ms_max = ms;
        // A scope that only lowers the maximum means its default lease too.
        scope.lease_ms = scope.lease_ms.min(ms);
    }
    if let Some(ms) = span(reader, &fields, "lease", "scope.lease", un) {
        scope.lease_ms = ms;
    }
    if let Some(node) = fields.get("on_lapse") {
        let words = [("recover", OnLapse::Recover), ("hold", OnLapse::Hold)];
        scope.on_lapse = reader.word(node, "`on_lapse`", &words).unwrap_or_default();
    }
    let again_mark = fields.get("again").and_then(|node| {
        let again = reader.fields(node, "`again`", &["seq"])?;
        let Some(seq) = again.get("seq") else {
            reader.error(&node.mark, "no-sequence", "`again` names no sequence", "write `again: { seq: resendSeq }`");
            return None;
        };
        scope.again = Some(reader.text(seq, "`seq`")?);
        Some(seq.mark.clone())
    });
    scope.horizon_ms = span(reader, &fields, "horizon", "scope.horizon", un);
    let margin = reader.noting("scope.margin", un, |reader| read_margin(reader, fields.get("margin")?));
    let margin = margin.unwrap_or(Margin::Times(2));
    let version = fields.get("version").and_then(|node| read_version(reader, node));
    scope.version = version.as_ref().map(|(field, per)| VersionRule {
        field: field.text.clone(),
        per: per.iter().map(|field| field.text.clone()).collect(),
    });
    scope.source = fields.get("source").and_then(|node| reader.text(node, "`source`"));
    let mask = fields.get("mask").map(|node| marked_texts(reader, node, "`mask`")).unwrap_or_default();
    scope.mask = mask.iter().map(|pointer| pointer.text.clone()).collect();

    let durability_mark = reader.noting("scope.durability", un, |reader| {
        let node = fields.get("durability")?;
        let words = [("synced", RequiredDurability::Synced), ("store", RequiredDurability::Store)];
        scope.durability = reader.word(node, "`durability`", &words)?;
        Some(node.mark.clone())
    });
    let reject = reader.noting("scope.reject_on_body_mismatch", un, |reader| {
        reader.boolean(fields.get("reject_on_body_mismatch")?, "`reject_on_body_mismatch`")
    });
    let reject = reject.unwrap_or(settings.reject_on_body_mismatch);
    scope.body_mismatch = if reject { BodyMismatch::Refuse } else { BodyMismatch::Replay };

    let allowed = reader.noting("scope.allow_fields", un, |reader| {
        fields.get("allow_fields").map(|node| read_allowed(reader, node)).unwrap_or_default()
    });
    ParsedScope {
        retain_mark: retain.map_or_else(|| mark.clone(), |span| span.mark),
        lease_mark: fields.mark_of("lease").clone(),
        layer: mark.source.layer,
        scope,
        key,
        ttl_overruled,
        margin,
        again_mark,
        version,
        durability_mark,
        mask,
        allowed,
        unread,
    }
}

fn span(reader: &mut Reader, fields: &Fields<'_>, name: &str, noted: &'static str, unread: &mut Unread) -> Option<u64> {
    reader.noting(noted, unread, |reader| reader.duration(fields.get(name)?, &format!("`{name}`")))
}

/// The retention, and a `stores.ttl` that it overrules. A later layer wins; within one, the scope's own `retain` does.
fn retention(name: &str, own: Option<Span>, settings: &GlobalSettings) -> (Option<Span>, Option<Span>) {
    let ttl = match name {
        "WEBHOOK" => settings.stores.ttl.webhook.clone(),
        "API_WRITE" => settings.stores.ttl.api.clone(),
        "BATCH_JOB" => settings.stores.ttl.batch.clone(),
        _ => return (own, None),
    };
    match own {
        Some(own) if own.mark.source.layer >= ttl.mark.source.layer => {
            let same_layer = own.mark.source.layer == ttl.mark.source.layer && ttl.mark.source.layer == Layer::File;
            let overruled = (same_layer && ttl.ms != own.ms).then_some(ttl);
            (Some(own), overruled)
        }
        _ => (Some(ttl), None),
    }
}

fn marked_texts(reader: &mut Reader, node: &YamlNode, what: &str) -> Vec<Marked> {
    let mut texts: Vec<Marked> = Vec::new();
    for item in reader.items(node, what).unwrap_or_default() {
        let Some(text) = reader.text(item, &format!("each of {what}")) else { continue };
        if texts.iter().any(|earlier| earlier.text == text) {
            reader.error(&item.mark, "duplicate", format!("`{text}` stands twice in {what}"), "keep one");
        } else {
            texts.push(Marked { text, mark: item.mark.clone() });
        }
    }
    texts
}

fn read_margin(reader: &mut Reader, node: &YamlNode) -> Option<Margin> {
    let text = reader.text(node, "`margin`")?;
    let times = text.strip_suffix('x').and_then(|times| times.parse().ok()).map(Margin::Times);
    let parsed = times.map_or_else(|| duration::parse(&text).map(Margin::Span), Ok);
    reader.accept(node, "`margin`", parsed, "write horizons, as in 2x, or a span, as in 12h")
}

fn read_version(reader: &mut Reader, node: &YamlNode) -> Option<(Marked, Vec<Marked>)> {
    let fields = reader.fields(node, "`version`", &["field", "per"])?;
    let per = fields.get("per").map(|node| marked_texts(reader, node, "`per`")).unwrap_or_default();
    let Some(field) = fields.get("field") else {
        let fix = "write `version: { field: event_version, per: [provider] }`";
        reader.error(&node.mark, "no-version-field", "`version` names no field", fix);
        return None;
    };
    let text = reader.text(field, "`field`")?;
    Some((Marked { text, mark: field.mark.clone() }, per))
}

fn read_allowed(reader: &mut Reader, node: &YamlNode) -> Vec<(Marked, String)> {
    let entries = reader.entries(node, "`allow_fields`").unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| {
            let reason = reader.text(&entry.value, &format!("the reason to allow `{}`", entry.key))?;
            Some((Marked { text: entry.key.clone(), mark: entry.mark.clone() }, reason))
        })
        .collect()
}
