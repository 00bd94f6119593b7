//! The functions of a stack that a program's author wants to see first: those outside of plinth's C++ headers and of
//! the C++ library.

use super::{Frame, StackId, frames, symbols::UNKNOWN};

/// The headers whose functions are inlined into the program.
const HEADER_PREFIX: &str = "plinth_";
/// The name spaces of plinth's headers and of the C++ library.
const NAMESPACES: [&str; 4] = ["plinth::", "std::", "__gnu_cxx::", "__cxxabiv1::"];
/// Parts of the paths of the C++ library: of its headers, and of its shared libraries.
const LIBRARY_PATHS: [&str; 3] = ["/include/c++/", "/libstdc++.so", "/libc++.so"];

/// A line of a folded stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A function of the program.
    Frame(&'a Frame),
    /// A number of consecutive functions of plinth's headers and of the C++ library.
    Folded(usize),
}

/// Returns the qualified name of a demangled function, without its return type and arguments.
fn qualified_name(function: &str) -> &str {
    let (mut depth, mut start) = (0_usize, 0);
    for (index, letter) in function.char_indices() {
        match letter {
            '(' if depth == 0 && index > start => return &function[start..index],
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = index + 1,
            _ => {}
        }
    }
    &function[start..]
}

/// Returns whether a function of this name and file belongs to plinth's C++ headers or to the C++ library.
pub fn is_library(name: &str, file: &str) -> bool {
    let header = file.rsplit('/').next().unwrap_or_default();
    (header.starts_with(HEADER_PREFIX) && header.ends_with(".hpp"))
        || NAMESPACES.iter().any(|namespace| qualified_name(name).starts_with(namespace))
        || LIBRARY_PATHS.iter().any(|part| file.contains(part))
}

impl Frame {
    /// Returns whether the function belongs to plinth's C++ headers or to the C++ library.
    fn is_library(&self) -> bool {
        is_library(&self.name, &self.file)
    }

    /// Returns the place: file and line, or only the file if the line is unknown.
    pub fn place(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }
}

/// Returns the first function of the program on a stack, if there is one.
fn first_of_program(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| !frame.is_library())
}

/// Describes the place of a call for a message, by the first function of the program on its stack: "train
/// (engine.cpp:12)". Returns `None` if there is no such function, or if its name is unknown: it is then code of another
/// language, which an interpreter runs.
pub fn describe_place(stack: StackId) -> Option<String> {
    let frames = frames(stack);
    first_of_program(&frames)
        .filter(|frame| frame.name != UNKNOWN)
        .map(|frame| format!("{} ({})", frame.name, frame.place()))
}

/// Folds a stack. The innermost functions of the libraries are left out, and others are counted. A stack that has no
/// function of the program is shown as it is.
pub fn fold(frames: &[Frame]) -> Vec<Line<'_>> {
    let Some(first) = frames.iter().position(|frame| !frame.is_library()) else {
        return frames.iter().map(Line::Frame).collect();
    };
    let mut lines = Vec::with_capacity(frames.len() - first);
    for frame in &frames[first..] {
        match lines.last_mut() {
            _ if !frame.is_library() => lines.push(Line::Frame(frame)),
            Some(Line::Folded(count)) => *count += 1,
            _ => lines.push(Line::Folded(1)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: &str) -> Frame {
        Frame { name: name.into(), file: file.into(), line: 7 }
    }

    #[test]
    fn functions_of_libraries_are_known_by_name_and_file() {
        for (name, file) in [
            ("plinth::DeviceBuffer::alloc(unsigned long)::{lambda(void**)#1}::operator()(void**) const", "engine.cpp"),
            ("void plinth::detail::Visit<main::{lambda(int)#1}>::show<int>(int const&)", "??"),
            ("std::vector<Foo, std::allocator<Foo> >::push_back(Foo const&)", "engine.cpp"),
            ("std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke(std::_Any_data const&)", "??"),
            ("decltype (auto) std::invoke<Foo>(Foo&&)", "??"),
            ("check", "/opt/include/plinth_core.hpp"),
            ("invoke", "/usr/include/c++/12/bits/invoke.h"),
            ("execute_native_thread_routine", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
        ] {
            assert!(frame(name, file).is_library(), "{name}");
        }
        for (name, file) in [
            ("main", "engine.cpp"),
            ("main::{lambda(std::string)#1}::operator()(std::string) const", "engine.cpp"),
            ("std_like::run(std::vector<int>)", "engine.cpp"),
            ("engine::Plinth::run(plinth::StreamView)", "/home/plinth_user/engine.hpp"),
            ("std::vector<int> engine::sizes(plinth::StreamView)", "engine.cpp"),
            ("(anonymous namespace)::train(int)", "plinth.cpp"),
            ("operator<<(std::ostream&, Foo const&)", "engine.cpp"),
            ("??", "??"),
            ("", ""),
        ] {
            assert!(!frame(name, file).is_library(), "{name}");
        }
    }

    #[test]
    fn a_stack_begins_with_the_program() {
        let [a, b] = [frame("train", "a.cpp"), frame("main", "a.cpp")];
        let [wrapper, invoke] = [frame("plinth::memset(void*)", "??"), frame("std::invoke<Foo>(Foo&&)", "??")];
        let stack = [wrapper.clone(), a.clone(), invoke.clone(), wrapper.clone(), b.clone(), invoke.clone()];
        let expected = [Line::Frame(&a), Line::Folded(2), Line::Frame(&b), Line::Folded(1)];
        assert_eq!(fold(&stack), expected);
        assert_eq!(first_of_program(&stack), Some(&a));
        let libraries = [wrapper.clone(), invoke.clone()];
        assert_eq!(fold(&libraries), [Line::Frame(&wrapper), Line::Frame(&invoke)]);
        assert_eq!((first_of_program(&libraries), fold(&[]).len()), (None, 0));
    }
}
