//! Which compiler makes kernels for a device, and for which architecture.

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

/// An architecture of NVIDIA's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Architecture {
    /// As compilers name it: `sm_90`, `compute_75`.
    pub name: String,
    /// Whether it is a real one, for which there are cubins.
    pub real: bool,
}

/// A compiler, and what it compiles for.
pub enum Compiler {
    /// NVRTC for a GPU.
    Cuda(&'static Nvrtc, Architecture),
    /// The machine's own for the host device.
    Host(&'static HostCompiler),
}

/// What a compiler that knows some architectures makes for a device: code for the very one, or else PTX for the newest one
/// that the device understands.
pub fn architecture(known: &[i32], major: i32, minor: i32) -> Result<Architecture> {
    let wanted = major * 10 + minor;
    match known.iter().rev().find(|number| **number <= wanted) {
        Some(number) if *number == wanted => Ok(Architecture { name: format!("sm_{wanted}"), real: true }),
        Some(number) => Ok(Architecture { name: format!("compute_{number}"), real: false }),
        None => Err(Error::new(
            Status::NOT_SUPPORTED,
            format!("the NVRTC found compiles for no device as old as this one, of compute capability {major}.{minor}"),
        )),
    }
}

impl Compiler {
    /// The one for a device.
    pub fn of(runtime: &Runtime, device: &Device) -> Result<Compiler> {
        match runtime.driver.kind() {
            Kind::Host => Ok(Compiler::Host(host_compiler::get()?)),
            Kind::Cuda => {
                let nvrtc = nvrtc::get()?;
                let properties = device.properties(&runtime.driver)?;
                Ok(Compiler::Cuda(nvrtc, architecture(nvrtc.archs(), properties.major, properties.minor)?))
            }
        }
    }

    /// What it compiles for, in a word.
    pub fn target(&self) -> &str {
        match self {
            Compiler::Cuda(_, architecture) => &architecture.name,
            Compiler::Host(_) => "host",
        }
    }

    /// What tells its kernels from those of other compilers.
    pub fn identity(&self) -> String {
        match self {
            Compiler::Cuda(nvrtc, _) => {
                let (major, minor) = nvrtc.version();
                format!("nvrtc {major}.{minor} {}", self.options().join(" "))
            }
            Compiler::Host(compiler) => compiler.identity(),
        }
    }

    fn options(&self) -> Vec<String> {
        let target = format!("--gpu-architecture={}", self.target());
        // A user's function has no word for where it runs.
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
            Compiler::Host(compiler) => compiler.compile(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_very_architecture_or_an_older_one() {
        let known = [75, 80, 86, 90, 100];
        let name = |major, minor| architecture(&known, major, minor).map(|found| (found.name, found.real));
        assert_eq!(name(9, 0).unwrap(), ("sm_90".to_owned(), true));
        assert_eq!(name(8, 9).unwrap(), ("compute_86".to_owned(), false));
        assert_eq!(name(12, 0).unwrap(), ("compute_100".to_owned(), false));
        assert_eq!(name(7, 0).unwrap_err().status(), Status::NOT_SUPPORTED);
    }
}
