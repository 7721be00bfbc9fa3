//! The whole of the Nexa example as running processes: Fencepost with its policy, the services, the desk, workers.
//! Never decides anything: it starts, asks, counts and kills. Used by the story and by the tests.

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

/// The contract as users have it; only the address of the desk is put in, and a lease that a story can wait for.
const CONTRACT: &str = include_str!("../../contracts/nexa.yml");
/// How long a claim of the gateway or of a worker is held without a sign of life.
const LEASE_MS: u64 = 2_000;

/// Calls of a service, questions to it, and effects it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How often it was called.
    pub calls: u64,
    /// How often it was asked what it had done.
    pub asked: u64,
    /// How often it acted.
    pub had: u64,
}

/// Whether workers and airlines go through Fencepost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// They do.
    On,
    /// They act at once.
    Off,
}

/// Everything that runs. It ends with its owner.
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
    /// Starts everything but workers, from the `nexa` program.
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

    /// An airline tells of an event.
    pub async fn event(&self, body: &Value) -> Result<Answer, Lost> {
        let (http, to) = match self.fences {
            Fences::On => (&self.tenant, self.fencepost.url()),
            Fences::Off => (&self.http, self.desk.url()),
        };
        http.post(&format!("{to}/cases"), body).await
    }

    /// Puts work into the desk's queue.
    pub async fn enqueue(&self, work: Value) -> anyhow::Result<()> {
        self.http.post(&format!("{}/jobs", self.desk.url()), &work).await?;
        Ok(())
    }

    /// Starts a worker, which ends when the queue is empty.
    pub fn worker(&self) -> anyhow::Result<Program> {
        let mut command = Command::new(&self.program);
        command.args(["worker", "--desk", self.desk.url(), "--services", self.services.url()]);
        command.args(["--fencepost", self.fencepost.url(), "--lease-ms", &LEASE_MS.to_string()]);
        if self.fences == Fences::Off {
            command.arg("--without-fence");
        }
        Program::start(command.stdout(Stdio::null()))
    }

    /// Lets two workers empty the queue.
    pub async fn work(&self) -> anyhow::Result<()> {
        let workers = [self.worker()?, self.worker()?];
        tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(Program::finish)).await?
    }

    /// A worker dies after the next effect of a service and before it could seal it.
    pub async fn work_and_die_after(&self, service: &str) -> anyhow::Result<()> {
        let before = self.counts(service).await?.had;
        self.faults(service, &["stall"]).await?;
        let worker = self.worker()?;
        until("the effect", async || Ok((self.counts(service).await?.had > before).then_some(()))).await?;
        worker.kill();
        Ok(())
    }

    /// What meets the next calls of a service: `refuse`, `fail`, `slow`, `lose`, `stall`.
    pub async fn faults(&self, service: &str, faults: &[&str]) -> anyhow::Result<()> {
        self.http.put(&format!("{}/{service}/faults", self.place(service)), &json!(faults)).await?;
        Ok(())
    }

    /// What a service counted.
    pub async fn counts(&self, service: &str) -> anyhow::Result<Counts> {
        let counts = self.http.get(&format!("{}/counts", self.place(service))).await?.json();
        let count = |name: &str| counts[service][name].as_u64().unwrap_or_default();
        Ok(Counts { calls: count("calls"), asked: count("asked"), had: count("had") })
    }

    /// How many jobs of a kind the queue has brought.
    pub async fn jobs(&self, kind: &str) -> anyhow::Result<usize> {
        Ok(self.queue().await?.iter().filter(|job| job["work"]["kind"] == kind).count())
    }

    /// Jobs that ended otherwise than done, with why.
    pub async fn held(&self) -> anyhow::Result<Vec<(Value, String)>> {
        let ended = |job: &Value| Some((job["work"].clone(), job["end"].as_str()?.to_owned()));
        let queue = self.queue().await?;
        Ok(queue.iter().filter_map(ended).filter(|(_, end)| end != "done").collect())
    }

    async fn queue(&self) -> anyhow::Result<Vec<Value>> {
        let queue = self.http.get(&format!("{}/jobs", self.desk.url())).await?.json();
        Ok(queue["jobs"].as_array().cloned().unwrap_or_default())
    }

    /// What an admin is told about a key.
    pub async fn lookup(&self, scope: &str, key: &Value, more: &str) -> anyhow::Result<Value> {
        let fields = key.as_object().into_iter().flatten();
        let query: String =
            fields.map(|(name, value)| format!("&{name}={}", value.as_str().unwrap_or_default())).collect();
        let url = format!("{}/admin/idempotency/lookup?tenant=acme&scope={scope}{query}{more}", self.fencepost.url());
        Ok(self.admin.get(&url).await?.json())
    }

    /// The fences that wait for a person.
    pub async fn in_doubt(&self) -> anyhow::Result<Vec<Value>> {
        let page = self.admin.get(&format!("{}/admin/idempotency/in-doubt", self.fencepost.url())).await?.json();
        Ok(page["items"].as_array().cloned().unwrap_or_default())
    }

    /// An admin looks at a doubt, asks the card service what it has, and says so.
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

    /// kill -9 of the desk.
    pub fn kill_desk(&self) {
        self.desk.end();
    }

    /// The desk comes back at its address, with its files.
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

/// Ten minutes, the bucket of a demand request.
const BUCKET_MS: u64 = 600_000;

/// A click on "approve", recognised by its time, rounded. Two clicks on either side of a boundary are two requests.
pub fn click_by_bucket(case: &str, kind: &str, clicked_at_ms: u64) -> Value {
    demand(case, kind, &(clicked_at_ms / BUCKET_MS).to_string())
}

/// A click on "approve", recognised by a token that the page made when it was opened. It has no boundary.
pub fn click_by_token(case: &str, kind: &str, token: &str) -> Value {
    demand(case, kind, token)
}

fn demand(case: &str, kind: &str, bucket: &str) -> Value {
    let key = json!({"caseUrn": case, "type": kind, "requestedAtBucket": bucket});
    json!({"kind": "demand", "key": key, "body": {"rooms": 40}})
}
