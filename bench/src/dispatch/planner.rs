//! The planner of the benchmark: sets transports and publishes events, as fast as it can or at a fixed rate.
//! Never trusts a status alone: the reply must accept every event as a new one.
//! Called by the parts.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::events::{self, PLANNER, Request};
use super::receiver::now_ns;
use crate::http::Connection;

/// Connections that publish.
pub const PUBLISHERS: usize = 32;
/// Connections of the bare client, and of the requests that set transports.
pub const MANY: usize = 64;

/// A publishing load.
#[derive(Clone)]
pub struct Load {
    /// The port of the server or receiver.
    pub port: u16,
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// Events in one request.
    pub per_request: usize,
    /// The numbers of the events to publish.
    pub numbers: Range<u64>,
    /// The warehouses that the events go to, in turn.
    pub lanes: Range<u64>,
}

impl Load {
    fn lane(&self, number: u64) -> u64 {
        self.lanes.start + number % (self.lanes.end - self.lanes.start)
    }

    /// Publishes all events as fast as replies come. Returns when each was sent, in nanoseconds, by event number.
    pub async fn publish(self) -> Result<Vec<u64>> {
        let request = Request::publish(self.per_request);
        self.run(request, expect_accepted).await
    }

    /// Sends all events straight to a receiver, without a server between.
    pub async fn send_bare(self) -> Result<Vec<u64>> {
        self.run(Request::bare(), expect_200).await
    }

    async fn run(
        self,
        request: Request,
        expect: impl AsyncFn(&mut Connection, &Request) -> Result<()> + Copy + 'static,
    ) -> Result<Vec<u64>> {
        let next = Rc::new(Cell::new(self.numbers.start));
        let sent_ns = Rc::new(RefCell::new(vec![0; self.numbers.end as usize]));
        let tasks = (0..self.connections).map(|_| {
            let (load, next, sent_ns, mut request) = (self.clone(), next.clone(), sent_ns.clone(), request.clone());
            async move {
                let mut connection = Connection::open(load.port).await?;
                loop {
                    let first = next.get();
                    let count = (load.numbers.end - first).min(request.len() as u64);
                    if count == 0 {
                        return Ok(());
                    }
                    if count < request.len() as u64 {
                        request = Request::publish(count as usize);
                    }
                    next.set(first + count);
                    (0..count).for_each(|index| request.set(index as usize, first + index, load.lane(first + index)));
                    sent_ns.borrow_mut()[first as usize..(first + count) as usize].fill(now_ns());
                    expect(&mut connection, &request).await?;
                }
            }
        });
        together(tasks).await?;
        Ok(sent_ns.take())
    }

    /// Publishes at a fixed rate, however slow the replies are. Returns when each event was due, by event number.
    pub async fn pace(self, per_second: f64) -> Result<Vec<u64>> {
        let due_ns = Rc::new(RefCell::new(vec![0; self.numbers.end as usize]));
        let began = Instant::now();
        let tasks = (0..self.connections).map(|connection| {
            let (load, due_ns) = (self.clone(), due_ns.clone());
            async move {
                let mut request = Request::publish(1);
                let own = load.numbers.clone().skip(connection).step_by(load.connections);
                let mut connection = Connection::open(load.port).await?;
                for number in own {
                    let due = began + Duration::from_secs_f64((number - load.numbers.start) as f64 / per_second);
                    let late = due.elapsed();
                    tokio::time::sleep_until(due.into()).await;
                    request.set(0, number, load.lane(number));
                    // A late timer is not the server's fault and is not counted; the wait for a slow reply is.
                    due_ns.borrow_mut()[number as usize] = now_ns() - late.as_nanos() as u64;
                    expect_accepted(&mut connection, &request).await?;
                }
                Ok(())
            }
        });
        together(tasks).await?;
        Ok(due_ns.take())
    }
}

/// Sends every event of these warehouses to a webhook on this machine.
pub async fn route_to_webhook(port: u16, lanes: Range<u64>, receiver: u16, path: &str) -> Result<()> {
    let url = format!("http://127.0.0.1:{receiver}{path}");
    let transport = format!(r#"{{"executor_id":"dev-wes","webhook":{{"url":"{url}","secret":"of-the-benchmark"}}}}"#);
    route(port, lanes, transport).await
}

/// Lets an executor poll the events of a warehouse.
pub async fn route_to_poller(port: u16, lane: u64) -> Result<()> {
    route(port, lane..lane + 1, r#"{"executor_id":"dev-wes","poll":{}}"#.to_owned()).await
}

async fn route(port: u16, lanes: Range<u64>, transport: String) -> Result<()> {
    let transport: Rc<str> = transport.into();
    let tasks = (0..MANY.min((lanes.end - lanes.start) as usize)).map(|connection| {
        let (own, transport) = (lanes.clone().skip(connection).step_by(MANY), transport.clone());
        async move {
            let mut connection = Connection::open(port).await?;
            for lane in own {
                let path = format!("/wes/v1/warehouses/{}/transport", events::warehouse(lane));
                let request = events::request("PUT", &path, PLANNER, &transport);
                let reply = connection.exchange(&request).await?;
                ensure!(reply.status == 200, reply.unexpected("200 for a transport"));
            }
            Ok(())
        }
    });
    together(tasks).await
}

/// Publishes all events of a request; fails unless the server accepts each as a new one.
pub async fn expect_accepted(connection: &mut Connection, request: &Request) -> Result<()> {
    const NEW: &str = r#""accepted":true,"replay":false"#;
    let reply = connection.exchange(request.bytes()).await?;
    let new = memchr::memmem::find_iter(reply.body, NEW).count();
    ensure!(reply.status == 202 && new == request.len(), reply.unexpected("202 and every event new"));
    Ok(())
}

/// Sends a request to a receiver; fails unless the answer is 200.
pub async fn expect_200(connection: &mut Connection, request: &Request) -> Result<()> {
    let reply = connection.exchange(request.bytes()).await?;
    ensure!(reply.status == 200, reply.unexpected("200 from the receiver"));
    Ok(())
}

/// Runs all tasks concurrently on this thread and stops at the first error.
async fn together(tasks: impl Iterator<Item = impl Future<Output = Result<()>> + 'static>) -> Result<()> {
    let mut all = tokio::task::JoinSet::new();
    tasks.for_each(|task| drop(all.spawn_local(task)));
    while let Some(ended) = all.join_next().await {
        ended.map_err(|_| anyhow!("a connection panicked"))??;
    }
    Ok(())
}
