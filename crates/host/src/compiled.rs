//! Modules that the machine's own compiler produced: shared libraries, in the role that cubins have on a GPU.
//!
//! A library has either one kernel in CUDA C++ ([`cuda_kernel`]) or kernels of the jiterator. A kernel of the jiterator is
//! a function that runs the whole launch. The library also exports the size of the kernel's one parameter, under the
//! kernel's name with the suffix `_bytes`. The kernel asks for permission before it accesses any memory, so a wrong
//! address makes the launch fail, as on a GPU.

use super::{
    config::Checks,
    cuda_kernel,
    kernels::{HostKernel, Launch, Run},
    state,
};
use crate::driver::{codes, library::Library, table::Code, temporary};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind,
    read::elf::{ElfFile64, ElfSection64},
};
use std::{
    ffi::{CString, c_uint, c_ulonglong, c_void},
    fs,
};

/// Checks whether a launch may access some memory. Returns 0 or an error's code.
type Check =
    unsafe extern "C" fn(launch: *mut c_void, address: c_ulonglong, bytes: c_ulonglong, written: c_uint) -> c_uint;
/// A kernel entry point, which runs all blocks of a launch.
pub type Entry =
    unsafe extern "C" fn(parameter: *const c_void, blocks: c_uint, launch: *mut c_void, check: Check) -> c_uint;

/// A loaded library.
#[derive(Clone, Copy)]
pub struct Loaded {
    library: Library,
    /// The image, if the places of instructions may have to be found in it.
    image: &'static [u8],
    /// The variables that the program may write.
    variables: &'static [Variable],
}

/// A variable of a module.
pub struct Variable {
    name: String,
    pub address: u64,
    pub bytes: u64,
}

impl Loaded {
    /// Finds a variable by its name in the image.
    pub fn variable(self, name: &[u8]) -> Option<&'static Variable> {
        self.variables.iter().find(|variable| variable.name.as_bytes() == name)
    }
}

/// Returns the variables of a kernel in CUDA C++ that can be written.
fn variables(library: Library, image: &[u8]) -> Vec<Variable> {
    let found = || {
        let loaded = library.symbol(cuda_kernel::SYMBOL)? as u64;
        let file = ElfFile64::<LittleEndian>::parse(image).ok()?;
        let own = file.symbols().find(|symbol| symbol.name_bytes() == Ok(cuda_kernel::SYMBOL.to_bytes()))?;
        let is_writable = |section: ElfSection64<'_, '_, LittleEndian>| {
            matches!(section.kind(), SectionKind::Data | SectionKind::UninitializedData)
        };
        let variables = file.symbols().filter(|symbol| {
            symbol.kind() == SymbolKind::Data
                && symbol.size() > 0
                && symbol.section_index().is_some_and(|index| file.section_by_index(index).is_ok_and(is_writable))
        });
        let base = loaded.wrapping_sub(own.address());
        Some(
            variables
                .filter_map(|symbol| {
                    let name = symbol.name().ok().filter(|name| !name.starts_with(OWN))?.to_owned();
                    Some(Variable { name, address: base.wrapping_add(symbol.address()), bytes: symbol.size() })
                })
                .collect(),
        )
    };
    found().unwrap_or_default()
}

/// How the mangled names of the headers' own variables begin.
const OWN: &str = "_ZN11plinth_host";

/// Loads the library that an image contains. It is never unloaded, since a launch may be in progress when its module is
/// unloaded.
pub fn load_library(image: &[u8]) -> Result<Loaded, Code> {
    // The loader needs a file, and may mistake it for a loaded one of the same name, so the path is new each time.
    let folder = temporary::folder().map_err(|_| codes::CUDA_ERROR_OPERATING_SYSTEM)?;
    let path = folder.path().join("kernel.so");
    fs::write(&path, image).map_err(|_| codes::CUDA_ERROR_OPERATING_SYSTEM)?;
    let library = Library::open_path(path.as_os_str()).map_err(|_| codes::CUDA_ERROR_INVALID_IMAGE)?;
    let is_kept = state::get()?.config.checks != Checks::default();
    Ok(Loaded {
        library,
        image: if is_kept { Box::leak(image.into()) } else { &[] },
        variables: variables(library, image).leak(),
    })
}

/// Finds a kernel of a library.
pub fn find(loaded: Loaded, name: &[u8]) -> Option<&'static HostKernel> {
    let library = loaded.library;
    if library.symbol(cuda_kernel::SYMBOL).is_some() {
        return cuda_kernel::find(library, loaded.image, name);
    }
    let symbol = |suffix: &str| library.symbol(&CString::new([name, suffix.as_bytes()].concat()).ok()?);
    let (entry, bytes) = (symbol("")?, symbol("_bytes")?);
    // SAFETY: the jiterator exports this aligned number with every kernel that it generates, and the library stays
    // loaded.
    let bytes = unsafe { bytes.cast::<u32>().read() };
    // SAFETY: a symbol whose `_bytes` symbol exists is a kernel that the jiterator generated, and has this signature.
    let entry = unsafe { std::mem::transmute::<*const c_void, Entry>(entry) };
    let name: &'static str = Box::leak(std::str::from_utf8(name).ok()?.to_owned().into_boxed_str());
    let parameter_sizes: &'static [usize] = Box::leak(Box::new([bytes as usize]));
    Some(Box::leak(Box::new(HostKernel { name, parameter_sizes, run: Run::Compiled(entry) })))
}

/// Runs all blocks of a launch.
pub fn run(entry: Entry, launch: &Launch) {
    let Some(parameter) = launch.bytes(0) else { return launch.fail(codes::CUDA_ERROR_INVALID_VALUE) };
    let launch_pointer = std::ptr::from_ref(launch).cast_mut().cast::<c_void>();
    // SAFETY: the parameter has as many bytes as the kernel declared, and the kernel calls `check` with the launch,
    // which outlives the call, before it accesses any memory.
    let code = unsafe { entry(parameter.as_ptr().cast(), launch.grid[0], launch_pointer, check) };
    if code != codes::CUDA_SUCCESS {
        launch.fail(code);
    }
}

unsafe extern "C" fn check(launch: *mut c_void, address: c_ulonglong, bytes: c_ulonglong, written: c_uint) -> c_uint {
    // SAFETY: `run` passes a pointer to its launch, which is only read.
    let launch = unsafe { &*launch.cast::<Launch>() };
    match launch.memory(address, bytes, written != 0) {
        Ok(_) => codes::CUDA_SUCCESS,
        Err(code) => code,
    }
}
