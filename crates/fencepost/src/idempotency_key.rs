//! Reads `Idempotency-Key`: an RFC 9651 string, or the bare value that most clients send. `"k"` and `k` are one key.
//! Never guesses: a key that is repeated, empty, too long or half quoted is refused.
//! Called by the layer and by the gateway.

use std::fmt;

use http::HeaderMap;
use sfv::{BareItem, Item, Parser};

/// The header's name.
pub const NAME: &str = "idempotency-key";

/// A key may be this long, without its quotes.
pub const KEY_BYTES_MAX: usize = 255;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The header is there more than once.
    Repeated,
    /// The key is empty, with or without quotes.
    Empty,
    /// It is longer than [`KEY_BYTES_MAX`].
    TooLong,
    /// It is neither a string nor a bare value.
    Unreadable,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated => f.write_str("Idempotency-Key is there more than once"),
            Self::Empty => f.write_str("Idempotency-Key is empty"),
            Self::TooLong => write!(f, "Idempotency-Key is longer than {KEY_BYTES_MAX} bytes"),
            Self::Unreadable => f.write_str(
                "Idempotency-Key must be an RFC 9651 string, or visible ASCII without commas and quotation marks",
            ),
        }
    }
}

impl std::error::Error for Malformed {}

/// The key of a request; none without the header. Parameters after a string are legal, and mean nothing here.
pub fn parse(headers: &HeaderMap) -> Result<Option<String>, Malformed> {
    let mut lines = headers.get_all(NAME).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(Malformed::Repeated);
    }
    let value = line.as_bytes().trim_ascii();
    let key = if value.starts_with(b"\"") { quoted(value) } else { bare(value) }.ok_or(Malformed::Unreadable)?;
    match key.len() {
        0 => Err(Malformed::Empty),
        1..=KEY_BYTES_MAX => Ok(Some(key)),
        _ => Err(Malformed::TooLong),
    }
}

fn quoted(value: &[u8]) -> Option<String> {
    match Parser::new(value).parse::<Item>().ok()?.bare_item {
        BareItem::String(text) => Some(text.into()),
        _ => None,
    }
}

// A proxy joins repeated headers with a comma; a quotation mark is half of a string. Spaces need quotes too.
fn bare(value: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"');
    value.iter().all(plain).then(|| String::from_utf8(value.to_vec()).ok())?
}
