//! Reads a plain request: checked by the guard's own code, and parsed once.
//! Never takes a part of one, nor one that needs more care: a chunked body, an expectation, an upgrade, HTTP/1.0.
//! Called by `plain`.

use std::error::Error;
use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};

use crate::body::RequestBody;
use crate::head::{self, Framing, HEADERS_MAX, Seek};
use crate::limits::Limits;

/// Why a request is not served on the fast path.
#[derive(Debug)]
pub(super) enum Not {
    /// It is incomplete; it may be plain once it is whole.
    Whole,
    Plain,
}

/// An error here leaves the request to hyper and the guard, which serve or refuse it.
impl<E: Error> From<E> for Not {
    fn from(_: E) -> Self {
        Not::Plain
    }
}

/// The request at the start of `bytes`, and its length, if it is plain and whole.
pub(super) fn read(bytes: &Bytes, limits: &Limits) -> Result<(Request<RequestBody>, usize), Not> {
    let head_len = match Seek::default().end(bytes, limits.request_line_bytes_max, limits.head_bytes_max) {
        Ok(Some(len)) => len,
        Ok(None) => return Err(Not::Whole),
        Err(_) => return Err(Not::Plain),
    };
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let head = head::read(&bytes[..head_len], &mut slots).map_err(|_| Not::Plain)?;
    let Framing::Sized(body_len) = head.framing else { return Err(Not::Plain) };
    let len = head_len.checked_add(usize::try_from(body_len)?).ok_or(Not::Plain)?;
    if head.version != 1 || !head.target.starts_with('/') {
        return Err(Not::Plain);
    }
    let method = Method::from_bytes(head.method.as_bytes())?;
    let uri = Uri::from_maybe_shared(bytes.slice_ref(head.target.as_bytes()))?;
    if method == Method::HEAD
        || !(limits.is_plain)(&method, uri.path())
        || !limits.budget.has_room()
        || body_len > (limits.body_bytes_max_for)(&method, &uri, limits.body_bytes_max)
    {
        return Err(Not::Plain);
    }
    let Some(body) = bytes.get(head_len..len) else { return Err(Not::Whole) };
    let mut request = Request::new(RequestBody::whole(bytes.slice_ref(body)));
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    request.headers_mut().reserve(head.headers.len());
    for field in head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes())?;
        match name {
            header::EXPECT | header::UPGRADE => return Err(Not::Plain),
            header::CONNECTION if !field.value.eq_ignore_ascii_case(b"keep-alive") => return Err(Not::Plain),
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value))?;
        request.headers_mut().append(name, value);
    }
    Ok((request, len))
}
