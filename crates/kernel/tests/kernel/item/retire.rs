//! Items that are deleted, cancelled or left out of a complete list; and those that come back.

use fencepost_kernel::item::{ChangeVerdict, Retirement};

use super::desk::{Desk, check, check_unchanged};

#[test]
fn retired_item_counts_no_more_and_keeps_its_version() {
    check(&[
        ("a@3", "delete a", "INACTIVE", "3 deleted"),
        ("a@3", "cancel a", "CANCELLED", "3 cancelled"),
        ("a@3", "unlist a", "INACTIVE", "3 unlisted"),
        ("a", "delete a", "INACTIVE", "unversioned deleted"),
        ("a@3; a", "delete a", "INACTIVE", "unversioned deleted after 3 floor 3"),
        ("a@3; unlist a", "delete a", "INACTIVE", "3 deleted"),
        ("a@3; unlist a", "cancel a", "CANCELLED", "3 cancelled"),
        ("", "a@3 + delete a", "ACCEPTED + INACTIVE", "3 deleted"),
    ]);
}

#[test]
fn item_that_is_retired_already_is_answered_as_such_and_stays_as_it_is() {
    check_unchanged(&[
        ("a@3; delete a", "delete a", "INACTIVE again"),
        ("a@3; cancel a", "cancel a", "CANCELLED again"),
        ("a@3; unlist a", "unlist a", "INACTIVE again"),
        // Its sender's word counts more than its absence from a list.
        ("a@3; delete a", "unlist a", "INACTIVE again"),
    ]);
}

#[test]
fn item_that_is_unknown_is_not_retired_and_nothing_of_its_command_is_written() {
    check_unchanged(&[
        ("", "delete a", "no_such_item"),
        ("", "cancel a", "no_such_item"),
        // It is only waited for.
        ("b@1 needs a", "delete a", "no_such_item"),
        // Its stay in quarantine is over.
        ("a@1 needs b; delete a", "delete a", "no_such_item"),
        ("", "b@1 + delete a", "no_such_item"),
    ]);
}

#[test]
fn open_quarantine_is_withdrawn_with_its_item() {
    check(&[
        ("a@1 needs b", "delete a", "WITHDRAWN", "none, 1 withdrawn"),
        ("a@1 needs b", "cancel a", "WITHDRAWN", "none, 1 withdrawn"),
        ("a@1; a@2 needs b", "delete a", "INACTIVE", "1 deleted, 2 withdrawn"),
        ("a@1; a@2 needs b", "unlist a", "INACTIVE", "1 unlisted, 2 withdrawn"),
        ("a@1; delete a; a@2 needs b", "delete a", "INACTIVE", "1 deleted, 2 withdrawn"),
        // Its deletion stays one.
        ("a@1; delete a; a@2 needs b", "unlist a", "INACTIVE", "1 deleted, 2 withdrawn"),
        ("", "a@1 needs b + delete a", "QUARANTINED for b + WITHDRAWN", "none, 1 withdrawn"),
        // Nothing was accepted, so any version may come.
        ("a@3 needs b; delete a", "a@1", "ACCEPTED", "1, 3 withdrawn"),
    ]);
    let mut desk = Desk::after("a@1 needs b; c@1 needs b");
    let verdicts = desk.verdicts("delete a");
    let ChangeVerdict::Retired { cause: Retirement::Deleted, replay: false, withdrawn: true, .. } = verdicts[0] else {
        panic!("{verdicts:?}")
    };
    assert_eq!(desk.waiting(), "c for b");
}

#[test]
fn deleted_item_comes_back_with_a_higher_version_or_none_only() {
    check(&[
        ("a@3; delete a", "a@3", "REPLAY", "3 deleted"),
        ("a@3; cancel a", "a@3", "REPLAY", "3 cancelled"),
        ("a@3; delete a", "a@2", "REPLAY", "3 deleted"),
        ("a@3; delete a", "a@4", "ACCEPTED", "4 after 3"),
        ("a@3; delete a", "a", "ACCEPTED", "unversioned after 3 floor 3"),
        ("a; delete a", "a", "ACCEPTED", "unversioned after unversioned"),
        ("a@3; unlist a; delete a", "a@3", "REPLAY", "3 deleted"),
        ("a@3; a; delete a", "a@3", "REPLAY", "unversioned deleted after 3 floor 3"),
    ]);
}

#[test]
fn unlisted_item_comes_back_at_its_own_version_and_is_told_to() {
    check(&[
        ("a@3; unlist a", "a@3", "ACCEPTED reactivated", "3 after 3"),
        ("a@3; unlist a", "a@3=other", "ACCEPTED reactivated", "3 after 3"),
        ("a@1.0; unlist a", "a@1.0.0", "ACCEPTED reactivated", "1.0.0 after 1.0"),
        ("a; unlist a", "a", "ACCEPTED reactivated", "unversioned after unversioned"),
        ("a@3; unlist a", "a@2", "REPLAY", "3 unlisted"),
        // Another version is a new one.
        ("a@3; unlist a", "a@4", "ACCEPTED", "4 after 3"),
        ("a@3; unlist a", "a", "ACCEPTED", "unversioned after 3 floor 3"),
        ("a; unlist a", "a@1", "ACCEPTED", "1 after unversioned"),
        ("a@3; a; unlist a", "a@3", "REPLAY", "unversioned unlisted after 3 floor 3"),
        ("a@3; a; unlist a", "a", "ACCEPTED reactivated", "unversioned after 3,unversioned floor 3"),
        ("a@3; unlist a", "a@3 needs b", "QUARANTINED for b", "3 unlisted, open 3 for b"),
        ("a@3; unlist a; a@4 needs b", "a@3", "ACCEPTED reactivated", "3 after 3, open 4 for b"),
        ("a@3; unlist a; a@3", "a@3", "REPLAY", "3 after 3"),
    ]);
}
