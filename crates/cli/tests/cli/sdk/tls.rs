//! The clients over TLS: each believes the authority it was given, and none believes a stranger.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Stdio},
    time::Duration,
};

use fencepost_client::{Client, Error, Retry};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::{
    super::server::{BINARY, command, text},
    folder,
};

/// The real binary with a certificate of an authority that nobody knows; killed when dropped.
struct Secured {
    child: Child,
    // Open as long as the server is: it may still have something to say.
    _said: BufReader<ChildStderr>,
    url: String,
    authority_pem: String,
    dir: TempDir,
}

impl Secured {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed where it has the same name as its issuer.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority_pem = issuer.pem();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        // Python asks for it from 3.13 on.
        params.use_authority_key_identifier_extension = true;
        let cert = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(at("cert.pem"), cert.pem()).unwrap();
        std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
        std::fs::write(at("authority.pem"), &authority_pem).unwrap();
        let policy = format!("server:\n  tls: {{ cert: \"{}\", key: \"{}\" }}\n", at("cert.pem"), at("key.pem"));
        std::fs::write(at("fencepost.yml"), policy).unwrap();
        let mut child = command(BINARY)
            .args([
                "serve",
                "--dev",
                "--listen",
                "127.0.0.1:0",
                "--data",
                &at("data"),
                "--config",
                &at("fencepost.yml"),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut words = said.by_ref().lines().map(Result::unwrap);
        let url = words.find_map(|line| Some(line.split_once("serving on ")?.1.trim().to_owned())).unwrap();
        assert!(url.starts_with("https://"), "{url}");
        Self { child, _said: said, url, authority_pem, dir }
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_rust_client_believes_the_authority_it_was_given_and_no_other() {
    let secured = Secured::start();
    let retry = Retry { deadline: Duration::from_millis(500), ..Retry::default() };
    let builder = || Client::builder(&secured.url, "dev-partner").retry(retry.clone());
    let index = |client: Client| client.scope("INDEX_BUILD").key([("index_hash", "a")]);
    let known = builder().authorities(secured.authority_pem.as_str()).build().unwrap();
    assert!(index(known).lookup().await.unwrap().is_none());
    match index(builder().build().unwrap()).lookup().await.unwrap_err() {
        Error::Unavailable { why, unanswered: false, .. } => assert!(why.contains("UnknownIssuer"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_python_and_typescript_clients_believe_the_authority_they_were_given_and_no_other() {
    let secured = Secured::start();
    let python = "import os; from fencepost import Fencepost, Retry\n\
        fp = Fencepost(os.environ['URL'], 'dev-partner', Retry(deadline_s=0.5))\n\
        assert fp.scope('INDEX_BUILD').key(index_hash='a').lookup() is None\n";
    let node = "import { Fencepost } from './src/index.js';\n\
        const fencepost = new Fencepost(process.env.URL, 'dev-partner', { deadlineMs: 500 });\n\
        if (await fencepost.scope('INDEX_BUILD').key({ index_hash: 'a' }).lookup()) throw new Error('known');\n";
    let authority = secured.dir.path().join("authority.pem");
    for (program, args, language, variable) in [
        ("python3", vec!["-B", "-c", python], "python", "SSL_CERT_FILE"),
        ("node", vec!["--input-type=module", "-e", node], "typescript", "NODE_EXTRA_CA_CERTS"),
    ] {
        let run = |trusted: bool| {
            let mut client = command(program);
            client.args(&args).current_dir(folder(language)).env("URL", &secured.url);
            if trusted {
                client.env(variable, &authority);
            }
            client.output().unwrap_or_else(|error| panic!("{program} does not start: {error}"))
        };
        let believed = run(true);
        assert!(believed.status.success(), "{program}: {}", text(&believed.stderr));
        let stranger = run(false);
        assert!(!stranger.status.success(), "{program} believes anybody");
        assert!(text(&stranger.stderr).contains("Unavailable"), "{program}: {}", text(&stranger.stderr));
    }
}
