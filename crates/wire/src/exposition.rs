//! Writes the two texts that Prometheus reads: OpenMetrics, and the older text format for clients that prefer it.
//! Never counts anything. Called by `/metrics`.

use std::collections::HashSet;

use http::{HeaderMap, header};

/// The media type of OpenMetrics.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of the older text format.
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the `Accept` header ranks the older format above OpenMetrics. A tie means OpenMetrics.
pub(crate) fn prefers_plain(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted: Vec<(&str, f32)> = values.flat_map(|value| value.split(',')).map(range).collect();
    let quality = |group: &str, kind: &str| {
        let of = |wanted: String| accepted.iter().find(|(range, _)| range.eq_ignore_ascii_case(&wanted));
        let nearest =
            of(format!("{group}/{kind}")).or_else(|| of(format!("{group}/*"))).or_else(|| of("*/*".to_owned()));
        nearest.map_or(0.0, |(_, quality)| *quality)
    };
    quality("text", "plain") > quality("application", "openmetrics-text")
}

// A media range of an `Accept` header and its quality: `q`, or 1 where that is absent.
fn range(item: &str) -> (&str, f32) {
    let mut parts = item.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    (range, quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0))
}

/// The same figures in the older format. There, `HELP` and `TYPE` of a counter carry the name of its series (`_total`),
/// and no line gives a unit or the end.
pub(crate) fn plain(openmetrics: &str) -> String {
    let counters: HashSet<&str> =
        openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(openmetrics.len() + 32 * counters.len());
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let about = ["# HELP ", "# TYPE "].into_iter().find_map(|word| Some((word, line.strip_prefix(word)?)));
        match about.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) {
            Some((word, (name, rest))) if counters.contains(name) => {
                out.extend([word, name, "_total ", rest, "\n"]);
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn older_format_is_for_clients_that_prefer_it() {
        let prefers = |accept: &str| {
            prefers_plain(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(accept).unwrap())]))
        };
        assert!(!prefers_plain(&HeaderMap::new()));
        for accept in ["text/plain", "text/plain;version=0.0.4", "text/*, application/*;q=0.2", "TEXT/PLAIN ; q=0.3"] {
            assert!(prefers(accept), "{accept}");
        }
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in [prometheus, "*/*", "text/html,*/*;q=0.8", "application/json", "text/plain;q=0"] {
            assert!(!prefers(accept), "{accept}");
        }
    }

    #[test]
    fn older_format_names_a_counter_by_its_series_and_tells_no_unit_and_no_end() {
        let openmetrics = "# HELP a_seen Seen.\n# TYPE a_seen counter\na_seen_total{x=\"# EOF\"} 3\n\
                           # HELP b_seconds Time.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 1.5\n# EOF\n";
        let expected = "# HELP a_seen_total Seen.\n# TYPE a_seen_total counter\na_seen_total{x=\"# EOF\"} 3\n\
                        # HELP b_seconds Time.\n# TYPE b_seconds gauge\nb_seconds 1.5\n";
        assert_eq!(plain(openmetrics), expected);
    }
}
