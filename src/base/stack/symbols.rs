//! What return addresses mean: functions, files and lines, from the files that the program was loaded from.
//!
//! Debug information tells all of it, inlined functions too. Without it the symbol tables tell the function, and the
//! file is that of the program or library. Names of C++ are told as they are written, by the C++ library of the process.

use super::images;
use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs::File,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// One function of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function; "??" if it is not known.
    pub name: String,
    /// Its source file, or, where no debug information tells that, the program or library; "??" if not even that is known.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
}

type Slice = EndianSlice<'static, LittleEndian>;

/// What a file tells of its code.
struct Symbols {
    context: Option<Context<Slice>>,
    /// The functions, by address.
    functions: Vec<Function>,
}

struct Function {
    start: u64,
    bytes: u64,
    name: &'static str,
}

#[derive(Default)]
struct Reader {
    /// By the path of the file; none for one that cannot be read.
    files: HashMap<PathBuf, Option<Symbols>>,
    /// What return addresses mean, innermost function first.
    known: HashMap<u64, Arc<[Frame]>>,
}

static READER: OnceLock<Mutex<Reader>> = OnceLock::new();

/// The functions of a stack of return addresses, the innermost first. What the library itself called is left out.
pub(super) fn tell(addresses: &[u64]) -> Arc<[Frame]> {
    let mut reader = READER.get_or_init(Mutex::default).lock();
    let mut frames: Vec<Frame> = Vec::new();
    for address in addresses {
        frames.extend(reader.tell(*address).iter().cloned());
    }
    if in_the_program() {
        // The library's functions are among the program's, and the exported one is the outermost of them.
        if let Some(outermost) = frames.iter().position(|frame| frame.name.starts_with("plinth_")) {
            frames.drain(..=outermost);
        }
    }
    frames.into()
}

/// Whether the library is a part of the program's image.
fn in_the_program() -> bool {
    static IN_IT: OnceLock<bool> = OnceLock::new();
    *IN_IT.get_or_init(|| images::find(in_the_program as *const () as u64, |image| image.is_program()).unwrap_or(true))
}

impl Reader {
    fn tell(&mut self, address: u64) -> Arc<[Frame]> {
        if let Some(frames) = self.known.get(&address) {
            return frames.clone();
        }
        // A return address is behind the call.
        let instruction = address.wrapping_sub(1);
        let image = images::find(instruction, |image| (image.path(), instruction.wrapping_sub(image.bias)));
        let frames: Arc<[Frame]> = match image {
            Some((path, place)) => {
                let symbols = self.files.entry(path.clone()).or_insert_with(|| read(&path));
                symbols.as_ref().map_or_else(|| vec![unknown(&path)], |symbols| symbols.tell(&path, place)).into()
            }
            None => [unknown(Path::new("??"))].into(),
        };
        self.known.insert(address, frames.clone());
        frames
    }
}

fn unknown(path: &Path) -> Frame {
    Frame { name: "??".into(), file: shown(path), line: 0 }
}

/// A path as it is told: the program's own by its name.
fn shown(path: &Path) -> String {
    let real = if path == Path::new("/proc/self/exe") { std::fs::read_link(path).ok() } else { None };
    real.as_deref().unwrap_or(path).to_string_lossy().into_owned()
}

impl Symbols {
    fn tell(&self, path: &Path, place: u64) -> Vec<Frame> {
        let symbol = self.symbol(place);
        let mut frames = Vec::new();
        if let Some(context) = &self.context
            && let Ok(mut found) = context.find_frames(place).skip_all_loads()
        {
            while let Ok(Some(frame)) = found.next() {
                let location = frame.location.as_ref();
                let Some(file) = location.and_then(|location| location.file) else { continue };
                let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                frames.push(Frame {
                    name: name.map_or_else(|| "??".into(), |name| demangle(&name)),
                    file: file.to_owned(),
                    line: location.and_then(|location| location.line).unwrap_or(0),
                });
            }
        }
        match (frames.last_mut(), symbol) {
            // Debug information often has less than the whole name of what only one file knows, where C++ makes names.
            (Some(outermost), Some(symbol)) if symbol.starts_with("_Z") || outermost.name == "??" => {
                outermost.name = demangle(symbol);
            }
            (Some(_), _) => {}
            (None, symbol) => {
                let name = symbol.map_or_else(|| "??".into(), demangle);
                frames.push(Frame { name, ..unknown(path) });
            }
        }
        frames
    }

    /// The name of the function at a place, as the linker knows it.
    fn symbol(&self, place: u64) -> Option<&'static str> {
        let above = self.functions.partition_point(|function| function.start <= place);
        let function = self.functions.get(above.checked_sub(1)?)?;
        // What was written in assembler may have no size. The version of a name is no part of it.
        let name = function.name.split('@').next();
        name.filter(|_| function.bytes == 0 || place - function.start < function.bytes)
    }
}

/// Reads a file, and the one with its debug information, if that was taken out of it.
fn read(path: &Path) -> Option<Symbols> {
    let file = parse(path)?;
    let debug = match file.section_by_name(".debug_info") {
        Some(_) => None,
        None => separate(&file),
    };
    let source = debug.as_ref().unwrap_or(&file);
    let mut functions = functions(&file);
    if let Some(debug) = &debug {
        functions.extend(self::functions(debug));
    }
    functions.sort_by_key(|function| (function.start, function.bytes));
    Some(Symbols { context: context(source), functions })
}

type Elf = object::read::elf::ElfFile64<'static, object::LittleEndian>;

fn parse(path: &Path) -> Option<Elf> {
    Elf::parse(map(path)?).ok()
}

/// The file that a packager keeps apart, under the number of the build.
fn separate(file: &Elf) -> Option<Elf> {
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
        // What is compressed is left alone, as if it were not there.
        let section = file.section_by_name(id.name());
        let data = section.filter(|section| matches!(section.compressed_file_range(), Ok(range) if range.format == object::CompressionFormat::None));
        Ok(EndianSlice::new(data.and_then(|section| section.data().ok()).unwrap_or(&[]), LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(section).ok()?).ok()
}

/// Maps a file for as long as the process lives: the files that a program was loaded from are few.
fn map(path: &Path) -> Option<&'static [u8]> {
    let file = File::open(path).ok()?;
    let length = usize::try_from(file.metadata().ok()?.len()).ok().filter(|length| *length > 0)?;
    // SAFETY: a new mapping, which nobody writes to, of so many bytes of an open file.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is never taken away. That the file of a running program is not cut short is what the loader, which
    // has it mapped in the same way, relies on, too.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) })
}

type Demangler = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// The function of the C++ library that knows how names are made, if the process has a C++ library.
fn demangler() -> Option<Demangler> {
    const NAME: &CStr = c"__cxa_demangle";
    // SAFETY: the names are strings; a library that is loaded already is only looked up, and no handle of it is closed.
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
    // SAFETY: every C++ library has this function under this name with this type, as their common ABI says.
    (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Demangler>(function) })
}

/// A name as it is written in the source.
fn demangle(name: &str) -> String {
    if name.starts_with("_Z")
        && let Some(demangler) = demangler()
        && let Ok(mangled) = CString::new(name)
    {
        let mut status = 0;
        // SAFETY: the name is a string; with NULL the function gives memory of malloc's, or NULL.
        let text = unsafe { demangler(mangled.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut status) };
        if !text.is_null() {
            // SAFETY: it gave a string, which is copied before it is freed.
            let told = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            // SAFETY: as above; this is its only free.
            unsafe { libc::free(text.cast()) };
            return told;
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
    fn functions_are_told_by_name_file_and_line() {
        let line = line!() + 1;
        let told = frames(a_function_of_this_test());
        let text = format!("{told:#?}");
        assert!(told[0].name.contains("a_function_of_this_test"), "{text}");
        assert!(told[1].name.contains("functions_are_told_by_name_file_and_line"), "{text}");
        assert!(told[1].file.ends_with("src/base/stack/symbols.rs"), "{text}");
        assert_eq!(told[1].line, line, "{text}");
        assert!(frames(super::super::StackId::NONE).is_empty());
        assert!(frames(super::super::StackId(u32::MAX)).is_empty());
    }

    #[test]
    fn what_is_in_no_file_is_unknown() {
        let told = super::tell(&[1, 8]);
        assert!(told.iter().all(|frame| frame.name == "??" && frame.file == "??" && frame.line == 0), "{told:?}");
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn names_that_are_no_cpp_names_stay() {
        assert_eq!(super::demangle("main"), "main");
        assert_eq!(super::demangle("_Znonsense\u{e9}"), "_Znonsense\u{e9}");
    }
}
