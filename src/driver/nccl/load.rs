//! Finds libnccl at run time.
//!
//! One that the process has loaded already is taken, whatever its path; then `libnccl.so.2` where the system finds
//! libraries; then the places where Python's packages put it. `PLINTH_NCCL_LIBRARY` names another file, and then only
//! that one is tried.

use super::{
    Nccl,
    table::{Call, ErrorString, LastError, SUCCESS, Table},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    env,
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

const LIBRARY: &CStr = c"libnccl.so.2";
/// The variable that names the library.
pub const VARIABLE: &str = "PLINTH_NCCL_LIBRARY";
/// Where Python's package of NCCL has the library, in a folder of packages.
const IN_PACKAGES: &str = "nvidia/nccl/lib/libnccl.so.2";
/// A library that exports this works on the host device. NVIDIA's does not: it is for stand-ins.
const ON_HOST_DEVICE: &CStr = c"plinth_nccl_on_host_device";

/// Loads NCCL. The library is never closed: threads of its own may run in it.
pub fn load() -> Result<Nccl> {
    let library = open()?;
    let mut missing: Option<Call> = None;
    // SAFETY: each call is looked for under its own symbol, whose signature the table states and NCCL never changes.
    // The library is never closed.
    let table = unsafe {
        Table::from_symbols(|call| {
            let found = symbol(library, call.info().c_symbol);
            if found.is_none() && call.info().required && missing.is_none() {
                missing = Some(call);
            }
            found
        })
    };
    // SAFETY: the symbols have these signatures in every version that has them.
    let (error_string, last_error) = unsafe {
        (
            symbol(library, c"ncclGetErrorString")
                .map(|pointer| std::mem::transmute::<*const c_void, ErrorString>(pointer)),
            symbol(library, c"ncclGetLastError")
                .map(|pointer| std::mem::transmute::<*const c_void, LastError>(pointer)),
        )
    };
    let mut version: c_int = 0;
    // SAFETY: the output is a live local.
    let code = unsafe { (table.ncclGetVersion)(&mut version) };
    if let Some(call) = missing {
        let has = if code == SUCCESS { format!("NCCL {}", Version(version)) } else { "the libnccl found".to_owned() };
        let (symbol, since) = (call.info().symbol, Version(call.info().since));
        return Err(unavailable(format!("{has} has no {symbol}, which came with {since}; a newer NCCL is needed")));
    }
    if code != SUCCESS {
        return Err(unavailable(format!("ncclGetVersion failed with {code}")));
    }
    let on_host_device = symbol(library, ON_HOST_DEVICE).is_some();
    Ok(Nccl { table, error_string, last_error, version, on_host_device })
}

#[cold]
fn unavailable(reason: impl Into<String>) -> Error {
    Error::new(Status::NCCL_UNAVAILABLE, reason)
}

/// A version as NCCL counts them: up to 2.8 in hundreds, then in ten thousands.
pub struct Version(pub c_int);

impl Version {
    /// Major, minor and patch.
    pub fn parts(&self) -> (i32, i32, i32) {
        let major = if self.0 < 10_000 { 1_000 } else { 10_000 };
        (self.0 / major, self.0 % major / 100, self.0 % 100)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.parts();
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

fn open() -> Result<*mut c_void> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return open_path(&path)
            .map_err(|reason| unavailable(format!("NCCL is needed, and {VARIABLE} cannot be loaded ({reason})")));
    }
    if let Ok(library) = dlopen(LIBRARY, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD) {
        return Ok(library);
    }
    let reason = match dlopen(LIBRARY, libc::RTLD_NOW | libc::RTLD_LOCAL) {
        Ok(library) => return Ok(library),
        Err(reason) => reason,
    };
    let places = package_folders();
    for place in &places {
        let library = place.join(IN_PACKAGES);
        if library.is_file()
            && let Ok(library) = open_path(library.as_os_str())
        {
            return Ok(library);
        }
    }
    Err(unavailable(format!(
        "NCCL is needed, and not found: libnccl.so.2 is neither where the system finds libraries ({reason}) nor in any \
         of {} folders of Python packages; install NCCL, or name its file in {VARIABLE}",
        places.len()
    )))
}

fn open_path(path: &OsStr) -> std::result::Result<*mut c_void, String> {
    let path = CString::new(path.as_bytes()).map_err(|_| "its path holds a NUL".to_owned())?;
    dlopen(&path, libc::RTLD_NOW | libc::RTLD_LOCAL)
}

/// The folders where this user's Python packages may be.
fn package_folders() -> Vec<PathBuf> {
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

fn dlopen(name: &CStr, flags: c_int) -> std::result::Result<*mut c_void, String> {
    // SAFETY: the name is NUL-terminated. Loading runs the library's constructors, which is what its user asked for.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: dlerror returns NULL or a NUL-terminated text that lives until this thread's next call of its family.
    let reason = unsafe { libc::dlerror() };
    if reason.is_null() {
        return Err("not loaded".to_owned());
    }
    // SAFETY: it was just seen not to be NULL; see above.
    Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*const c_void> {
    // SAFETY: the library is open, and the name is NUL-terminated.
    let pointer = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!pointer.is_null()).then_some(pointer.cast_const())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_nccl_counts_them() {
        for (code, text) in [(2708, "2.7.8"), (2804, "2.8.4"), (20900, "2.9.0"), (22907, "2.29.7"), (23203, "2.32.3")] {
            assert_eq!(Version(code).to_string(), text);
        }
    }
}
