//! The `server` section: its addresses, its directory, its limits.
//! Never opens or binds anything: these are plain values.
//! Called by `Policy::load`; read by the command line and the HTTP server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::network::Network;
use super::read::{Fields, Reader};
use super::yaml::YamlNode;

/// The `server` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerSettings {
    /// The address it listens on.
    pub listen: SocketAddr,
    /// The address for operators and probes, where they have one of their own.
    pub admin_listen: Option<SocketAddr>,
    /// The directory of the embedded store and of the credentials.
    pub data: PathBuf,
    /// Proxies in front of it: their headers about the client are believed.
    pub trusted_proxies: Vec<Network>,
    /// Limits on a client's requests.
    pub limits: LimitSettings,
    /// Which threads serve its connections.
    pub threads: ThreadMode,
    /// Whether ordinary HTTP/1.1 requests are read and answered without hyper.
    pub fast_path: bool,
    /// Whether the embedded store writes zeros ahead of its journal.
    pub journal_zeros: bool,
    /// How long requests in flight may take to finish after SIGTERM.
    pub shutdown_grace: Duration,
    pub log: LogSettings,
    /// Its certificate, where it speaks TLS.
    pub tls: Option<TlsSettings>,
}

impl ServerSettings {
    /// Whether an address is that of a proxy whose word about its clients is taken.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(address))
    }
}

/// Bounds on clients' requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitSettings {
    /// The largest request body.
    pub request_bytes_max: usize,
    /// The largest request head: request line and headers.
    pub header_bytes_max: usize,
    /// Connections held at once.
    pub connections_max: usize,
    /// Of these, how many one client address may hold.
    pub connections_per_client_max: usize,
    /// Request bodies and answers in memory, all connections together.
    pub buffered_bytes_max: usize,
    /// From connection or last answer to the end of the request's head.
    pub header_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long a connection may stay without a request.
    pub idle_timeout: Duration,
    /// Claims that wait for another's seal, all connections together.
    pub waiters_max: usize,
    /// Of these, how many one tenant may have.
    pub waiters_per_tenant_max: usize,
    /// The longest that a claim waits, even with a larger `wait_ms`.
    pub wait_max: Duration,
    pub batch_commands_max: usize,
}

/// Which threads serve connections, where the store is the machine's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadMode {
    /// One for each processor, and bound to it.
    Bound,
    /// Those of all other work, wherever the system lets them run.
    Shared,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// The least important level that is written.
    pub level: Level,
    /// Whether every decision has its line.
    pub decisions: bool,
}

/// Log levels, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Error,
    /// Something will fail, or looks wrong.
    Warn,
    /// For operators.
    Info,
    /// For developers.
    Debug,
}

impl Level {
    /// Its name, in the policy and in every line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Files of the server's TLS identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSettings {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities whose client certificates are accepted, PEM.
    pub client_ca: Option<PathBuf>,
}

/// How many requests of the largest size the buffers must have room for.
pub const BUFFERED_REQUESTS_MIN: usize = 8;

const LIMITS: [&str; 12] = [
    "request_bytes_max",
    "header_bytes_max",
    "connections_max",
    "connections_per_client_max",
    "buffered_bytes_max",
    "header_timeout",
    "body_timeout",
    "idle_timeout",
    "waiters_max",
    "waiters_per_tenant_max",
    "wait_max",
    "batch_commands_max",
];

/// Reads the section. `None` only beside at least one error.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Option<ServerSettings> {
    let known = [
        "listen",
        "admin_listen",
        "data",
        "trusted_proxies",
        "limits",
        "threads",
        "fast_path",
        "journal_zeros",
        "shutdown_grace",
        "log",
        "tls",
    ];
    let fields = reader.fields(node, "`server`", &known)?;
    let listen = fields.get("listen").and_then(|node| address(reader, node, "`listen`"));
    // `Some(None)` is a server without one; `None` one whose address was wrong.
    let admin_listen =
        match fields.get("admin_listen").filter(|node| !matches!(node.value, super::yaml::YamlValue::Null)) {
            Some(node) => address(reader, node, "`admin_listen`").map(Some),
            None => Some(None),
        };
    if let (Some(public), Some(Some(admin))) = (listen, admin_listen)
        && public == admin
        && public.port() != 0
    {
        let message = format!("`admin_listen` is {admin}, the address of `listen`");
        reader.error(fields.mark_of("admin_listen"), "wrong-value", message, "give operators a port of their own");
    }
    let data = fields.get("data").and_then(|node| reader.text(node, "`data`"));
    let trusted_proxies = fields.get("trusted_proxies").and_then(|node| networks(reader, node));
    let limits = fields.get("limits").and_then(|node| limits(reader, node));
    let words = [("bound", ThreadMode::Bound), ("shared", ThreadMode::Shared)];
    let threads = fields.get("threads").and_then(|node| reader.word(node, "`threads`", &words));
    let fast_path = fields.get("fast_path").and_then(|node| reader.boolean(node, "`fast_path`"));
    let journal_zeros = fields.get("journal_zeros").and_then(|node| reader.boolean(node, "`journal_zeros`"));
    let grace = span(reader, &fields, "shutdown_grace");
    let log = fields.get("log").and_then(|node| log(reader, node));
    // `Some(None)` is a server without TLS; `None` one whose TLS was wrong.
    let tls = match fields.get("tls").filter(|node| !matches!(node.value, super::yaml::YamlValue::Null)) {
        Some(node) => tls(reader, node).map(Some),
        None => Some(None),
    };
    Some(ServerSettings {
        listen: listen?,
        admin_listen: admin_listen?,
        data: PathBuf::from(data?),
        trusted_proxies: trusted_proxies?,
        limits: limits?,
        threads: threads?,
        fast_path: fast_path?,
        journal_zeros: journal_zeros?,
        shutdown_grace: grace?,
        log: log?,
        tls: tls?,
    })
}

fn address(reader: &mut Reader, node: &YamlNode, what: &str) -> Option<SocketAddr> {
    let parsed = listen_address(&reader.text(node, what)?);
    reader.accept(node, what, parsed, "write an IP address and a port: 127.0.0.1:7411 or [::1]:7411")
}

/// An address to listen on: an IP address and a port, or `localhost` and a port. No other name is looked up: its
/// address may change, and with it who can connect.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.rsplit_once(':').filter(|(host, _)| host.eq_ignore_ascii_case("localhost"));
    let read = match local {
        Some((_, port)) => port.parse().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
        None => text.parse().ok(),
    };
    read.ok_or_else(|| format!("`{text}` is not an IP address and port, such as 127.0.0.1:7411"))
}

fn networks(reader: &mut Reader, node: &YamlNode) -> Option<Vec<Network>> {
    let texts = reader.texts(node, "`trusted_proxies`")?;
    let parsed = texts.iter().map(|text| {
        Network::parse(text).ok_or_else(|| format!("`{text}` is neither an address nor a network of addresses"))
    });
    let parsed = parsed.collect::<Result<_, _>>();
    reader.accept(node, "`trusted_proxies`", parsed, "write addresses or networks: [10.0.0.0/8, 192.168.1.7]")
}

fn limits(reader: &mut Reader, node: &YamlNode) -> Option<LimitSettings> {
    let fields = reader.fields(node, "`limits`", &LIMITS)?;
    // All are read before any is missed, so that one run shows every mistake.
    let request_bytes_max = bytes(reader, &fields, "request_bytes_max");
    let header_bytes_max = bytes(reader, &fields, "header_bytes_max");
    let connections_max = count(reader, &fields, "connections_max", 1..=1_000_000);
    let connections_per_client_max = count(reader, &fields, "connections_per_client_max", 1..=1_000_000);
    let buffered_bytes_max = buffered(reader, &fields, request_bytes_max);
    let header_timeout = span(reader, &fields, "header_timeout");
    let body_timeout = span(reader, &fields, "body_timeout");
    let idle_timeout = span(reader, &fields, "idle_timeout");
    let waiters_max = count(reader, &fields, "waiters_max", 0..=10_000_000);
    let waiters_per_tenant_max = count(reader, &fields, "waiters_per_tenant_max", 0..=10_000_000);
    let wait_max = span(reader, &fields, "wait_max");
    let batch_commands_max = count(reader, &fields, "batch_commands_max", 1..=1_000);
    Some(LimitSettings {
        request_bytes_max: request_bytes_max?,
        header_bytes_max: header_bytes_max?,
        connections_max: connections_max?,
        connections_per_client_max: connections_per_client_max?,
        buffered_bytes_max: buffered_bytes_max?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        idle_timeout: idle_timeout?,
        waiters_max: waiters_max?,
        waiters_per_tenant_max: waiters_per_tenant_max?,
        wait_max: wait_max?,
        batch_commands_max: batch_commands_max?,
    })
}

// Signed bodies of unknown senders get an eighth: one of the largest must fit there.
fn buffered(reader: &mut Reader, fields: &Fields<'_>, request_bytes_max: Option<usize>) -> Option<usize> {
    let bytes = bytes(reader, fields, "buffered_bytes_max")?;
    let least = request_bytes_max.unwrap_or(0).saturating_mul(BUFFERED_REQUESTS_MIN);
    if bytes < least {
        let message =
            format!("`buffered_bytes_max` is {bytes} bytes, less than {BUFFERED_REQUESTS_MIN} of the largest requests");
        let fix = format!("write at least {least}, or lower `request_bytes_max`");
        reader.error(fields.mark_of("buffered_bytes_max"), "buffers-too-small", message, fix);
        return None;
    }
    Some(bytes)
}

fn bytes(reader: &mut Reader, fields: &Fields<'_>, name: &str) -> Option<usize> {
    usize::try_from(reader.size(fields.get(name)?, &format!("`{name}`"))?).ok()
}

fn span(reader: &mut Reader, fields: &Fields<'_>, name: &str) -> Option<Duration> {
    reader.duration(fields.get(name)?, &format!("`{name}`")).map(Duration::from_millis)
}

fn count(reader: &mut Reader, fields: &Fields<'_>, name: &str, bounds: std::ops::RangeInclusive<u64>) -> Option<usize> {
    usize::try_from(reader.integer(fields.get(name)?, &format!("`{name}`"), bounds)?).ok()
}

fn log(reader: &mut Reader, node: &YamlNode) -> Option<LogSettings> {
    let fields = reader.fields(node, "`log`", &["level", "decisions"])?;
    let words = [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
    let level = reader.word(fields.get("level")?, "`level`", &words);
    let decisions = reader.boolean(fields.get("decisions")?, "`decisions`");
    Some(LogSettings { level: level?, decisions: decisions? })
}

fn tls(reader: &mut Reader, node: &YamlNode) -> Option<TlsSettings> {
    let fields = reader.fields(node, "`tls`", &["cert", "key", "client_ca"])?;
    for name in ["cert", "key"] {
        if fields.get(name).is_none() {
            let message = format!("`tls` names no `{name}`");
            reader.error(fields.mark, "tls", message, "name both `cert` and `key`, or remove `tls`");
        }
    }
    let mut path = |name: &str| Some(PathBuf::from(reader.text(fields.get(name)?, &format!("`{name}`"))?));
    let (cert, key, client_ca) = (path("cert"), path("key"), path("client_ca"));
    Some(TlsSettings { cert: cert?, key: key?, client_ca })
}
