//! Items from partners, by the real binary: requests and their ids, items and their versions, quarantine, and what is left
//! of all that after a crash and between nodes.

mod auto_release;
mod by_hand;
mod collections;
mod dry_run;
mod forgotten_version;
mod history;
mod identities;
mod jobs;
mod jobs_moved_on;
mod killed;
mod limits;
mod quarantine;
mod references;
mod release;
mod repeats;
mod request_id;
mod request_key;
mod retired;
mod schemas;
mod senders;
pub mod sending;
mod story;
mod versions;
