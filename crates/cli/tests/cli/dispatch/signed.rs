//! Verifies what a delivery is signed with. Shares no code with who signs.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::delivery::Delivery;

pub fn hex_hmac(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether one of the secrets made `X-FGAI-Signature` (or the one by the previous secret), and one `Fencepost-Signature`.
pub fn verify(delivery: &Delivery, secrets: &[String]) -> Result<(), String> {
    let header = |name: &str| delivery.header(name).ok_or_else(|| format!("{name} is missing"));
    let body = delivery.body.as_slice();
    let fgai = [Some(header("x-fgai-signature")?), delivery.header("x-fgai-signature-previous")];
    let by = |made: &dyn Fn(&str) -> String, given: &str| secrets.iter().any(|secret| made(secret) == given);
    let whole = |secret: &str| format!("sha256={}", hex_hmac(secret, &[body]));
    if !fgai.iter().flatten().any(|given| by(&whole, given)) {
        return Err(format!("X-FGAI-Signature is by nobody known: {fgai:?}"));
    }
    let own = header("fencepost-signature")?;
    let (at, rest) = own.strip_prefix("t=").and_then(|own| own.split_once(',')).ok_or("no time")?;
    let marks = ["fencepost-lane", "fencepost-seq", "fencepost-prev-seq", "fencepost-attempt"];
    let marks: Vec<&str> = marks.into_iter().map(header).collect::<Result<_, _>>()?;
    let redrive = delivery.header("fencepost-redrive").unwrap_or("false");
    let head = format!("{at}\n{}\n{redrive}\n", marks.join("\n"));
    let made = |secret: &str| format!("v1={}", hex_hmac(secret, &[head.as_bytes(), body]));
    if !rest.split(',').any(|given| by(&made, given)) {
        return Err(format!("Fencepost-Signature is by nobody known: {own}"));
    }
    Ok(())
}

/// Whether `X-FGAI-Signature` itself is by this secret.
pub fn newest_is(delivery: &Delivery, secret: &str) -> bool {
    delivery.header("x-fgai-signature") == Some(&format!("sha256={}", hex_hmac(secret, &[&delivery.body])))
}
