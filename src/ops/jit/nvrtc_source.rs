//! Sources in CUDA C++ that the program provides: their compilation with NVRTC, and the cache on disk.

use super::{
    cache::{Cache, file_name},
    compiler::{Architecture, architecture},
    digest::{Digest, sha256},
    headers,
};
use crate::{
    driver::{
        Image,
        nvrtc::{self, Nvrtc, Request},
    },
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device},
    status::Status,
};
use std::path::PathBuf;

/// A source in CUDA C++.
#[derive(Debug)]
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// The kernel's name, with its template arguments if it is a template: `scale<float>`.
    pub name: &'a str,
    /// `90`, `90a`, `sm_90`, or `compute_90` for PTX; `None` for the device's compute capability.
    pub capability: Option<&'a str>,
    /// Search path of headers.
    pub include_dirs: &'a [String],
    /// Additional options of the compiler.
    pub options: &'a [String],
}

/// The options for debug information, or their beginnings.
const DEBUG_OPTIONS: [&str; 4] = ["-G", "--device-debug", "-lineinfo", "--generate-line-info"];

/// A compiled source.
#[derive(Debug)]
pub struct Compiled {
    /// PTX or a cubin.
    pub image: Image,
    /// The kernel's name in the image.
    pub lowered: String,
    /// Whether the image is from the cache.
    pub is_cached: bool,
}

/// Parses a compute capability.
pub fn parse_capability(capability: &str) -> Result<Architecture> {
    let (real, number) = match (capability.strip_prefix("compute_"), capability.strip_prefix("sm_")) {
        (Some(number), _) => (false, number),
        (None, Some(number)) => (true, number),
        (None, None) => (true, capability),
    };
    let digits = number.trim_end_matches(['a', 'f']);
    if digits.len() < 2 || number.len() > digits.len() + 1 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{capability:?} is no compute capability; they read like 90, 90a or compute_90"),
        ));
    }
    Ok(Architecture { name: format!("{}{number}", if real { "sm_" } else { "compute_" }), real })
}

/// Compiles a source with NVRTC and returns the image and the kernel's lowered name. Needs a device only if the source
/// has no compute capability.
pub fn compile_image(source: &Source) -> Result<(Image, String)> {
    let architecture = match source.capability {
        Some(capability) => parse_capability(capability)?,
        None => {
            let runtime = runtime::ready()?;
            source.architecture(runtime, runtime.current_device()?)?
        }
    };
    let compiled = source.compile(&architecture, true)?;
    Ok((compiled.image, compiled.lowered))
}

impl Source<'_> {
    /// Returns the architecture to compile for: that of the source, or that of the device.
    pub fn architecture(&self, runtime: &Runtime, device: &Device) -> Result<Architecture> {
        if let Some(capability) = self.capability {
            return parse_capability(capability);
        }
        let properties = device.properties(&runtime.driver)?;
        architecture(nvrtc::get()?.archs(), properties.major, properties.minor)
    }

    /// Returns the image from the cache; compiles the source if the cache has none, or must not be used, and stores it.
    pub fn compile(&self, architecture: &Architecture, use_cached: bool) -> Result<Compiled> {
        let nvrtc = nvrtc::get()?;
        let options = self.all_options(nvrtc, architecture)?;
        let key = || self.key(nvrtc, architecture, &options);
        compile_cached(self.name, &architecture.name, use_cached, key, || {
            let request = Request {
                source: self.text,
                name: "kernel.cu",
                options: &options,
                real: architecture.real,
                entry: Some(self.name),
            };
            let compiled = nvrtc.compile(&request);
            let compiled = compiled.context(|| format!("compiling {} for {}", self.name, architecture.name))?;
            Ok((compiled.image, compiled.lowered))
        })
    }

    /// Returns the options of the compiler.
    fn all_options(&self, nvrtc: &Nvrtc, architecture: &Architecture) -> Result<Vec<String>> {
        let selects_architecture = |option: &&String| {
            ["-arch", "--gpu-architecture"]
                .iter()
                .any(|known| option.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        };
        if let Some(option) = self.options.iter().find(selects_architecture) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("{option} is not for the options; the compute capability says what is compiled for"),
            ));
        }
        // The host device's compiler knows no execution spaces, so functions and variables need none here either.
        let mut options = vec![format!("--gpu-architecture={}", architecture.name), "-default-device".to_owned()];
        options.extend(self.include_dirs.iter().map(|folder| format!("--include-path={folder}")));
        // CUDA's headers come after the program's folders, if they are installed.
        options.extend(nvrtc.headers().iter().map(|folder| format!("--include-path={}", folder.display())));
        options.extend(self.options.iter().cloned());
        Ok(options)
    }

    /// Returns the key of everything that the image depends on; `None` if the headers cannot be known.
    fn key(&self, nvrtc: &Nvrtc, architecture: &Architecture, options: &[String]) -> Option<Digest> {
        let folders: Vec<PathBuf> = self.include_dirs.iter().map(PathBuf::from).chain(nvrtc.headers()).collect();
        let headers = headers::digest(self.text, &folders, self.options)?;
        let (major, minor) = nvrtc.version();
        let version = format!("kernel of nvrtc {major}.{minor}");
        // Debug information names the working directory.
        let debugs = |option: &String| DEBUG_OPTIONS.iter().any(|known| option.starts_with(known));
        let working_dir = match options.iter().any(debugs) {
            true => std::env::current_dir().ok()?.display().to_string(),
            false => String::new(),
        };
        let texts = [version.as_str(), &architecture.name, self.name, &working_dir, self.text];
        Some(digest(&headers, texts.into_iter().chain(options.iter().map(String::as_str))))
    }
}

/// Returns the digest of other digests and of texts.
pub fn digest<'a>(digests: &[u8], texts: impl Iterator<Item = &'a str>) -> Digest {
    let mut bytes = digests.to_vec();
    for text in texts {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    sha256(&bytes)
}

/// Takes a kernel for a target from the cache, if `use_cached`; otherwise compiles it and stores it. `key` returns the
/// digest of everything that the image depends on, `None` if that cannot be known; `compile` the image and the lowered
/// name.
pub fn compile_cached(
    name: &str,
    target: &str,
    use_cached: bool,
    key: impl Fn() -> Option<Digest>,
    compile: impl FnOnce() -> Result<(Image, String)>,
) -> Result<Compiled> {
    let disk = Cache::get()?;
    let key = || if disk.is_disabled() { None } else { key() };
    let before = key();
    let file = |key: &Digest| file_name(name, target, key);
    if use_cached
        && let Some(key) = before
        && let Some(cached) = disk.read(&file(&key), &key).and_then(decode)
    {
        return Ok(cached);
    }
    let (image, lowered) = compile()?;
    // A header may have changed while the compiler read it.
    if let Some(key) = before.filter(|before| key().as_ref() == Some(before)) {
        // Ignore an error: without a cache file the next call only compiles again.
        let _ = disk.write(&file(&key), &key, &encode(&lowered, image.bytes()));
    }
    Ok(Compiled { image, lowered, is_cached: false })
}

/// Returns the content of a cache file: the length of the lowered name, the name, the image.
fn encode(lowered: &str, image: &[u8]) -> Vec<u8> {
    [&(lowered.len() as u32).to_le_bytes(), lowered.as_bytes(), image].concat()
}

/// Returns the kernel of a cache file whose checksum is right.
fn decode(content: Vec<u8>) -> Option<Compiled> {
    let (length, rest) = content.split_first_chunk::<4>()?;
    let (lowered, image) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let lowered = String::from_utf8(lowered.to_vec()).ok()?;
    // SAFETY: the checksum shows that these are the bytes that NVRTC once made of this source.
    #[allow(unsafe_code)]
    let image = unsafe { Image::new(image.to_vec()) };
    Some(Compiled { image, lowered, is_cached: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_parsed() {
        for (text, name, real) in [
            ("90", "sm_90", true),
            ("90a", "sm_90a", true),
            ("sm_120f", "sm_120f", true),
            ("compute_75", "compute_75", false),
        ] {
            let found = parse_capability(text).unwrap();
            assert_eq!((found.name.as_str(), found.real), (name, real));
        }
        for text in ["", "9", "a", "90ab", "ninety", "sm_", "compute_x", "9 0"] {
            assert_eq!(parse_capability(text).unwrap_err().status(), Status::INVALID_VALUE, "{text}");
        }
    }

    #[test]
    fn cached_kernels_have_their_names() {
        let found = decode(encode("_Z3addPf", b"image\0")).unwrap();
        assert_eq!((found.lowered.as_str(), found.image.bytes(), found.is_cached), ("_Z3addPf", &b"image\0"[..], true));
        assert!(decode(vec![1, 0]).is_none());
        assert!(decode(vec![9, 0, 0, 0, b'x']).is_none());
    }
}
