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

#[test]
fn another_policy_comes_into_force_whole_or_not_at_all() {
    let with = |id: &str, token: &str| {
        let sha = Sha::of(token).hex();
        policy(&format!("identities: [{{id: {id}, roles: [partner], credentials: [{sha}]}}]"))
    };
    let dir = tempfile::tempdir().unwrap();
    let file = crate::policy::credentials::Credentials::in_dir(dir.path());
    let partner = identity::Identity::new("globex", [Role::Partner], Warehouses::Named(Default::default()));
    let kept = file.create(partner, None, 0).unwrap().token;
    let directory = Directory::load(&with("acme", "one"), Some(file.path())).unwrap();
    let known = |token: &str| directory.authenticate(token, 0).map(|identity| identity.id.clone());
    let prepared = directory.prepare(&with("acme", "two")).unwrap().unwrap();
    assert!(known("one").is_some() && known("two").is_none(), "prepared is not in force");
    directory.adopt(prepared);
    assert_eq!((known("one"), known("two").as_deref(), known(&kept).as_deref()), (None, Some("acme"), Some("globex")));
    // What the credentials file says later goes beside the new policy, not beside the old.
    file.revoke("globex", 0).unwrap();
    directory.refresh().unwrap();
    assert_eq!((known("one"), known("two").as_deref(), known(&kept)), (None, Some("acme"), None));
    let nobody = directory.prepare(&Policy::builtin()).unwrap_err();
    assert_eq!(nobody[0].rule, "nobody");
    assert!(Directory::dev().prepare(&Policy::builtin()).unwrap().is_none(), "--dev has its own");
}
