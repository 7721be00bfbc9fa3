//! Stores snippets and indexes in a folder. Deliberately naive: it repeats whatever it is asked to do.
//! Never shows a part of a file: a file of the shelf is whole or absent. Called by `pipeline`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
};

use anyhow::Context as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The folder of the shelf.
pub struct Shelf(PathBuf);

impl Shelf {
    /// Opens the shelf, and makes its folder if it is missing.
    pub fn open(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Cuts a text into snippets with new ids, and stores them with a reference. Returns the ids.
    pub fn cut(&self, doc_id: &str, text: &str, words: usize, reference: &str) -> anyhow::Result<Vec<String>> {
        let all: Vec<&str> = text.split_whitespace().collect();
        let (mut ids, mut lines) = (Vec::new(), String::new());
        for part in all.chunks(words.max(1)) {
            let id = format!("snip-{:016x}", fastrand::u64(..));
            lines +=
                &format!("{}\n", json!({"id": id, "doc_id": doc_id, "reference": reference, "text": part.join(" ")}));
            ids.push(id);
        }
        // One write: a crash leaves all snippets of a document, or none.
        self.append("snippets.jsonl", &lines)?;
        Ok(ids)
    }

    /// The ids of the snippets with this reference.
    pub fn cut_before(&self, reference: &str) -> Vec<String> {
        let own = self.snippets().into_iter().filter(|snippet| snippet["reference"] == reference);
        own.filter_map(|snippet| Some(snippet["id"].as_str()?.to_owned())).collect()
    }

    /// All snippets of the shelf.
    pub fn snippets(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("snippets.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The hash of the snippets that an index would be built from.
    pub fn index_hash(&self) -> String {
        let parts: BTreeSet<String> = self.snippets().iter().map(|snippet| snippet["id"].to_string()).collect();
        hash(parts.into_iter().collect::<Vec<_>>().join("\n").as_bytes())
    }

    /// Records that a build was requested.
    pub fn asked(&self, index_hash: &str) -> anyhow::Result<()> {
        self.append("builds.log", &format!("asked {index_hash}\n"))
    }

    /// Builds an index into its own file. The token is in the name: an old holder never writes over a newer index.
    pub fn build(&self, index_hash: &str, token: u64) -> anyhow::Result<String> {
        let mut index = BTreeMap::<String, Vec<Value>>::new();
        for snippet in self.snippets() {
            let words: BTreeSet<&str> = snippet["text"].as_str().unwrap_or_default().split(' ').collect();
            for word in words {
                index.entry(word.to_lowercase()).or_default().push(snippet["id"].clone());
            }
        }
        let name = format!("index-{index_hash}-{token}.json");
        let unfinished = self.0.join(format!("{name}.part"));
        fs::write(&unfinished, json!(index).to_string())?;
        fs::rename(unfinished, self.0.join(&name))?;
        self.append("builds.log", &format!("built {index_hash}\n"))?;
        Ok(name)
    }

    /// The file of a finished index with this hash.
    pub fn built_before(&self, index_hash: &str) -> Option<String> {
        let names = fs::read_dir(&self.0).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.ends_with(".json")).find(|name| name.starts_with(&format!("index-{index_hash}-")))
    }

    /// The ids of the snippets with a word, from the index in this file.
    pub fn find(&self, index: &str, word: &str) -> anyhow::Result<Value> {
        let text = fs::read_to_string(self.0.join(index)).with_context(|| index.to_owned())?;
        let index: Value = serde_json::from_str(&text)?;
        Ok(index[word.to_lowercase()].clone())
    }

    fn append(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join(name))?;
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// SHA-256 in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
