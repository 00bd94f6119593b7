//! What all subcommands print by: tables for people, JSON for programs, bars for those who wait.

use super::failure::Result;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use console::{Style, Term};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use plinth::base::units::Bytes;
use serde_json::Value;
use std::io::{self, Write};

/// Where the output goes, and in which form.
pub struct Output {
    /// Whether JSON is wanted.
    pub json: bool,
}

impl Output {
    /// An output of one of the two forms.
    pub fn new(json: bool) -> Output {
        Output { json }
    }

    /// Writes a value as JSON.
    pub fn value(&self, value: &Value) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{value:#}")?;
        Ok(out.flush()?)
    }

    /// Writes text, which ends with a line's end.
    pub fn text(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// A bar for work of so many steps. It is not there where standard error is no terminal, and goes when it is dropped.
    pub fn progress(&self, what: &'static str, steps: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10))
            .with_finish(ProgressFinish::AndClear);
        // The template is a constant, and without a template there is still a bar.
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        bar
    }
}

/// A table without lines, under a header; columns that are numbers stand to the right.
pub struct Columns(Table);

impl Columns {
    /// A table of these columns. A name that begins with `>` is that of a column of numbers.
    pub fn new(names: &[&str]) -> Columns {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width() {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let plain: Vec<&str> = names.iter().map(|name| name.trim_start_matches('>')).collect();
        table.set_header(plain);
        for (index, name) in names.iter().enumerate() {
            if let Some(column) = table.column_mut(index) {
                column.set_padding(if index == 0 { (0, 1) } else { (1, 1) });
                if name.starts_with('>') {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        Columns(table)
    }

    /// Adds a row.
    pub fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(Into::into).collect::<Vec<Cell>>());
    }

    /// The table's text: its header in bold where that can be seen.
    pub fn text(&self) -> String {
        let text = self.0.trim_fmt();
        match text.split_once('\n') {
            Some((header, rows)) => format!("{}\n{rows}\n", Style::new().bold().apply_to(header)),
            None => format!("{}\n", Style::new().bold().apply_to(text)),
        }
    }
}

/// A heading over a part of the output.
pub fn heading(text: &str) -> String {
    format!("{}\n", Style::new().bold().cyan().apply_to(text))
}

/// Bytes as people read them.
pub fn bytes(count: u64) -> String {
    Bytes(count).to_string()
}

/// What is known, or a dash.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Whether somebody watches.
pub fn is_watched() -> bool {
    Term::stdout().is_term()
}

/// The columns of the terminal, where somebody watches. Elsewhere lines are as long as they are.
fn width() -> Option<u16> {
    is_watched().then(|| Term::stdout().size().1)
}

/// A sentence whose lines begin at a column, as many as the terminal needs; the first one's beginning is there already.
pub fn paragraph(text: &str, column: usize) -> String {
    broken(text, column, width().map_or(usize::MAX, usize::from))
}

fn broken(text: &str, column: usize, width: usize) -> String {
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
    fn sentences_are_broken_between_words() {
        assert_eq!(broken("one two three", 4, 12), "one two\n    three");
        assert_eq!(broken("one two three", 4, usize::MAX), "one two three");
        assert_eq!(broken("a-long-word and", 4, 6), "a-long-word\n    and");
    }
}
