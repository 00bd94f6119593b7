//! The libraries that are used beside the driver: too new for it, too old, or missing.

use super::{
    super::libraries::{self, cuda_version, numbers, version_of},
    Finding, Weight,
};
use plinth::driver::{Driver, nccl};
use std::path::PathBuf;

/// The first NCCL whose NVLink multicast plinth can turn off.
const HAS_SWITCH: (i32, i32) = (2, 32);

/// What there is to say.
pub fn check(driver: Option<&Driver>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(driver) = driver {
        let folders = libraries::folders();
        if let Ok(version) = driver.version() {
            for name in ["libcudart", "libnvrtc"] {
                findings.extend(toolkit(name, version, libraries::newest(name, &folders)));
            }
        }
        findings.push(match libraries::nvml() {
            Ok(nvml) => Finding::fine("NVML", format!("NVML {}", nvml.sys_nvml_version().unwrap_or_default())),
            Err(reason) => Finding::new(
                Weight::Warning,
                "NVML",
                format!("NVML cannot be used, so there are no readings of GPUs: {reason}"),
                "Install it with the driver; in a container let NVIDIA_DRIVER_CAPABILITIES contain utility",
            ),
        });
    }
    findings.push(nccl());
    findings
}

/// A library of the toolkit beside the driver.
fn toolkit(name: &'static str, driver: i32, newest: Option<PathBuf>) -> Option<Finding> {
    let path = newest?;
    let version = version_of(name, &path);
    let wanted = numbers(&version);
    let driver_numbers = [driver as u32 / 1000, driver as u32 % 1000 / 10];
    let known = cuda_version(driver);
    let major = *wanted.first()?;
    Some(if major > driver_numbers[0] {
        Finding::new(
            Weight::Warning,
            "toolkit",
            format!(
                "{} is of CUDA {version}, and the driver knows CUDA up to {known}: programs that use it do not start",
                path.display()
            ),
            "Install a newer driver, or on data centre cards cuda-compat; or programs for an older CUDA",
        )
    } else if wanted.get(..2).is_some_and(|wanted| *wanted > driver_numbers[..]) && name == "libnvrtc" {
        Finding::new(
            Weight::Note,
            "toolkit",
            format!(
                "{} is of CUDA {version}, newer than the driver's {known}: the PTX that it makes may not load",
                path.display()
            ),
            "Let it compile for the card itself (--gpu-architecture=sm_NN), or install a newer driver",
        )
    } else {
        Finding::fine("toolkit", format!("{name} {version} suits the driver's CUDA {known}"))
    })
}

fn nccl() -> Finding {
    match nccl::get() {
        Err(error) => Finding::new(
            Weight::Note,
            "NCCL",
            format!(
                "Collectives on one machine do without NCCL, which cannot be used here: {}",
                libraries::why_not("NCCL", &error)
            ),
            "Install it (Python: nvidia-nccl-cu13; Debian: libnccl2), or name its file in PLINTH_NCCL_LIBRARY, for \
             several machines and large messages",
        ),
        Ok(nccl) => {
            let version = nccl.version();
            let (major, minor, _) = version.parts();
            if (major, minor) < HAS_SWITCH && std::env::var("NCCL_NVLS_ENABLE").as_deref() != Ok("0") {
                Finding::new(
                    Weight::Note,
                    "NCCL",
                    format!("NCCL {version} may use NVLink multicast, which plinth can turn off from 2.32 on only"),
                    "Set NCCL_NVLS_ENABLE=0 where it must not be used",
                )
            } else {
                Finding::fine("NCCL", format!("NCCL {version}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolkit_newer_than_the_driver_is_told() {
        let told = |name, driver, file: &str| toolkit(name, driver, Some(PathBuf::from(file))).unwrap();
        assert_eq!(told("libcudart", 12080, "/x/libcudart.so.13").weight, Weight::Warning);
        assert_eq!(told("libnvrtc", 12080, "/x/libnvrtc.so.12.9.41").weight, Weight::Note);
        assert_eq!(told("libcudart", 12080, "/x/libcudart.so.12.9.41").weight, Weight::Fine);
        assert_eq!(told("libnvrtc", 13000, "/x/libnvrtc.so.12").weight, Weight::Fine);
        assert_eq!(toolkit("libnvrtc", 13000, None), None);
    }
}
