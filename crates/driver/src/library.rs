//! Shared libraries that are loaded when they are needed, and where they are looked for.
//!
//! plinth links none of CUDA's libraries. Each is found at run time: the driver and NCCL today on nearly every machine
//! with a GPU, NVRTC, cuBLAS and the others where a toolkit or Python's packages brought them.

use std::{
    env,
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A loaded library. It is never closed: threads of its own may run in it, and CUDA's do not survive it.
#[derive(Debug, Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: the handle names a library that stays loaded, and dlsym may be called with it from any thread.
unsafe impl Send for Library {}
// SAFETY: the same.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the library of this name or path, with all that it needs; the reason if that fails. Its constructors run.
    pub fn open(name: &CStr) -> Result<Library, String> {
        Self::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Loads it like [`open`](Self::open), but its functions are bound as they are first called: for tools' libraries, which
    /// may need what this process lacks and never uses.
    pub fn open_lazily(name: &CStr) -> Result<Library, String> {
        Self::dlopen(name, libc::RTLD_LAZY | libc::RTLD_LOCAL)
    }

    /// The library of this name if the process has loaded it already, whatever its path.
    pub fn loaded(name: &CStr) -> Option<Library> {
        Self::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD).ok()
    }

    /// [`open`](Self::open) for a path as the system has it.
    pub fn open_path(path: &OsStr) -> Result<Library, String> {
        let path = CString::new(path.as_bytes()).map_err(|_| "its path holds a NUL".to_owned())?;
        Self::open(&path)
    }

    /// The program itself, and what was loaded with it.
    pub fn program() -> Result<Library, String> {
        // SAFETY: NULL stands for the program.
        Self::checked(unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
    }

    /// Where the library has the symbol, if it has.
    pub fn symbol(self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the library is open, and the name is NUL-terminated.
        let pointer = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!pointer.is_null()).then_some(pointer.cast_const())
    }

    fn dlopen(name: &CStr, flags: c_int) -> Result<Library, String> {
        // SAFETY: the name is NUL-terminated. Loading runs the library's constructors, which is what its user asked for.
        Self::checked(unsafe { libc::dlopen(name.as_ptr(), flags) })
    }

    /// What this thread's last dlopen gave.
    fn checked(library: *mut c_void) -> Result<Library, String> {
        if !library.is_null() {
            return Ok(Library(library));
        }
        // SAFETY: dlerror returns NULL or a NUL-terminated text that lives until this thread's next call of its family.
        let reason = unsafe { libc::dlerror() };
        if reason.is_null() {
            return Err("not loaded".to_owned());
        }
        // SAFETY: it was just seen not to be NULL; see above.
        Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
    }
}

/// A library that is looked for, and where.
#[derive(Debug, Clone, Copy)]
pub struct LibrarySpec {
    /// What people call it.
    pub what: &'static str,
    /// The variable that names its file. Where it is set, only that file is tried.
    pub variable: &'static str,
    /// The names that its file may have, the newest first, each with the major version of the CUDA that it belongs to, 0 for any.
    pub names: &'static [(u32, &'static CStr)],
    /// Whether CUDA's toolkit has it.
    pub in_toolkit: bool,
    /// The folders that Python's packages put it into, below a folder of packages.
    pub in_packages: &'static [&'static str],
}

impl LibrarySpec {
    /// Finds and loads it: the file that the variable names; else one that the process has loaded already, whatever its
    /// path; else what the system finds by name; else in CUDA's toolkit; else among Python's packages. The error is a
    /// sentence that tells what was tried. What is too new for the driver comes last.
    pub fn find(&self) -> Result<Library, String> {
        let LibrarySpec { what, variable, .. } = *self;
        let names = suitable(self.names, DRIVER.load(Ordering::Relaxed));
        if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
            return Library::open_path(&path)
                .map_err(|reason| format!("{what} is needed, and {variable} cannot be loaded ({reason})"));
        }
        if let Some(library) = names.iter().find_map(|name| Library::loaded(name)) {
            return Ok(library);
        }
        let mut reason = None;
        for name in &names {
            match Library::open(name) {
                Ok(library) => return Ok(library),
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        let toolkits = if self.in_toolkit { toolkit_folders() } else { Vec::new() };
        let packages = package_folders();
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
        let toolkit = if self.in_toolkit { ", nor in a toolkit of CUDA's" } else { "" };
        Err(format!(
            "{what} is needed, and not found: {name} is neither where the system finds libraries ({}){toolkit}, nor in any \
             of {} folders of Python packages; install {what}, or name its file in {variable}",
            reason.unwrap_or_default(),
            packages.len()
        ))
    }
}

/// The major version of the CUDA that the machine's driver knows, once there is one.
static DRIVER: AtomicU32 = AtomicU32::new(0);

/// Notes how new the machine's driver is, which has to run what libraries bring: 13000 is 13.0.
pub(super) fn note_driver(version: c_int) {
    DRIVER.store(u32::try_from(version / 1000).unwrap_or(0), Ordering::Relaxed);
}

/// The names in the order in which they are tried with a driver, 0 for one that is not known.
fn suitable(names: &[(u32, &'static CStr)], driver: u32) -> Vec<&'static CStr> {
    let is_new = |major: u32| driver != 0 && major > driver;
    let mut sorted = names.to_vec();
    sorted.sort_by_key(|(major, _)| is_new(*major));
    sorted.into_iter().map(|(_, name)| name).collect()
}

/// The folders where a toolkit of CUDA's has its libraries.
fn toolkit_folders() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let roots = named.filter(|root| !root.as_os_str().is_empty()).chain([PathBuf::from("/usr/local/cuda")]);
    roots.flat_map(|root| ["lib64", "lib"].map(|inner| root.join(inner))).collect()
}

/// The folders where this user's Python packages may be.
pub fn package_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("PYTHONPATH").map(|paths| env::split_paths(&paths).collect()).unwrap_or_default();
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
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
    fn what_is_too_new_for_the_driver_comes_last() {
        const NAMES: &[(u32, &CStr)] = &[(13, c"x.13"), (12, c"x.12"), (11, c"x.11"), (0, c"x")];
        assert_eq!(suitable(NAMES, 0), [c"x.13", c"x.12", c"x.11", c"x"]);
        assert_eq!(suitable(NAMES, 13), [c"x.13", c"x.12", c"x.11", c"x"]);
        assert_eq!(suitable(NAMES, 12), [c"x.12", c"x.11", c"x", c"x.13"]);
    }
}
