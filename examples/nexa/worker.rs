//! A worker: takes a job, has its effect once, reports it done. This file shows what the example is about.
//! Never acts without a claim or on a doubt: a recovering worker queries the service first. Called by `main`.

use std::{collections::BTreeMap, time::Duration};

use fencepost_client::{Client, EffectDone, EffectFailure, Error, RemoteEffect, RunError};
use fencepost_examples::http::{Http, Lost};
use serde_json::{Value, json};

/// The pause after a look into an empty queue.
const PAUSE: Duration = Duration::from_millis(50);

/// Where everything is.
#[derive(Clone, Debug, clap::Args)]
pub struct Places {
    /// The desk: its queue and its records
    #[arg(long)]
    pub desk: String,
    /// The hotel, the mailer, the card service and the model
    #[arg(long)]
    pub services: String,
    /// The Fencepost server
    #[arg(long)]
    pub fencepost: String,
    /// The credential for it
    #[arg(long, default_value = "dev-partner")]
    pub token: String,
    /// How long a worker may be silent before the next one is let in
    #[arg(long, default_value_t = 2_000)]
    pub lease_ms: u64,
    /// Acts without asking for a claim, to see what fences are for
    #[arg(long)]
    pub without_fence: bool,
}

/// The scope of a kind of job, and the service that has its effect.
fn kind(name: &str) -> anyhow::Result<(&'static str, &'static str)> {
    Ok(match name {
        "demand" => ("DEMAND_REQUEST", "demands"),
        "wave" => ("ALLOCATION_WAVE", "waves"),
        "booking" => ("BOOKING", "hotel"),
        "notification" => ("NOTIFICATION", "mail"),
        "payment" => ("PAYMENT_TOKENIZATION", "card"),
        "agent" => ("AGENT_RUN", "model"),
        other => anyhow::bail!("nobody knows jobs of kind {other:?}"),
    })
}

/// Works until every job in the queue has an end.
pub async fn work(places: &Places) -> anyhow::Result<()> {
    let fences = Client::new(&places.fencepost, &places.token)?;
    let http = Http::new();
    loop {
        let taken = http.post(&format!("{}/jobs/take", places.desk), &json!({})).await?.json();
        let Some(id) = taken["job"].as_u64() else {
            match taken["open"].as_u64() {
                Some(0) => return Ok(()),
                _ => tokio::time::sleep(PAUSE).await,
            }
            continue;
        };
        let job = Job { work: &taken["work"], places, http: &http };
        let end = match job.run(&fences).await? {
            End::Done { effect_id } => json!({"end": "done", "then": job.then(&effect_id)}),
            End::Person(why) => json!({"end": why}),
            // Not reported: the queue delivers it again.
            End::Later => continue,
        };
        http.post(&format!("{}/jobs/{id}/end", places.desk), &end).await?;
    }
}

/// How a job ended.
enum End {
    /// The effect happened, now or earlier.
    Done { effect_id: String },
    /// The job is to be delivered again.
    Later,
    /// A person must look at the job, for this reason.
    Person(String),
}

struct Job<'j> {
    work: &'j Value,
    places: &'j Places,
    http: &'j Http,
}

impl Job<'_> {
    async fn run(&self, fences: &Client) -> anyhow::Result<End> {
        let (scope, service) = kind(self.text("kind"))?;
        let url = match service {
            "demands" | "waves" => format!("{}/{service}", self.places.desk),
            _ => format!("{}/{service}", self.places.services),
        };
        if self.places.without_fence {
            let reference = format!("{:x}", fastrand::u64(..));
            return Ok(match self.act(&url, &reference).await {
                Ok(effect_id) => End::Done { effect_id },
                Err(_) => End::Later,
            });
        }
        let outcome = self
            .effect(fences, scope)
            .run(|claim| async move {
                // An earlier holder's lease expired, outcome unknown. The service knows whether the effect happened.
                if claim.recovering()
                    && let Some(effect_id) = self.had(&url, claim.idempotency_key()).await?
                {
                    return Ok(done(&effect_id));
                }
                let effect_id = self.act(&url, claim.idempotency_key()).await?;
                Ok(done(&effect_id))
            })
            .await;
        Ok(match outcome {
            Ok(outcome) => End::Done { effect_id: outcome.effect_id },
            Err(RunError::Claim(Error::InDoubt(_))) => End::Person("in-doubt".into()),
            Err(RunError::Claim(Error::Conflict(problem))) => {
                End::Person(format!("conflict {}", problem.diff.as_deref().unwrap_or_default()))
            }
            Err(RunError::Claim(Error::SequenceGap(_))) => End::Person("sequence-gap".into()),
            Err(RunError::Claim(Error::InFlight { .. }) | RunError::Effect(_) | RunError::Unsealed { .. }) => {
                End::Later
            }
            Err(RunError::Claim(refused)) => return Err(refused.into()),
        })
    }

    /// The key is what the job is about, never the job's id: a copy of the job has the same key.
    fn effect(&self, fences: &Client, scope: &str) -> RemoteEffect {
        let fields = self.work["key"].as_object().into_iter().flatten();
        let lease = Duration::from_millis(self.places.lease_ms);
        let about = ["caseUrn", "reservationUrn", "itemUrn"].iter().find_map(|field| self.work["key"][field].as_str());
        let mut effect = fences
            .scope(scope)
            .key(fields.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default())))
            .source(self.text("kind"), about.unwrap_or_default())
            .lease(lease)
            .wait(lease * 2);
        if let Some(body) = self.work.get("body") {
            effect = effect.body(body.to_string());
        }
        match self.work["seq"].as_u64() {
            Some(seq) => effect.again(seq),
            None => effect,
        }
    }

    async fn act(&self, url: &str, reference: &str) -> Result<String, EffectFailure<String>> {
        let asked = json!({"reference": reference, "key": self.work["key"], "seq": self.work["seq"]});
        let answer = self.http.post(url, &asked).await.map_err(|lost| match lost {
            Lost::NotSent(why) => EffectFailure::NotApplied(why),
            Lost::Unknown(why) => EffectFailure::Unknown(why),
        })?;
        match answer.status {
            201 => Ok(answer.json()["urn"].as_str().unwrap_or_default().to_owned()),
            // The service states that it did nothing.
            429 => Err(EffectFailure::NotApplied("the service refused".into())),
            status => Err(EffectFailure::Unknown(format!("the service answered {status}"))),
        }
    }

    async fn had(&self, url: &str, reference: &str) -> Result<Option<String>, EffectFailure<String>> {
        // Without an answer the outcome stays unknown: the lease expires again, and the next holder asks.
        let answer = self.http.get(&format!("{url}?reference={reference}")).await;
        let answer = answer.map_err(|lost| EffectFailure::Unknown(lost.to_string()))?;
        Ok(answer.json()["found"].as_str().map(str::to_owned))
    }

    /// The jobs that follow. They consist of keys and effect ids alone, so a repeated job makes the same ones.
    fn then(&self, effect_id: &str) -> Vec<Value> {
        let field = |name: &str| self.work["key"][name].clone();
        let job = |kind: &str, key: BTreeMap<&str, Value>| json!({"kind": kind, "key": key});
        match self.text("kind") {
            "demand" if field("type") == "SURGE" => vec![job(
                "wave",
                [("caseUrn", field("caseUrn")), ("demandRequestUrn", effect_id.into()), ("waveSeq", "1".into())].into(),
            )],
            "wave" => ["G-1", "G-2"]
                .map(|group| {
                    let key = [("caseUrn", field("caseUrn")), ("waveUrn", effect_id.into()), ("groupId", group.into())];
                    job("booking", key.into())
                })
                .into(),
            "booking" => {
                let voucher = [
                    ("groupId", field("groupId")),
                    ("type", "VOUCHER".into()),
                    ("channel", "EMAIL".into()),
                    ("reservationUrn", effect_id.into()),
                ];
                let charge = [("caseUrn", field("caseUrn")), ("reservationUrn", effect_id.into())];
                vec![job("notification", voucher.into()), job("payment", charge.into())]
            }
            _ => Vec::new(),
        }
    }

    fn text(&self, name: &str) -> &str {
        self.work[name].as_str().unwrap_or_default()
    }
}

fn done(effect_id: &str) -> EffectDone {
    EffectDone::new(effect_id, json!({"urn": effect_id, "status": "CONFIRMED"}).to_string())
}
