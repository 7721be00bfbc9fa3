//! A route is one row of a capability's table. The router, the OpenAPI document, `Allow`, the role checks, metric
//! labels, the fast path and the listener of a path are all read from these rows and from nowhere else.
//! Holds facts only: `routes` matches and dispatches, `openapi` writes the document.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use fencepost::policy::identity::{Identity, Role};
use futures::future::BoxFuture;
use http::{Method, Uri, request::Parts};

use super::{App, call, openapi::parameter::Parameter, routes::OnAdminListener};
use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};

/// The future of one request's answer.
pub(super) type Answer = BoxFuture<'static, Result<Response, Infallible>>;

/// The routes of one capability.
pub(super) struct Table {
    /// Groups its operations in the OpenAPI document.
    pub(super) tag: &'static str,
    pub(super) audience: Audience,
    pub(super) routes: &'static [Route],
}

/// The listener that serves a table, where operators have one of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Audience {
    /// Clients, on the public listener.
    Clients,
    /// Operators, on theirs.
    Operators,
    /// Probes of the operators' monitoring: also answered when every other request is refused for want of room.
    Monitoring,
    /// Both listeners.
    Everyone,
}

/// One method of one path.
pub(super) struct Route {
    /// GET answers HEAD too.
    pub(super) method: Method,
    /// Segments separated by `/`. A parameter is a whole segment, `{name}`, and is never empty.
    pub(super) path: &'static str,
    pub(super) handler: Handler,
    /// Checked by the head alone, before any of the body is read.
    pub(super) access: Access,
    pub(super) class: Class,
    pub(super) body_limit: BodyLimit,
    /// The operation's name in generated clients.
    pub(super) operation_id: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [&'static Parameter],
    pub(super) request: RequestBody,
    /// Status, content and description of each success.
    pub(super) answers: &'static [(u16, Content, &'static str)],
    /// Refusals of this operation. Those that follow from the other columns (no credential, not JSON) are added.
    pub(super) errors: &'static [Code],
}

/// The callers that a route admits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Any client, without a credential.
    Public,
    /// Any valid credential. The handler decides what it reaches.
    AnyCredential,
    /// A credential with one of these roles.
    Roles(&'static [Role]),
    /// The same; but any client on the operators' own listener, and under `--dev`.
    RolesUnlessTrusted(&'static [Role]),
}

/// How the server reads and runs a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Small and frequent requests, whose answers are complete in memory: read without hyper where they are simple, and
    /// answered on the thread of their connection where they are short. The path has no parameters.
    Fast,
    /// Everything else whose body is read into memory before it is handled.
    Normal,
    /// The handler takes the body in chunks while it arrives.
    Streaming,
}

/// How many bytes a request body may have.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyLimit {
    /// As many as the policy says (`server.limits.request_bytes_max`).
    Policy,
    /// A bound of this route's own, independent of the policy's.
    #[cfg_attr(not(test), expect(dead_code, reason = "no capability has a limit of its own yet"))]
    Bytes(u64),
    /// As many as the policy says, but for an upload, which the address tells: its handler takes it in chunks and bounds it.
    PolicyButUploads(fn(&Uri) -> bool),
}

/// A request body, as the document describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestBody {
    None,
    /// JSON of this schema.
    Json(&'static str),
    /// The same, and it may be left out.
    OptionalJson(&'static str),
}

/// An answer's body, as the document describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// JSON of this schema.
    Json(&'static str),
    /// Lines, each JSON of this schema.
    Lines(&'static str),
    File,
    /// Text in any of these media types.
    Text(&'static [&'static str]),
}

/// The function that answers a route. Made by `head_only!`, `buffered!` and `streaming!`.
pub(super) enum Handler {
    /// Gets the head, and leaves the body unread.
    HeadOnly(fn(Admitted) -> Answer),
    /// Gets the body whole.
    Buffered(fn(Admitted) -> Answer),
    /// Gets the body in chunks.
    Streaming(fn(Admitted) -> Answer),
}

/// A route that is answered from the head: `async fn(&App, &Parts) -> Result<Response, Problem>`.
macro_rules! head_only {
    ($handler:path) => {
        $crate::http::route::Handler::HeadOnly(|admitted| {
            Box::pin(async move { Ok($crate::http::call::answer_head(admitted, $handler).await) })
        })
    };
}

/// A route that is answered from the whole body: `async fn(&Call) -> Result<Response, Problem>`.
macro_rules! buffered {
    ($handler:path) => {
        $crate::http::route::Handler::Buffered(|admitted| {
            Box::pin(async move { Ok($crate::http::call::Call::run(admitted, $handler).await) })
        })
    };
}

/// A route that takes its body in chunks: `async fn(&Call, &mut BodyStream) -> Result<Response, Problem>`.
#[cfg_attr(not(test), expect(unused_macros, reason = "every streaming route of the product takes some bodies whole"))]
macro_rules! streaming {
    ($handler:path) => {
        $crate::http::route::Handler::Streaming(|admitted| {
            Box::pin(async move { Ok($crate::http::call::Call::run_streaming(admitted, $handler).await) })
        })
    };
}

/// A route that takes its body in chunks where the address says so, and else whole.
macro_rules! streaming_where {
    ($asks:path, $in_chunks:path, $whole:path) => {
        $crate::http::route::Handler::Streaming(|admitted| {
            Box::pin(async move {
                Ok(match $asks(&admitted.parts.uri) {
                    true => $crate::http::call::Call::run_streaming(admitted, $in_chunks).await,
                    false => $crate::http::call::Call::run(admitted, $whole).await,
                })
            })
        })
    };
}

#[cfg_attr(
    not(test),
    expect(unused_imports, reason = "every streaming route of the product takes some bodies whole")
)]
pub(super) use streaming;
pub(super) use {buffered, head_only, streaming_where};

/// A route with its metric label.
pub(super) struct Entry {
    pub(super) route: &'static Route,
    /// Method and pattern, as metrics name the route. Made once, so that counting a request allocates nothing.
    pub(super) label: Arc<str>,
}

/// A request whose head is accepted: its caller may call the route.
pub(super) struct Admitted {
    pub(super) app: Arc<App>,
    pub(super) entry: &'static Entry,
    /// None where the route is open to any client.
    pub(super) caller: Option<Arc<Identity>>,
    pub(super) trace: TraceId,
    pub(super) parts: Parts,
    pub(super) body: Body,
}

impl Handler {
    pub(super) fn answer(&self, admitted: Admitted) -> Answer {
        match self {
            Self::HeadOnly(answer) | Self::Buffered(answer) | Self::Streaming(answer) => answer(admitted),
        }
    }
}

impl Access {
    /// Admits a request by its head: checks the credential, then its role, then that the body is not compressed. None
    /// where no credential is needed.
    pub(super) fn admit(&self, app: &App, parts: &Parts) -> Result<Option<Arc<Identity>>, Problem> {
        let is_trusted = || app.dev || parts.extensions.get::<OnAdminListener>().is_some();
        let roles = match *self {
            Self::Public => return Ok(None),
            Self::RolesUnlessTrusted(_) if is_trusted() => return Ok(None),
            Self::AnyCredential => None,
            Self::Roles(roles) | Self::RolesUnlessTrusted(roles) => Some(roles),
        };
        let caller = call::caller(app, parts)?;
        if let Some(roles) = roles
            && !roles.iter().any(|role| caller.has(*role))
        {
            let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
            return Err(Problem::new(Code::Forbidden, format!("this needs the role {}", names.join(" or "))));
        }
        call::refuse_coded(&parts.headers)?;
        Ok(Some(caller))
    }
}

/// No upload is larger, whatever its handler allows.
const UPLOAD_BYTES_MAX: u64 = 1 << 50;

impl BodyLimit {
    /// The limit in bytes; `of_policy` is the policy's limit for all routes.
    pub(super) fn bytes(self, of_policy: u64, uri: &Uri) -> u64 {
        match self {
            Self::Policy => of_policy,
            Self::Bytes(bytes) => bytes,
            Self::PolicyButUploads(is_upload) if is_upload(uri) => UPLOAD_BYTES_MAX,
            Self::PolicyButUploads(_) => of_policy,
        }
    }
}

impl Route {
    /// Whether what the caller changes here belongs in the audit. A route that names admins is an operator's, also where others
    /// may use it for what is their own; and an admin acts for others everywhere.
    pub(super) fn is_act_of(&self, caller: &Identity) -> bool {
        let names_admins = matches!(self.access, Access::Roles(roles) if roles.contains(&Role::Admin));
        self.method != Method::GET && (names_admins || caller.has(Role::Admin))
    }

    /// The segment of a parameter in a path that the pattern matches; not decoded.
    pub(super) fn segment<'p>(&self, path: &'p str, parameter: &str) -> Option<&'p str> {
        let is_meant = |pattern: &str| {
            pattern.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|name| name == parameter)
        };
        let mut segments = self.path.split('/').zip(path.split('/'));
        segments.find(|(pattern, _)| is_meant(pattern)).map(|(_, segment)| segment)
    }

    /// The names of the pattern's parameters, in order.
    #[cfg(test)]
    pub(super) fn parameter_names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}
