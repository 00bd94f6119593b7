//! The command-line tool in a terminal: a pseudo-terminal, whose screen is that of the `vt100` crate.

use pty_process::{
    Size,
    blocking::{Command, Pty, open},
};
use rustix::{
    process::{Pid, Signal, kill_process},
    termios::{LocalModes, tcgetattr},
};
use std::{
    fs,
    io::{Read, Write},
    num::NonZero,
    os::{fd::AsFd, unix::process::ExitStatusExt},
    path::Path,
    process::{Child, ExitStatus},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest time for a condition to hold, also on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn some(size: u16) -> NonZero<u16> {
    NonZero::new(size).unwrap()
}

/// The tool in a terminal.
struct Terminal {
    child: Child,
    pty: Arc<Pty>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All that the tool wrote.
    written: String,
}

impl Terminal {
    fn new(arguments: &[&str], columns: u16, rows: u16) -> Terminal {
        let (pty, inner) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let command = Command::new(env!("CARGO_BIN_EXE_plinth")).args(arguments);
        let command = command.env_remove("NO_COLOR").env("PLINTH_DEVICE", "host").env("PLINTH_HOST_MEMORY", "16GiB");
        let child = command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").spawn(inner).unwrap();
        let pty = Arc::new(pty);
        let (sender, output) = channel();
        let reader = Arc::clone(&pty);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal whose programs all ended gives an error.
            while let Ok(count @ 1..) = (&*reader).read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal {
            child,
            pty,
            output,
            screen: vt100::Parser::new(some(rows), some(columns), 0),
            written: String::new(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        screen.rows(0, screen.size().1.get()).map(|line| line.trim_end().to_owned()).collect()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.written += &String::from_utf8_lossy(bytes);
    }

    /// Waits until a condition holds for the lines of the screen.
    fn wait_for(&mut self, what: &str, condition: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition(&self.lines()) {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(error) => panic!("{what}: {error}; the screen is {:#?}", self.lines()),
            }
        }
    }

    fn wait_for_text(&mut self, text: &str) {
        self.wait_for(text, |lines| lines.iter().any(|line| line.contains(text)));
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        self.pty.resize(Size::new(rows, columns)).unwrap();
        self.screen.screen_mut().set_size(some(rows), some(columns));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the tool, and reads the rest of its output.
    fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; the screen is {:#?}", self.lines()),
            }
        }
    }

    /// Checks that the terminal is as it was before the tool ran.
    fn check_restored(&self) {
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{:#?}", self.lines());
        let modes = tcgetattr(self.pty.as_fd()).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn top() -> Terminal {
    let mut top = Terminal::new(&["top", "--interval", "0.25"], 80, 24);
    top.wait_for_text("q quit");
    top
}

#[test]
fn top_shows_the_host_device_in_eighty_columns() {
    let mut top = top();
    // Processor time is known from the second reading on.
    let is_read = |line: &String| line.contains("plinth top --inter") && line.contains('%');
    top.wait_for("two readings", |lines| lines.iter().any(is_read));
    let lines = top.lines();
    assert!(lines[0].starts_with("plinth top  HOST DEVICE: GPUs simulated on this CPU"), "{lines:#?}");
    assert!(lines[0].ends_with("every 0.25 s"), "{lines:#?}");
    assert!(lines[1].starts_with(">0 NVIDIA H200 (simulated)"), "{lines:#?}");
    assert!(lines[2].starts_with("   busy [") && lines[2].ends_with("of 16.00 GiB]"), "{lines:#?}");
    for heading in ["dev", "pid", "user", "busy▼", "memory", "cpu", "time", "command"] {
        let is_whole = |line: &String| line.split_whitespace().any(|word| word == heading);
        assert!(lines.iter().any(is_whole), "{heading} is not in {lines:#?}");
    }
    assert!(top.screen.screen().alternate_screen());
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
    top.check_restored();
}

#[test]
fn top_obeys_keys_and_changes_of_the_size() {
    let mut top = top();
    top.press("?");
    top.wait_for_text("show or hide this list");
    top.press("?");
    top.wait_for_text("busy▼");
    top.press("M");
    top.wait_for_text("memory▼");
    top.press("r");
    top.wait_for_text("memory▲");
    top.press("p");
    top.wait_for_text("PAUSED");
    top.press("p\t\r");
    top.wait_for_text("of one processor");
    top.wait_for(">1", |lines| lines.iter().any(|line| line.starts_with(">1 NVIDIA H200")));
    top.resize(132, 43);
    top.wait_for("a wide title", |lines| lines[0].len() == 132 && lines[0].ends_with("every 0.25 s"));
    top.wait_for("the last line", |lines| lines[42].starts_with("q quit"));
    top.resize(40, 10);
    top.wait_for("a low screen", |lines| lines[9].starts_with("q quit"));
    top.press("\x03");
    assert_eq!(top.end().code(), Some(0));
    top.check_restored();
}

#[test]
fn keys_are_obeyed_while_the_size_changes() {
    let mut top = top();
    for round in 0..40 {
        let (text, columns) = if round % 2 == 0 { ("show or hide this list", 132) } else { ("busy▼", 120) };
        top.resize(columns, 43);
        top.press("?");
        top.wait_for_text(text);
    }
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn signals_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = top();
        top.signal(signal);
        assert_eq!(top.end().signal(), Some(signal.as_raw()));
        top.check_restored();
    }
}

#[test]
fn top_can_be_suspended() {
    let mut top = top();
    top.press("\x1a");
    top.wait_for("the main screen", |_| true);
    let stat = format!("/proc/{}/stat", top.child.id());
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(Instant::now() < until, "it is not stopped");
        thread::sleep(Duration::from_millis(10));
    }
    while let Ok(bytes) = top.output.recv_timeout(Duration::from_millis(50)) {
        top.take(&bytes);
    }
    top.check_restored();
    top.signal(Signal::CONT);
    top.wait_for_text("q quit");
    assert!(top.screen.screen().alternate_screen());
    top.press("q");
    assert_eq!(top.end().code(), Some(0));
    top.check_restored();
}

#[test]
fn tables_do_not_break_words() {
    for (arguments, columns, words) in [
        (&["top", "--once"][..], 80, &["device", "memory", "clock", "process", "command", "busy"][..]),
        (&["top", "--once"], 50, &["device", "memory", "clock", "process", "command"]),
        (&["info"], 80, &["capability", "0000:01:00.0", "library", "version"]),
        (&["info", "--long"], 80, &["capability", "library", "version"]),
    ] {
        let mut terminal = Terminal::new(arguments, columns, 100);
        assert_eq!(terminal.end().code(), Some(0));
        let lines = terminal.lines();
        for word in words {
            let is_whole = |line: &String| line.split_whitespace().any(|one| one == *word);
            assert!(lines.iter().any(is_whole), "{word} is not in {lines:#?}");
        }
        assert!(terminal.written.contains("\x1b[1m"), "the headings are not bold: {:?}", terminal.written);
    }
}

#[test]
fn a_stack_of_a_snapshot_fits_the_width() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tool-terminal");
    fs::create_dir_all(&folder).unwrap();
    let (source, path) = (folder.join("engine.cpp"), folder.join("memory.json"));
    fs::write(&source, format!("buffers.push_back({});\n", "a, ".repeat(100))).unwrap();
    let frame = |name: &str, file: &str| format!(r#"{{"name":"{name}","filename":"{file}","line":1}}"#);
    let frames = [
        frame("plinth::DeviceBuffer::alloc(unsigned long)", "/usr/include/plinth_memory.hpp"),
        frame("Engine::load(int)", source.to_str().unwrap()),
        frame("main", "/nowhere/main.cpp"),
        frame("_start", "engine"),
    ];
    let block = r#"{"address":0,"size":512,"requested_size":512,"state":"active_allocated","frames":1}"#;
    let segment = format!(
        r#"{{"device":0,"address":0,"stream":0,"segment_type":"small","segment_pool_id":[0,0],"is_expandable":true,"blocks":[{block}]}}"#
    );
    let stacks = frames.join(",");
    let plinth = r#"{"version":"0","time_us":1,"devices":[{"total_memory":null,"limit":null,"reserved":512}]}"#;
    let text = format!(r#"{{"stacks":[[],[{stacks}]],"segments":[{segment}],"plinth":{plinth}}}"#);
    fs::write(&path, text).unwrap();
    let mut view = Terminal::new(&["view", path.to_str().unwrap()], 80, 50);
    assert_eq!(view.end().code(), Some(0));
    let lines = view.lines();
    let at = lines.iter().position(|line| line == "512 bytes in 1 block").unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(lines[at + 1].starts_with("    Engine::load(int) (engine.cpp:1)  buffers.push_back(a, a,"), "{lines:#?}");
    assert!(lines[at + 1].ends_with("...") && lines[at + 1].len() == 80, "{lines:#?}");
    assert_eq!(lines[at + 2..at + 4], ["    main (main.cpp:1)", ""], "{lines:#?}");
}

#[test]
fn a_replay_shows_its_progress() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces/resnet_train.trace.xz");
    let mut replay = Terminal::new(&["replay", trace.to_str().unwrap(), "--rounds", "20"], 80, 24);
    assert_eq!(replay.end().code(), Some(0));
    assert!(replay.written.contains("replaying [") && replay.written.contains('%'), "{:?}", replay.written);
    // The bar is removed.
    assert!(!replay.lines().iter().any(|line| line.contains("replaying")), "{:#?}", replay.lines());
}
