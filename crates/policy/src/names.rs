//! Guesses from a key field's name the kind of its values: a time, a bucketed time, a random value, or none of these.
//! Never certain: it reads names alone, so a scope can overrule it with a reason.
//! Called by `check`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looks {
    /// Nothing to remark.
    Fine,
    /// A moment: differs on every try.
    Time,
    /// A moment rounded: differs when a retry crosses the boundary.
    Bucket,
    /// Made anew on every try.
    Random,
}

/// Words that are a moment wherever they stand.
const TIME: [&str; 11] =
    ["timestamp", "ts", "datetime", "now", "epoch", "millis", "time", "clock", "unixtime", "timestampms", "iat"];
/// Words before `at` or `on` in the name of a moment; needed only where both are written as one word.
const PARTICIPLES: [&str; 18] = [
    "created",
    "updated",
    "sent",
    "received",
    "requested",
    "occurred",
    "modified",
    "changed",
    "published",
    "processed",
    "submitted",
    "started",
    "ended",
    "finished",
    "completed",
    "queued",
    "fired",
    "emitted",
];
/// Words that round a moment.
const BUCKET: [&str; 11] =
    ["bucket", "slot", "window", "minute", "hour", "day", "date", "week", "month", "quarter", "year"];
/// Words that end the name of something lasting, whatever comes before.
const LASTING: [&str; 14] =
    ["id", "ids", "urn", "uri", "key", "ref", "code", "no", "number", "seq", "hash", "version", "name", "type"];
/// Words that are random wherever they stand.
const RANDOM: [&str; 8] = ["nonce", "random", "rand", "rnd", "salt", "jitter", "entropy", "rng"];
/// Forms of random ids: as a whole name they say nothing of whose.
const BARE_ID: [&str; 5] = ["uuid", "guid", "ulid", "cuid", "nanoid"];
/// Things that are new with every try, so that their ids are too.
const PER_TRY: [&str; 8] = ["request", "req", "trace", "span", "attempt", "attempts", "retry", "retries"];

/// Judges a name.
pub fn look(name: &str) -> Looks {
    let words = words(name);
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return Looks::Fine };
    let last = last.as_str();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));

    if has(&RANDOM) || (words.len() == 1 && BARE_ID.contains(&last)) || per_try(&words) {
        return Looks::Random;
    }
    if LASTING.contains(&last) {
        return Looks::Fine;
    }
    let zone = words.windows(2).any(|pair| pair[0] == "time" && pair[1] == "zone");
    let moment = (has(&TIME) && !zone)
        || (words.len() > 1 && (last == "at" || (last == "on" && PARTICIPLES.contains(&first.as_str()))))
        || words.iter().any(|word| joined_moment(word))
        || words.windows(2).any(|pair| PARTICIPLES.contains(&pair[0].as_str()) && pair[1] == "at");
    let rounded = match last {
        // `dateTime` ends in no bucket; `requestedAtBucket` and `flight_date` do.
        last if BUCKET.contains(&last) => true,
        _ => moment && has(&BUCKET[..3]),
    };
    match (moment, rounded) {
        (_, true) => Looks::Bucket,
        (true, false) => Looks::Time,
        (false, false) => Looks::Fine,
    }
}

/// `request_id`, `attempt`, `retry_count`: the try, not the thing that is tried.
fn per_try(words: &[String]) -> bool {
    const COUNTS: [&str; 8] = ["id", "uuid", "guid", "no", "number", "count", "seq", "token"];
    match words {
        [.., thing, what] if PER_TRY.contains(&thing.as_str()) && COUNTS.contains(&what.as_str()) => true,
        [only] => {
            let counted =
                PER_TRY.iter().any(|thing| only.strip_prefix(thing).is_some_and(|rest| COUNTS.contains(&rest)));
            counted || ["attempt", "attempts", "retry", "retries", "traceparent"].contains(&only.as_str())
        }
        _ => false,
    }
}

/// `createdat`, `senton`: written as one word.
fn joined_moment(word: &str) -> bool {
    let stem = word.strip_suffix("at").or_else(|| word.strip_suffix("on"));
    stem.is_some_and(|stem| PARTICIPLES.contains(&stem))
}

/// The words of a name, in lower case: `requestedAtBucket`, `requested_at_bucket`, `RequestedAt-Bucket`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut open, mut before) = (false, ' ');
    let chars: Vec<char> = name.chars().collect();
    for (index, c) in chars.iter().copied().enumerate() {
        if !c.is_alphanumeric() {
            open = false;
        } else {
            // `HTTPTime` is two words: a capital opens one after a small letter, or before one.
            let small_follows = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
            let opens = c.is_uppercase() && (!before.is_uppercase() || small_follows);
            if !open || opens {
                words.push(String::new());
                open = true;
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_into_words() {
        for (name, expected) in [
            ("requestedAtBucket", vec!["requested", "at", "bucket"]),
            ("requested_at-bucket", vec!["requested", "at", "bucket"]),
            ("HTTPTime", vec!["http", "time"]),
            ("INDEX_HASH", vec!["index", "hash"]),
            ("caseUrn", vec!["case", "urn"]),
            ("__", vec![]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn moments_look_like_times() {
        for name in [
            "timestamp",
            "ts",
            "now",
            "time",
            "created_at",
            "createdAt",
            "createdat",
            "sent_at",
            "sentAt",
            "eventTime",
            "event_timestamp",
            "dateTime",
            "datetime",
            "epoch",
            "epochMillis",
            "created_on",
            "X-Sent-At",
            "requestedAtMs",
        ] {
            assert_eq!(look(name), Looks::Time, "{name}");
        }
    }

    #[test]
    fn rounded_moments_look_like_buckets() {
        for name in
            ["requestedAtBucket", "time_bucket", "timeSlot", "flight_date", "stayDate", "day", "hour", "createdHour"]
        {
            assert_eq!(look(name), Looks::Bucket, "{name}");
        }
    }

    #[test]
    fn a_value_made_anew_by_each_try_looks_random() {
        for name in [
            "nonce",
            "random",
            "randomId",
            "salt",
            "uuid",
            "guid",
            "ulid",
            "request_id",
            "requestId",
            "X-Request-Id",
            "requestid",
            "trace_id",
            "traceparent",
            "span_id",
            "attempt",
            "attempt_no",
            "retryCount",
            "request_uuid",
        ] {
            assert_eq!(look(name), Looks::Random, "{name}");
        }
    }

    #[test]
    fn ids_made_by_the_sender_are_fine() {
        for name in [
            "externalEventId",
            "event_id",
            "idempotency_key",
            "caseUrn",
            "correlation_id",
            "order_uuid",
            "waveSeq",
            "runSeq",
            "dedupe_id",
            "message_key",
            "content_hash",
            "index_hash",
            "event_version",
            "revision",
            "action",
            "channel",
            "type",
            "partition",
            "timeZone",
            "time_slot_id",
            "demandRequestUrn",
            "itemUrn",
            "method",
            "path",
            "provider",
            "topic",
            "source_id",
            "groupId",
            "format",
            "location",
            "flat",
            "station",
            "grandTotal",
            "update",
        ] {
            assert_eq!(look(name), Looks::Fine, "{name}");
        }
    }
}
