//! Cursors: a position goes out and comes back, and nothing else is taken for one.

use fencepost_kernel::{
    LaneId, Tenant,
    lane::cursor::{CursorKey, read, write},
};
use proptest::prelude::*;

use super::world::cases;

fn lane(name: &str) -> LaneId {
    LaneId::executor(&Tenant::new("acme"), name)
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_cursor_comes_back_as_the_position_it_was_made_of(key: [u8; 32], id: [u8; 24], seq: u64) {
        let key = CursorKey(key);
        prop_assert_eq!(read(&key, 3, &write(&key, 3, LaneId(id), seq)), Some((LaneId(id), seq)));
    }

    #[test]
    fn a_cursor_with_any_other_character_anywhere_is_refused(key: [u8; 32], seq: u64, other in "[0-9a-fA-Fg/ +]") {
        let key = CursorKey(key);
        let text = write(&key, 3, lane("wes"), seq);
        for at in (0..text.len()).filter(|at| text[*at..=*at] != other) {
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, &other);
            prop_assert_eq!(read(&key, 3, &damaged), None, "{} at {}", other, at);
        }
    }

    #[test]
    fn a_cursor_under_another_key_is_refused(key: [u8; 32], seq: u64, byte in 0..32usize, flip in 1..=255u8) {
        let text = write(&CursorKey(key), 3, lane("wes"), seq);
        let mut other = key;
        other[byte] ^= flip;
        prop_assert_eq!(read(&CursorKey(other), 3, &text), None);
    }

    #[test]
    fn a_cursor_of_another_epoch_is_refused(key: [u8; 32], seq: u64, epoch: u64, other: u64) {
        prop_assume!(epoch != other);
        let text = write(&CursorKey(key), epoch, lane("wes"), seq);
        prop_assert_eq!(read(&CursorKey(key), other, &text), None);
    }

    #[test]
    fn no_other_text_is_a_cursor(text in "\\PC{0,120}") {
        prop_assert_eq!(read(&CursorKey([7; 32]), 3, &text), None);
    }
}

#[test]
fn a_cursor_that_is_cut_lengthened_or_in_capitals_is_refused() {
    let key = CursorKey([7; 32]);
    let text = write(&key, 3, lane("wes"), 0xabc);
    for end in 0..text.len() {
        assert_eq!(read(&key, 3, &text[..end]), None, "cut to {end}");
    }
    assert_eq!(read(&key, 3, &format!("{text}0")), None);
    assert_eq!(read(&key, 3, &text.to_uppercase()), None);
    assert_eq!(read(&key, 3, &format!(" {text}")), None);
}

#[test]
fn cursors_of_two_lanes_or_two_positions_differ() {
    let key = CursorKey([7; 32]);
    assert_ne!(write(&key, 3, lane("one"), 1), write(&key, 3, lane("two"), 1));
    assert_ne!(write(&key, 3, lane("one"), 1), write(&key, 3, lane("one"), 2));
}
