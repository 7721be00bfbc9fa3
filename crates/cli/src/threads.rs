//! The threads that serve connections: one for each processor, and bound to it. Unbound, the system moves a thread to
//! the processor of the thread that wakes it, until a server and its clients share one processor and leave others idle.
//! Never bound where the process may use less than whole processors. Called by `serve`.

use tokio::runtime::{Handle, Runtime};

/// A runtime of one thread for each processor; empty where connections are served on the main runtime.
#[derive(Default)]
pub struct Threads(Vec<Runtime>);

impl Threads {
    /// Starts them, unless the process may use only one processor, or only a share of its processors' time.
    #[cfg(target_os = "linux")]
    pub fn bound() -> anyhow::Result<Self> {
        use std::{process, sync::OnceLock, thread::available_parallelism};

        use anyhow::Context;
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        use tokio::runtime::Builder;

        let Ok(all) = sched_getaffinity(None) else { return Ok(Self::default()) };
        let mut processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)).collect();
        let whole = available_parallelism().is_ok_and(|share| share.get() >= processors.len());
        if processors.len() < 2 || !whole {
            return Ok(Self::default());
        }
        // The first thread has the most work. The process id picks its processor, so that several processes spread.
        let first = process::id() as usize % processors.len();
        processors.rotate_left(first);
        let on = |processor: usize| {
            let bound = OnceLock::new();
            let bind = move || {
                let mut own = CpuSet::new();
                own.set(processor);
                // The first thread is the worker: it is bound if the system allows. Later, blocking ones are not.
                let set = if bound.set(()).is_ok() { &own } else { &all };
                let _ = sched_setaffinity(None, set);
            };
            let name = format!("fencepost-{processor}");
            Builder::new_multi_thread().worker_threads(1).thread_name(name).on_thread_start(bind).enable_all().build()
        };
        let threads = processors.into_iter().map(on).collect::<Result<_, _>>().context("no threads")?;
        Ok(Self(threads))
    }

    /// Starts none: threads are bound on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub fn bound() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    /// The runtimes that serve connections.
    pub fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|runtime| runtime.handle().clone()).collect()
    }

    /// Ends them without a wait: `serve` has waited for the connections already.
    pub fn end(self) {
        self.0.into_iter().for_each(Runtime::shutdown_background);
    }
}
