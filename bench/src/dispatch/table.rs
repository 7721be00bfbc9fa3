//! A figure, the baseline that it is compared with, and the promised ratio; as a table row and as JSON.
//! Never hides a figure that misses its goal and never fails the run for it: people judge. Called by the parts.

use serde_json::{Value, json};

use crate::plot::thousands;

/// The promised bound on a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
    /// No bound: the ratio only informs.
    None,
}

impl Goal {
    fn said(self, ratio: f64) -> String {
        let met = |met| if met { "met" } else { "MISSED" };
        match self {
            Goal::AtLeast(least) => format!("{} (at least {least})", met(ratio >= least)),
            Goal::AtMost(most) => format!("{} (at most {most})", met(ratio <= most)),
            Goal::None => String::new(),
        }
    }
}

/// One row of the table.
pub struct Finding {
    part: char,
    label: String,
    value: f64,
    mark: Option<(String, f64, Goal)>,
    more: Value,
}

impl Finding {
    /// A figure that is divided by the baseline `mark` and held against `goal`.
    pub fn ratio(part: char, label: &str, value: f64, mark: (String, f64), goal: Goal) -> Finding {
        Finding { part, label: label.to_owned(), value, mark: Some((mark.0, mark.1, goal)), more: Value::Null }
    }

    /// A figure without a baseline.
    pub fn alone(part: char, label: &str, value: f64) -> Finding {
        Finding { part, label: label.to_owned(), value, mark: None, more: Value::Null }
    }

    /// Adds further members for the results file.
    pub fn with(self, more: Value) -> Finding {
        Finding { more, ..self }
    }

    /// Prints the row.
    pub fn print(&self) {
        let start = format!("{}  {:<58} {:>10}", self.part, self.label, figure(self.value));
        match &self.mark {
            None => println!("{start}"),
            Some((name, mark, goal)) => {
                let ratio = self.value / mark;
                println!("{start}   {:>10} {name:<28} ratio {ratio:>6.2}  {}", figure(*mark), goal.said(ratio));
            }
        }
    }

    /// The row for the results file.
    pub fn json(&self) -> Value {
        let mut found = json!({ "part": self.part.to_string(), "what": self.label.trim(), "value": self.value });
        if let Some((name, mark, goal)) = &self.mark {
            found["beside"] = json!({ "what": name, "value": mark });
            found["ratio"] = json!(self.value / mark);
            found["goal"] = json!(goal.said(self.value / mark));
        }
        if !self.more.is_null() {
            found["more"] = self.more.clone();
        }
        found
    }
}

fn figure(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { thousands(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_is_said_to_be() {
        let slow = Finding::ratio('a', "x", 10.0, ("y".to_owned(), 40.0), Goal::AtLeast(0.5)).json();
        assert_eq!((slow["ratio"].as_f64(), slow["goal"].as_str()), (Some(0.25), Some("MISSED (at least 0.5)")));
        let quick = Finding::ratio('d', "x", 1.2, ("y".to_owned(), 1.0), Goal::AtMost(1.5)).json();
        assert_eq!(quick["goal"], "met (at most 1.5)");
    }
}
