//! Reads the verdict from a receiver's answer, and keeps a note of it for a person.
//! Never follows a redirect, and never waits for a body that does not come. Called by the sink.

use std::{
    error::Error,
    time::{Duration, UNIX_EPOCH},
};

use fencepost::dispatch::{MASK, origin};
use fencepost_kernel::lane::{AttemptFailure, ReceiverAnswer};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

/// A body up to here is read to its end, and its connection used again; a longer one is cut off.
const BODY_BYTES_MAX: usize = 4_096;
/// How long a body may take once its head is there.
const BODY_MS_MAX: u64 = 500;
/// Shorter parts of a url are taken for words, not for secrets.
const SECRET_PART_BYTES_MIN: usize = 8;
/// The longest wait that a receiver can ask for: the 24 hours for which an event is tried.
const WISH_MS_MAX: u64 = 24 * 3_600_000;

/// A failure that a later attempt may not meet.
pub(super) fn later(note: &str) -> AttemptFailure {
    AttemptFailure::Later { answer: ReceiverAnswer::new(None, note), wish_ms: None }
}

/// Any 2xx is an acknowledgement, also if its body never ends. `url` is the receiver's: where an answer repeats it, the
/// note that is kept masks it.
pub(super) async fn understood(response: Response<Incoming>, now_ms: u64, url: &str) -> Result<(), AttemptFailure> {
    let (head, body) = response.into_parts();
    let start = start_of(body).await;
    if head.status.is_success() {
        return Ok(());
    }
    let note = match head.headers.get(header::LOCATION) {
        Some(place) if head.status.is_redirection() => {
            format!("redirects are not followed; this one leads to {}", String::from_utf8_lossy(place.as_bytes()))
        }
        _ => String::from_utf8_lossy(&start).into_owned(),
    };
    let answer = ReceiverAnswer::new(Some(head.status.as_u16()), &masked(readable(&note), url));
    Err(match head.status {
        StatusCode::GONE => AttemptFailure::Gone(answer),
        _ => AttemptFailure::Later { answer, wish_ms: wish_ms(&head.headers, now_ms) },
    })
}

/// The first bytes of a body, as far as they come in time.
async fn start_of(mut body: Incoming) -> Vec<u8> {
    let mut start = Vec::new();
    let reading = async {
        while start.len() <= BODY_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            if let Ok(data) = frame.into_data() {
                start.extend_from_slice(&data);
            }
        }
    };
    // Late, endless or broken off: the start is enough, and the connection is dropped with the body.
    let _late = timeout(Duration::from_millis(BODY_MS_MAX), reading).await;
    start
}

/// The text on one line, without control characters.
fn readable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.trim().chars().map(shown).collect()
}

/// Masks the secret parts of a url. Servers without such a path answer with it ("Cannot POST /hooks/TOKEN"), whole or
/// in parts: each segment and each value of some length is masked wherever it occurs.
fn masked(note: String, url: &str) -> String {
    let rest = &url[origin(url).len()..];
    let parts = rest.split(['/', '?', '&', '=', ';']).filter(|part| part.len() >= SECRET_PART_BYTES_MIN);
    let mut parts: Vec<&str> = parts.collect();
    // The longest first: once a part of it is masked, a longer one is not found any more.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let note = if rest.len() > 1 { note.replace(rest, &format!("/{MASK}")) } else { note };
    parts.into_iter().fold(note, |note, part| note.replace(part, MASK))
}

/// How long the receiver asks to wait, by `Retry-After`: seconds, or a date.
fn wish_ms(headers: &HeaderMap, now_ms: u64) -> Option<u64> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number are still a number, and past the bound.
        text.parse().unwrap_or(u64::MAX).saturating_mul(1_000)
    } else {
        let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(at.as_millis()).ok()?.saturating_sub(now_ms)
    };
    Some(ms.min(WISH_MS_MAX))
}

/// The reason why a receiver did not answer, in words: the innermost cause says it best.
pub(super) fn fault(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        text = cause.to_string();
        inner = cause.source();
    }
    readable(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_repeats_the_url_shows_nothing_of_it() {
        let url = "https://hooks.example/services/T0001234/B9?token=abcdef012345&v=2";
        for (note, shown) in [
            ("Cannot POST /services/T0001234/B9?token=abcdef012345&v=2", "Cannot POST /***"),
            ("no /services/T0001234/B9", "no /***/***/B9"),
            ("token abcdef012345 has expired", "token *** has expired"),
            ("busy", "busy"),
        ] {
            assert_eq!(masked(note.to_owned(), url), shown);
        }
        assert_eq!(masked("a / b".to_owned(), "https://hooks.example/"), "a / b");
    }
}
