//! The terminal of `plinth top`: the event loop, and the restoration of the terminal at every kind of end.

use super::{
    super::failure::{Failure, Result},
    draw::{self, Style},
    reading::Sampler,
    state::{Action, State},
};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP},
    flag, low_level,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The longest time until a signal is noticed.
const POLL: Duration = Duration::from_millis(200);

/// The terminal in raw mode, with an alternate screen. It is restored when dropped, and before a panic's message.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Screen> {
        Ok(Screen(ratatui::try_init()?))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal no longer exists, there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}

/// The signals that end or stop a program.
struct Signals(Vec<(i32, Arc<AtomicBool>)>);

impl Signals {
    fn register() -> io::Result<Signals> {
        let each = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP].into_iter().map(|signal| {
            let received = Arc::new(AtomicBool::new(false));
            flag::register(signal, Arc::clone(&received))?;
            Ok((signal, received))
        });
        Ok(Signals(each.collect::<io::Result<_>>()?))
    }

    fn received(&self) -> Option<i32> {
        let received = self.0.iter().find(|(_, received)| received.swap(false, Ordering::Relaxed));
        received.map(|(signal, _)| *signal)
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(format!("using the terminal: {error}; --once shows one reading without it"))
}

/// Shows the readings until a key or a signal ends the program.
pub fn run(interval: Duration) -> Result<()> {
    let mut sampler = Sampler::new()?;
    let mut state = State::new(sampler.kind, sampler.driver.clone(), interval);
    state.note = sampler.note.clone();
    state.add(sampler.read()?);
    let signals = Signals::register().map_err(failed)?;
    let style = Style::of_terminal();
    let mut screen = Screen::open().map_err(failed)?;
    let mut last = Instant::now();
    loop {
        screen.0.draw(|frame| draw::draw(frame, &mut state, style)).map_err(failed)?;
        let wait = if state.paused { POLL } else { (last + state.interval).saturating_duration_since(Instant::now()) };
        let action = if event::poll(wait.min(POLL)).map_err(failed)? { on_event(&mut state)? } else { Action::Draw };
        let signal = match action {
            Action::Quit => return Ok(()),
            Action::Suspend => Some(SIGTSTP),
            Action::Draw => signals.received(),
        };
        if let Some(signal) = signal {
            // The signal's own effect: the program ends, or stops until the shell continues it.
            drop(screen);
            low_level::emulate_default_handler(signal).map_err(failed)?;
            screen = Screen::open().map_err(failed)?;
        }
        if !state.paused && last.elapsed() >= state.interval {
            last = Instant::now();
            match sampler.read() {
                Ok(devices) => state.add(devices),
                Err(Failure::Failed(reason) | Failure::Invalid(reason)) => state.failure = Some(reason),
                Err(other) => return Err(other),
            }
        }
    }
}

fn on_event(state: &mut State) -> Result<Action> {
    // A change of the terminal's size needs nothing but the drawing that follows.
    Ok(match event::read().map_err(failed)? {
        Event::Key(key) if key.kind != KeyEventKind::Release => state.on_key(key),
        _ => Action::Draw,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pty_process::blocking::{Command, open};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::io::Read;

    /// Run by the next test in a process of its own, with a terminal.
    #[test]
    #[ignore = "it panics"]
    fn panics_with_an_open_screen() {
        let _screen = Screen::open().unwrap();
        panic!("the reason of the panic");
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        let (mut terminal, inner) = open().unwrap();
        let name = "top::screen::tests::panics_with_an_open_screen";
        let command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(["--ignored", "--exact", "--nocapture", name]).spawn(inner).unwrap();
        let (mut output, mut buffer) = (Vec::new(), [0; 4096]);
        // A terminal whose program ended gives an error.
        while let Ok(count @ 1..) = terminal.read(&mut buffer) {
            output.extend(&buffer[..count]);
        }
        assert!(!child.wait().unwrap().success());
        let text = String::from_utf8(output).unwrap();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in {text:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?1049l") < at("the reason of the panic"), "{text:?}");
        let modes = tcgetattr(&terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
    }
}
