//! Builds the commands that run the scripts, and reads their answers.
//! Never touches a key that it has not declared to the server. Called by the store and by its scans.

use std::sync::LazyLock;

use ::redis::{Cmd, Script, Value, cmd};
use fencepost_kernel::{
    Millis, RowKey,
    fence::State,
    row::{CommitId, Record},
};

use super::layout::{Layout, place};
use crate::{WriteSet, codec};

/// How long after its expiry Redis drops a row. Clocks of engines and servers differ by less: a row that is gone had
/// expired for every engine, and the time alone is a token above its last one.
const SLACK_MS: u64 = 60_000;

struct Source {
    text: &'static str,
    hash: String,
}

impl Source {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }

    fn call(&self, keys: usize) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(keys);
        call
    }
}

static COMMIT: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("commit.lua")));
static PRUNE: LazyLock<Source> = LazyLock::new(|| Source::new(include_str!("prune.lua")));

/// The commands that load the scripts into a server.
pub(super) fn all() -> Vec<Cmd> {
    [&COMMIT, &PRUNE].map(|source| cmd("SCRIPT").arg("LOAD").arg(source.text).to_owned()).into()
}

/// A server's answer to a write set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Moved,
    /// Its server took no writes.
    Refused,
    Applied,
    Repeated,
}

/// Commits sets of one shard, in order, in rows of the given format; `tell_time` asks for the server's time as well.
pub(super) fn commit(
    layout: &Layout,
    shard: usize,
    sets: &[&WriteSet],
    now: Millis,
    format: u8,
    tell_time: bool,
) -> Cmd {
    let keys = sets.iter().map(|set| 2 * set.writes.len() + set.also.held.len()).sum::<usize>();
    let mut call = COMMIT.call(2 + keys);
    call.arg(layout.floor(shard)).arg(layout.due(shard));
    for set in sets {
        for write in &set.writes {
            let bucket = layout.bucket(&write.key);
            call.arg(layout.row(&write.key)).arg(layout.index(bucket, write.key.kind));
        }
        for (key, _) in &set.also.held {
            call.arg(layout.row(key));
        }
    }
    call.arg(now.0).arg(if tell_time { "time" } else { "" });
    for set in sets {
        call.arg(&set.id.0.to_le_bytes()).arg(set.writes.len()).arg(set.also.held.len());
        for write in &set.writes {
            call.arg(expected(write.expect));
            let put = write.put.as_ref();
            call.arg(put.map(|record| codec::encode(&write.key, record, set.id, format)).unwrap_or_default());
            call.arg(&place(&write.key));
            call.arg(number(put.and_then(Record::due_at).map(|due| due.0)));
            call.arg(number(put.and_then(|record| lives_ms(record, now))));
        }
        for (_, expect) in &set.also.held {
            call.arg(expected(*expect));
        }
    }
    call
}

// The revision as a row holds it; empty where there must be no row.
fn expected(revision: Option<CommitId>) -> Vec<u8> {
    revision.map(|revision| revision.0.to_le_bytes().to_vec()).unwrap_or_default()
}

// Only sealed rows ever vanish by Redis's own clock; an engine looks at all others and sweeps them.
fn lives_ms(record: &Record, now: Millis) -> Option<u64> {
    match record.as_fence()?.state {
        // Counted from now: the store's time and this server's clock need not agree.
        State::Sealed { expires, .. } => Some(expires.0.saturating_sub(now.0) + SLACK_MS),
        State::Pending { .. } | State::Released { .. } => None,
    }
}

fn number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// A server's own clock, and the latest time that any engine has sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) server: Millis,
    pub(super) floor: Millis,
}

/// The verdicts in an answer to `sets` sets, and the time where it was asked for.
pub(super) fn said(answer: &Value, sets: usize) -> Option<(Vec<Said>, Option<Told>)> {
    let numbers: Vec<i64> = ::redis::from_redis_value_ref(answer).ok()?;
    let (verdicts, time) = numbers.split_at_checked(sets)?;
    let said = verdicts.iter().map(|verdict| match verdict {
        0 => Some(Said::Moved),
        1 => Some(Said::Applied),
        2 => Some(Said::Repeated),
        _ => None,
    });
    let time = match time {
        [seconds, micros, floor] => {
            Some(Told { server: millis(*seconds, *micros), floor: Millis(u64::try_from(*floor).ok()?) })
        }
        _ => None,
    };
    Some((said.collect::<Option<_>>()?, time))
}

/// The time in an answer to `TIME`.
pub(super) fn time(answer: &Value) -> Option<Millis> {
    let (seconds, micros): (i64, i64) = ::redis::from_redis_value_ref(answer).ok()?;
    Some(millis(seconds, micros))
}

fn millis(seconds: i64, micros: i64) -> Millis {
    Millis((seconds * 1_000 + micros / 1_000) as u64)
}

/// Removes rows that are gone from the index of their bucket. All must be of one kind and one bucket.
pub(super) fn prune(layout: &Layout, bucket: usize, gone: &[RowKey]) -> Option<Cmd> {
    let mut call = PRUNE.call(gone.len() + 1);
    call.arg(layout.index(bucket, gone.first()?.kind));
    for key in gone {
        call.arg(layout.row(key));
    }
    for key in gone {
        call.arg(&key.id);
    }
    Some(call)
}
