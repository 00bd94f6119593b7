//! The environment variables that the library reads, and others that affect it.

use std::collections::BTreeMap;

/// The variables that plinth and its Python package read, and their purpose.
pub const KNOWN: [(&str, &str); 39] = [
    ("PLINTH_ALLOC_CONF", "settings of the allocator"),
    ("PLINTH_COMMUNICATOR_ENGINE", "the engine of communicators: auto, nccl, local, shared"),
    ("PLINTH_COMMUNICATOR_NCCL_FROM", "bytes from which collectives use NCCL"),
    ("PLINTH_COMM_CONF", "settings of collectives"),
    ("PLINTH_CUBLAS_LIBRARY", "the file of cuBLAS"),
    ("PLINTH_CUDA_LIBRARY", "the file of libcuda"),
    ("PLINTH_CUFFT_LIBRARY", "the file of cuFFT"),
    ("PLINTH_CUSOLVER_LIBRARY", "the file of cuSOLVER"),
    ("PLINTH_CXX", "the compiler for the host device's kernels"),
    ("PLINTH_DEVICE", "the kind of device: cuda, host, auto"),
    ("PLINTH_FAULT_INJECTION", "1: enables injection of driver errors for tests"),
    ("PLINTH_GROUP_TUNING", "settings of collectives between processes"),
    ("PLINTH_HOST_CHECKS", "checks of kernels on the host device: addresses, shared"),
    ("PLINTH_HOST_COSTS", "the host device's cost model: count, spin"),
    ("PLINTH_HOST_DEVICES", "the number of host devices"),
    ("PLINTH_HOST_MEMORY", "the memory of each host device"),
    ("PLINTH_HOST_MEMORY_NAME", "the name by which processes share host devices' memory"),
    ("PLINTH_HOST_MODEL", "the GPU model of host devices"),
    ("PLINTH_HOST_COPIES", "copies of the host device: fast, slow to find missing waits, exclusive to delay mappings"),
    ("PLINTH_HOST_CONTENTS", "new memory of the host device: zero, or arbitrary to find reads of it"),
    ("PLINTH_HOST_FABRIC", "whether host devices grant fabric handles: 1, 0"),
    ("PLINTH_HOST_PEERS", "peer access between host devices: all, none"),
    ("PLINTH_IPC", "the method of sharing memory between processes"),
    ("PLINTH_KERNEL_CACHE_MAX_BYTES", "the limit of the kernel cache in bytes"),
    ("PLINTH_KERNEL_CACHE_PATH", "the folder of the kernel cache"),
    ("PLINTH_LIBRARY", "the file of libplinth.so, for the Python package"),
    ("PLINTH_MEMORY_DEBUG", "checks for invalid use of memory: guard, unmap, fill"),
    ("PLINTH_NCCL_LIBRARY", "the file of NCCL"),
    ("PLINTH_NO_CUDA_MEMORY_CACHING", "1: allocations bypass the cache"),
    ("PLINTH_NVML_BASED_CUDA_CHECK", "1: NVML counts the GPUs; 0: the driver does"),
    ("PLINTH_NVML_LIBRARY", "the file of NVML"),
    ("PLINTH_NVRTC_LIBRARY", "the file of NVRTC"),
    ("PLINTH_RENDEZVOUS_DIR", "the folder for the rendezvous of processes"),
    ("PLINTH_SANITIZER", "the stream sanitizer: off, collect, warn, error"),
    ("PLINTH_SANITIZER_LOG", "the destination of its reports: stderr, or a file"),
    ("PLINTH_TEST_ROLE", "set by plinth's own tests"),
    ("PLINTH_TORCH", "1: PyTorch uses plinth's allocator, with the Python package"),
    ("PLINTH_USE_KERNEL_CACHE", "0: disables the kernel cache on disk"),
    ("PLINTH_USE_PYTORCH_ALLOC_CONF", "1: the allocator also reads PyTorch's settings"),
];

/// Variables that the system, the driver or other libraries read.
const OTHERS: [&str; 14] = [
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_CUDA_SANITIZER",
    "TORCH_LINALG_PREFER_CUSOLVER",
];

/// Returns the relevant variables of the environment, sorted by name.
pub fn set() -> BTreeMap<String, String> {
    of(std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))))
}

fn lossy(text: std::ffi::OsString) -> String {
    text.to_string_lossy().into_owned()
}

fn of(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let matters = |name: &str| name.starts_with("PLINTH_") || name.starts_with("NCCL_") || OTHERS.contains(&name);
    variables.filter(|(name, _)| matters(name)).collect()
}

/// Returns the purpose of a variable; `None` for an unknown one with plinth's prefix.
pub fn purpose(name: &str) -> Option<&'static str> {
    match KNOWN.iter().find(|(known, _)| *known == name) {
        Some((_, purpose)) => Some(purpose),
        None if name.starts_with("PLINTH_") => None,
        None if name.starts_with("NCCL_") => Some("NCCL's"),
        None if name.starts_with("NVIDIA_") => Some("the container toolkit's"),
        None if name.starts_with("LD_") => Some("the loader's search path for libraries"),
        None if name.starts_with("PYTORCH_") || name.starts_with("TORCH_") => Some("PyTorch's"),
        None => Some("the driver's"),
    }
}

/// Returns the known name that is most similar to a wrong one, if any is similar.
pub fn most_similar(wrong: &str) -> Option<&'static str> {
    let (distance, name) = KNOWN.iter().map(|(known, _)| (distance(wrong, known), *known)).min()?;
    (distance <= 3).then_some(name)
}

/// Returns the Levenshtein distance of two texts: the number of letters to change, insert or delete.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let changed = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    #[test]
    fn a_misspelled_name_is_recognised() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(most_similar("PLINTH_DEVISE"), Some("PLINTH_DEVICE"));
        assert_eq!(most_similar("PLINTH_HOST_DEVICE"), Some("PLINTH_HOST_DEVICES"));
        assert_eq!(most_similar("PLINTH_SOMETHING_ELSE"), None);
    }

    /// Collects the quoted names in a source file, or in those of a folder.
    fn read_by(path: &Path, names: &mut BTreeSet<String>) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                read_by(&entry.unwrap().path(), names);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            let text = fs::read_to_string(path).unwrap();
            let quoted = text.split('"').filter(|text| text.starts_with("PLINTH_"));
            let letters = |text: &&str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            let is_name = |text: &&str| letters(text) && !text.ends_with('_');
            let statuses = |text: &&str| *text != "PLINTH_OK" && !text.starts_with("PLINTH_ERROR");
            names.extend(quoted.filter(is_name).filter(statuses).map(str::to_owned));
        }
    }

    #[test]
    fn all_variables_that_the_library_reads_are_known() {
        let mut read = BTreeSet::new();
        let python = ["../../python/plinth", "../../python/_plinth_torch_hook.py"];
        for sources in ["../../src", "../driver/src", "../host/src"].into_iter().chain(python) {
            read_by(&Path::new(env!("CARGO_MANIFEST_DIR")).join(sources), &mut read);
        }
        let unknown: Vec<_> = read.iter().filter(|name| purpose(name).is_none()).collect();
        assert!(read.contains("PLINTH_DEVICE") && unknown.is_empty(), "{unknown:?}");
        let gone: Vec<_> = KNOWN.iter().filter(|(name, _)| !read.contains(*name)).collect();
        assert!(gone.is_empty(), "no code reads {gone:?}");
    }

    #[test]
    fn only_relevant_variables_are_returned() {
        let some = [("HOME", "/"), ("PLINTH_X", "1"), ("NCCL_DEBUG", "INFO"), ("CUDA_VISIBLE_DEVICES", "0")];
        let relevant = of(some.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(relevant.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PLINTH_X"]);
        assert_eq!(purpose("PLINTH_X"), None);
        assert_eq!(purpose("NCCL_DEBUG"), Some("NCCL's"));
    }
}
