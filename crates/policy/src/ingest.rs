//! Reads the `ingest` section: how large a request may be, what becomes a job, and what quarantine does by itself.
//! Never names a collection: those are data of their own.
//! Called by `Policy::load`; read by ingest.

use super::read::Reader;
use super::server::BUFFERED_REQUESTS_MIN;
use super::yaml::YamlNode;

/// The `ingest` section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IngestSettings {
    /// Whether an item in quarantine is judged again by itself when something that it waits for arrives.
    pub auto_release: bool,
    /// The largest request that is not a bulk upload, in bytes.
    pub request_bytes_max: usize,
    /// A request with more items than this becomes a job.
    pub bulk_async_threshold: usize,
    /// How long an entry of quarantine can be read after it was resolved, in milliseconds.
    pub quarantine_retain_ms: u64,
}

const FIELDS: [&str; 4] = ["auto_release", "request_bytes_max", "bulk_async_threshold", "quarantine_retain"];

/// Reads the section. `None` means that at least one error was recorded.
pub fn read(reader: &mut Reader, node: &YamlNode, buffered_bytes_max: Option<usize>) -> Option<IngestSettings> {
    let fields = reader.fields(node, "`ingest`", &FIELDS)?;
    let auto_release = fields.get("auto_release").and_then(|node| reader.boolean(node, "`auto_release`"));
    let size = fields.get("request_bytes_max").and_then(|node| {
        let size = usize::try_from(reader.size(node, "`request_bytes_max`")?).ok()?;
        let most = buffered_bytes_max.map_or(usize::MAX, |bytes| bytes / BUFFERED_REQUESTS_MIN);
        if size > most {
            let message =
                format!("`server.limits.buffered_bytes_max` holds less than {BUFFERED_REQUESTS_MIN} of these");
            reader.error(&node.mark, "buffers-too-small", message, format!("write at most {most}, or raise the other"));
        }
        Some(size)
    });
    let threshold = fields.get("bulk_async_threshold");
    let threshold = threshold.and_then(|node| reader.integer(node, "`bulk_async_threshold`", 1..=1_000_000));
    let retain = fields.get("quarantine_retain").and_then(|node| reader.duration(node, "`quarantine_retain`"));
    Some(IngestSettings {
        auto_release: auto_release?,
        request_bytes_max: size?,
        bulk_async_threshold: usize::try_from(threshold?).ok()?,
        quarantine_retain_ms: retain?,
    })
}
