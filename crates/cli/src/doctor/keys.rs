//! Checks that the key file of a store that no server uses holds the keys that its transports are sealed with.
//! Never opens a store that is served, or another user's, whose new files would not be that user's. Called by `doctor`.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fencepost::{
    moving::KeysNeeded,
    policy::credentials::FILE_NAME,
    store::{
        Address,
        embedded::{IN_USE, is_store},
    },
};

use super::{Health, Report};
use crate::{
    keys,
    moving::{Use, open, runtime},
    outbound::KEY_FILE,
};

pub(super) fn of_directory(report: &mut Report, data: &Path, key_file: Option<PathBuf>) {
    if !is_store(data) {
        return;
    }
    let Ok(store) = data.join("db").metadata() else { return };
    if store.uid() != rustix::process::geteuid().as_raw() {
        report.say(Health::Warn, "keys", format!("not checked: the store in {} is another user's", data.display()));
        return;
    }
    let needed = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let store = open(&Address::Directory(data.to_owned()), Use::Examine).await?;
            Ok(KeysNeeded::of(&store).await?)
        })
    });
    let needed = match needed {
        Ok(needed) => needed,
        // A server has the store open: `doctor` asks that server instead.
        Err(error) if format!("{error:#}").contains(IN_USE) => return,
        Err(error) => return report.say(Health::Bad, "store", format!("{error:#}")),
    };
    let file = key_file.unwrap_or_else(|| data.join(KEY_FILE));
    let missing = keys::missing(&needed, &file);
    if needed.fingerprints.is_empty() {
        report.say(Health::Good, "keys", "no stored transport needs one");
    } else if missing.is_empty() {
        report.say(Health::Good, "keys", format!("{}: there", keys::sealed_with(&needed)));
    } else if keys::are_of_dev(&missing) {
        // Credentials or keys here show that this directory is served without --dev.
        let is_served_plainly = file.is_file() || data.join(FILE_NAME).is_file();
        let health = if is_served_plainly { Health::Bad } else { Health::Warn };
        let found = format!("{}; {} is {}", keys::sealed_with(&needed), missing.join(", "), keys::OF_DEV);
        report.say(health, "keys", found);
    } else {
        let found = format!(
            "{}, and {} is not in {}: their lanes do not start. Put the key file of the store that the rows came from \
             there, or name another with --key-file",
            keys::sealed_with(&needed),
            missing.join(", "),
            file.display()
        );
        report.say(Health::Bad, "keys", found);
    }
}
