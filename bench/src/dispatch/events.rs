//! The events of the benchmark: 1 KiB each, prebuilt, with number and warehouse patched in place.
//! Never formats anything while measuring. Called by the parts, by `planner` and by `receiver`, which reads the number.

use crate::keys::scatter;

/// Length of an event in bytes.
pub const EVENT_LEN: usize = 1_024;

const START: &str = r#"{"correlation_id":"b"#;
const NUMBER_LEN: usize = 16;
const WAREHOUSE: &str = r#""warehouse_id":"WH-"#;
const WAREHOUSE_LEN: usize = 8;
const DIGITS: &str = "0000000000000000";

/// An event whose number and warehouse are still zero.
fn event() -> String {
    let warehouse = &DIGITS[..WAREHOUSE_LEN];
    let ops = (1..=3).map(|op| {
        format!(r#"{{"op_id":"op-{op}","kind":"PICK","sku":"SKU-{op}","qty":{op},"expected_seconds":40,"skills":["PICKER"]}}"#)
    });
    let mut event = format!(
        r#"{START}{DIGITS}","kind":"SHIPPER_RELEASED","planner_id":"fgai-wms",{WAREHOUSE}{warehouse}","document_ref":{{"type":"SHIPPER","id":"SH-4711"}},"routing":{{"ops":[{}]}},"meta":{{"priority":"NORMAL","note":""#,
        ops.collect::<Vec<_>>().join(",")
    );
    const END: &str = r#""}}"#;
    // Scattered digits: a body of one repeated character would compress to nothing.
    let mut salt = 0;
    while event.len() < EVENT_LEN - END.len() {
        salt += 1;
        event += &format!("{:016x}", scatter(salt));
    }
    event.truncate(EVENT_LEN - END.len());
    event + END
}

/// The number inside an event; `None` where the bytes are not an event of the benchmark.
pub fn number_of(event: &[u8]) -> Option<usize> {
    let digits = event.strip_prefix(START.as_bytes())?.get(..NUMBER_LEN)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The numbers of all events in a page, in its order.
pub fn numbers_in(page: &[u8]) -> impl Iterator<Item = Option<usize>> + '_ {
    memchr::memmem::find_iter(page, START).map(|at| number_of(&page[at..]))
}

/// A prebuilt request with one event or many.
#[derive(Clone)]
pub struct Request {
    bytes: Vec<u8>,
    /// The byte offset of each event in `bytes`.
    events_at: Vec<usize>,
    warehouse_at: usize,
}

impl Request {
    /// A request that publishes `count` events at once.
    pub fn publish(count: usize) -> Request {
        let body = match count {
            1 => event(),
            _ => format!(r#"{{"events":[{}]}}"#, vec![event(); count].join(",")),
        };
        Request::new("/wes/v1/dispatch/events", &body)
    }

    /// A request that posts one event straight to a receiver, without a server between.
    pub fn bare() -> Request {
        Request::new(super::receiver::DELIVER, &event())
    }

    fn new(path: &str, body: &str) -> Request {
        let bytes = request("POST", path, PLANNER, body);
        let events_at = memchr::memmem::find_iter(&bytes, START).collect();
        let warehouse_at = event().find(WAREHOUSE).map_or(0, |at| at + WAREHOUSE.len());
        Request { bytes, events_at, warehouse_at }
    }

    /// Sets the number and the warehouse of the event at `index`.
    pub fn set(&mut self, index: usize, number: u64, warehouse: u64) {
        let at = self.events_at[index];
        let number_at = at + START.len();
        write_number(number, &mut self.bytes[number_at..number_at + NUMBER_LEN]);
        let warehouse_at = at + self.warehouse_at;
        write_number(warehouse, &mut self.bytes[warehouse_at..warehouse_at + WAREHOUSE_LEN]);
    }

    /// The number of events in the request.
    pub fn len(&self) -> usize {
        self.events_at.len()
    }

    /// The request as it is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The token of the planner under `--dev`.
pub const PLANNER: &str = "dev-planner";
/// The token of the executor under `--dev`.
pub const EXECUTOR: &str = "dev-executor";

/// The bytes of a whole request, head and body.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The id of the warehouse with this number.
pub fn warehouse(number: u64) -> String {
    format!("WH-{number:0WAREHOUSE_LEN$}")
}

fn write_number(mut number: u64, to: &mut [u8]) {
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_kib_of_json_with_its_number_and_warehouse() {
        let mut request = Request::publish(3);
        (0..3).for_each(|index| request.set(index, 41 + index as u64, 7));
        let text = String::from_utf8(request.bytes().to_vec()).unwrap();
        let body: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["events"][2]["correlation_id"], "b0000000000000043");
        assert_eq!(body["events"][2]["warehouse_id"], warehouse(7));
        assert_eq!(event().len(), EVENT_LEN);
        let numbers: Vec<_> = numbers_in(text.as_bytes()).map(Option::unwrap).collect();
        assert_eq!((numbers, request.len()), (vec![41, 42, 43], 3));
    }
}
