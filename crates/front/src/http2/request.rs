//! Checks an HTTP/2 request as the guard checks one of HTTP/1, and gives it the same shape: a path and a Host.
//! Never accepts what HTTP/1 would not: the gateway may forward the request as HTTP/1.
//! Called by `http2`, before the service.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Uri};

use super::super::head::{HEADERS_MAX, SINGLES};
use super::super::limits::Limits;
use super::super::refusal::{self, Refusal, malformed};
use super::super::target;

/// Checks the request and turns it into the shape that the service knows from HTTP/1.
pub(super) fn vet<B>(request: &mut Request<B>, limits: &Limits) -> Result<(), Refusal> {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    if path.len() > limits.request_line_bytes_max {
        return Err(refusal::LINE_TOO_LONG);
    }
    if target::check(request.method().as_str(), path)?.is_some() {
        return Err(malformed("the path does not begin with a slash"));
    }
    // h2 checks that there is a scheme, and drops it where there is no authority.
    if !matches!(request.uri().scheme_str(), None | Some("http" | "https")) {
        return Err(malformed("the request's scheme is not http"));
    }
    sizes(path.len(), request.headers(), limits)?;
    fields(request.headers())?;
    let host = host(request.uri(), request.headers())?;
    request.headers_mut().entry(header::HOST).or_insert(host);
    join_cookies(request.headers_mut());
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = Uri::from(path.clone());
    }
    Ok(())
}

/// Bytes that a head takes in memory, without its method.
pub(super) fn head_bytes<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    path + fields_bytes(request.headers())
}

// As in HTTP/1: a colon, a space and a line end after each name and value.
fn fields_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn sizes(path_bytes: usize, headers: &HeaderMap, limits: &Limits) -> Result<(), Refusal> {
    if headers.len() > HEADERS_MAX || path_bytes + fields_bytes(headers) > limits.head_bytes_max {
        return Err(refusal::HEAD_TOO_LARGE);
    }
    Ok(())
}

fn fields(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_repeated = |name: &str| headers.get_all(name).iter().nth(1).is_some();
    for (name, why) in SINGLES {
        if is_repeated(name) {
            return Err(malformed(why));
        }
    }
    if is_repeated("content-length") {
        return Err(malformed("Content-Length is given more than once"));
    }
    if is_repeated("host") {
        return Err(malformed("Host is given more than once"));
    }
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if headers.values().any(|v| is_space(v.as_bytes().first()) || is_space(v.as_bytes().last())) {
        return Err(malformed("a header value begins or ends with a space"));
    }
    Ok(())
}

fn host(uri: &Uri, headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let named = headers.get(header::HOST);
    if let Some(host) = named {
        target::check_host(host.as_bytes())?;
    }
    match (uri.authority(), named) {
        (Some(authority), named) => {
            target::check_host(authority.as_str().as_bytes())?;
            if let Some(host) = named {
                target::check_same_host(authority.as_str(), host.as_bytes())?;
            }
            HeaderValue::from_str(authority.as_str()).map_err(|_| malformed("Host is missing"))
        }
        (None, Some(host)) => Ok(host.clone()),
        (None, None) => Err(malformed("Host is missing")),
    }
}

/// HTTP/2 may split a cookie over several headers; HTTP/1 readers expect one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs = headers.get_all(header::COOKIE);
    if crumbs.iter().nth(1).is_none() {
        return;
    }
    let whole = crumbs.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        headers.insert(header::COOKIE, whole);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_crumbs_of_a_cookie_are_one_again_and_the_host_is_a_header() {
        let request = Request::get("https://a:8443/b?c").header("cookie", "x=1").header("cookie", "y=2");
        let mut request = request.body(()).unwrap();
        vet(&mut request, &Limits::default()).unwrap();
        assert_eq!(request.uri(), "/b?c");
        assert_eq!(request.headers()["host"], "a:8443");
        assert_eq!(request.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["x=1; y=2"]);
    }

    #[test]
    fn a_request_without_a_host_is_refused_and_one_with_only_the_header_is_not() {
        let mut request = Request::get("/b").body(()).unwrap();
        assert!(vet(&mut request, &Limits::default()).is_err());
        request.headers_mut().insert("host", HeaderValue::from_static("a"));
        assert!(vet(&mut request, &Limits::default()).is_ok());
    }
}
