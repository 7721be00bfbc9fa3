//! Parses the address of a store (a directory, a PostgreSQL or a Redis URL) and opens the store there.
//! Never shows a password: the printed form is safe to show.
//! Called wherever a store is opened from a text: by the commands, and by the library.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{
    Error, Store,
    embedded::{self, Embedded},
};

/// The address of a store, as a user writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// The embedded store in a directory.
    Directory(PathBuf),
    /// `postgres://user@host/database`
    Postgres(String),
    /// `redis://host`, or `redis+cluster://host,host` for a cluster; `rediss` for TLS.
    Redis(String),
}

/// The identity with which a node opens a shared store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opener {
    /// The node's name; unique among all that share the store.
    pub node: String,
    /// The address at which clients reach the node; empty for a node that serves no clients.
    pub address: String,
    /// The Fencepost release that the node runs.
    pub release: String,
    /// For tests of a rolling upgrade: reads and writes rows only up to this format, as an older release does.
    #[doc(hidden)]
    pub format_max: Option<u8>,
    /// How the embedded store is opened.
    pub embedded: embedded::Options,
}

impl Address {
    /// Reads an address: anything without `://` is a directory.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            None if text.is_empty() => Err("the address of a store is empty".to_owned()),
            // Taken for a directory, a mistyped server address would give each node a store of its own.
            None if looks_like_a_server(text) => {
                Err("this is no directory and no address: write postgres://user@host/database or redis://host"
                    .to_owned())
            }
            None => Ok(Self::Directory(text.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.to_owned())),
            Some(("redis" | "rediss" | "redis+cluster" | "rediss+cluster", _)) => Ok(Self::Redis(text.to_owned())),
            Some((scheme, _)) => Err(format!(
                "`{scheme}://` is no store: give postgres://…, redis://…, redis+cluster://… or a directory"
            )),
        }
    }

    /// Opens the store. A shared one needs a Tokio runtime, which must outlive it.
    pub async fn open(&self, opener: &Opener) -> Result<Arc<dyn Store>, Error> {
        match self {
            Self::Directory(path) => Ok(Arc::new(Embedded::open(path, opener.embedded.clone())?)),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Ok(Arc::new(crate::postgres::Postgres::open(url, opener).await?)),
            #[cfg(feature = "redis")]
            Self::Redis(url) => Ok(Arc::new(crate::redis::Redis::open(url).await?)),
            #[allow(unreachable_patterns, reason = "reachable only where a backend is left out")]
            _ => {
                Err(Error::Broken(format!("{self}: this build was made without that store; opened by {}", opener.node)))
            }
        }
    }

    /// Why the store could not be opened, with its address. Errors about a directory contain its path already.
    pub fn not_opened(&self, error: &Error) -> String {
        match self {
            Self::Directory(_) => error.why().to_owned(),
            Self::Postgres(_) | Self::Redis(_) => format!("{self}: {}", error.why()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Postgres(url) | Self::Redis(url) => f.write_str(&without_password(url)),
        }
    }
}

fn looks_like_a_server(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme.trim_end_matches("+cluster").to_ascii_lowercase());
    let schemes = ["postgres", "postgresql", "redis", "rediss"];
    scheme.is_some_and(|scheme| schemes.contains(&scheme.as_str()))
        || ["host=", "dbname=", "password="]
            .iter()
            .any(|word| text.split_whitespace().any(|part| part.starts_with(word)))
}

// The login is between the scheme and the last @. After its first colon comes the password, in any characters.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let place = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    match rest.rsplit_once('@') {
        Some((login, hosts)) => {
            let user = login.split([':', '/', '?']).next().unwrap_or_default();
            format!("{scheme}://{user}@{}", place(hosts))
        }
        None => format!("{scheme}://{}", place(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_known_scheme_a_server() {
        assert_eq!(Address::parse("./data"), Ok(Address::Directory("./data".into())));
        assert!(matches!(Address::parse("postgresql://h/d"), Ok(Address::Postgres(_))));
        assert!(matches!(Address::parse("rediss+cluster://a,b"), Ok(Address::Redis(_))));
        assert!(Address::parse("mysql://h").is_err_and(|why| why.contains("mysql")));
        assert!(Address::parse("").is_err());
        for typo in ["postgres:/fp:hush@db/fences", "redis+cluster:h", "host=db password=hush dbname=fences"] {
            assert!(Address::parse(typo).is_err_and(|why| !why.contains("hush")), "{typo}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://fp:hush@db:5432/fences?password=hush",
            "postgres://fp:h@sh:hush@db/fences",
            "postgres://fp:hu/sh?hush@db/fences",
        ] {
            let shown = Address::Postgres(url.to_owned()).to_string();
            assert!(
                !shown.contains("hush")
                    && !shown.contains("hu/sh")
                    && shown.contains("fp@db")
                    && shown.ends_with("/fences"),
                "{shown}"
            );
        }
        assert_eq!(Address::Redis("redis://:hush@cache".to_owned()).to_string(), "redis://@cache");
    }
}
