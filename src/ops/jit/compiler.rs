//! The compiler for a device's kernels, and its target architecture.

use super::host_compiler::{self, HostCompiler};
use crate::{
    driver::{
        Image, Kind,
        nvrtc::{self, Nvrtc, Request},
    },
    error::{Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
};

/// An NVIDIA GPU architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Architecture {
    /// Its name for compilers: `sm_90`, `compute_75`.
    pub name: String,
    /// Whether it is a real architecture, for which cubins exist.
    pub real: bool,
}

/// A compiler and its target.
pub enum Compiler {
    /// NVRTC for a GPU.
    Cuda(&'static Nvrtc, Architecture),
    /// The machine's C++ compiler for the host device, and its option that defines `__CUDA_ARCH__`.
    Host(&'static HostCompiler, String),
}

/// Selects the target for a device of a compiler that supports the architectures `known`: the device's architecture, or
/// else PTX for the newest one that is older than the device.
pub fn architecture(known: &[i32], major: i32, minor: i32) -> Result<Architecture> {
    let requested = major * 10 + minor;
    match known.iter().rev().find(|number| **number <= requested) {
        Some(number) if *number == requested => Ok(Architecture { name: format!("sm_{requested}"), real: true }),
        Some(number) => Ok(Architecture { name: format!("compute_{number}"), real: false }),
        None => Err(Error::new(
            Status::NOT_SUPPORTED,
            format!("the NVRTC found compiles for no device as old as this one, of compute capability {major}.{minor}"),
        )),
    }
}

impl Compiler {
    /// Returns the compiler for a device.
    pub fn for_device(runtime: &Runtime, device: &Device) -> Result<Compiler> {
        let properties = device.properties(&runtime.driver)?;
        match runtime.driver.kind() {
            Kind::Host => {
                let capability = properties.major * 10 + properties.minor;
                Ok(Compiler::Host(host_compiler::get()?, host_compiler::architecture_option(capability)))
            }
            Kind::Cuda => {
                let nvrtc = nvrtc::get()?;
                Ok(Compiler::Cuda(nvrtc, architecture(nvrtc.archs(), properties.major, properties.minor)?))
            }
        }
    }

    /// Returns the name of the target.
    pub fn target(&self) -> &str {
        match self {
            Compiler::Cuda(_, architecture) => &architecture.name,
            Compiler::Host(..) => "host",
        }
    }

    /// Returns a string that distinguishes its kernels from those of other compilers.
    pub fn identity(&self) -> String {
        match self {
            Compiler::Cuda(nvrtc, _) => {
                let (major, minor) = nvrtc.version();
                format!("nvrtc {major}.{minor} {}", self.options().join(" "))
            }
            Compiler::Host(compiler, option) => format!("{} {option}", compiler.identity()),
        }
    }

    fn options(&self) -> Vec<String> {
        let target = format!("--gpu-architecture={}", self.target());
        // The user's function has no execution space specifier such as `__device__`.
        vec![target, "--std=c++17".to_owned(), "-default-device".to_owned(), "-w".to_owned()]
    }

    /// Compiles a jiterated kernel.
    pub fn compile(&self, source: &str) -> Result<Image> {
        match self {
            Compiler::Cuda(nvrtc, architecture) => {
                let options = self.options();
                let request =
                    Request { source, name: "kernel.cu", options: &options, real: architecture.real, entry: None };
                Ok(nvrtc.compile(&request)?.image)
            }
            Compiler::Host(compiler, option) => compiler.compile(source, std::slice::from_ref(option)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_architecture_or_an_older_one() {
        let known = [75, 80, 86, 90, 100];
        let name = |major, minor| architecture(&known, major, minor).map(|found| (found.name, found.real));
        assert_eq!(name(9, 0).unwrap(), ("sm_90".to_owned(), true));
        assert_eq!(name(8, 9).unwrap(), ("compute_86".to_owned(), false));
        assert_eq!(name(12, 0).unwrap(), ("compute_100".to_owned(), false));
        assert_eq!(name(7, 0).unwrap_err().status(), Status::NOT_SUPPORTED);
    }
}
