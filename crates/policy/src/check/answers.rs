//! Lints a rule's answers to requests that it does not pass on, and the headers that it requires.
//! Never judges a status that the reader `answers` has refused.
//! Called by `check`.

use super::{Lints, Understood};
use crate::finding::Severity;
use crate::routes::GatewayRule;

/// Runs every lint on answers and required headers.
pub fn lint(lints: &mut Lints<'_>, understood: &Understood<'_>) {
    for (index, route) in understood.routes.iter().enumerate() {
        lints.unread = understood.unread_of(index);
        let answers = [("on_stale", &route.answers.stale), ("on_conflict", &route.answers.conflict)];
        for (name, answer) in answers {
            if let Some((status, mark)) = answer {
                let is_received = (200..300).contains(status);
                match (route.verify.is_some(), is_received, name) {
                    (false, true, _) => {
                        let message = format!(
                            "`{name}` answers {status} without `verify`: a client is told that its request was done, and it \
                             was not"
                        );
                        lints.error(mark, "ack-without-verify", message, "use 409 or 422");
                    }
                    (true, false, "on_stale") => {
                        let message = "the provider sends a stale event again for days, and it stays stale".to_owned();
                        lints.warning(mark, "stale-retried", message, "leave it out: 200 ends the deliveries");
                    }
                    (true, true, "on_conflict") => {
                        let message =
                            "a delivery with other content under a known key is acknowledged and goes nowhere: only \
                                       the log and the metric conflicts_acknowledged tell of it"
                                .to_owned();
                        let fix = "watch fencepost_conflicts_acknowledged_total, or leave it out: the provider keeps the delivery";
                        lints.say(Severity::Note, mark, "conflict-acknowledged", message, fix);
                    }
                    _ => {}
                }
            }
        }
        headers(lints, route);
    }
}

fn headers(lints: &mut Lints<'_>, route: &GatewayRule) {
    if let (Some(_), Some((_, mark))) = (&route.verify, &route.require_headers) {
        let message =
            "`require_headers` is not for rules with `verify`: a provider sends the headers that it signs".to_owned();
        lints.error(mark, "headers-with-verify", message, "remove it");
    }
}
