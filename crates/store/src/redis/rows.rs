//! Loads and commits rows, and reads the time floor and the mark that says how rows are laid out.
//! Never calls an outcome certain that is not: a commit that may have happened is unknown. Called by the store.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use ::redis::{Value, cmd, from_redis_value_ref};
use bytes::Bytes;
use fencepost_kernel::{Millis, RowKey};

use super::{
    Inner,
    router::{Answer, Ask, Does},
    script::{self, Said, Told},
};
use crate::{Error, WriteSet, codec, contract::Loaded};

/// The most sets in one script: enough to be cheap, few enough that no other client waits long for them.
const SETS_MAX: usize = 64;

/// How many milliseconds a server may be behind the engines' time before that counts: its answer took a while.
const BEHIND_MS: u64 = 250;

/// Some sets of a commit as one command.
pub(super) struct Part {
    ask: Ask,
    /// Their places among the sets of the commit.
    sets: Vec<usize>,
}

impl Inner {
    /// Answers to commands that only read.
    pub(super) async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Value>, Error> {
        let answers = self.router.send(Does::Read, &asks).await;
        answers.into_iter().map(|answer| answer.map_err(|fault| Error::NotApplied(fault.to_string()))).collect()
    }

    pub(super) async fn load(&self, keys: &[RowKey]) -> Result<Vec<Loaded>, Error> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let slot = |key: &RowKey| self.layout.slot(self.layout.shard(key));
        let mut asks = vec![Ask { slot: slot(first), command: cmd("TIME") }];
        if self.layout.one_slot() {
            // One command, so that rows that were written together are read together.
            let mut command = cmd("MGET");
            for key in keys {
                command.arg(self.layout.row(key));
            }
            asks.push(Ask { slot: slot(first), command });
        } else {
            let get = |key| Ask { slot: slot(key), command: cmd("GET").arg(self.layout.row(key)).to_owned() };
            asks.extend(keys.iter().map(get));
        }
        let mut answers = self.ask(asks).await?.into_iter();
        self.hear(answers.next().as_ref().and_then(script::time));
        let values: Vec<Value> = match (self.layout.one_slot(), answers.next()) {
            (true, Some(Value::Array(values))) => values,
            (_, first) => first.into_iter().chain(answers).collect(),
        };
        if values.len() != keys.len() {
            return Err(Error::NotApplied("not as many rows came back as were asked for".to_owned()));
        }
        keys.iter().zip(values).map(|(key, value)| decode(key, value)).collect()
    }

    /// The commands that commit sets: those of one shard together and in order, a bounded number at once.
    /// Without sets, one that only records the time.
    pub(super) fn parts(&self, sets: &[WriteSet], now: Millis) -> Vec<Part> {
        let mut shards: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, set) in sets.iter().enumerate() {
            let shard = set.writes.first().map_or(0, |write| self.layout.shard(&write.key));
            shards.entry(shard).or_default().push(at);
        }
        if sets.is_empty() {
            shards.insert(0, Vec::new());
        }
        let mut parts = Vec::with_capacity(shards.len());
        for (shard, members) in shards {
            let mut members = &members[..];
            loop {
                let (chunk, rest) = members.split_at(members.len().min(SETS_MAX));
                let own: Vec<&WriteSet> = chunk.iter().map(|at| &sets[*at]).collect();
                let format = self.router.settings().format;
                let command = script::commit(&self.layout, shard, &own, now, format, parts.is_empty());
                parts.push(Part { ask: Ask { slot: self.layout.slot(shard), command }, sets: chunk.to_vec() });
                members = rest;
                if members.is_empty() {
                    break;
                }
            }
        }
        parts
    }

    /// The verdict on each set. An error says "not applied" only where that is proven of every one of them.
    pub(super) async fn commit(&self, parts: Vec<Part>) -> Result<Vec<Said>, Error> {
        let (asks, sets): (Vec<Ask>, Vec<Vec<usize>>) = parts.into_iter().map(|part| (part.ask, part.sets)).unzip();
        let mut said = vec![Said::Moved; sets.iter().map(Vec::len).sum()];
        let (mut failed, mut refused) = (None, None);
        let mut something = false;
        for (sets, answer) in sets.iter().zip(self.router.send(Does::Write, &asks).await) {
            match outcome(answer, sets.len()) {
                Ok((verdicts, told)) => {
                    if let Some(Told { server, floor }) = told {
                        self.clock.heard(server.max(floor));
                        self.server_behind.store(floor.since(server) > BEHIND_MS, Ordering::Release);
                    }
                    something |= verdicts.iter().any(|verdict| *verdict != Said::Moved);
                    sets.iter().zip(verdicts).for_each(|(at, verdict)| said[*at] = verdict);
                }
                // A server that takes no writes must not stop the sets that go to the others.
                Err((true, why)) => {
                    sets.iter().for_each(|at| said[*at] = Said::Refused);
                    refused.get_or_insert(why);
                }
                Err((false, why)) => {
                    failed.get_or_insert(why);
                }
            }
        }
        match (failed, refused) {
            (Some(why), _) => Err(Error::Unknown(why)),
            (None, Some(why)) if !something => Err(Error::NotApplied(why)),
            _ => Ok(said),
        }
    }

    fn hear(&self, time: Option<Millis>) {
        if let Some(time) = time {
            self.clock.heard(time);
        }
    }

    pub(super) async fn time_floor(&self) -> Result<Millis, Error> {
        let asks = (0..self.layout.shards()).map(|shard| Ask {
            slot: self.layout.slot(shard),
            command: cmd("GET").arg(self.layout.floor(shard)).to_owned(),
        });
        let mut floor = Millis(0);
        for answer in self.ask(asks.collect()).await? {
            let known: Option<u64> = from_redis_value_ref(&answer).map_err(|error| Error::Broken(error.to_string()))?;
            floor = floor.max(Millis(known.unwrap_or_default()));
        }
        Ok(floor)
    }

    /// Stores how rows are laid out, or refuses to open a store that is laid out in another way.
    pub(super) async fn mark(&self) -> Result<(), Error> {
        let (name, slot) = self.layout.mark();
        let own = self.layout.name();
        let asks = [
            Ask { slot, command: cmd("SETNX").arg(&name).arg(&own).to_owned() },
            Ask { slot, command: cmd("GET").arg(&name).to_owned() },
        ];
        let mut known = None;
        for answer in self.router.send(Does::Write, &asks).await {
            known = Some(answer.map_err(|fault| Error::NotApplied(fault.to_string()))?);
        }
        let known: String = known.and_then(|known| from_redis_value_ref(&known).ok()).unwrap_or_default();
        if known == own {
            return Ok(());
        }
        Err(Error::Broken(format!(
            "the rows under {name} are laid out as `{known}`, not as `{own}`: open them with the same `slots` as before, or copy them"
        )))
    }
}

fn outcome(answer: Answer, sets: usize) -> Result<(Vec<Said>, Option<Told>), (bool, String)> {
    let value = answer.map_err(|fault| (fault.harmless(), fault.to_string()))?;
    script::said(&value, sets).ok_or_else(|| (false, format!("a strange answer to a commit: {value:?}")))
}

fn decode(key: &RowKey, value: Value) -> Result<Loaded, Error> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => match codec::decode(key, &Bytes::from(bytes)) {
            Ok(row) => Ok(Some(row.into())),
            Err(damage) => Err(Error::Broken(format!("the row {key:?} is damaged: {damage}"))),
        },
        other => Err(Error::Broken(format!("the row {key:?} is no string: {other:?}"))),
    }
}
