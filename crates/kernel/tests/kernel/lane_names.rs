//! The addresses and names of lanes, which stores, backups and people hold: they never change.

use std::collections::BTreeSet;

use fencepost_kernel::{
    LaneId, RowKey, Tenant,
    lane::{LaneKind, LanePurpose},
};

#[test]
fn addresses_and_names_of_lanes_are_as_every_release_has_written_them() {
    let acme = Tenant::new("acme");
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lanes = [
        (LanePurpose::warehouse("WH-1"), 1, "acme:WH-1", "758089468e9b25bc3a1cdc768038ed680b1f297e1c8e9d67"),
        (LanePurpose::executor("dev-wes"), 2, "acme:poll:dev-wes", "758089468e9b25bc4f1263c02514e2b9f7584c7344829643"),
    ];
    for (purpose, number, name, address) in lanes {
        assert_eq!((purpose.kind.number, purpose.name(&acme).as_str()), (number, name));
        assert_eq!(purpose.lane(&acme).to_string(), address);
    }
    assert_eq!(LaneId::warehouse(&acme, "WH-1"), LanePurpose::warehouse("WH-1").lane(&acme));
    assert_eq!(LaneId::executor(&acme, "dev-wes"), LanePurpose::executor("dev-wes").lane(&acme));
    let transport = RowKey::transport(&acme, "WH-1").id;
    assert_eq!(hex(&transport), "758089468e9b25bc8f020c3bc99d2f63b1d7dd508ce072270000000000000000");
}

#[test]
fn no_two_kinds_of_lanes_share_a_number_a_word_or_a_prefix() {
    let kinds = LaneKind::all().count();
    assert_eq!(LaneKind::all().map(|kind| kind.number).collect::<BTreeSet<_>>().len(), kinds);
    assert_eq!(LaneKind::all().map(|kind| kind.word).collect::<BTreeSet<_>>().len(), kinds);
    assert_eq!(LaneKind::all().map(|kind| kind.prefix).collect::<BTreeSet<_>>().len(), kinds);
    // The address of a transport's row is made as that of a lane is.
    assert!(LaneKind::all().all(|kind| kind.word != "route"));
    for kind in LaneKind::all() {
        assert_eq!(LaneKind::from_number(kind.number), Some(kind));
    }
}
