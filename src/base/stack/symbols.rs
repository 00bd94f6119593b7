//! Symbolization of return addresses: functions, files and lines, from the files that the program was loaded from.
//!
//! Debug information gives all three, also for inlined functions. Without it the symbol tables give the function, and
//! the file is the program or library itself. The C++ library of the process demangles names of C++.

use super::images;
use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs::File,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The name of a function whose name is unknown.
pub(super) const UNKNOWN: &str = "??";

/// One function of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The name of the function; "??" if it is unknown.
    pub name: String,
    /// The source file; without debug information the program or library; "??" if that is unknown too.
    pub file: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: u32,
}

type Slice = EndianSlice<'static, LittleEndian>;

/// The symbols of one file.
struct Symbols {
    context: Option<Context<Slice>>,
    /// The functions, sorted by address.
    functions: Vec<Function>,
}

struct Function {
    start: u64,
    bytes: u64,
    name: &'static str,
}

#[derive(Default)]
struct Reader {
    /// The symbols of each file, by its path; `None` for a file that cannot be read.
    files: HashMap<PathBuf, Option<Symbols>>,
    /// The frames of each return address that was symbolized before, innermost function first.
    known: HashMap<u64, Arc<[Frame]>>,
}

static READER: Lazy<Mutex<Reader>> = Lazy::new(Mutex::default);

/// Symbolizes a stack of return addresses, innermost first. Omits the library's own functions.
pub(super) fn symbolize(addresses: &[u64]) -> Arc<[Frame]> {
    let mut reader = READER.lock();
    let mut frames: Vec<Frame> = Vec::new();
    for address in addresses {
        frames.extend(reader.frames(*address).iter().cloned());
    }
    if is_in_program() {
        // The library's functions are part of the program, and the exported one is the outermost of them.
        if let Some(outermost) = frames.iter().position(|frame| frame.name.starts_with("plinth_")) {
            frames.drain(..=outermost);
        }
    }
    frames.into()
}

/// Returns whether the library is linked into the program's image.
fn is_in_program() -> bool {
    static IN_PROGRAM: Lazy<bool> =
        Lazy::new(|| images::find(is_in_program as *const () as u64, |image| image.is_program()).unwrap_or(true));
    *IN_PROGRAM
}

impl Reader {
    fn frames(&mut self, address: u64) -> Arc<[Frame]> {
        if let Some(frames) = self.known.get(&address) {
            return frames.clone();
        }
        // A return address follows the call, so the call is at the byte before it.
        let instruction = address.wrapping_sub(1);
        let image = images::find(instruction, |image| (image.path(), instruction.wrapping_sub(image.bias)));
        let frames: Arc<[Frame]> = match image {
            Some((path, offset)) => {
                let symbols = self.files.entry(path.clone()).or_insert_with(|| read(&path));
                symbols.as_ref().map_or_else(|| vec![unknown(&path)], |symbols| symbols.frames(&path, offset)).into()
            }
            None => [unknown(Path::new("??"))].into(),
        };
        self.known.insert(address, frames.clone());
        frames
    }
}

fn unknown(path: &Path) -> Frame {
    Frame { name: UNKNOWN.into(), file: display_path(path), line: 0 }
}

/// Returns a path for display; the program's `/proc/self/exe` is resolved.
fn display_path(path: &Path) -> String {
    let real = if path == Path::new("/proc/self/exe") { std::fs::read_link(path).ok() } else { None };
    real.as_deref().unwrap_or(path).to_string_lossy().into_owned()
}

impl Symbols {
    fn frames(&self, path: &Path, offset: u64) -> Vec<Frame> {
        let symbol = self.symbol(offset);
        let mut frames = Vec::new();
        if let Some(context) = &self.context
            && let Ok(mut found) = context.find_frames(offset).skip_all_loads()
        {
            while let Ok(Some(frame)) = found.next() {
                let location = frame.location.as_ref();
                let Some(file) = location.and_then(|location| location.file) else { continue };
                let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                frames.push(Frame {
                    name: name.map_or_else(|| UNKNOWN.into(), |name| demangle(&name)),
                    file: file.to_owned(),
                    line: location.and_then(|location| location.line).unwrap_or(0),
                });
            }
        }
        match (frames.last_mut(), symbol) {
            // For C++ functions with internal linkage debug information often has less than the full name.
            (Some(outermost), Some(symbol)) if symbol.starts_with("_Z") || outermost.name == UNKNOWN => {
                outermost.name = demangle(symbol);
            }
            (Some(_), _) => {}
            (None, symbol) => {
                let name = symbol.map_or_else(|| UNKNOWN.into(), demangle);
                frames.push(Frame { name, ..unknown(path) });
            }
        }
        frames
    }

    /// Returns the name of the function at an address of the file, from the symbol tables.
    fn symbol(&self, offset: u64) -> Option<&'static str> {
        let above = self.functions.partition_point(|function| function.start <= offset);
        let function = self.functions.get(above.checked_sub(1)?)?;
        // A function written in assembler may have size 0. The suffix after '@' is the symbol's version.
        let name = function.name.split('@').next();
        name.filter(|_| function.bytes == 0 || offset - function.start < function.bytes)
    }
}

/// Reads the symbols of a file, and its separate debug information if there is any.
fn read(path: &Path) -> Option<Symbols> {
    let file = parse(path)?;
    let debug = match file.section_by_name(".debug_info") {
        Some(_) => None,
        None => separate_debug_file(&file),
    };
    let source = debug.as_ref().unwrap_or(&file);
    let mut functions = functions(&file);
    if let Some(debug) = &debug {
        functions.extend(self::functions(debug));
    }
    // The sort is stable: of equal functions the last is used, which has the name of the export or of the debug file.
    functions.sort_by_key(|function| (function.start, function.bytes));
    Some(Symbols { context: context(source), functions })
}

type Elf = object::read::elf::ElfFile64<'static, object::LittleEndian>;

fn parse(path: &Path) -> Option<Elf> {
    Elf::parse(map(path)?).ok()
}

/// Returns the separate debug file that distributions install by build ID.
fn separate_debug_file(file: &Elf) -> Option<Elf> {
    let number = file.build_id().ok()??;
    let (first, rest) = number.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    parse(Path::new(&format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")))
}

fn functions(file: &Elf) -> Vec<Function> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let code = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let named = code.filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        Some(Function { start: symbol.address(), bytes: symbol.size(), name })
    });
    named.collect()
}

fn context(file: &Elf) -> Option<Context<Slice>> {
    file.section_by_name(".debug_info")?;
    let section = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
        // A compressed section is treated as missing.
        let section = file.section_by_name(id.name());
        let data = section.filter(|section| matches!(section.compressed_file_range(), Ok(range) if range.format == object::CompressionFormat::None));
        Ok(EndianSlice::new(data.and_then(|section| section.data().ok()).unwrap_or(&[]), LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(section).ok()?).ok()
}

/// Maps a file for the rest of the process's life; a program is loaded from few files.
fn map(path: &Path) -> Option<&'static [u8]> {
    let file = File::open(path).ok()?;
    let length = usize::try_from(file.metadata().ok()?.len()).ok().filter(|length| *length > 0)?;
    // SAFETY: a new private, read-only mapping of this many bytes of an open file.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is never removed. It relies on the file of a running program not being truncated; so does
    // the loader, which maps the same file in the same way.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) })
}

type Demangler = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Returns the demangling function of the process's C++ library, if it has one.
fn demangler() -> Option<Demangler> {
    const NAME: &CStr = c"__cxa_demangle";
    // SAFETY: the names are NUL-terminated strings. RTLD_NOLOAD only looks up a library that is loaded already, and
    // no handle is closed.
    let function = unsafe {
        let mut function = libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr());
        for library in [c"libstdc++.so.6", c"libc++abi.so.1"] {
            if function.is_null() {
                let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if !handle.is_null() {
                    function = libc::dlsym(handle, NAME.as_ptr());
                }
            }
        }
        function
    };
    // SAFETY: every C++ library defines this function with this name and type, as the Itanium C++ ABI specifies.
    (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Demangler>(function) })
}

/// Demangles a C++ name; returns any other name as it is.
fn demangle(name: &str) -> String {
    if name.starts_with("_Z")
        && let Some(demangler) = demangler()
        && let Ok(mangled) = CString::new(name)
    {
        let mut status = 0;
        // SAFETY: the name is a NUL-terminated string. With a NULL buffer the function returns memory from malloc, or
        // NULL.
        let text = unsafe { demangler(mangled.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut status) };
        if !text.is_null() {
            // SAFETY: the function returned a NUL-terminated string, which is copied before it is freed.
            let demangled = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            // SAFETY: malloc allocated the text; this is its only free.
            unsafe { libc::free(text.cast()) };
            return demangled;
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{capture, frames};

    #[inline(never)]
    fn a_function_of_this_test() -> super::super::StackId {
        std::hint::black_box(capture())
    }

    #[test]
    fn frames_have_name_file_and_line() {
        let line = line!() + 1;
        let stack = frames(a_function_of_this_test());
        let text = format!("{stack:#?}");
        assert!(stack[0].name.contains("a_function_of_this_test"), "{text}");
        assert!(stack[1].name.contains("frames_have_name_file_and_line"), "{text}");
        assert!(stack[1].file.ends_with("src/base/stack/symbols.rs"), "{text}");
        assert_eq!(stack[1].line, line, "{text}");
        assert!(frames(super::super::StackId::NONE).is_empty());
        assert!(frames(super::super::StackId(u32::MAX)).is_empty());
    }

    #[test]
    fn addresses_outside_all_files_are_unknown() {
        let frames = super::symbolize(&[1, 8]);
        assert!(frames.iter().all(|frame| frame.name == "??" && frame.file == "??" && frame.line == 0), "{frames:?}");
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn demangling_leaves_other_names() {
        assert_eq!(super::demangle("main"), "main");
        assert_eq!(super::demangle("_Znonsense\u{e9}"), "_Znonsense\u{e9}");
    }
}
