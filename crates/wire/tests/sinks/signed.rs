//! Headers that a receiver gets beside the body, checked by code that shares nothing with the sender's.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use fencepost::dispatch::{Delivery, Sink, Vault};
use fencepost_kernel::dispatch::{Transport, WarehouseTransport};
use fencepost_kernel::lane::AttemptFailure;
use fencepost_kernel::{LaneId, Tenant};
use fencepost_wire::sinks::webhook::signature::{
    Marks, Refused, Secret, Window, lane_text, standard, verify_fencepost, verify_fgai, verify_standard,
};
use fencepost_wire::sinks::webhook::{Egress, WebhookSettings, WebhookSink};
use ring::hmac;

use super::receiver::{BODY, Heard, NOW_S, OK, Receiver, Then, event_with, later, sink, vault};

const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW: Window = Window { now_s: NOW_S + 299, tolerance_s: 300 };

fn by_ring(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::new(text.as_bytes()).unwrap()).collect()
}

/// The delivery of an event to a route with these secrets.
async fn arrived(texts: &[&str], change: impl FnOnce(&mut Delivery)) -> Heard {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let mut event = event_with(&receiver.url(), texts);
    change(&mut event);
    sink(&WebhookSettings::default()).deliver(event).await.unwrap();
    let [heard] = receiver.heard().try_into().ok().unwrap();
    heard
}

fn standard_too(event: &mut Delivery) {
    if let Transport::Webhook(webhook) = &mut Arc::make_mut(&mut event.transport).transport {
        webhook.standard = true;
    }
}

#[tokio::test]
async fn an_event_arrives_byte_for_byte_and_signed() {
    let heard = arrived(&["s3cret"], |_| {}).await;
    assert_eq!(heard.line, "POST /hooks?tenant=a%20b HTTP/1.1");
    assert_eq!(heard.body, BODY.as_bytes());
    let table = [
        ("content-type", "application/json"),
        ("content-length", &BODY.len().to_string()),
        ("user-agent", concat!("fencepost/", env!("CARGO_PKG_VERSION"))),
        ("x-fgai-signature", &format!("sha256={}", hex(&by_ring(b"s3cret", BODY.as_bytes())))),
        ("fencepost-lane", "fgai-wms:WH-1"),
        ("fencepost-seq", "41"),
        ("fencepost-prev-seq", "39"),
        ("fencepost-attempt", "2"),
    ];
    for (name, value) in table {
        assert_eq!(heard.header(name), Some(value), "{name}");
    }
    let signed = format!("{NOW_S}\nfgai-wms:WH-1\n41\n39\n2\nfalse\n{BODY}");
    let ours = format!("t={NOW_S},v1={}", hex(&by_ring(b"s3cret", signed.as_bytes())));
    assert_eq!(heard.header("fencepost-signature"), Some(&*ours));
    for absent in [
        "fencepost-redrive",
        "x-fgai-signature-previous",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "authorization",
        "transfer-encoding",
    ] {
        assert_eq!(heard.header(absent), None);
    }
}

#[tokio::test]
async fn two_live_secrets_both_sign() {
    let (new, old) = (BASE64.decode(&WHSEC[6..]).unwrap(), b"the old one");
    let heard = arrived(&[WHSEC, "the old one"], standard_too).await;
    let body = BODY.as_bytes();
    assert_eq!(heard.header("x-fgai-signature"), Some(&*format!("sha256={}", hex(&by_ring(&new, body)))));
    assert_eq!(heard.header("x-fgai-signature-previous"), Some(&*format!("sha256={}", hex(&by_ring(old, body)))));
    let signed = format!("{NOW_S}\nfgai-wms:WH-1\n41\n39\n2\nfalse\n{BODY}");
    let [first, second] = [&new[..], old].map(|key| hex(&by_ring(key, signed.as_bytes())));
    assert_eq!(heard.header("fencepost-signature"), Some(&*format!("t={NOW_S},v1={first},v1={second}")));
    let signed = format!("cid-101.{NOW_S}.{BODY}");
    let [first, second] = [&new[..], old].map(|key| BASE64.encode(by_ring(key, signed.as_bytes())));
    assert_eq!(heard.header("webhook-signature"), Some(&*format!("v1,{first} v1,{second}")));
    assert_eq!(heard.header("webhook-id"), Some("cid-101"));
    assert_eq!(heard.header("webhook-timestamp"), Some(&*NOW_S.to_string()));
}

#[tokio::test]
async fn a_redrive_is_marked_and_the_mark_is_signed() {
    let heard = arrived(&["s3cret"], |event| {
        let lane = LaneId::warehouse(&Tenant::new("fgai-wms"), "WH-1");
        Arc::make_mut(&mut event.entry).redrive_of = Some((lane, 7));
    })
    .await;
    assert_eq!(heard.header("fencepost-redrive"), Some("true"));
    let signed = format!("{NOW_S}\nfgai-wms:WH-1\n41\n39\n2\ntrue\n{BODY}");
    let ours = format!("t={NOW_S},v1={}", hex(&by_ring(b"s3cret", signed.as_bytes())));
    assert_eq!(heard.header("fencepost-signature"), Some(&*ours));
}

#[tokio::test]
async fn a_lane_with_any_name_is_named_in_ascii_and_signed_so() {
    let heard = arrived(&["s3cret"], |event| event.lane = "plan:Lager Köln\n100%".into()).await;
    let lane = "plan:Lager%20K%C3%B6ln%0A100%25";
    assert_eq!(heard.header("fencepost-lane"), Some(lane));
    assert_eq!(lane_text("plan:Lager Köln\n100%"), lane);
    let signed = format!("{NOW_S}\n{lane}\n41\n39\n2\nfalse\n{BODY}");
    let ours = format!("t={NOW_S},v1={}", hex(&by_ring(b"s3cret", signed.as_bytes())));
    assert_eq!(heard.header("fencepost-signature"), Some(&*ours));
}

#[tokio::test]
async fn a_delivery_is_verified_with_either_secret() {
    let heard = arrived(&["new", "old"], standard_too).await;
    let head = |name: &str| heard.header(name).unwrap();
    let marks = Marks { lane: head("fencepost-lane"), seq: 41, prev_seq: 39, attempt: 2, redrive: false };
    for known in [&["new"][..], &["old"], &["other", "old"]] {
        let known = secrets(known);
        assert_eq!(verify_fencepost(&known, head("fencepost-signature"), &marks, &heard.body, NOW), Ok(()));
        let (id, at, signature) = (head("webhook-id"), head("webhook-timestamp"), head("webhook-signature"));
        assert_eq!(verify_standard(&known, id, at, signature, &heard.body, NOW), Ok(()));
    }
    assert_eq!(verify_fgai(&secrets(&["new"]), head("x-fgai-signature"), &heard.body), Ok(()));
    assert_eq!(verify_fgai(&secrets(&["old"]), head("x-fgai-signature-previous"), &heard.body), Ok(()));
    assert_eq!(verify_fgai(&secrets(&["old"]), head("x-fgai-signature"), &heard.body), Err(Refused::Wrong));
}

#[tokio::test]
async fn a_change_to_any_signed_part_breaks_the_signature() {
    let heard = arrived(&["s3cret"], |_| {}).await;
    let (known, signature) = (secrets(&["s3cret"]), heard.header("fencepost-signature").unwrap());
    let right = Marks { lane: "fgai-wms:WH-1", seq: 41, prev_seq: 39, attempt: 2, redrive: false };
    let check = |marks: Marks<'_>, body: &[u8]| verify_fencepost(&known, signature, &marks, body, NOW);
    assert_eq!(check(right, &heard.body), Ok(()));
    for wrong in [
        Marks { lane: "fgai-wms:WH-2", ..right },
        Marks { seq: 40, ..right },
        Marks { prev_seq: 40, ..right },
        Marks { attempt: 1, ..right },
        Marks { redrive: true, ..right },
    ] {
        assert_eq!(check(wrong, &heard.body), Err(Refused::Wrong), "{wrong:?}");
    }
    assert_eq!(check(right, BODY.trim().as_bytes()), Err(Refused::Wrong));
    let later = format!("t={},{}", NOW_S + 1, signature.split_once(',').unwrap().1);
    assert_eq!(verify_fencepost(&known, &later, &right, &heard.body, NOW), Err(Refused::Wrong));
    for now_s in [NOW_S + 301, NOW_S - 301] {
        let window = Window { now_s, tolerance_s: 300 };
        assert_eq!(verify_fencepost(&known, signature, &right, &heard.body, window), Err(Refused::Stale));
    }
    let (_, digits) = signature.split_once("v1=").unwrap();
    for malformed in
        ["", "t=1", "t=,v1=00", &format!("t=+{NOW_S},v1={digits}"), &format!("v1={digits}"), "t=1,v1=0", "t=1,v1=zz"]
    {
        assert_eq!(verify_fencepost(&known, malformed, &right, b"", NOW), Err(Refused::Malformed), "{malformed}");
    }
    assert_eq!(verify_fencepost(&[], signature, &right, &heard.body, NOW), Err(Refused::Wrong));
    for malformed in ["", "sha256=", "sha256=0", "sha1=00", digits] {
        assert_eq!(
            verify_fgai(&known, malformed, b""),
            Err(if malformed == "sha256=" { Refused::Wrong } else { Refused::Malformed }),
            "{malformed}"
        );
    }
}

#[test]
fn the_vector_of_standard_webhooks_holds() {
    let known = secrets(&[WHSEC]);
    let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
    let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    assert_eq!(standard(&known, id, 1_614_265_330, body), signature);
    let window = Window { now_s: 1_614_265_330, tolerance_s: 0 };
    let check = |at: &str, signature: &str| verify_standard(&known, id, at, signature, body, window);
    assert_eq!(check("1614265330", signature), Ok(()));
    assert_eq!(check("1614265330", &format!("v1a,abc= v1,AAAA {signature}")), Ok(()));
    assert_eq!(check("1614265331", signature), Err(Refused::Wrong));
    assert_eq!(check("1614265330", "v1,AAAA"), Err(Refused::Wrong));
    assert_eq!(check("1614265330", &signature[3..]), Err(Refused::Malformed));
    assert_eq!(check("today", signature), Err(Refused::Malformed));
    assert_eq!(check("1614265330", &format!("{signature} ").repeat(9)), Err(Refused::Malformed));
}

#[test]
fn a_secret_is_text_or_base64_and_never_shown() {
    for wrong in ["", "whsec_", "whsec_!", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw="] {
        assert!(Secret::new(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert_eq!(format!("{:?}", Secret::new(b"s3cret").unwrap()), "Secret");
    // A key of any length counts as HMAC has it.
    for len in [1, 63, 64, 65, 200] {
        let key = vec![7; len];
        let made = fencepost_wire::sinks::webhook::signature::fgai(&Secret::new(&key).unwrap(), b"body");
        assert_eq!(made, format!("sha256={}", hex(&by_ring(&key, b"body"))), "{len}");
    }
}

#[tokio::test]
async fn a_sealed_webhook_copied_into_another_row_sends_nothing() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let sink = sink(&WebhookSettings::default());
    let own = event_with(&receiver.url(), &["s3cret"]);
    let moved: [fn(&mut WarehouseTransport); 3] = [
        |route| route.warehouse = "WH-2".to_owned(),
        |route| route.planner = Tenant::new("other-wms"),
        |route| {
            let Transport::Webhook(webhook) = &mut route.transport else { panic!("{route:?}") };
            webhook.url = webhook.url.replace("127.0.0.1", "localhost");
        },
    ];
    for change in moved {
        let mut route = WarehouseTransport::clone(&own.transport);
        change(&mut route);
        let copied = Delivery { transport: route.into(), ..own.clone() };
        let Err(AttemptFailure::Away(answer)) = sink.deliver(copied).await else { panic!("it was sent") };
        assert!(answer.note.contains("another transport's"), "{}", answer.note);
    }
    assert_eq!(receiver.connections(), 0);
    sink.deliver(own).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_repeats_the_url_is_kept_without_it() {
    let body = "no /hooks/T00012345?k=abcdefgh today!";
    let answer = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let receiver = Receiver::start(answer, Then::Listen).await;
    let url = receiver.url().replace("/hooks?tenant=a%20b", "/hooks/T00012345?k=abcdefgh");
    let (status, note, _) = later(sink(&WebhookSettings::default()).deliver(event_with(&url, &["s3cret"])).await);
    assert_eq!(status, Some(404));
    assert!(!note.contains("T00012345") && !note.contains("abcdefgh") && note.contains("***"), "{note}");
}

#[tokio::test]
async fn nothing_leaves_that_cannot_be_signed() {
    let receiver = Receiver::start(OK, Then::Listen).await;
    let sink = sink(&WebhookSettings::default());
    let (_, note, _) = later(sink.deliver(event_with(&receiver.url(), &[])).await);
    assert!(note.contains("no secret"), "{note}");
    let (egress, other) = (Egress::new(&[], true).unwrap(), Arc::new(Vault::fixed([4; 32])));
    let clock = Arc::new(fencepost::clock::SystemClock::default());
    let stranger = WebhookSink::new(egress, other, clock, &WebhookSettings::default()).unwrap();
    let event = event_with(&receiver.url(), &["s3cret"]);
    let Err(AttemptFailure::Away(answer)) = stranger.deliver(event.clone()).await else {
        panic!("not the event's fault")
    };
    assert!(answer.note.contains("another key"), "{}", answer.note);
    assert_eq!(receiver.connections(), 0);
    assert!(!format!("{event:?} {:?}", vault()).contains("s3cret"));
}
