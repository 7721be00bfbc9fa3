//! Every law against every store of this crate.

use fencepost_store::conformance::{Harness, laws};
use futures::executor::block_on;

use super::{
    harness::{End, Forgetful, OnDisk},
    postgres_rig::OnServer,
    redis_rig::{Single, Six},
};

fn obeys(law: &str, mut harness: impl Harness) {
    let law = laws().into_iter().find(|known| known.name == law).unwrap();
    if let Err(violation) = block_on(law.check(&mut harness)) {
        panic!("{}: {violation}", law.name);
    }
}

macro_rules! each_law {
    ($($law:ident)*) => {
        #[test]
        fn every_law_has_its_tests() {
            assert_eq!(laws().map(|law| law.name).as_slice(), [$(stringify!($law)),*]);
        }

        mod memory_obeys { $(#[test] fn $law() { super::obeys(stringify!($law), super::Forgetful::new()); })* }

        mod embedded_obeys_when_killed {
            $(#[test] fn $law() { super::obeys(stringify!($law), super::OnDisk::new(super::End::Killed)); })*
        }

        mod embedded_obeys_when_closed {
            $(#[test] fn $law() { super::obeys(stringify!($law), super::OnDisk::new(super::End::Closed)); })*
        }

        mod postgres_obeys { $(#[test] fn $law() { super::obeys(stringify!($law), super::OnServer::new()); })* }

        mod redis_obeys { $(#[test] fn $law() { super::obeys(stringify!($law), super::Single::new()); })* }
    };
}

each_law! { atomic moved fresh durable repeatable patient ordered merged due range doubts }

// A cluster takes seconds to start and to restart: one for all laws.
fn obeys_every_law(mut harness: impl Harness) {
    for law in laws() {
        if let Err(violation) = block_on(law.check(&mut harness)) {
            panic!("{}: {violation}", law.name);
        }
    }
}

#[test]
fn a_redis_cluster_with_everything_in_one_slot_obeys_every_law() {
    obeys_every_law(Six::new("&slots=one"));
}

#[test]
fn a_redis_cluster_with_rows_spread_over_it_obeys_every_law() {
    obeys_every_law(Six::new(""));
}
