//! The libraries that plinth uses or that are used beside it: whether they are here, which, and why not.

use nvml_wrapper::{Nvml, error::NvmlError};
use plinth::{
    driver::{cublas, cuda, cufft, cusolver, library::package_folders, nccl, nvrtc},
    error::Error,
};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// The folder of toolkit libraries that NVIDIA's installer makes.
const TOOLKITS: &str = "/usr/local";

/// A library, found or not.
pub struct Library {
    /// What it is called.
    pub name: &'static str,
    /// What plinth, or what is used beside it, has it for.
    pub purpose: &'static str,
    /// Which it is, or why it cannot be used.
    pub found: Result<Version, String>,
}

/// Which one was found.
pub struct Version {
    /// As its makers count.
    pub number: String,
    /// Its file, if that is known.
    pub path: Option<PathBuf>,
}

/// CUDA's way of writing a version in a number: 13000 is 13.0.
pub fn cuda_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The file that is mapped into this process under such a name.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let named = |path: &&Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
    paths.find(named).map(Path::to_owned)
}

/// NVML, for what the library's own readings do not tell. It is found as the library finds it.
pub fn nvml() -> Result<Nvml, String> {
    let named = env::var_os("PLINTH_NVML_LIBRARY").filter(|path| !path.is_empty());
    let library = named.unwrap_or_else(|| OsString::from("libnvidia-ml.so.1"));
    Nvml::builder().lib_path(&library).init().map_err(|error| match error {
        NvmlError::LibloadingError(reason) => reason.to_string(),
        other => format!("{}: {other}", library.to_string_lossy()),
    })
}

/// Why a library cannot be used, as a part of a sentence: plinth's own begins with who needs it, and ends with advice.
pub fn why_not(what: &str, error: &Error) -> String {
    let message = error.message();
    let reason = message.strip_prefix(&format!("{what} is needed, and ")).unwrap_or(message);
    reason.split_once(&format!("; install {what}")).map_or(reason, |(reason, _)| reason).to_owned()
}

/// One of CUDA's mathematical libraries, which tells its version by the name of its file.
fn mathematical<T>(what: &str, file: &str, loaded: plinth::error::Result<T>) -> Result<Version, String> {
    loaded.map_err(|error| why_not(what, &error))?;
    let path = mapped(&format!("{file}.so"));
    let number = path.as_deref().map_or_else(|| "unknown".to_owned(), |path| version_of(file, path));
    Ok(Version { number, path })
}

/// Why there is no libcuda, without the advice that the library adds for programs.
fn why_no_cuda(error: &Error) -> String {
    let message = error.message();
    message.split_once("; set PLINTH_DEVICE").map_or(message, |(reason, _)| reason).to_owned()
}

/// All of them.
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
        None => Err("no file libcudart.so was found; only what uses it needs it".to_owned()),
    };
    let nvrtc = nvrtc::get().map_err(|error| why_not("NVRTC", &error)).map(|nvrtc| {
        let (major, minor) = nvrtc.version();
        Version { number: format!("{major}.{minor}"), path: mapped("libnvrtc.so") }
    });
    vec![
        Library { name: "libcuda", purpose: "GPUs", found: cuda },
        Library { name: "NVML", purpose: "telemetry", found: nvml },
        Library { name: "NCCL", purpose: "large collectives, several machines", found: nccl },
        Library { name: "NVRTC", purpose: "kernels made at run time", found: nvrtc },
        Library { name: "cuBLAS", purpose: "its handles", found: mathematical("cuBLAS", "libcublas", cublas::get()) },
        Library {
            name: "cuSOLVER",
            purpose: "its handles",
            found: mathematical("cuSOLVER", "libcusolver", cusolver::get()),
        },
        Library { name: "cuFFT", purpose: "its plans", found: mathematical("cuFFT", "libcufft", cufft::get()) },
        Library { name: "cudart", purpose: "programs that are built by nvcc", found: cudart },
    ]
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The folders where libraries of CUDA's toolkit may be: the loader's, the toolkit's own, and those of Python's packages.
pub fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("LD_LIBRARY_PATH").map(|paths| env::split_paths(&paths).collect()).unwrap_or_default();
    folders.extend(loader_folders(Path::new("/etc/ld.so.conf.d")));
    folders.extend(
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"].map(PathBuf::from),
    );
    let homes = ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let is_toolkit = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"));
    for toolkit in homes.chain(subfolders(Path::new(TOOLKITS)).into_iter().filter(is_toolkit)) {
        folders.extend(["lib64", "lib"].map(|name| toolkit.join(name)));
    }
    for packages in package_folders() {
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

/// The newest file of a library in some folders, by the version in its name.
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

/// The version that a file's name ends with, that of what it links to if it is a link: "12.8.93", or only "12".
pub fn version_of(name: &str, path: &Path) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let prefix = format!("{name}.so.");
    let of = |path: &Path| Some(path.file_name()?.to_string_lossy().strip_prefix(&prefix)?.to_owned());
    of(&whole).or_else(|| of(path)).unwrap_or_else(|| "unknown".to_owned())
}

/// The numbers of a version, to compare it by.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_is_found_by_its_name() {
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
    fn versions_are_numbers() {
        assert!(numbers("12.8.93") > numbers("9.0.1"));
        assert!(numbers("unknown").is_empty());
        assert_eq!(cuda_version(12080), "12.8");
    }
}
