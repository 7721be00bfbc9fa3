//! Who comes in: development identities, expiry, several credentials at once.

use super::identity::{Directory, Role, Sha, Warehouses};
use super::*;

#[test]
fn the_dev_identities_are_those_on_the_wire() {
    let directory = Directory::dev();
    for (token, id, roles) in [
        ("dev-admin", "dev-admin", &[Role::Admin][..]),
        ("dev-planner", "fgai-wms", &[Role::Planner]),
        ("dev-executor", "dev-wes", &[Role::Executor, Role::Partner]),
        ("dev-partner", "acme", &[Role::Partner]),
        ("dev-partner-2", "globex", &[Role::Partner]),
    ] {
        let identity = directory.authenticate(token, 0).unwrap();
        assert_eq!(identity.id, id);
        assert_eq!(identity.roles.iter().copied().collect::<Vec<_>>(), roles);
        assert_eq!(identity.warehouses, Warehouses::All);
    }
    assert_eq!(directory.tenants(), ["acme", "dev-wes", "fgai-wms", "globex"]);
    for token in ["", "dev", "dev-partner-3", "Dev-admin", "dev-admin "] {
        assert!(directory.authenticate(token, 0).is_none(), "{token:?}");
    }
}

#[test]
fn a_credential_counts_until_it_expires_and_several_count_at_once() {
    let (one, two) = (Sha::of("fp_one").hex(), Sha::of("fp_two").hex());
    let text = format!(
        "identities: [{{id: acme, roles: [partner], credentials: [{one}, {{sha256: {two}, expires: \"1970-01-01T00:00:02Z\"}}], certificates: [{{sha256: {}, expires: \"1970-01-01T00:00:03Z\"}}]}}]",
        "c".repeat(64)
    );
    let directory = Directory::load(&policy(&text), None).unwrap();
    let known = |token: &str, now: u64| directory.authenticate(token, now).is_some();
    assert!(known("fp_one", 0) && known("fp_one", u64::MAX));
    assert!(known("fp_two", 1_999) && !known("fp_two", 2_000));
    assert!(!known(&one, 0), "a hash is not a token");
    let thumbprint = ["CC"; 32].join(":");
    assert_eq!(directory.by_thumbprint(&thumbprint, 2_999).unwrap().id, "acme");
    assert!(directory.by_thumbprint(&thumbprint, 3_000).is_none());
    assert!(directory.by_thumbprint("cc", 0).is_none());
    assert!(directory.authenticate(&thumbprint, 0).is_none());
}

#[test]
fn a_directory_without_credentials_is_empty() {
    assert!(Directory::load(&Policy::builtin(), None).unwrap().is_empty());
    assert!(!Directory::dev().is_empty());
}
