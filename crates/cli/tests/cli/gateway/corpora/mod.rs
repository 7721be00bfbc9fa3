//! Corpora of attacks on the pairing of requests and answers, against the gateway with three real upstreams: one that
//! reads every body, one that reads none, and nginx. After each case another tenant's write must get its own answer, and
//! no upstream may have seen a request that was not let through. `FENCEPOST_LONG=1` runs every case, else a sample.

mod frames;
mod http1;
mod http2;
mod injections;

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

use fencepost_rig::Nginx;

use super::{
    super::server::{PATIENCE, until},
    Upstream, World,
    caller::ask,
    undrained::{SMUGGLED, Undrained, echo},
    upstream::{Heard, Say},
};

/// The upstreams, as the first part of every path.
const UPSTREAMS: [&str; 3] = ["drained", "undrained", "nginx"];

/// So many cases of each corpus without `FENCEPOST_LONG`.
const SAMPLE: usize = 250;

/// One attack: its bytes, on a connection of its own, and the upstream.
pub struct Case {
    pub name: String,
    pub upstream: &'static str,
    pub bytes: Vec<u8>,
    /// The bytes break off: the client closes its half.
    pub breaks_off: bool,
}

impl Case {
    fn new(name: String, upstream: &'static str, bytes: Vec<u8>) -> Self {
        Self { name, upstream, bytes, breaks_off: false }
    }
}

/// A gateway in front of all three.
pub struct Field {
    world: World,
    undrained: Undrained,
    nginx: Nginx,
    victims: usize,
    seen: [usize; 3],
}

/// One request as an upstream saw it.
struct Seen {
    target: String,
    tenant: String,
    case: String,
    wrong: Option<String>,
}

impl Field {
    pub fn start() -> Self {
        let (drained, undrained) = (Upstream::start(), Undrained::start());
        drained.script(|heard| Say::Bytes(echo(heard)));
        let answer = "default_type application/json;\nif ($request_method = HEAD) { return 200; }\n\
                      return 201 '{\"target\":\"$request_uri\",\"case\":\"$http_x_case\"}';";
        let nginx = Nginx::start(answer, "$request_uri\\t$http_fencepost_tenant\\t$http_x_case\\t$http_x_injected");
        // A body that never ends is given up soon; nothing else here takes that long.
        let mut policy = "server: { limits: { body_timeout: 300ms, header_timeout: 300ms } }\n\
                          scopes:\n  CASE: { key: [id], retain: 1h }\nroutes:\n"
            .to_owned();
        let addresses = [drained.address, undrained.address, ([127, 0, 0, 1], nginx.port()).into()];
        for (name, address) in UPSTREAMS.into_iter().zip(addresses) {
            for (path, more) in [("write", ""), ("body", ", pass_body: true")] {
                policy += &format!(
                    "  - {{ match: \"POST /{name}/{path}\", upstream: \"http://{address}\", scope: CASE, \
                     key: {{ id: \"header:Idempotency-Key\" }}{more} }}\n"
                );
            }
        }
        let world = World::before(drained, &policy);
        Self { world, undrained, nginx, victims: 0, seen: [0; 3] }
    }

    /// Another tenant's write to the upstream of a case, and what that upstream saw since the last.
    fn judge(&mut self, case: &Case) -> Result<(), String> {
        self.victims += 1;
        let (own, path) = (format!("victim-{}", self.victims), format!("/{}/write", case.upstream));
        let asked = ask("POST", &path).header("authorization: Bearer dev-partner-2").key(&own);
        let answer = self.world.send(&asked.header(&format!("x-case: {own}")).json("{}"));
        let wanted = format!("{{\"target\":\"{path}\",\"case\":\"{own}\"}}");
        if (answer.status, answer.text().as_str()) != (201, wanted.as_str()) {
            return Err(format!("the victim was answered {} {}", answer.status, answer.text()));
        }
        let seen = self.seen_since(case.upstream, &own);
        for Seen { target, tenant, case: of, wrong } in &seen {
            let tenants: &[&str] = if *of == own { &["globex"] } else { &["", "acme"] };
            // In a query, coded as it came, it is a value like any other.
            let path = target.split('?').next().unwrap_or_default();
            if path.contains(SMUGGLED) || !path.starts_with(&format!("/{}/", case.upstream)) {
                return Err(format!("the upstream ran {target}"));
            }
            if !tenants.contains(&tenant.as_str()) {
                return Err(format!("the upstream took {target} for {tenant}'s"));
            }
            if let Some(wrong) = wrong {
                return Err(format!("the upstream saw {wrong}"));
            }
        }
        Ok(())
    }

    fn seen_since(&mut self, upstream: &str, victim: &str) -> Vec<Seen> {
        let index = UPSTREAMS.iter().position(|known| *known == upstream).unwrap();
        let before = self.seen[index];
        let seen: Vec<Seen> = match upstream {
            "nginx" => until("the victim's line is in the log of nginx", || {
                let lines: Vec<Seen> = self.nginx.heard().iter().skip(before).map(|line| Seen::logged(line)).collect();
                lines.iter().any(|seen| seen.case == victim).then_some(lines)
            }),
            "drained" => self.world.upstream.heard_from(before).iter().map(Seen::heard).collect(),
            _ => self.undrained.heard_from(before).iter().map(Seen::heard).collect(),
        };
        self.seen[index] += seen.len();
        seen
    }

    /// Sends what a case says, and reads until the gateway closes.
    fn exchange(&self, case: &Case) -> Result<Vec<u8>, String> {
        let mut stream = TcpStream::connect(self.world.address()).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that has refused may stop reading; only its answer counts.
        let _ = stream.write_all(&case.bytes);
        if case.breaks_off {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                Err("neither answered nor closed".to_owned())
            }
            _ => Ok(answer),
        }
    }
}

impl Seen {
    fn heard(heard: &Heard) -> Self {
        let once = |name: &str| heard.all(name).join(" and ");
        let names: BTreeSet<&str> = heard.head.iter().map(|(name, _)| name.as_str()).collect();
        let wrong =
            names.iter().find(|name| name.contains('_') || name.contains("injected")).map(|name| name.to_string());
        let lengths = heard.all("content-length").len() + heard.all("transfer-encoding").len();
        let wrong = wrong.or((lengths > 1).then(|| "two lengths".to_owned()));
        Self { target: heard.target.clone(), tenant: once("fencepost-tenant"), case: once("x-case"), wrong }
    }

    fn logged(line: &str) -> Self {
        let mut parts = line.split('\t').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (target, tenant, case, injected) = (next(), next(), next(), next());
        Self { target, tenant, case, wrong: (!injected.is_empty()).then_some("an injected header".to_owned()) }
    }
}

fn is_long() -> bool {
    std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1")
}

/// All of them, or some from everywhere in the list.
fn sample<T>(cases: Vec<T>) -> Vec<T> {
    // Odd, so that the sample does not keep step with how the list was made.
    let step = if is_long() { 1 } else { (cases.len() / SAMPLE) | 1 };
    cases.into_iter().step_by(step).collect()
}

/// Runs cases, each followed by a victim, and panics with all that failed.
fn run(field: &mut Field, cases: Vec<Case>, send: impl Fn(&Field, &Case) -> Result<(), String>) {
    let (mut failures, count) = (Vec::new(), cases.len());
    for case in sample(cases) {
        let outcome = send(field, &case).and_then(|()| field.judge(&case));
        failures.extend(outcome.err().map(|why| format!("{} ({}): {why}", case.name, case.upstream)));
    }
    assert!(failures.is_empty(), "{} of {count} cases failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_combination_of_framings_smuggles_a_request() {
    let mut field = Field::start();
    let cases = http1::cases();
    assert!(cases.len() > 1_000, "{}", cases.len());
    run(&mut field, cases, |field, case| field.exchange(case).map(|_| ()));
}

#[test]
fn no_malformed_request_of_the_fronts_corpus_smuggles_a_request() {
    let mut field = Field::start();
    let malformed = super::hostile::corpus::cases;
    let all = UPSTREAMS.into_iter().flat_map(|upstream| {
        let cases = malformed(&format!("/{upstream}/write")).into_iter();
        cases.map(move |malformed| {
            let behind = if malformed.ends { b"" } else { http1::BEHIND };
            let case = Case::new(malformed.name, upstream, [&malformed.bytes, behind].concat());
            Case { breaks_off: malformed.ends, ..case }
        })
    });
    run(&mut field, all.collect(), |field, case| field.exchange(case).map(|_| ()));
}

#[test]
fn no_header_of_http_2_becomes_a_request_of_http_1() {
    let mut field = Field::start();
    run(&mut field, injections::cases(), |field, case| http2::exchange(field.world.address(), case));
}

#[test]
fn malformed_frames_of_http_2_are_refused_and_lawful_ones_are_served() {
    let mut field = Field::start();
    let (cases, expected): (Vec<Case>, Vec<http2::Expected>) = frames::cases().into_iter().unzip();
    let expected: std::collections::BTreeMap<String, _> =
        cases.iter().map(|case| case.name.clone()).zip(expected).collect();
    run(&mut field, cases, |field, case| http2::judge(field.world.address(), case, expected[&case.name]));
}
