//! Hundreds of malformed requests, from a file that the gateway's test reads, too.

use fencepost_front::Limits;

use super::bytes_on_the_wire::Front;
use super::corpus::{self, Against};

#[tokio::test(flavor = "multi_thread")]
async fn each_malformed_request_gets_its_4xx_or_a_close_and_nothing_comes_through() {
    let front = Front::start(Limits::default()).await;
    let (addr, seen) = (front.addr, front.seen.clone());
    let run = tokio::task::spawn_blocking(move || corpus::run(addr, "/cases", Against::Front, || seen.whole()));
    assert!(run.await.unwrap() >= 500);
}

#[test]
fn no_two_cases_are_the_same() {
    let cases = corpus::cases("/cases");
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len());
}
