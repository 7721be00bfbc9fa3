//! Reads the `routes` section: which requests the gateway passes on, and where each key field comes from.
//! Never compares routes with scopes or with each other: that is for `check`.
//! Called by `Policy::load`.

use std::time::Duration;

use super::answers::{self, Answers};
use super::callers::{self, Callers};
use super::pattern::{self, Pattern};
use super::read::{Fields, Reader, Unread};
use super::settings;
use super::yaml::{Mark, YamlNode};

/// Where a key field's value is found in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldOrigin {
    /// `header:NAME`.
    Header(String),
    /// `path:NAME`, a `{NAME}` of the pattern.
    Path(String),
    /// `query:NAME`.
    Query(String),
    /// `body:/json/pointer`.
    Body(String),
    /// `const:TEXT`, the same for every request: a provider's name.
    Const(String),
    /// `request:method` or `request:path`, of the request line; `request:digest`, the SHA-256 of the body's bytes.
    Request(String),
}

/// How a 5xx, a timeout or a reset is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// The effect may have happened: the claim keeps its lease, and then lapses.
    #[default]
    Unknown,
    /// It did not happen: the key is free again.
    Release,
    /// It is the answer: it is sealed, and replayed to retries.
    Seal,
}

/// The scheme of an incoming webhook's signature, each with its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `Stripe-Signature`.
    Stripe,
    /// `X-Hub-Signature-256`.
    Github,
    /// `webhook-signature`, as Standard Webhooks has it, or `svix-signature`.
    StandardWebhooks,
    /// `X-FGAI-Signature`.
    Fgai,
}

impl Scheme {
    /// Whether the signature covers a time, so that a recorded delivery is soon refused.
    pub fn is_timed(self) -> bool {
        match self {
            Self::Stripe | Self::StandardWebhooks => true,
            Self::Github | Self::Fgai => false,
        }
    }
}

/// How an incoming webhook is verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Verify {
    /// The scheme of the signature.
    pub scheme: Scheme,
    /// The secrets that are accepted; with several, one can be rotated.
    pub secrets: Vec<String>,
    /// How far a signed time may be from now, either way.
    pub tolerance: Duration,
}

// Without the secrets: a policy may be logged for debugging.
impl std::fmt::Debug for Verify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Verify({:?}, {} secrets)", self.scheme, self.secrets.len())
    }
}

/// How a replay differs from the first answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// The status, in place of the first answer's.
    pub status: Option<u16>,
    /// An additional header: name and value.
    pub header: Option<(String, String)>,
}

/// One route: a rule of the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayRule {
    /// The requests that it takes.
    pub pattern: Pattern,
    /// The address that they are passed on to.
    pub upstream: String,
    /// The name of the scope of their keys.
    pub scope: String,
    /// Where each key field comes from, with its place in the file.
    pub key: Vec<(String, FieldOrigin, Mark)>,
    /// How a replay differs from the first answer.
    pub replay: Replay,
    /// The signature that is required, on an incoming webhook.
    pub verify: Option<Verify>,
    /// How a failure of the upstream is taken.
    pub on_error: OnError,
    /// The answers to requests that are not passed on.
    pub answers: Answers,
    /// Headers that a write must carry in place of the policy's, with their place; see [`GatewayRule::requires`].
    pub require_headers: Option<(Vec<String>, Mark)>,
    /// The callers that may write through it, and the user that an answer is for.
    pub callers: Callers,
    /// The tenant of its keys, where no credential says; see [`GatewayRule::signer`].
    pub tenant: Option<String>,
    /// The value that events of one source are ordered by.
    pub order: Option<FieldOrigin>,
    /// The source of an effect: versions and order are per source.
    pub source: Option<FieldOrigin>,
    /// Where the id of the effect is in the answer: a header, or a place in its JSON.
    pub effect_id: Option<FieldOrigin>,
    /// The longest silence of the upstream, in place of the gateway's.
    pub timeout: Option<Duration>,
    /// Whether a GET, HEAD or OPTIONS may carry a body; otherwise one with a body is refused.
    pub pass_body: bool,
    /// Whether the upstream reads every request's body to its end, whatever it answers. Only then is a connection that
    /// carried a body used again: an upstream that does not would read the rest as the next request.
    pub upstream_reads_bodies: bool,
    /// The place of `match` in the file.
    pub mark: Mark,
    /// The place of `scope` in the file.
    pub scope_mark: Mark,
    /// The place of `key` in the file.
    pub key_mark: Mark,
    /// The place of `order` in the file.
    pub order_mark: Mark,
    /// The place of `source` in the file.
    pub source_mark: Mark,
}

impl GatewayRule {
    /// The tenant of its keys on an incoming webhook, where a signature replaces the credential.
    pub fn signer(&self) -> Option<String> {
        self.verify.as_ref().map(|_| self.tenant.clone().unwrap_or_else(|| webhooks(&self.scope)))
    }

    /// Headers that a write must carry: the rule's own, else the policy's. None on an incoming webhook, whose headers
    /// its provider chooses.
    pub fn requires<'a>(&'a self, policy: &'a [String]) -> &'a [String] {
        match (&self.verify, &self.require_headers) {
            (Some(_), _) => &[],
            (None, Some((own, _))) => own,
            (None, None) => policy,
        }
    }
}

/// The tenant of the keys of a scope's webhooks, where no route names another.
pub fn webhooks(scope: &str) -> String {
    format!("webhook:{scope}")
}

/// Headers that a replay has already, or that would break it.
const NOT_ON_REPLAYS: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "idempotency-expires",
    "idempotency-replayed",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "fencepost-body",
    "fencepost-decision",
];

const KEYS: [&str; 20] = [
    "match",
    "upstream",
    "scope",
    "key",
    "replay",
    "verify",
    "on_error",
    "on_stale",
    "on_conflict",
    "require_headers",
    "tenant",
    "order",
    "source",
    "effect_id",
    "timeout",
    "roles",
    "tenants",
    "principal",
    "pass_body",
    "upstream_reads_bodies",
];

/// A route as read, and which of its fields could not be. Each of these has an error, so that no such route is served.
pub struct ParsedGatewayRule {
    /// The route; a field that could not be read is empty.
    pub route: GatewayRule,
    /// The names of those fields.
    pub unread: Unread,
}

/// Every route, in the order of the file.
pub fn read(reader: &mut Reader, node: Option<&YamlNode>) -> Vec<ParsedGatewayRule> {
    let Some(node) = node else { return Vec::new() };
    let items = reader.items(node, "`routes`").unwrap_or_default();
    items.iter().filter_map(|item| route(reader, item)).collect()
}

fn route(reader: &mut Reader, node: &YamlNode) -> Option<ParsedGatewayRule> {
    let fields = reader.fields(node, "a route", &KEYS)?;
    let mut unread = Unread::new();
    let un = &mut unread;
    for name in ["match", "upstream", "scope", "key"] {
        if fields.get(name).is_none() {
            let fix = "a route needs `match`, `upstream`, `scope` and `key`";
            reader.error(&node.mark, "route-incomplete", format!("this route has no `{name}`"), fix);
            un.insert(name);
        }
    }
    let pattern = reader.field(&fields, "match", un, |reader, node| {
        let parsed = pattern::parse(&reader.text(node, "`match`")?);
        reader.accept(node, "`match`", parsed, "write a method and a path: \"POST /orders/{id}\"")
    });
    let upstream = reader.field(&fields, "upstream", un, |reader, node| {
        let parsed = upstream(reader.text(node, "`upstream`")?);
        reader.accept(node, "`upstream`", parsed, "write scheme, host and port: http://127.0.0.1:9000")
    });
    let scope = reader.field(&fields, "scope", un, |reader, node| reader.text(node, "`scope`"));
    let key = reader.noting("origins", un, |reader| key(reader, fields.get("key")?));
    if fields.get("key").is_some() && key.is_none() {
        un.insert("key");
    }
    let replay = reader.field(&fields, "replay", un, replay).unwrap_or_default();
    let verify = reader.field(&fields, "verify", un, verify);
    let on_error = reader.field(&fields, "on_error", un, |reader, node| {
        let words = [("unknown", OnError::Unknown), ("release", OnError::Release), ("seal", OnError::Seal)];
        reader.word(node, "`on_error`", &words)
    });
    let tenant = reader.field(&fields, "tenant", un, |reader, node| reader.text(node, "`tenant`"));
    let order = reader.field(&fields, "order", un, |reader, node| from_request(reader, node, "`order`"));
    let source = reader.field(&fields, "source", un, |reader, node| from_request(reader, node, "`source`"));
    let effect_id = reader.field(&fields, "effect_id", un, |reader, node| {
        let parsed = match from(reader, node, "`effect_id`")? {
            origin @ (FieldOrigin::Header(_) | FieldOrigin::Body(_)) => Ok(origin),
            _ => Err("`effect_id` is a place in the answer".to_owned()),
        };
        reader.accept(node, "`effect_id`", parsed, "write header:NAME or body:/json/pointer, of the answer")
    });
    let timeout = reader.field(&fields, "timeout", un, |reader, node| reader.duration(node, "`timeout`"));
    let answers = reader.noting("answers", un, |reader| answers::read(reader, &fields));
    let require_headers = reader.field(&fields, "require_headers", un, |reader, node| {
        let mark = fields.mark_of("require_headers").clone();
        Some((settings::headers(reader, node)?, mark))
    });
    let callers = reader.noting("callers", un, |reader| callers::read(reader, &fields));
    let pass_body = reader.field(&fields, "pass_body", un, |reader, node| reader.boolean(node, "`pass_body`"));
    let reads_bodies = reader
        .field(&fields, "upstream_reads_bodies", un, |reader, node| reader.boolean(node, "`upstream_reads_bodies`"));
    let route = GatewayRule {
        pattern: pattern.unwrap_or(Pattern { method: None, segments: Vec::new() }),
        upstream: upstream.unwrap_or_default(),
        scope: scope.unwrap_or_default(),
        key: key.unwrap_or_default(),
        replay,
        verify,
        on_error: on_error.unwrap_or_default(),
        answers,
        require_headers,
        callers,
        tenant,
        order,
        source,
        effect_id,
        timeout: timeout.map(Duration::from_millis),
        pass_body: pass_body.unwrap_or_default(),
        upstream_reads_bodies: reads_bodies.unwrap_or_default(),
        mark: fields.mark_of("match").clone(),
        scope_mark: fields.mark_of("scope").clone(),
        key_mark: fields.mark_of("key").clone(),
        order_mark: fields.mark_of("order").clone(),
        source_mark: fields.mark_of("source").clone(),
    };
    Some(ParsedGatewayRule { route, unread })
}

// `h2c` is HTTP/2 without TLS; under `https` the two ends agree on a version.
fn upstream(text: String) -> Result<String, String> {
    let rest = ["http://", "https://", "h2c://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let authority = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    match authority {
        _ if text.contains(['?', '#']) => Err("an upstream is an address and perhaps a path, no query".into()),
        Some(authority) if authority.contains('@') => Err("credentials in an address end in logs".into()),
        _ if text.split('/').any(|part| matches!(part, "." | "..")) => {
            Err("the path of an upstream goes straight".into())
        }
        Some(authority) if authority.parse::<http::uri::Authority>().is_ok_and(|a| usable(&a)) => {
            match address(&text) {
                Some(_) => Ok(text),
                None => Err(format!("`{text}` holds a character that an address cannot, a space perhaps")),
            }
        }
        _ => Err(format!("`{text}` is not an http, https or h2c address")),
    }
}

/// The upstream's address as a URI, with `http` for `h2c`; none where the text is no URI.
pub fn address(upstream: &str) -> Option<http::Uri> {
    match upstream.strip_prefix("h2c://") {
        Some(rest) => format!("http://{rest}").parse().ok(),
        None => upstream.parse().ok(),
    }
}

fn usable(authority: &http::uri::Authority) -> bool {
    let host = authority.host();
    let port = authority.as_str()[host.len()..].strip_prefix(':');
    !host.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn key(reader: &mut Reader, node: &YamlNode) -> Option<Vec<(String, FieldOrigin, Mark)>> {
    let entries = reader.entries(node, "`key`")?;
    let read = entries.iter().map(|entry| {
        let from = from_request(reader, &entry.value, &format!("`{}`", entry.key));
        // A field whose origin cannot be read is still named: the only error is that of the origin.
        (entry.key.clone(), from.unwrap_or_else(|| FieldOrigin::Request("digest".into())), entry.mark.clone())
    });
    Some(read.collect())
}

/// A place in a request. A header with `_` does not reach the upstream, so it cannot identify a request.
fn from_request(reader: &mut Reader, node: &YamlNode, what: &str) -> Option<FieldOrigin> {
    let parsed = match from(reader, node, what)? {
        FieldOrigin::Header(name) if name.contains('_') => Err(format!("`{name}` has a `_`, and is not passed on")),
        origin => Ok(origin),
    };
    reader.accept(node, what, parsed, "write the header with `-`")
}

fn from(reader: &mut Reader, node: &YamlNode, what: &str) -> Option<FieldOrigin> {
    let parsed = parse_from(&reader.text(node, what)?);
    let fix = "write header:NAME, path:NAME, query:NAME, body:/json/pointer, const:TEXT, request:method, request:path or request:digest";
    reader.accept(node, what, parsed, fix)
}

fn parse_from(text: &str) -> Result<FieldOrigin, String> {
    let wrong = || format!("`{text}` names no place in a request");
    let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
    match (kind, name) {
        (_, "") if kind != "body" => Err(wrong()),
        ("header", name) if http::HeaderName::try_from(name).is_err() => {
            Err(format!("`{name}` cannot be a header's name"))
        }
        ("header", name) => Ok(FieldOrigin::Header(name.into())),
        ("path", name) => Ok(FieldOrigin::Path(name.into())),
        ("query", name) => Ok(FieldOrigin::Query(name.into())),
        ("body", pointer) if !is_pointer(pointer) => {
            Err(format!("`{pointer}` is not a JSON pointer such as /order/id"))
        }
        ("body", "") => Err("a whole body is no field: name a place in it, such as body:/id".into()),
        ("body", pointer) => Ok(FieldOrigin::Body(pointer.into())),
        ("const", text) => Ok(FieldOrigin::Const(text.into())),
        ("request", part @ ("method" | "path" | "digest")) => Ok(FieldOrigin::Request(part.into())),
        _ => Err(wrong()),
    }
}

/// Whether it is a JSON pointer (RFC 6901): empty, or `/`-led parts with `~0` for `~` and `~1` for `/`.
pub fn is_pointer(text: &str) -> bool {
    let led = text.is_empty() || text.starts_with('/');
    led && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

fn replay(reader: &mut Reader, node: &YamlNode) -> Option<Replay> {
    let fields = reader.fields(node, "`replay`", &["status", "header"])?;
    let status = fields.get("status").and_then(|node| {
        let parsed = match reader.integer(node, "`status`", 200..=499)? {
            bare @ (204 | 205 | 304) => Err(format!("an answer with status {bare} has no body to replay")),
            status => Ok(status),
        };
        reader.accept(node, "`status`", parsed, "use 200")
    });
    let header = fields.get("header").and_then(|node| {
        let text = reader.text(node, "`header`")?;
        let pair = text.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        let fits = |(name, value): &(String, String)| {
            http::HeaderName::try_from(name.as_str()).is_ok() && http::HeaderValue::try_from(value.as_str()).is_ok()
        };
        let parsed = pair.filter(fits).ok_or_else(|| format!("`{text}` is not a header"));
        let parsed = match parsed {
            Ok((name, _)) if NOT_ON_REPLAYS.iter().any(|not| name.eq_ignore_ascii_case(not)) => {
                Err(format!("`{name}` belongs to the answer or to its connection"))
            }
            parsed => parsed,
        };
        reader.accept(node, "`header`", parsed, "write name and value: \"X-Replayed: true\"")
    });
    Some(Replay { status: status.and_then(|status| u16::try_from(status).ok()), header })
}

fn verify(reader: &mut Reader, node: &YamlNode) -> Option<Verify> {
    let fields = reader.fields(node, "`verify`", &["scheme", "secrets", "tolerance"])?;
    let words = [
        ("stripe", Scheme::Stripe),
        ("github", Scheme::Github),
        ("standard-webhooks", Scheme::StandardWebhooks),
        ("fgai", Scheme::Fgai),
    ];
    let scheme = need(reader, &fields, "scheme").and_then(|node| reader.word(node, "`scheme`", &words));
    let secrets = need(reader, &fields, "secrets").and_then(|node| {
        // Read one by one: an error about a list of texts would show them.
        let items = reader.items(node, "`secrets`")?;
        let secrets: Vec<String> = items.iter().filter_map(|item| reader.text(item, "each of `secrets`")).collect();
        if secrets.is_empty() {
            reader.error(
                &node.mark,
                "no-secret",
                "`secrets` is empty: every delivery would be refused",
                "name one or two",
            );
        }
        Some(secrets)
    });
    let tolerance = fields.get("tolerance").and_then(|node| reader.duration(node, "`tolerance`"));
    let tolerance = Duration::from_millis(tolerance.unwrap_or(5 * 60_000));
    Some(Verify { scheme: scheme?, secrets: secrets?, tolerance })
}

fn need<'a>(reader: &mut Reader, fields: &Fields<'a>, name: &str) -> Option<&'a YamlNode> {
    let found = fields.get(name);
    if found.is_none() {
        let message = format!("{} has no `{name}`", fields.what);
        reader.error(fields.mark, "incomplete", message, "write `verify: { scheme: github, secrets: [\"…\"] }`");
    }
    found
}
