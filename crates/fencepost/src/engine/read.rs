//! The read loop of an engine on a shared store: commands that arrive while rows are being read are read for together.
//! A command that writes nothing is answered from there; the others go on to the commit loop with the rows they were
//! decided over.
//! So reading for the next commit goes on beside the last one. Never answers from rows read before the question came.

use std::sync::Arc;

use fencepost_kernel::{Command, decide, law::Decision};
use tokio::sync::mpsc;

use super::{
    Shared,
    commit::{Job, hand_on},
    rows::{LoadedRows, PAGE_COMMANDS, View, load, page},
};

/// Commands that rows are read for in one round trip, while rows are small.
const PAGE_COMMANDS_MAX: usize = 256;

pub(super) async fn run(shared: Arc<Shared>, mut asked: mpsc::Receiver<Job>, commits: mpsc::Sender<Job>) {
    let mut jobs = Vec::new();
    let mut commands_max = PAGE_COMMANDS;
    while !jobs.is_empty() || asked.recv_many(&mut jobs, shared.limits.batch_max).await > 0 {
        let mut jobs: Vec<Job> = jobs.drain(..page(&jobs, commands_max)).collect();
        // The time of the questions, not of the rows: old rows judged at a later time would lapse although renewed since.
        let now = shared.time.now();
        let commands: Vec<&Command> = jobs.iter().flat_map(|job| job.commands.iter()).collect();
        let view = match load(&mut &*shared, &commands, LoadedRows::default()).await {
            Ok(rows) => {
                // The weight of rows is known only after reading: the last rows tell for how many commands to read next.
                let fitting = commands.len() * shared.limits.batch_bytes_max / rows.bytes.max(1);
                commands_max = fitting.clamp(1, (commands_max * 2).min(PAGE_COMMANDS_MAX));
                Arc::new(View { rows, at: now, guessed: false })
            }
            Err(error) => {
                jobs.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
                continue;
            }
        };
        for job in jobs.drain(..) {
            let decisions: Vec<Decision> =
                job.commands.iter().map(|command| decide(command, &view.rows, now)).collect();
            if decisions.iter().any(|decision| !decision.only_answers()) {
                // When the engine is closed, its asker hears of it by the end of the job.
                let _ = hand_on(&shared, &commits, Job { view: Some(view.clone()), ..job }).await;
                continue;
            }
            for (target, decision) in job.commands.iter().zip(&decisions).filter_map(|(c, d)| Some((c.target()?, d))) {
                shared.note(target.key, &decision.reply, now);
            }
            // An asker that went away is not an error.
            drop(job.reply.send(Ok(decisions.into_iter().map(|decision| decision.reply).collect())));
        }
    }
}
