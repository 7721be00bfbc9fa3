//! Draws the results as one SVG: bars of throughput with their ratios, and latency percentiles on a log scale.
//! Never draws a bar that does not start at zero, and never mixes groups on one axis.
//! Called by `report`; `scale` and `dispatch` use only `thousands`.

use crate::contest::{Group, Outcome, Row};
use crate::machine::Machine;
use crate::stats::PERCENTILES;
use crate::targets;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 310.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 28.0;
const COLOURS: [&str; 4] = ["#9ecae1", "#4292c6", "#08519c", "#d94801"];

/// The groups with their titles, and the name and label of the row that ratios are over.
const GROUPS: [(Group, &str, &str, &str); 4] = [
    (Group::Durable, "Durable cycles (claim + seal) per second", "redis", "Redis"),
    (Group::Http, "Requests per second that write nothing", "noop", "no-op"),
    (Group::Gateway, "Requests per second through a proxy to one upstream", "nginx", "nginx"),
    (Group::InProcess, "Keys per second, in process, synced", "fjall", "raw fjall"),
];

/// The SVG of a whole run.
pub fn svg(machine: &Machine, outcome: &Outcome) -> String {
    let mut y = 34.0;
    let mut body = text(20.0, y, "start", "title", "fencepost, side by side");
    y += 20.0;
    let conditions = format!(
        "{} cores, {}, fdatasync p50 {:.2} ms; absolute figures are of this machine, the ratios are the claim",
        machine.cores,
        machine.filesystem,
        outcome.sync.percentile_ms(50.0)
    );
    body += &text(20.0, y, "start", "note", &conditions);
    for (group, title, over, over_label) in GROUPS {
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.contestant.group == group).collect();
        if !rows.is_empty() {
            y += 34.0;
            body += &text(20.0, y, "start", "head", title);
            y += 10.0;
            body += &bars(outcome, &rows, over, over_label, &mut y);
        }
    }
    y += 34.0;
    body += &latencies(outcome, &mut y);
    let height = y + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>text{{fill:#222}}.title{{font-size:18px;font-weight:600}}.head{{font-weight:600}}.note{{fill:#666;font-size:12px}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn bars(outcome: &Outcome, rows: &[&Row], over: &str, over_label: &str, y: &mut f64) -> String {
    let most = rows.iter().map(|row| row.rate()).fold(0.0, f64::max);
    let mut drawn = String::new();
    for row in rows {
        let name = row.contestant.name;
        let width = (WIDTH - LEFT - RIGHT) * row.rate() / most;
        let colour = if name.starts_with("fencepost") || name.starts_with("library") { "#08519c" } else { "#bbb" };
        let ratio = targets::ratio(outcome, name, over).filter(|_| name != over);
        let ratio = ratio.map_or_else(String::new, |ratio| format!("  ({:.2} × {over_label})", ratio.value));
        drawn += &text(LEFT - 10.0, *y + 17.0, "end", "", row.contestant.label);
        drawn += &rect(LEFT, *y + 4.0, width, ROW - 10.0, colour);
        drawn += &text(LEFT + width + 6.0, *y + 17.0, "start", "", &format!("{}{ratio}", thousands(row.rate())));
        *y += ROW;
    }
    drawn
}

fn latencies(outcome: &Outcome, y: &mut f64) -> String {
    let mut drawn = text(20.0, *y, "start", "head", "Latency of one step, milliseconds, log scale");
    for (index, (label, _)) in PERCENTILES.iter().enumerate() {
        let x = WIDTH - RIGHT - 240.0 + 60.0 * index as f64;
        drawn += &circle(x, *y - 4.0, COLOURS[index]);
        drawn += &text(x + 8.0, *y, "start", "note", label);
    }
    *y += 12.0;
    let values = outcome.rows.iter().flat_map(|row| (0..PERCENTILES.len()).map(|index| row.percentile_ms(index)));
    let (least, most) = values.fold((f64::MAX, 0.001_f64), |(low, high), v| (low.min(v), high.max(v)));
    let (first, last) = (least.max(0.001).log10().floor(), most.log10().ceil());
    let at = |ms: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ms.max(0.001).log10() - first) / (last - first).max(1.0);
    let bottom = *y + ROW * outcome.rows.len() as f64;
    for power in first as i32..=last as i32 {
        let x = at(10f64.powi(power));
        drawn += &format!("<path d=\"M{x:.1} {:.1}V{bottom:.1}\" stroke=\"#ddd\"/>\n", *y);
        drawn += &text(x, bottom + 16.0, "middle", "note", &format!("{}", 10f64.powi(power)));
    }
    for row in &outcome.rows {
        let middle = *y + ROW / 2.0;
        let label = format!("{} ({})", row.contestant.name, row.contestant.step);
        drawn += &text(LEFT - 10.0, middle + 4.0, "end", "", &label);
        let ends = (at(row.percentile_ms(0)), at(row.percentile_ms(PERCENTILES.len() - 1)));
        drawn +=
            &format!("<path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#bbb\" stroke-width=\"2\"/>\n", ends.0, ends.1);
        for (index, colour) in COLOURS.iter().enumerate() {
            drawn += &circle(at(row.percentile_ms(index)), middle, colour);
        }
        let worst = format!("{:.2} … {:.2}", row.percentile_ms(0), row.percentile_ms(PERCENTILES.len() - 1));
        drawn += &text(WIDTH - 20.0, middle + 4.0, "end", "note", &worst);
        *y += ROW;
    }
    *y += 20.0;
    drawn
}

fn rect(x: f64, y: f64, width: f64, height: f64, colour: &str) -> String {
    format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\n")
}

fn circle(x: f64, y: f64, colour: &str) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>\n")
}

fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{content}</text>\n")
}

/// Formats 1234567 as 1,234,567.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(thousands(1_234_567.2), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1000.0), "1,000");
    }
}
