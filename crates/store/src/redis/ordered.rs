//! Reads in order, over all buckets and shards: rows of a kind by key, and due rows by time.
//! Never holds more than a few pages of ids. Called by the store's `range` and `due`.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use ::redis::{cmd, from_redis_value_ref};
use bytes::Bytes;
use fencepost_kernel::{Millis, Row, RowKey, key::Kind};

use super::{
    Inner,
    layout::row_at,
    router::{Ask, Does},
    script,
};
use crate::{Error, Found, Loaded, contract::Span};

/// The most ids asked of one bucket at once.
const PAGE_MAX: usize = 1_000;
/// The most buckets asked at once: one at first, twice as many after each round that did not fill the page.
const WIDTH_MAX: usize = 128;

impl Inner {
    /// Up to `limit` rows of a span, in key order.
    pub(super) async fn range(&self, Span { mut from, last }: Span, limit: usize) -> Result<Found, Error> {
        let mut bucket = match from {
            Bound::Included(key) | Bound::Excluded(key) => self.layout.bucket(&key),
            Bound::Unbounded => 0,
        };
        let buckets = self.layout.bucket(&last) + 1;
        let (mut found, mut width) = (Found::new(), 1);
        while found.len() < limit && bucket < buckets {
            let page = (limit - found.len()).min(PAGE_MAX);
            let end = (bucket + width).min(buckets);
            let mut keys = self.ids(bucket..end, from, last, page).await?;
            from = Bound::Unbounded;
            let more = keys.len() >= page;
            keys.truncate(page);
            let rows = self.load(&keys).await?;
            self.prune(keys.iter().zip(&rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key)).await;
            found.extend(keys.iter().zip(rows).filter_map(|(key, row)| Some((*key, row?))));
            match keys.last() {
                Some(key) if more => (bucket, from) = (self.layout.bucket(key), Bound::Excluded(*key)),
                _ => (bucket, width) = (end, (width * 2).min(WIDTH_MAX)),
            }
        }
        Ok(found)
    }

    // The first ids of each bucket up to `last`, in order; the first bucket begins at `from`.
    async fn ids(
        &self,
        buckets: std::ops::Range<usize>,
        from: Bound<RowKey>,
        last: RowKey,
        page: usize,
    ) -> Result<Vec<RowKey>, Error> {
        let kind = last.kind;
        let from = match from {
            Bound::Included(key) => [b"[", &key.id[..]].concat(),
            Bound::Excluded(key) => [b"(", &key.id[..]].concat(),
            Bound::Unbounded => b"-".to_vec(),
        };
        let to = [b"[", &last.id[..]].concat();
        let asks = buckets.clone().map(|bucket| {
            let mut range = cmd("ZRANGEBYLEX");
            let from = if bucket == buckets.start { &from[..] } else { b"-" };
            range.arg(self.layout.index(bucket, kind)).arg(from).arg(&to).arg("LIMIT").arg(0).arg(page);
            Ask { slot: self.layout.slot(self.layout.shard_of(bucket)), command: range }
        });
        let mut keys = Vec::new();
        for answer in self.ask(asks.collect()).await? {
            let ids: Vec<Vec<u8>> = from_redis_value_ref(&answer).map_err(|error| Error::Broken(error.to_string()))?;
            for id in ids {
                let id = id.try_into().map_err(|_| Error::Broken("an index of rows holds what is no id".to_owned()))?;
                keys.push(RowKey { kind, id });
            }
        }
        Ok(keys)
    }

    // Removes rows that Redis has dropped by their time to live from their index. A failure only leaves that for later.
    async fn prune(&self, gone: impl Iterator<Item = RowKey>) {
        let mut buckets: BTreeMap<usize, Vec<RowKey>> = BTreeMap::new();
        gone.for_each(|key| buckets.entry(self.layout.bucket(&key)).or_default().push(key));
        let asks = buckets.into_iter().filter_map(|(bucket, gone)| {
            let slot = self.layout.slot(self.layout.shard_of(bucket));
            Some(Ask { slot, command: script::prune(&self.layout, bucket, &gone)? })
        });
        let asks: Vec<Ask> = asks.collect();
        if !asks.is_empty() {
            self.router.send(Does::Write, &asks).await;
        }
    }

    /// Up to `limit` rows of a kind that are due, earliest first. One list holds all kinds; only fences are ever in it.
    pub(super) async fn due(
        &self,
        kind: Kind,
        until: Millis,
        mut after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> Result<Found, Error> {
        let mut found = Found::new();
        loop {
            let page = (limit - found.len()).min(PAGE_MAX);
            let mut places = self.places(kind, until, after, page).await?;
            places.sort_unstable();
            places.truncate(page);
            let keys: Vec<RowKey> = places.iter().map(|(_, key)| *key).collect();
            let rows = self.load(&keys).await?;
            // A row that has changed since its place was read is not due any more, or later.
            let still = |((due, key), row): (&(Millis, RowKey), Loaded)| {
                let row: Arc<Row> = row.filter(|row| row.record.due_at() == Some(*due))?;
                Some((*key, row))
            };
            found.extend(places.iter().zip(rows).filter_map(still));
            after = places.last().copied();
            if places.len() < page || found.len() >= limit {
                return Ok(found);
            }
        }
    }

    // The first places of every shard after `after`; `page` or more where there are so many.
    async fn places(
        &self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        page: usize,
    ) -> Result<Vec<(Millis, RowKey)>, Error> {
        let from = after.map_or(0, |(due, _)| due.0);
        let mut places = Vec::new();
        let mut open: Vec<(usize, usize)> = (0..self.layout.shards()).map(|shard| (shard, 0)).collect();
        while page > 0 && !open.is_empty() {
            let asks = open.iter().map(|(shard, skip)| {
                let mut range = cmd("ZRANGEBYSCORE");
                range.arg(self.layout.due(*shard)).arg(from).arg(until.0);
                range.arg("WITHSCORES").arg("LIMIT").arg(*skip).arg(page);
                Ask { slot: self.layout.slot(*shard), command: range }
            });
            let answers = self.ask(asks.collect()).await?;
            let mut further = Vec::new();
            for ((shard, skip), answer) in open.into_iter().zip(answers) {
                let pairs: Vec<(Bytes, f64)> =
                    from_redis_value_ref(&answer).map_err(|error| Error::Broken(error.to_string()))?;
                let before = places.len();
                for (place, due) in &pairs {
                    let key = row_at(place).ok_or(Error::Broken("a due list holds what is no row".to_owned()))?;
                    let place = (Millis(*due as u64), key);
                    let wanted = key.kind == kind && after.is_none_or(|after| place > after);
                    places.extend(wanted.then_some(place));
                }
                // The page had places that the caller has seen, or that are of another kind: the next one has the rest.
                if pairs.len() == page && places.len() - before < page {
                    further.push((shard, skip + page));
                }
            }
            open = further;
        }
        Ok(places)
    }
}
