//! The rows that a batch of commands stands on: read together, and seen with what earlier commands of the batch wrote.
//! Never reads a row twice for one batch. Called by the read loop and the commit loop.

use std::sync::{Arc, OnceLock};

use ahash::{HashMap, HashSet};
use fencepost_kernel::{
    Command, Millis, Row, RowKey, Rows, Write,
    law::{follow, footprint},
    row::CommitId,
};
use fencepost_store::{WriteSet, contract::Loaded};

use super::{Error, Shared, commit::Job};

/// Rows that were read, and those that were not there.
#[derive(Default)]
pub(super) struct LoadedRows {
    pub(super) rows: HashMap<RowKey, Loaded>,
    /// Bytes of the rows that the store was asked for.
    pub(super) bytes: usize,
}

impl Rows for LoadedRows {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).and_then(Option::as_deref)
    }
}

/// Rows that were read together, and the time before that.
pub(super) struct View {
    pub(super) rows: LoadedRows,
    pub(super) at: Millis,
    /// Whether nobody read them: good for a write that the store compares, not for an answer.
    pub(super) guessed: bool,
}

/// Where the rows of a batch are read.
pub(super) trait Source {
    /// The rows under `keys`, in that order.
    fn read<'a>(
        &'a mut self,
        keys: &'a [RowKey],
    ) -> impl Future<Output = Result<Vec<Loaded>, fencepost_store::Error>> + Send + 'a;
}

impl Source for &Shared {
    fn read<'a>(
        &'a mut self,
        keys: &'a [RowKey],
    ) -> impl Future<Output = Result<Vec<Loaded>, fencepost_store::Error>> + Send + 'a {
        self.store.load(keys)
    }
}

/// The rows that the commands stand on, with what is known of them already.
pub(super) async fn load(
    source: &mut impl Source,
    commands: &[&Command],
    known: LoadedRows,
) -> Result<LoadedRows, Error> {
    let mut loaded = known;
    let mut keys = Vec::with_capacity(commands.len());
    for command in commands {
        footprint(command, &mut |key| keys.push(key));
    }
    loaded.fill(source, keys).await?;
    // Rows name further rows, a few times over.
    loop {
        let mut keys = Vec::new();
        for command in commands {
            follow(command, &loaded, &mut |key| keys.push(key));
        }
        if !loaded.fill(source, keys).await? {
            return Ok(loaded);
        }
    }
}

/// Commands that rows are read for at once. The weight of a row is unknown before it is read: a page of the largest
/// rows is how far a commit may go beyond its limit.
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

/// Whether a command looks at a row that was read for it before it moved. Such a row beside another of its reading may be
/// what never was.
pub(super) fn reads_inconsistent(command: &Command, loaded: &LoadedRows, moved: &HashSet<RowKey>, view: &View) -> bool {
    let since = |key: &RowKey| {
        moved.contains(key) && view.rows.rows.get(key).map(revision) != loaded.rows.get(key).map(revision)
    };
    !moved.is_empty() && !view.guessed && looks_at(command, loaded, since)
}

fn revision(row: &Loaded) -> Option<CommitId> {
    row.as_ref().map(|row| row.revision)
}

/// Whether a command looks at one of these rows.
pub(super) fn touches(command: &Command, rows: &impl Rows, keys: &HashSet<RowKey>) -> bool {
    !keys.is_empty() && looks_at(command, rows, |key| keys.contains(key))
}

fn looks_at(command: &Command, rows: &impl Rows, any: impl Fn(&RowKey) -> bool) -> bool {
    let mut found = false;
    look_at(command, rows, &mut |key| found = found || any(&key));
    found
}

fn look_at(command: &Command, rows: &impl Rows, see: &mut impl FnMut(RowKey)) {
    footprint(command, see);
    follow(command, rows, see);
}

impl LoadedRows {
    // Jobs are in the order in which they were read: of a row that was read twice, the later reading counts. A guess
    // counts only where nobody read, and the latest first. Told are also the rows that moved between two readings.
    pub(super) fn merged(jobs: &[Job]) -> (Self, HashSet<RowKey>) {
        let (mut loaded, mut moved) = (Self::default(), HashSet::default());
        let mut views: Vec<&Arc<View>> = jobs.iter().filter_map(|job| job.view.as_ref()).collect();
        views.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for (key, row) in views.iter().filter(|view| !view.guessed).flat_map(|view| &view.rows.rows) {
            let before = loaded.rows.insert(*key, row.clone());
            if before.is_some_and(|before| revision(&before) != revision(row)) {
                moved.insert(*key);
            }
        }
        for (key, row) in views.iter().rev().filter(|view| view.guessed).flat_map(|view| &view.rows.rows) {
            loaded.rows.entry(*key).or_insert_with(|| row.clone());
        }
        (loaded, moved)
    }

    /// Reads the rows that were not read yet, and tells whether there were any.
    pub(super) async fn fill(&mut self, source: &mut impl Source, mut keys: Vec<RowKey>) -> Result<bool, Error> {
        keys.retain(|key| !self.rows.contains_key(key));
        if keys.is_empty() {
            return Ok(false);
        }
        keys.sort_unstable();
        keys.dedup();
        let rows = source.read(&keys).await?;
        self.bytes += rows.iter().flatten().map(|row| row.record.weight_bytes()).sum::<usize>();
        self.rows.extend(keys.into_iter().zip(rows));
        Ok(true)
    }
}

/// A commit in the making: the rows it stands on, and what its commands so far write over them.
pub(super) struct Draft {
    read: LoadedRows,
    pub(super) sets: Vec<WriteSet>,
    written: HashMap<RowKey, Written>,
}

/// Which write was the last of a row. The row itself is made where a later command looks at it, which is seldom.
struct Written {
    set: usize,
    write: usize,
    row: OnceLock<Option<Row>>,
}

impl Draft {
    /// For so many commands.
    pub(super) fn new(read: LoadedRows, commands: usize) -> Self {
        let written = HashMap::with_capacity_and_hasher(commands, Default::default());
        Self { read, sets: Vec::with_capacity(commands), written }
    }

    /// Adds what a command writes.
    pub(super) fn add(&mut self, set: WriteSet) {
        let at = self.sets.len();
        let written = |write| Written { set: at, write, row: OnceLock::new() };
        self.written.extend(set.writes.iter().enumerate().map(|(index, write)| (write.key, written(index))));
        self.sets.push(set);
    }

    /// Rows which others before it wrote, and which a command looks at but leaves alone: it stands only while they do.
    pub(super) fn read_dependencies(&self, command: &Command, own: &[Write]) -> Vec<(RowKey, Option<CommitId>)> {
        if self.written.is_empty() {
            return Vec::new();
        }
        let mut keys = Vec::new();
        look_at(command, self, &mut |key| {
            if self.written.contains_key(&key) {
                keys.push(key);
            }
        });
        if keys.is_empty() {
            return Vec::new();
        }
        // A command may look at thousands of rows, at some of them twice, and write as many.
        let mut seen: HashSet<RowKey> = own.iter().map(|write| write.key).collect();
        keys.retain(|key| seen.insert(*key));
        keys.into_iter().map(|key| (key, self.row(&key).map(|row| row.revision))).collect()
    }
}

impl Rows for Draft {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        let Some(Written { set, write, row }) = self.written.get(key) else { return self.read.row(key) };
        let WriteSet { id, writes, .. } = &self.sets[*set];
        row.get_or_init(|| writes[*write].put.clone().map(|record| Row { record, revision: *id })).as_ref()
    }
}
