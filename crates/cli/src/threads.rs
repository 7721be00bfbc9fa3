//! The threads that serve connections: one for each processor, and bound to it. Left to itself, the system moves whoever is
//! woken to the processor of whoever wakes it, until a server and its clients crowd on one and leave the other idle.
//! Never bound where the process may use less than whole processors. Started by `serve`.

use tokio::runtime::{Handle, Runtime};

/// A runtime of one thread for each processor; none where connections are served on the main one.
#[derive(Default)]
pub struct Threads(Vec<Runtime>);

impl Threads {
    /// Starts them, unless the process has one processor or parts of some.
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
        // The first has the most to do: that of another process on this machine is another processor's.
        let first = process::id() as usize % processors.len();
        processors.rotate_left(first);
        let on = |processor: usize| {
            let bound = OnceLock::new();
            let bind = move || {
                let mut own = CpuSet::new();
                own.set(processor);
                // The first is the one that serves; those that may block come later, and go where they like. Unbound it serves, too.
                let set = if bound.set(()).is_ok() { &own } else { &all };
                let _ = sched_setaffinity(None, set);
            };
            let name = format!("fencepost-{processor}");
            Builder::new_multi_thread().worker_threads(1).thread_name(name).on_thread_start(bind).enable_all().build()
        };
        let threads = processors.into_iter().map(on).collect::<Result<_, _>>().context("no threads")?;
        Ok(Self(threads))
    }

    /// None: elsewhere the system is not asked for it.
    #[cfg(not(target_os = "linux"))]
    pub fn bound() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    /// Where connections go.
    pub fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|runtime| runtime.handle().clone()).collect()
    }

    /// Ends them, and waits for nothing: who was to be waited for has been.
    pub fn end(self) {
        self.0.into_iter().for_each(Runtime::shutdown_background);
    }
}
