//! Decides which addresses events may be sent to, by the form of a url and by the nets that are not public.
//! Never connects, and never trusts a name: the address of the connection counts.
//! Called when a transport is registered, and by `connect` before every connection.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use fencepost::policy::egress::{EgressRule, is_host_name};
use http::Uri;
use tokio::time::timeout;

use super::{lookup::Lookups, nets::nature};

/// The longest url that is accepted.
pub const URL_BYTES_MAX: usize = 2_048;
/// How long a registration waits for a name server.
const CHECK_MS_MAX: u64 = 5_000;

/// The addresses that may be reached: the public internet, and the exceptions.
#[derive(Clone, Debug)]
pub struct Egress {
    allow: Arc<[EgressRule]>,
    loopback: bool,
    lookups: Lookups,
}

/// Where a url leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Whether over TLS.
    pub(super) tls: bool,
    /// A name in lower case without a dot at its end, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Egress {
    /// `allow` has the exceptions: an address, a network such as `10.1.0.0/16`, or the name of a host, wherever it
    /// leads; each may have a scheme and a port. `loopback` allows this machine, too.
    pub fn new(allow: &[String], loopback: bool) -> Result<Self, String> {
        let allow = allow.iter().map(|text| EgressRule::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { allow, loopback, lookups: Lookups::new() })
    }

    /// Whether a transport may have this url. A name that does not resolve yet may: every connection judges it again.
    pub async fn check_url(&self, url: &str) -> Result<(), String> {
        let (_, target) = read(url)?;
        match timeout(Duration::from_millis(CHECK_MS_MAX), self.lookup(&target)).await {
            Ok(Ok(found)) => self.judge(&target, &found),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Every address of a target, all of them judged.
    pub(super) async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, String> {
        let found = self.lookup(target).await?;
        self.judge(target, &found)?;
        Ok(found)
    }

    async fn lookup(&self, target: &Target) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = target.host.parse() {
            return Ok(vec![SocketAddr::new(address, target.port)]);
        }
        let found = self.lookups.find(&target.host).await?;
        Ok(found.iter().map(|address| SocketAddr::new(*address, target.port)).collect())
    }

    /// One forbidden address is enough to refuse: no receiver's name leads both inside and outside.
    fn judge(&self, target: &Target, found: &[SocketAddr]) -> Result<(), String> {
        let Target { tls, host, port } = target;
        if self.allow.iter().any(|rule| rule.allows_host(host, *port, *tls)) {
            return Ok(());
        }
        match found.iter().find_map(|address| self.refusal(target, address.ip())) {
            // Does not name the address: a client that registers a name must not learn where it leads inside.
            Some(nature) => {
                let name = target.name();
                Err(format!("{name} is not on the public internet ({nature}), and not allowed here"))
            }
            None => Ok(()),
        }
    }

    fn refusal(&self, target: &Target, address: IpAddr) -> Option<&'static str> {
        let nature = nature(address)?;
        let own = address == Ipv6Addr::LOCALHOST || matches!(address, IpAddr::V4(v4) if v4.is_loopback());
        let allowed = (self.loopback && own)
            || self.allow.iter().any(|rule| rule.allows_address(address, target.port, target.tls));
        (!allowed).then_some(nature)
    }
}

/// Parses the url of a transport, or says why it is refused.
pub(super) fn read(url: &str) -> Result<(Uri, Target), String> {
    if url.len() > URL_BYTES_MAX {
        return Err(format!("the url is longer than {URL_BYTES_MAX} bytes"));
    }
    if url.contains('#') {
        return Err("the url has a fragment, which no receiver would see".to_owned());
    }
    let uri: Uri = url.parse().map_err(|error| format!("the url cannot be read: {error}"))?;
    let target = target(&uri)?;
    Ok((uri, target))
}

/// The host and port that a connection for this url must lead to.
pub(super) fn target(uri: &Uri) -> Result<Target, String> {
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err("the url must begin with http:// or https://".to_owned()),
    };
    let authority = uri.authority().ok_or("the url has no host")?;
    if authority.as_str().contains('@') {
        return Err("the url holds credentials: put them into `secret`".to_owned());
    }
    let host = authority.host();
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().map_err(|_| "the url's host is no IPv6 address")?.to_string(),
        None => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    };
    if !is_host_name(&host) && host.parse::<IpAddr>().is_err() {
        return Err("the url's host is neither a name nor an address".to_owned());
    }
    let port = match authority.as_str().rsplit_once(':') {
        Some((_, text)) if !text.ends_with(']') => {
            text.parse().ok().filter(|port| *port != 0).ok_or("the url's port is not one")?
        }
        _ => {
            if tls {
                443
            } else {
                80
            }
        }
    };
    Ok(Target { tls, host, port })
}

impl Target {
    /// `host:port`, the same for all urls that share connections.
    pub(super) fn name(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}
