//! Checks of the libraries beside the driver: too new for it, too old, or missing.

use super::{
    super::libraries::{self, cuda_version, numbers, version_of},
    Finding, Severity,
};
use plinth_driver::{Driver, nccl};
use std::path::PathBuf;

/// The first NCCL version in which plinth can disable NVLink multicast.
const NVLS_CONTROL: (i32, i32) = (2, 32);

/// Returns the findings.
pub fn check(driver: &Driver) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders = libraries::folders();
    if let Ok(version) = driver.version() {
        for name in ["libcudart", "libnvrtc"] {
            findings.extend(toolkit(name, version, libraries::newest(name, &folders)));
        }
    }
    findings.push(match libraries::nvml() {
        Ok(nvml) => Finding::fine("NVML", format!("NVML {}", nvml.sys_nvml_version().unwrap_or_default())),
        Err(reason) => Finding::new(
            Severity::Warning,
            "NVML",
            format!("NVML cannot be used, so telemetry of GPUs is unavailable: {reason}"),
            "Install NVML with the driver; in a container include utility in NVIDIA_DRIVER_CAPABILITIES",
        ),
    });
    findings.push(nccl());
    findings
}

/// Checks a toolkit library against the driver.
fn toolkit(name: &'static str, driver: i32, newest: Option<PathBuf>) -> Option<Finding> {
    let path = newest?;
    let version = version_of(name, &path);
    let required = numbers(&version);
    let driver_numbers = [driver as u32 / 1000, driver as u32 % 1000 / 10];
    let known = cuda_version(driver);
    let major = *required.first()?;
    Some(if major > driver_numbers[0] {
        Finding::new(
            Severity::Warning,
            "toolkit",
            format!(
                "{} is of CUDA {version}, but the driver supports at most {known}: programs that use it do not start",
                path.display()
            ),
            "Install a newer driver, or cuda-compat on data centre GPUs; or use programs for an older CUDA",
        )
    } else if required.get(..2).is_some_and(|required| *required > driver_numbers[..]) && name == "libnvrtc" {
        Finding::new(
            Severity::Note,
            "toolkit",
            format!(
                "{} is of CUDA {version}, newer than the driver's {known}: PTX compiled by it may not load",
                path.display()
            ),
            "Compile for the GPU's own architecture (--gpu-architecture=sm_NN), or install a newer driver",
        )
    } else {
        Finding::fine("toolkit", format!("{name} {version} is compatible with the driver's CUDA {known}"))
    })
}

fn nccl() -> Finding {
    match nccl::get() {
        Err(error) => Finding::new(
            Severity::Note,
            "NCCL",
            format!(
                "NCCL cannot be used, so collectives on one machine run without it: {}",
                libraries::why_not("NCCL", &error)
            ),
            "Install NCCL for several machines and large messages (Python: nvidia-nccl-cu13; Debian: libnccl2), or set \
                         PLINTH_NCCL_LIBRARY to the file",
        ),
        Ok(nccl) => {
            let version = nccl.version();
            let (major, minor, _) = version.parts();
            if (major, minor) < NVLS_CONTROL && std::env::var("NCCL_NVLS_ENABLE").as_deref() != Ok("0") {
                Finding::new(
                    Severity::Note,
                    "NCCL",
                    format!("NCCL {version} may use NVLink multicast, which plinth can disable only from 2.32 on"),
                    "Set NCCL_NVLS_ENABLE=0 if NVLink multicast must not be used",
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
    fn a_toolkit_newer_than_the_driver_is_reported() {
        let check = |name, driver, file: &str| toolkit(name, driver, Some(PathBuf::from(file))).unwrap();
        assert_eq!(check("libcudart", 12080, "/x/libcudart.so.13").severity, Severity::Warning);
        assert_eq!(check("libnvrtc", 12080, "/x/libnvrtc.so.12.9.41").severity, Severity::Note);
        assert_eq!(check("libcudart", 12080, "/x/libcudart.so.12.9.41").severity, Severity::Fine);
        assert_eq!(check("libnvrtc", 13000, "/x/libnvrtc.so.12").severity, Severity::Fine);
        assert_eq!(toolkit("libnvrtc", 13000, None), None);
    }
}
