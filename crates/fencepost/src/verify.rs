//! Checks the signature that a gateway rule asks for, over the bytes of an incoming webhook as they came.
//! Never parses the body, never reads a clock, and never says which of the secrets it tried.
//! Called by the gateway before anything else looks at the request; the arithmetic is in `signature`.

use http::HeaderMap;

use crate::{
    policy::routes::{Scheme, Verify},
    signature::{Secret, Window, verify_fgai, verify_standard, verify_stripe},
};

pub use crate::signature::Refused;

/// Whether a request with these headers and this body is signed as the rule asks. Any of its secrets may have signed,
/// so that one can be changed without a gap.
pub fn verify(how: &Verify, headers: &HeaderMap, body: &[u8], now_ms: u64) -> Result<(), Refused> {
    // A secret that cannot be used is left out. Without any, no signature fits.
    let secrets: Vec<Secret> = how.secrets.iter().filter_map(|text| secret(how.scheme, text).ok()).collect();
    let window = Window {
        now_s: now_ms / 1_000,
        // Signed times are whole seconds: a tolerance below one must not refuse a fresh signature.
        tolerance_s: how.tolerance.as_secs().saturating_add(u64::from(how.tolerance.subsec_nanos() > 0)),
    };
    let one = |name| one(headers, name);
    match how.scheme {
        Scheme::Stripe => verify_stripe(&secrets, one("stripe-signature")?, body, window),
        Scheme::Github => verify_fgai(&secrets, one("x-hub-signature-256")?, body),
        Scheme::StandardWebhooks => {
            let either = |name| either(headers, name);
            let (id, at) = (either("webhook-id")?, either("webhook-timestamp")?);
            verify_standard(&secrets, id, at, either("webhook-signature")?, body, window)
        }
        Scheme::Fgai => {
            let newest = verify_fgai(&secrets, one("x-fgai-signature")?, body);
            // While a sender changes its secret, it also signs with the one before.
            match one("x-fgai-signature-previous") {
                Err(Refused::Missing(_)) => newest,
                previous => previous.and_then(|text| newest.or_else(|_| verify_fgai(&secrets, text, body))),
            }
        }
    }
}

/// Reads a secret of the policy: Stripe and GitHub show the key itself, Standard Webhooks shows base64. The error names
/// the fault, and never shows the secret.
pub fn secret(scheme: Scheme, text: &str) -> Result<Secret, String> {
    match scheme {
        Scheme::Stripe | Scheme::Github => Secret::literal(text.as_bytes()),
        Scheme::StandardWebhooks => Secret::base64(text.as_bytes()),
        Scheme::Fgai => Secret::new(text.as_bytes()),
    }
}

/// The other name of a header of Standard Webhooks: Svix, whose scheme it was first, keeps its own.
pub fn standard_twin(name: &str) -> Option<&'static str> {
    const TWINS: [(&str, &str); 3] =
        [("webhook-id", "svix-id"), ("webhook-timestamp", "svix-timestamp"), ("webhook-signature", "svix-signature")];
    TWINS.iter().find_map(|(one, two)| match name {
        _ if name.eq_ignore_ascii_case(one) => Some(*two),
        _ if name.eq_ignore_ascii_case(two) => Some(*one),
        _ => None,
    })
}

// A header of Standard Webhooks under either name. Under both, it must be the same: the application may read the one
// that was not verified.
pub(crate) fn either<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, Refused> {
    let svix = standard_twin(name).map_or(Err(Refused::Missing(name)), |svix| one(headers, svix));
    match (one(headers, name), svix) {
        (Ok(value), Ok(other)) if value != other => Err(Refused::Malformed),
        (found, Err(Refused::Missing(_))) => found,
        (Err(Refused::Missing(_)), found) => found,
        (Ok(value), Ok(_)) => Ok(value),
        (Err(refused), _) | (_, Err(refused)) => Err(refused),
    }
}

// A repeated header is refused: the application might read another value than the one verified here.
fn one<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, Refused> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Err(Refused::Missing(name)),
        (Some(line), None) => line.to_str().map_err(|_| Refused::Malformed),
        (Some(_), Some(_)) => Err(Refused::Malformed),
    }
}
