//! Dead letters that a person copies back to their topic: which tenant's they are, and which message they are to each
//! consumer.
//! Never asks the fences. Used by `record` for every record that comes, and by `letters` for every one that dies.

use fencepost::queue;
use rdkafka::message::{Header, Headers, OwnedHeaders};

pub(super) const REASON: &str = "fencepost-dead-reason";
pub(super) const DETAIL: &str = "fencepost-dead-detail";
pub(super) const TENANT: &str = "fencepost-tenant";
pub(super) const TOPIC: &str = "fencepost-topic";
pub(super) const PARTITION: &str = "fencepost-partition";
pub(super) const OFFSET: &str = "fencepost-offset";
/// Where the message was in that partition before it was ever a letter.
pub(super) const FIRST_OFFSET: &str = "fencepost-first-offset";
pub(super) const ATTEMPTS: &str = "fencepost-attempts";
pub(super) const KEY: &str = "idempotency-key";

/// Headers of a letter beside its key, which a producer may have set, too.
const OURS: [&str; 8] = [REASON, DETAIL, TENANT, TOPIC, PARTITION, OFFSET, FIRST_OFFSET, ATTEMPTS];

/// Where a record is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
}

/// The dedupe id of a record whose producer said `said`.
/// To the consumer that buried it, a letter that comes back is a new message, once: under its old name it would be
/// taken for the dead one. To every other consumer it is the message that it has had.
pub(super) fn dedupe_id(said: Option<&[u8]>, headers: Option<&OwnedHeaders>, place: Place<'_>, tenant: &str) -> String {
    match redriven(headers, tenant) {
        Some(redriven) => queue::dedupe_id(Some(&redriven), place.offset),
        None => queue::dedupe_id(said, first_offset(headers, place)),
    }
}

fn redriven(headers: Option<&OwnedHeaders>, tenant: &str) -> Option<Vec<u8>> {
    last(headers, REASON)?;
    last(headers, TENANT).filter(|whose| *whose == tenant.as_bytes())?;
    let place: Option<Vec<&[u8]>> = [TOPIC, PARTITION, OFFSET].into_iter().map(|name| last(headers, name)).collect();
    Some([b"redrive:", &place?.join(&b'/')[..]].concat())
}

/// Where the message of a record was first: for a letter that came back to its own partition, where it was before.
pub(super) fn first_offset(headers: Option<&OwnedHeaders>, place: Place<'_>) -> i64 {
    let earlier = || {
        last(headers, REASON)?;
        last(headers, TOPIC).filter(|topic| *topic == place.topic.as_bytes())?;
        last(headers, PARTITION).filter(|partition| *partition == place.partition.to_string().as_bytes())?;
        let offset = last(headers, FIRST_OFFSET).or_else(|| last(headers, OFFSET))?;
        std::str::from_utf8(offset).ok()?.parse().ok()
    };
    earlier().unwrap_or(place.offset)
}

// A producer may use the same names: the letter's own headers come after those.
fn last<'a>(headers: Option<&'a OwnedHeaders>, name: &str) -> Option<&'a [u8]> {
    headers?.iter().filter(|header| header.key.eq_ignore_ascii_case(name)).last()?.value
}

/// The headers of a record without those of an earlier death.
pub(super) fn before_death(headers: Option<&OwnedHeaders>) -> OwnedHeaders {
    let Some(headers) = headers else { return OwnedHeaders::new() };
    if last(Some(headers), REASON).is_none() {
        return headers.clone();
    }
    let is = |header: &Header<'_, &[u8]>, name: &str| header.key.eq_ignore_ascii_case(name);
    // The last key is the letter's; one before it is the producer's own.
    let key = headers.iter().enumerate().filter(|(_, header)| is(header, KEY)).last().map(|(at, _)| at);
    let kept =
        headers.iter().enumerate().filter(|(at, header)| Some(*at) != key && !OURS.iter().any(|name| is(header, name)));
    kept.fold(OwnedHeaders::new(), |kept, (_, header)| kept.insert(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place { topic: "orders", partition: 3, offset: 55 };

    fn headers(all: &[(&str, &str)]) -> OwnedHeaders {
        all.iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(*value) }))
    }

    fn letter(more: &[(&str, &str)]) -> OwnedHeaders {
        let own =
            [(REASON, "permanent"), (TENANT, "queue:billing"), (TOPIC, "orders"), (PARTITION, "3"), (OFFSET, "41")];
        headers(&[&[(OFFSET, "the producer's")][..], &own, more].concat())
    }

    #[test]
    fn a_letter_that_comes_back_is_a_new_message_to_who_buried_it_and_to_nobody_else() {
        let id = |said: Option<&str>, headers: &OwnedHeaders, tenant| {
            dedupe_id(said.map(str::as_bytes), Some(headers), HERE, tenant)
        };
        let (plain, letter, again) = (headers(&[]), letter(&[]), letter(&[(FIRST_OFFSET, "7")]));
        for (said, headers, tenant, expected) in [
            (None, &plain, "queue:billing", "offset:55"),
            (Some("d-1"), &plain, "queue:billing", "d-1"),
            (None, &letter, "queue:billing", "redrive:orders/3/41"),
            (Some("d-1"), &letter, "queue:billing", "redrive:orders/3/41"),
            (None, &letter, "queue:mail", "offset:41"),
            (Some("d-1"), &letter, "queue:mail", "d-1"),
            (None, &again, "queue:billing", "redrive:orders/3/41"),
            (None, &again, "queue:mail", "offset:7"),
        ] {
            assert_eq!(id(said, headers, tenant), expected);
        }
    }

    #[test]
    fn only_a_letter_of_this_very_partition_says_where_its_message_was() {
        let letter = letter(&[]);
        assert_eq!(first_offset(Some(&letter), HERE), 41);
        assert_eq!(first_offset(Some(&letter), Place { partition: 4, ..HERE }), 55);
        assert_eq!(first_offset(Some(&letter), Place { topic: "refunds", ..HERE }), 55);
        assert_eq!(first_offset(Some(&headers(&[(TOPIC, "orders"), (PARTITION, "3"), (OFFSET, "41")])), HERE), 55);
        assert_eq!(first_offset(None, HERE), 55);
    }

    #[test]
    fn headers_of_an_earlier_death_go_and_all_others_stay() {
        let names = |headers: OwnedHeaders| -> Vec<String> {
            let text = |one: Header<'_, &[u8]>| {
                format!("{}={}", one.key, String::from_utf8_lossy(one.value.unwrap_or_default()))
            };
            headers.iter().map(text).collect()
        };
        let own = [("a", "1"), (KEY, "the producer's"), ("fencepost-lane", "l"), ("a", "2")];
        let kept = ["a=1", "idempotency-key=the producer's", "fencepost-lane=l", "a=2"];
        assert_eq!(names(before_death(Some(&headers(&own)))), kept);
        let dead: Vec<(&str, &str)> = OURS.into_iter().chain([KEY]).map(|name| (name, "of the letter")).collect();
        assert_eq!(names(before_death(Some(&headers(&[&own[..], &dead].concat())))), kept);
        assert!(names(before_death(None)).is_empty());
    }
}
