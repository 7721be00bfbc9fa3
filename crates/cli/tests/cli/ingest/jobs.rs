//! Uploads that become jobs: their answers, their progress and their results, and uploads that come to nothing.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    super::server::{Server, dev, dev_with, until},
    sending::{Sender, at, body, correlation, sku, uom},
};

/// Items one a line.
pub fn lines(items: &[Value]) -> String {
    items.iter().map(|item| format!("{item}\n")).collect()
}

/// Uploads lines: the id of the job.
#[track_caller]
pub fn upload(sender: &mut Sender, collection: &str, id: &str, lines: &str) -> String {
    let answer = sender.ask("POST", &format!("{collection}?mode=bulk"), &as_lines(id), lines.as_bytes());
    answer.ok(202)["job_id"].as_str().unwrap().to_owned()
}

fn as_lines(id: &str) -> String {
    format!("{}content-type: application/x-ndjson\r\n", correlation(id))
}

/// The job once it has ended.
#[track_caller]
pub fn ended(sender: &mut Sender, job: &str) -> Value {
    until("the job has ended", || {
        let shown = sender.get(&format!("jobs/{job}")).ok(200);
        (shown["status"] != "QUEUED" && shown["status"] != "RUNNING").then_some(shown)
    })
}

/// The lines of a job's results, page by page.
pub fn results(sender: &mut Sender, job: &str, query: &str, limit: usize) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = sender.get(&format!("jobs/{job}/results?limit={limit}&{query}{cursor}"));
        assert_eq!((page.status, page.header("content-type")), (200, Some("application/x-ndjson")), "{}", page.text());
        found.extend(page.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        match page.header("fencepost-next-cursor") {
            Some(next) => cursor = format!("&after={next}"),
            None => return found,
        }
    }
}

fn uoms(count: usize) -> Vec<Value> {
    (0..count).map(|number| at(uom(&format!("U-{number}")), 1)).collect()
}

#[test]
fn each_line_of_an_upload_gets_one_verdict_with_its_number() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 3)]);
    let text = format!(
        "{}\n\n{}\n{}\nno json\n{}\n[1]",
        at(uom("EA"), 3),
        uom("KG"),
        json!({"source_id": "LB"}),
        at(uom("EA"), 4)
    );
    let job = upload(&mut acme, "master/uoms", "b-1", &text);
    let shown = ended(&mut acme, &job);
    assert_eq!(shown["status"], "COMPLETED");
    assert_eq!(shown["progress"], json!({"done": 6, "total": 6}));
    assert_eq!(shown["summary"], json!({"accepted": 2, "replay": 1, "quarantined": 0, "rejected": 3}));
    assert_eq!(
        (&shown["collection"], &shown["correlation_id"], &shown["by"]),
        (&json!("uoms"), &json!("b-1"), &json!("acme"))
    );
    assert!(shown["ended_at"].as_str() >= shown["created_at"].as_str());
    for limit in [1, 2, 1_000] {
        let lines = results(&mut acme, &job, "", limit);
        let told: Vec<_> =
            lines.iter().map(|line| (line["line"].as_u64().unwrap(), line["status"].as_str().unwrap())).collect();
        let expected =
            [(1, "REPLAY"), (2, "ACCEPTED"), (3, "REJECTED"), (4, "REJECTED"), (5, "ACCEPTED"), (6, "REJECTED")];
        assert_eq!(told, expected, "{limit}");
        assert!(lines.iter().all(|line| line.get("item").is_none()));
    }
    let rejected = results(&mut acme, &job, "status=REJECTED&include=item", 2);
    let items: Vec<&Value> = rejected.iter().map(|line| &line["item"]).collect();
    assert_eq!(items, [&json!({"source_id": "LB"}), &json!("no json"), &json!([1])]);
    assert_eq!(rejected[0]["reasons"][0]["pointer"], "/name");
    assert_eq!(acme.get("master/uoms/EA").ok(200)["source_version"], 4);
    assert_eq!(acme.get(&format!("jobs/{job}/results?status=REPLAY,ACCEPTED")).text().lines().count(), 3);
}

#[test]
fn json_and_lines_make_the_same_job() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let items = uoms(2_500);
    let answer = acme.send("master/uoms?mode=bulk", "b-1", &items).ok(202);
    assert_eq!(answer["accepted_items"], 2_500);
    let job = answer["job_id"].as_str().unwrap().to_owned();
    assert_eq!(answer["status_url"], format!("/wms-ingest/v1/jobs/{job}"));
    assert_eq!(ended(&mut acme, &job)["summary"]["accepted"], 2_500);
    let again = upload(&mut acme, "master/uoms", "b-2", &lines(&items));
    assert_ne!(again, job);
    assert_eq!(
        ended(&mut acme, &again)["summary"],
        json!({"accepted": 0, "replay": 2_500, "quarantined": 0, "rejected": 0})
    );
    let first: Vec<u64> = results(&mut acme, &job, "", 700).iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert!(first.iter().copied().eq(1..=2_500));
}

#[test]
fn results_of_large_items_are_paged_to_their_end() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let pad = "x".repeat(60 << 10);
    let items: Vec<Value> = (0..100).map(|number| json!({"source_id": format!("U-{number}"), "pad": pad})).collect();
    let job = upload(&mut acme, "master/uoms", "b-1", &lines(&items));
    assert_eq!(ended(&mut acme, &job)["summary"]["rejected"], 100);
    for (query, limit) in [("", 1), ("", 7), ("include=item", 1_000), ("status=ACCEPTED", 5)] {
        let numbers: Vec<u64> =
            results(&mut acme, &job, query, limit).iter().map(|line| line["line"].as_u64().unwrap()).collect();
        let expected = if query.starts_with("status") { 0 } else { 100 };
        assert!(numbers.iter().copied().eq(1..=expected), "{query} {limit}: {numbers:?}");
    }
}

#[test]
fn same_id_is_the_same_job_also_when_it_has_ended_and_another_body_is_refused() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let text = lines(&uoms(10));
    let first = acme.ask("POST", "master/uoms?mode=bulk", &as_lines("b-1"), text.as_bytes());
    first.ok(202);
    let job = first.json()["job_id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let again = acme.ask("POST", "master/uoms?mode=bulk", &as_lines("b-1"), text.as_bytes());
        assert_eq!((again.status, again.header("idempotency-replayed")), (202, Some("true")));
        assert_eq!(again.body, first.body);
        ended(&mut acme, &job);
    }
    let other =
        acme.ask("POST", "master/uoms?mode=bulk", &as_lines("b-1"), b"{}").problem(409, "correlation-id-reused");
    assert_eq!((&other["first"]["size"], &other["second"]["size"]), (&json!(text.len()), &json!(2)));
    acme.send("master/uoms", "b-1", &uoms(10)).problem(409, "correlation-id-reused");
    assert_eq!(acme.all("jobs", 1).len(), 1);
}

#[test]
fn items_that_a_job_put_in_quarantine_are_released_like_all_others() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let job = upload(&mut acme, "master/skus", "b-1", &lines(&[sku("S", "EA")]));
    assert_eq!(ended(&mut acme, &job)["summary"]["quarantined"], 1);
    let line = results(&mut acme, &job, "status=QUARANTINED&include=item", 10).remove(0);
    assert_eq!((&line["reason_code"], &line["item"]), (&json!("MISSING_DEPENDENCY"), &sku("S", "EA")));
    acme.accepted("master/uoms", &[uom("EA")]);
    let released = acme.release(line["quarantine_id"].as_str().unwrap(), "r-1").ok(200);
    assert_eq!(released["status"], "ACCEPTED");
    assert_eq!(results(&mut acme, &job, "", 10)[0]["status"], "QUARANTINED", "the status that it first got");
}

#[test]
fn dry_run_of_an_upload_changes_nothing_but_its_job() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("U-0"), 1)]);
    let path = "master/uoms?mode=bulk&dry_run=true";
    let answer = acme.ask("POST", path, "", body(&uoms(3)).as_bytes()).ok(202);
    assert_eq!(answer["dry_run"], true);
    let job = answer["job_id"].as_str().unwrap().to_owned();
    let shown = ended(&mut acme, &job);
    assert_eq!(
        (&shown["dry_run"], &shown["summary"]["accepted"], &shown["summary"]["replay"]),
        (&json!(true), &json!(2), &json!(1))
    );
    assert_eq!(results(&mut acme, &job, "", 10).len(), 3);
    acme.get("master/uoms/U-1").problem(404, "unknown-item");
    let skus = acme.ask("POST", "master/skus?mode=bulk&dry_run=true", "", body(&[sku("S", "EA")]).as_bytes()).ok(202);
    let skus = skus["job_id"].as_str().unwrap().to_owned();
    ended(&mut acme, &skus);
    assert_eq!(results(&mut acme, &skus, "", 10)[0].get("quarantine_id"), None);
    assert!(acme.waiting().is_empty());
}

#[test]
fn upload_that_is_no_list_of_items_leaves_nothing_and_its_id_is_free() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let mut long = lines(&uoms(5_000));
    let whole = body(&uoms(5_000));
    for (wrong, status, code) in [
        ("[]", 400, "malformed-request"),
        ("{}", 400, "malformed-request"),
        (&whole[..whole.len() - 2], 400, "malformed-request"),
        (r#"{"items":[],"partner_id":"globex"}"#, 403, "forbidden"),
    ] {
        acme.post("master/uoms?mode=bulk", "b-1", wrong).problem(status, code);
    }
    // Refused by their heads: such an answer ends the connection.
    let csv = format!("{}content-type: text/csv\r\n", correlation("b-1"));
    for (path, headers, status, code) in [
        ("master/units", &*correlation("b-1"), 404, "unknown-collection"),
        ("master/uoms", "", 400, "missing-header"),
        ("master/uoms", &csv, 415, "not-json"),
    ] {
        let path = format!("{path}?mode=bulk");
        Sender::acme(&server).ask("POST", &path, headers, whole.as_bytes()).problem(status, code);
    }
    assert!(acme.all("jobs", 10).is_empty());
    long.truncate(long.len() / 2);
    let job = upload(&mut acme, "master/uoms", "b-1", &long);
    assert_eq!(ended(&mut acme, &job)["summary"]["rejected"], 1, "the line that is cut off");
}

#[test]
fn upload_of_a_client_that_goes_away_is_no_job() {
    let server = dev();
    let half = lines(&uoms(20_000));
    let head =
        format!("authorization: Bearer dev-partner\r\n{}content-length: {}\r\n", as_lines("b-1"), 2 * half.len());
    let mut client = server.client("dev-partner").unjudging();
    client.begin("POST", "/wms-ingest/v1/master/uoms?mode=bulk", &head, half.as_bytes()).unwrap();
    drop(client);
    let mut acme = Sender::acme(&server);
    std::thread::sleep(Duration::from_millis(200));
    assert!(acme.all("jobs", 10).is_empty());
    acme.get("master/uoms/U-0").problem(404, "unknown-item");
    // The id is free.
    let job = upload(&mut acme, "master/uoms", "b-1", &lines(&uoms(1)));
    assert_eq!(ended(&mut acme, &job)["summary"]["accepted"], 1);
}

#[test]
fn upload_that_is_too_large_for_its_partner_leaves_nothing() {
    let server = dev_with("ingest: { upload_bytes_max: 100000 }");
    let (mut acme, mut globex) = (Sender::acme(&server), Sender::globex(&server));
    let too_large = lines(&uoms(5_000));
    assert!(too_large.len() > 100_000);
    let refused = acme.ask("POST", "master/uoms?mode=bulk", &as_lines("b-1"), too_large.as_bytes());
    assert!(refused.problem(413, "too-large")["detail"].as_str().unwrap().contains("upload_bytes_max"));
    for sender in [&mut acme, &mut globex] {
        // A refused upload is not counted any more.
        until("there is room", || {
            let small = lines(&uoms(1_000));
            let answer = sender.ask("POST", "master/uoms?mode=bulk", &as_lines("b-1"), small.as_bytes());
            (answer.status == 202).then_some(())
        });
        assert_eq!(sender.all("jobs", 10).len(), 1);
    }
}

fn see(server: &Server, token: &str, path: &str) -> u16 {
    Sender::new(server, token).get(path).status
}

#[test]
fn jobs_are_seen_by_their_partner_and_by_operators_alone() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let job = upload(&mut acme, "master/uoms", "b-1", &lines(&uoms(3)));
    ended(&mut acme, &job);
    let mut globex = Sender::globex(&server);
    for path in [format!("jobs/{job}"), format!("jobs/{job}/results")] {
        globex.get(&path).problem(404, "unknown-job");
        assert_eq!(see(&server, "dev-admin", &format!("{path}?tenant=acme")), 200);
        assert_eq!(see(&server, "dev-admin", &format!("{path}?tenant=globex")), 404);
    }
    globex.post(&format!("jobs/{job}/cancel"), "x", "").problem(404, "unknown-job");
    assert!(globex.all("jobs", 10).is_empty());
    for wrong in ["job_", "job_00", "x", &format!("{job}0")] {
        acme.get(&format!("jobs/{wrong}")).problem(404, "unknown-job");
    }
    acme.get("jobs?status=DONE").problem(400, "malformed-request");
    acme.get(&format!("jobs/{job}/results?status=DONE")).problem(400, "malformed-request");
    acme.get(&format!("jobs/{job}/results?include=all")).problem(400, "malformed-request");
    acme.get(&format!("jobs/{job}/results?after=x")).problem(404, "unknown-cursor");
}

#[test]
fn jobs_are_listed_the_newest_first() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let mut made: Vec<String> = (0..5)
        .map(|number| {
            std::thread::sleep(Duration::from_millis(2));
            upload(&mut acme, "master/uoms", &format!("b-{number}"), &lines(&uoms(number)))
        })
        .collect();
    for job in &made {
        assert_eq!(ended(&mut acme, job)["status"], "COMPLETED", "also the one without items");
    }
    made.reverse();
    for limit in [1, 2, 100] {
        let listed = acme.all("jobs?status=COMPLETED", limit);
        let listed: Vec<&str> = listed.iter().map(|job| job["job_id"].as_str().unwrap()).collect();
        assert_eq!(listed, made, "{limit}");
    }
    assert!(acme.all("jobs?status=FAILED", 10).is_empty());
}
