//! Checks of the driver: whether it is installed and starts, and if not, why.

use super::{
    super::{Kind, libraries::cuda_version},
    Finding, Machine, Severity,
};
use plinth_driver::{Code, Driver, codes, cuda, error::Error, status::Status};
use std::io;

const ABOUT: &str = "driver";

/// Returns the findings, and the driver if it starts and has a device.
pub fn check(kind: Kind, machine: &Machine) -> (Vec<Finding>, Option<Driver>) {
    if kind == Kind::Host {
        let says = "GPUs were not checked: the host device, on the CPU, was chosen";
        return (vec![Finding::fine(ABOUT, says)], None);
    }
    let mut findings = Vec::new();
    let driver = match start(machine) {
        Ok((driver, devices)) => {
            let version = driver.version().map_or_else(|_| "unknown".to_owned(), cuda_version);
            let release = machine.module().unwrap_or_else(|| "of unknown release".to_owned());
            let plural = if devices == 1 { "" } else { "s" };
            findings
                .push(Finding::fine(ABOUT, format!("Driver {release}, CUDA {version}, with {devices} device{plural}")));
            Some(driver)
        }
        Err(mut finding) => {
            if kind == Kind::Auto {
                // Programs fall back to the host device.
                finding.severity = Severity::Note;
            }
            findings.push(finding);
            None
        }
    };
    findings.extend(nodes(machine, driver.is_some()));
    (findings, driver)
}

fn start(machine: &Machine) -> Result<(Driver, i32), Finding> {
    let driver = cuda::load(false).map_err(|error| not_loaded(&error, machine))?;
    driver.init().map_err(|failure| not_started(failure.code, Error::from(failure).message(), machine))?;
    let count = driver.device_count();
    match count.map_err(|failure| not_started(failure.code, Error::from(failure).message(), machine))? {
        0 => Err(not_started(codes::CUDA_ERROR_NO_DEVICE, "it reports no device for this process", machine)),
        count => Ok((driver, count)),
    }
}

fn problem(says: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding::new(Severity::Problem, ABOUT, says, advice)
}

/// Returns how to make GPUs available to a container.
fn gpu_advice(container: &str) -> &'static str {
    match container {
        "Kubernetes" => {
            "Request GPUs in the container's resource limits (nvidia.com/gpu: 1), on nodes with NVIDIA's device \
                         plugin"
        }
        "Podman" => "Start the container with --device nvidia.com/gpu=all, with NVIDIA's container toolkit on the host",
        _ => "Start the container with --gpus all, with NVIDIA's container toolkit on the host",
    }
}

/// Explains why libcuda cannot be loaded.
fn not_loaded(error: &Error, machine: &Machine) -> Finding {
    if machine.variable("PLINTH_CUDA_LIBRARY").is_some_and(|path| !path.is_empty()) {
        return problem(error.message(), "Unset PLINTH_CUDA_LIBRARY, or set it to the libcuda.so.1 of a driver");
    }
    if error.status() == Status::DRIVER_TOO_OLD {
        return problem(error.message(), "Install a newer driver");
    }
    let visible = machine.variable("NVIDIA_VISIBLE_DEVICES").filter(|list| !matches!(*list, "" | "void" | "none"));
    match (machine.container(), visible, machine.module(), machine.cards()) {
        (Some(container), None, ..) => problem(
            format!(
                "This {container} container has no GPU: there is no libcuda, and NVIDIA_VISIBLE_DEVICES is not set"
            ),
            gpu_advice(container),
        ),
        (Some(container), Some(_), ..) => problem(
            format!("This {container} container has GPUs, but no libcuda"),
            "Set NVIDIA_DRIVER_CAPABILITIES to compute or all, and install NVIDIA's container toolkit on the host",
        ),
        (None, _, Some(release), _) => problem(
            format!("NVIDIA's kernel module {release} is loaded, but the loader does not find libcuda.so.1"),
            format!(
                "Install the driver's libraries of the same release, {release} (Debian: libcuda1; Ubuntu: \
                                 libnvidia-compute)"
            ),
        ),
        (None, _, None, 0) => problem(
            "This machine has no NVIDIA GPU and no driver",
            "Set PLINTH_DEVICE to host or auto to use the built-in host device, on the CPU",
        ),
        (None, _, None, cards) => problem(
            format!("This machine has NVIDIA GPUs ({cards}), but no driver"),
            "Install NVIDIA's driver, and load its module (modprobe nvidia)",
        ),
    }
}

/// Explains why an installed driver does not start, or reports no device.
fn not_started(code: Code, message: &str, machine: &Machine) -> Finding {
    let says = format!("The driver is installed, but does not work: {message}");
    match code {
        codes::CUDA_ERROR_STUB_LIBRARY => problem(
            "The loader finds the toolkit's stub of libcuda, which is only for linking",
            "Remove the toolkit's stubs folder from LD_LIBRARY_PATH",
        ),
        codes::CUDA_ERROR_NO_DEVICE => no_device(machine),
        codes::CUDA_ERROR_SYSTEM_NOT_READY => {
            problem(says, "Start nvidia-fabricmanager of the driver's release: GPUs with NVSwitch need it")
        }
        codes::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            problem(says, "Reboot, or reload the kernel module: it and libcuda have different releases")
        }
        codes::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => problem(
            says,
            "Remove the forward compatibility package (cuda-compat) from LD_LIBRARY_PATH: it works only on data \
                         centre GPUs",
        ),
        codes::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            problem(says, "End the process that uses the GPU exclusively, or run nvidia-smi -c 0")
        }
        codes::CUDA_ERROR_OPERATING_SYSTEM | codes::CUDA_ERROR_UNKNOWN => problem(
            says,
            "Load the module nvidia-uvm (modprobe nvidia-uvm; nvidia-modprobe -u creates its file), and check dmesg \
                         for NVRM",
        ),
        _ => problem(says, "Check nvidia-smi, and dmesg for NVRM"),
    }
}

fn no_device(machine: &Machine) -> Finding {
    let hidden = machine.variable("CUDA_VISIBLE_DEVICES");
    match (hidden, machine.container(), machine.cards()) {
        (Some(list), ..) => problem(
            format!("The driver works, but CUDA_VISIBLE_DEVICES={list:?} excludes all its devices"),
            "Unset CUDA_VISIBLE_DEVICES, or list existing devices, by numbers from 0 or by UUIDs; the list ends at its first \
                         invalid name",
        ),
        (None, Some(container), _) => problem(
            format!("The driver is installed, but this {container} container has no GPU"),
            gpu_advice(container),
        ),
        (None, None, 0) => {
            problem("The driver is installed, but there is no NVIDIA GPU", "Check the PCI bus: lspci -d 10de:")
        }
        (None, None, cards) => problem(
            format!("The driver is installed, but can use none of the GPUs ({cards})"),
            "Check dmesg for NVRM: the driver may not support the GPU, or the GPU may have failed",
        ),
    }
}

/// Checks the device files.
fn nodes(machine: &Machine, works: bool) -> Vec<Finding> {
    let nodes = machine.nodes();
    let severity = if works { Severity::Warning } else { Severity::Problem };
    let mut findings = Vec::new();
    let refused =
        |opened: &io::Result<()>| opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let closed: Vec<&str> = nodes.iter().filter(|(_, opened)| refused(opened)).map(|(name, _)| name.as_str()).collect();
    if !closed.is_empty() {
        findings.push(Finding::new(
            severity,
            "/dev/nvidia",
            format!("This user has no permission to open {}", closed.join(", ")),
            "Join the group that owns the files (often video or render), or give them mode 666",
        ));
    }
    let has = |path: &str| nodes.iter().any(|(name, _)| name == path);
    if !nodes.is_empty() && !has("/dev/nvidia-uvm") {
        findings.push(Finding::new(
            severity,
            "/dev/nvidia",
            "/dev/nvidia-uvm is missing; CUDA needs it to start",
            "Run nvidia-modprobe -u -c 0, or add the file to the container",
        ));
    }
    if findings.is_empty() && !nodes.is_empty() {
        findings.push(Finding::fine("/dev/nvidia", format!("All {} device files can be opened", nodes.len())));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::machine::Files, *};

    fn missing() -> Error {
        Error::new(Status::NO_DEVICE, "no NVIDIA driver was found")
    }

    fn says(finding: &Finding, words: &[&str]) {
        let all = format!("{} {}", finding.says, finding.advice.as_deref().unwrap_or_default());
        for word in words {
            assert!(all.contains(word), "{word} is not in: {all}");
        }
        assert_eq!(finding.severity, Severity::Problem);
    }

    #[test]
    fn a_missing_driver_is_explained_by_the_environment() {
        let files = Files::new("driver");
        let bare = Machine::at(&files.0, &[]);
        says(&not_loaded(&missing(), &bare), &["no NVIDIA GPU", "PLINTH_DEVICE to host"]);
        files.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        files.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
        says(&not_loaded(&missing(), &bare), &["has NVIDIA GPUs (1)", "Install NVIDIA's driver"]);
        files.write("sys/module/nvidia/version", "580.159.04\n");
        says(&not_loaded(&missing(), &bare), &["580.159.04", "libcuda1"]);
        files.write(".dockerenv", "");
        says(&not_loaded(&missing(), &bare), &["Docker container has no GPU", "--gpus all"]);
        let visible = Machine::at(&files.0, &[("NVIDIA_VISIBLE_DEVICES", "all")]);
        says(&not_loaded(&missing(), &visible), &["but no libcuda", "NVIDIA_DRIVER_CAPABILITIES"]);
        let void = Machine::at(&files.0, &[("NVIDIA_VISIBLE_DEVICES", "void")]);
        says(&not_loaded(&missing(), &void), &["has no GPU"]);
        let old = Error::new(Status::DRIVER_TOO_OLD, "the CUDA driver has no cuX");
        says(&not_loaded(&old, &bare), &["cuX", "newer driver"]);
        let named = Machine::at(&files.0, &[("PLINTH_CUDA_LIBRARY", "/nowhere")]);
        says(&not_loaded(&missing(), &named), &["PLINTH_CUDA_LIBRARY"]);
    }

    #[test]
    fn a_driver_that_does_not_start_is_explained_by_its_code() {
        let files = Files::new("codes");
        let bare = Machine::at(&files.0, &[]);
        says(&not_started(codes::CUDA_ERROR_SYSTEM_NOT_READY, "m", &bare), &["nvidia-fabricmanager"]);
        says(&not_started(codes::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "m", &bare), &["different releases"]);
        says(&not_started(codes::CUDA_ERROR_UNKNOWN, "m", &bare), &["nvidia-uvm"]);
        says(&not_started(12345, "a message", &bare), &["a message", "nvidia-smi"]);
        says(&not_started(codes::CUDA_ERROR_NO_DEVICE, "", &bare), &["no NVIDIA GPU", "lspci"]);
        let hidden = Machine::at(&files.0, &[("CUDA_VISIBLE_DEVICES", "7")]);
        says(&not_started(codes::CUDA_ERROR_NO_DEVICE, "", &hidden), &["CUDA_VISIBLE_DEVICES=\"7\""]);
    }

    #[test]
    fn missing_device_files_are_reported() {
        let files = Files::new("nodes");
        let machine = Machine::at(&files.0, &[]);
        assert_eq!(nodes(&machine, false), []);
        files.write("dev/nvidia0", "");
        files.write("dev/nvidiactl", "");
        let found = nodes(&machine, false);
        assert_eq!(found.len(), 1);
        says(&found[0], &["nvidia-uvm is missing"]);
        files.write("dev/nvidia-uvm", "");
        let found = nodes(&machine, true);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Fine));
    }
}
