//! The screen of `plinth top`: bars of the devices, their history, and the table of processes.

use super::{
    super::output::{bytes, or_dash},
    reading::{DeviceReading, ProcessReading},
    state::{Column, History, Panel, State},
};
use plinth::internal::ops::telemetry::Reading;
use plinth_driver::Kind;
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style as TextStyle, Stylize},
    symbols::bar,
    text::{Line, Span},
    widgets::{Block, Cell, Clear, Paragraph, RenderDirection, Row, Sparkline, Table, Wrap},
};
use std::{collections::VecDeque, env};

/// The keys, as the last line shows them.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "keys"),
    ("Tab", "device"),
    ("Up/Down", "process"),
    ("Enter", "details"),
    ("s", "sort"),
    ("r", "reverse"),
    ("p", "pause"),
];

/// All keys.
pub const ALL_KEYS: [(&str, &str); 14] = [
    ("q, Esc, F10", "quit"),
    ("Right, Left, Tab, 0-9", "select a device"),
    ("f", "show only the processes of this device, or all"),
    ("Up, Down, PgUp, PgDn", "select a process"),
    ("Enter", "show the selected process: its whole command line"),
    ("s, F6", "sort by the next column"),
    ("r", "reverse the order"),
    ("B", "sort by the utilization of the device"),
    ("M", "sort by memory of the device"),
    ("P", "sort by processor time"),
    ("T, N", "sort by running time, by process number"),
    ("p, Space", "pause"),
    ("+, -", "double the interval between readings, or halve it"),
    ("?, h, F1", "show or hide this list"),
];

/// Bars of the history in ASCII.
const ASCII_BARS: bar::Set = bar::Set {
    full: "|",
    seven_eighths: "|",
    three_quarters: "|",
    five_eighths: ":",
    half: ":",
    three_eighths: ".",
    one_quarter: ".",
    one_eighth: ".",
    empty: " ",
};

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Whether colours are used.
    pub color: bool,
    /// Whether characters outside of ASCII are used.
    pub unicode: bool,
}

impl Style {
    /// Returns what the terminal of this process can show: by `NO_COLOR` and by the locale.
    pub fn of_terminal() -> Style {
        let set = |name: &&str| env::var(name).is_ok_and(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).and_then(|name| env::var(name).ok());
        let unicode = locale.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"));
        Style { color: console::colors_enabled(), unicode }
    }

    fn color(self, color: Color) -> TextStyle {
        if self.color { TextStyle::new().fg(color) } else { TextStyle::new() }
    }

    /// Returns the colour of a load.
    fn load(self, percent: u64) -> TextStyle {
        self.color(match percent {
            0..60 => Color::Green,
            60..90 => Color::Yellow,
            _ => Color::Red,
        })
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame, state: &mut State, style: Style) {
    let area = frame.area();
    let devices = state.devices.len() as u16;
    // Each device has two lines if they fit beside its history and some processes.
    let lines = if devices * 2 + 14 <= area.height { 2 } else { 1 };
    let most = (area.height.saturating_sub(8) / lines).max(1);
    let device_rows = devices.min(most) * lines;
    let rest = area.height.saturating_sub(device_rows + 2);
    let (history, gap) = match rest {
        0..12 => (0, 0),
        12..45 => (rest * 2 / 5, 1),
        _ => (18, 1),
    };
    let rows = [1, device_rows, gap, history, gap].map(Constraint::Length).into_iter();
    let rows = rows.chain([Constraint::Fill(1), Constraint::Length(1)]);
    let [title, bars, _, graphs, _, processes, keys] = Layout::vertical(rows).areas(area);
    draw_title(frame, state, style, title);
    draw_devices(frame, state, style, bars, lines);
    draw_history(frame, state, style, graphs);
    match state.panel {
        Some(panel) => {
            let below_title = Rect { y: bars.y, height: keys.y.saturating_sub(bars.y), ..area };
            draw_panel(frame, state, panel, if panel == Panel::Keys { below_title } else { processes });
        }
        None => draw_processes(frame, state, style, processes),
    }
    frame.render_widget(keys_line(area.width), keys);
}

fn draw_title(frame: &mut Frame, state: &State, style: Style, area: Rect) {
    let mut left = vec![Span::from("plinth top  ").bold()];
    match (&state.driver, state.kind) {
        (_, Kind::Host) => {
            left.push(Span::styled("HOST DEVICE: GPUs simulated on this CPU", style.color(Color::Yellow)).bold());
        }
        (driver, Kind::Cuda) => left.push(Span::from(or_dash(driver.as_ref()))),
    }
    let seconds = state.interval.as_secs_f64();
    let right = if state.paused { "PAUSED (p)".to_owned() } else { format!("every {seconds} s") };
    frame.render_widget(Line::from(left), area);
    frame.render_widget(Line::from(right).alignment(Alignment::Right), area);
}

/// Returns a bar of `width` columns, with a text at its end.
fn bar(width: usize, percent: Option<u64>, text: &str, style: Style) -> Vec<Span<'static>> {
    let inner = width.saturating_sub(2);
    let filled = (inner * percent.unwrap_or(0).min(100) as usize).div_ceil(100);
    let text: String = text.chars().take(inner).collect();
    let cells: String =
        format!("{:<width$}", "|".repeat(filled), width = inner - text.len()).chars().take(inner).collect();
    // The text covers the end of the bar.
    let cells: String = cells.chars().take(inner - text.len()).chain(text.chars()).collect();
    let (full, empty) = cells.split_at(filled.min(cells.len()));
    vec![
        Span::from("["),
        Span::styled(full.to_owned(), style.load(percent.unwrap_or(0))),
        Span::from(empty.to_owned()),
        Span::from("]"),
    ]
}

fn percent_text(percent: Option<u64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

/// Returns "45.20 of 141.00 GiB", or with two units if they differ.
fn memory_text(device: &DeviceReading) -> String {
    let total = bytes(device.total);
    let Some(used) = device.value(Reading::MemoryUsed).map(bytes) else { return format!("- of {total}") };
    match (used.split_once(' '), total.split_once(' ')) {
        (Some((used, unit)), Some((_, same))) if unit == same => format!("{used} of {total}"),
        _ => format!("{used} of {total}"),
    }
}

/// Returns temperature, power, clock rate and the reasons for a reduced one, as far as the device reports them.
fn condition(device: &DeviceReading) -> String {
    let with = |reading, scale: u64, unit: &str| device.value(reading).map(|value| format!("{}{unit}", value / scale));
    let reasons = device.throttle_reasons().unwrap_or_default();
    let mut parts: Vec<String> = [
        with(Reading::Temperature, 1, " C"),
        with(Reading::PowerDraw, 1000, " W"),
        with(Reading::ClockRate, 1, " MHz"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !reasons.is_empty() {
        parts.push(format!("limited: {}", reasons.join(", ")));
    }
    parts.join("  ")
}

fn draw_devices(frame: &mut Frame, state: &State, style: Style, area: Rect, lines: u16) {
    let fit = usize::from(area.height / lines);
    // The selected device is always in the window.
    let first = (state.device + 1).saturating_sub(fit).min(state.devices.len().saturating_sub(fit));
    let width = usize::from(area.width);
    let digits = state.devices.len().saturating_sub(1).to_string().len();
    let mut text = Vec::new();
    for device in state.devices.iter().skip(first).take(fit) {
        let selected = device.number == state.device;
        let name = match state.kind {
            Kind::Host => format!("{} (simulated)", device.name),
            Kind::Cuda => device.name.clone(),
        };
        let mark = if selected { ">" } else { " " };
        let emphasis = if selected { TextStyle::new().add_modifier(Modifier::BOLD) } else { TextStyle::new() };
        let busy = device.value(Reading::Utilization);
        let (memory, memory_text) = (device.memory_percent(), memory_text(device));
        let number = format!("{mark}{:<digits$} ", device.number);
        if lines == 2 {
            let condition = condition(device);
            let gap = width.saturating_sub(number.len() + name.len() + condition.len()).max(1);
            text.push(Line::from(vec![
                Span::styled(format!("{number}{name}"), emphasis),
                Span::from(format!("{:gap$}{condition}", "")),
            ]));
            let half = width.saturating_sub(3) / 2;
            let mut line = vec![Span::from("   busy ")];
            line.extend(bar(half.saturating_sub(6), busy, &percent_text(busy), style));
            line.push(Span::from(" memory "));
            line.extend(bar(width.saturating_sub(half + 10), memory, &memory_text, style));
            text.push(Line::from(line));
        } else {
            let condition = match (device.value(Reading::Temperature), device.value(Reading::PowerDraw)) {
                (Some(temperature), Some(power)) => format!(" {temperature:>3} C {:>4} W", power / 1000),
                _ => String::new(),
            };
            let bars = width.saturating_sub(number.len() + "busy  memory ".len() + condition.len());
            let mut line = vec![Span::styled(number, emphasis), Span::from("busy ")];
            line.extend(bar(bars * 2 / 5, busy, &percent_text(busy), style));
            line.push(Span::from(" memory "));
            line.extend(bar(bars - bars * 2 / 5, memory, &memory_text, style));
            line.push(Span::from(condition));
            text.push(Line::from(line));
        }
    }
    frame.render_widget(Paragraph::new(text), area);
}

fn draw_history(frame: &mut Frame, state: &State, style: Style, area: Rect) {
    let none = History::default();
    let history = state.history.get(state.device).unwrap_or(&none);
    let columns = [Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)];
    let [left, _, right] = Layout::horizontal(columns).areas(area);
    for (area, name, values, color) in
        [(left, "busy", &history.busy, Color::Green), (right, "memory", &history.memory, Color::Cyan)]
    {
        draw_graph(frame, state, (name, values), style, color, area);
    }
}

fn draw_graph(
    frame: &mut Frame,
    state: &State,
    (name, values): (&str, &VecDeque<Option<u64>>),
    style: Style,
    color: Color,
    area: Rect,
) {
    let rows = [Constraint::Length(1), Constraint::Fill(1)];
    let [heading, graph] = Layout::vertical(rows).areas(area);
    let seconds = (f64::from(area.width) * state.interval.as_secs_f64()).round();
    let now = percent_text(values.front().copied().flatten());
    let text = format!("device {}: {name}, last {seconds} s", state.device);
    let underlined = TextStyle::new().add_modifier(Modifier::UNDERLINED);
    let gap = usize::from(area.width).saturating_sub(text.len() + now.len());
    frame.render_widget(Line::styled(format!("{text}{:gap$}{now}", ""), underlined), heading);
    let bars = if style.unicode { bar::NINE_LEVELS } else { ASCII_BARS };
    let sparkline = Sparkline::default()
        .data(values.iter().copied())
        .max(100)
        .direction(RenderDirection::RightToLeft)
        .bar_set(bars)
        .absent_value_symbol(" ")
        .style(style.color(color));
    frame.render_widget(sparkline, graph);
}

/// Formats a time: 59 s, 12:34, 5:12:34, 3d 05h.
fn time_text(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..3600 => format!("{minutes}:{:02}", seconds % 60),
        3600..86_400 => format!("{hours}:{:02}:{:02}", minutes % 60, seconds % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

fn cell(process: &ProcessReading, column: Column) -> String {
    let details = process.details.as_ref();
    match column {
        Column::Device => process.device.to_string(),
        Column::Pid => process.pid.to_string(),
        Column::User => or_dash(details.map(|one| &one.user)),
        Column::Busy => percent_text(process.busy),
        Column::Memory => or_dash(process.memory.map(bytes)),
        Column::Cpu => or_dash(details.and_then(|one| one.cpu).map(|cpu| format!("{cpu:.0}%"))),
        Column::Time => or_dash(details.map(|one| time_text(one.seconds))),
        Column::Command => details.map_or_else(|| "(in another container)".to_owned(), |one| one.line(true)),
    }
}

fn is_number(column: Column) -> bool {
    !matches!(column, Column::User | Column::Command)
}

fn width(column: Column) -> Constraint {
    match column {
        Column::Device => Constraint::Length(4),
        Column::Pid => Constraint::Length(7),
        Column::User => Constraint::Length(9),
        Column::Busy => Constraint::Length(6),
        Column::Memory => Constraint::Length(10),
        Column::Cpu => Constraint::Length(6),
        Column::Time => Constraint::Length(8),
        Column::Command => Constraint::Fill(1),
    }
}

fn draw_processes(frame: &mut Frame, state: &mut State, style: Style, area: Rect) {
    let aligned = |text: String, column| {
        let alignment = if is_number(column) { Alignment::Right } else { Alignment::Left };
        Cell::from(Line::from(text).alignment(alignment))
    };
    let heading = Column::ALL.map(|column| {
        let descending = column.is_descending() != state.reversed;
        let mark = match (column == state.sort, descending, style.unicode) {
            (false, ..) => "",
            (true, true, true) => "▼",
            (true, false, true) => "▲",
            (true, true, false) => "v",
            (true, false, false) => "^",
        };
        aligned(format!("{}{mark}", column.name()), column)
    });
    let shown = state.processes();
    let notes = notes(state, shown.is_empty());
    let rows: Vec<Row> = shown
        .iter()
        .map(|process| {
            let row = Row::new(Column::ALL.map(|column| aligned(cell(process, column), column)));
            row.style(if process.device == state.device { TextStyle::new() } else { style.color(Color::Gray) })
        })
        .collect();
    let count = rows.len() as u16;
    let reversed = TextStyle::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(rows, Column::ALL.map(width))
        .header(Row::new(heading).style(reversed))
        .row_highlight_style(TextStyle::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
    frame.render_stateful_widget(table, area, &mut state.rows);
    let below = area.y + 1 + count;
    let free = Rect { y: below, height: area.bottom().saturating_sub(below), ..area };
    frame.render_widget(Paragraph::new(notes.join("\n")).wrap(Wrap { trim: true }), free);
}

/// Returns what the table does not show.
fn notes(state: &State, empty: bool) -> Vec<String> {
    let mut notes: Vec<String> =
        state.failure.iter().map(|reason| format!("The last reading failed: {reason}.")).collect();
    for device in &state.devices {
        if let Err(reason) = &device.processes {
            notes.push(format!("The processes on device {} are unknown: {reason}.", device.number));
        }
    }
    if let Some(note) = &state.note {
        notes.push(note.clone());
    } else if empty && notes.is_empty() {
        notes.push("No process uses the devices.".to_owned());
    }
    notes
}

fn draw_panel(frame: &mut Frame, state: &State, panel: Panel, area: Rect) {
    let (title, lines) = match panel {
        Panel::Keys => {
            let line = |(key, what): &(&str, &str)| {
                Line::from(vec![Span::from(format!("{key:<23}")).bold(), Span::from((*what).to_owned())])
            };
            (" Keys ", ALL_KEYS.iter().map(line).collect())
        }
        Panel::Process => {
            (" Process ", state.selected().map_or_else(|| vec![Line::from("No process is selected.")], process_lines))
        }
    };
    frame.render_widget(Clear, area);
    let block = Block::new().title(Line::from(title).bold());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn process_lines(process: &ProcessReading) -> Vec<Line<'static>> {
    let line =
        |name: &str, value: String| Line::from(vec![Span::from(format!("{name:<16}")).bold(), Span::from(value)]);
    let mut lines = vec![
        line("process", process.pid.to_string()),
        line("device", format!("{}, busy {}", process.device, percent_text(process.busy))),
        line("device memory", or_dash(process.memory.map(bytes))),
    ];
    if let Some(details) = &process.details {
        lines.push(line("user", details.user.clone()));
        lines.push(line("processor time", or_dash(details.cpu.map(|cpu| format!("{cpu:.1} % of one processor")))));
        lines.push(line("machine memory", bytes(details.resident)));
        lines.push(line("running for", time_text(details.seconds)));
        lines.push(line("command", details.line(false)));
    } else {
        lines.push(Line::from("It runs in another container, which this one cannot see."));
    }
    lines
}

fn keys_line(width: u16) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, what) in KEYS {
        used += key.len() + what.len() + 3;
        if used > usize::from(width) + 2 {
            break;
        }
        spans.push(Span::from(key).add_modifier(Modifier::REVERSED));
        spans.push(Span::from(format!(" {what}  ")));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests;
