//! Judges what a receiver's ledger holds against what was published. Shares no code with the product, and never asks it.

use std::collections::{BTreeMap, HashMap, HashSet};

/// An event that somebody tried to publish.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: String,
    pub lane: String,
    pub body: Vec<u8>,
    /// The publisher, and the number among its own in that lane: one after the other, each after the answer to the one
    /// before.
    pub publisher: (u64, u64),
    /// The position that the answer told; none where there never was one.
    pub seq: Option<u64>,
}

/// A delivery, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Came {
    pub id: String,
    pub lane: String,
    pub seq: u64,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// An event that was acknowledged to its publisher is delivered.
    Lost,
    /// A delivered event was published, to that lane, with those bytes.
    Invented,
    /// First sights in a lane are its positions in order, without a gap.
    Order,
    /// One event has one position, and it is the one that was told.
    Position,
    /// A publisher's events keep its own order.
    OwnOrder,
}

pub type Breach = (Rule, String);

/// Every breach that the ledger shows, deduplicated as an executor would do it: by the first sight of an id.
pub fn check(sent: &[Sent], came: &[Came]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let known: HashMap<&str, &Sent> = sent.iter().map(|sent| (sent.id.as_str(), sent)).collect();
    let mut first: HashMap<&str, &Came> = HashMap::new();
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    for came in came {
        match known.get(came.id.as_str()) {
            None => breaches.push((Rule::Invented, format!("{} was never published", came.id))),
            Some(sent) if sent.lane != came.lane || sent.body != came.body => {
                breaches.push((Rule::Invented, format!("{} came as something else, over {}", came.id, came.lane)));
            }
            Some(Sent { seq: Some(told), .. }) if *told != came.seq => {
                breaches.push((Rule::Position, format!("{} came as {}, and {told} was told", came.id, came.seq)));
            }
            Some(_) => {}
        }
        if let Some(earlier) = first.get(came.id.as_str()) {
            if earlier.seq != came.seq {
                breaches.push((Rule::Position, format!("{} came as {} and {}", came.id, earlier.seq, came.seq)));
            }
            continue;
        }
        first.insert(&came.id, came);
        let expected = next.entry(&came.lane).or_insert(1);
        if came.seq != *expected {
            breaches.push((Rule::Order, format!("{}: {} came where {expected} was due", came.lane, came.seq)));
        }
        *expected = came.seq + 1;
    }
    let lost = sent.iter().filter(|sent| sent.seq.is_some() && !first.contains_key(sent.id.as_str()));
    breaches.extend(lost.map(|sent| (Rule::Lost, format!("{} of {} never came", sent.id, sent.lane))));
    breaches.extend(own_order(sent));
    breaches
}

fn own_order(sent: &[Sent]) -> Vec<Breach> {
    let mut told: BTreeMap<(&str, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for sent in sent {
        if let Some(seq) = sent.seq {
            told.entry((&sent.lane, sent.publisher.0)).or_default().push((sent.publisher.1, seq));
        }
    }
    let mut breaches = Vec::new();
    for ((lane, publisher), mut own) in told {
        own.sort_unstable();
        if let Some(pair) = own.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            breaches.push((Rule::OwnOrder, format!("{lane}: publisher {publisher} was told {pair:?}")));
        }
    }
    let mut positions = HashSet::new();
    let twice =
        sent.iter().filter_map(|sent| sent.seq.map(|seq| (&sent.lane, seq))).filter(|at| !positions.insert(*at));
    breaches.extend(twice.map(|at| (Rule::Position, format!("{at:?} was told to two"))));
    breaches
}

mod teeth {
    use super::{Came, Rule, Sent, check};

    // Two publishers, two lanes, five events each lane; all came, one of them twice.
    fn honest() -> (Vec<Sent>, Vec<Came>) {
        let mut sent = Vec::new();
        let mut came = Vec::new();
        for lane in ["A", "B"] {
            for n in 1..=5_u64 {
                let (id, body) = (format!("{lane}{n}"), vec![n as u8]);
                let lane = lane.to_owned();
                came.push(Came { id: id.clone(), lane: lane.clone(), seq: n, body: body.clone() });
                sent.push(Sent { id, lane, body, publisher: (n % 2, n), seq: Some(n) });
            }
        }
        came.insert(2, came[1].clone());
        (sent, came)
    }

    fn rules(sent: &[Sent], came: &[Came]) -> Vec<Rule> {
        let mut rules: Vec<Rule> = check(sent, came).into_iter().map(|(rule, _)| rule).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    #[test]
    fn an_honest_ledger_has_no_breach_and_unheard_publications_may_be_in_it_or_not() {
        let (mut sent, mut came) = honest();
        assert_eq!(check(&sent, &came), []);
        let unheard = Sent { id: "A6".into(), lane: "A".into(), body: vec![6], publisher: (0, 6), seq: None };
        sent.push(unheard);
        assert_eq!(check(&sent, &came), []);
        came.push(Came { id: "A6".into(), lane: "A".into(), seq: 6, body: vec![6] });
        assert_eq!(check(&sent, &came), []);
    }

    #[test]
    fn a_lost_event_is_caught_at_the_end_of_a_lane_too() {
        let (sent, mut came) = honest();
        came.retain(|came| came.id != "B5");
        assert_eq!(rules(&sent, &came), [Rule::Lost]);
        came.retain(|came| came.id != "A3");
        assert_eq!(rules(&sent, &came), [Rule::Lost, Rule::Order]);
    }

    #[test]
    fn a_reordered_event_is_caught() {
        let (sent, mut came) = honest();
        came.swap(3, 4);
        assert_eq!(rules(&sent, &came), [Rule::Order]);
    }

    #[test]
    fn an_event_that_nobody_published_or_that_changed_on_its_way_is_caught() {
        let (sent, mut came) = honest();
        came.push(Came { id: "A6".into(), lane: "A".into(), seq: 6, body: vec![6] });
        assert_eq!(rules(&sent, &came), [Rule::Invented]);
        let (sent, mut came) = honest();
        came[0].body.push(0);
        assert_eq!(rules(&sent, &came), [Rule::Invented]);
        let (sent, mut came) = honest();
        let strayed = came.len() - 1;
        came[strayed].lane = "A".to_owned();
        came[strayed].seq = 6;
        assert!(rules(&sent, &came).contains(&Rule::Invented));
    }

    #[test]
    fn an_event_with_two_positions_is_caught() {
        let (sent, mut came) = honest();
        came[2].seq = 9;
        assert_eq!(rules(&sent, &came), [Rule::Position]);
        let (mut sent, came) = honest();
        sent[1].seq = Some(1);
        assert!(rules(&sent, &came).contains(&Rule::Position));
    }

    #[test]
    fn a_publisher_whose_events_changed_places_is_caught() {
        let (mut sent, came) = honest();
        sent[0].publisher.1 = 4;
        assert_eq!(rules(&sent, &came), [Rule::OwnOrder]);
    }
}
