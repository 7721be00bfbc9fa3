//! `/wes/v1/warehouses/{warehouse_id}/transport`: how the events of a warehouse reach its executor.
//! Never shows a secret, and never hands one on that is not sealed.

use std::time::Duration;

use axum::response::Response;
use fencepost::{
    dispatch::{MASK, envelope, shown_url},
    policy::duration,
};
use fencepost_kernel::{
    Millis, Reply, Tenant,
    dispatch::{Transport, WarehouseTransport, Webhook},
    json::{JsonNode, Value},
    lane::AfterDead,
};

use super::{LOOKERS, Query, VisibleLanes, allowed, audit, dispatch, keyed, malformed, only, planner, wrong};
use crate::{
    http::{
        call::Call,
        reply::{Answer, Object, quoted},
        request,
    },
    problem::{Code, Problem},
    sinks::{kafka::KafkaSink, webhook::signature::Secret},
};

/// Default for how long a receiver remembers an event: as long as the executor of this release does.
const RECEIVER_RETAIN_MS: u64 = 7 * 24 * 3_600_000;
/// How long `drain: true` waits, and any other may.
const DRAIN: Duration = Duration::from_secs(30);
const DRAIN_S_MAX: u64 = 300;
/// As many secrets are live at once.
const SECRETS_MAX: usize = 2;
/// Shorter ones can be guessed from one signed delivery.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 1_024;
/// As long as Kafka lets the name of a topic be.
const TOPIC_BYTES_MAX: usize = 249;

/// `PUT /wes/v1/warehouses/{warehouse_id}/transport`
pub(super) async fn put(call: &Call) -> Result<Response, Problem> {
    let planner = planner(call);
    let dispatch = dispatch(call)?;
    let warehouse = warehouse(call)?;
    allowed(&call.caller.warehouses, &warehouse)?;
    let known = dispatch.transport(&planner, &warehouse).await?;
    let (wanted, drain) = requested(call, &planner, &warehouse, known.as_deref()).await?;
    let reply = dispatch.put_transport(wanted.clone(), drain).await?;
    audit(call, "transport", reply.decision(), &planner, &[("warehouse_id", &warehouse)]);
    if let Reply::Dispatch(fencepost_kernel::dispatch::Reply::TransportPut { replay }) = reply {
        let body = named(&wanted).value("replay", replay).end();
        return Ok(Answer { replayed: replay, ..Answer::ok(body) }.response());
    }
    let Reply::Dispatch(fencepost_kernel::dispatch::Reply::NotDrained { lane, tail, settled }) = reply else {
        return Err(Problem::new(Code::Internal, "no reply"));
    };
    let detail = "this warehouse still has events on its present transport; ask again, or with `drain`";
    let name = known.map_or_else(|| lane.to_string(), |known| known.purpose().name(&planner));
    Err(Problem::new(Code::LaneNotDrained, detail)
        .with("lane", &quoted(&name))
        .with("lane_id", &format!("\"{lane}\""))
        .with("first_seq", &(settled + 1).to_string())
        .with("last_seq", &tail.to_string()))
}

/// `GET /wes/v1/warehouses/{warehouse_id}/transport`
pub(super) async fn get(call: &Call) -> Result<Response, Problem> {
    let query = Query::of(call)?;
    let visible = VisibleLanes::of(call, query.planner()?, LOOKERS)?;
    let warehouse = warehouse(call)?;
    allowed(visible.warehouses, &warehouse)?;
    let planner = visible.planner.ok_or_else(|| malformed("name the planner with `planner_id=`"))?;
    match dispatch(call)?.transport(&planner, &warehouse).await? {
        Some(known) => Ok(Answer::ok(shown(&known)).response()),
        None => Err(Problem::new(Code::UnknownWarehouse, format!("warehouse {warehouse:?} has no transport"))),
    }
}

fn warehouse(call: &Call) -> Result<String, Problem> {
    let name = call.path_value("warehouse_id")?;
    envelope::warehouse(&name, "warehouse_id").map(str::to_owned).map_err(|refusal| wrong(&refusal))
}

// The requested transport, and how long the request waits for a lane to be drained.
async fn requested(
    call: &Call,
    planner: &Tenant,
    warehouse: &str,
    known: Option<&WarehouseTransport>,
) -> Result<(WarehouseTransport, Option<Duration>), Problem> {
    let node = call.json()?;
    let node = request::object(&node)?;
    const MEMBERS: [&str; 8] =
        ["planner_id", "executor_id", "webhook", "kafka", "poll", "after_dead_letter", "receiver_retention", "drain"];
    only(node, "a transport", &MEMBERS)?;
    if node.get("planner_id").is_some_and(|id| id.as_str() != Some(planner.as_str())) {
        let detail = format!("`planner_id` must be {}, this credential's planner", planner.as_str());
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let transport = match (node.get("webhook"), node.get("kafka"), node.get("poll")) {
        (Some(webhook), None, None) => {
            let known = known.and_then(|known| match &known.transport {
                Transport::Webhook(known) => Some(known),
                _ => None,
            });
            Transport::Webhook(self::webhook(call, (planner, warehouse), webhook, known).await?)
        }
        (None, Some(kafka), None) => self::kafka(call, planner, kafka)?,
        (None, None, Some(poll)) => {
            only(request::object_as("`poll`", poll)?, "`poll`", &[])?;
            Transport::Poll
        }
        _ => return Err(malformed("a transport is exactly one of `webhook`, `kafka` and `poll`")),
    };
    let after_dead = match node.get("after_dead_letter").map(|after| after.as_str()) {
        None | Some(Some("continue")) => AfterDead::Continue,
        Some(Some("block")) => AfterDead::Block,
        Some(_) => return Err(malformed("`after_dead_letter` must be \"continue\" or \"block\"")),
    };
    let receiver_retain_ms = node.get("receiver_retention").map_or(Ok(RECEIVER_RETAIN_MS), span)?;
    let executor = executor(call, planner, node)?;
    // A poller gets everything in its lane: a credential that is not for the warehouse must not be in it.
    let polled = matches!(transport, Transport::Poll);
    if polled && call.app.directory.executor(&executor).is_some_and(|known| !known.warehouses.allow(warehouse)) {
        return Err(Problem::new(Code::Forbidden, "the executor's credential is not for that warehouse"));
    }
    let drain = node.get("drain").map_or(Ok(None), drain)?;
    let (planner, warehouse) = (planner.clone(), warehouse.to_owned());
    // Its time is set when it is decided.
    let wanted =
        WarehouseTransport { planner, warehouse, executor, transport, after_dead, receiver_retain_ms, at: Millis(0) };
    Ok((wanted, drain))
}

// The executor that works there and serves this planner. Where only one does, the request need not name it.
fn executor(call: &Call, planner: &Tenant, node: &JsonNode<'_>) -> Result<String, Problem> {
    let directory = &call.app.directory;
    if node.get("executor_id").is_none() {
        return match directory.executors_of(planner.as_str()).as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(malformed("`executor_id` is missing")),
        };
    }
    let id =
        envelope::readable(request::text(node, "executor_id")?, "/executor_id").map_err(|refusal| wrong(&refusal))?;
    if !directory.serves(id, planner.as_str()) {
        // One answer for all: the planner must not learn whether this id belongs to another's executor, a partner or
        // nobody.
        let detail = format!(
            "no executor {id:?} serves planner {planner}; an operator says so with \
             `fencepost credential planners {id} …`, which takes every planner that it serves, or `planners` in the policy"
        );
        return Err(Problem::new(Code::UnknownExecutor, detail));
    }
    Ok(id.to_owned())
}

async fn webhook(
    call: &Call,
    (planner, warehouse): (&Tenant, &str),
    node: &JsonNode<'_>,
    known: Option<&Webhook>,
) -> Result<Webhook, Problem> {
    let node = request::object_as("`webhook`", node)?;
    only(node, "`webhook`", &["url", "secret", "secrets", "standard_webhooks"])?;
    let url = request::text(node, "url")?;
    if url.ends_with(&format!("/{MASK}")) {
        return Err(malformed("`url` is what a GET shows of it; send the whole url"));
    }
    let standard = match node.get("standard_webhooks").map(|standard| &standard.value) {
        None => false,
        Some(Value::Bool(standard)) => *standard,
        Some(_) => return Err(malformed("`standard_webhooks` must be true or false")),
    };
    let secrets = match (node.get("secret"), node.get("secrets").map(|secrets| &secrets.value)) {
        (Some(_), None) => vec![request::text(node, "secret")?],
        (None, Some(Value::Array(list))) if (1..=SECRETS_MAX).contains(&list.len()) => {
            let all: Option<Vec<&str>> = list.iter().map(|secret| secret.as_str()).collect();
            all.ok_or_else(|| malformed("`secrets` must be strings"))?
        }
        (None, Some(_)) => return Err(malformed("`secrets` must be one or two strings, the newest first")),
        (None, None) => return Err(malformed("`secret` is missing")),
        (Some(_), Some(_)) => return Err(malformed("give `secret` or `secrets`, not both")),
    };
    let vault = keyed(call)?.vault();
    let open = known.and_then(|known| vault.open_webhook(planner, warehouse, known).ok());
    let live = open.map(|open| open.secrets).unwrap_or_default();
    for secret in &secrets {
        if secret.len() > SECRET_BYTES_MAX {
            return Err(malformed(format!("a secret has up to {SECRET_BYTES_MAX} bytes")));
        }
        let key_bytes = Secret::key_bytes(secret.as_bytes()).map_err(malformed)?;
        // One that is live already may stay beside its successor: else it could not be rotated out.
        if key_bytes < SECRET_BYTES_MIN && !live.iter().any(|live| live == secret.as_bytes()) {
            let detail = format!(
                "a secret has at least {SECRET_BYTES_MIN} bytes, this one {key_bytes}; make one: openssl rand -hex 32"
            );
            return Err(malformed(detail));
        }
    }
    call.app.egress.check_url(url).await.map_err(|why| Problem::new(Code::AddressRefused, why))?;
    let sealed = vault.seal_webhook(planner, warehouse, url, &secrets, known);
    let sealed = sealed.map_err(|_| Problem::new(Code::Internal, "the secrets could not be sealed"))?;
    Ok(Webhook { standard, ..sealed })
}

fn kafka(call: &Call, planner: &Tenant, node: &JsonNode<'_>) -> Result<Transport, Problem> {
    let node = request::object_as("`kafka`", node)?;
    only(node, "`kafka`", &["topic"])?;
    let topic = match node.get("topic") {
        Some(_) => request::text(node, "topic")?.to_owned(),
        None => KafkaSink::topic(planner.as_str()),
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if topic.len() > TOPIC_BYTES_MAX || !topic.bytes().all(legal) {
        return Err(malformed(format!("`topic` has up to {TOPIC_BYTES_MAX} of a-z A-Z 0-9 . _ -, not {topic:?}")));
    }
    let settings = &call.policy.dispatch;
    if !KafkaSink::is_own(planner.as_str(), &topic) && !settings.kafka_topics.contains(&topic) {
        let detail = format!("{topic} is not a topic of {planner}, and not among `dispatch.kafka_topics`");
        return Err(Problem::new(Code::AddressRefused, detail));
    }
    if settings.kafka_brokers.is_none() {
        let detail = "no Kafka cluster is configured: name `dispatch.kafka_brokers`, or use webhook or poll";
        return Err(Problem::new(Code::TransportUnsupported, detail));
    }
    Ok(Transport::Kafka { topic })
}

// A span as in a policy, or a number of seconds.
fn span(node: &JsonNode<'_>) -> Result<u64, Problem> {
    let said = match node.as_str() {
        Some(text) => duration::parse(text),
        None => node.as_u64().ok_or(String::new()).and_then(|seconds| duration::parse(&format!("{seconds}s"))),
    };
    said.map_err(|_| malformed("`receiver_retention` must be a span such as \"7d\", or a number of seconds"))
}

fn drain(node: &JsonNode<'_>) -> Result<Option<Duration>, Problem> {
    match (&node.value, node.as_u64()) {
        (Value::Bool(true), _) => Ok(Some(DRAIN)),
        (Value::Bool(false), _) => Ok(None),
        (_, Some(seconds)) if seconds <= DRAIN_S_MAX => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(malformed(format!("`drain` must be true, or seconds from 0 to {DRAIN_S_MAX}"))),
    }
}

fn named(of: &WarehouseTransport) -> Object {
    Object::new()
        .text("warehouse_id", &of.warehouse)
        .text("executor_id", &of.executor)
        .text("transport", of.transport.name())
        .text("lane", &of.purpose().name(&of.planner))
        .text("lane_id", &of.lane().to_string())
}

fn shown(of: &WarehouseTransport) -> Vec<u8> {
    let transport = match &of.transport {
        Transport::Webhook(webhook) => Object::new()
            .text("url", &shown_url(&webhook.url))
            .value("secrets", webhook.secrets.len())
            .value("standard_webhooks", webhook.standard)
            .end(),
        Transport::Kafka { topic } => Object::new().text("topic", topic).end(),
        Transport::Poll => Object::new().end(),
    };
    let after_dead = match of.after_dead {
        AfterDead::Continue => "continue",
        AfterDead::Block => "block",
    };
    named(of)
        .text("planner_id", of.planner.as_str())
        .raw(of.transport.name(), &transport)
        .text("after_dead_letter", after_dead)
        .text("receiver_retention", &duration::display(of.receiver_retain_ms))
        .time("changed_at", of.at)
        .end()
}
