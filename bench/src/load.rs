//! The load loop of all contestants over a socket: connect, warm up, measure.
//! Never counts steps outside the window in a figure, and never hides a wrong reply: the first stops its connection.
//! Called by `contest` and `scale`; the drivers know the protocols.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::task::LocalSet;

use crate::stats::Sample;
use crate::stop;

/// The longest wait for one reply; a longer one fails the measurement.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(20);

/// One connection to a contestant, as its protocol needs it.
pub trait Driver: 'static {
    /// Does one unit of work and checks every reply; an error means that a reply was not the expected one.
    fn step(&mut self) -> impl Future<Output = Result<()>>;
}

/// Opens the connections of a contestant; they are numbered from 0.
pub trait Connect: Clone + Send + 'static {
    /// The driver of one connection.
    type Driver: Driver;
    /// Connects and prepares the requests, outside the measured window.
    fn connect(&self, connection: usize) -> impl Future<Output = Result<Self::Driver>>;
}

/// Size and length of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// Threads of the client; each gets an equal share of the connections.
    pub threads: usize,
    /// Time before the measured window; its steps count in no rate and no latency.
    pub warm_up: Duration,
    /// Length of the measured window.
    pub measure: Duration,
}

/// Drives all connections through warm-up and window, and adds up their samples.
pub fn run<C: Connect>(shape: Shape, connect: C) -> Result<Sample> {
    let threads = shape.threads.clamp(1, shape.connections.max(1));
    // All threads start together, after the slowest has connected.
    let barrier = std::sync::Arc::new(std::sync::Barrier::new(threads));
    let handles: Vec<_> = (0..threads)
        .map(|thread| {
            let connect = connect.clone();
            let barrier = barrier.clone();
            thread::spawn(move || client_thread(shape, thread, threads, connect, &barrier))
        })
        .collect();
    let mut total = Sample::new(shape.measure);
    let mut failure = None;
    for handle in handles {
        match handle.join() {
            Ok(Ok(sample)) => total.add(&sample)?,
            Ok(Err(error)) => failure = Some(error),
            Err(_) => failure = Some(anyhow!("a client thread panicked")),
        }
    }
    stop::check()?;
    match failure {
        Some(error) => Err(error),
        None => Ok(total),
    }
}

fn client_thread<C: Connect>(
    shape: Shape,
    thread: usize,
    threads: usize,
    connect: C,
    barrier: &std::sync::Barrier,
) -> Result<Sample> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let drivers = local.block_on(&runtime, async {
        let mut drivers = Vec::new();
        for connection in (thread..shape.connections).step_by(threads) {
            drivers.push(connect.connect(connection).await?);
        }
        anyhow::Ok(drivers)
    });
    // A thread whose connections failed must still reach the barrier, or the others would wait forever.
    barrier.wait();
    let drivers = drivers.context("connecting")?;
    let window = Window::starting_now(shape);
    local.block_on(&runtime, async {
        let tasks: Vec<_> =
            drivers.into_iter().map(|driver| tokio::task::spawn_local(drive(driver, window))).collect();
        let all = async {
            let mut total = Sample::new(shape.measure);
            for task in tasks {
                total.add(&task.await.map_err(|_| anyhow!("a connection panicked"))??)?;
            }
            anyhow::Ok(total)
        };
        tokio::select! {
            total = all => total,
            () = tokio::time::sleep_until((window.end + REPLY_WAIT_MAX).into()) => bail!("no reply within {REPLY_WAIT_MAX:?}"),
            () = stop::requested() => bail!("interrupted"),
        }
    })
}

#[derive(Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
}

impl Window {
    fn starting_now(shape: Shape) -> Window {
        let start = Instant::now() + shape.warm_up;
        Window { start, end: start + shape.measure }
    }
}

async fn drive<D: Driver>(mut driver: D, window: Window) -> Result<Sample> {
    let mut sample = Sample::new(window.end - window.start);
    let mut began = Instant::now();
    loop {
        if let Err(error) = driver.step().await {
            sample.fail(&error);
            return Ok(sample);
        }
        sample.steps_all += 1;
        let ended = Instant::now();
        if ended >= window.end {
            return Ok(sample);
        }
        if ended >= window.start {
            sample.record(ended - began)?;
        }
        began = ended;
    }
}

/// Repeats the steps of all connections until `more` is false, for filling a store; there is no window.
pub fn until_done<C: Connect>(connections: usize, connect: C, more: impl Fn() -> bool + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let more = Rc::new(more);
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = Vec::new();
        for connection in 0..connections {
            let mut driver = connect.connect(connection).await?;
            let more = more.clone();
            tasks.push(tokio::task::spawn_local(async move {
                while more() {
                    driver.step().await?;
                }
                anyhow::Ok(())
            }));
        }
        let all = async {
            for task in tasks {
                task.await.map_err(|_| anyhow!("a connection panicked"))??;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            done = all => done,
            () = stop::requested() => bail!("interrupted"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{BATCH, Batches, Cycles, Numbers, Replays};
    use crate::keys::Numbering;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;

    const SHAPE: Shape =
        Shape { connections: 4, threads: 2, warm_up: Duration::from_millis(20), measure: Duration::from_millis(80) };

    /// A server that answers as the wire document says, or with the given seal status.
    fn stub(seal: StatusCode) -> (u16, tokio::runtime::Runtime) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let new = r#"{"decision":"new","token":7}"#;
        let batch = |body: String| async move {
            let result = match body.contains(r#""op":"claim""#) {
                true => r#"{"status":201,"body":{"decision":"new","token":7}}"#,
                false => r#"{"status":200,"body":{}}"#,
            };
            format!(r#"{{"results":[{}]}}"#, vec![result; BATCH].join(","))
        };
        let router = Router::new()
            .route("/v1/fences/claim", post(move || async move { (StatusCode::CREATED, new) }))
            .route("/v1/fences/seal", post(move || async move { (seal, "{}") }))
            .route("/v1/fences/batch", post(batch));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(async { axum::serve(listener, router).await });
        (port, runtime)
    }

    #[test]
    fn cycles_and_batches_are_counted_without_errors() {
        let (port, _runtime) = stub(StatusCode::OK);
        let numbering = Numbering::new(1);
        let single = run(SHAPE, Cycles { ports: vec![port], numbering }).unwrap();
        let batch = run(SHAPE, Batches { port, numbering, numbers: Numbers::PerConnection }).unwrap();
        for sample in [single, batch] {
            assert_eq!((sample.errors, sample.first_error), (0, None));
            assert!(sample.steps > 0 && sample.steps_all > sample.steps);
        }
    }

    #[test]
    fn a_refused_seal_is_an_error_of_every_connection() {
        let (port, _runtime) = stub(StatusCode::CONFLICT);
        let sample = run(SHAPE, Cycles { ports: vec![port], numbering: Numbering::new(1) }).unwrap();
        assert_eq!((sample.errors, sample.steps), (4, 0));
        assert!(sample.first_error.unwrap().contains("409"));
    }

    #[test]
    fn a_replay_that_is_answered_as_new_is_an_error() {
        let (port, _runtime) = stub(StatusCode::OK);
        let sample = run(SHAPE, Replays { port, numbering: Numbering::new(1), sealed: 10 }).unwrap();
        assert_eq!(sample.errors, 4);
        assert!(sample.first_error.unwrap().contains("duplicate"));
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        assert!(run(SHAPE, Cycles { ports: vec![1], numbering: Numbering::new(1) }).is_err());
    }
}
