//! Text for people: tables with aligned columns, and the span until or since a time.
//! Never wider than the terminal, and never cut where there is none. Called by the commands that print.

use std::{
    io::stdout,
    time::{SystemTime, UNIX_EPOCH},
};

use fencepost::policy::instant;

/// The columns and rows of the terminal on standard output; none where that is not a terminal.
pub fn terminal() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// A number of things: `1 error`, `2 errors`.
pub fn counted(count: impl TryInto<u64>, thing: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Rows under a header line, each cell as wide as the widest of its column.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    within(head, rows, terminal().map_or(usize::MAX, |(columns, _)| columns))
}

// Columns that the terminal has no room for go below their row, each with its name.
fn within(head: &[&str], rows: &[Vec<String>], columns_max: usize) -> String {
    let upper: Vec<String> = head.iter().map(|name| name.to_uppercase()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([upper[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let fits = |columns: &usize| widths[..*columns].iter().sum::<usize>() + 2 * (columns - 1) <= columns_max;
    let kept = (1..=head.len()).rev().find(fits).unwrap_or(1);
    let line = |row: &[String]| {
        let cell = |(text, width): (&String, &usize)| match text.as_str() {
            "" => format!("{:<width$}", "-"),
            text => format!("{:<width$}", plain(text)),
        };
        let line = row.iter().zip(&widths).take(kept).map(cell).collect::<Vec<_>>().join("  ");
        cut(line.trim_end(), columns_max) + "\n"
    };
    let mut out = line(&upper);
    for row in rows {
        out += &line(row);
        let under = head.iter().zip(row).skip(kept).filter(|(_, text)| !text.is_empty());
        let under: Vec<String> = under.map(|(name, text)| format!("{name}: {}", plain(text))).collect();
        out += &packed(&under, columns_max);
    }
    out
}

// As many on a line as fit, indented.
fn packed(parts: &[String], columns_max: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= columns_max => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(format!("    {part}")),
        }
    }
    lines.iter().map(|line| cut(line, columns_max) + "\n").collect()
}

/// A text on one line, without control characters: it may come from another party, and must not move the cursor.
pub fn plain(text: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' | '\r' | '\t' => ' ',
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    };
    text.chars().map(shown).collect()
}

/// A line of at most `chars_max` characters; one that is cut ends in `…`.
pub fn cut(line: &str, chars_max: usize) -> String {
    match line.char_indices().nth(chars_max) {
        None => line.to_owned(),
        Some(_) => line.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How long until a time, by the clock of this machine.
pub fn until(at: &str) -> String {
    match instant(at).map(|at| at.saturating_sub(now_ms())) {
        Ok(0) => "now".to_owned(),
        Ok(ms) => span(ms),
        Err(_) => String::new(),
    }
}

/// How long since a time, by the clock of this machine.
pub fn since(at: &str) -> String {
    instant(at).map_or_else(|_| String::new(), |at| span(now_ms().saturating_sub(at)))
}

// A span in its two largest units, such as `2h 5m`; below a minute in seconds.
fn span(ms: u64) -> String {
    // Rounded up: a span that is not over yet never shows as 0s.
    let seconds = ms.div_ceil(1_000);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_its_two_largest_units() {
        for (ms, text) in [
            (1, "1s"),
            (59_000, "59s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h 0m"),
            (86_399_000, "23h 59m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn a_line_is_cut_between_characters_and_shows_it() {
        assert_eq!(cut("four", 4), "four");
        assert_eq!(cut("größer", 4), "grö…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn columns_stand_under_one_another_and_what_is_not_there_is_a_dash() {
        let rows = vec![vec!["a".to_owned(), "long".to_owned()], vec!["bbb".to_owned(), String::new()]];
        assert_eq!(table(&["x", "y"], &rows), "X    Y\na    long\nbbb  -\n");
        assert_eq!(counted(1, "fence") + ", " + &counted(0, "error"), "1 fence, 0 errors");
        assert_eq!(table(&["x"], &[vec!["a\x1b[2J\nb".to_owned()]]), "X\na\u{fffd}[2J b\n");
    }

    #[test]
    fn columns_without_room_stand_under_their_row_with_their_names() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [row(["fgai-wms:WH-1", "webhook", "3", "503 the dock is closed today"]), row(["b", "poll", "", ""])];
        assert_eq!(
            within(&["lane", "transport", "attempts", "last answer"], &rows, 36),
            "LANE           TRANSPORT  ATTEMPTS\n\
             fgai-wms:WH-1  webhook    3\n    last answer: 503 the dock is cl…\n\
             b              poll       -\n"
        );
        assert_eq!(
            within(&["lane", "transport", "attempts", "last answer"], &rows[..1], 30),
            "LANE           TRANSPORT\nfgai-wms:WH-1  webhook\n    attempts: 3\n    last answer: 503 the dock…\n"
        );
    }
}
