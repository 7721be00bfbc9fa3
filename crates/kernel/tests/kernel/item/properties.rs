//! Any commands about items that refer to each other, in any order and interleaving, against the model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::world::cases,
    model::{Name, Version},
    play::{Asked, Asks, NAMES, Play, Timing},
};

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Forget,
    Group(Timing, Vec<Asked>),
    Begin(usize),
    GoOn(usize),
}

fn timings() -> impl Strategy<Value = Timing> {
    prop_oneof![Just(Timing::OneByOne), Just(Timing::SameRows), Just(Timing::OneCommit)]
}

fn names() -> impl Strategy<Value = Name> {
    0..NAMES.len()
}

fn versions() -> impl Strategy<Value = Option<Version>> {
    prop_oneof![
        12 => (1..5u8).prop_map(|number| Some(Version::Number(number))),
        2 => Just(None),
        1 => (1..3u8).prop_map(|word| Some(Version::Word(word))),
    ]
}

fn any_asks() -> impl Strategy<Value = Asks> {
    let needs = proptest::collection::vec(names(), 0..4);
    prop_oneof![
        8 => (names(), versions(), 0..2u8, needs).prop_map(|(name, version, variant, needs)| Asks::Put(name, version, variant, needs)),
        3 => (names(), 0..3u8).prop_map(|(name, how)| Asks::Retire(name, how)),
        2 => (0..6usize).prop_map(Asks::Release),
        1 => Just(Asks::Refuse),
    ]
}

fn groups(asks: BoxedStrategy<Asks>, requests: u8) -> impl Strategy<Value = Step> {
    let request = prop_oneof![3 => Just(None), 1 => (0..requests).prop_map(Some)];
    let asked = (request, proptest::collection::vec(asks, 1..4));
    let asked = asked.prop_map(|(request, changes)| Asked { request, changes });
    (timings(), proptest::collection::vec(asked, 1..4)).prop_map(|(timing, group)| Step::Group(timing, group))
}

fn steps(asks: BoxedStrategy<Asks>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => groups(asks, 20),
        1 => (0..3u64).prop_map(Step::Pass),
        3 => (0..3usize).prop_map(Step::Begin),
        8 => (0..3usize).prop_map(Step::GoOn),
    ];
    proptest::collection::vec(prop_oneof![40 => step, 1 => Just(Step::Forget)], 1..50)
}

fn play(auto_release: bool, steps: &[Step]) -> Play {
    let mut play = Play::new(auto_release);
    for step in steps {
        match step {
            Step::Pass(span_ms) => play.world().pass(*span_ms),
            Step::Forget => play.forget(),
            Step::Group(timing, group) => play.group(*timing, group),
            Step::Begin(nth) => play.begin(*nth),
            Step::GoOn(nth) => play.go_on(*nth),
        }
    }
    play.settle_all();
    play
}

/// Every version that was sent of each item.
fn sent(steps: &[Step]) -> BTreeMap<Name, BTreeSet<Version>> {
    let mut sent: BTreeMap<Name, BTreeSet<Version>> = BTreeMap::new();
    let groups = steps.iter().filter_map(|step| if let Step::Group(_, group) = step { Some(group) } else { None });
    for asks in groups.flatten().flat_map(|asked| &asked.changes) {
        if let Asks::Put(name, Some(version), ..) = asks {
            sent.entry(*name).or_default().insert(*version);
        }
    }
    sent
}

/// Versioned items, of which each version has one content. No request: one that repeats another's id would not be decided.
fn versioned(needs: impl Fn(Name, u8) -> Vec<Name> + 'static) -> impl Strategy<Value = Vec<Step>> {
    let needs = std::rc::Rc::new(needs);
    let put = (names(), 1..5u8)
        .prop_map(move |(name, version)| Asks::Put(name, Some(Version::Number(version)), 0, needs(name, version)));
    steps(put.boxed()).prop_map(|steps| {
        let alone = |mut asked: Asked| {
            asked.request = None;
            asked
        };
        let steps = steps.into_iter().map(|step| match step {
            Step::Group(timing, group) => Step::Group(timing, group.into_iter().map(alone).collect()),
            other => other,
        });
        steps.collect()
    })
}

/// The items that each item needs, at any version.
fn fixed_needs() -> impl Strategy<Value = Vec<Vec<Name>>> {
    proptest::collection::vec(proptest::collection::vec(names(), 0..3), NAMES.len())
}

/// The same for each version.
fn needs_by_version() -> impl Strategy<Value = Vec<Vec<Vec<Name>>>> {
    proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(names(), 0..3), 5), NAMES.len())
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_interleaving_of_commands_is_answered_as_the_model_does(auto_release: bool, steps in steps(any_asks().boxed())) {
        let play = play(auto_release, &steps);
        if auto_release {
            for (name, known) in &play.model.items {
                let missing = known.stay.as_ref().map(|stay| &stay.missing);
                let waits = missing.is_none_or(|missing| missing.iter().any(|missing| !play.model.active(*missing)));
                prop_assert!(waits, "{} waits for nothing", NAMES[*name]);
            }
        }
    }

    #[test]
    fn versioned_items_end_as_their_highest_versions_say_in_any_order(
        (needs, steps) in fixed_needs().prop_flat_map(|needs| {
            let own = needs.clone();
            (Just(needs), versioned(move |name, _| own[name].clone()))
        })
    ) {
        let play = play(true, &steps);
        let sent = sent(&steps);
        // An item is active once all that it needs is.
        let mut active: BTreeSet<Name> = BTreeSet::new();
        while let Some(next) = sent.keys().find(|name| !active.contains(name) && needs[**name].iter().all(|needed| active.contains(needed))) {
            active.insert(*next);
        }
        for (name, versions) in &sent {
            let (known, highest) = (&play.model.items[name], versions.last().copied());
            let current = known.accepted.last().and_then(|sent| sent.version);
            let waiting = known.stay.as_ref().and_then(|stay| stay.sent.version);
            let expected = if active.contains(name) { (highest, None) } else { (None, highest) };
            prop_assert_eq!((current, waiting), expected, "{} among {:?}", NAMES[*name], &active);
            let missing: BTreeSet<Name> = needs[*name].iter().copied().filter(|needed| !active.contains(needed)).collect();
            let listed = known.stay.as_ref().map(|stay| stay.missing.iter().copied().collect()).unwrap_or_default();
            prop_assert_eq!(missing, listed);
        }
    }

    #[test]
    fn highest_version_is_present_or_waits_when_needs_differ_by_version(
        steps in needs_by_version().prop_flat_map(|needs| versioned(move |name, version| needs[name][usize::from(version)].clone()))
    ) {
        let play = play(true, &steps);
        for (name, versions) in sent(&steps) {
            let known = &play.model.items[&name];
            let current = known.accepted.last().and_then(|sent| sent.version);
            let waiting = known.stay.as_ref().and_then(|stay| stay.sent.version);
            prop_assert_eq!(current.max(waiting), versions.last().copied());
        }
    }
}
