//! The screen at several sizes, drawn into memory.

use super::super::state::tests::{device, machine};
use super::*;
use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyCode};
use std::time::Duration;

const PLAIN: Style = Style { color: false, unicode: false };

/// Returns the lines of the screen.
fn screen(state: &mut State, width: u16, height: u16, style: Style) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, style)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part:?} is not in {lines:#?}"))
}

#[test]
fn eighty_columns_show_everything_in_whole_words() {
    let lines = screen(&mut machine(2), 80, 24, PLAIN);
    assert!(lines[0].starts_with("plinth top  driver 580.159.04, CUDA 13.0") && lines[0].ends_with("every 1 s"));
    assert!(lines[1].starts_with(">0 NVIDIA H200") && lines[1].ends_with("54 C  351 W  1980 MHz  limited: power cap"));
    assert!(lines[2].starts_with("   busy [|") && lines[2].ends_with("90.00 of 141.00 GiB]"), "{}", lines[2]);
    line(&lines, "device 0: busy, last 39 s");
    line(&lines, "device 0: memory, last 39 s");
    assert_eq!(line(&lines, "command"), " dev     pid user       busyv     memory    cpu     time command");
    let process = line(&lines, "train.py");
    assert!(
        process.starts_with("   0     100 user1        90%  40.00 GiB   100%  2:46:40 python3 train.py --"),
        "{process}"
    );
    for words in ["q quit", "Tab device", "s sort", "? keys"] {
        assert!(lines[23].contains(words), "{}", lines[23]);
    }
    assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
}

#[test]
fn the_host_device_is_named() {
    let mut state = machine(1);
    (state.kind, state.driver, state.note) = (Kind::Host, None, Some("No GPU is used.".into()));
    let lines = screen(&mut state, 80, 24, PLAIN);
    line(&lines, "HOST DEVICE: GPUs simulated on this CPU");
    line(&lines, "NVIDIA H200 (simulated)");
    line(&lines, "No GPU is used.");
}

#[test]
fn many_devices_have_one_line_each() {
    let lines = screen(&mut machine(8), 80, 24, PLAIN);
    for number in 0..8 {
        let mark = if number == 0 { '>' } else { ' ' };
        assert!(lines[1 + number].starts_with(&format!("{mark}{number} busy [")), "{lines:#?}");
        assert!(lines[1 + number].ends_with("GiB]  54 C  351 W"), "{lines:#?}");
    }
    line(&lines, "train.py");
    // If not all fit, the selected device is among those that are shown.
    let mut state = machine(30);
    state.on_key(KeyCode::Char('9').into());
    state.on_key(KeyCode::Left.into());
    state.on_key(KeyCode::Char('0').into());
    state.on_key(KeyCode::Left.into());
    line(&screen(&mut state, 80, 24, PLAIN), ">29 busy");
}

#[test]
fn every_size_is_drawn() {
    for devices in [0, 1, 3, 16] {
        for (width, height) in [(1, 1), (2, 2), (10, 3), (20, 5), (40, 12), (79, 23), (80, 24), (200, 60), (400, 100)] {
            for panel in [None, Some(Panel::Keys), Some(Panel::Process)] {
                let mut state = machine(devices);
                state.panel = panel;
                screen(&mut state, width, height, Style { color: true, unicode: true });
            }
        }
    }
}

#[test]
fn a_bar_shows_its_share_and_text() {
    let text = |width, percent, label: &str| {
        bar(width, percent, label, PLAIN).iter().map(|span| span.content.to_string()).collect::<String>()
    };
    assert_eq!(text(12, Some(50), "50%"), "[|||||  50%]");
    assert_eq!(text(12, Some(100), "100%"), "[||||||100%]");
    assert_eq!(text(12, Some(1), "1%"), "[|       1%]");
    assert_eq!(text(12, None, "-"), "[         -]");
    assert_eq!(text(5, Some(100), "100%"), "[100]");
    assert_eq!(text(0, Some(100), "100%"), "[]");
}

#[test]
fn the_history_moves_to_the_left() {
    let mut state = machine(1);
    state.interval = Duration::from_secs(2);
    for busy in [0, 0, 100] {
        state.add(vec![device(0, busy, 0, Vec::new())]);
    }
    let lines = screen(&mut state, 80, 24, PLAIN);
    let at = lines.iter().position(|line| line.contains("busy, last 78 s")).unwrap();
    let graph: Vec<char> = lines[at + 3].chars().collect();
    assert_eq!(graph[36..39], [' ', ' ', '|'], "{lines:#?}");
    let lines = screen(&mut state, 80, 24, Style { color: true, unicode: true });
    assert!(lines[at + 1].contains('█'), "{lines:#?}");
}

#[test]
fn panels_show_the_keys_and_the_process() {
    let mut state = machine(1);
    state.on_key(KeyCode::Char('?').into());
    let lines = screen(&mut state, 80, 24, PLAIN);
    for (key, what) in ALL_KEYS {
        assert!(line(&lines, what).starts_with(key), "{lines:#?}");
    }
    state.on_key(KeyCode::Esc.into());
    state.on_key(KeyCode::Enter.into());
    let lines = screen(&mut state, 80, 24, PLAIN);
    assert!(line(&lines, "command ").contains("/usr/bin/python3 train.py --model gpt2"), "{lines:#?}");
    line(&lines, "100.0 % of one processor");
}

#[test]
fn unknown_values_are_dashes_or_sentences() {
    let mut one = device(0, 0, 0, Vec::new());
    one.telemetry = Default::default();
    one.processes = Err("NVML refused: no permission".into());
    let mut state = State::new(Kind::Cuda, None, Duration::from_secs(1));
    state.add(vec![one]);
    let lines = screen(&mut state, 80, 24, PLAIN);
    line(&lines, "The processes on device 0 are unknown: NVML refused: no permission.");
    assert!(line(&lines, "memory [").contains("- of 141.00 GiB"), "{lines:#?}");
    let foreign = ProcessReading { device: 0, pid: 4711, memory: Some(1 << 30), ..ProcessReading::default() };
    state.add(vec![device(0, 10, 1, vec![foreign])]);
    state.failure = Some("the GPU is lost".into());
    let lines = screen(&mut state, 80, 24, PLAIN);
    assert!(line(&lines, "4711").ends_with("(in another container)"), "{lines:#?}");
    line(&lines, "The last reading failed: the GPU is lost.");
    assert_eq!(time_text(59) + &time_text(3_700) + &time_text(200_000), "0:591:01:402d 07h");
}
