//! The state of the screen: what is shown, and what keys change.

use super::reading::{DeviceReading, ProcessReading};
use plinth::internal::ops::telemetry::Reading;
use plinth_driver::Kind;
use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    widgets::TableState,
};
use std::{cmp::Ordering, collections::VecDeque, time::Duration};

/// The most readings that are kept of a device: more than a terminal has columns.
const HISTORY: usize = 1024;
/// The bounds of the interval that keys can choose.
const INTERVALS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(60)];

/// A column of the table of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Device,
    Pid,
    User,
    Busy,
    Memory,
    Cpu,
    Time,
    Command,
}

impl Column {
    /// All columns, in their order.
    pub const ALL: [Column; 8] = [
        Column::Device,
        Column::Pid,
        Column::User,
        Column::Busy,
        Column::Memory,
        Column::Cpu,
        Column::Time,
        Column::Command,
    ];

    /// Returns the heading.
    pub fn name(self) -> &'static str {
        match self {
            Column::Device => "dev",
            Column::Pid => "pid",
            Column::User => "user",
            Column::Busy => "busy",
            Column::Memory => "memory",
            Column::Cpu => "cpu",
            Column::Time => "time",
            Column::Command => "command",
        }
    }

    /// Returns whether the largest values come first.
    pub fn is_descending(self) -> bool {
        matches!(self, Column::Busy | Column::Memory | Column::Cpu | Column::Time)
    }

    fn compare(self, one: &ProcessReading, other: &ProcessReading) -> Ordering {
        let (a, b) = (one.details.as_ref(), other.details.as_ref());
        match self {
            Column::Device => one.device.cmp(&other.device),
            Column::Pid => one.pid.cmp(&other.pid),
            Column::User => a.map(|one| &one.user).cmp(&b.map(|one| &one.user)),
            Column::Busy => one.busy.cmp(&other.busy),
            Column::Memory => one.memory.cmp(&other.memory),
            Column::Cpu => {
                let cpu = |one: &ProcessReading| one.details.as_ref().and_then(|one| one.cpu).unwrap_or(-1.0);
                cpu(one).total_cmp(&cpu(other))
            }
            Column::Time => a.map(|one| one.seconds).cmp(&b.map(|one| one.seconds)),
            Column::Command => a.map(|one| one.line(true)).cmp(&b.map(|one| one.line(true))),
        }
    }
}

/// Readings of a device in the past, newest first, in per cent.
#[derive(Debug, Default)]
pub struct History {
    /// The utilization.
    pub busy: VecDeque<Option<u64>>,
    /// The memory in use.
    pub memory: VecDeque<Option<u64>>,
}

/// What covers the table of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Panel {
    /// The list of keys.
    Keys,
    /// All that is known of the selected process.
    Process,
}

/// What the event loop does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Draws the screen.
    Draw,
    /// Ends the program.
    Quit,
    /// Stops the program until the shell continues it.
    Suspend,
}

/// The state of the screen.
pub struct State {
    /// The kind of the devices.
    pub kind: Kind,
    /// The driver's release and CUDA version, for GPUs.
    pub driver: Option<String>,
    /// What the readings of the host device mean.
    pub note: Option<String>,
    /// The newest readings.
    pub devices: Vec<DeviceReading>,
    /// The readings in the past, by device.
    pub history: Vec<History>,
    /// The index of the selected device.
    pub device: usize,
    /// Whether only processes of the selected device are shown.
    pub only: bool,
    /// The column by which the processes are sorted.
    pub sort: Column,
    /// Whether the order is the opposite of the column's usual one.
    pub reversed: bool,
    /// The selected row, and the first row on the screen.
    pub rows: TableState,
    /// Whether readings are paused.
    pub paused: bool,
    /// The time between readings.
    pub interval: Duration,
    /// What covers the processes.
    pub panel: Option<Panel>,
    /// Why the last reading failed.
    pub failure: Option<String>,
}

impl State {
    /// Creates the state before the first reading.
    pub fn new(kind: Kind, driver: Option<String>, interval: Duration) -> State {
        State {
            kind,
            driver,
            note: None,
            devices: Vec::new(),
            history: Vec::new(),
            device: 0,
            only: false,
            sort: Column::Busy,
            reversed: false,
            rows: TableState::default().with_selected(0),
            paused: false,
            interval,
            panel: None,
            failure: None,
        }
    }

    /// Adds a reading.
    pub fn add(&mut self, devices: Vec<DeviceReading>) {
        self.history.resize_with(devices.len(), History::default);
        for (device, history) in devices.iter().zip(&mut self.history) {
            for (values, value) in [
                (&mut history.busy, device.value(Reading::Utilization)),
                (&mut history.memory, device.memory_percent()),
            ] {
                values.push_front(value.map(|value| value.min(100)));
                values.truncate(HISTORY);
            }
        }
        self.device = self.device.min(devices.len().saturating_sub(1));
        self.devices = devices;
        self.failure = None;
        self.keep_selection_in_range();
    }

    /// Returns the processes to show, sorted.
    pub fn processes(&self) -> Vec<&ProcessReading> {
        let shown = self.devices.iter().filter(|device| !self.only || device.number == self.device);
        let mut processes: Vec<&ProcessReading> =
            shown.filter_map(|one| one.processes.as_ref().ok()).flatten().collect();
        processes.sort_by(|one, other| {
            let order = self.sort.compare(one, other);
            let order = if self.sort.is_descending() != self.reversed { order.reverse() } else { order };
            order.then(other.memory.cmp(&one.memory)).then((one.device, one.pid).cmp(&(other.device, other.pid)))
        });
        processes
    }

    /// Returns the selected process.
    pub fn selected(&self) -> Option<&ProcessReading> {
        self.processes().get(self.rows.selected()?).copied()
    }

    fn keep_selection_in_range(&mut self) {
        let last = self.processes().len().saturating_sub(1);
        self.rows.select(Some(self.rows.selected().unwrap_or(0).min(last)));
    }

    fn move_row(&mut self, by: isize) {
        let row = self.rows.selected().unwrap_or(0).saturating_add_signed(by);
        self.rows.select(Some(row));
        self.keep_selection_in_range();
    }

    fn move_device(&mut self, by: usize) {
        self.device = (self.device + by) % self.devices.len().max(1);
        self.keep_selection_in_range();
    }

    fn sort_by(&mut self, column: Column) {
        (self.sort, self.reversed) = (column, false);
    }

    fn scale_interval(&mut self, factor: f64) {
        let [least, most] = INTERVALS;
        self.interval = self.interval.mul_f64(factor).clamp(least, most);
    }

    /// Changes the state by a key. The letters that sort are those of `htop`.
    pub fn on_key(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            _ if control => return Action::Draw,
            KeyCode::Esc if self.panel.is_some() => self.panel = None,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc | KeyCode::F(10) => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.toggle(Panel::Keys),
            KeyCode::Enter => self.toggle(Panel::Process),
            KeyCode::Up | KeyCode::Char('k') => self.move_row(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_row(1),
            KeyCode::PageUp => self.move_row(-10),
            KeyCode::PageDown => self.move_row(10),
            KeyCode::Home => self.move_row(isize::MIN + 1),
            KeyCode::End => self.move_row(isize::MAX),
            KeyCode::Right | KeyCode::Tab => self.move_device(1),
            KeyCode::Left | KeyCode::BackTab => self.move_device(self.devices.len().saturating_sub(1)),
            KeyCode::Char(digit @ '0'..='9') => {
                let number = digit as usize - '0' as usize;
                if number < self.devices.len() {
                    self.device = number;
                    self.keep_selection_in_range();
                }
            }
            KeyCode::Char('f') => {
                self.only = !self.only;
                self.keep_selection_in_range();
            }
            KeyCode::Char('s') | KeyCode::F(6) => {
                let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
                self.sort_by(Column::ALL[(at + 1) % Column::ALL.len()]);
            }
            KeyCode::Char('r' | 'I') => self.reversed = !self.reversed,
            KeyCode::Char('B') => self.sort_by(Column::Busy),
            KeyCode::Char('M') => self.sort_by(Column::Memory),
            KeyCode::Char('P') => self.sort_by(Column::Cpu),
            KeyCode::Char('T') => self.sort_by(Column::Time),
            KeyCode::Char('N') => self.sort_by(Column::Pid),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.scale_interval(2.0),
            KeyCode::Char('-') => self.scale_interval(0.5),
            _ => {}
        }
        Action::Draw
    }

    fn toggle(&mut self, panel: Panel) {
        self.panel = if self.panel == Some(panel) { None } else { Some(panel) };
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::top::process::Details;
    use plinth::internal::ops::telemetry::Telemetry;

    /// Returns a process of a simulated machine.
    pub fn process(device: usize, pid: u32, busy: u64, memory: u64, command: &str) -> ProcessReading {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let details = Details {
            name: "name".into(),
            user: format!("user{}", pid % 3),
            command: words,
            cpu: Some(pid as f64),
            resident: 1 << 30,
            seconds: u64::from(pid) * 100,
        };
        ProcessReading { device, pid, memory: Some(memory << 30), busy: Some(busy), details: Some(details) }
    }

    /// Returns a GPU of a simulated machine.
    pub fn device(number: usize, busy: u64, used: u64, processes: Vec<ProcessReading>) -> DeviceReading {
        let mut telemetry = Telemetry::default();
        for (reading, value) in [
            (Reading::Utilization, busy),
            (Reading::MemoryUsage, 12),
            (Reading::MemoryUsed, used << 30),
            (Reading::Temperature, 54),
            (Reading::PowerDraw, 351_200),
            (Reading::ClockRate, 1980),
            (Reading::MemoryClockRate, 3201),
            (Reading::ThrottleReasons, 4),
        ] {
            telemetry.values[reading as usize] = Some(value);
        }
        DeviceReading { number, name: "NVIDIA H200".into(), total: 141 << 30, telemetry, processes: Ok(processes) }
    }

    /// Returns the state of a machine with a number of GPUs, after some readings.
    pub fn machine(devices: usize) -> State {
        let mut state = State::new(Kind::Cuda, Some("driver 580.159.04, CUDA 13.0".into()), Duration::from_secs(1));
        for time in 0..50 {
            let each = (0..devices).map(|number| {
                let command = "/usr/bin/python3 train.py --model gpt2 --batch-size 64 --learning-rate 0.0003";
                let processes =
                    vec![process(number, 100 + number as u32, 90, 40, command), process(number, 7, 5, 1, "./engine")];
                device(number, (time * 7 + number as u64 * 13) % 101, 41 + time, processes)
            });
            state.add(each.collect());
        }
        state
    }

    fn press(state: &mut State, keys: &str) {
        for key in keys.chars() {
            assert_eq!(state.on_key(KeyCode::Char(key).into()), Action::Draw, "{key}");
        }
    }

    fn order(state: &State) -> Vec<(usize, u32)> {
        state.processes().iter().map(|one| (one.device, one.pid)).collect()
    }

    #[test]
    fn processes_are_sorted_by_the_chosen_column() {
        let mut state = machine(2);
        assert_eq!(order(&state), [(0, 100), (1, 101), (0, 7), (1, 7)]);
        press(&mut state, "r");
        assert_eq!(order(&state), [(0, 7), (1, 7), (0, 100), (1, 101)]);
        press(&mut state, "N");
        assert_eq!(order(&state), [(0, 7), (1, 7), (0, 100), (1, 101)]);
        press(&mut state, "P");
        assert_eq!(order(&state), [(1, 101), (0, 100), (0, 7), (1, 7)]);
        for column in Column::ALL {
            state.sort_by(column);
            assert_eq!(order(&state).len(), 4);
        }
        press(&mut state, "s");
        assert_eq!(state.sort, Column::Device);
        press(&mut state, "1f");
        assert_eq!(order(&state), [(1, 101), (1, 7)]);
    }

    #[test]
    fn the_selection_stays_in_range() {
        let mut state = machine(3);
        state.on_key(KeyCode::End.into());
        assert_eq!(state.rows.selected(), Some(5));
        state.on_key(KeyCode::Down.into());
        assert_eq!(state.rows.selected(), Some(5));
        press(&mut state, "f");
        assert_eq!(state.rows.selected(), Some(1));
        state.on_key(KeyCode::Home.into());
        assert_eq!(state.selected().unwrap().pid, 100);
        state.on_key(KeyCode::Left.into());
        assert_eq!(state.device, 2);
        state.on_key(KeyCode::Right.into());
        assert_eq!(state.device, 0);
        press(&mut state, "9");
        assert_eq!(state.device, 0);
        state.add(Vec::new());
        assert!(state.selected().is_none());
        state.on_key(KeyCode::Right.into());
        state.on_key(KeyCode::Left.into());
    }

    #[test]
    fn keys_end_pause_and_change_the_interval() {
        let mut state = machine(1);
        press(&mut state, "++-p");
        assert_eq!((state.interval, state.paused), (Duration::from_secs(2), true));
        press(&mut state, "--------");
        assert_eq!(state.interval, INTERVALS[0]);
        press(&mut state, "h");
        assert_eq!(state.panel, Some(Panel::Keys));
        assert_eq!((state.on_key(KeyCode::Esc.into()), state.panel), (Action::Draw, None));
        for key in [KeyCode::Esc.into(), KeyCode::Char('q').into(), KeyCode::F(10).into()] {
            assert_eq!(state.on_key(key), Action::Quit);
        }
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(state.on_key(control('c')), Action::Quit);
        assert_eq!(state.on_key(control('z')), Action::Suspend);
    }

    #[test]
    fn the_history_is_limited() {
        let mut state = machine(1);
        for _ in 0..2 * HISTORY {
            state.add(vec![device(0, 200, 10, Vec::new())]);
        }
        assert_eq!((state.history[0].busy.len(), state.history[0].busy[0]), (HISTORY, Some(100)));
    }
}
