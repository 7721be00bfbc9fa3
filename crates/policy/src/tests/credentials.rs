//! The credentials file: tokens are made, rotated and revoked, and never kept.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use super::super::credentials::{Credentials, Error};
use super::identity::{Directory, Identity, Refresh, Role, Sha, Warehouses};
use super::*;

fn partner(id: &str) -> Identity {
    Identity::new(id, [Role::Partner], Warehouses::Named(BTreeSet::from(["w1".to_owned()])))
}

fn known(id: &str) -> Identity {
    Identity::new(id, [], Warehouses::Named(BTreeSet::new()))
}

#[test]
fn a_created_token_opens_the_door_and_is_kept_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(&dir.path().join("data"));
    let issued = file.create(partner("acme"), Some(5_000), 1_000).unwrap();
    assert!(issued.token.starts_with("fp_") && issued.token.len() == 55, "{}", issued.token);
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(!text.contains(&issued.token) && text.contains(&Sha::of(&issued.token).hex()));

    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    assert_eq!(*directory.authenticate(&issued.token, 4_999).unwrap(), partner("acme"));
    assert!(directory.authenticate(&issued.token, 5_000).is_none());
    assert_eq!(file.list().unwrap()[0].tokens, [issued.credential]);
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    for _ in 0..2 {
        file.create(partner("acme"), None, 0).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["credentials.lock", "credentials.yml"]);
}

#[test]
fn an_identity_has_several_tokens_and_each_is_different() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let first = file.create(partner("acme"), None, 0).unwrap();
    let second = file.create(partner("acme"), None, 0).unwrap();
    let third = file.create(known("acme"), None, 0).unwrap();
    assert!(first.token != second.token && second.token != third.token);
    assert_eq!(file.list().unwrap()[0].tokens.len(), 3);
}

#[test]
fn rotation_keeps_the_old_token_for_the_overlap_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let old = file.create(partner("acme"), None, 0).unwrap();
    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    let new = file.rotate("acme", Duration::from_secs(60), None, 1_000).unwrap();
    assert!(directory.authenticate(&new.token, 1_000).is_none(), "not read yet");
    assert_eq!(directory.refresh().unwrap(), Refresh::Read);
    assert_eq!(directory.refresh().unwrap(), Refresh::Same);
    let counts = |token: &str, now: u64| directory.authenticate(token, now).is_some();
    assert!(counts(&old.token, 60_999) && !counts(&old.token, 61_000));
    assert!(counts(&new.token, 61_000));

    let last = file.rotate("acme", Duration::ZERO, None, 2_000).unwrap();
    directory.refresh().unwrap();
    assert!(!counts(&new.token, 2_000) && !counts(&old.token, 2_000) && counts(&last.token, 2_000));
}

#[test]
fn rotation_never_lengthens_a_tokens_life() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let old = file.create(partner("acme"), Some(2_000), 0).unwrap();
    file.rotate("acme", Duration::from_secs(60), None, 1_000).unwrap();
    let kept = file.list().unwrap()[0].tokens.iter().find(|c| c.sha == old.credential.sha).unwrap().expires_ms;
    assert_eq!(kept, Some(2_000));
}

#[test]
fn revoking_takes_one_credential_or_the_whole_identity() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let first = file.create(partner("acme"), None, 0).unwrap();
    let second = file.create(partner("acme"), None, 0).unwrap();
    let other = file.create(partner("globex"), None, 0).unwrap();
    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    let counts = |token: &str| {
        directory.refresh().unwrap();
        directory.authenticate(token, 1).is_some()
    };

    assert_eq!(file.revoke(&first.credential.id(), 1).unwrap(), [first.credential.id()]);
    assert!(!counts(&first.token) && counts(&second.token) && counts(&other.token));
    assert_eq!(file.revoke("acme", 1).unwrap(), [second.credential.id()]);
    assert!(!counts(&second.token) && counts(&other.token));
    assert_eq!(directory.tenants(), ["globex"]);
    assert!(matches!(file.revoke("acme", 1), Err(Error::Unknown(_))));
}

#[test]
fn an_impossible_change_is_refused_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    assert!(matches!(file.create(known("acme"), None, 0), Err(Error::NoRoles(_))));
    assert!(matches!(file.create(partner("a b"), None, 0), Err(Error::Name(_))));
    assert!(matches!(file.rotate("acme", Duration::ZERO, None, 0), Err(Error::Unknown(_))));
    assert!(!file.path().exists());
    file.create(partner("acme"), None, 0).unwrap();
    let admin = Identity::new("acme", [Role::Admin], Warehouses::All);
    assert!(matches!(file.create(admin, None, 0), Err(Error::Differs(_))));
}

#[test]
fn a_damaged_file_changes_nothing_and_what_was_known_stays_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let issued = file.create(partner("acme"), None, 0).unwrap();
    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    fs::write(file.path(), "identities: [{id: acme, rolls: [partner]}]\n").unwrap();
    let findings = directory.refresh().unwrap_err();
    assert!(findings.iter().any(|f| f.fix.as_deref() == Some("did you mean `roles`?")), "{findings:?}");
    assert!(directory.authenticate(&issued.token, 1).is_some());
    assert!(matches!(file.revoke("acme", 1), Err(Error::Invalid(_))));
    assert!(fs::read_to_string(file.path()).unwrap().contains("rolls"));
}

#[test]
fn a_file_that_is_taken_away_takes_its_credentials_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let issued = file.create(partner("acme"), None, 0).unwrap();
    let directory = Directory::load(&Policy::builtin(), Some(file.path())).unwrap();
    fs::remove_file(file.path()).unwrap();
    assert_eq!(directory.refresh().unwrap(), Refresh::Read);
    assert!(directory.authenticate(&issued.token, 1).is_none() && directory.is_empty());
}

#[test]
fn credentials_of_policy_and_file_add_up_and_may_not_differ_in_who() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let issued = file.create(partner("acme"), None, 0).unwrap();
    let entry = |roles: &str| {
        let hash = Sha::of("fp_fixed").hex();
        policy(&format!("identities: [{{id: acme, roles: [{roles}], warehouses: [w1], credentials: [{hash}]}}]"))
    };
    let directory = Directory::load(&entry("partner"), Some(file.path())).unwrap();
    assert!(directory.authenticate(&issued.token, 1).is_some() && directory.authenticate("fp_fixed", 1).is_some());
    let findings = Directory::load(&entry("admin"), Some(file.path())).unwrap_err();
    assert_eq!(findings[0].rule, "identity-differs");
}

#[test]
fn an_identity_that_differs_from_the_policy_does_not_block_revocations_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let stolen = file.create(partner("globex"), None, 0).unwrap();
    let hash = Sha::of("fp_fixed").hex();
    let policy = policy(&format!("identities: [{{id: acme, roles: [admin], credentials: [{hash}]}}]"));
    let directory = Directory::load(&policy, Some(file.path())).unwrap();
    let other = file.create(partner("acme"), None, 0).unwrap();
    file.revoke("globex", 1).unwrap();
    let fresh = file.create(partner("initech"), None, 1).unwrap();
    match directory.refresh().unwrap() {
        Refresh::Partly(findings) => assert_eq!(findings[0].rule, "identity-differs"),
        other => panic!("{other:?}"),
    }
    assert!(directory.authenticate(&stolen.token, 2).is_none(), "it was revoked");
    assert!(directory.authenticate(&other.token, 2).is_none(), "a partner is not let in as the admin of that name");
    assert!(directory.authenticate(&fresh.token, 2).is_some() && directory.authenticate("fp_fixed", 2).is_some());
    assert_eq!(directory.refresh().unwrap(), Refresh::Same, "it is said once");
}

#[test]
fn the_planners_of_an_executor_are_kept_changed_and_left_out_where_there_are_none() {
    use super::identity::Planners;
    let dir = tempfile::tempdir().unwrap();
    let file = Credentials::in_dir(dir.path());
    let named = |names: &[&str]| Planners::Named(names.iter().map(|name| (*name).to_owned()).collect());
    let executor = |names: &[&str]| Identity::new("wes", [Role::Executor], Warehouses::All).serving(named(names));
    let planners = || file.list().unwrap()[0].identity.planners.clone();
    let first = file.create(executor(&["p1", "p2"]), None, 1).unwrap();
    assert_eq!(planners(), named(&["p1", "p2"]));
    file.create(executor(&["p2", "p1"]), None, 1).unwrap();
    file.create(Identity::new("wes", [], Warehouses::All), None, 1).unwrap();
    // A list that is not the known one is no silent change, nor silently left out.
    for other in [executor(&["p1"]), Identity::new("wes", [], Warehouses::All).serving(named(&["p1"]))] {
        assert!(matches!(file.create(other, None, 1), Err(Error::Differs(_))));
    }
    file.serve("wes", named(&["p3"]), 1).unwrap();
    assert_eq!(planners(), named(&["p3"]));
    let tokens = &file.list().unwrap()[0].tokens;
    assert!(tokens.len() == 3 && tokens[0].sha == first.credential.sha, "its tokens stay");
    file.serve("wes", named(&[]), 1).unwrap();
    assert!(planners().is_empty());
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(!text.contains("planners"), "the release before reads it: {text}");
    assert!(matches!(file.serve("nobody", named(&["p1"]), 1), Err(Error::Unknown(_))));
    let partner = Identity::new("acme", [Role::Partner], Warehouses::All);
    assert!(matches!(file.create(partner.clone().serving(named(&["p1"])), None, 1), Err(Error::NoExecutor(_))));
    file.create(partner, None, 1).unwrap();
    assert!(matches!(file.serve("acme", named(&["p1"]), 1), Err(Error::NoExecutor(_))));
}
