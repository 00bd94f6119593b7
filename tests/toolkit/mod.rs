//! The CUDA toolkit of tools/requirements.txt, which is installed if it is missing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the path of a file of the toolkit.
pub fn file(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join("tools/python/nvidia/cu13").join(name);
    if !path.is_file() {
        let root = env!("CARGO_MANIFEST_DIR");
        let status =
            Command::new("tools/bootstrap.sh").arg("python").current_dir(root).env("CARGO_TARGET_DIR", target).status();
        assert!(status.unwrap().success());
    }
    path
}
