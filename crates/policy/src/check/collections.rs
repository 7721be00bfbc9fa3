//! Lints collections: against each other, and each schema alone.
//! Never judges the form of a schema: its reader has refused one that cannot be compiled.
//! Called by `check`.

use super::{Lints, Understood, near, schema};
use crate::collections::{Cycle, load_order};

/// Runs every lint on collections.
pub fn lint(lints: &mut Lints<'_>, understood: &Understood<'_>) {
    let collections = understood.collections;
    let names: Vec<String> = collections.iter().map(|read| read.name.to_owned()).collect();
    for read in collections {
        for reference in &read.references {
            let to = &*reference.reference.to;
            if !names.iter().any(|name| name == to) {
                let message =
                    format!("{} of {} refers to `{to}`, which is no collection", reference.reference.at, read.name);
                lints.error(reference.to_mark, "unknown-collection", message, near(to, &names));
            }
        }
        if let Some(node) = read.schema {
            schema::lint(lints, node);
        }
    }
    load_order(collections).1.iter().for_each(|cycle| circle(lints, cycle));
}

fn circle(lints: &mut Lints<'_>, cycle: &Cycle<'_, '_>) {
    // A circle through built-in collections was closed by the user's own file: that is where it can be opened.
    let Some((_, reference)) = cycle.steps.iter().max_by_key(|(_, read)| read.to_mark.source.layer) else { return };
    let mut names: Vec<&str> = cycle.steps.iter().map(|(from, _)| from.name).collect();
    names.extend(names.first().copied());
    let message = format!("{}: these refer to each other in a circle, so none can be loaded first", names.join(" -> "));
    lints.error(reference.to_mark, "collection-cycle", message, "remove one of these references");
}
