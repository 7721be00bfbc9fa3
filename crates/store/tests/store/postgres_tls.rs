//! TLS to a PostgreSQL that asks for it.

use fencepost_store::{Error, Store};
use futures::executor::block_on;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::postgres_rig::{Rig, opener};

// The server's own user must own its key: so the server writes it.
fn give(rig: &Rig, name: &str, pem: &str) {
    let lines = format!("SELECT unnest(string_to_array($pem${}$pem$, E'\\n'))", pem.trim());
    let copy = format!("COPY ({lines}) TO PROGRAM 'umask 077; cat > server.{name}'");
    rig.server.sql(&rig.server.url(), &copy);
}

#[test]
fn a_certificate_is_checked_as_the_url_asks() {
    let rig = Rig::new();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    give(&rig, "crt", &cert.pem());
    give(&rig, "key", &signing_key.serialize_pem());
    rig.server.sql(&rig.server.url(), "ALTER SYSTEM SET ssl = on");
    rig.server.sql(&rig.server.url(), "SELECT pg_reload_conf()");
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.pem"), dir.path().join("bad.pem"));
    std::fs::write(&good, cert.pem()).unwrap();
    let stranger = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&bad, stranger.cert.pem()).unwrap();
    let url = rig.server.url().replace("127.0.0.1", "localhost");

    let encrypted = "SELECT bool_and(ssl.ssl) FROM pg_stat_ssl ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name LIKE 'fencepost %'";
    for params in ["sslmode=require".to_owned(), format!("sslmode=verify-full&sslrootcert={}", good.display())] {
        let store = rig.try_open(&format!("{url}?{params}"), &opener("one")).unwrap();
        block_on(store.time_floor()).unwrap();
        assert_eq!(rig.server.sql(&rig.server.url(), encrypted), "t", "{params}");
    }
    let by_address = rig.server.url();
    let refused = [
        format!("{url}?sslmode=verify-full&sslrootcert={}", bad.display()),
        format!("{url}?sslmode=verify-full"),
        // The certificate is for another name.
        format!("{by_address}?sslmode=verify-full&sslrootcert={}", good.display()),
    ];
    for url in refused {
        let outcome = rig.try_open(&url, &opener("one")).map(drop);
        assert!(matches!(outcome, Err(Error::NotApplied(_))), "{url}: {outcome:?}");
    }
    rig.try_open(&format!("{url}?sslmode=disable"), &opener("one")).unwrap();
}
