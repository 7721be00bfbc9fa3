//! Checks method, target and host of a request, for HTTP/1 and HTTP/2 alike.
//! Never repairs a target. Refuses paths that two readers could resolve differently: gateway and upstream must agree.
//! Called by `head` and `http2::request`.

use super::refusal::{self, Refusal, malformed};

/// Checks method and target. Returns the authority, where the target has one.
pub(super) fn check<'t>(method: &str, target: &'t str) -> Result<Option<&'t str>, Refusal> {
    if method == "CONNECT" {
        return Err(refusal::not_implemented("CONNECT is not served here"));
    }
    // Methods are case-sensitive, but some servers read them as if they were not.
    if method.bytes().any(|b| b.is_ascii_lowercase()) {
        return Err(malformed("the method is not in capitals"));
    }
    let bytes = target.as_bytes();
    match bytes.first() {
        Some(b'*') if bytes.len() == 1 && method == "OPTIONS" => Ok(None),
        Some(b'/' | b'h' | b'H') if !bytes.iter().all(|b| TARGET[*b as usize]) => {
            Err(malformed("the request target holds a character that a URI may not"))
        }
        Some(b'/') => path_and_query(bytes).map(|()| None),
        Some(b'h' | b'H') => absolute(target).map(Some),
        _ => Err(malformed("the request target is neither a path nor an http URI")),
    }
}

/// Accepts a host name or address with an optional port.
pub(super) fn check_host(host: &[u8]) -> Result<(), Refusal> {
    if !host.is_empty() && host.iter().all(|b| HOST[*b as usize]) {
        Ok(())
    } else {
        Err(malformed("Host is not a host name with an optional port"))
    }
}

/// Refuses a target and a Host that name different places. A port that the scheme implies may be left out.
pub(super) fn check_same_host(authority: &str, host: &[u8]) -> Result<(), Refusal> {
    fn bare(host: &[u8]) -> &[u8] {
        host.strip_suffix(b":80").or_else(|| host.strip_suffix(b":443")).unwrap_or(host)
    }
    if bare(authority.as_bytes()).eq_ignore_ascii_case(bare(host)) {
        Ok(())
    } else {
        Err(malformed("the request target and Host name different hosts"))
    }
}

fn absolute(target: &str) -> Result<&str, Refusal> {
    let bad = malformed("the request target is not a usable http URI");
    let (scheme, rest) = target.split_once("://").ok_or(bad)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let has_host = !authority.is_empty() && !authority.starts_with(':');
    // hyper parses the target again: refuse here what hyper would not accept.
    if !is_http || !has_host || check_host(authority.as_bytes()).is_err() || target.parse::<http::Uri>().is_err() {
        return Err(bad);
    }
    path_and_query(rest.as_bytes()).map(|()| authority)
}

fn path_and_query(target: &[u8]) -> Result<(), Refusal> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    path(&target[..end])?;
    let mut query = &target[end..];
    while let Some(at) = memchr::memchr(b'%', query) {
        escaped(&query[at..])?;
        query = &query[at + 3..];
    }
    Ok(())
}

/// The byte that `%XX` stands for.
fn escaped(text: &[u8]) -> Result<u8, Refusal> {
    let digit = |at: usize| text.get(at).and_then(|b| (*b as char).to_digit(16));
    match (digit(1), digit(2)) {
        // Two hexadecimal digits fit into a byte.
        (Some(high), Some(low)) => Ok((high << 4 | low) as u8),
        _ => Err(malformed("a percent sign in the target is not followed by two hexadecimal digits")),
    }
}

/// Refuses empty segments, and dot segments in every spelling that some server resolves.
fn path(path: &[u8]) -> Result<(), Refusal> {
    let (mut at, mut dots, mut is_start) = (0, Some(0), false);
    while at < path.len() {
        let byte = if path[at] == b'%' { escaped(&path[at..])? } else { path[at] };
        let is_raw = byte == path[at];
        if byte < b' ' || byte == 0x7f {
            return Err(malformed("the path holds an encoded control character"));
        }
        match byte {
            b'/' | b'\\' => {
                if is_raw && is_start {
                    return Err(malformed("the path holds an empty segment"));
                }
                dotted(dots)?;
                dots = Some(0);
            }
            // Some servers cut a segment at a semicolon before they resolve it.
            b';' => {
                dotted(dots)?;
                dots = None;
            }
            b'.' => dots = dots.map(|n: u8| n.saturating_add(1)),
            _ => dots = None,
        }
        is_start = is_raw && byte == b'/';
        at += if is_raw { 1 } else { 3 };
    }
    dotted(dots)
}

fn dotted(dots: Option<u8>) -> Result<(), Refusal> {
    match dots {
        Some(1 | 2) => Err(malformed("the path holds a dot segment")),
        _ => Ok(()),
    }
}

/// The characters of RFC 3986 in a path or query, and the few others that clients send and `http::Uri` accepts.
const TARGET: [bool; 256] = set(b"-._~%!$&'()*+,;=:@/?[]{}|");
const HOST: [bool; 256] = set(b"-._~%:[]");

/// A table of the letters, the digits and the bytes in `more`.
const fn set(more: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut i = 0;
    while i < more.len() {
        table[more[i] as usize] = true;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyper_takes_every_target_that_we_take() {
        for byte in (0..=255u8).filter(|b| TARGET[*b as usize]) {
            for place in ["/a", "/?a"] {
                let target = [place.as_bytes(), &[byte]].concat();
                assert!(http::Uri::try_from(target.as_slice()).is_ok(), "{byte:?} after {place}");
            }
        }
    }

    #[test]
    fn a_path_that_somebody_could_resolve_elsewhere_is_refused() {
        for good in [
            "/",
            "/a/",
            "/.well-known/x",
            "/a..b/...",
            "/a%2Fb%20c%C3%BC",
            "/a;v=1/b",
            "/a?u=http://b//../%00",
            "/a/%252e%252e",
            "http://a.b:80/c?d",
            "HTTPS://[::1]",
        ] {
            assert!(check("GET", good).is_ok(), "{good}");
        }
        for bad in [
            "//",
            "/a//b",
            "/.",
            "/..",
            "/a/../b",
            "/a/./b",
            "/..;/b",
            "/.;x",
            "/%2e%2E/",
            "/a%2f..%2fb",
            "/a%5c..",
            "/.%2e",
            "/%",
            "/%2",
            "/%zz",
            "/%00",
            "/a%0d%0ab",
            "/%7f",
            "/a?%",
            "/a?%4",
            "/a?b=%xy",
            "/a\\b",
            "http://",
            "http://:80/",
            "http://u@a/",
            "http:/a",
            "ftp://a/",
            "http://a/../b",
            "http://a//b",
            "*",
        ] {
            assert!(check("GET", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_port_that_goes_without_saying_may_differ_between_target_and_host() {
        for (authority, host) in [("a", "A"), ("a:80", "a"), ("a", "a:443"), ("[::1]:8080", "[::1]:8080")] {
            assert!(check_same_host(authority, host.as_bytes()).is_ok(), "{authority} {host}");
        }
        for (authority, host) in [("a", "b"), ("a:8080", "a"), ("a", "a.b"), ("a:80", "a:8080")] {
            assert!(check_same_host(authority, host.as_bytes()).is_err(), "{authority} {host}");
        }
    }
}
