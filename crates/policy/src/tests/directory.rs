//! Credentials: development identities, expiry, several at once.

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
        ("dev-viewer", "dev-viewer", &[Role::Viewer]),
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
fn an_executor_serves_the_planners_that_it_names_and_no_others() {
    let text = "identities:\n  - {id: wes, roles: [executor], warehouses: all, planners: [wms, wms-2]}\n  \
                - {id: idle, roles: [executor], warehouses: all}\n  - {id: acme, roles: [partner]}\n";
    let directory = Directory::load(&policy(text), None).unwrap();
    for (executor, planner, serves) in [
        ("wes", "wms", true),
        ("wes", "wms-2", true),
        ("wes", "other", false),
        ("idle", "wms", false),
        ("acme", "wms", false),
        ("nobody", "wms", false),
    ] {
        assert_eq!(directory.serves(executor, planner), serves, "{executor} {planner}");
    }
    assert_eq!(directory.executors_of("wms"), ["wes"]);
    assert!(directory.executors_of("other").is_empty());
    let dev = Directory::dev();
    assert!(dev.serves("dev-wes", "fgai-wms") && dev.serves("anybody", "anyone"));
    assert_eq!(dev.executors_of("fgai-wms"), ["dev-wes"]);
}

#[test]
fn planners_that_differ_between_policy_and_credentials_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = crate::credentials::Credentials::in_dir(dir.path());
    let serving = |planner: &str| {
        let planners = identity::Planners::Named([planner.to_owned()].into());
        identity::Identity::new("wes", [Role::Executor], Warehouses::All).serving(planners)
    };
    let token = file.create(serving("wms"), None, 0).unwrap().token;
    let with = |planner: &str| {
        policy(&format!("identities: [{{id: wes, roles: [executor], warehouses: all, planners: [{planner}]}}]"))
    };
    let refused = Directory::load(&with("other"), Some(file.path())).unwrap_err();
    assert!(refused[0].rule == "identity-differs" && refused[0].message.contains("planners"), "{refused:?}");
    let directory = Directory::load(&with("wms"), Some(file.path())).unwrap();
    assert!(directory.authenticate(&token, 0).is_some());
    // Where the file comes to differ later, its credentials count no more, and the policy's list stands.
    file.serve("wes", identity::Planners::Named(["other".to_owned()].into()), 0).unwrap();
    assert!(matches!(directory.refresh().unwrap(), identity::Refresh::Partly(_)));
    assert_eq!(directory.refresh().unwrap(), identity::Refresh::Same, "told once");
    assert!(directory.authenticate(&token, 0).is_none());
    assert!(directory.serves("wes", "wms") && !directory.serves("wes", "other"));
}

#[test]
fn a_damaged_credentials_file_is_told_of_once_until_it_or_its_fault_changes_and_when_it_is_mended() {
    use identity::Refresh;
    let dir = tempfile::tempdir().unwrap();
    let file = crate::credentials::Credentials::in_dir(dir.path());
    let partner = || identity::Identity::new("globex", [Role::Partner], Warehouses::All);
    let token = file.create(partner(), None, 0).unwrap().token;
    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    let good = std::fs::read(file.path()).unwrap();
    for damaged in ["identities: [", "identities: {", "identities: 5 # longer"] {
        std::fs::write(file.path(), damaged).unwrap();
        assert!(directory.refresh().is_err(), "{damaged}");
        for _ in 0..3 {
            assert_eq!(directory.refresh().unwrap(), Refresh::Same, "{damaged}");
        }
        assert!(directory.authenticate(&token, 0).is_some(), "the known ones stay");
    }
    // The same fault in another file is told again: somebody has tried to mend it.
    std::fs::write(file.path(), "identities: 5 # longer still").unwrap();
    assert!(directory.refresh().is_err());
    // Another fault of a file that looks as it did, too.
    std::fs::remove_file(file.path()).unwrap();
    std::fs::create_dir(file.path()).unwrap();
    assert!(directory.refresh().is_err());
    assert_eq!(directory.refresh().unwrap(), Refresh::Same);
    std::fs::remove_dir(file.path()).unwrap();
    std::fs::write(file.path(), good).unwrap();
    assert_eq!((directory.refresh().unwrap(), directory.refresh().unwrap()), (Refresh::Read, Refresh::Same));
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
    let file = crate::credentials::Credentials::in_dir(dir.path());
    let partner = identity::Identity::new("globex", [Role::Partner], Warehouses::Named(Default::default()));
    let kept = file.create(partner, None, 0).unwrap().token;
    let directory = Directory::load(&with("acme", "one"), Some(file.path())).unwrap();
    let known = |token: &str| directory.authenticate(token, 0).map(|identity| identity.id.clone());
    let prepared = directory.prepare(&with("acme", "two")).unwrap().unwrap();
    assert!(known("one").is_some() && known("two").is_none(), "prepared is not in force");
    directory.adopt(prepared);
    assert_eq!((known("one"), known("two").as_deref(), known(&kept).as_deref()), (None, Some("acme"), Some("globex")));
    // A later change of the credentials file joins the new policy, not the old.
    file.revoke("globex", 0).unwrap();
    directory.refresh().unwrap();
    assert_eq!((known("one"), known("two").as_deref(), known(&kept)), (None, Some("acme"), None));
    let nobody = directory.prepare(&Policy::builtin()).unwrap_err();
    assert_eq!(nobody[0].rule, "nobody");
    assert!(Directory::dev().prepare(&Policy::builtin()).unwrap().is_none(), "--dev has its own");
}
