//! The variables that the library reads, and those of others that change what it finds.

use std::collections::BTreeMap;

/// What plinth reads, and what it is for.
pub const KNOWN: [(&str, &str); 30] = [
    ("PLINTH_ALLOC_CONF", "settings of the allocator"),
    ("PLINTH_COMMUNICATOR_ENGINE", "what carries communicators out: auto, nccl, local, shared"),
    ("PLINTH_COMMUNICATOR_NCCL_FROM", "bytes from which NCCL takes collectives over"),
    ("PLINTH_COMM_CONF", "settings of collectives"),
    ("PLINTH_CUBLAS_LIBRARY", "the file of cuBLAS"),
    ("PLINTH_CUDA_LIBRARY", "the file of libcuda"),
    ("PLINTH_CUFFT_LIBRARY", "the file of cuFFT"),
    ("PLINTH_CUSOLVER_LIBRARY", "the file of cuSOLVER"),
    ("PLINTH_CXX", "the compiler of the host device's kernels"),
    ("PLINTH_DEVICE", "the kind of device: cuda, host, auto"),
    ("PLINTH_FAULT_INJECTION", "1: tests can make driver calls fail"),
    ("PLINTH_GROUP_TUNING", "settings of collectives between processes"),
    ("PLINTH_HOST_COSTS", "the host device's prices: count, spin"),
    ("PLINTH_HOST_DEVICES", "how many host devices there are"),
    ("PLINTH_HOST_MEMORY", "memory of each host device"),
    ("PLINTH_HOST_MODEL", "whose geometry host devices have"),
    ("PLINTH_HOST_PEERS", "whether host devices are peers: all, none"),
    ("PLINTH_IPC", "how memory is shared between processes"),
    ("PLINTH_KERNEL_CACHE_PATH", "the folder of kept kernels"),
    ("PLINTH_MEMORY_DEBUG", "1: the allocator looks for wrong use of its memory"),
    ("PLINTH_NCCL_LIBRARY", "the file of NCCL"),
    ("PLINTH_NO_CUDA_MEMORY_CACHING", "1: memory straight from the driver"),
    ("PLINTH_NVML_LIBRARY", "the file of NVML"),
    ("PLINTH_NVRTC_LIBRARY", "the file of NVRTC"),
    ("PLINTH_RENDEZVOUS_DIR", "the folder where processes meet"),
    ("PLINTH_SANITIZER", "the stream sanitizer: off, collect, warn, error"),
    ("PLINTH_SANITIZER_LOG", "where its reports go: stderr, or a file"),
    ("PLINTH_TEST_ROLE", "set by plinth's own tests"),
    ("PLINTH_USE_KERNEL_CACHE", "0: no kernels are kept on disk"),
    ("PLINTH_USE_PYTORCH_ALLOC_CONF", "1: PyTorch's settings are the allocator's, too"),
];

/// What others read before plinth can.
const OTHERS: [&str; 8] = [
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
];

/// Those of the environment that matter, by name.
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

/// What a variable is for; `None` for one that plinth does not know, though it has its prefix.
pub fn purpose(name: &str) -> Option<&'static str> {
    match KNOWN.iter().find(|(known, _)| *known == name) {
        Some((_, purpose)) => Some(purpose),
        None if name.starts_with("PLINTH_") => None,
        None if name.starts_with("NCCL_") => Some("NCCL's"),
        None if name.starts_with("NVIDIA_") => Some("the container toolkit's"),
        None if name.starts_with("LD_") => Some("where the system looks for libraries"),
        None if name.starts_with("PYTORCH_") => Some("PyTorch's"),
        None => Some("the driver's"),
    }
}

/// The known name that is nearest to a wrong one, if any is near.
pub fn meant(wrong: &str) -> Option<&'static str> {
    let (distance, name) = KNOWN.iter().map(|(known, _)| (distance(wrong, known), *known)).min()?;
    (distance <= 3).then_some(name)
}

/// How many letters one has to change, leave out or put in to make one text the other.
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
    fn a_slip_of_the_pen_is_recognised() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(meant("PLINTH_DEVISE"), Some("PLINTH_DEVICE"));
        assert_eq!(meant("PLINTH_HOST_DEVICE"), Some("PLINTH_HOST_DEVICES"));
        assert_eq!(meant("PLINTH_SOMETHING_ELSE"), None);
    }

    /// The names in quotes in the library's sources.
    fn read_by(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("bin") {
                read_by(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let quoted = text.split('"').filter(|text| text.starts_with("PLINTH_"));
                let is_name = |text: &&str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                let statuses = |text: &&str| *text != "PLINTH_OK" && !text.starts_with("PLINTH_ERROR");
                names.extend(quoted.filter(is_name).filter(statuses).map(str::to_owned));
            }
        }
    }

    #[test]
    fn all_that_the_library_reads_is_known() {
        let mut read = BTreeSet::new();
        read_by(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut read);
        let unknown: Vec<_> = read.iter().filter(|name| purpose(name).is_none()).collect();
        assert!(read.contains("PLINTH_DEVICE") && unknown.is_empty(), "{unknown:?}");
        let gone: Vec<_> = KNOWN.iter().filter(|(name, _)| !read.contains(*name)).collect();
        assert!(gone.is_empty(), "nobody reads {gone:?}");
    }

    #[test]
    fn only_what_matters_is_told() {
        let some = [("HOME", "/"), ("PLINTH_X", "1"), ("NCCL_DEBUG", "INFO"), ("CUDA_VISIBLE_DEVICES", "0")];
        let told = of(some.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(told.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PLINTH_X"]);
        assert_eq!(purpose("PLINTH_X"), None);
        assert_eq!(purpose("NCCL_DEBUG"), Some("NCCL's"));
    }
}
