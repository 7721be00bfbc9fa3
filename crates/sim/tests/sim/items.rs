//! Bugs about items that are built in on purpose: each is caught by the promise that it breaks.

use fencepost_sim::plant::Plant;

use crate::caught;

#[test]
fn older_version_that_overwrites_a_newer_one_is_caught() {
    caught(Plant::OlderOverwrites, &["item-order"]);
}

#[test]
fn quarantine_that_is_released_twice_is_caught() {
    caught(Plant::ReleasedTwice, &["released-twice"]);
}

#[test]
fn reference_that_arrives_in_the_same_moment_and_is_missed_is_caught() {
    caught(Plant::ArrivalUnseen, &["missed-arrival"]);
}

#[test]
fn arrival_that_is_not_kept_is_caught() {
    caught(Plant::ArrivalForgotten, &["missed-arrival"]);
}

#[test]
fn items_without_the_fence_of_their_request_are_caught() {
    caught(Plant::TornRequest, &["torn-request"]);
    caught(Plant::TornRequest, &["lost-answer"]);
}

#[test]
fn replaced_version_that_is_not_kept_is_caught() {
    caught(Plant::HistoryForgotten, &["item-history"]);
}

#[test]
fn dry_run_that_changes_something_is_caught() {
    caught(Plant::TrialWrites, &["dry-run"]);
}
