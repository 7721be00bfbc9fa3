//! A change of transport reads the lane that it leaves: each event once, so many at a time, however long it waits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fencepost::{
    dispatch::{Delivery, DriverSettings, Sink},
    kernel::{
        LaneId, Reply, RowKey,
        dispatch::{self, Transport, WarehouseTransport},
        key::Kind,
        lane::{AfterDead, AttemptFailure},
    },
    store::{Error, Found, Store, memory::Memory},
};
use fencepost_testkit::Hooks;
use futures::future::BoxFuture;

use super::dispatch_world::{Node, SECOND_MS, Virtual, in_virtual_time, pass, planner, route};

/// The memory store, which writes down how many entries each read asked for, and how many it got.
#[derive(Default)]
struct Watched {
    reads: Mutex<Vec<(usize, usize)>>,
}

impl Hooks for Watched {
    fn range<'a>(
        &'a self,
        inner: &'a dyn Store,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        Box::pin(async move {
            let found = inner.range(kind, prefix, after, limit).await?;
            if kind == Kind::Entry {
                self.reads.lock().unwrap().push((limit, found.len()));
            }
            Ok(found)
        })
    }
}

/// No way out: nothing is pushed here.
struct Closed;

impl Sink for Closed {
    fn host(&self, _: &WarehouseTransport) -> String {
        String::new()
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        panic!("{} was pushed", delivery.entry.correlation_id)
    }
}

fn polled(warehouse: &str) -> WarehouseTransport {
    WarehouseTransport { transport: Transport::Poll, ..route(warehouse, "", AfterDead::Continue) }
}

#[test]
fn a_change_of_transport_reads_each_event_of_a_polled_lane_once_however_long_it_waits() {
    in_virtual_time(async {
        let store = Watched::default().over(Arc::new(Memory::new()));
        let (clock, sink) = (Virtual::new(), Arc::new(Closed));
        let node = Node::start(store.clone(), clock, sink, Arc::new(()), DriverSettings::default(), 1).await;
        for warehouse in ["ours", "theirs"] {
            node.dispatch.put_transport(polled(warehouse), None).await.unwrap();
        }
        // Ours are in the middle, with others before, between and behind.
        for (warehouse, first, last) in
            [("theirs", 1, 250), ("ours", 251, 251), ("theirs", 252, 300), ("ours", 301, 301), ("theirs", 302, 550)]
        {
            for n in first..=last {
                node.publish(warehouse, &format!("e{n}"), None).await;
            }
        }
        let lane = LaneId::executor(&planner(), "wes");
        let put =
            node.dispatch.put_transport(route("ours", "host", AfterDead::Continue), Some(Duration::from_secs(30)));
        let (reply, ()) = tokio::join!(put, async {
            for upto in [100, 251, 301] {
                pass(5 * SECOND_MS).await;
                node.dispatch.ack(lane, upto).await.unwrap();
            }
        });
        assert!(matches!(reply, Ok(Reply::Dispatch(dispatch::Reply::TransportPut { replay: false }))), "{reply:?}");
        let reads = store.reads.lock().unwrap();
        assert!(reads.iter().all(|(asked, _)| *asked <= 100), "{reads:?}");
        // A page may be read to its end although one of ours is in it: the entries behind that are read again, once.
        let read: usize = reads.iter().map(|(_, found)| found).sum();
        assert!(read <= 550 + 2 * 100, "{read} of 550 were read: {reads:?}");
    });
}
