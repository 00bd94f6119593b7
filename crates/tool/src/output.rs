//! Output formats of all subcommands: text tables, JSON, and progress bars.

use super::failure::Result;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, Width, presets};
use console::{Style, Term};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use plinth::internal::base::units::Bytes;
use serde_json::Value;
use std::io::{self, Write};

/// The format of the output.
pub struct Output {
    /// Whether the output is JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Creates an output in one of the two formats.
    pub fn new(json: bool) -> Output {
        Output { json }
    }

    /// Writes a value as JSON.
    pub fn value(&self, value: &Value) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{value:#}")?;
        Ok(out.flush()?)
    }

    /// Writes text, which ends with a newline.
    pub fn text(&self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Creates a progress bar for a number of steps. It is hidden if standard error is not a terminal, and removed
    /// when dropped.
    pub fn progress(&self, what: &'static str, steps: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10))
            .with_finish(ProgressFinish::AndClear);
        // The template is a constant. If it were invalid, the default style would be used.
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        bar
    }
}

/// Fills the line between a table's header, which may have several lines, and its rows. It is not printed.
const HEADER_END: char = '\u{1}';

/// A table with a header and without lines; columns of numbers are right-aligned. In a terminal that is too narrow,
/// headings and texts are wrapped between words, and numbers never are.
pub struct Columns {
    table: Table,
    /// For each column the width of the widest text that is not wrapped.
    least: Vec<usize>,
    numbers: Vec<bool>,
}

impl Columns {
    /// Creates a table. A name that begins with `>` marks a column of numbers.
    pub fn new(names: &[&str]) -> Columns {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING.header_separator(LineStyle::none().fill(HEADER_END)))
            .set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width() {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let plain: Vec<&str> = names.iter().map(|name| name.trim_start_matches('>')).collect();
        let longest_word = |name: &&str| name.split(' ').map(str::len).max().unwrap_or(0);
        let least = plain.iter().map(longest_word).collect();
        table.set_header(plain);
        for (index, name) in names.iter().enumerate() {
            if let Some(column) = table.column_mut(index) {
                column.set_padding(if index == 0 { (0, 1) } else { (1, 1) });
                if name.starts_with('>') {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        Columns { table, least, numbers: names.iter().map(|name| name.starts_with('>')).collect() }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        for ((cell, least), number) in cells.iter().zip(&mut self.least).zip(&self.numbers) {
            if *number {
                *least = (*least).max(cell.chars().count());
            }
        }
        self.table.add_row(cells);
    }

    /// Returns the table's text, with the header in bold on a terminal.
    pub fn text(mut self) -> String {
        for (index, least) in self.least.iter().enumerate() {
            if let Some(column) = self.table.column_mut(index) {
                // The width of a column includes its padding.
                let padding = if index == 0 { 1 } else { 2 };
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed((least + padding) as u16)));
            }
        }
        let mut header = true;
        let mut text = String::new();
        for line in self.table.lines() {
            if line.starts_with(HEADER_END) {
                header = false;
            } else if header {
                text += &format!("{}\n", Style::new().bold().apply_to(line.trim_end()));
            } else {
                text += &format!("{}\n", line.trim_end());
            }
        }
        text
    }
}

/// Returns a heading of a part of the output.
pub fn heading(text: &str) -> String {
    format!("{}\n", Style::new().bold().cyan().apply_to(text))
}

/// Formats a byte count for reading.
pub fn bytes(count: u64) -> String {
    Bytes(count).to_string()
}

/// Formats a value, or a dash if there is none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Replaces the characters of a text of others that would control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Returns whether standard output is a terminal.
pub fn is_terminal() -> bool {
    Term::stdout().is_term()
}

/// Returns the terminal's width, if standard output is a terminal. Otherwise lines are not wrapped.
pub fn width() -> Option<u16> {
    is_terminal().then(|| Term::stdout().size().1)
}

/// Wraps a sentence to the terminal's width. Continuation lines are indented to `column`, where the first line
/// begins.
pub fn paragraph(text: &str, column: usize) -> String {
    wrapped(text, column, width().map_or(usize::MAX, usize::from))
}

fn wrapped(text: &str, column: usize, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && column + line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{:column$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\x1b[2J\tb\u{9b}c"), "a [2J b c");
    }

    #[test]
    fn sentences_wrap_between_words() {
        assert_eq!(wrapped("one two three", 4, 12), "one two\n    three");
        assert_eq!(wrapped("one two three", 4, usize::MAX), "one two three");
        assert_eq!(wrapped("a-long-word and", 4, 6), "a-long-word\n    and");
    }
}
