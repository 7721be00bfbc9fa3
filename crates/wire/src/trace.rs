//! The trace that a request belongs to: the caller's, where it names a valid one, or a new one.

use fencepost_kernel::fence::HolderTrace;
use http::HeaderValue;

/// A W3C trace id: 32 hexadecimal digits. Every request has one, so it allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceId([u8; 32]);

impl std::ops::Deref for TraceId {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl TraceId {
    /// The form that is stored with a claim.
    pub fn held(&self) -> HolderTrace {
        let digit = |at: usize| (self.0[at] as char).to_digit(16).unwrap_or_default() as u8;
        HolderTrace(std::array::from_fn(|at| digit(2 * at) << 4 | digit(2 * at + 1)))
    }

    /// Back from the form that is stored with a claim.
    pub fn from_held(held: HolderTrace) -> Self {
        let digit = |at: usize| held.0[at / 2] >> (4 * (1 - at % 2)) & 15;
        Self(std::array::from_fn(|at| b"0123456789abcdef"[usize::from(digit(at))]))
    }

    /// From a `traceparent`, or new.
    pub fn of(traceparent: Option<&HeaderValue>) -> Self {
        traceparent.and_then(given).unwrap_or_else(|| {
            // Unique, not secret.
            let number = fastrand::u128(1..);
            Self(std::array::from_fn(|at| b"0123456789abcdef"[(number >> (4 * at)) as usize & 15]))
        })
    }
}

/// The trace id of `traceparent`: version, 32 hex, 16 hex, flags.
fn given(traceparent: &HeaderValue) -> Option<TraceId> {
    let mut parts = traceparent.to_str().ok()?.split('-');
    let (version, id, span) = (parts.next()?, parts.next()?, parts.next()?);
    let hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let known = hex(version, 2) && version != "ff" && hex(id, 32) && hex(span, 16);
    let id = id.as_bytes().try_into().ok()?;
    (known && id != [b'0'; 32]).then_some(TraceId(id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_taken_only_from_a_well_formed_traceparent() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let check = |value: String, expected: Option<&str>| {
            let value = HeaderValue::from_str(&value).unwrap();
            assert_eq!(given(&value).as_deref(), expected, "{value:?}");
        };
        check(format!("00-{id}-00f067aa0ba902b7-01"), Some(id));
        check(format!("ff-{id}-00f067aa0ba902b7-01"), None);
        check(format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()), None);
        check(format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None);
        check(format!("00-{id}"), None);
        check("\"}".to_owned(), None);
    }

    #[test]
    fn trace_id_that_was_kept_with_a_claim_reads_as_it_came() {
        for id in ["4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000001"] {
            let value = HeaderValue::from_str(&format!("00-{id}-00f067aa0ba902b7-01")).unwrap();
            assert_eq!(&*TraceId::from_held(TraceId::of(Some(&value)).held()), id);
        }
    }
}
