//! Stacks as text: the lines of the program, or all functions.

use super::super::output::printable;
use plinth::internal::memory::history::{Frame, Line, fold};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
};

/// The most characters of a source line that are shown.
const SOURCE: usize = 120;
/// The most bytes of a source file that are read.
const MAX_FILE: u64 = 16 << 20;

/// Functions below `main` or below a thread's function.
const STARTS: [&str; 7] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "start_thread",
];

/// Returns the innermost functions of the program, one in each line, with their line of source if its file is on this
/// machine. Functions of plinth's headers and of the C++ library are left out or counted; so are those that start the
/// program.
pub fn of_program(frames: &[Frame], most: usize) -> Vec<String> {
    if frames.is_empty() {
        return vec!["no stack was recorded".to_owned()];
    }
    let mut lines = fold(frames);
    let is_start = |line: &Line| matches!(line, Line::Frame(frame) if STARTS.contains(&base(&frame.name)));
    while lines.len() > 1 && lines.last().is_some_and(is_start) {
        lines.pop();
    }
    let text = |line: &Line| match line {
        Line::Frame(frame) => {
            let source = source(frame).map(|source| format!("  {source}")).unwrap_or_default();
            format!("{}{source}", function(frame, false))
        }
        Line::Folded(count) => format!("... {count} of libraries"),
    };
    let mut shown: Vec<String> = lines.iter().take(most.max(1)).map(text).collect();
    if lines.len() > shown.len() {
        shown.push(format!("... {} more", lines.len() - shown.len()));
    }
    shown
}

/// Returns all functions, one in each line.
pub fn full(frames: &[Frame]) -> Vec<String> {
    if frames.is_empty() {
        return vec!["no stack was recorded".to_owned()];
    }
    frames.iter().map(|frame| function(frame, true)).collect()
}

/// Returns a function's name without the version that the C library appends.
fn base(name: &str) -> &str {
    name.split('@').next().unwrap_or_default()
}

fn function(frame: &Frame, whole_path: bool) -> String {
    let place = frame.place();
    let place = if whole_path { place.as_str() } else { place.rsplit('/').next().unwrap_or_default() };
    printable(&format!("{} ({place})", frame.name))
}

/// Returns the line of source of a function, if its file is on this machine.
fn source(frame: &Frame) -> Option<String> {
    let number = usize::try_from(frame.line).ok()?.checked_sub(1)?;
    // The snapshot names the file: a pipe or a device may wait, or never end.
    let file = fs::metadata(&frame.file).ok()?.is_file().then(|| File::open(&frame.file))?.ok()?;
    let line = BufReader::new(file.take(MAX_FILE)).lines().nth(number)?.ok()?;
    let text: String = printable(line.trim()).chars().take(SOURCE).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: &str, line: u32) -> Frame {
        Frame { name: name.into(), file: file.into(), line }
    }

    fn stack() -> Vec<Frame> {
        vec![
            frame("plinth::DeviceBuffer::alloc(unsigned long)", "/usr/include/plinth_core.hpp", 40),
            frame("Engine::load(int)", "/nowhere/engine.cpp", 12),
            frame("std::invoke<Foo>(Foo&&)", "/usr/include/c++/12/invoke.h", 60),
            frame("std::thread::run()", "/usr/include/c++/12/thread.h", 61),
            frame("main", "/nowhere/engine.cpp", 90),
            frame("__libc_start_call_main", "libc.so.6", 0),
            frame("_start", "engine", 0),
        ]
    }

    #[test]
    fn the_program_is_shown_without_the_libraries() {
        let shown = of_program(&stack(), 4);
        assert_eq!(shown, ["Engine::load(int) (engine.cpp:12)", "... 2 of libraries", "main (engine.cpp:90)"]);
        assert_eq!(of_program(&stack(), 1), ["Engine::load(int) (engine.cpp:12)", "... 2 more"]);
        assert_eq!(of_program(&[], 4), ["no stack was recorded"]);
        assert_eq!(of_program(&[frame("_start", "x", 0)], 4), ["_start (x)"]);
    }

    #[test]
    fn a_whole_stack_has_every_function() {
        let shown = full(&stack());
        assert_eq!((shown.len(), shown[1].as_str()), (7, "Engine::load(int) (/nowhere/engine.cpp:12)"));
        assert_eq!(full(&[]), ["no stack was recorded"]);
    }

    #[test]
    fn the_line_of_source_is_shown() {
        let here = frame("here", file!(), line!());
        // Tests run in the folder of the crate, and `file!` is relative to the workspace.
        let file = format!("{}/src/view/stack.rs", env!("CARGO_MANIFEST_DIR"));
        let shown = of_program(&[Frame { file, ..here }], 1);
        assert!(shown[0].ends_with("  let here = frame(\"here\", file!(), line!());"), "{shown:?}");
    }
}
