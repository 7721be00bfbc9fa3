//! Reads the address of a Redis store: where the servers are, and how rows lie on them.
//! Never guesses: a parameter that is not known is refused. Called when the store is opened.

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::codec;

pub(super) struct Settings {
    /// Servers to ask first; a single one where it is no cluster.
    pub(super) seeds: Vec<ConnectionInfo>,
    pub(super) cluster: bool,
    /// Whether every row lies in one slot.
    pub(super) one_slot: bool,
    /// The beginning of every key.
    pub(super) prefix: String,
    /// How many replicas must have a commit before it is acknowledged.
    pub(super) replicas: u32,
    /// The format of the rows that are written.
    pub(super) format: u8,
}

const PREFIX_LEN_MAX: usize = 64;

impl Settings {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("the address has no scheme")?;
        let (tls, cluster) = match scheme {
            "redis" => ("redis", false),
            "rediss" => ("rediss", false),
            "redis+cluster" => ("redis", true),
            "rediss+cluster" => ("rediss", true),
            _ => return Err(format!("`{scheme}://` is no Redis")),
        };
        if rest.contains('#') {
            return Err("an address of Redis has no `#` part".to_owned());
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if cluster && !matches!(path, "" | "0") {
            return Err("a cluster has database 0 only".to_owned());
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        if !cluster && hosts.contains(',') {
            return Err("several hosts are a cluster: say redis+cluster://".to_owned());
        }
        let seeds =
            hosts.split(',').map(|host| seed(&format!("{tls}://{login}{host}/{path}"))).collect::<Result<_, _>>()?;
        let mut own = Self {
            seeds,
            cluster,
            one_slot: !cluster,
            prefix: "fencepost".to_owned(),
            replicas: 0,
            format: codec::VERSION,
        };
        query.split('&').filter(|pair| !pair.is_empty()).try_for_each(|pair| own.set(pair))?;
        Ok(own)
    }

    fn set(&mut self, pair: &str) -> Result<(), String> {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("prefix", prefix) => {
                let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
                if prefix.is_empty() || prefix.len() > PREFIX_LEN_MAX || !prefix.chars().all(fits) {
                    return Err(format!("prefix: 1 to {PREFIX_LEN_MAX} of a-z A-Z 0-9 - _ . :"));
                }
                self.prefix = prefix.to_owned();
            }
            ("slots", "one") => self.one_slot = true,
            ("slots", other) => return Err(format!("slots: `one` or nothing, not `{other}`")),
            ("replicas", number) => {
                self.replicas = number.parse().map_err(|_| format!("replicas: `{number}` is no number"))?;
            }
            ("format", number) => {
                let known = |format: &u8| (1..=codec::VERSION).contains(format);
                let format = number.parse().ok().filter(known);
                self.format = format.ok_or(format!("format: 1 to {}, not `{number}`", codec::VERSION))?;
            }
            (name, _) if name.contains('@') => return Err("a `?` in a password must be written %3F".to_owned()),
            (name, _) => return Err(format!("`{name}` is not known: prefix, slots, replicas and format are")),
        }
        Ok(())
    }
}

// The password is in the address: no error may repeat it.
fn seed(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info()
        .map_err(|_| "the address does not name a server: redis://[user:password@]host[:port][/db]".to_owned())
}

/// The same login at another server.
pub(super) fn at(seed: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let addr = match seed.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    seed.clone().set_addr(addr)
}

/// Where a server is, and its port.
pub(super) fn host(info: &ConnectionInfo) -> (&str, u16) {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host, *port),
        _ => ("", 0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        let one = Settings::parse("redis://u:p@cache:7000/3?prefix=fp&replicas=2&format=1").unwrap();
        assert_eq!((host(&one.seeds[0]), one.cluster, one.one_slot), (("cache", 7000), false, true));
        assert_eq!((one.prefix.as_str(), one.replicas, one.format), ("fp", 2, 1));
        assert_eq!((one.seeds[0].redis_settings().db(), one.seeds[0].redis_settings().password()), (3, Some("p")));
        let many = Settings::parse("rediss+cluster://:p@a:1,b,c:3?slots=one").unwrap();
        assert_eq!(many.seeds.iter().map(host).collect::<Vec<_>>(), [("a", 1), ("b", 6379), ("c", 3)]);
        assert!(many.cluster && many.one_slot && !Settings::parse("redis+cluster://a").unwrap().one_slot);
        let other = at(&many.seeds[0], "d", 4);
        assert!(matches!(other.addr(), ConnectionAddr::TcpTls { host, port: 4, insecure: false, .. } if host == "d"));
        assert_eq!(other.redis_settings().password(), Some("p"));
    }

    #[test]
    fn an_unknown_parameter_is_refused_and_a_password_is_not_repeated() {
        for url in [
            "redis://u:hush@h?prefx=a",
            "redis://u:hush@h?prefix=a{b",
            "redis://u:hush@h?slots=two",
            "redis://u:hush@h?replicas=some",
            "redis://u:hush@h?format=99",
            "redis://u:hush@h#insecure",
            "redis://u:hush@a,b",
            "redis+cluster://u:hush@a/4",
            "redis://u:hush@h:port",
            "redis+unix://u:hush@h",
        ] {
            let why = Settings::parse(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!why.contains("hush"), "{why}");
        }
    }
}
