//! Collections of items: the built-in contract, a user's own, the lints, and the words of faults.

use serde_json::{Value, json};

use super::lints::rule;
use super::*;
use crate::collections::{Collection, Fault, Group, Reason, Reference, VersionOrder};

/// A collection of a user, as text: its fields after the group.
fn mine(fields: &str) -> String {
    format!("collections: {{mine: {{group: master, {fields}}}}}")
}

/// A collection of a user whose schema is this.
fn schema(schema: &str) -> String {
    mine(&format!("schema: {schema}"))
}

/// A collection of a user with this list of references.
fn references(list: &str) -> String {
    mine(&format!("schema: {{type: object}}, references: {list}"))
}

fn faults(collection: &Collection, item: &Value) -> Vec<String> {
    let shown = |fault: Fault| format!("{} {}", fault.pointer, fault.message);
    collection.faults(item, 10).into_iter().map(shown).collect()
}

/// The faults of an item under a schema.
fn faults_of(text: &str, item: &Value) -> Vec<String> {
    faults(policy(&schema(text)).collections.get("mine").unwrap(), item)
}

#[test]
fn a_collection_names_its_group_and_has_a_schema() {
    let good = schema("{type: object}");
    rule("error incomplete", "collections: {mine: {schema: {type: object}}}", &good);
    rule("error incomplete", "collections: {mine: {group: master}}", &good);
    rule("error unknown-value", "collections: {mine: {group: masters, schema: {type: object}}}", &good);
    rule("error unknown-value", &mine("schema: {type: object}, version: number"), &good);
    rule("error unknown-key", &mine("schema: {type: object}, key: [id]"), &good);
    rule("error wrong-type", "collections: [mine]", &good);
}

#[test]
fn a_collections_name_is_a_step_of_a_path_and_none_that_is_taken() {
    let named = |name: &str| format!("collections: {{\"{name}\": {{group: master, schema: {{type: object}}}}}}");
    let long = "a".repeat(64);
    for wrong in [
        "",
        "Carriers",
        "2nd",
        "-a",
        "a_b",
        "a/b",
        "a b",
        "ä",
        "jobs",
        "quarantine",
        "capabilities",
        "transport",
        "notifications",
        &format!("{long}a"),
    ] {
        rule("error collection-name", &named(wrong), &named(&long));
    }
}

#[test]
fn a_reference_leads_from_a_pointer_to_a_collection_under_a_reason() {
    let of = |at: &str, to: &str, reason: &str| references(&format!("[{{at: \"{at}\", to: {to}, reason: {reason}}}]"));
    let good = of("/lines/*/sku", "skus", "UNRESOLVED_REFERENCE");
    for at in ["lines", "", "/", "/lines//sku", "/a~2", "*", "/lines/"] {
        let wrong = if at.is_empty() { "error wrong-type" } else { "error reference-pointer" };
        rule(wrong, &of(at, "skus", "BUSINESS_RULE"), &good);
    }
    rule("error unknown-collection", &of("/sku", "sku", "BUSINESS_RULE"), &good);
    rule("error unknown-value", &of("/sku", "skus", "UNRESOLVED"), &good);
    rule("error incomplete", &references("[{at: /sku, to: skus}]"), &good);
    rule("error incomplete", &references("[{reason: BUSINESS_RULE}]"), &good);
    let one = "{at: /sku, to: skus, reason: BUSINESS_RULE}";
    rule("error duplicate", &references(&format!("[{one}, {one}]")), &references(&format!("[{one}]")));
}

#[test]
fn a_circle_of_collections_is_an_error_in_the_users_file_and_a_reference_to_itself_is_none() {
    let to = |name: &str, to: &str| {
        format!(
            "  {name}:\n    group: master\n    schema: {{type: object}}\n    references:\n    - {{at: /x, to: {to}, reason: BUSINESS_RULE}}\n"
        )
    };
    let findings = check::check("p.yml", &format!("collections:\n{}{}", to("a", "b"), to("b", "a")));
    assert_eq!(rules(&findings), ["11 error collection-cycle"]);
    assert!(findings[0].message.starts_with("a -> b -> a: "), "{findings:?}");
    // Closed through two built-in collections, and told where the user closed it.
    let findings = check::check("p.yml", &format!("collections:\n{}", to("uoms", "boms")));
    assert!(findings.iter().all(|finding| finding.file == "p.yml" && finding.line == 6), "{findings:?}");
    assert!(findings.iter().all(|finding| finding.rule == "collection-cycle"), "{findings:?}");
    assert_eq!(check::check("p.yml", &format!("collections:\n{}", to("a", "a"))), []);
}

#[test]
fn a_schema_that_no_item_can_fit_is_an_error() {
    for (never, can) in [
        ("false", "true"),
        ("{not: {}}", "{not: {type: string}}"),
        ("{not: true}", "{not: false}"),
        ("{type: array}", "{type: [array, object]}"),
        ("{type: string}", "{}"),
        ("{allOf: [{}, false]}", "{allOf: [{}]}"),
        ("{anyOf: [false, {not: {}}]}", "{anyOf: [false, {}]}"),
        ("{required: [a], properties: {a: false}}", "{properties: {a: false}}"),
        ("{required: [a], properties: {a: {not: {}}}}", "{properties: {a: {not: {}}}}"),
        ("{properties: {a: {enum: []}}}", "{properties: {a: {enum: [x]}}}"),
        (
            "{required: [a], additionalProperties: false, properties: {b: {}}}",
            "{required: [b], additionalProperties: false, properties: {b: {}}}",
        ),
        (
            "{required: [a], additionalProperties: false}",
            "{required: [a], additionalProperties: false, patternProperties: {a: {}}}",
        ),
        (
            "{properties: {a: {type: string, minLength: 5, maxLength: 4}}}",
            "{properties: {a: {type: string, minLength: 5, maxLength: 5}}}",
        ),
        ("{properties: {a: {minimum: 0.2, maximum: 0.1}}}", "{properties: {a: {minimum: -1, maximum: 0}}}"),
        (
            "{properties: {a: {exclusiveMinimum: 1, exclusiveMaximum: 1}}}",
            "{properties: {a: {exclusiveMinimum: 1, exclusiveMaximum: 2}}}",
        ),
        (
            "{properties: {a: {items: {minItems: 2, maxItems: 1}}}}",
            "{properties: {a: {items: {minItems: 1, maxItems: 1}}}}",
        ),
        ("{properties: {a: {type: string, const: 1}}}", "{properties: {a: {type: string, const: \"1\"}}}"),
        (
            "{properties: {a: {type: integer, enum: [1, \"2\"]}}}",
            "{properties: {a: {type: [integer, string], enum: [1, \"2\"]}}}",
        ),
        ("{properties: {a: {type: integer, const: 1.5}}}", "{properties: {a: {type: number, const: 1.5}}}"),
        (
            "{if: {required: [a]}, then: {required: [b], properties: {b: false}}}",
            "{if: {required: [a]}, then: {properties: {b: false}}}",
        ),
    ] {
        rule("error schema-never", &schema(never), &schema(can));
    }
    // Told where it stands, and not again for each part around it.
    let text = "collections:\n  mine:\n    group: master\n    schema:\n      required: [a]\n      properties:\n        a:\n          enum: []\n";
    assert_eq!(rules(&check::check("p.yml", text)), ["8 error schema-never"]);
}

#[test]
fn a_schema_that_cannot_be_compiled_is_an_error_where_it_is_wrong() {
    for (broken, right) in [
        ("{properties: {a: {type: null}}}", "{properties: {a: {type: \"null\"}}}"),
        ("{properties: {a: ~}}", "{properties: {a: {}}}"),
        ("{properties: {a: text}}", "{properties: {a: {type: string}}}"),
        ("{properties: {a: {minLength: short}}}", "{properties: {a: {minLength: 1}}}"),
        ("{required: source_id}", "{required: [source_id]}"),
        ("{properties: {a: {pattern: \"(\"}}}", "{properties: {a: {pattern: \"()\"}}}"),
        // Look-around needs an engine whose time a partner could make exponential.
        ("{properties: {a: {pattern: \"(?=a)\"}}}", "{properties: {a: {pattern: \"a\"}}}"),
        ("{properties: {a: {$ref: \"#/$defs/b\"}}}", "{$defs: {b: {}}, properties: {a: {$ref: \"#/$defs/b\"}}}"),
        (
            "{$schema: \"http://json-schema.org/draft-07/schema#\"}",
            "{$schema: \"https://json-schema.org/draft/2020-12/schema\"}",
        ),
    ] {
        rule("error schema-broken", &schema(broken), &schema(right));
    }
    rule(
        "error unknown-value",
        &schema("{properties: {a: {type: sting}}}"),
        &schema("{properties: {type: {type: string}}}"),
    );
    rule("error unknown-key", &schema("{requierd: [a]}"), &schema("{x-owner: wms, properties: {requierd: {}}}"));
    let text = "collections:\n  mine:\n    group: master\n    schema:\n      properties:\n        a:\n          maxLength: -1\n";
    let findings = check::check("p.yml", text);
    assert_eq!(rules(&findings), ["7 error schema-broken"]);
    assert_eq!(findings[0].message, "not a JSON Schema: `properties.a.maxLength` must be at least 0, not -1");
}

#[test]
fn a_schema_that_refers_outside_of_itself_is_an_error() {
    let good = schema("{$id: \"urn:mine\", properties: {a: {$ref: \"#/$defs/b\"}}, $defs: {b: {}}}");
    for wrong in ["https://example.com/b.json", "b.json", "urn:b", "#b", "https://json-schema.org/draft/2020-12/schema"]
    {
        rule("error schema-external", &schema(&format!("{{properties: {{a: {{$ref: \"{wrong}\"}}}}}}")), &good);
    }
    rule("error schema-external", &schema("{properties: {a: {$id: \"urn:b\"}}}"), &good);
}

#[test]
fn the_built_in_collections_have_their_groups_references_and_required_fields() {
    use Reason::{MissingDependency, UnresolvedParent, UnresolvedReference};
    type Expected = (&'static str, Group, &'static [&'static str], &'static [(&'static str, &'static str, Reason)]);
    const DOCUMENT: &[(&str, &str, Reason)] =
        &[("/warehouse", "locations", UnresolvedReference), ("/lines/*/sku", "skus", UnresolvedReference)];
    const STOCK: &[(&str, &str, Reason)] =
        &[("/sku", "skus", UnresolvedReference), ("/location", "locations", UnresolvedReference)];
    const LINES: &[&str] = &["source_id", "warehouse", "lines"];
    let expected: [Expected; 15] = [
        ("uoms", Group::Master, &["source_id", "name"], &[]),
        ("addresses", Group::Master, &["source_id", "name"], &[]),
        ("locations", Group::Master, &["source_id", "kind"], &[("/parent", "locations", UnresolvedParent)]),
        ("skus", Group::Master, &["source_id", "name", "base_uom"], &[("/base_uom", "uoms", MissingDependency)]),
        (
            "boms",
            Group::Master,
            &["source_id", "parent_sku", "components"],
            &[("/parent_sku", "skus", UnresolvedParent), ("/components/*/sku", "skus", UnresolvedReference)],
        ),
        ("lots", Group::Master, &["source_id", "sku"], &[("/sku", "skus", UnresolvedParent)]),
        ("serials", Group::Master, &["source_id", "sku"], &[("/sku", "skus", UnresolvedParent)]),
        ("snapshot", Group::Inventory, &["source_id", "sku", "location", "qty"], STOCK),
        ("movements", Group::Inventory, &["source_id", "kind", "sku", "location", "qty"], STOCK),
        ("purchase-orders", Group::Documents, LINES, DOCUMENT),
        ("sales-orders", Group::Documents, LINES, DOCUMENT),
        ("receivers", Group::Documents, LINES, DOCUMENT),
        ("shippers", Group::Documents, LINES, DOCUMENT),
        ("work-orders", Group::Documents, LINES, DOCUMENT),
        ("transfer-orders", Group::Documents, LINES, DOCUMENT),
    ];
    let policy = Policy::builtin();
    assert_eq!(policy.collections.iter().len(), expected.len());
    // Their order is the load order.
    for (collection, (name, group, required, references)) in policy.collections.iter().zip(expected) {
        assert_eq!((&*collection.name, collection.group, collection.order), (name, group, VersionOrder::Any));
        assert_eq!(collection.schema["required"], json!(required), "{name}");
        let found: Vec<_> =
            collection.references.iter().map(|read| (read.at.as_str(), &*read.to, read.reason)).collect();
        assert_eq!(found, references, "{name}");
        let nothing = faults(collection, &json!({}));
        let missing: Vec<String> = required.iter().map(|field| format!("/{field} is required")).collect();
        assert_eq!(nothing, missing, "{name}");
        let empty = faults(collection, &json!({"source_id": ""}));
        assert!(empty.contains(&"/source_id must not be empty".to_owned()), "{name}: {empty:?}");
        let long = faults(collection, &json!({"source_id": "x".repeat(257)}));
        assert!(long.contains(&"/source_id must have at most 256 characters".to_owned()), "{name}: {long:?}");
    }
}

#[test]
fn built_in_items_hold_with_any_further_field_and_name_what_they_refer_to() {
    let policy = Policy::builtin();
    let line = |sku: &str| json!({"line_no": 1, "sku": sku, "qty": "2.50", "note": null});
    for (name, item, refers) in [
        ("uoms", json!({"source_id": "EA", "name": "Each", "source_version": 3, "more": [1]}), vec![]),
        ("skus", json!({"source_id": "S", "name": "Widget", "base_uom": "EA"}), vec!["EA"]),
        ("locations", json!({"source_id": "W1", "kind": "WAREHOUSE", "parent": null}), vec![]),
        ("locations", json!({"source_id": "Z1", "kind": "ZONE", "parent": "W1"}), vec!["W1"]),
        (
            "boms",
            json!({"source_id": "B", "parent_sku": "P", "components": [{"sku": "C1", "qty": 1}, {"sku": "C2", "qty": 0.5}]}),
            vec!["P", "C1", "C2"],
        ),
        ("serials", json!({"source_id": "N", "sku": "S"}), vec!["S"]),
        (
            "sales-orders",
            json!({"source_id": "O", "warehouse": "W1", "lines": [line("S"), line("S")]}),
            vec!["W1", "S", "S"],
        ),
        ("shippers", json!({"source_id": "O", "warehouse": "W1", "lines": []}), vec!["W1"]),
        ("snapshot", json!({"source_id": "X", "sku": "S", "location": "B1", "qty": -3}), vec!["S", "B1"]),
        (
            "movements",
            json!({"source_id": "X", "kind": "MOVE", "sku": "S", "location": "B1", "qty": "3"}),
            vec!["S", "B1"],
        ),
    ] {
        let collection = policy.collections.get(name).unwrap();
        assert_eq!(faults(collection, &item), [""; 0], "{name}");
        let found: Vec<&str> = collection.references_of(&item).into_iter().map(|(_, source_id)| source_id).collect();
        assert_eq!(found, refers, "{name}");
    }
    assert!(policy.collections.get("carriers").is_none());
}

#[test]
fn built_in_items_that_do_not_hold_say_where_and_why() {
    let policy = Policy::builtin();
    for (name, item, expected) in [
        (
            "uoms",
            json!({"source_id": 7, "name": null}),
            vec!["/name must be a string, not null", "/source_id must be a string, not a number"],
        ),
        ("uoms", json!("EA"), vec![" must be an object, not a string"]),
        (
            "skus",
            json!({"source_id": "S", "name": "W", "base_uom": null}),
            vec!["/base_uom must be a string, not null"],
        ),
        (
            "locations",
            json!({"source_id": "W1", "kind": "WAREHOUSE", "parent": "W0"}),
            vec!["/parent must be left out or null"],
        ),
        ("locations", json!({"source_id": "B1", "kind": "BIN"}), vec!["/parent is required"]),
        (
            "locations",
            json!({"source_id": "B1", "kind": "ZONE", "parent": null}),
            vec!["/parent must be a string, not null"],
        ),
        (
            "locations",
            json!({"source_id": "B1", "kind": "SHELF"}),
            vec!["/kind must be one of \"WAREHOUSE\", \"ZONE\", \"BIN\", not \"SHELF\""],
        ),
        ("locations", json!({"source_id": "B1"}), vec!["/kind is required"]),
        (
            "boms",
            json!({"source_id": "B", "parent_sku": "P", "components": [{"sku": "C"}]}),
            vec!["/components/0/qty is required"],
        ),
        ("lots", json!({"source_id": "L", "sku": ["S"]}), vec!["/sku must be a string, not a list"]),
        (
            "receivers",
            json!({"source_id": "R", "warehouse": "W1", "lines": [{"line_no": 1.5, "sku": "S", "qty": "1,5"}]}),
            vec![
                "/lines/0/line_no must be a whole number or a string, not a number with a fraction",
                "/lines/0/qty must have the form ^-?[0-9]+(\\.[0-9]+)?$, unlike \"1,5\"",
            ],
        ),
        (
            "movements",
            json!({"source_id": "M", "kind": "STEAL", "sku": "S", "location": "B", "qty": true}),
            vec![
                "/kind must be one of \"PICK\", \"PUT\", \"MOVE\", \"ADJUST\", \"CONSUME\", \"PRODUCE\", \"RECEIVE\", \"SHIP\", not \"STEAL\"",
                "/qty must be a number or a string, not true",
            ],
        ),
    ] {
        assert_eq!(faults(policy.collections.get(name).unwrap(), &item), expected, "{name}");
    }
}

#[test]
fn each_kind_of_fault_is_told_in_plain_words() {
    let a = |text: &str, value: Value| {
        let found = faults_of(&format!("{{properties: {{a: {text}}}}}"), &json!({"a": value}));
        found.join("; ")
    };
    assert_eq!(a("{const: x}", json!("y")), "/a must be \"x\", not \"y\"");
    assert_eq!(a("{minLength: 2}", json!("y")), "/a must have at least 2 characters");
    assert_eq!(a("{maxLength: 1}", json!("yy")), "/a must have at most 1 character");
    assert_eq!(a("{minItems: 1}", json!([])), "/a must not be empty");
    assert_eq!(a("{maxItems: 1}", json!([1, 2])), "/a must have at most 1 element");
    assert_eq!(a("{prefixItems: [{}], items: false}", json!([1, 2])), "/a/1 must be left out");
    assert_eq!(a("{minProperties: 2}", json!({})), "/a must have at least 2 fields");
    assert_eq!(a("{minimum: 1}", json!(0)), "/a must be at least 1, not 0");
    assert_eq!(a("{maximum: 1}", json!(2.5)), "/a must be at most 1, not 2.5");
    assert_eq!(a("{exclusiveMinimum: 0}", json!(0)), "/a must be above 0, not 0");
    assert_eq!(a("{exclusiveMaximum: 0}", json!(0)), "/a must be below 0, not 0");
    assert_eq!(a("{multipleOf: 2}", json!(3)), "/a must be a multiple of 2, not 3");
    assert_eq!(a("{format: date}", json!("soon")), "/a must have the format date, unlike \"soon\"");
    assert_eq!(a("{additionalProperties: false}", json!({"x": 1})), "/a must not have any field");
    assert_eq!(a("{propertyNames: false}", json!({"x": 1})), "/a must not have any field");
    assert_eq!(
        a("{properties: {b: {}}, additionalProperties: false}", json!({"x": 1})),
        "/a must not have the field x"
    );
    assert_eq!(a("{unevaluatedProperties: false}", json!({"x": 1, "y": 1})), "/a must not have the fields x, y");
    assert_eq!(
        a("{propertyNames: {maxLength: 1}}", json!({"xy": 1})),
        "/a must not have the field \"xy\": its name must have at most 1 character"
    );
    assert_eq!(a("false", json!(1)), "/a must be left out");
    assert_eq!(a("{uniqueItems: true}", json!([1, 1])), "/a must not have equal elements");
    assert_eq!(a("{contains: {type: string}}", json!([1])), "/a must have an element of the required form");
    assert_eq!(a("{anyOf: [{type: string}, {minimum: 3}]}", json!(1)), "/a has none of the allowed forms");
    assert_eq!(
        a("{oneOf: [{}, {minimum: 1}]}", json!(1)),
        "/a has several of the allowed forms at once, and must have one of them"
    );
    assert_eq!(a("{not: {const: x}}", json!("x")), "/a has a form that is not allowed");
    assert_eq!(faults_of("{required: [\"a/b~c\"]}", &json!({})), ["/a~1b~0c is required"]);
}

#[test]
fn faults_are_bounded_in_number_and_length_whatever_is_sent() {
    let policy = policy(&schema(
        "{additionalProperties: {type: [integer, \"null\"], maximum: 5, enum: [1]}, propertyNames: {pattern: \"^a+$\"}}",
    ));
    let mine = policy.collections.get("mine").unwrap();
    let huge = "ä".repeat(100_000);
    let item = json!({huge.clone(): huge.clone(), "b": [huge.clone()], "c": {"d": huge.clone()}, "e": 9});
    assert_eq!(mine.faults(&item, 3).len(), 3);
    let all = mine.faults(&item, usize::MAX);
    assert!(all.len() > 8, "{}", all.len());
    for fault in all {
        assert!(fault.message.chars().count() < 300 && fault.pointer.chars().count() < 300, "{fault:?}");
    }
    assert_eq!(mine.faults(&json!({"a": 1}), 3), []);
}

#[test]
fn references_follow_lists_objects_and_indexes_and_leave_out_what_is_no_text() {
    let text = references(
        "[{at: /a/*/b/*, to: uoms, reason: BUSINESS_RULE}, {at: /c~1d/1, to: skus, reason: UNRESOLVED_PARENT}, {at: /e, to: mine, reason: BUSINESS_RULE}]",
    );
    let policy = policy(&text);
    let mine = policy.collections.get("mine").unwrap();
    let found = |item: &Value| -> Vec<String> {
        let shown = |(reference, id): (&Reference, &str)| format!("{} {id} {}", reference.to, reference.reason.name());
        mine.references_of(item).into_iter().map(shown).collect()
    };
    let item = json!({"a": [{"b": ["x", 1, "y"]}, {"b": null}, {}, 7, {"b": ["z"]}], "c/d": ["no", "s"], "e": "m"});
    assert_eq!(
        found(&item),
        [
            "uoms x BUSINESS_RULE",
            "uoms y BUSINESS_RULE",
            "uoms z BUSINESS_RULE",
            "skus s UNRESOLVED_PARENT",
            "mine m BUSINESS_RULE"
        ]
    );
    for item in [
        json!({}),
        json!(null),
        json!({"a": {"b": ["x"]}, "c/d": ["no"], "e": null}),
        json!({"a": "x", "c/d": {"0": "no"}, "e": {}}),
    ] {
        assert_eq!(found(&item), [""; 0], "{item}");
    }
    let pointers: Vec<String> =
        (0..found(&item).len() + 1).map(|position| mine.pointer_to_reference(&item, position)).collect();
    assert_eq!(pointers, ["/a/0/b/0", "/a/0/b/2", "/a/4/b/0", "/c~1d/1", "/e", ""]);
}

#[test]
fn a_users_collection_is_added_and_a_built_in_one_replaced_whole() {
    let text = "\
collections:
  shipments:
    group: documents
    version: integer
    references: [{at: /carrier, to: carriers, reason: BUSINESS_RULE}]
    schema: {type: object, required: [carrier]}
  carriers:
    group: master
    schema: {type: object, required: [scac], properties: {scac: {type: string}}}
  skus:
    group: master
    version: semver
    schema: {type: object, required: [title]}
";
    let policy = policy(text);
    assert_eq!(policy.collections.iter().len(), 17);
    let names: Vec<&str> = policy.collections.iter().map(|collection| &*collection.name).collect();
    let place = |name: &str| names.iter().position(|other| *other == name).unwrap();
    assert!(place("carriers") < place("shipments") && place("skus") < place("boms"), "{names:?}");
    let skus = policy.collections.get("skus").unwrap();
    assert_eq!((skus.order, skus.references.len()), (VersionOrder::Semver, 0));
    assert_eq!(faults(skus, &json!({})), ["/title is required"]);
    let shipments = policy.collections.get("shipments").unwrap();
    assert_eq!((shipments.group, shipments.order), (Group::Documents, VersionOrder::Integer));
    assert_eq!(shipments.references_of(&json!({"carrier": "UPS"}))[0].1, "UPS");
    assert!(policy.collections.get("uoms").is_some());
}

#[test]
fn words_of_a_policy_are_names_and_back() {
    for group in [Group::Master, Group::Documents, Group::Inventory] {
        assert_eq!(Group::from_name(group.name()), Some(group));
    }
    for reason in
        [Reason::MissingDependency, Reason::UnresolvedParent, Reason::UnresolvedReference, Reason::BusinessRule]
    {
        assert_eq!(Reason::from_name(reason.name()), Some(reason));
    }
    assert_eq!((Group::from_name("jobs"), Reason::from_name("missing_dependency")), (None, None));
    let orders =
        [VersionOrder::Any, VersionOrder::Integer, VersionOrder::Time, VersionOrder::Semver, VersionOrder::Text];
    assert_eq!(orders.map(VersionOrder::name), ["any", "integer", "time", "semver", "text"]);
}

#[test]
fn ingest_is_set_by_a_file_and_by_variables() {
    let file = "ingest: {auto_release: true, quarantine_retain: 60d}\n";
    let variables = [("FENCEPOST_INGEST__BULK_ASYNC_THRESHOLD".to_owned(), "100".to_owned())];
    let ingest = Policy::load(Some(("p.yml", file)), variables).unwrap().ingest;
    assert_eq!((ingest.auto_release, ingest.bulk_async_threshold), (true, 100));
    assert_eq!(ingest.quarantine_retain_ms, 60 * 24 * 3_600_000);
}

#[test]
fn replaced_ingest_scope_whose_key_ingest_does_not_fill_is_an_error() {
    let scope = |key: &str| format!("scopes: {{WMS_INGEST: {{key: [{key}], retain: 30d, source: ingest}}}}");
    for wrong in ["id", "correlation_id, partner", "partner, correlation_id"] {
        rule("error own-scope-key", &scope(wrong), &scope("correlation_id"));
    }
}

#[test]
fn quarantine_that_is_forgotten_before_the_answers_that_name_it_is_an_error() {
    let scope = |retain: &str| format!("scopes: {{WMS_INGEST: {{key: [correlation_id], retain: {retain}}}}}\n");
    let both = |retain: &str, own: &str| format!("{}ingest: {{quarantine_retain: {own}}}", scope(retain));
    rule("error quarantine-retention", "ingest: {quarantine_retain: 29d}", "ingest: {quarantine_retain: 30d}");
    rule("error quarantine-retention", &scope("31d"), &scope("30d"));
    rule("error quarantine-retention", &both("2d", "47h"), &both("2d", "48h"));
    let findings = crate::check::check("p.yml", "\ningest: {quarantine_retain: 29d}");
    assert_eq!((findings[0].line, findings[0].message.contains("29d")), (2, true), "{findings:?}");
}

#[test]
fn a_schema_that_refers_to_itself_ends_for_every_item() {
    let list = "{properties: {next: {$ref: \"#\"}, n: {type: integer}}}";
    assert_eq!(
        faults_of(list, &json!({"next": {"next": {"n": "x"}}})),
        ["/next/next/n must be a whole number, not a string"]
    );
    for round in [
        "{$ref: \"#\"}",
        "{allOf: [{$ref: \"#/$defs/a\"}], $defs: {a: {$ref: \"#/$defs/b\"}, b: {$ref: \"#/$defs/a\"}}}",
    ] {
        assert_eq!(faults_of(round, &json!({"a": 1})), [""; 0], "{round}");
    }
}
