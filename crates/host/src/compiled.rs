//! Modules that the machine's own compiler produced: shared libraries, in the role that cubins have on a GPU.
//!
//! A library has either one kernel in CUDA C++ ([`cuda_kernel`]) or kernels of the jiterator. A kernel of the jiterator is
//! a function that runs the whole launch. The library also exports the size of the kernel's one parameter, under the
//! kernel's name with the suffix `_bytes`. The kernel asks for permission before it accesses any memory, so a wrong
//! address is an error of its stream, as on a GPU.

use super::{
    config::Checks,
    cuda_kernel,
    kernels::{HostKernel, Launch},
    state,
};
use crate::driver::{codes, library::Library, table::Code, temporary};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_uint, c_ulonglong, c_void},
    fs,
};

/// Checks whether a launch may access some memory. Returns 0 or an error's code.
type Check =
    unsafe extern "C" fn(launch: *mut c_void, address: c_ulonglong, bytes: c_ulonglong, written: c_uint) -> c_uint;
/// A kernel entry point, which runs all blocks of a launch.
type Entry =
    unsafe extern "C" fn(parameter: *const c_void, blocks: c_uint, launch: *mut c_void, check: Check) -> c_uint;

/// The kernels that were found, by the address of their [`HostKernel`].
static ENTRIES: Mutex<Option<HashMap<usize, Entry>>> = Mutex::new(None);

/// The first bytes of an ELF image.
pub const MAGIC: &[u8; 4] = b"\x7fELF";
/// The size of an ELF image's header on a 64-bit machine.
pub const HEADER: usize = 64;

/// Returns the size of an ELF image from its header: compilers put the section table at the end.
pub fn image_bytes(header: &[u8; HEADER]) -> Option<usize> {
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let start = u64::from_le_bytes(header[0x28..0x30].try_into().ok()?);
    // 64-bit and little-endian.
    (header[4..6] == [2, 1]).then_some(())?;
    usize::try_from(start.checked_add(half(0x3A) * half(0x3C))?).ok()
}

/// A loaded library.
#[derive(Clone, Copy)]
pub struct Loaded {
    library: Library,
    /// The image, if the places of instructions may have to be found in it.
    image: &'static [u8],
}

/// Loads the library that an image contains. It is never unloaded, since a launch may be in progress when its module is
/// unloaded.
pub fn load_library(image: &[u8]) -> Result<Loaded, Code> {
    // The loader needs a file, and may mistake it for a loaded one of the same name, so the path is new each time.
    let folder = temporary::folder().map_err(|_| codes::CUDA_ERROR_OPERATING_SYSTEM)?;
    let path = folder.path().join("kernel.so");
    fs::write(&path, image).map_err(|_| codes::CUDA_ERROR_OPERATING_SYSTEM)?;
    let library = Library::open_path(path.as_os_str()).map_err(|_| codes::CUDA_ERROR_INVALID_IMAGE)?;
    let is_kept = state::get()?.config.checks != Checks::default();
    Ok(Loaded { library, image: if is_kept { Box::leak(image.into()) } else { &[] } })
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
    let kernel: &'static HostKernel = Box::leak(Box::new(HostKernel { name, parameter_sizes, run }));
    ENTRIES.lock().get_or_insert_default().insert(std::ptr::from_ref(kernel) as usize, entry);
    Some(kernel)
}

fn run(launch: &Launch) {
    let address = std::ptr::from_ref(launch.kernel) as usize;
    let entry = ENTRIES.lock().as_ref().and_then(|entries| entries.get(&address).copied());
    let (Some(entry), Some(parameter)) = (entry, launch.bytes(0)) else {
        return launch.fail(codes::CUDA_ERROR_INVALID_VALUE);
    };
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

/// Returns the bytes of an image behind a C pointer: an ELF image in the length that its header states, otherwise text
/// up to a NUL.
///
/// # Safety
/// `image` points to a whole ELF image of this kind of machine, or to bytes that end in a NUL.
pub unsafe fn read_image<'a>(image: *const c_void) -> &'a [u8] {
    // SAFETY: guaranteed by the caller; the comparison ends at the first byte that differs, so nothing is read past a
    // NUL.
    let is_elf = (0..MAGIC.len()).all(|at| unsafe { image.cast::<u8>().add(at).read() } == MAGIC[at]);
    if is_elf {
        // SAFETY: an ELF image is at least as long as its header.
        let header = unsafe { &*image.cast::<[u8; HEADER]>() };
        if let Some(bytes) = image_bytes(header) {
            // SAFETY: the image is whole, hence as long as its header states.
            return unsafe { std::slice::from_raw_parts(image.cast(), bytes) };
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(image.cast()) }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_end_where_their_headers_say() {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[0x28..0x30].copy_from_slice(&1000_u64.to_le_bytes());
        header[0x3A..0x3E].copy_from_slice(&[64, 0, 3, 0]);
        assert_eq!(image_bytes(&header), Some(1000 + 64 * 3));
        header[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(image_bytes(&header), None);
        // 32-bit, or big-endian.
        for other in [[1, 1], [2, 2]] {
            header[4..6].copy_from_slice(&other);
            assert_eq!(image_bytes(&header), None);
        }
    }
}
