//! How much one commit takes: commands, the rows that they stand on, and the bytes of both.
//! Never splits a job: what one asks for together is committed together, whatever it weighs.
//! Called by the read loop and the commit loop.

use std::sync::Arc;

use fencepost_kernel::Command;

use super::{
    Error, Limits, Shared,
    commit::{Asked, Job},
    rows::{View, World, load},
};

/// Commands that rows are read for at once. Nobody knows what a row weighs before it is there: a page of the largest is what a
/// commit may hold beyond its limit.
pub(super) const PAGE_COMMANDS: usize = 32;

/// How many jobs a page has: whole ones, and at least one.
pub(super) fn page(jobs: &[Job], commands_max: usize) -> usize {
    let mut commands = 0;
    let fits = |job: &&Job| {
        commands += job.commands.len();
        commands <= commands_max
    };
    jobs.iter().take_while(fits).count().max(1)
}

/// How many jobs bring no more commands and bytes than one commit takes: at least one. Rows that were read for jobs together
/// count once.
pub(super) fn fitting(jobs: &[Job], limits: &Limits) -> usize {
    let (mut commands, mut rows, mut bytes, mut loaded) = (0, 0, 0, 0);
    let mut before: Option<&Arc<View>> = None;
    for (count, job) in jobs.iter().enumerate() {
        commands += job.commands.len();
        bytes += job.commands.iter().map(Command::weight_bytes).sum::<usize>();
        if let Some(view) = &job.view
            && !before.is_some_and(|before| Arc::ptr_eq(before, view))
        {
            (rows, loaded) = (rows + view.rows.rows.len(), loaded + view.rows.bytes);
            before = Some(view);
        }
        let fits = commands <= limits.batch_max
            && rows <= limits.batch_rows_max
            && bytes.max(loaded) <= limits.batch_bytes_max;
        if !fits {
            return count.max(1);
        }
    }
    jobs.len()
}

/// How many commands rows are read for.
#[derive(Clone, Copy)]
pub(super) enum Reading {
    /// All of them.
    All,
    /// As many of the first as one commit takes.
    Fitting,
}

/// Page by page, since what a row weighs is known only once it is there. How many commands that was: all of a job, or none.
pub(super) async fn load_fitting(
    shared: &Shared,
    asked: &[Asked<'_>],
    commands: &[&Command],
    known: World,
    reading: Reading,
) -> Result<(World, usize), Error> {
    let Limits { batch_rows_max, batch_bytes_max, .. } = shared.limits;
    let (mut world, mut end) = (known, 0);
    let mut page = match reading {
        Reading::All => commands.len(),
        Reading::Fitting => PAGE_COMMANDS.min(batch_rows_max).max(1),
    };
    let already = world.rows.len();
    while end < commands.len() {
        let full = world.bytes >= batch_bytes_max || world.rows.len() - already >= batch_rows_max;
        if end > 0 && full {
            break;
        }
        let from = end;
        end = (from + page).min(commands.len());
        while end < commands.len() && asked[end].job == asked[end - 1].job {
            end += 1;
        }
        world = load(shared, &commands[from..end], world).await?;
        // The rows so far tell how many of the next are left room for.
        let left = end * batch_bytes_max.saturating_sub(world.bytes) / world.bytes.max(1);
        page = left.clamp(1, page);
    }
    Ok((world, end))
}
