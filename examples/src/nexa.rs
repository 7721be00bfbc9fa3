//! The whole Nexa example as processes: Fencepost with its policy, the services, the desk, workers.
//! Never decides anything: it starts, queries, counts and kills. Called by the story and by tests.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    http::{Answer, Http, Lost, until},
    programs::{self, Program},
};

/// The users' policy; the story replaces only the desk's address and the lease, which is shortened.
const CONTRACT: &str = include_str!("../../contracts/nexa.yml");
/// The lease of a claim of the gateway or of a worker, in milliseconds.
const LEASE_MS: u64 = 2_000;

/// The counts of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How often it was called for an effect.
    pub calls: u64,
    /// How often it was queried for an earlier effect.
    pub asked: u64,
    /// How often it had an effect.
    pub had: u64,
}

/// Whether workers and airlines go through Fencepost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// They claim before they act.
    On,
    /// They act without a claim.
    Off,
}

/// All processes but the workers; dropping it ends them.
pub struct Stage {
    program: PathBuf,
    fences: Fences,
    desk: Program,
    services: Program,
    fencepost: Program,
    http: Http,
    tenant: Http,
    admin: Http,
    folder: TempDir,
}

impl Stage {
    /// Starts all but workers. `program` is the binary `nexa`.
    pub fn start(program: PathBuf, fences: Fences) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let services = Program::serving(Command::new(&program).args(["services", "--listen", "127.0.0.1:0"]))?;
        let desk = desk(&program, &folder, "127.0.0.1:0")?;
        let policy = CONTRACT
            .replace("http://127.0.0.1:9000", desk.url())
            .replace("lease: 30s", &format!("lease: {LEASE_MS}ms"));
        let fencepost = programs::fencepost(folder.path(), Some(&policy))?;
        let (http, tenant, admin) = (Http::new(), Http::with_token("dev-partner"), Http::with_token("dev-admin"));
        Ok(Self { program, fences, desk, services, fencepost, http, tenant, admin, folder })
    }

    /// Sends an event, as the airline does.
    pub async fn event(&self, body: &Value) -> Result<Answer, Lost> {
        let (http, to) = match self.fences {
            Fences::On => (&self.tenant, self.fencepost.url()),
            Fences::Off => (&self.http, self.desk.url()),
        };
        http.post(&format!("{to}/cases"), body).await
    }

    /// Adds work to the desk's queue.
    pub async fn enqueue(&self, work: Value) -> anyhow::Result<()> {
        self.http.post(&format!("{}/jobs", self.desk.url()), &work).await?;
        Ok(())
    }

    /// Starts a worker, which ends when every job in the queue has an end.
    pub fn worker(&self) -> anyhow::Result<Program> {
        let mut command = Command::new(&self.program);
        command.args(["worker", "--desk", self.desk.url(), "--services", self.services.url()]);
        command.args(["--fencepost", self.fencepost.url(), "--lease-ms", &LEASE_MS.to_string()]);
        if self.fences == Fences::Off {
            command.arg("--without-fence");
        }
        Program::start(command.stdout(Stdio::null()))
    }

    /// Runs two workers until every job in the queue has an end.
    pub async fn work(&self) -> anyhow::Result<()> {
        let workers = [self.worker()?, self.worker()?];
        tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(Program::finish)).await?
    }

    /// Starts a worker, and kills it after the service's next effect, before the worker can seal.
    pub async fn work_and_die_after(&self, service: &str) -> anyhow::Result<()> {
        let before = self.counts(service).await?.had;
        self.faults(service, &["stall"]).await?;
        let worker = self.worker()?;
        until("the effect", async || Ok((self.counts(service).await?.had > before).then_some(()))).await?;
        worker.kill();
        Ok(())
    }

    /// Sets the faults of a service's next calls: `refuse`, `fail`, `slow`, `lose`, `stall`.
    pub async fn faults(&self, service: &str, faults: &[&str]) -> anyhow::Result<()> {
        self.http.put(&format!("{}/{service}/faults", self.place(service)), &json!(faults)).await?;
        Ok(())
    }

    /// Fetches the counts of a service.
    pub async fn counts(&self, service: &str) -> anyhow::Result<Counts> {
        let counts = self.http.get(&format!("{}/counts", self.place(service))).await?.json();
        let count = |name: &str| counts[service][name].as_u64().unwrap_or_default();
        Ok(Counts { calls: count("calls"), asked: count("asked"), had: count("had") })
    }

    /// How many jobs of a kind the queue has had, with their copies.
    pub async fn jobs(&self, kind: &str) -> anyhow::Result<usize> {
        Ok(self.queue().await?.iter().filter(|job| job["work"]["kind"] == kind).count())
    }

    /// Jobs that ended otherwise than done, with the reason.
    pub async fn held(&self) -> anyhow::Result<Vec<(Value, String)>> {
        let ended = |job: &Value| Some((job["work"].clone(), job["end"].as_str()?.to_owned()));
        let queue = self.queue().await?;
        Ok(queue.iter().filter_map(ended).filter(|(_, end)| end != "done").collect())
    }

    async fn queue(&self) -> anyhow::Result<Vec<Value>> {
        let queue = self.http.get(&format!("{}/jobs", self.desk.url())).await?.json();
        Ok(queue["jobs"].as_array().cloned().unwrap_or_default())
    }

    /// The record under a key, as an admin sees it.
    pub async fn lookup(&self, scope: &str, key: &Value, more: &str) -> anyhow::Result<Value> {
        let fields = key.as_object().into_iter().flatten();
        let query: String =
            fields.map(|(name, value)| format!("&{name}={}", value.as_str().unwrap_or_default())).collect();
        let url = format!("{}/admin/idempotency/lookup?tenant=acme&scope={scope}{query}{more}", self.fencepost.url());
        Ok(self.admin.get(&url).await?.json())
    }

    /// The fences in doubt, which wait for a person.
    pub async fn in_doubt(&self) -> anyhow::Result<Vec<Value>> {
        let page = self.admin.get(&format!("{}/admin/idempotency/in-doubt", self.fencepost.url())).await?.json();
        Ok(page["items"].as_array().cloned().unwrap_or_default())
    }

    /// Resolves a doubt as an admin would: queries the card service, and records its answer.
    pub async fn resolve(&self, doubt: &Value) -> anyhow::Result<String> {
        let reference = doubt["idempotency_key"].as_str().unwrap_or_default();
        let found = self.http.get(&format!("{}/card?reference={reference}", self.services.url())).await?.json();
        let word = json!({"tenant": "acme", "scope": doubt["scope"], "key": doubt["key"]});
        let said = match found["found"].as_str() {
            Some(urn) => {
                let receipt = json!({"urn": urn, "status": "CONFIRMED"});
                json!({"outcome": "sealed", "effect_id": urn, "receipt": receipt, "why": "the card service has the charge"})
            }
            None => json!({"outcome": "released", "why": "the card service knows of no charge"}),
        };
        let mut body = word;
        for (name, value) in said.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let answer = self.admin.post(&format!("{}/admin/idempotency/resolve", self.fencepost.url()), &body).await?;
        anyhow::ensure!(answer.status == 200, "{}", answer.json());
        Ok(body["outcome"].as_str().unwrap_or_default().to_owned())
    }

    /// Kills the desk with SIGKILL.
    pub fn kill_desk(&self) {
        self.desk.end();
    }

    /// Starts the desk again at its address, with its files.
    pub fn restart_desk(&mut self) -> anyhow::Result<()> {
        let address = self.desk.url().trim_start_matches("http://").to_owned();
        self.desk = desk(&self.program, &self.folder, &address)?;
        Ok(())
    }

    fn place(&self, service: &str) -> &str {
        match service {
            "cases" | "demands" | "waves" => self.desk.url(),
            _ => self.services.url(),
        }
    }
}

fn desk(program: &PathBuf, folder: &TempDir, address: &str) -> anyhow::Result<Program> {
    Program::serving(
        Command::new(program).args(["desk", "--listen", address, "--folder"]).arg(folder.path().join("desk")),
    )
}

/// Ten minutes in milliseconds: the bucket of a demand request.
const BUCKET_MS: u64 = 600_000;

/// A click on "approve", keyed by its time, rounded down to a bucket. Two clicks across a boundary are two requests.
pub fn click_by_bucket(case: &str, kind: &str, clicked_at_ms: u64) -> Value {
    demand(case, kind, &(clicked_at_ms / BUCKET_MS).to_string())
}

/// A click on "approve", keyed by a token that the page made when it was opened. A token has no boundary.
pub fn click_by_token(case: &str, kind: &str, token: &str) -> Value {
    demand(case, kind, token)
}

fn demand(case: &str, kind: &str, bucket: &str) -> Value {
    let key = json!({"caseUrn": case, "type": kind, "requestedAtBucket": bucket});
    json!({"kind": "demand", "key": key, "body": {"rooms": 40}})
}
