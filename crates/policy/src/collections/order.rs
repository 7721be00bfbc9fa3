//! Decides the order in which collections are loaded: those that are referred to come before those that refer to them.
//! Never follows a reference of a collection to itself: its items can come in any order, since quarantine holds the early ones.
//! Called when collections are read, and by the lint on circles.

use super::read::{ParsedCollection, ParsedReference};

/// References that lead from a collection back to it.
pub struct Cycle<'p, 'a> {
    /// Each collection with its reference to the next; the last one's leads to the first.
    pub steps: Vec<(&'p ParsedCollection<'a>, &'p ParsedReference<'a>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    No,
    /// Its references are being followed.
    Open,
    Done,
}

/// The indexes of all collections in load order, otherwise in the order of the policy; and each circle that was met.
pub fn load_order<'p, 'a>(collections: &'p [ParsedCollection<'a>]) -> (Vec<usize>, Vec<Cycle<'p, 'a>>) {
    let mut walk = Walk {
        collections,
        seen: vec![Seen::No; collections.len()],
        path: Vec::new(),
        order: Vec::new(),
        cycles: Vec::new(),
    };
    (0..collections.len()).for_each(|index| walk.visit(index));
    (walk.order, walk.cycles)
}

struct Walk<'p, 'a> {
    collections: &'p [ParsedCollection<'a>],
    seen: Vec<Seen>,
    /// The references that lead to the collection at hand, each with the index of the collection that makes it.
    path: Vec<(usize, &'p ParsedReference<'a>)>,
    order: Vec<usize>,
    cycles: Vec<Cycle<'p, 'a>>,
}

impl Walk<'_, '_> {
    // As deep as the longest chain of references: policies have tens of collections.
    fn visit(&mut self, index: usize) {
        if self.seen[index] != Seen::No {
            return;
        }
        self.seen[index] = Seen::Open;
        for reference in &self.collections[index].references {
            let to = self.collections.iter().position(|other| other.name == &*reference.reference.to);
            let Some(to) = to.filter(|to| *to != index) else { continue };
            self.path.push((index, reference));
            if self.seen[to] == Seen::Open {
                let from = self.path.iter().position(|(from, _)| *from == to).unwrap_or(0);
                let steps = self.path[from..].iter();
                let steps = steps.map(|(from, reference)| (&self.collections[*from], *reference)).collect();
                self.cycles.push(Cycle { steps });
            }
            self.visit(to);
            self.path.pop();
        }
        self.seen[index] = Seen::Done;
        self.order.push(index);
    }
}
