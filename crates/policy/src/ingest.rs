//! Reads the `ingest` section: how many items a request may have, and what quarantine does by itself.
//! Never names a collection: those are data of their own.
//! Called by `Policy::load`; read by ingest.

use super::read::Reader;
use super::yaml::{Mark, YamlNode};

/// The `ingest` section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IngestSettings {
    /// Whether an item in quarantine is judged again by itself when something that it waits for arrives.
    pub auto_release: bool,
    /// A request may have so many items; one with more becomes a job.
    pub bulk_async_threshold: usize,
    /// How long an entry of quarantine can be read after it was resolved, in milliseconds.
    pub quarantine_retain_ms: u64,
    /// How long a job and its results can be read after it has ended, in milliseconds.
    pub job_retain_ms: u64,
    /// How many bytes of uploads a tenant may have in jobs that have not ended.
    pub upload_bytes_max: u64,
}

const FIELDS: [&str; 5] =
    ["auto_release", "bulk_async_threshold", "quarantine_retain", "job_retain", "upload_bytes_max"];

/// The section as read, with the place that a lint points at.
#[derive(Debug)]
pub struct ParsedIngest {
    pub settings: IngestSettings,
    pub quarantine_retain_mark: Mark,
}

/// Reads the section. `None` means that at least one error was recorded.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Option<ParsedIngest> {
    let fields = reader.fields(node, "`ingest`", &FIELDS)?;
    let auto_release = fields.get("auto_release").and_then(|node| reader.boolean(node, "`auto_release`"));
    let threshold = fields.get("bulk_async_threshold");
    let threshold = threshold.and_then(|node| reader.integer(node, "`bulk_async_threshold`", 1..=1_000_000));
    let retain = fields.get("quarantine_retain")?;
    let retain_ms = reader.duration(retain, "`quarantine_retain`");
    let job_retain = fields.get("job_retain").and_then(|node| reader.duration(node, "`job_retain`"));
    let upload = fields.get("upload_bytes_max");
    let upload = upload.and_then(|node| reader.integer(node, "`upload_bytes_max`", 1..=1 << 50));
    let settings = IngestSettings {
        auto_release: auto_release?,
        bulk_async_threshold: usize::try_from(threshold?).ok()?,
        quarantine_retain_ms: retain_ms?,
        job_retain_ms: job_retain?,
        upload_bytes_max: upload?,
    };
    Some(ParsedIngest { settings, quarantine_retain_mark: retain.mark.clone() })
}
