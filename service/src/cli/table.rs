//! Tables for people: aligned columns, the last one cut to the terminal's width. Machines use
//! `--json`.

use std::io::IsTerminal;

use unicode_width::UnicodeWidthStr;

use super::{output, text};

/// Minimum width of the last column, however narrow the terminal is.
const LAST_LEAST: usize = 20;

/// A table with a header, and rows with the same number of cells.
pub(crate) struct Table<const COLUMNS: usize> {
    head: [&'static str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A column whose header begins with `>` has numbers, which are aligned to the right.
    pub(crate) fn new(head: [&'static str; COLUMNS]) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// A table with these rows.
    pub(crate) fn of(head: [&'static str; COLUMNS], rows: impl Iterator<Item = [String; COLUMNS]>) -> Self {
        Self { head, rows: rows.map(|cells| cells.map(|cell| text::clean(&cell))).collect() }
    }

    /// Adds a row, sanitizing its texts.
    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| text::clean(&cell)));
    }

    /// Prints the table; without rows, prints `nothing`.
    pub(crate) fn print(&self, nothing: &str) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            return output::line(nothing);
        }
        self.lines(terminal_width()).iter().try_for_each(output::line)
    }

    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let heads = self.head.map(|head| head.trim_start_matches('>').to_owned());
        let rows = std::iter::once(&heads).chain(&self.rows);
        let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
            let longest = rows.clone().map(|row| row[column].width()).max();
            longest.unwrap_or_default()
        });
        let before: usize = widths.iter().take(COLUMNS - 1).map(|width| width + 2).sum();
        let last = width.map_or(usize::MAX, |width| width.saturating_sub(before).max(LAST_LEAST));
        rows.map(|row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column + 1 == COLUMNS {
                    line.push_str(&text::cut(cell, last));
                    break;
                }
                let blanks = " ".repeat(widths[column] - cell.width());
                match self.head[column].starts_with('>') {
                    true => line.extend([blanks.as_str(), cell, "  "]),
                    false => line.extend([cell, blanks.as_str(), "  "]),
                }
            }
            line.trim_end().to_owned()
        })
        .collect()
    }
}

/// The terminal's width; `None` if standard output is not a terminal.
fn terminal_width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_last_one_is_cut() {
        let mut table = Table::new(["NAME", ">COUNT", "WORDS"]);
        table.row(["a".into(), "12345678".into(), "x".repeat(40)]);
        table.row(["long-name".into(), "1".into(), String::new()]);
        let wide = format!(
            "NAME          COUNT  WORDS\na          12345678  {}\nlong-name         1",
            "x".repeat(40)
        );
        assert_eq!(table.lines(None).join("\n"), wide);
        let narrow = format!("a          12345678  {}…", "x".repeat(29));
        assert_eq!(table.lines(Some(51))[1], narrow);
        assert_eq!(table.lines(Some(1))[1], format!("a          12345678  {}…", "x".repeat(19)));
    }
}
