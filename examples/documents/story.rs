//! The story: documents that arrive again, builders that race and die, readers that never see unfinished work.
//! Fails where an effect happened too often; without fences it must fail. Called by `main`.

use fencepost_examples::documents::Stage;

const FIRST: &str =
    "A fence decides who may act. A seal records what was done. A receipt is what everyone else gets back.";
const SECOND: &str = "Distributed systems retry. A queue delivers at least once. An effect should be had once.";

/// Runs the story and prints it.
pub async fn tell(without_fence: bool) -> anyhow::Result<()> {
    let stage = Stage::start(std::env::current_exe()?, without_fence)?;
    let first = stage.document("fences.txt", FIRST)?;
    let second = stage.document("retries.txt", SECOND)?;
    println!("Two documents are ingested three times each. The second one's first worker is killed before its seal.");
    stage.kill("ingest", &[&second], "acted")?;
    let mut wanted = 0;
    for document in [&first, &second] {
        for round in 0..3 {
            let told = said(stage.run("ingest", &[document])?)?;
            let ids = told["receipt"]["snippet_ids"].as_array().map_or(0, Vec::len);
            wanted += if round == 0 { ids } else { 0 };
            println!("  {} {}, snippets {}", told["effect_id"], replayed(&told), told["receipt"]["snippet_ids"]);
        }
    }
    if !without_fence {
        println!(
            "\nThe same content with other settings would be other snippets. It is refused, and shown how it differs:"
        );
        let refused = stage.run("ingest", &["--words", "3", &first])?;
        println!("  {}", refused.err().unwrap_or_default().trim());
        println!("\nThe alias is to move before the index is built: {}", swap(&stage)?);
    }
    println!("\nOne builder is killed before it builds, one after it built and before its seal; then four race.");
    stage.kill("build", &[], "claimed")?;
    stage.kill("build", &[], "acted")?;
    for told in stage.race(4, "build")? {
        println!("  {}", replayed(&said(told)?));
    }
    if !without_fence {
        println!("\nNow the alias moves: {}", swap(&stage)?);
        println!("Readers follow it: \"effect\" is in {}", said(stage.run("search", &["search", "effect"])?)?);
        println!("\nWhat the server counted:");
        let metrics = stage.metrics().await?;
        let told =
            ["fencepost_duplicate_drops_total", "first_seen_to_seal_seconds_count", "conflict_diff_operations_count"];
        for line in metrics.lines().filter(|line| told.iter().any(|name| line.contains(name)) && !line.starts_with('#'))
        {
            println!("  {line}");
        }
    }
    let (asked, built) = stage.builds();
    println!("\n{:<10}{:>8}{:>8}{:>8}", "", "wanted", "had", "asked");
    println!("{:<10}{wanted:>8}{:>8}{:>8}", "snippets", stage.snippets(), wanted * 3);
    println!("{:<10}{:>8}{built:>8}{asked:>8}", "indexes", 1);
    anyhow::ensure!(stage.snippets() == wanted && built == 1, "some of it happened too often");
    println!("\nEverything was repeated, and nothing happened twice.");
    Ok(())
}

fn said(told: Result<serde_json::Value, String>) -> anyhow::Result<serde_json::Value> {
    told.map_err(anyhow::Error::msg)
}

fn replayed(told: &serde_json::Value) -> &'static str {
    if told["replayed"] == true { "was there already" } else { "is new" }
}

fn swap(stage: &Stage) -> anyhow::Result<String> {
    Ok(match stage.run("swap", &["search"])? {
        Ok(_) => "done".to_owned(),
        Err(why) => format!("refused, {}", why.trim()),
    })
}
