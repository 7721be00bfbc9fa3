//! Incoming webhooks: the providers' published vectors and every refusal as a table, and forgeries that must all fail.
//! The table's signatures were made by other code than ours; those of the properties are made by ring.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use fencepost::{
    policy::routes::{Scheme, Verify},
    verify::{Refused, secret, verify},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use ring::hmac;
use serde_json::Value;

const TABLE: &str = include_str!("../vectors/webhooks.json");
const NOW_S: u64 = 1_614_265_330;
const SCHEMES: [(&str, Scheme); 4] = [
    ("stripe", Scheme::Stripe),
    ("github", Scheme::Github),
    ("standard-webhooks", Scheme::StandardWebhooks),
    ("fgai", Scheme::Fgai),
];

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn outcome(verdict: Result<(), Refused>) -> String {
    match verdict {
        Ok(()) => "verified".to_owned(),
        Err(Refused::Missing(name)) => format!("missing {name}"),
        Err(Refused::Malformed) => "malformed".to_owned(),
        Err(Refused::Stale) => "stale".to_owned(),
        Err(Refused::Wrong) => "wrong".to_owned(),
    }
}

#[test]
fn each_row_of_the_table_ends_as_it_says() {
    let table: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    let mut seen = BTreeSet::new();
    for row in &table {
        let (name, scheme) = *SCHEMES.iter().find(|(name, _)| *name == row["scheme"]).unwrap();
        let secrets = texts(&row["secrets"]).into_iter().map(str::to_owned).collect();
        let tolerance = Duration::from_secs(row["tolerance_s"].as_u64().unwrap_or(300));
        let how = Verify { scheme, secrets, tolerance };
        let mut headers = HeaderMap::new();
        for header in row["headers"].as_array().unwrap() {
            let [name, value] = texts(header).try_into().unwrap();
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
        }
        let body = row["body"].as_str().unwrap().as_bytes();
        let now_s = row["now_s"].as_u64().unwrap_or(NOW_S);
        // Signed times are whole seconds: where in its second it is now makes no difference.
        for now_ms in [now_s * 1_000, now_s * 1_000 + 999] {
            assert_eq!(outcome(verify(&how, &headers, body, now_ms)), row["outcome"], "{}", row["says"]);
        }
        let kind = row["outcome"].as_str().unwrap().split(' ').next().unwrap();
        seen.insert((name, kind.to_owned()));
    }
    for (scheme, _) in SCHEMES {
        for kind in ["verified", "missing", "malformed", "wrong"] {
            assert!(seen.contains(&(scheme, kind.to_owned())), "{scheme} has no row that is {kind}");
        }
    }
}

#[test]
fn a_tolerance_below_a_second_counts_as_one() {
    let (mut how, headers) = signed(Scheme::Stripe, b"secret", b"{}");
    for (tolerance, late_s, expected) in [
        (Duration::from_millis(1), 1, "verified"),
        (Duration::from_millis(1), 2, "stale"),
        (Duration::from_millis(1_001), 2, "verified"),
        (Duration::ZERO, 1, "stale"),
    ] {
        how.tolerance = tolerance;
        let verdict = verify(&how, &headers, b"{}", (NOW_S + late_s) * 1_000);
        assert_eq!(outcome(verdict), expected, "{tolerance:?} and {late_s} s late");
    }
    how.tolerance = Duration::MAX;
    assert_eq!(outcome(verify(&how, &headers, b"{}", u64::MAX)), "verified");
}

#[test]
fn a_refused_secret_is_explained_without_showing_it() {
    for (scheme, text) in [
        (Scheme::StandardWebhooks, "whsec_s3cr!t"),
        (Scheme::StandardWebhooks, "s3cr!t"),
        (Scheme::Fgai, "whsec_s3cr!t"),
    ] {
        let why = secret(scheme, text).unwrap_err();
        assert!(why.contains("base64") && !why.contains("s3cr!t"), "{why}");
    }
    for (_, scheme) in SCHEMES {
        assert!(secret(scheme, "").is_err(), "{scheme:?}");
    }
}

#[test]
fn a_refusal_tells_the_sender_nothing_about_the_secret() {
    for (refused, text) in [
        (Refused::Missing("webhook-id"), "there is no webhook-id header"),
        (Refused::Malformed, "the signature cannot be read"),
        (Refused::Stale, "the signature is too old, or from the future"),
        (Refused::Wrong, "no signature fits"),
    ] {
        assert_eq!(refused.to_string(), text);
    }
}

/// How a route verifies, and the headers of a request that it must accept.
fn signed(scheme: Scheme, key: &[u8; 6], body: &[u8]) -> (Verify, HeaderMap) {
    let sign = |head: &str| {
        let message = [head.as_bytes(), body].concat();
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &message).as_ref().to_vec()
    };
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let literal = String::from_utf8(key.to_vec()).unwrap();
    let (text, headers) = match scheme {
        Scheme::Stripe => {
            (literal, vec![("stripe-signature", format!("t={NOW_S},v1={}", hex(sign(&format!("{NOW_S}.")))))])
        }
        Scheme::Github => (literal, vec![("x-hub-signature-256", format!("sha256={}", hex(sign(""))))]),
        Scheme::Fgai => (literal, vec![("x-fgai-signature", format!("sha256={}", hex(sign(""))))]),
        Scheme::StandardWebhooks => {
            let signature = format!("v1,{}", BASE64.encode(sign(&format!("msg_1.{NOW_S}."))));
            let headers = [("webhook-id", "msg_1".to_owned()), ("webhook-timestamp", NOW_S.to_string())];
            (format!("whsec_{}", BASE64.encode(key)), [&headers[..], &[("webhook-signature", signature)]].concat())
        }
    };
    let headers = headers
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::try_from(value).unwrap()))
        .collect();
    (Verify { scheme, secrets: vec!["not it".to_owned(), text], tolerance: Duration::from_secs(300) }, headers)
}

fn accepts(how: &Verify, headers: &HeaderMap, body: &[u8]) -> bool {
    verify(how, headers, body, NOW_S * 1_000).is_ok()
}

// Every byte of every header, as every other byte that a header may hold. Only the case of a hexadecimal digit is free.
#[test]
fn no_header_can_be_changed() {
    for (_, scheme) in SCHEMES {
        let (how, headers) = signed(scheme, b"secret", b"{\"id\":1}");
        assert!(accepts(&how, &headers, b"{\"id\":1}"));
        let mut tried = 0;
        for (name, value) in &headers {
            for (at, byte) in value.as_bytes().iter().enumerate() {
                for other in (0..=u8::MAX).filter(|other| other != byte) {
                    let mut bytes = value.as_bytes().to_vec();
                    bytes[at] = other;
                    let Ok(changed) = HeaderValue::from_bytes(&bytes) else { continue };
                    let mut headers = headers.clone();
                    headers.insert(name, changed);
                    let digit = scheme != Scheme::StandardWebhooks && at >= value.len() - 64;
                    let same = digit && byte.eq_ignore_ascii_case(&other);
                    let shown = String::from_utf8_lossy(&bytes);
                    assert_eq!(accepts(&how, &headers, b"{\"id\":1}"), same, "{scheme:?} {name}: {shown}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 10_000, "{scheme:?}: {tried}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_can_be_changed(
        body in proptest::collection::vec(any::<u8>(), 1..200),
        at in any::<proptest::sample::Index>(),
        flipped in 1..=u8::MAX,
        key in "[a-z]{6}",
    ) {
        let key: [u8; 6] = key.into_bytes().try_into().unwrap();
        let at = at.index(body.len());
        let mut changed = body.clone();
        changed[at] ^= flipped;
        let longer = [&body[..at], &[flipped], &body[at..]].concat();
        for (name, scheme) in SCHEMES {
            let (how, headers) = signed(scheme, &key, &body);
            prop_assert!(accepts(&how, &headers, &body), "{}", name);
            for forged in [&changed, &longer, &body[..at].to_vec()] {
                prop_assert!(!accepts(&how, &headers, forged), "{}: {:?} for {:?}", name, forged, body);
            }
            let (stranger, _) = signed(scheme, b"SECRET", &body);
            prop_assert!(!accepts(&stranger, &headers, &body), "{}", name);
        }
    }
}
