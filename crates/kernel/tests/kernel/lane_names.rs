//! The addresses and names of lanes, which stores, backups and people hold: they never change.

use std::collections::BTreeSet;

use fencepost_kernel::{
    LaneId, RowKey, Tenant,
    lane::{Place, Purpose},
};

#[test]
fn addresses_and_names_of_lanes_are_as_every_release_has_written_them() {
    let acme = Tenant::new("acme");
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lanes = [
        (Place::warehouse("WH-1"), 1, "acme:WH-1", "758089468e9b25bc3a1cdc768038ed680b1f297e1c8e9d67"),
        (Place::executor("dev-wes"), 2, "acme:poll:dev-wes", "758089468e9b25bc4f1263c02514e2b9f7584c7344829643"),
    ];
    for (place, number, name, address) in lanes {
        assert_eq!((place.purpose.number, place.name(&acme).as_str()), (number, name));
        assert_eq!(place.lane(&acme).to_string(), address);
    }
    assert_eq!(LaneId::warehouse(&acme, "WH-1"), Place::warehouse("WH-1").lane(&acme));
    assert_eq!(LaneId::executor(&acme, "dev-wes"), Place::executor("dev-wes").lane(&acme));
    let route = RowKey::route(&acme, "WH-1").id;
    assert_eq!(hex(&route), "758089468e9b25bc8f020c3bc99d2f63b1d7dd508ce072270000000000000000");
}

#[test]
fn no_two_purposes_of_lanes_share_a_number_a_word_or_a_prefix() {
    let purposes = Purpose::all().count();
    assert_eq!(Purpose::all().map(|purpose| purpose.number).collect::<BTreeSet<_>>().len(), purposes);
    assert_eq!(Purpose::all().map(|purpose| purpose.word).collect::<BTreeSet<_>>().len(), purposes);
    assert_eq!(Purpose::all().map(|purpose| purpose.prefix).collect::<BTreeSet<_>>().len(), purposes);
    // The address of a transport's row is made as that of a lane is.
    assert!(Purpose::all().all(|purpose| purpose.word != "route"));
    for purpose in Purpose::all() {
        assert_eq!(Purpose::from_number(purpose.number), Some(purpose));
    }
}
