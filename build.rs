//! Gives the shared library its soname, keeps it loaded once it is, and compresses the texts that it holds.

use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    // Before 1.0 every minor version may break binaries; from then on only a major one does.
    let soname = if major == "0" { format!("libplinth.so.0.{minor}") } else { format!("libplinth.so.{major}") };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The process holds functions of the library that it cannot be asked to let go: its exit and fork handlers, and
    // the host device's threads.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    compress_texts()
}

/// Where texts are, and the endings of their names.
const TEXTS: [(&str, &[&str]); 3] =
    [("kernels", &["ptx"]), ("kernels/jit", &["h"]), ("src/memory/snapshot/page", &["html", "css", "js"])];

/// Writes `name.ptx` to `name.ptx.z` in the build's folder, as zlib's format has it, and so on.
fn compress_texts() -> io::Result<()> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for (texts, endings) in TEXTS {
        println!("cargo:rerun-if-changed={texts}");
        for entry in fs::read_dir(texts)? {
            let path = entry?.path();
            let ending = path.extension().unwrap_or_default().to_string_lossy();
            if endings.contains(&&*ending) {
                let packed = miniz_oxide::deflate::compress_to_vec_zlib(&fs::read(&path)?, 10);
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                fs::write(folder.join(name + ".z"), packed)?;
            }
        }
    }
    Ok(())
}
