//! Reads of an item by its partner: everything that was acknowledged before, nothing that was never there, and never less than
//! was read before.

use super::{Asked, Book, full_name};
use crate::{
    auditor::Violation,
    history::items::{ItemAnswer, ItemAsk, ShownItem},
};

pub(super) fn judge(book: &Book<'_>, found: &mut Vec<Violation>) {
    let reads: Vec<(Asked<'_>, String, Option<&ShownItem>)> = book
        .asked
        .iter()
        .filter_map(|asked| match (&asked.op.ask, asked.answer) {
            (ItemAsk::Read { name }, Some(ItemAnswer::Shown(shown))) => {
                Some((*asked, full_name(asked.op.tenant, name), shown.as_ref()))
            }
            _ => None,
        })
        .collect();
    for (asked, name, shown) in &reads {
        let seq = shown.map_or(0, |shown| shown.seq);
        let earlier = reads.iter().find(|(other, known, earlier)| {
            known == name && other.over < asked.from && earlier.is_some_and(|earlier| earlier.seq > seq)
        });
        if let Some((earlier, ..)) = earlier {
            found.push(asked.report("item-read", format_args!("I{} was shown more", earlier.number)));
        }
        if shown.is_some_and(|shown| (1..=seq).any(|number| !shown.versions.contains_key(&number))) {
            found.push(asked.report("item-history", "a version is left out"));
        }
        if book.left.is_some() {
            against_the_end(book, *asked, name, *shown, found);
        }
    }
}

fn against_the_end(
    book: &Book<'_>,
    asked: Asked<'_>,
    name: &str,
    shown: Option<&ShownItem>,
    found: &mut Vec<Violation>,
) {
    let life = book.lives.get(name);
    let accepted = || life.into_iter().flat_map(|life| &life.events).filter(|event| event.active);
    let (seq, versions) = shown.map_or((0, None), |shown| (shown.seq, Some(&shown.versions)));
    let known = accepted().filter(|event| event.hi < asked.from).count() as u64;
    let possible = accepted().filter(|event| event.lo <= asked.over).count() as u64;
    if !(known..=possible).contains(&seq) {
        found.push(asked.report("item-read", format_args!("{known} to {possible} versions were accepted")));
    }
    for (number, version) in versions.into_iter().flatten() {
        let same = life.and_then(|life| life.item.versions.get(number)).is_some_and(|kept| {
            (&kept.content, &kept.id, kept.version) == (&version.content, &version.id, version.version)
                && (version.retired.is_none() || version.retired == kept.retired)
        });
        if !same {
            found.push(asked.report("item-history", format_args!("{number} is another one at the end")));
        }
    }
}
