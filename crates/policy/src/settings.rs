//! Reads the parts of the policy that apply to every scope: headers, stores, logging, conflicts.
//! Never fills in a value of its own: defaults.yml is laid under every file, so each has one.
//! Called by `Policy::load`.

use std::time::Duration;

use super::read::{Fields, Reader, Unread};
use super::yaml::{Mark, YamlNode};

/// Where fences are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FenceStore {
    /// A directory on this machine.
    Embedded,
    /// A PostgreSQL database.
    Postgres,
    /// A Redis server or cluster.
    Redis,
}

/// A span of time and where it was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its length in milliseconds.
    pub ms: u64,
    /// The place of the setting.
    pub mark: Mark,
}

/// `stores.ttl`: the retention of three built-in scopes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ttl {
    /// `webhook_days`: scope WEBHOOK.
    pub webhook: Span,
    /// `api_hours`: scope API_WRITE.
    pub api: Span,
    /// `batch_days`: scope BATCH_JOB.
    pub batch: Span,
}

/// The `stores` section.
#[derive(Clone, PartialEq, Eq)]
pub struct Stores {
    /// Where fences are kept.
    pub fence: FenceStore,
    /// The place of `fence`.
    pub fence_mark: Mark,
    /// Its address, for the stores that have one.
    pub url: Option<String>,
    /// Retention of WEBHOOK, API_WRITE and BATCH_JOB.
    pub ttl: Ttl,
    /// How long the outcome of an effect is told to a store that does not answer, while a caller waits for it.
    pub settle_for: Duration,
}

// An address may carry a password, and a policy may be shown for debugging.
impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stores({:?}, {:?})", self.fence, self.ttl)
    }
}

/// The `on_conflict` section: the gateway's answer to another body under a known key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnConflict {
    /// 409, or 422 as in the IETF draft on `Idempotency-Key`.
    pub status: u16,
    /// Whether the answer carries the diff.
    pub include_diff: bool,
}

/// The `logging` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logging {
    /// The fields that every decision's log line carries.
    pub include_fields: Vec<String>,
}

/// Everything that applies to all scopes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalSettings {
    /// Headers that a write through the gateway must carry.
    pub require_headers: Vec<String>,
    /// Whether another body under a known key is refused, where the scope does not say.
    pub reject_on_body_mismatch: bool,
    /// Where fences are kept, and how long.
    pub stores: Stores,
    /// The contents of a decision's log line.
    pub logging: Logging,
    /// The gateway's answer to a conflict.
    pub on_conflict: OnConflict,
    /// How long an act of an operator stays in the audit, in milliseconds.
    pub audit_retention_ms: u64,
}

/// The fields that a decision's log line can carry.
pub const LOG_FIELDS: [&str; 10] = [
    "idempotency_key",
    "decision",
    "effect_id",
    "source_type",
    "source_id",
    "tenant",
    "trace_id",
    "scope",
    "attempt",
    "token",
];

const DAY_MS: u64 = 24 * 3_600_000;

/// Reads the settings of the merged tree. `fallback` replaces one that could not be read, so that all else is still
/// judged; `None` only where there is no fallback either.
pub fn read(
    reader: &mut Reader,
    root: &Fields<'_>,
    unread: &mut Unread,
    fallback: fn() -> Option<GlobalSettings>,
) -> Option<GlobalSettings> {
    let stores = reader.field(root, "stores", unread, stores);
    let headers = reader.field(root, "require_headers", unread, headers);
    let logging = reader.field(root, "logging", unread, logging);
    let on_conflict = reader.field(root, "on_conflict", unread, on_conflict);
    let audit =
        reader.field(root, "audit_retention", unread, |reader, node| reader.duration(node, "`audit_retention`"));
    let reject = reader.field(root, "reject_on_body_mismatch", unread, |reader, node| {
        reader.boolean(node, "`reject_on_body_mismatch`")
    });
    Some(GlobalSettings {
        require_headers: headers.or_else(|| Some(fallback()?.require_headers))?,
        reject_on_body_mismatch: reject.or_else(|| Some(fallback()?.reject_on_body_mismatch))?,
        stores: stores.or_else(|| Some(fallback()?.stores))?,
        logging: logging.or_else(|| Some(fallback()?.logging))?,
        on_conflict: on_conflict.or_else(|| Some(fallback()?.on_conflict))?,
        audit_retention_ms: audit.or_else(|| Some(fallback()?.audit_retention_ms))?,
    })
}

/// Headers that belong to the connection, or that HTTP software sets itself.
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the names of headers, each of which a client must be able to send.
pub fn headers(reader: &mut Reader, node: &YamlNode) -> Option<Vec<String>> {
    let names = reader.texts(node, "`require_headers`")?;
    for (name, item) in names.iter().zip(reader.items(node, "")?) {
        if http::HeaderName::try_from(name.as_str()).is_err() {
            let message = format!("`{name}` cannot be a header's name");
            reader.error(&item.mark, "header-name", message, "write a name such as Idempotency-Key");
        } else if OF_THE_CONNECTION.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            let message = format!("`{name}` belongs to the connection: no client can send it for a request");
            reader.error(&item.mark, "header-impossible", message, "require a header of the request: Idempotency-Key");
        }
    }
    Some(names)
}

fn stores(reader: &mut Reader, node: &YamlNode) -> Option<Stores> {
    let fields = reader.fields(node, "`stores`", &["fence", "url", "ttl", "settle_for"])?;
    let fence = fields.get("fence")?;
    let words = [("embedded", FenceStore::Embedded), ("postgres", FenceStore::Postgres), ("redis", FenceStore::Redis)];
    let chosen = reader.word(fence, "`fence`", &words);
    let url = fields.get("url").and_then(|node| Some((node, reader.text(node, "`url`")?)));
    if let (Some(chosen), Some((node, url))) = (chosen, &url) {
        let schemes: &[&str] = match chosen {
            FenceStore::Embedded => &[],
            FenceStore::Postgres => &["postgres://", "postgresql://"],
            FenceStore::Redis => &["redis://", "rediss://", "redis+cluster://", "rediss+cluster://"],
        };
        if !schemes.iter().any(|scheme| url.starts_with(scheme)) {
            let fix = match schemes.first() {
                Some(scheme) => format!("write {scheme}host:port"),
                None => "remove it; the embedded store is the directory in `server.data`".into(),
            };
            reader.error(&node.mark, "store-url", "`url` does not fit the store in `fence`", fix);
        }
    }
    let ttl = reader.fields(fields.get("ttl")?, "`ttl`", &["webhook_days", "api_hours", "batch_days"])?;
    let settle_for = fields.get("settle_for").and_then(|node| reader.duration(node, "`settle_for`"));
    let webhook = whole(reader, &ttl, "webhook_days", DAY_MS);
    let api = whole(reader, &ttl, "api_hours", 3_600_000);
    let batch = whole(reader, &ttl, "batch_days", DAY_MS);
    Some(Stores {
        fence: chosen?,
        fence_mark: fence.mark.clone(),
        url: url.map(|(_, url)| url),
        ttl: Ttl { webhook: webhook?, api: api?, batch: batch? },
        settle_for: Duration::from_millis(settle_for?),
    })
}

fn whole(reader: &mut Reader, ttl: &Fields<'_>, name: &str, unit_ms: u64) -> Option<Span> {
    let node = ttl.get(name)?;
    let count = reader.integer(node, &format!("`{name}`"), 1..=36_500)?;
    Some(Span { ms: count * unit_ms, mark: node.mark.clone() })
}

fn logging(reader: &mut Reader, node: &YamlNode) -> Option<Logging> {
    let fields = reader.fields(node, "`logging`", &["include_fields"])?;
    let node = fields.get("include_fields")?;
    let include_fields = reader.texts(node, "`include_fields`")?;
    for (name, item) in include_fields.iter().zip(reader.items(node, "")?) {
        if !LOG_FIELDS.contains(&name.as_str()) {
            reader.value_unknown(&item.mark, &format!("no log line has a field `{name}`"), name, &LOG_FIELDS);
        }
    }
    Some(Logging { include_fields })
}

fn on_conflict(reader: &mut Reader, node: &YamlNode) -> Option<OnConflict> {
    let fields = reader.fields(node, "`on_conflict`", &["status", "include_diff"])?;
    let status = reader.word(fields.get("status")?, "`status`", &[("409", 409), ("422", 422)]);
    let include_diff = reader.boolean(fields.get("include_diff")?, "`include_diff`");
    Some(OnConflict { status: status?, include_diff: include_diff? })
}
