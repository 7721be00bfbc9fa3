//! JSON lines on standard output. A line is added to a buffer and written by a thread of its own, so that a slow
//! terminal never slows a request. Past its bound it drops lines and says how many; it never blocks and never grows.

use std::{
    io::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

pub use fencepost::policy::server::Level;
use fencepost_kernel::json::{write_name, write_string};

use crate::time::rfc3339;

const BUFFER_BYTES_MAX: usize = 8 << 20;
const FLUSH_BYTES: usize = 64 << 10;
/// The capacity that a buffer keeps after a burst.
const KEPT_BYTES_MAX: usize = 1 << 20;
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// A reader that has stalled must not keep a process from ending.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

/// A log. Clones share its buffer. Call [`Log::flush`] before the process ends: nothing else waits for the last lines.
#[derive(Clone)]
pub struct Log {
    sink: Arc<Sink>,
    level: Level,
}

struct Sink {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    dropped: u64,
    idle: bool,
}

impl Log {
    /// A log that writes to `out`.
    pub fn new(level: Level, mut out: impl Write + Send + 'static) -> Self {
        let sink = Arc::new(Sink { state: Mutex::default(), bell: Condvar::new() });
        let writer = sink.clone();
        // Serving without a log would hide the server's decisions.
        thread::Builder::new()
            .name("fencepost-log".to_owned())
            .spawn(move || {
                let mut lines = Vec::new();
                loop {
                    let dropped = writer.take(&mut lines);
                    // Where standard output is gone, there is nowhere to report the error.
                    let _ = out.write_all(&lines).and_then(|()| out.flush());
                    if dropped > 0 {
                        let _ = writeln!(out, r#"{{"level":"warn","msg":"log lines dropped","count":{dropped}}}"#);
                    }
                    lines.clear();
                    lines.shrink_to(KEPT_BYTES_MAX);
                }
            })
            .expect("a thread can be started at start-up");
        Self { sink, level }
    }

    /// Starts a line; it is written when dropped.
    pub fn line(&self, level: Level, now_ms: u64, msg: &str) -> Line<'_> {
        let mut text = Vec::new();
        let on = level <= self.level;
        if on {
            text.reserve(512);
            text.extend_from_slice(b"{\"ts\":\"");
            text.extend_from_slice(rfc3339(now_ms).as_bytes());
            text.extend_from_slice(b"\",\"level\":\"");
            text.extend_from_slice(level.name().as_bytes());
            text.extend_from_slice(b"\"");
        }
        let line = Line { log: self, text, on };
        line.text("msg", msg)
    }

    /// Waits until every line so far is written, but at most for a second.
    pub fn flush(&self) {
        let begun = Instant::now();
        let mut state = self.sink.lock();
        while !(state.lines.is_empty() && state.idle) && begun.elapsed() < FLUSH_WAIT_MAX {
            self.sink.bell.notify_all();
            let (next, _) =
                self.sink.bell.wait_timeout(state, Duration::from_millis(10)).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
    }

    fn add(&self, line: &[u8]) {
        let mut state = self.sink.lock();
        if state.lines.len() + line.len() > BUFFER_BYTES_MAX {
            state.dropped += 1;
            return;
        }
        let before = state.lines.len();
        state.lines.extend_from_slice(line);
        if before < FLUSH_BYTES && state.lines.len() >= FLUSH_BYTES {
            self.sink.bell.notify_all();
        }
    }
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Leaves the empty `lines` in place of the full buffer, so that its capacity is used again.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.idle = true;
        if state.lines.len() < FLUSH_BYTES {
            let (next, _) = self.bell.wait_timeout(state, FLUSH_EVERY).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
        state.idle = state.lines.is_empty();
        std::mem::swap(&mut state.lines, lines);
        std::mem::take(&mut state.dropped)
    }
}

/// A line under construction; dropping it writes it.
pub struct Line<'a> {
    log: &'a Log,
    text: Vec<u8>,
    on: bool,
}

impl Line<'_> {
    /// Adds a text member.
    pub fn text(mut self, name: &'static str, value: &str) -> Self {
        if self.on {
            self.name(name);
            write_string(&mut self.text, value);
        }
        self
    }

    /// Adds a number.
    pub fn number(mut self, name: &'static str, value: u64) -> Self {
        if self.on {
            self.name(name);
            self.text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        }
        self
    }

    fn name(&mut self, name: &'static str) {
        self.text.push(b',');
        write_name(&mut self.text, name);
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.on {
            self.text.extend_from_slice(b"}\n");
            self.log.add(&self.text);
        }
    }
}
