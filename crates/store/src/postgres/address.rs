//! Parses the url of a database: the parameters of TLS are read here, the driver reads all others.
//! Never shows a password. Called when a store is opened.

use std::{path::PathBuf, time::Duration};

use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
};

use super::tls::{Tls, Trust, tls};
use crate::Error;

/// How long one host may take to accept a connection, where the url does not say.
const CONNECT: Duration = Duration::from_millis(800);

/// A parsed url: the driver's configuration, and how TLS connections are made.
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

impl Target {
    /// Reads the url. `sslmode` knows `disable`, `prefer` (the default), `require` and `verify-full`; `sslrootcert`
    /// names a PEM file of authorities. All other parameters are the driver's.
    pub(super) fn read(url: &str, node: &str) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (None, None, Vec::new());
        for param in query.split('&').filter(|param| !param.is_empty()) {
            match param.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(PathBuf::from(value)),
                _ => others.push(param),
            }
        }
        let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let wrong = |why: String| Error::Broken(format!("the address of the database: {why}"));
        let mut config: Config = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let (ssl_mode, trust) = match (mode, roots) {
            (Some("disable"), _) => (SslMode::Disable, Trust::Anyone),
            (None | Some("prefer"), None) => (SslMode::Prefer, Trust::Anyone),
            (Some("require"), None) => (SslMode::Require, Trust::Anyone),
            // As in libpq: a url that names an authority wants the certificate checked.
            (Some("require" | "verify-ca" | "verify-full"), Some(file)) => (SslMode::Require, Trust::File(file)),
            (Some("verify-ca" | "verify-full"), None) => (SslMode::Require, Trust::Public),
            (None | Some("prefer"), Some(_)) => {
                return Err(wrong("sslrootcert needs sslmode=verify-full: else anybody could answer".to_owned()));
            }
            (Some(other), _) => return Err(wrong(format!("sslmode={other} is unknown"))),
        };
        config.ssl_mode(ssl_mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        // A standby answers too, but with old rows: unless the url says otherwise, only a primary will do.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name(format!("fencepost {node}"));
        }
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        Ok(Self { config, tls: tls(&trust)? })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Target, String> {
        Target::read(url, "n").map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_of_tls_are_ours_and_the_others_the_drivers() {
        let target = read("postgres://u:hush@a,b/db?sslmode=verify-full&target_session_attrs=read-write").unwrap();
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(target.config.get_hosts().len(), 2);
        assert_eq!(target.config.get_application_name(), Some("fencepost n"));
        assert_eq!(read("postgres://u@a/db").unwrap().config.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn an_address_that_promises_less_than_it_seems_is_refused_without_its_password() {
        for url in [
            "postgres://u:hush@a/db?sslmode=maybe",
            "postgres://u:hush@a/db?sslrootcert=/x",
            "postgres://u:hush@a/db?no=1",
        ] {
            let why = read(url).err().unwrap();
            assert!(!why.contains("hush") && why.contains("address of the database"), "{why}");
        }
    }
}
