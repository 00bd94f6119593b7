//! The libraries that plinth and programs use: whether they were found, their versions, and reasons for failure.

use nvml_wrapper::{Nvml, error::NvmlError};
use plinth_driver::{
    cublas, cuda, cufft, cusolver,
    environment::{Environment, is_relative},
    error::Error,
    library::package_folders,
    nccl, nvrtc,
};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// The folder in which NVIDIA's installer creates the toolkit folders.
const TOOLKITS: &str = "/usr/local";

/// A library, available or not.
pub struct Library {
    /// The name of the library.
    pub name: &'static str,
    /// What plinth or programs use it for.
    pub purpose: &'static str,
    /// Its version, or why it is unavailable.
    pub found: Result<Version, String>,
}

/// The version of an available library.
pub struct Version {
    /// The version in the library's own numbering.
    pub number: String,
    /// The path of its file, if known.
    pub path: Option<PathBuf>,
}

/// Converts a CUDA version number to text: 13000 is 13.0.
pub fn cuda_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Returns the path of the file mapped into this process whose name begins with `name`.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let named = |path: &&Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
    paths.find(named).map(Path::to_owned)
}

/// Loads NVML, from the same path as the library does, for values that the library's telemetry lacks.
pub fn nvml() -> Result<Nvml, String> {
    let named = Environment::of_process().value("PLINTH_NVML_LIBRARY");
    let library = named.unwrap_or_else(|| OsString::from("libnvidia-ml.so.1"));
    if is_relative(&library) {
        return Err(format!("{}: the path is relative; name an absolute path", library.to_string_lossy()));
    }
    Nvml::builder().lib_path(&library).init().map_err(|error| match error {
        NvmlError::LibloadingError(reason) => reason.to_string(),
        other => format!("{}: {other}", library.to_string_lossy()),
    })
}

/// Returns why a library is unavailable, as a part of a sentence. Removes plinth's "... is needed, and" and the
/// advice.
pub fn why_not(what: &str, error: &Error) -> String {
    let message = error.message();
    let reason = message.strip_prefix(&format!("{what} is needed, and ")).unwrap_or(message);
    reason.split_once(&format!("; install {what}")).map_or(reason, |(reason, _)| reason).to_owned()
}

/// Returns the version of a CUDA math library, from its file name.
fn math_library<T>(what: &str, file: &str, loaded: plinth_driver::error::Result<T>) -> Result<Version, String> {
    loaded.map_err(|error| why_not(what, &error))?;
    let path = mapped(&format!("{file}.so"));
    let number = path.as_deref().map_or_else(|| "unknown".to_owned(), |path| version_of(file, path));
    Ok(Version { number, path })
}

/// Returns why libcuda is unavailable, without the advice for programs.
fn why_no_cuda(error: &Error) -> String {
    let message = error.message();
    message.split_once("; set PLINTH_DEVICE").map_or(message, |(reason, _)| reason).to_owned()
}

/// Returns all libraries.
pub fn all() -> Vec<Library> {
    let cuda = cuda::load(false).map_err(|error| why_no_cuda(&error)).map(|driver| Version {
        number: driver
            .version()
            .map_or_else(|_| "unknown".to_owned(), |version| format!("CUDA {}", cuda_version(version))),
        path: mapped("libcuda.so"),
    });
    let nvml = nvml().map(|nvml| Version {
        number: nvml.sys_nvml_version().unwrap_or_else(|_| "unknown".to_owned()),
        path: mapped("libnvidia-ml.so"),
    });
    let nccl = nccl::get()
        .map_err(|error| why_not("NCCL", &error))
        .map(|nccl| Version { number: nccl.version().to_string(), path: mapped("libnccl.so") });
    let cudart = match newest("libcudart", &folders()) {
        Some(path) => Ok(Version { number: version_of("libcudart", &path), path: Some(path) }),
        None => Err("libcudart.so was not found; only programs that link to it need it".to_owned()),
    };
    let nvrtc = nvrtc::get().map_err(|error| why_not("NVRTC", &error)).map(|nvrtc| {
        let (major, minor) = nvrtc.version();
        Version { number: format!("{major}.{minor}"), path: mapped("libnvrtc.so") }
    });
    vec![
        Library { name: "libcuda", purpose: "GPUs", found: cuda },
        Library { name: "NVML", purpose: "telemetry", found: nvml },
        Library { name: "NCCL", purpose: "large collectives, several machines", found: nccl },
        Library { name: "NVRTC", purpose: "run-time compilation", found: nvrtc },
        Library {
            name: "cuBLAS",
            purpose: "its handles",
            found: math_library("cuBLAS", "libcublas", cublas::LIBRARY.get()),
        },
        Library {
            name: "cuSOLVER",
            purpose: "its handles",
            found: math_library("cuSOLVER", "libcusolver", cusolver::LIBRARY.get()),
        },
        Library { name: "cuFFT", purpose: "its plans", found: math_library("cuFFT", "libcufft", cufft::LIBRARY.get()) },
        Library { name: "cudart", purpose: "programs built with nvcc", found: cudart },
    ]
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Returns the folders to search for toolkit libraries: the loader's, the toolkit's, and those of Python packages.
pub fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("LD_LIBRARY_PATH").map(|paths| env::split_paths(&paths).collect()).unwrap_or_default();
    folders.extend(loader_folders(Path::new("/etc/ld.so.conf.d")));
    folders.extend(
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"].map(PathBuf::from),
    );
    let environment = Environment::of_process();
    let homes = ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(|name| environment.folder(name));
    let is_toolkit = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"));
    for toolkit in homes.chain(subfolders(Path::new(TOOLKITS)).into_iter().filter(is_toolkit)) {
        folders.extend(["lib64", "lib"].map(|name| toolkit.join(name)));
    }
    for packages in package_folders(&environment) {
        folders.extend(subfolders(&packages.join("nvidia")).iter().map(|one| one.join("lib")));
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

fn loader_folders(configurations: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(configurations) else { return Vec::new() };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let lines: Vec<String> = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().map(|line| line.trim()).filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

/// Returns the newest file of a library in some folders, by the version in its name.
pub fn newest(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let prefix = format!("{name}.so.");
    let mut found = Vec::new();
    for folder in folders {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&prefix)) && path.is_file()
        }));
    }
    found.into_iter().max_by_key(|path| numbers(&version_of(name, path)))
}

/// Returns the version at the end of a file's name, after resolving links: "12.8.93", or only "12".
pub fn version_of(name: &str, path: &Path) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let prefix = format!("{name}.so.");
    let of = |path: &Path| Some(path.file_name()?.to_string_lossy().strip_prefix(&prefix)?.to_owned());
    of(&whole).or_else(|| of(path)).unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the numbers of a version, for comparison.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_wins_by_version() {
        let folder = env::temp_dir().join(format!("plinth-libraries-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("other")).unwrap();
        for file in ["libnvrtc.so.9.0.1", "libnvrtc.so.12.8.93", "libnvrtc-builtins.so.13.0.1", "other/libnvrtc.so.11"]
        {
            fs::write(folder.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("libnvrtc.so.12.8.93", folder.join("libnvrtc.so.12")).unwrap();
        let found = newest("libnvrtc", &[folder.join("other"), folder.clone(), folder.join("none")]).unwrap();
        assert_eq!(version_of("libnvrtc", &found), "12.8.93");
        assert_eq!(newest("libcudart", std::slice::from_ref(&folder)), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn versions_compare_numerically() {
        assert!(numbers("12.8.93") > numbers("9.0.1"));
        assert!(numbers("unknown").is_empty());
        assert_eq!(cuda_version(12080), "12.8");
    }
}
