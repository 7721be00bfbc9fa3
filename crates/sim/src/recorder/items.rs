//! Writes what happens to items into the history. Never decides anything. Called by the partners and by `world`.

use super::Recorder;
use crate::history::items::{ItemAsk, ItemOp, ItemOutcome, ItemsLeft};

impl Recorder {
    /// A partner's request, handed to a node; its place in the list of all.
    pub(crate) fn item_asked(
        &self,
        caller: &str,
        (run, node): (usize, usize),
        (tenant, id): (&'static str, &str),
        ask: &ItemAsk,
    ) -> usize {
        let mut history = self.lock();
        let number = history.items.ops.len();
        let invoked = self.line(&mut history, format_args!("{caller}@{run}.{node} I{number} {tenant}/{id} {ask}"));
        let (id, ask, outcome) = (id.to_owned(), ask.clone(), ItemOutcome::Maybe);
        history.items.ops.push(ItemOp { run, node, tenant, id, ask, invoked, closed: None, outcome });
        number
    }

    /// The outcome of one.
    pub(crate) fn item_answered(&self, number: usize, outcome: ItemOutcome) {
        let mut history = self.lock();
        let stamp = self.line(&mut history, format_args!("  I{number} -> {outcome}"));
        let op = &mut history.items.ops[number];
        (op.closed, op.outcome) = (Some(stamp), outcome);
    }

    /// The items at the end.
    pub(crate) fn items_left(&self, mut left: ItemsLeft) {
        let mut history = self.lock();
        left.line = self.line(&mut history, "items at the end").line;
        for (name, item) in &left.items {
            self.line(&mut history, format_args!("  {name} {item:?}"));
        }
        for (name, stay) in &left.stays {
            self.line(&mut history, format_args!("  {name} {stay:?}"));
        }
        self.line(&mut history, format_args!("  waiting {:?} arrivals {:?}", left.waiting, left.arrivals));
        history.items.left = Some(left);
    }

    /// The partners whose items are released by themselves.
    pub(crate) fn releases_by_itself(&self, tenant: &'static str) {
        self.lock().items.auto_release.insert(tenant);
    }
}
