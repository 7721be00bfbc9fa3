//! The nodes that share the store: every node lists all of them, with the claims of each; the dead leave the list.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::server::{Server, fencepost, text, until},
    history::SCOPE,
    town::Town,
};

fn listed(node: &Server) -> Vec<Value> {
    let said = node.admin().get("/admin/nodes").ok(200);
    assert_eq!((&said["shared"], &said["durability"]), (&json!(true), &json!("synced")), "{said}");
    said["items"].as_array().unwrap().clone()
}

fn addresses(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["address"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_node_lists_all_three_with_what_they_hold_and_the_dead_leave() {
    let mut town = Town::start(3);
    let all: BTreeSet<String> = town.nodes().iter().map(|node| node.address.to_string()).collect();
    let mut tokens = Vec::new();
    for hold in 0..4 {
        let key = json!({"index_hash": hold.to_string()});
        tokens.push((town.node(0).acme().claim(SCOPE, &key).token(), key));
    }
    town.node(1).acme().claim(SCOPE, &json!({"index_hash": "other"})).token();
    // One of them is sealed elsewhere: it is not held any more.
    let (token, key) = &tokens[0];
    town.node(2).acme().seal(SCOPE, key, *token, "E", json!(1)).ok(200);
    for node in town.nodes() {
        let items = until("all three are listed", || {
            let items = listed(node);
            (items.len() == 3).then_some(items)
        });
        assert_eq!(addresses(&items), all);
        let item = |address: &str| items.iter().find(|item| item["address"] == address).unwrap();
        let own = item(&node.address.to_string());
        assert_eq!(own["answering"], true, "{own}");
        assert_eq!(items.iter().filter(|item| item["answering"] == true).count(), 1);
        let holds = |seat: usize| item(&town.node(seat).address.to_string())["holds"].clone();
        assert_eq!([holds(0), holds(1), holds(2)], [json!(3), json!(1), json!(0)]);
    }

    let output = fencepost(["doctor", "--url", &town.node(2).url(), "--token", "dev-admin"]);
    let said = text(&output.stdout);
    assert!(all.iter().all(|address| said.contains(address)) && said.contains("holds 3 claims"), "{said}");
    assert!(said.contains("postgres://") && said.contains("synced"), "{said}");

    let dead = town.take(0);
    let address = dead.address.to_string();
    dead.kill();
    // A minute passes for it: the dead say nothing, and its last word grows old.
    let old = format!("UPDATE fencepost_nodes SET seen = seen - interval '61 seconds' WHERE address = '{address}'");
    town.postgres.sql(&town.database, &old);
    let left = addresses(&listed(town.node(1)));
    assert!(left.len() == 2 && !left.contains(&address), "{left:?}");
    // Its claims are still held, and any other node can finish them.
    let (token, key) = &tokens[1];
    town.node(1).acme().seal(SCOPE, key, *token, "E", json!(2)).ok(200);
    town.fill(0);
    until("the new one is listed", || (listed(town.node(1)).len() == 3).then_some(()));
}
