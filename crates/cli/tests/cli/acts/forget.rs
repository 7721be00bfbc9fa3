//! A sealed outcome that an operator gives up: the next claim runs, and nobody from before comes back.

use serde_json::json;

use super::{
    super::{
        client::Client,
        server::{dev, fencepost, text},
    },
    SCOPE, forget, key,
};

#[test]
fn forgotten_key_runs_again_under_a_higher_token_and_its_history_says_who_gave_it_up_and_why() {
    let server = dev();
    let (mut acme, mut admin) = (server.acme(), server.admin());
    let first = acme.done(SCOPE, &key("a"), "IDX-1", json!({"v": 1}));
    let said = forget(&mut admin, "a", json!({}));
    let told = said.ok(200);
    assert_eq!(
        (&told["decision"], &told["replay"], &told["exists"]),
        (&json!("forgotten"), &json!(false), &json!(true))
    );
    acme.seal(SCOPE, &key("a"), first, "IDX-1", json!({"v": 1})).problem(409, "fenced-off");
    let second = acme.done(SCOPE, &key("a"), "IDX-2", json!({"v": 2}));
    assert!(second > first, "{second} after {first}");
    assert_eq!(acme.claim(SCOPE, &key("a")).ok(200)["receipt"], json!({"v": 2}));
    let history = admin.lookup(SCOPE, &key("a"), "").ok(200)["history"].clone();
    let words: Vec<&str> = history.as_array().unwrap().iter().map(|line| line["decision"].as_str().unwrap()).collect();
    assert_eq!(words, ["new", "sealed", "forgotten", "fenced_off", "new", "sealed", "duplicate"], "{history}");
    let word = &history[2];
    assert_eq!((&word["by"], &word["why"]), (&json!("dev-admin"), &json!("the index was lost")));
}

#[test]
fn repeated_forget_is_a_replay_also_after_the_effect_was_had_again() {
    let server = dev();
    let (mut acme, mut admin) = (server.acme(), server.admin());
    let first = acme.done(SCOPE, &key("a"), "IDX-1", json!(1));
    forget(&mut admin, "a", json!({})).ok(200);
    let again = forget(&mut admin, "a", json!({}));
    assert_eq!((again.ok(200)["replay"].clone(), again.header("idempotency-replayed")), (json!(true), Some("true")));
    let second = acme.done(SCOPE, &key("a"), "IDX-2", json!(2));
    for late in [json!({}), json!({"token": first, "why": "late"})] {
        assert_eq!(forget(&mut admin, "a", late).ok(200)["replay"], true);
        assert_eq!(acme.claim(SCOPE, &key("a")).ok(200)["effect_id"], "IDX-2");
    }
    forget(&mut admin, "a", json!({"token": first - 1, "why": "wrong"})).problem(409, "fenced-off");
    assert_eq!(forget(&mut admin, "a", json!({"token": second})).ok(200)["replay"], false);
    acme.claim(SCOPE, &key("a")).ok(201);
}

#[test]
fn forget_is_refused_while_the_effect_may_still_happen_and_to_everyone_but_an_admin() {
    let server = dev();
    let (mut acme, mut admin) = (server.acme(), server.admin());
    let unknown = forget(&mut admin, "nobody", json!({})).ok(200);
    assert_eq!((&unknown["replay"], &unknown["exists"]), (&json!(true), &json!(false)));
    acme.claim(SCOPE, &key("held")).ok(201);
    forget(&mut admin, "held", json!({})).problem(409, "in-flight");
    let payment = json!({"caseUrn": "urn:case:7", "reservationUrn": "R-1"});
    let hold = json!({"scope": "PAYMENT_TOKENIZATION", "key": payment});
    acme.claim_with("PAYMENT_TOKENIZATION", &payment, json!({"lease_ms": 1})).ok(201);
    acme.claim_with("PAYMENT_TOKENIZATION", &payment, json!({"wait_ms": 50_000})).problem(409, "in-doubt");
    forget(&mut admin, "", hold).problem(409, "in-doubt");

    acme.done(SCOPE, &key("a"), "IDX-1", json!(1));
    for token in ["dev-viewer", "dev-partner", "dev-planner", "dev-executor"] {
        forget(&mut server.client(token), "a", json!({})).problem(403, "forbidden");
    }
    let body = |more: &str| format!(r#"{{"scope":"{SCOPE}","key":{{"index_hash":"a"}}{more}}}"#);
    let mut post = |more: &str| admin.post("/admin/idempotency/forget", body(more));
    post(r#","why":"x""#).problem(400, "malformed-request");
    post(r#","tenant":"acme""#).problem(400, "malformed-request");
    post(r#","tenant":"acme","why":"""#).problem(400, "malformed-request");
    forget(&mut admin, "a", json!({"key": {"other": "a"}})).problem(400, "wrong-key-fields");
    forget(&mut admin, "a", json!({"scope": "NOWHERE"})).problem(404, "unknown-scope");
    forget(&mut admin, "a", json!({"scope": "WES_DISPATCH"})).problem(403, "forbidden");
    // Another tenant's key of the same fields is another key.
    assert_eq!(forget(&mut admin, "a", json!({"tenant": "globex"})).ok(200)["exists"], false);
    acme.claim(SCOPE, &key("a")).ok(200);
}

#[test]
fn last_repetition_is_forgotten_alone_and_runs_again_before_the_next() {
    let server = dev();
    let (mut acme, mut admin) = (server.acme(), server.admin());
    let mail = json!({"groupId": "G", "type": "VOUCHER", "channel": "EMAIL", "reservationUrn": "R"});
    acme.done("NOTIFICATION", &mail, "M-0", json!(0));
    let again = |acme: &mut Client, seq: u64| {
        acme.post("/v1/fences/again", json!({"scope": "NOTIFICATION", "key": mail, "seq": seq}).to_string())
    };
    for seq in [1, 2] {
        let token = again(&mut acme, seq).token();
        let seal =
            json!({"scope": "NOTIFICATION", "key": mail, "seq": seq, "token": token, "effect_id": "M", "receipt": seq});
        acme.post("/v1/fences/seal", seal.to_string()).ok(200);
    }
    let number = |seq: u64| json!({"scope": "NOTIFICATION", "key": mail, "seq": seq});
    assert_eq!(forget(&mut admin, "", number(1)).problem(409, "sequence-gap")["last"], 2);
    forget(&mut admin, "", number(2)).ok(200);
    again(&mut acme, 3).problem(409, "sequence-gap");
    again(&mut acme, 2).ok(201);
}

#[test]
fn forget_on_the_command_line_names_what_it_found_and_says_what_it_gave_up() {
    let server = dev();
    let mut acme = server.acme();
    acme.done(SCOPE, &key("a"), "IDX-1", json!(1));
    let run = |args: &[&str]| {
        let output = fencepost([&["forget", SCOPE], args, &["--url", &server.url(), "--why", "lost"]].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = run(&["index_hash=a"]);
    assert!(code == Some(0) && said.starts_with("Forgotten: IDX-1, sealed at "), "{code:?} {said}");
    let (code, said) = run(&["index_hash=a", "--tenant", "acme"]);
    assert!(code == Some(0) && said.contains("already"), "{code:?} {said}");
    let why = fencepost(["why", SCOPE, "index_hash=a", "--url", &server.url()]);
    assert!(text(&why.stdout).contains("dev-admin gave its outcome up at "), "{}", text(&why.stdout));
    assert_eq!(run(&["index_hash=unknown"]).0, Some(2));
    acme.claim(SCOPE, &key("held")).ok(201);
    let (code, said) = run(&["index_hash=held"]);
    assert!(code == Some(1) && said.contains("in-flight"), "{code:?} {said}");
    // The same reason again is another act where it names another attempt.
    acme.done(SCOPE, &key("a"), "IDX-2", json!(2));
    assert!(run(&["index_hash=a"]).1.starts_with("Forgotten: IDX-2"));
}
