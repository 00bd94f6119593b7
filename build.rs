//! Gives the shared library its soname, keeps it loaded once it is, and compresses the texts that it holds.

use lzma_rust2::{LzmaOptions, LzmaWriter};
use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

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
    compress_texts()?;
    compress_headers()
}

/// Where texts are, and the endings of their names.
const TEXTS: [(&str, &[&str]); 3] =
    [("kernels", &["ptx"]), ("kernels/jit", &["h"]), ("src/memory/snapshot/page", &["html", "css", "js"])];

/// Writes `name.ptx` to `name.ptx.lzma` in the build's folder, and so on.
fn compress_texts() -> io::Result<()> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for (texts, endings) in TEXTS {
        println!("cargo:rerun-if-changed={texts}");
        for entry in fs::read_dir(texts)? {
            let path = entry?.path();
            let ending = path.extension().unwrap_or_default().to_string_lossy();
            if endings.contains(&&*ending) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                fs::write(folder.join(name + ".lzma"), compress(&fs::read(&path)?)?)?;
            }
        }
    }
    Ok(())
}

/// Compresses a text. The dictionary, of at least 4 KiB, is as large as the text: the kernels for two element types are alike, and
/// far apart.
fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(9);
    options.dict_size = u32::try_from(text.len()).unwrap_or(u32::MAX).max(4096);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(text.len() as u64))?;
    writer.write_all(text)?;
    writer.finish()
}

/// The headers with which the host device compiles kernels.
const HEADERS: &str = "kernels/host";

/// Writes the files of `kernels/host` to `host_headers.lzma`: for each its path and its text, both with a zero at the end.
fn compress_headers() -> io::Result<()> {
    let mut paths = Vec::new();
    find_files(Path::new(HEADERS), &mut paths)?;
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let name = path.strip_prefix(HEADERS).unwrap_or(&path).to_string_lossy().into_owned();
        all.extend([name.as_bytes(), &fs::read(&path)?].iter().flat_map(|part| [part, &b"\0"[..]].concat()));
    }
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("host_headers.lzma"), compress(&all)?)
}

fn find_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
