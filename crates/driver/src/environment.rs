//! Environment variables that name libraries, programs, files or folders.
//!
//! Such a variable decides which code the process runs and which files it writes. Hence two rules:
//!
//! - Folders that are searched have absolute paths. A relative or an empty one would denote the working directory, which
//!   may belong to another user.
//! - A process that has more rights than the user who started it (set-user-ID, set-group-ID, file capabilities) ignores
//!   these variables, as the system's loader ignores `LD_LIBRARY_PATH` there.

use crate::{
    error::{self, Error},
    status::Status,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

/// The names of variables that are ignored in a process with more rights than its user. Those that only change numbers or
/// select one of the library's own methods are not among them.
pub const IGNORED_IF_SECURE: [&str; 23] = [
    "CONDA_PREFIX",
    "CUDA_HOME",
    "CUDA_PATH",
    "CXX",
    "HOME",
    "NVTX_INJECTION64_PATH",
    "PATH",
    "PLINTH_CUBLAS_LIBRARY",
    "PLINTH_CUDA_LIBRARY",
    "PLINTH_CUFFT_LIBRARY",
    "PLINTH_CUSOLVER_LIBRARY",
    "PLINTH_CXX",
    "PLINTH_HOST_MEMORY_NAME",
    "PLINTH_KERNEL_CACHE_PATH",
    "PLINTH_NCCL_LIBRARY",
    "PLINTH_NVML_LIBRARY",
    "PLINTH_NVRTC_LIBRARY",
    "PLINTH_RENDEZVOUS_DIR",
    "PLINTH_SANITIZER_LOG",
    "PYTHONPATH",
    "TMPDIR",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
];

/// Returns whether this process has more rights than the user who started it, as the kernel found when it started the
/// program.
pub fn is_secure() -> bool {
    // SAFETY: the call reads a number that the kernel passed to the process; it has no requirements.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns whether a path depends on the working directory. A file name alone does not: the system's loader and `PATH`
/// are searched for it.
pub fn is_relative(path: &OsStr) -> bool {
    let bytes = path.as_bytes();
    bytes.contains(&b'/') && !bytes.starts_with(b"/")
}

/// Returns the value of a variable that is 1 or 0; `None` if it is not set or empty.
pub fn switch(name: &str, value: Option<OsString>) -> error::Result<Option<bool>> {
    match value.unwrap_or_default().to_string_lossy().trim() {
        "" => Ok(None),
        "0" => Ok(Some(false)),
        "1" => Ok(Some(true)),
        other => Err(Error::new(Status::INVALID_CONFIGURATION, format!("{name} is {other:?}; set it to 1 or 0"))),
    }
}

/// The environment that variables are read from.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    is_secure: bool,
    read: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'static> {
    /// Returns the environment of this process.
    pub fn of_process() -> Self {
        Environment { is_secure: is_secure(), read: &|name| env::var_os(name) }
    }
}

impl<'a> Environment<'a> {
    /// Creates an environment for tests.
    pub fn new(is_secure: bool, read: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Environment { is_secure, read }
    }

    /// Returns whether the process has more rights than the user who started it.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the value of a variable of [`IGNORED_IF_SECURE`], if it is set, not empty and not ignored.
    pub fn value(&self, name: &str) -> Option<OsString> {
        debug_assert!(IGNORED_IF_SECURE.contains(&name), "{name}");
        if self.is_secure { None } else { (self.read)(name).filter(|value| !value.is_empty()) }
    }

    /// Returns the folder that a variable names, if its path is absolute.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the folders of a variable like `PATH` that have absolute paths.
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        let list = self.value(name).unwrap_or_default();
        env::split_paths(&list).filter(|path| path.is_absolute()).collect()
    }

    /// Returns the path that a variable names. The error is a sentence: the path is relative.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        match self.value(name).map(PathBuf::from) {
            Some(path) if !path.is_absolute() => {
                Err(format!("{name} is {:?}, a relative path; set it to an absolute path", path.display().to_string()))
            }
            path => Ok(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const VALUES: [&str; 6] = ["", ".", "relative", "./relative", "../relative", "/absolute"];

    #[test]
    fn only_absolute_paths_are_searched() {
        for value in VALUES {
            let read = |_: &str| Some(OsString::from(value));
            let environment = Environment::new(false, &read);
            let is_absolute = value.starts_with('/');
            assert_eq!(environment.folder("HOME").is_some(), is_absolute, "{value:?}");
            assert_eq!(environment.folders("PATH").len(), usize::from(is_absolute), "{value:?}");
            match environment.path("PLINTH_KERNEL_CACHE_PATH") {
                Ok(path) => assert_eq!(path.is_some(), is_absolute, "{value:?}"),
                Err(error) => assert!(!is_absolute && error.contains(value) && error.contains("absolute"), "{error}"),
            }
        }
        let read = |_: &str| Some(OsString::from(":.:a:/b::c/d:/e:"));
        assert_eq!(Environment::new(false, &read).folders("PYTHONPATH"), [Path::new("/b"), Path::new("/e")]);
    }

    #[test]
    fn a_secure_process_ignores_every_variable() {
        let read = |_: &str| Some(OsString::from("/somewhere"));
        for name in IGNORED_IF_SECURE {
            let [plain, secure] = [false, true].map(|is_secure| Environment::new(is_secure, &read));
            assert_eq!(plain.value(name).as_deref(), Some(OsStr::new("/somewhere")));
            assert_eq!((secure.value(name), secure.folder(name), secure.path(name)), (None, None, Ok(None)));
            assert!(secure.folders(name).is_empty());
        }
    }

    #[test]
    fn names_are_not_relative_paths() {
        for (path, expected) in [("libx.so", false), ("/x/libx.so", false), ("./libx.so", true), ("x/libx.so", true)] {
            assert_eq!(is_relative(OsStr::new(path)), expected, "{path}");
        }
    }
}
