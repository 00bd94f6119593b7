//! Shared libraries that are loaded on demand, and their search paths.
//!
//! plinth links none of CUDA's libraries. All are located at run time: the driver and NCCL exist on nearly every
//! machine with a GPU; NVRTC, cuBLAS and the others come with a CUDA toolkit or with Python packages.

use crate::environment::{Environment, is_relative};
use std::{
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// A loaded library. It is never closed: its own threads may be running in it, and CUDA's libraries do not support
/// unloading.
#[derive(Debug, Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: the handle refers to a library that stays loaded, and dlsym may be called with it from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library by name or absolute path, with its dependencies, and runs its constructors. The error is the
    /// loader's reason.
    pub fn open(name: &CStr) -> Result<Library, String> {
        Self::dlopen_absolute(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Loads a library like [`open`](Self::open), but binds its functions lazily: tool libraries may reference symbols
    /// that this process lacks and never uses.
    pub fn open_lazily(name: &CStr) -> Result<Library, String> {
        Self::dlopen_absolute(name, libc::RTLD_LAZY | libc::RTLD_LOCAL)
    }

    /// Returns the library of this name if the process has already loaded it, whatever its path.
    pub fn loaded(name: &CStr) -> Option<Library> {
        Self::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD).ok()
    }

    /// Calls [`open`](Self::open) with a path of the operating system.
    pub fn open_path(path: &OsStr) -> Result<Library, String> {
        let path = CString::new(path.as_bytes()).map_err(|_| "its path holds a NUL".to_owned())?;
        Self::open(&path)
    }

    /// Loads a library whose path the program passed. Unlike one from the environment, it may be relative.
    pub fn open_for_program(path: &OsStr) -> Result<Library, String> {
        let path = CString::new(path.as_bytes()).map_err(|_| "its path holds a NUL".to_owned())?;
        Self::dlopen(&path, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Returns the program itself and the libraries loaded with it.
    pub fn program() -> Result<Library, String> {
        // SAFETY: NULL denotes the program.
        Self::from_dlopen(unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
    }

    /// Returns the address of a symbol, if the library has it.
    pub fn symbol(self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the library is open, and the name is NUL-terminated.
        let pointer = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!pointer.is_null()).then_some(pointer.cast_const())
    }

    fn dlopen_absolute(name: &CStr, flags: c_int) -> Result<Library, String> {
        if is_relative(OsStr::from_bytes(name.to_bytes())) {
            return Err(format!("{}: the path is relative; name an absolute path", name.to_string_lossy()));
        }
        Self::dlopen(name, flags)
    }

    fn dlopen(name: &CStr, flags: c_int) -> Result<Library, String> {
        // SAFETY: the name is NUL-terminated. Loading runs the library's constructors, which the caller requests.
        Self::from_dlopen(unsafe { libc::dlopen(name.as_ptr(), flags) })
    }

    /// Converts the result of this thread's last dlopen call.
    fn from_dlopen(library: *mut c_void) -> Result<Library, String> {
        if !library.is_null() {
            return Ok(Library(library));
        }
        // SAFETY: dlerror returns NULL or a NUL-terminated string that lives until this thread's next dl call.
        let reason = unsafe { libc::dlerror() };
        if reason.is_null() {
            return Err("not loaded".to_owned());
        }
        // SAFETY: the pointer is not NULL; see above.
        Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
    }
}

/// A library to load, and its search path.
#[derive(Debug, Clone, Copy)]
pub struct LibrarySpec {
    /// The name in messages.
    pub name: &'static str,
    /// The environment variable that names its file. If it is set, only that file is tried.
    pub variable: &'static str,
    /// The file names, newest first, each with the major version of the CUDA release that it belongs to; 0 for any.
    pub names: &'static [(u32, &'static CStr)],
    /// Whether the CUDA toolkit includes it.
    pub in_toolkit: bool,
    /// The folders in which Python packages install it, relative to a packages folder.
    pub in_packages: &'static [&'static str],
}

impl LibrarySpec {
    /// Locates and loads the library. Tries in this order: the file that the variable names; a library that the process
    /// has already loaded, whatever its path; the system's library path; the CUDA toolkit; Python packages. Versions
    /// that are too new for the driver come last. The error is a sentence that lists what was tried.
    pub fn find(&self) -> Result<Library, String> {
        let LibrarySpec { name: library_name, variable, .. } = *self;
        let environment = Environment::of_process();
        let names = order_by_driver(self.names, DRIVER.load(Ordering::Relaxed));
        if let Some(path) = environment.value(variable) {
            return Library::open_path(&path)
                .map_err(|reason| format!("{library_name} is needed, and {variable} cannot be loaded ({reason})"));
        }
        if let Some(library) = names.iter().find_map(|name| Library::loaded(name)) {
            return Ok(library);
        }
        let mut reason = None;
        for name in &names {
            match Library::open(name) {
                Ok(library) => return Ok(library),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        let toolkits = if self.in_toolkit { toolkit_folders(&environment) } else { Vec::new() };
        let packages = package_folders(&environment);
        let in_packages =
            packages.iter().flat_map(|folder| self.in_packages.iter().map(move |inner| folder.join(inner)));
        for folder in toolkits.iter().cloned().chain(in_packages) {
            let files = names.iter().map(|name| folder.join(OsStr::from_bytes(name.to_bytes())));
            for file in files.filter(|file| file.is_file()) {
                if let Ok(library) = Library::open_path(file.as_os_str()) {
                    return Ok(library);
                }
            }
        }
        let name = names.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        let toolkit = if self.in_toolkit { ", nor in a CUDA toolkit" } else { "" };
        Err(format!(
            "{library_name} is needed, and not found: {name} is neither in the system's library path \
             ({}){toolkit}, nor in any of {} folders of Python packages; \
             install {library_name}, or name its file in {variable}",
            reason.unwrap_or_default(),
            packages.len()
        ))
    }
}

/// The major CUDA version that the machine's driver supports; 0 until the driver is loaded.
static DRIVER: AtomicU32 = AtomicU32::new(0);

/// Records the driver's version, which limits the libraries that can run: 13000 is 13.0.
pub(super) fn record_driver_version(version: c_int) {
    DRIVER.store(u32::try_from(version / 1000).unwrap_or(0), Ordering::Relaxed);
}

/// Returns the names in the order in which to try them; `driver` is 0 if unknown.
fn order_by_driver(names: &[(u32, &'static CStr)], driver: u32) -> Vec<&'static CStr> {
    let is_new = |major: u32| driver != 0 && major > driver;
    let (new, known): (Vec<_>, Vec<_>) = names.iter().partition(|(major, _)| is_new(*major));
    known.into_iter().chain(new).map(|(_, name)| name).collect()
}

/// Returns the library folders of CUDA toolkits.
fn toolkit_folders(environment: &Environment) -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| environment.folder(name));
    let roots = named.chain([PathBuf::from("/usr/local/cuda")]);
    roots.flat_map(|root| ["lib64", "lib"].map(|inner| root.join(inner))).collect()
}

/// Returns the folders that may contain this user's Python packages.
pub fn package_folders(environment: &Environment) -> Vec<PathBuf> {
    let mut folders = environment.folders("PYTHONPATH");
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| environment.folder(name));
    let home = environment.folder("HOME").map(|home| home.join(".local"));
    for root in roots.chain(home).chain(["/usr/local", "/usr"].map(PathBuf::from)) {
        let Ok(entries) = fs::read_dir(root.join("lib")) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().as_bytes().starts_with(b"python3") {
                folders.extend(["site-packages", "dist-packages"].map(|name| entry.path().join(name)));
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_absolute() {
        let of = |value: &'static str| {
            let read = move |_: &str| Some(value.into());
            let environment = Environment::new(false, &read);
            [toolkit_folders(&environment), package_folders(&environment)].concat()
        };
        for value in ["", ".", "relative", "..", ":", "relative:."] {
            assert_eq!(of(value), of(""), "{value:?}");
            assert!(of(value).iter().all(|folder| folder.is_absolute()), "{value:?}");
        }
        assert!(of("/somewhere").contains(&PathBuf::from("/somewhere/lib64")));
        assert!(of("/somewhere").contains(&PathBuf::from("/somewhere")));
    }

    #[test]
    fn a_relative_path_is_not_loaded() {
        for path in [c"./libm.so.6", c"relative/libm.so.6"] {
            assert!(Library::open(path).unwrap_err().contains("absolute"));
            assert!(Library::open_lazily(path).is_err());
        }
        assert!(Library::open(c"libm.so.6").is_ok());
    }

    #[test]
    fn libraries_too_new_for_the_driver_come_last() {
        const NAMES: &[(u32, &CStr)] = &[(13, c"x.13"), (12, c"x.12"), (11, c"x.11"), (0, c"x")];
        assert_eq!(order_by_driver(NAMES, 0), [c"x.13", c"x.12", c"x.11", c"x"]);
        assert_eq!(order_by_driver(NAMES, 13), [c"x.13", c"x.12", c"x.11", c"x"]);
        assert_eq!(order_by_driver(NAMES, 12), [c"x.12", c"x.11", c"x", c"x.13"]);
    }
}
