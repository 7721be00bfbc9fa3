//! Makes and verifies the signatures on a delivery: X-FGAI, Standard Webhooks, and our own over headers and body.
//! Verifies those of Stripe and GitHub. Never reads a clock, and compares in constant time only.
//! Called by the webhook sink to sign, and by receivers to verify.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The prefix of a secret of Standard Webhooks. Base64 follows.
const STANDARD_PREFIX: &[u8] = b"whsec_";
const BLOCK_LEN: usize = 64;

/// A secret that signs. A text of `whsec_` and base64 means the decoded bytes, any other its own, in every signature.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The secret in the form that a person writes.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        if text.starts_with(STANDARD_PREFIX) { Self::base64(text) } else { Self::literal(text) }
    }

    /// The number of bytes that a written secret means; a secret may not be empty.
    pub fn key_bytes(text: &[u8]) -> Result<usize, String> {
        Self::new(text)?;
        let coded = text.strip_prefix(STANDARD_PREFIX);
        Ok(coded.map_or(text.len(), |coded| BASE64.decode(coded).map_or(0, |key| key.len())))
    }

    /// The bytes of a base64 text, with or without `whsec_` in front: the form of Standard Webhooks.
    pub fn base64(text: &[u8]) -> Result<Self, String> {
        let (coded, what) = match text.strip_prefix(STANDARD_PREFIX) {
            Some(coded) => (coded, "what follows `whsec_` in a secret must be base64"),
            None => (text, "a secret of Standard Webhooks must be base64, with or without `whsec_` in front"),
        };
        Self::literal(&BASE64.decode(coded).map_err(|_| what)?)
    }

    /// The bytes themselves, whatever they begin with: the form of Stripe and GitHub.
    pub fn literal(key: &[u8]) -> Result<Self, String> {
        if key.is_empty() {
            return Err("a secret may not be empty".to_owned());
        }
        // As in HMAC: a key longer than a block is replaced by its digest, and a shorter one is padded with zeros.
        let mut block = [0; BLOCK_LEN];
        if key.len() > BLOCK_LEN {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Ok(Self(Hmac::new(&block.into())))
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }

    fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.over(parts).finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The position of an event in its lane, as the headers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks<'a> {
    /// `Fencepost-Lane`, as it is in the header: see [`lane_text`].
    pub lane: &'a str,
    /// `Fencepost-Seq`.
    pub seq: u64,
    /// `Fencepost-Prev-Seq`.
    pub prev_seq: u64,
    /// `Fencepost-Attempt`.
    pub attempt: u32,
    /// Whether `Fencepost-Redrive: true` is there.
    pub redrive: bool,
}

impl Marks<'_> {
    /// The text that is signed in front of the body.
    fn text(&self, at_s: u64) -> String {
        let Self { lane, seq, prev_seq, attempt, redrive } = self;
        format!("{at_s}\n{lane}\n{seq}\n{prev_seq}\n{attempt}\n{redrive}\n")
    }
}

/// The span of time in which a signature must have been made.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The time now, in seconds since the Unix epoch.
    pub now_s: u64,
    /// How far a signed time may be from now, either way, in seconds.
    pub tolerance_s: u64,
}

/// Why a signature is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The header of this name is not there.
    Missing(&'static str),
    /// The signature or its time cannot be read.
    Malformed,
    /// The signed time is too old, or in the future.
    Stale,
    /// None of the secrets made it over these bytes.
    Wrong,
}

// The sender reads this: it names the header, but never which secret was tried, nor how near it came.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "there is no {name} header"),
            Self::Malformed => f.write_str("the signature cannot be read"),
            Self::Stale => f.write_str("the signature is too old, or from the future"),
            Self::Wrong => f.write_str("no signature fits"),
        }
    }
}

impl std::error::Error for Refused {}

/// A lane's name as it is in headers: all but visible ASCII is percent-encoded, and so is `%`.
pub fn lane_text(name: &str) -> Cow<'_, str> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'%';
    if name.as_bytes().iter().all(plain) {
        return Cow::Borrowed(name);
    }
    let coded = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Cow::Owned(name.bytes().map(coded).collect())
}

/// The value of `X-FGAI-Signature`.
pub fn fgai(secret: &Secret, body: &[u8]) -> String {
    format!("sha256={}", hex(&secret.sign(&[body])))
}

/// The value of `webhook-signature`: a signature with each secret.
pub fn standard(secrets: &[Secret], id: &str, at_s: u64, body: &[u8]) -> String {
    let head = standard_head(id, at_s);
    let all: Vec<_> =
        secrets.iter().map(|secret| format!("v1,{}", BASE64.encode(secret.sign(&[head.as_bytes(), body])))).collect();
    all.join(" ")
}

/// The value of `Fencepost-Signature`: the time, and a signature with each secret.
pub fn fencepost(secrets: &[Secret], at_s: u64, marks: &Marks<'_>, body: &[u8]) -> String {
    let head = marks.text(at_s);
    let each = |secret: &Secret| format!(",v1={}", hex(&secret.sign(&[head.as_bytes(), body])));
    format!("t={at_s}{}", secrets.iter().map(each).collect::<String>())
}

/// Whether `X-FGAI-Signature`, or `X-FGAI-Signature-Previous`, is by one of the secrets. GitHub's has the same form.
pub fn verify_fgai(secrets: &[Secret], header: &str, body: &[u8]) -> Result<(), Refused> {
    let given = header.strip_prefix("sha256=").and_then(unhex).ok_or(Refused::Malformed)?;
    by_one_of(secrets, &[body], &[given])
}

/// Whether the headers of Standard Webhooks are by one of the secrets, and of a time within the window.
pub fn verify_standard(
    secrets: &[Secret],
    id: &str,
    timestamp: &str,
    signature: &str,
    body: &[u8],
    window: Window,
) -> Result<(), Refused> {
    let at_s = whole(timestamp).ok_or(Refused::Malformed)?;
    let decoded = |one: &str| one.strip_prefix("v1,").and_then(|coded| BASE64.decode(coded).ok());
    let given: Vec<_> = signature.split(' ').filter_map(decoded).collect();
    by_one_of(secrets, &[standard_head(id, at_s).as_bytes(), body], &given)?;
    window.holds(at_s)
}

/// Whether `Stripe-Signature` is by one of the secrets, and of a time within the window.
pub fn verify_stripe(secrets: &[Secret], signature: &str, body: &[u8], window: Window) -> Result<(), Refused> {
    let (at_s, given) = timed(signature)?;
    by_one_of(secrets, &[format!("{at_s}.").as_bytes(), body], &given)?;
    window.holds(at_s)
}

/// Whether `Fencepost-Signature` is by one of the secrets, over these marks and this body, and within the window.
pub fn verify_fencepost(
    secrets: &[Secret],
    signature: &str,
    marks: &Marks<'_>,
    body: &[u8],
    window: Window,
) -> Result<(), Refused> {
    let (at_s, given) = timed(signature)?;
    by_one_of(secrets, &[marks.text(at_s).as_bytes(), body], &given)?;
    window.holds(at_s)
}

impl Window {
    fn holds(self, at_s: u64) -> Result<(), Refused> {
        if self.now_s.abs_diff(at_s) <= self.tolerance_s { Ok(()) } else { Err(Refused::Stale) }
    }
}

fn standard_head(id: &str, at_s: u64) -> String {
    format!("{id}.{at_s}.")
}

/// Reads `t=SECONDS`, which must be there once, and every `v1=HEX`, one per secret. Other items are ignored: Stripe
/// sends a `v0` in test mode.
fn timed(header: &str) -> Result<(u64, Vec<Vec<u8>>), Refused> {
    let of = |name: &'static str| header.split(',').filter_map(move |item| item.strip_prefix(name));
    let mut times = of("t=");
    let (Some(at), None) = (times.next(), times.next()) else { return Err(Refused::Malformed) };
    let at_s = whole(at).ok_or(Refused::Malformed)?;
    Ok((at_s, of("v1=").filter_map(unhex).collect()))
}

/// The most signatures in one header. A sender has a few; the bound limits the work that a hostile header can cause.
const GIVEN_MAX: usize = 8;

fn by_one_of(secrets: &[Secret], parts: &[&[u8]], given: &[Vec<u8>]) -> Result<(), Refused> {
    if given.is_empty() || given.len() > GIVEN_MAX {
        return Err(Refused::Malformed);
    }
    let made: Vec<_> = secrets.iter().map(|secret| secret.over(parts)).collect();
    let right = made.iter().any(|mac| given.iter().any(|one| mac.clone().verify_slice(one).is_ok()));
    if right { Ok(()) } else { Err(Refused::Wrong) }
}

/// A number of digits only: no sign, no spaces, no leading zeros.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}
