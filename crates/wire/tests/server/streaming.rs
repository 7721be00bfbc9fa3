//! Answers of any length: they pass in bounded memory, and their trailers with them.

use fencepost_front::Limits;
use http_body_util::BodyExt;
use tokio::io::AsyncReadExt;

use super::bytes_on_the_wire::{Front, soon};
use super::http2::{Speaker, get};

const GIB: usize = 1024 * 1024 * 1024;
const GROWTH_BYTES_MAX: usize = 64 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_streams_over_http_1_in_bounded_memory() {
    let front = Front::start(Limits::default()).await;
    let mut client = front.connect().await;
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (before, mut space, mut read) = (resident_bytes(), vec![0; 256 * 1024], 0);
    while read < GIB {
        read += soon("more", client.stream.read(&mut space)).await.unwrap();
        assert!(resident_bytes() < before + GROWTH_BYTES_MAX);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_streams_over_http_2_in_bounded_memory() {
    let front = Front::start(Limits::default()).await;
    let mut client = Speaker::to(&front).await;
    let mut answer = client.send(get("/endless")).await.into_body();
    let (before, mut read, mut looked) = (resident_bytes(), 0, 0);
    while read < GIB {
        let frame = soon("more", answer.frame()).await.unwrap().unwrap();
        read += frame.data_ref().unwrap().len();
        if read > looked + 1024 * 1024 {
            looked = read;
            assert!(resident_bytes() < before + GROWTH_BYTES_MAX);
        }
    }
}

#[tokio::test]
async fn trailers_of_an_answer_pass() {
    let front = Front::start(Limits::default()).await;
    let mut client = front.connect().await;
    client.send("GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.ends_with("4\r\nbody\r\n0\r\nx-sum: 42\r\n\r\n"), "{answer}");

    let mut client = Speaker::to(&front).await;
    let whole = client.send(get("/trailers")).await.into_body().collect();
    let whole = soon("the answer", whole).await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x-sum"], "42");
    assert_eq!(whole.to_bytes(), "body");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
