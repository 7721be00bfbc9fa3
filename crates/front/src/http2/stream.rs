//! The task of one stream, and the time that its client may take to read the answer.
//! Never counts time that the service takes: only bytes that the client has yet to take start the clock.
//! Called by hyper, which spawns the task; the connection's `open` comes right before.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use hyper::rt::Executor;
use pin_project_lite::pin_project;

use super::super::alarm::{Alarm, Pace};
use super::super::limits::Limits;
use super::super::link::Link;
use super::tally::Tally;

/// The progress of one stream's answer.
#[derive(Debug)]
pub(in super::super) struct Stream {
    tally: Arc<Tally>,
    // Bytes handed to hyper, and how many of them it has sent.
    given: AtomicU64,
    taken: AtomicU64,
    last_left: AtomicBool,
    last_waker: AtomicWaker,
    is_whole: AtomicBool,
}

impl Stream {
    pub(super) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Marks all bytes as sent: hyper asks for more only after it has sent what it had.
    pub(super) fn take_all(&self) {
        self.taken.store(self.given.load(Ordering::Acquire), Ordering::Release);
    }

    /// Records that the last piece has left our memory.
    pub(super) fn set_last_left(&self) {
        self.last_left.store(true, Ordering::Release);
        self.last_waker.wake();
    }

    /// Ready once the last piece has left our memory.
    pub(super) fn poll_last_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.last_waker.register(cx.waker());
        if !self.last_left.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.take_all();
        Poll::Ready(())
    }

    pub(super) fn set_whole(&self) {
        self.is_whole.store(true, Ordering::Release);
    }

    pub(in super::super) fn end(&self) {
        self.tally.end(self.is_whole.load(Ordering::Acquire));
    }
}

/// Spawns the tasks of one connection's streams.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    tally: Arc<Tally>,
    limits: Arc<Limits>,
    // hyper calls the service and at once spawns the future that it returned, so one slot is enough.
    opened: Arc<Mutex<Option<Arc<Link>>>>,
}

impl Streams {
    pub(super) fn new(limits: Arc<Limits>) -> Streams {
        Streams { tally: Arc::new(Tally::new()), limits, opened: Arc::default() }
    }

    pub(super) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Opens the link of a new stream; hyper spawns the stream's task next.
    pub(super) fn open(&self) -> Arc<Link> {
        self.tally.begin();
        let stream = Stream {
            tally: self.tally.clone(),
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            last_left: AtomicBool::new(false),
            last_waker: AtomicWaker::new(),
            is_whole: AtomicBool::new(false),
        };
        let link = Arc::new(Link::of(stream));
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        link
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let link = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        tokio::spawn(Watched {
            stream,
            link,
            limits: self.limits.clone(),
            seen: 0,
            pace: Pace::default(),
            alarm: Alarm::default(),
        });
    }
}

pin_project! {
    struct Watched<F> {
        #[pin]
        stream: F,
        link: Option<Arc<Link>>,
        limits: Arc<Limits>,
        seen: u64,
        pace: Pace,
        alarm: Alarm,
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = self.project();
        if me.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(stream) = me.link.as_ref().and_then(|link| link.stream()) else { return Poll::Pending };
        let taken = stream.taken.load(Ordering::Acquire);
        if taken > *me.seen {
            me.pace.moved(taken - *me.seen, me.limits.write_bytes_per_s_min);
            *me.seen = taken;
        }
        if stream.given.load(Ordering::Acquire) == taken {
            return Poll::Pending;
        }
        // The task ends, which resets its stream and leaves the others alone.
        me.alarm.poll(cx, me.pace.deadline(me.limits.write_wait_ms_max))
    }
}
