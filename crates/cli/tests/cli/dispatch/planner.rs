//! A planner's requests, in few words.

use serde_json::{Value, json};

use super::{
    super::{
        client::{Answer, Client},
        server::{Server, until},
    },
    receiver::{Receiver, SECRET},
};

pub const PLANNER_ID: &str = "fgai-wms";
const EVENTS: &str = "/wes/v1/dispatch/events";

pub struct Planner(pub Client);

impl Planner {
    pub fn of(server: &Server) -> Self {
        Self(server.client("dev-planner"))
    }

    /// Says how the events of a warehouse leave.
    pub fn put(&mut self, warehouse: &str, transport: Value) -> Answer {
        self.0.put(&format!("/wes/v1/warehouses/{warehouse}/transport"), transport.to_string())
    }

    /// Events of a warehouse go to this receiver.
    #[track_caller]
    pub fn pushed(&mut self, warehouse: &str, receiver: &Receiver) {
        self.put(warehouse, webhook(receiver)).ok(200);
    }

    /// Events of a warehouse wait for the executor.
    #[track_caller]
    pub fn polled(&mut self, warehouse: &str) {
        self.put(warehouse, json!({"executor_id": "dev-wes", "poll": {}})).ok(200);
    }

    pub fn publish(&mut self, event: impl AsRef<[u8]>) -> Answer {
        self.0.post(EVENTS, event)
    }

    /// Publishes a plain event; its position.
    #[track_caller]
    pub fn release(&mut self, id: &str, warehouse: &str) -> u64 {
        self.publish(event(id, warehouse).to_string()).ok(202)["seq"].as_u64().unwrap()
    }

    /// The state that a cancellation reports for the event it cancels.
    #[track_caller]
    pub fn cancel(&mut self, id: &str, original: &str, warehouse: &str) -> Value {
        self.publish(cancellation(id, original, warehouse).to_string()).ok(202)["original"].clone()
    }

    pub fn batch(&mut self, events: &[Value]) -> Answer {
        self.publish(json!({"events": events}).to_string())
    }

    #[track_caller]
    pub fn lane(&mut self, name: &str) -> Value {
        self.0.get(&format!("/wes/v1/dispatch/lanes/{PLANNER_ID}:{name}")).ok(200)
    }

    /// The lane, as soon as it is so.
    pub fn lane_where(&mut self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.lane(name)).filter(|lane| fits(lane)))
    }

    /// Returns when everything in a lane is settled.
    pub fn drained(&mut self, name: &str) -> Value {
        self.lane_where(name, "the lane is drained", |lane| lane["backlog"] == 0)
    }

    /// Something done to a lane.
    pub fn act(&mut self, name: &str, act: &str, body: Value) -> Answer {
        self.0.post(&format!("/wes/v1/dispatch/lanes/{PLANNER_ID}:{name}/{act}"), body.to_string())
    }

    #[track_caller]
    pub fn letters(&mut self, query: &str) -> Vec<Value> {
        let page = self.0.get(&format!("/wes/v1/dispatch/dlq?{query}")).ok(200);
        page["items"].as_array().unwrap().clone()
    }

    /// A word on a dead letter.
    pub fn decide(&mut self, letter: &Value, verdict: &str, body: Value) -> Answer {
        let id = letter["id"].as_str().unwrap();
        self.0.post(&format!("/wes/v1/dispatch/dlq/{id}/{verdict}"), body.to_string())
    }
}

pub fn webhook(receiver: &Receiver) -> Value {
    json!({"executor_id": "dev-wes", "webhook": {"url": receiver.url(), "secret": SECRET}})
}

pub fn event(id: &str, warehouse: &str) -> Value {
    json!({
        "kind": "SHIPPER_RELEASED",
        "correlation_id": id,
        "planner_id": PLANNER_ID,
        "warehouse_id": warehouse,
        "document_ref": {"type": "SHIPPER", "id": format!("SH-{id}")},
        "routing": {"ops": [{"op_id": "op-1", "kind": "PICK", "sku": "SKU-1", "qty": 12}]},
    })
}

pub fn cancellation(id: &str, original: &str, warehouse: &str) -> Value {
    json!({
        "kind": "CANCELLED",
        "correlation_id": id,
        "planner_id": PLANNER_ID,
        "warehouse_id": warehouse,
        "cancels_correlation_id": original,
    })
}
