//! The tables of the product keep their own rules, and the router serves a table as it says.

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

use fencepost::{
    Fencepost,
    clock::SystemClock,
    engine::EngineLimits,
    policy::{
        Policy,
        config::Config,
        identity::{Directory, Role, dev_holders},
    },
    store::{Node, memory::Memory},
};
use fencepost_kernel::Millis;
use http::Request;
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;
use crate::{
    http::{
        call::{BodyStream, Call},
        openapi::parameter::Parameter,
        policy::PolicyOrigin,
        reply,
        route::{Access, Content, Handler, RequestBody, buffered, streaming},
    },
    log::{Level, Log},
    metrics::Metrics,
    problem::Problem,
    sinks::webhook::Egress,
};

fn product() -> impl Iterator<Item = (&'static Table, &'static Route)> {
    TABLES.iter().flat_map(|table| table.routes.iter().map(move |route| (table, route)))
}

#[test]
fn every_route_keeps_the_rules_of_the_table() {
    let _: &Router = &ROUTER;
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (table, route) in product() {
        let at = format!("{} {}", route.method, route.path);
        assert!(ids.insert(route.operation_id), "two routes are called {}", route.operation_id);
        assert!(places.insert(at.clone()), "{at} is there twice");
        assert!(route.method != Method::HEAD, "{at}: GET answers HEAD");
        assert!(!route.summary.is_empty() && !route.answers.is_empty(), "{at} says what it does and answers");
        assert!(route.answers.iter().all(|(status, ..)| (200..300).contains(status)), "{at}: refusals are `errors`");

        let documented = route.parameters.iter().filter(|parameter| parameter.place == "path");
        let documented: Vec<&str> = documented.map(|parameter| parameter.name).collect();
        assert_eq!(route.parameter_names().collect::<Vec<_>>(), documented, "{at}: the document has its parameters");
        let braces = route.path.split('/').filter(|segment| segment.contains(['{', '}'])).count();
        assert_eq!(braces, documented.len(), "{at}: a parameter is a whole segment");

        let is_open = match route.access {
            Access::Public => true,
            Access::RolesUnlessTrusted(roles) => !roles.is_empty(),
            Access::AnyCredential => false,
            Access::Roles(roles) => {
                assert!(!roles.is_empty(), "{at}: nobody may call it");
                false
            }
        };
        assert_eq!(is_open, matches!(route.handler, Handler::HeadOnly(_)), "{at}: a body is read for known callers");
        let streams = matches!(route.handler, Handler::Streaming(_));
        assert_eq!(streams, route.class == Class::Streaming, "{at}: the class is the handler's");
        if route.class == Class::Fast {
            assert!(documented.is_empty() && route.method == Method::POST, "{at} is looked for by its path alone");
        }
        let is_operators = matches!(table.audience, Audience::Operators);
        assert_eq!(is_operators, is_operators_path(route.path), "{at} is on the listener that its path says");
    }
}

#[test]
fn acts_are_all_that_an_admin_changes_and_what_others_change_through_routes_of_operators() {
    let acts = |role: Role| -> BTreeSet<&'static str> {
        let caller = dev_holders().into_iter().map(|holder| holder.identity).find(|caller| caller.has(role)).unwrap();
        product()
            .map(|(_, route)| route)
            .filter(|route| route.is_act_of(&caller))
            .map(|route| route.operation_id)
            .collect()
    };
    let changes = product().filter(|(_, route)| route.method != Method::GET).map(|(_, route)| route.operation_id);
    assert_eq!(acts(Role::Admin), changes.collect());
    let planners = acts(Role::Planner);
    for (operation, is_act) in [
        ("forget", true),
        ("resolve", true),
        ("reloadPolicy", true),
        ("pauseLane", true),
        ("skipHead", true),
        ("discardDeadLetter", true),
        ("redriveDeadLetters", true),
        ("claim", false),
        ("batch", false),
        ("putAlias", false),
        ("publishEvents", false),
        ("putTransport", false),
        ("acknowledgeEvents", false),
        ("listAudit", false),
    ] {
        assert_eq!(planners.contains(operation), is_act, "{operation}");
    }
    assert_eq!(acts(Role::Partner), planners);
}

#[test]
fn a_path_is_in_one_table_only() {
    for (index, table) in TABLES.iter().enumerate() {
        for route in table.routes {
            let elsewhere = TABLES.iter().enumerate().filter(|(other, _)| *other != index);
            let elsewhere = elsewhere.flat_map(|(_, other)| other.routes).any(|other| other.path == route.path);
            assert!(!elsewhere, "{} is in two tables, which may be on different listeners", route.path);
        }
    }
}

#[test]
fn every_schema_that_a_route_names_is_in_the_document() {
    let document: Value = serde_json::from_str(&openapi::text()).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (_, route) in product() {
        let request = match route.request {
            RequestBody::None => None,
            RequestBody::Json(schema) | RequestBody::OptionalJson(schema) => Some(schema),
        };
        let answers = route.answers.iter().filter_map(|(_, content, _)| match content {
            Content::Json(schema) | Content::Lines(schema) => Some(*schema),
            Content::File | Content::Text(_) => None,
        });
        for schema in answers.chain(request) {
            assert!(schemas.contains_key(schema), "{} {} names {schema}", route.method, route.path);
        }
    }
}

#[test]
fn fast_path_probes_and_body_limits_come_from_the_tables() {
    assert!(Routes::is_plain(&Method::POST, "/v1/fences/claim"));
    assert!(Routes::is_plain(&Method::POST, "/wes/v1/dispatch/events"));
    assert!(!Routes::is_plain(&Method::GET, "/v1/fences/claim"));
    assert!(!Routes::is_plain(&Method::POST, "/admin/policy"));
    assert!(Routes::is_probe(&Method::HEAD, "/metrics"));
    assert!(!Routes::is_probe(&Method::POST, "/healthz"));
    assert!(!Routes::is_probe(&Method::GET, "/openapi.json"));
    assert_eq!(Routes::body_bytes_max(&Method::POST, &Uri::from_static("/v1/fences/claim"), 7), 7);
    let allowed = |path| ROUTER.endpoint(path).unwrap().allow.to_str().unwrap();
    assert_eq!(allowed("/v1/aliases/x"), "PUT,GET,HEAD");
    assert_eq!(allowed("/admin/policy"), "GET,HEAD,POST");
    assert_eq!(allowed("/wes/v1/dispatch/dlq/redrive"), "POST");
    assert!(ROUTER.endpoint("/v1/aliases/").is_none(), "a parameter is never empty");
    assert!(ROUTER.endpoint("/v1/aliases/a/b").is_none());
}

const fn in_path(name: &'static str) -> Parameter {
    Parameter::in_path(name, "for a test")
}

const COLLECTION: Parameter = in_path("collection");
const SOURCE_ID: Parameter = in_path("source_id");

const PARTNER: Access = Access::Roles(&[Role::Partner]);
const ADMIN: Access = Access::Roles(&[Role::Admin]);

const TEST_TABLE: &[Table] = &[Table { tag: "test", audience: Audience::Clients, routes: TEST_ROUTES }];
const TEST_ROUTES: &[Route] = &[
    test_route(Method::DELETE, "/items/{collection}/{source_id}", buffered!(item), PARTNER, Class::Normal),
    test_route(Method::PATCH, "/items/{collection}/{source_id}", buffered!(item), PARTNER, Class::Normal),
    test_route(Method::GET, "/jobs/{source_id}/results", buffered!(job), Access::AnyCredential, Class::Normal),
    test_route(Method::POST, "/items/{collection}", streaming!(chunks), PARTNER, Class::Streaming),
    test_route(Method::POST, "/items", buffered!(item), ADMIN, Class::Normal),
];

const fn test_route(method: Method, path: &'static str, handler: Handler, access: Access, class: Class) -> Route {
    Route {
        method,
        path,
        handler,
        access,
        class,
        body_limit: BodyLimit::Bytes(16),
        operation_id: "",
        summary: "",
        parameters: &[&COLLECTION, &SOURCE_ID],
        request: RequestBody::None,
        answers: &[],
        errors: &[],
    }
}

async fn item(call: &Call) -> Result<Response, Problem> {
    let said = json!([call.parts.method.as_str(), call.path_value("collection")?, call.path_value("source_id")?]);
    Ok(reply::Answer::ok(said.to_string().into_bytes()).response())
}

async fn job(call: &Call) -> Result<Response, Problem> {
    Ok(reply::Answer::ok(json!([call.path_value("source_id")?]).to_string().into_bytes()).response())
}

// Answers after the first chunk that is "stop", or else at the end.
async fn chunks(call: &Call, body: &mut BodyStream) -> Result<Response, Problem> {
    assert!(call.body.is_empty());
    let mut seen = vec![call.path_value("collection")?];
    while let Some(chunk) = body.chunk().await? {
        seen.push(String::from_utf8(chunk.to_vec()).unwrap());
        if chunk == "stop" {
            break;
        }
    }
    Ok(reply::Answer::ok(json!(seen).to_string().into_bytes()).response())
}

/// A body in these pieces, which counts how often it is polled. After the last piece it ends, or stays pending.
struct Pieces {
    left: Vec<&'static str>,
    ends: bool,
    asked: Arc<Mutex<usize>>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        *self.asked.lock().unwrap() += 1;
        if !self.left.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.left.remove(0).into()))));
        }
        if self.ends { Poll::Ready(None) } else { Poll::Pending }
    }
}

struct Fixture(Routes);

impl Fixture {
    async fn new() -> Self {
        let fencepost = Fencepost::over(
            Arc::new(Memory::default()),
            Arc::new(SystemClock::default()),
            Policy::builtin(),
            EngineLimits::default(),
            Box::new(()),
            None,
        );
        let fencepost = fencepost.await.unwrap();
        let node = Node {
            id: String::new(),
            address: String::new(),
            release: String::new(),
            format: 0,
            started: Millis(0),
            seen: Millis(0),
            holds: None,
        };
        let app = App {
            gateway: gateway::Gateway::new(fencepost.policy()).unwrap(),
            fencepost,
            dispatch: Err("not here".to_owned()),
            egress: Egress::new(&[], true).unwrap(),
            directory: Directory::of(dev_holders()),
            origin: PolicyOrigin::new(Config::default(), Millis(0)),
            metrics: Metrics::default(),
            log: Log::new(Level::Error, io::sink()),
            node,
            store: String::new(),
            slow_runtime: None,
            budget: Budget::new(1 << 20),
            dev: false,
        };
        let router = Box::leak(Box::new(Router::new(TEST_TABLE)));
        Self(Routes { router, ..Routes::new(Arc::new(app), Listener::Only) })
    }

    async fn ask(&self, method: Method, path: &str, token: &str, body: Pieces) -> (u16, Value, Option<String>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {token}")).body(body).unwrap();
        let (head, body) = self.0.clone().call(request).await.unwrap().into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        let allow = head.headers.get(header::ALLOW).map(|allow| allow.to_str().unwrap().to_owned());
        (head.status.as_u16(), serde_json::from_slice(&text).unwrap(), allow)
    }
}

fn body(pieces: &[&'static str]) -> Pieces {
    Pieces { left: pieces.to_vec(), ends: true, asked: Arc::default() }
}

#[tokio::test]
async fn delete_and_patch_reach_their_handlers_with_every_parameter_by_name_and_decoded() {
    let fixture = Fixture::new().await;
    for method in [Method::DELETE, Method::PATCH] {
        let asked = fixture.ask(method.clone(), "/items/uom/a%2Fb%20c+d", "dev-partner", body(&[])).await;
        assert_eq!((asked.0, asked.1), (200, json!([method.as_str(), "uom", "a/b c+d"])));
    }
    let (status, said, _) = fixture.ask(Method::GET, "/jobs/17/results", "dev-admin", body(&[])).await;
    assert_eq!((status, said), (200, json!(["17"])));
    let (status, refused, _) = fixture.ask(Method::GET, "/jobs/%FF/results", "dev-admin", body(&[])).await;
    assert_eq!((status, &refused["code"]), (400, &json!("malformed-request")));
}

#[tokio::test]
async fn another_method_is_told_what_the_table_allows() {
    let fixture = Fixture::new().await;
    let (status, refused, allow) = fixture.ask(Method::PUT, "/items/uom/ea", "dev-partner", body(&[])).await;
    assert_eq!((status, allow.as_deref()), (405, Some("DELETE,PATCH")));
    assert_eq!(refused["detail"], "PUT is not allowed; use DELETE or PATCH");
    let (status, _, allow) = fixture.ask(Method::PUT, "/jobs/1/results", "", body(&[])).await;
    assert_eq!((status, allow.as_deref()), (405, Some("GET,HEAD")));
}

#[tokio::test]
async fn a_caller_without_the_role_is_refused_before_its_body_is_read() {
    let fixture = Fixture::new().await;
    for (token, status, code) in [("dev-partner", 403, "forbidden"), ("nobody", 401, "unauthorized")] {
        let asked = Arc::default();
        let body = Pieces { left: vec![], ends: false, asked: Arc::clone(&asked) };
        let (heard, refused, _) = fixture.ask(Method::POST, "/items", token, body).await;
        assert_eq!((heard, &refused["code"], *asked.lock().unwrap()), (status, &json!(code), 0));
    }
}

#[tokio::test]
async fn a_streaming_handler_gets_the_body_in_chunks_and_may_answer_before_its_end() {
    let fixture = Fixture::new().await;
    let whole = fixture.ask(Method::POST, "/items/sku", "dev-partner", body(&["one", "two"])).await;
    assert_eq!((whole.0, whole.1), (200, json!(["sku", "one", "two"])));
    let asked = Arc::default();
    let endless = Pieces { left: vec!["one", "stop"], ends: false, asked: Arc::clone(&asked) };
    let early = fixture.ask(Method::POST, "/items/sku", "dev-partner", endless).await;
    assert_eq!((early.0, early.1, *asked.lock().unwrap()), (200, json!(["sku", "one", "stop"]), 2));
}

#[tokio::test]
async fn a_streamed_body_past_the_limit_of_its_route_is_refused() {
    let fixture = Fixture::new().await;
    let long = body(&["0123456789", "0123456789"]);
    let (status, refused, _) = fixture.ask(Method::POST, "/items/sku", "dev-partner", long).await;
    assert_eq!((status, &refused["code"]), (413, &json!("too-large")));
    assert_eq!(fixture.0.router.body_bytes_max(&Method::POST, &Uri::from_static("/items/sku"), 7), 16);
    assert_eq!(fixture.0.router.body_bytes_max(&Method::POST, &Uri::from_static("/elsewhere"), 7), 7);
}
