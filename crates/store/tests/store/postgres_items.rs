//! Items as people find them in PostgreSQL: views with columns, content that `jsonb` would refuse, look-ups by the primary key.

use std::sync::Arc;

use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    item::{
        Accepted, Arrival, Item, ItemId, ItemVersion, Missing, Quarantined, Record, Replaced, Retired, Retirement,
        Sent, StayEnd, StayOutcome, Waiting,
    },
    row::CommitId,
};
use fencepost_store::{Store, Verdict::Applied, WriteSet, postgres::Postgres};
use futures::executor::block_on;

use super::postgres_rig::{NOW, Rig};

// `jsonb` refuses NUL, and a number with a large exponent. An escaped backslash before `u0000` is no NUL.
const ODD: &str = r#"{"id":"A-1","note":"a\u0000b \\u0000 \\\u0000","mass":1e999999,"y":"ü"}"#;

fn sent(at: u64) -> Sent {
    Sent { at: Millis(NOW + at), by: "acme-erp".into(), correlation_id: "C-1".into() }
}

fn accepted(version: Option<ItemVersion>, content: &str, at: u64) -> Accepted {
    Accepted { version, content: content.to_owned().into(), from: sent(at), retired: None }
}

fn item(source_id: &str) -> Item {
    Item::new(Tenant::new("acme"), "articles".into(), source_id.to_owned())
}

fn id(source_id: &str) -> ItemId {
    item(source_id).id()
}

fn put(key: RowKey, record: Record) -> Write {
    Write { key, expect: None, put: Some(record.into()) }
}

fn commit(store: &Arc<Postgres>, number: u64, writes: Vec<Write>) {
    let set = WriteSet::new(CommitId(number), writes);
    assert_eq!(block_on(store.commit(&[set], Millis(NOW))).unwrap(), [Applied]);
}

fn rows() -> Vec<Write> {
    let present = |source_id: &str, current: Accepted| {
        let item = Item { current: Some(current), seq: 2, ..item(source_id) };
        put(RowKey::item(item.id()), Record::Item(item.into()))
    };
    let retired = Some(Retired { cause: Retirement::Cancelled, from: sent(9) });
    let wanted = Item { wanted: true, ..item("A-3") };
    let replaced = Replaced {
        tenant: Tenant::new("acme"),
        collection: "articles".into(),
        source_id: "A-1".to_owned(),
        accepted: accepted(ItemVersion::dotted("1.9"), "{\"id\":\"A-1\"}", 1),
        replaced_at: Millis(NOW + 1_500),
    };
    let missing = Missing { collection: "units".into(), source_id: "EA".to_owned(), reason: "UNKNOWN_UNIT".into() };
    let open = Quarantined {
        tenant: Tenant::new("acme"),
        collection: "articles".into(),
        source_id: "A-4".to_owned(),
        number: NOW,
        version: Some(ItemVersion::Integer(1 << 100)),
        content: ODD.into(),
        from: sent(7),
        opened: Millis(NOW + 7_000),
        unresolved: vec![missing],
        resolved: None,
    };
    let how = StayOutcome::Withdrawn;
    let resolved = Some(StayEnd { how, from: sent(8_000), expires: Millis(u64::MAX) });
    let ended = Quarantined { source_id: "A-5".to_owned(), resolved, ..open.clone() };
    let waiting = Waiting { tenant: Tenant::new("acme"), missing: id("A-3"), item: id("A-4") };
    let arrival = Arrival {
        tenant: Tenant::new("acme"),
        collection: "articles".into(),
        source_id: "A-1".to_owned(),
        at: Millis(NOW),
    };
    vec![
        present("A-1", accepted(ItemVersion::dotted("1.10"), ODD, 1_500)),
        present("A-2", Accepted { retired, ..accepted(None, "[]", 2) }),
        put(RowKey::item(id("A-3")), Record::Item(wanted.into())),
        put(RowKey::item_version(id("A-1"), 1), Record::Replaced(replaced.into())),
        put(RowKey::quarantine(id("A-4")), Record::Quarantined(open.into())),
        put(RowKey::quarantine(id("A-5")), Record::Quarantined(ended.into())),
        put(RowKey::waiting(id("A-3"), id("A-4")), Record::Waiting(waiting.into())),
        put(RowKey::arrival(id("A-1")), Record::Arrival(arrival.into())),
    ]
}

#[test]
fn items_and_what_is_in_quarantine_can_be_asked_for_in_sql() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let writes = rows();
    commit(&store, 1, writes.clone());
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let seconds = |column: &str| format!("extract(epoch FROM {column})::numeric(20, 3) - {}", NOW / 1_000);

    let items = format!(
        "SELECT tenant, collection, source_id, version, status, internal_id, {}, accepted_by, correlation_id
         FROM fencepost_items ORDER BY source_id",
        seconds("accepted_at")
    );
    let [one, two] = ["A-1", "A-2"].map(|source_id| id(source_id).internal());
    let wanted = [
        format!("acme|articles|A-1|1.10|ACTIVE|{one}|1.500|acme-erp|C-1"),
        format!("acme|articles|A-2||CANCELLED|{two}|0.002|acme-erp|C-1"),
    ];
    assert_eq!(ask(&items), wanted.join("\n"));

    let versions = format!(
        "SELECT source_id, seq, version, internal_id, {}, {}, item ->> 'id' FROM fencepost_item_versions",
        seconds("accepted_at"),
        seconds("replaced_at")
    );
    assert_eq!(ask(&versions), format!("A-1|1|1.9|{one}|0.001|1.500|A-1"));

    let quarantine = format!(
        "SELECT source_id, version, status, resolution, unresolved -> 0 ->> 'entity_kind', unresolved -> 0 ->> 'source_id',
            unresolved -> 0 ->> 'reason_code', {}, {}, item ->> 'y' FROM fencepost_quarantine ORDER BY source_id",
        seconds("opened_at"),
        seconds("resolved_at")
    );
    let unresolved = "units|EA|UNKNOWN_UNIT|7.000";
    let wanted = [
        format!("A-4|{}|OPEN||{unresolved}||ü", 1u128 << 100),
        format!("A-5|{}|RESOLVED|WITHDRAWN|{unresolved}|8.000|ü", 1u128 << 100),
    ];
    assert_eq!(ask(&quarantine), wanted.join("\n"));
    let kinds = "SELECT kind, about ->> 'what' FROM fencepost_rows WHERE kind IN (18, 19) ORDER BY kind";
    assert_eq!(ask(kinds), "18|waiting\n19|arrival");

    for Write { key, put, .. } in writes {
        let found = block_on(store.load(&[key])).unwrap().remove(0).unwrap();
        assert_eq!(Some(&found.record), put.as_ref());
    }
}

#[test]
fn an_item_with_a_nul_escape_and_a_huge_number_is_committed_and_shown() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let odd = Item { current: Some(accepted(None, ODD, 0)), seq: 1, ..item("A-1") };
    let key = RowKey::item(odd.id());
    commit(&store, 1, vec![put(key, Record::Item(odd.into()))]);
    let found = block_on(store.load(&[key])).unwrap().remove(0).unwrap();
    assert_eq!(found.record.as_item().unwrap().current.as_ref().unwrap().content, ODD);
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let shown = r#"{"id":"A-1","note":"a\ufffdb \\u0000 \\\ufffd","mass":1e999999,"y":"ü"}"#;
    assert_eq!(ask("SELECT item FROM fencepost_items"), shown);
    let parts = "SELECT item ->> 'note', item -> 'mass' FROM fencepost_items";
    assert_eq!(ask(parts), "a\u{fffd}b \\u0000 \\\u{fffd}|1e999999");
    // The same content as JSON within JSON would have made the commit fail.
    for refused in [r#"{"note":"\u0000"}"#, r#"{"mass":1e999999}"#] {
        let sql = format!(
            "DO $$ BEGIN PERFORM '{refused}'::jsonb; RAISE 'it is taken'; EXCEPTION
                WHEN untranslatable_character OR numeric_value_out_of_range THEN NULL; END $$"
        );
        assert_eq!(ask(&sql), "DO");
    }
}

// The guide's own words: the function that it tells operators to make, and what they then ask.
#[test]
fn one_item_and_its_history_are_found_by_the_primary_key_as_the_guide_says() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    commit(&store, 1, rows());
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let guide = include_str!("../../../../docs/guides/postgres.md");
    let from = guide.find("CREATE FUNCTION fencepost_item_id").unwrap();
    let (function, rest) = guide[from..].split_once("$$;").unwrap();
    ask(&format!("{function}$$;"));
    let fill = "INSERT INTO fencepost_rows (id, kind, bucket, about, node, revision, record)
        SELECT sha256(n::text::bytea), kind, 0, jsonb_build_object('status', 'ACTIVE'), 'one', 1, ''
        FROM generate_series(1, 5000) AS n, unnest('{15,16,17}'::int[]) AS kind";
    ask(fill);
    ask("ANALYZE fencepost_rows");
    let queries: Vec<&str> =
        rest.split("\n    SELECT ").skip(1).map(|query| query.split(';').next().unwrap()).collect();
    let found = ["1.10|ACTIVE", "1.9|2026-01-01 00:00:01.5+00"];
    for (query, found) in queries.into_iter().zip(found) {
        assert_eq!(ask(&format!("SELECT {query}")), found);
        let plan = ask(&format!("EXPLAIN SELECT {query}"));
        assert!(plan.contains("Index Scan using fencepost_rows_pkey") && plan.contains("Index Cond: ((id "), "{plan}");
    }
}
