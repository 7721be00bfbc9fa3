//! The steps of the pipeline, each under its fence. This file shows what the example is about.
//! Never acts without a claim; a recovering step checks the shelf first; readers see sealed indexes. Called by `main`.

use std::{convert::Infallible, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use fencepost_client::{Client, EffectDone, EffectFailure, RemoteClaim, RemoteEffect, RunError, RunOutcome};
use fencepost_examples::http::Http;
use serde_json::{Value, json};

use crate::{
    Place,
    shelf::{Shelf, hash},
};

/// How long to wait for another process's build.
const WAIT: Duration = Duration::from_secs(20);

/// Where a process pauses, so that it can be killed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Stop {
    /// After the claim, before the effect.
    Claimed,
    /// After the effect, before the seal.
    Acted,
}

/// A shelf and the fences in front of it.
pub struct Pipeline {
    shelf: Shelf,
    /// `None` where the pipeline runs without fences.
    fences: Option<Client>,
    http: Http,
    url: String,
    lease: Duration,
    stop: Option<Stop>,
}

impl Pipeline {
    /// A pipeline with the settings of `place`.
    pub fn new(place: &Place, without_fence: bool) -> anyhow::Result<Self> {
        let fences = Client::new(&place.fencepost, &place.token)?;
        Ok(Self {
            shelf: Shelf::open(place.shelf.clone())?,
            fences: (!without_fence).then_some(fences),
            http: Http::with_token(&place.token),
            url: place.fencepost.clone(),
            lease: Duration::from_millis(place.lease_ms),
            stop: place.stop,
        })
    }

    /// Cuts a file into snippets. The same content gets the same snippet ids, however often it is ingested.
    pub async fn ingest(&self, file: &Path, words: usize) -> anyhow::Result<Value> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let doc_id = file.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        let content_hash = hash(text.as_bytes());
        let act = |reference: &str, recovering: bool| {
            let before = if recovering { self.shelf.cut_before(reference) } else { Vec::new() };
            let snippet_ids = if before.is_empty() { self.shelf.cut(doc_id, &text, words, reference)? } else { before };
            let effect_id = format!("{doc_id}@{}", &content_hash[..12]);
            Ok(EffectDone::new(effect_id, json!({"snippet_ids": snippet_ids}).to_string()))
        };
        let Some(fences) = &self.fences else {
            return self.at_once(|| act(&format!("{:x}", fastrand::u64(..)), false)).await;
        };
        let effect = fences
            .scope("DOCUMENT_INGEST")
            .key([("doc_id", doc_id), ("content_hash", &content_hash)])
            // Another number of words would make other snippets of the same content: that is a conflict, not a retry.
            .body(json!({"words": words}).to_string())
            .source("document", doc_id);
        self.once(effect, |claim| act(claim.idempotency_key(), claim.recovering())).await
    }

    /// Builds the index of the shelf's snippets, unless it is built already.
    pub async fn build(&self) -> anyhow::Result<Value> {
        let index_hash = self.shelf.index_hash();
        let act = |token: u64, recovering: bool| {
            let before = recovering.then(|| self.shelf.built_before(&index_hash)).flatten();
            let file = before.map_or_else(|| self.shelf.build(&index_hash, token), Ok)?;
            Ok(EffectDone::new(file.clone(), json!({"file": file}).to_string()))
        };
        self.shelf.asked(&index_hash)?;
        let Some(fences) = &self.fences else { return self.at_once(|| act(fastrand::u64(..), false)).await };
        let effect = fences.scope("INDEX_BUILD").key([("index_hash", &index_hash)]).source("index", &index_hash);
        self.once(effect, |claim| act(claim.token(), claim.recovering())).await
    }

    /// Points an alias at the index of the shelf's snippets; refused unless that is sealed.
    pub async fn swap(&self, alias: &str) -> anyhow::Result<Value> {
        let target = json!({"scope": "INDEX_BUILD", "key": {"index_hash": self.shelf.index_hash()}});
        let answer = self.http.put(&self.alias(alias), &target).await?;
        match answer.status {
            200 => Ok(answer.json()),
            _ => bail!("{}", answer.json()["code"].as_str().unwrap_or("no answer of Fencepost's")),
        }
    }

    /// Finds a word in the sealed index that an alias points at.
    pub async fn search(&self, alias: &str, word: &str) -> anyhow::Result<Value> {
        let answer = self.http.get(&self.alias(alias)).await?.json();
        let file = answer["receipt"]["file"].as_str().context("the alias points at nothing")?;
        self.shelf.find(file, word)
    }

    fn alias(&self, name: &str) -> String {
        format!("{}/v1/aliases/{name}", self.url)
    }

    /// Claims, acts, seals: the first caller acts, every other caller gets its receipt.
    async fn once(
        &self,
        effect: RemoteEffect,
        act: impl Fn(&RemoteClaim) -> anyhow::Result<EffectDone>,
    ) -> anyhow::Result<Value> {
        let effect = effect.lease(self.lease).wait(WAIT);
        let ran = effect.run(async |claim| {
            self.stand_still_at(Stop::Claimed).await;
            let done = act(&claim).map_err(EffectFailure::Unknown)?;
            self.stand_still_at(Stop::Acted).await;
            Ok(done)
        });
        match ran.await {
            Ok(RunOutcome { effect_id, receipt, replayed }) => shown(EffectDone { effect_id, receipt }, replayed),
            Err(RunError::Claim(refused)) => {
                let diff = refused.problem().and_then(|problem| problem.diff.clone()).unwrap_or_default();
                bail!("{refused} {diff}")
            }
            Err(RunError::Effect(error)) => Err(error),
            Err(RunError::Unsealed { done, cause }) => bail!("{} was done and not recorded: {cause}", done.effect_id),
        }
    }

    /// The same without a fence: every caller acts.
    async fn at_once(&self, act: impl Fn() -> anyhow::Result<EffectDone>) -> anyhow::Result<Value> {
        self.stand_still_at(Stop::Claimed).await;
        let done = act()?;
        self.stand_still_at(Stop::Acted).await;
        shown(done, false)
    }

    async fn stand_still_at(&self, step: Stop) {
        if self.stop == Some(step) {
            eprintln!("standing still: {step:?}");
            match std::future::pending::<Infallible>().await {}
        }
    }
}

fn shown(done: EffectDone, replayed: bool) -> anyhow::Result<Value> {
    let receipt: Value = serde_json::from_slice(&done.receipt)?;
    Ok(json!({"effect_id": done.effect_id, "replayed": replayed, "receipt": receipt}))
}
