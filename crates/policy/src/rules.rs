//! Every rule that a finding can name, each with its subject in one line.
//! Never judges: a report's reader looks rules up in this list, and a test compares the guide's table with it.
//! Called by `formats`, and by every finding in a debug build.

/// The page that explains the rules.
pub const HELP: &str = "https://fencepost.dev/guides/policy#what-check-looks-for";

/// Each rule: its stable name and its subject.
pub const RULES: [(&str, &str); 93] = [
    ("ack-before-seal", "The sender is acknowledged before the outcome is sealed"),
    ("ack-without-verify", "A client is told done where nothing was"),
    ("again-in-key", "The sequence of repetitions is also a key field"),
    ("allow-unused", "An allowance for a field that is not in the key"),
    ("bucket-in-key", "A key field named like a rounded time"),
    ("buffers-too-small", "Buffers that hold too few of the largest requests"),
    ("caller-with-verify", "Callers of a rule that takes no credential"),
    ("collection-cycle", "Collections that refer to each other in a circle"),
    ("collection-name", "Not a collection's name"),
    ("conflict-acknowledged", "A webhook's conflict is acknowledged"),
    ("constant-key", "A route whose requests all have the same key"),
    ("duplicate", "Something stands twice"),
    ("duplicate-key", "A name stands twice in one mapping"),
    ("durability", "A durability that the store must be set up for"),
    ("header-impossible", "A required header that no client can send"),
    ("header-name", "Not a header's name"),
    ("header-not-required", "A key taken from a header that is not required"),
    ("headers-with-verify", "Required headers of a rule that takes a signature"),
    ("identity-differs", "An identity that differs from the policy's"),
    ("identity-name", "Not an identity's name"),
    ("incomplete", "Something is missing"),
    ("key-incomplete", "A route that leaves out a key field"),
    ("key-too-much", "A route that gives a field its scope does not have"),
    ("lease-over-max", "A lease over its own maximum"),
    ("lease-under-timeout", "A lease shorter than the upstream may take"),
    ("long-retention", "A retention longer than is usual"),
    ("long-tolerance", "A signed time may be too old"),
    ("mask-pointer", "A mask that is not a JSON pointer"),
    ("no-caller", "A rule that nobody may call"),
    ("no-credential", "An identity without a credential"),
    ("no-hash", "A credential without its hash"),
    ("no-id", "An identity without a name"),
    ("no-key", "A scope without key fields"),
    ("no-planner", "An executor that serves no planner"),
    ("no-principal", "Users of one tenant who share answers"),
    ("no-roles", "An identity without a role"),
    ("no-secret", "A webhook without a secret"),
    ("no-sequence", "A repetition without its sequence"),
    ("no-tenant", "A webhook without a tenant of its own"),
    ("no-version-field", "A version without its field"),
    ("no-warehouse", "A planner or executor without a warehouse"),
    ("nobody", "No identity has a credential"),
    ("not-a-hash", "Not a SHA-256"),
    ("order-without-source", "Requests of a whole route wait for each other"),
    ("overlapping-routes", "Two routes fit the same requests"),
    ("own-scope", "A route under a scope that Fencepost seals itself"),
    ("own-scope-key", "Key fields that ingest does not fill"),
    ("path-name", "A name that the path does not bind"),
    ("planners-without-executor", "Planners served by an identity that is no executor"),
    ("principal-not-compared", "A user who is named and not compared"),
    ("principal-unstable", "A user named by what changes between retries"),
    ("principal-unverified", "A user named by a token that is not verified here"),
    ("quarantine-retention", "A quarantine forgotten before the answers that name it"),
    ("random-in-key", "A key field named like a value made for each try"),
    ("read-route", "A route on a method that only reads"),
    ("reference-pointer", "A reference that does not point into an item"),
    ("release-under-hold", "A failure frees a key that a lapse would hold"),
    ("replay-status", "A replay that tells a sender it failed"),
    ("reserved-field", "A key field whose name is taken"),
    ("restart", "A change that needs a restart"),
    ("route-incomplete", "A route with something missing"),
    ("schema-broken", "Not a JSON Schema"),
    ("schema-external", "A schema that refers outside of itself"),
    ("schema-never", "A schema that no item can fit"),
    ("scope-name", "Not a scope's name"),
    ("seal-on-error", "A webhook whose failures are kept as its outcome"),
    ("secret-form", "A secret that cannot verify anything"),
    ("shared-credential", "Two identities with one credential"),
    ("short-retention", "A retention under the horizon of retries"),
    ("short-secret", "A secret that can be guessed"),
    ("stale-retried", "A webhook whose stale events come again"),
    ("store-unfit", "More than the store can carry"),
    ("store-url", "A store's address that is missing or does not fit"),
    ("tenant-without-verify", "A tenant where the credential says it"),
    ("time-in-key", "A key field named like a time"),
    ("tls", "A TLS identity with something missing"),
    ("two-retentions", "One retention said in two places"),
    ("unknown-collection", "A reference to a collection that is not there"),
    ("unknown-key", "A name that is not known here"),
    ("unknown-scope", "A route to a scope that is not there"),
    ("unknown-value", "A value that is not known here"),
    ("unknown-variable", "An environment variable that sets nothing"),
    ("unreachable-route", "A route that no request reaches"),
    ("unreadable", "A file that cannot be read"),
    ("unserved", "A section that this release does not serve"),
    ("unsigned-key", "A key that the signature does not cover"),
    ("unusual-retention", "A retention shorter than is usual"),
    ("upstream-loop", "An upstream that is the gateway itself"),
    ("version-not-in-key", "A version made of fields that the key does not have"),
    ("version-per-itself", "A version compared within itself"),
    ("wrong-type", "A value of the wrong type"),
    ("wrong-value", "A value that cannot be understood"),
    ("yaml", "Not YAML as it is read here"),
];

/// The subject of a rule.
pub fn about(rule: &str) -> Option<&'static str> {
    RULES.iter().find(|(name, _)| *name == rule).map(|(_, about)| *about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_sorted_and_the_guide_names_each() {
        assert!(RULES.is_sorted_by(|one, other| one.0 < other.0));
        let guide = include_str!("../../../docs/guides/policy.md");
        for (rule, _) in RULES {
            assert!(guide.contains(&format!("`{rule}`")), "docs/guides/policy.md does not name {rule}");
        }
    }
}
