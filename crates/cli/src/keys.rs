//! Text for operators about the keys that transports are sealed with, for a store that is moved or checked.
//! Never shows a key: only fingerprints. Called by `backup`, `restore`, `copy` and `doctor`.

use std::path::Path;

use fencepost::{dispatch::key_file, moving::KeysNeeded, store::Address};

use crate::outbound::{KEY_FILE, dev_vault};

/// The fingerprints of the needed keys that a file does not hold; all of them where it cannot be read.
pub fn missing(needed: &KeysNeeded, file: &Path) -> Vec<String> {
    let keys = key_file::read(file).unwrap_or_default();
    let known: Vec<String> = keys.iter().map(key_file::MasterKey::fingerprint).collect();
    needed.fingerprints.iter().filter(|key| !known.contains(*key)).cloned().collect()
}

/// Whether these are the public key of `--dev` and no other. Only a server that is started with `--dev` has that key.
pub fn are_of_dev(keys: &[String]) -> bool {
    let of_dev = dev_vault().fingerprints();
    !keys.is_empty() && keys.iter().all(|key| of_dev.contains(key))
}

/// Advice on transports that are sealed with the key of `--dev`.
pub const OF_DEV: &str = "the public key of --dev: `serve --dev` has it; under any other server their lanes do not start, PUT them again there";

/// How many transports are sealed, and the fingerprints of their keys.
pub fn sealed_with(needed: &KeysNeeded) -> String {
    let keys: Vec<&str> = needed.fingerprints.iter().map(String::as_str).collect();
    let (transports, are) = match needed.transports {
        1 => ("transport", "is"),
        _ => ("transports", "are"),
    };
    let word = if keys.len() == 1 { "key" } else { "keys" };
    format!("{} {transports} {are} sealed with the {word} {}", needed.transports, keys.join(", "))
}

/// Advice on the keys that a backup needs; empty where it needs none.
pub fn told_of_backup(needed: &KeysNeeded) -> String {
    let all: Vec<String> = needed.fingerprints.iter().cloned().collect();
    if all.is_empty() {
        return String::new();
    }
    if are_of_dev(&all) {
        return format!("keys      {}, {OF_DEV}\n", sealed_with(needed));
    }
    format!(
        "keys      {}, which no backup holds.\n          Keep a copy of the server's key file (secret.key in its data directory, or dispatch.key_file) apart\n          from the backup: without it a restored store sends nothing to them\n",
        sealed_with(needed)
    )
}

/// Advice on the keys that a filled store needs before it is served; empty where it needs none. `from` is the store
/// that its rows came from, where that is known.
pub fn told_of_target(needed: &KeysNeeded, from: Option<&Address>, to: &Address) -> String {
    let all: Vec<String> = needed.fingerprints.iter().cloned().collect();
    if all.is_empty() {
        return String::new();
    }
    let sealed = sealed_with(needed);
    let left = match to {
        Address::Directory(dir) => missing(needed, &dir.join(KEY_FILE)),
        _ => all,
    };
    if are_of_dev(&left) {
        return format!("keys      {sealed}; {} is {OF_DEV}\n", left.join(", "));
    }
    let source = match from {
        Some(Address::Directory(dir)) => dir.join(KEY_FILE).display().to_string(),
        _ => "the key file of its server".to_owned(),
    };
    match to {
        Address::Directory(dir) => {
            let file = dir.join(KEY_FILE);
            if left.is_empty() {
                return format!("keys      {sealed}: nothing to do, the server has it\n");
            }
            format!(
                "keys      {sealed}, which is not a row.\n          Before you serve: copy {source} to {}, or name it as dispatch.key_file.\n          Without it their lanes do not start\n",
                file.display()
            )
        }
        _ => format!(
            "keys      {sealed}, which is not a row.\n          Before you serve: give {source} to every node, and name it as dispatch.key_file.\n          Without it their lanes do not start\n"
        ),
    }
}
