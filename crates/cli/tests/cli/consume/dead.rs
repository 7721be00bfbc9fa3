//! Messages that nobody can handle.

use rdkafka::{Message, message::Headers};

use super::{
    super::dispatch::receiver::Say,
    scene::{Scene, body},
};

#[test]
fn poison_goes_to_the_dead_letters_and_its_partition_goes_on() {
    let scene = Scene::new(1);
    scene.handler.script(|one| match body(one).as_str() {
        "refused" => Say::Status(422),
        "busy" => Say::Status(429),
        _ => Say::Status(200),
    });
    for (id, body) in [("d-1", "fine"), ("d-2", "refused"), ("d-3", "busy"), ("d-1", "other body"), ("d-5", "last")] {
        scene.produce(0, "k", Some(id), body);
    }
    scene.flush();
    let mut command = scene.consumer();
    command.args(["--attempts-max", "3"]);
    let consumer = scene.start(command);
    scene.until_committed(0, 5);
    assert_eq!(
        scene.handler.heard().iter().map(body).collect::<Vec<_>>(),
        ["fine", "refused", "busy", "busy", "busy", "last"]
    );
    let letters = scene.dead(3);
    let told: Vec<[&str; 5]> = letters
        .iter()
        .map(|(headers, body)| {
            let header = |name: &str| headers[&format!("fencepost-{name}")].as_str();
            [header("dead-reason"), header("topic"), header("offset"), header("attempts"), body]
        })
        .collect();
    assert_eq!(
        told,
        [
            ["permanent", "orders", "1", "1", "refused"],
            ["attempts", "orders", "2", "3", "busy"],
            ["conflict", "orders", "3", "0", "other body"],
        ]
    );
    assert_eq!(letters[0].0["fencepost-dead-detail"], "the handler answered 422: said 422");
    assert_eq!(letters[0].0["dedupe-id"], "d-2", "what the record said is still there");

    // A consumer that has lost its offsets gets everything again, and neither handles nor buries it again.
    assert!(consumer.stop().0.success());
    let mut again = scene.consumer_of("billing-2");
    again.args(["--tenant", "queue:billing"]);
    let again = scene.start(again);
    again.until_said("orders/0/4");
    assert!(again.stop().1.contains(r#""sealed":0,"replayed":5,"redelivered":0"#));
    assert_eq!((scene.handler.count(), scene.dead(3).len()), (6, 3));
}

#[test]
fn a_redirect_is_neither_followed_nor_tried_again() {
    let scene = Scene::new(1);
    scene.handler.script(|one| match body(one).as_str() {
        "p0-0000" => Say::With(302, "location: /elsewhere\r\n".to_owned()),
        "p0-0001" => Say::With(303, "location: /elsewhere\r\nfencepost-outcome: applied\r\n".to_owned()),
        _ => Say::Status(200),
    });
    scene.fill(0, 3);
    let consumer = scene.start(scene.consumer());
    scene.until_committed(0, 3);
    assert_eq!(scene.handler.count(), 3);
    assert_eq!(scene.dead(1)[0].0["fencepost-dead-reason"], "permanent");
    assert!(consumer.stop().1.contains(r#""sealed":3,"replayed":0,"redelivered":0,"dead":1,"#));
}

#[test]
fn a_message_that_is_always_unknown_is_tried_as_often_as_it_may_be_and_then_dead() {
    let scene = Scene::new(1);
    scene.handler.script(|one| if body(one) == "p0-0000" { Say::Status(500) } else { Say::Status(200) });
    scene.fill(0, 2);
    let mut command = scene.consumer();
    command.args(["--attempts-max", "2"]);
    let _consumer = scene.start(command);
    scene.until_committed(0, 2);
    assert_eq!(scene.effects(), ["p0-0000", "p0-0001"]);
    assert_eq!(scene.handler.count(), 3);
    assert_eq!(scene.dead(1)[0].0["fencepost-attempts"], "2");
}

#[test]
fn a_message_whose_letter_cannot_be_sent_stays_where_it_is() {
    let scene = Scene::new(1);
    scene.handler.script(|one| if body(one) == "p0-0000" { Say::Status(422) } else { Say::Status(200) });
    scene.fill(0, 2);
    let mut command = scene.consumer();
    // A name that no topic may have.
    command.args(["--dead-letter", "no such topic!"]);
    let consumer = scene.start(command);
    consumer.until_said("could not be sent away");
    assert_eq!((scene.committed(0), scene.effects().len()), (0, 1));
    assert!(consumer.stop().0.success());
    let consumer = scene.start(scene.consumer());
    scene.until_committed(0, 2);
    assert_eq!(scene.dead(1)[0].1, "p0-0000");
    drop(consumer);
}

#[test]
fn a_letter_that_is_copied_back_is_new_to_who_buried_it_each_time_it_dies_and_to_nobody_else() {
    let scene = Scene::new(1);
    let mut refusals = 2;
    scene.handler.script(move |_| {
        let refused = refusals > 0;
        refusals -= i32::from(refused);
        Say::Status(if refused { 422 } else { 200 })
    });
    scene.produce(0, "k", None, "poison");
    scene.flush();
    let billing = scene.start(scene.consumer());
    for died in [1, 2] {
        let letter = &scene.letters(died)[died - 1];
        let headers: Vec<_> = letter.headers().unwrap().iter().collect();
        let said = |name: &str| -> Vec<&[u8]> {
            headers.iter().filter(|one| one.key == name).map(|one| one.value.unwrap()).collect()
        };
        for (name, expected) in [
            ("fencepost-tenant", "queue:billing"),
            ("fencepost-offset", &(died - 1).to_string()),
            ("fencepost-first-offset", "0"),
        ] {
            assert_eq!(said(name), [expected.as_bytes()], "{name}");
        }
        assert_eq!((headers.len(), said("idempotency-key").len()), (9, 1));
        scene.copy_back(letter);
        scene.until_committed(0, died as i64 + 1);
    }
    // Somebody copies the last one again.
    scene.copy_back(&scene.letters(2)[1]);
    scene.until_committed(0, 4);
    assert_eq!(scene.handler.count(), 3);
    assert!(billing.stop().1.contains(r#""sealed":3,"replayed":1,"redelivered":0,"dead":2,"#));

    let mail = scene.start(scene.consumer_of("mail"));
    mail.until_said("orders/0/3");
    assert!(mail.stop().1.contains(r#""sealed":1,"replayed":3,"redelivered":0,"dead":0,"#));
    assert_eq!(scene.handler.count(), 4);
}

#[test]
fn a_dead_tombstone_is_a_tombstone_among_the_letters_and_when_it_is_copied_back() {
    let scene = Scene::new(1);
    scene.handler.script(|one| Say::Status(if one.header("fencepost-offset") == Some("0") { 422 } else { 200 }));
    scene.produce_tombstone(0, "k");
    let _consumer = scene.start(scene.consumer());
    let letter = scene.letters(1).remove(0);
    assert_eq!(letter.payload(), None);
    scene.copy_back(&letter);
    scene.until_committed(0, 2);
    assert_eq!(scene.handler.nth(2).header("fencepost-tombstone"), Some("true"));
}
