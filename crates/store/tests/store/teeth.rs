//! The suite itself is tested: stores that break one law each must fail that law, and only that one.

use fencepost_store::conformance::laws;
use futures::executor::block_on;

use super::flawed::{Bench, Flaw};

fn broken_laws(flaw: Flaw) -> Vec<&'static str> {
    let broken = laws().into_iter().filter(|law| block_on(law.check(&mut Bench::new(flaw))).is_err());
    broken.map(|law| law.name).collect()
}

#[test]
fn a_sound_store_breaks_no_law() {
    assert_eq!(broken_laws(Flaw::None), [""; 0]);
}

#[test]
fn a_torn_write_breaks_atomic() {
    assert_eq!(broken_laws(Flaw::TornWrite), ["atomic"]);
}

#[test]
fn writing_without_comparing_breaks_moved() {
    assert_eq!(broken_laws(Flaw::NoCompareAndSet), ["moved", "doubts"]);
}

#[test]
fn making_neighbours_suffer_breaks_moved() {
    assert_eq!(broken_laws(Flaw::AllOrNobody), ["moved"]);
}

#[test]
fn recalling_what_has_changed_breaks_fresh() {
    assert_eq!(broken_laws(Flaw::StaleMemory), ["fresh"]);
}

#[test]
fn a_stale_read_breaks_fresh() {
    assert_eq!(broken_laws(Flaw::StaleRead), ["fresh"]);
}

#[test]
fn forgetting_an_acknowledged_commit_breaks_durable() {
    assert_eq!(broken_laws(Flaw::ForgetsAcknowledged), ["durable"]);
}

#[test]
fn taking_a_repetition_for_a_stranger_breaks_repeatable() {
    assert_eq!(broken_laws(Flaw::NotRepeatable), ["repeatable"]);
}

#[test]
fn dropping_rows_before_their_expiry_breaks_patient() {
    assert_eq!(broken_laws(Flaw::VanishesEarly), ["patient"]);
}

#[test]
fn a_due_list_out_of_order_breaks_due() {
    assert_eq!(broken_laws(Flaw::DueOutOfOrder), ["due"]);
}

#[test]
fn finding_only_fences_that_are_due_breaks_due() {
    assert_eq!(broken_laws(Flaw::DueKnowsFencesOnly), ["due"]);
}

#[test]
fn taking_what_is_due_of_one_kind_for_another_breaks_due() {
    assert_eq!(broken_laws(Flaw::DueMixesKinds), ["due"]);
}

#[test]
fn a_page_that_misses_a_row_breaks_range() {
    assert_eq!(broken_laws(Flaw::RangeSkips), ["range"]);
}

#[test]
fn a_page_that_goes_past_its_prefix_breaks_range() {
    assert_eq!(broken_laws(Flaw::RangeGoesPastItsPrefix), ["range"]);
}

#[test]
fn counting_positions_anew_in_every_commit_breaks_ordered() {
    assert_eq!(broken_laws(Flaw::CountsFromOneInEveryCommit), ["ordered"]);
}

#[test]
fn a_position_that_a_moved_set_takes_breaks_ordered() {
    assert_eq!(broken_laws(Flaw::MovedTakesAPosition), ["ordered"]);
}

#[test]
fn writing_although_a_held_row_has_moved_breaks_ordered() {
    assert_eq!(broken_laws(Flaw::HeldIgnored), ["ordered"]);
}

#[test]
fn adding_to_what_was_there_before_the_commit_breaks_merged() {
    assert_eq!(broken_laws(Flaw::LosesAdditions), ["merged"]);
}

#[test]
fn adding_again_when_a_set_is_repeated_breaks_merged() {
    assert_eq!(broken_laws(Flaw::AddsAgainWhenRepeated), ["merged"]);
}

#[test]
fn adding_for_a_set_that_moved_breaks_merged() {
    assert_eq!(broken_laws(Flaw::MovedAdds), ["merged"]);
}

#[test]
fn writing_the_rest_of_a_set_whose_sum_is_too_large_breaks_merged() {
    assert_eq!(broken_laws(Flaw::OverflowWritesTheRest), ["merged"]);
}

#[test]
fn dropping_the_mark_of_a_doubt_breaks_doubts() {
    assert_eq!(broken_laws(Flaw::DropsDoubts), ["doubts"]);
}

#[test]
fn a_store_of_single_rows_that_refuses_several_breaks_no_law() {
    assert_eq!(broken_laws(Flaw::Alone), [""; 0]);
}

#[test]
fn taking_several_rows_without_keeping_them_together_breaks_atomic() {
    assert_eq!(broken_laws(Flaw::TakesMoreThanItPromises), ["atomic"]);
}
