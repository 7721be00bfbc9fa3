//! Seals a webhook for its row: of its url only scheme, host and port stay readable, and none of its secrets.
//! Never encrypts again where nothing has changed: the same transport put again is the same row.
//! Called by the API that takes transports, by the sink that posts to them, and when keys change.
//!
//! Tokens are in paths as often as in queries (`https://hooks.slack.com/services/T…/B…/…`), so everything after the
//! host is encrypted. The stored url is `https://host:port/#SEALED`: no accepted url has a fragment, so rows of the
//! previous release, with urls in clear, differ; and that release posts nothing to a url that it cannot read.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use fencepost_kernel::{
    Tenant,
    dispatch::{Transport, WarehouseTransport, Webhook},
};

use super::vault::{SealedFor, SealedPart, SealedUnder, Vault, hex, sealing_key};

/// Replaces the part of a url that is not shown.
pub const MASK: &str = "***";

/// A webhook's parts that are not stored in clear.
pub struct OpenWebhook {
    /// The whole url.
    pub url: String,
    /// The secrets, the newest first.
    pub secrets: Vec<Vec<u8>>,
}

impl Vault {
    /// The webhook to store for this url and these secrets. Parts that `known` has sealed keep their sealed form.
    pub fn seal_webhook(
        &self,
        planner: &Tenant,
        warehouse: &str,
        url: &str,
        secrets: &[&str],
        known: Option<&Webhook>,
    ) -> Result<Webhook, String> {
        let owner = |part| SealedFor { planner: planner.as_str(), warehouse, part };
        let same = |sealed: &&Bytes, secret: &str| {
            self.open_sealed(owner(SealedPart::Secret), sealed).is_ok_and(|open| open == secret.as_bytes())
        };
        let secret = |secret: &&str| match known.and_then(|known| known.secrets.iter().find(|one| same(one, secret))) {
            Some(sealed) => Ok(sealed.clone()),
            None => self.seal(owner(SealedPart::Secret), secret.as_bytes()),
        };
        let known_url = known.filter(|known| self.url(planner, warehouse, &known.url).is_ok_and(|known| known == url));
        let url = match known_url {
            Some(known) => known.url.clone(),
            None => self.seal_url(planner, warehouse, url)?,
        };
        Ok(Webhook { url, secrets: secrets.iter().map(secret).collect::<Result<_, _>>()?, standard: false })
    }

    /// Opens the url and the secrets of a stored webhook.
    pub fn open_webhook(&self, planner: &Tenant, warehouse: &str, webhook: &Webhook) -> Result<OpenWebhook, String> {
        let owner = SealedFor { planner: planner.as_str(), warehouse, part: SealedPart::Secret };
        let secrets = webhook.secrets.iter().map(|sealed| self.open_sealed(owner, sealed)).collect::<Result<_, _>>()?;
        Ok(OpenWebhook { url: self.url(planner, warehouse, &webhook.url)?, secrets })
    }

    /// The fingerprint of a key that a transport is sealed with and that is not in the list; none where all are.
    pub fn missing_key(&self, transport: &WarehouseTransport) -> Option<String> {
        sealed_parts(transport).find_map(|sealed| self.missing_key_of(&sealed))
    }

    /// The same transport sealed anew with the first key; none where all of it is sealed so.
    pub fn reseal(&self, transport: &WarehouseTransport) -> Result<Option<WarehouseTransport>, String> {
        let Transport::Webhook(webhook) = &transport.transport else { return Ok(None) };
        if self.webhook_under(webhook) == SealedUnder::First {
            return Ok(None);
        }
        let OpenWebhook { url, secrets } = self.open_webhook(&transport.planner, &transport.warehouse, webhook)?;
        let owner = SealedFor {
            planner: transport.planner.as_str(),
            warehouse: &transport.warehouse,
            part: SealedPart::Secret,
        };
        let secrets = secrets.iter().map(|secret| self.seal(owner, secret)).collect::<Result<_, _>>()?;
        let url = self.seal_url(&transport.planner, &transport.warehouse, &url)?;
        let anew = Transport::Webhook(Webhook { url, secrets, standard: webhook.standard });
        Ok(Some(WarehouseTransport { transport: anew, ..transport.clone() }))
    }

    /// The key that a webhook needs to be opened: that of the part that is farthest from the first key. A url in clear
    /// counts as sealed with an older key, so that it is sealed anew.
    fn webhook_under(&self, webhook: &Webhook) -> SealedUnder {
        let url = match (webhook.url.split_once('#'), split(&webhook.url).1) {
            (Some((_, sealed)), _) => self.sealed_under(&BASE64.decode(sealed).unwrap_or_default()),
            (None, "" | "/") => SealedUnder::First,
            (None, _) => SealedUnder::Older,
        };
        let all: Vec<_> = webhook.secrets.iter().map(|sealed| self.sealed_under(sealed)).chain([url]).collect();
        let found = |under| all.contains(&under);
        match (found(SealedUnder::Unknown), found(SealedUnder::Older)) {
            (true, _) => SealedUnder::Unknown,
            (_, true) => SealedUnder::Older,
            _ => SealedUnder::First,
        }
    }

    fn seal_url(&self, planner: &Tenant, warehouse: &str, url: &str) -> Result<String, String> {
        let (origin, rest) = split(url);
        if matches!(rest, "" | "/") {
            return Ok(url.to_owned());
        }
        let owner = SealedFor { planner: planner.as_str(), warehouse, part: SealedPart::UrlOf(origin) };
        let sealed = self.seal(owner, rest.as_bytes())?;
        Ok(format!("{origin}/#{}", BASE64.encode(sealed)))
    }

    fn url(&self, planner: &Tenant, warehouse: &str, stored: &str) -> Result<String, String> {
        let Some((front, sealed)) = stored.split_once('#') else { return Ok(stored.to_owned()) };
        let (origin, _) = split(front);
        let owner = SealedFor { planner: planner.as_str(), warehouse, part: SealedPart::UrlOf(origin) };
        let sealed = BASE64.decode(sealed).map_err(|_| "a sealed url is damaged")?;
        let rest = self.open_sealed(owner, &sealed)?;
        let rest = String::from_utf8(rest).map_err(|_| "a sealed url is damaged")?;
        Ok(format!("{origin}{rest}"))
    }
}

/// The fingerprints of the keys that a transport is sealed with: without all of them it cannot be used.
pub fn sealing_keys(transport: &WarehouseTransport) -> BTreeSet<String> {
    sealed_parts(transport).filter_map(|sealed| sealing_key(&sealed)).map(|print| hex(&print)).collect()
}

// The sealed secrets of a webhook, and the sealed part of its url.
fn sealed_parts(transport: &WarehouseTransport) -> impl Iterator<Item = Bytes> {
    let webhook = match &transport.transport {
        Transport::Webhook(webhook) => Some(webhook),
        Transport::Kafka { .. } | Transport::Poll => None,
    };
    webhook.into_iter().flat_map(|webhook| {
        let url = webhook.url.split_once('#').and_then(|(_, sealed)| BASE64.decode(sealed).ok());
        webhook.secrets.iter().cloned().chain(url.map(Bytes::from))
    })
}

/// The printable form of a stored url: scheme, host and port, and a mask if there is more.
pub fn shown_url(stored: &str) -> String {
    let (origin, rest) = split(stored);
    if matches!(rest, "" | "/") { stored.to_owned() } else { format!("{origin}/{MASK}") }
}

/// Scheme, host and port of a url without credentials.
pub fn origin(url: &str) -> &str {
    split(url).0
}

fn split(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |end| host + end);
    url.split_at(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use fencepost_kernel::{Millis, dispatch::WarehouseTransport, lane::AfterDead};

    use super::*;
    use crate::dispatch::key_file::MasterKey;

    const SLACK: &str = "https://hooks.slack.com:8443/services/T000/B000/XXXXXXXX?wait=true";

    fn planner() -> Tenant {
        Tenant::new("wms")
    }

    fn seal(vault: &Vault, url: &str, known: Option<&Webhook>) -> Webhook {
        vault.seal_webhook(&planner(), "WH-1", url, &["a long enough secret"], known).unwrap()
    }

    fn transport(webhook: Webhook) -> WarehouseTransport {
        WarehouseTransport {
            planner: planner(),
            warehouse: "WH-1".to_owned(),
            executor: "wes".to_owned(),
            transport: Transport::Webhook(webhook),
            after_dead: AfterDead::Continue,
            receiver_retain_ms: 1,
            at: Millis(5),
        }
    }

    #[test]
    fn of_a_stored_url_only_scheme_host_and_port_can_be_read() {
        let vault = Vault::fixed([7; 32]);
        for (url, shown) in [
            (SLACK, "https://hooks.slack.com:8443/***"),
            ("http://[::1]:9/a", "http://[::1]:9/***"),
            ("https://one.example?token=x", "https://one.example/***"),
            ("https://one.example/?token=x", "https://one.example/***"),
            ("https://one.example/", "https://one.example/"),
            ("https://one.example", "https://one.example"),
        ] {
            let webhook = seal(&vault, url, None);
            assert_eq!(shown_url(&webhook.url), shown);
            assert_eq!(shown_url(url), shown, "a row of the release before is masked, too");
            assert_eq!(vault.open_webhook(&planner(), "WH-1", &webhook).unwrap().url, url);
            assert!(!webhook.url.contains("token") && !webhook.url.contains("services"), "{}", webhook.url);
        }
    }

    #[test]
    fn the_same_webhook_again_is_the_same_row() {
        let vault = Vault::fixed([7; 32]);
        let first = seal(&vault, SLACK, None);
        assert_ne!(seal(&vault, SLACK, None), first);
        assert_eq!(seal(&vault, SLACK, Some(&first)), first);
        let other = seal(&vault, "https://hooks.slack.com:8443/other", Some(&first));
        assert_eq!(other.secrets, first.secrets);
        assert_ne!(other.url, first.url);
        // Rows of the previous release hold their url in clear; after a rotation, rows are sealed with an older key.
        let clear = Webhook { url: SLACK.to_owned(), ..first.clone() };
        assert_eq!(seal(&vault, SLACK, Some(&clear)), clear);
        let rotated = Vault::of(&[MasterKey([8; 32]), MasterKey([7; 32])]);
        assert_eq!(seal(&rotated, SLACK, Some(&first)), first);
    }

    #[test]
    fn a_sealed_url_opens_behind_no_other_host_and_in_no_other_row() {
        let vault = Vault::fixed([7; 32]);
        let mut webhook = seal(&vault, SLACK, None);
        assert!(vault.open_webhook(&Tenant::new("other"), "WH-1", &webhook).is_err());
        assert!(vault.open_webhook(&planner(), "WH-2", &webhook).is_err());
        webhook.url = webhook.url.replace("hooks.slack.com", "evil.example");
        assert!(vault.open_webhook(&planner(), "WH-1", &webhook).is_err());
        webhook.url = "https://hooks.slack.com/#?".to_owned();
        assert!(vault.open_webhook(&planner(), "WH-1", &webhook).is_err());
    }

    #[test]
    fn rows_are_resealed_with_the_first_key_once() {
        let (old, both) = (Vault::fixed([7; 32]), Vault::of(&[MasterKey([8; 32]), MasterKey([7; 32])]));
        let before = transport(seal(&old, SLACK, None));
        assert_eq!(old.reseal(&before), Ok(None));
        let after = both.reseal(&before).unwrap().unwrap();
        assert_eq!(both.reseal(&after), Ok(None));
        let Transport::Webhook(webhook) = &after.transport else { panic!("{after:?}") };
        let opened = Vault::fixed([8; 32]).open_webhook(&planner(), "WH-1", webhook).unwrap();
        assert_eq!((opened.url.as_str(), &*opened.secrets), (SLACK, &[b"a long enough secret".to_vec()][..]));
        assert_eq!(
            WarehouseTransport { transport: before.transport.clone(), ..after.clone() },
            before,
            "nothing else changes"
        );
        assert!(old.reseal(&after).unwrap_err().contains("another key"));
        let Transport::Webhook(webhook) = before.transport else { panic!() };
        let clear = transport(Webhook { url: SLACK.to_owned(), ..webhook });
        let sealed = old.reseal(&clear).unwrap().unwrap();
        assert!(!format!("{sealed:?}").contains("services"));
    }
}
