//! A store that passes every call on to another one, but for those that a test changes.
//! Adds no behaviour of its own. Called by tests and by `faults`.

use std::{ops::Deref, sync::Arc};

use fencepost_kernel::{Millis, RowKey, key::Kind};
use fencepost_store::{
    Error, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded, Node},
};
use futures::future::BoxFuture;

/// A store over another one. It derefs to its hooks.
pub struct Forwarding<H> {
    /// The store that calls are passed on to.
    pub inner: Arc<dyn Store>,
    /// The changes of the test.
    pub hooks: H,
}

/// The changes that a test makes to a store. A call without an override is passed on as it is. `inner` is the store behind it.
pub trait Hooks: Send + Sync + Sized + 'static {
    /// In place of [`Store::promises`].
    fn promises(&self, inner: &dyn Store) -> Promises {
        inner.promises()
    }

    /// In place of [`Store::now`].
    fn now(&self, inner: &dyn Store) -> Option<Millis> {
        inner.now()
    }

    /// In place of [`Store::load`].
    fn load<'a>(&'a self, inner: &'a dyn Store, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        inner.load(keys)
    }

    /// In place of [`Store::peek`].
    fn peek(&self, inner: &dyn Store, key: &RowKey) -> Option<Result<Loaded, Error>> {
        inner.peek(key)
    }

    /// In place of [`Store::recall`]: what this store's `peek` says.
    fn recall(&self, inner: &dyn Store, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.peek(inner, key)
    }

    /// In place of [`Store::commit`].
    fn commit<'a>(
        &'a self,
        inner: &'a dyn Store,
        sets: &'a [WriteSet],
        now: Millis,
    ) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        inner.commit(sets, now)
    }

    /// In place of [`Store::due`].
    fn due<'a>(
        &'a self,
        inner: &'a dyn Store,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        inner.due(kind, until, after, limit)
    }

    /// In place of [`Store::range`], and of [`Store::scan`] with an empty prefix.
    fn range<'a>(
        &'a self,
        inner: &'a dyn Store,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        inner.range(kind, prefix, after, limit)
    }

    /// A store with these hooks over another one.
    fn over(self, inner: Arc<dyn Store>) -> Arc<Forwarding<Self>> {
        Arc::new(Forwarding { inner, hooks: self })
    }
}

impl<H> Deref for Forwarding<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hooks
    }
}

impl<H: Hooks> Store for Forwarding<H> {
    fn promises(&self) -> Promises {
        self.hooks.promises(&*self.inner)
    }

    fn now(&self) -> Option<Millis> {
        self.hooks.now(&*self.inner)
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        self.hooks.load(&*self.inner, keys)
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.hooks.peek(&*self.inner, key)
    }

    fn recall(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.hooks.recall(&*self.inner, key)
    }

    fn guess(&self, key: &RowKey) -> Option<Loaded> {
        self.inner.guess(key)
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        self.hooks.commit(&*self.inner, sets, now)
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        self.inner.time_floor()
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.hooks.due(&*self.inner, kind, until, after, limit)
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.hooks.range(&*self.inner, kind, prefix, after, limit)
    }

    fn sweep(&self, now: Millis, limit: usize) -> BoxFuture<'_, Result<Option<usize>, Error>> {
        self.inner.sweep(now, limit)
    }

    fn drive(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.drive()
    }

    fn alive(&self) -> BoxFuture<'_, Result<Vec<(String, Millis)>, Error>> {
        self.inner.alive()
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.leave()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Error>> {
        self.inner.nodes()
    }
}
