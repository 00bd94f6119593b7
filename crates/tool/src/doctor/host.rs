//! Checks of the host device: what programs get from it, and what is missing for it.

use super::{Finding, Severity, trial};
use plinth::internal::{
    ops::jit::host_compiler,
    runtime::{self, DeviceKind},
};
use plinth_host::config::Config;
use std::thread;

const ABOUT: &str = "host device";

/// Returns the findings for programs that use the host device.
pub fn check() -> Vec<Finding> {
    // An invalid configuration is found with the variables.
    let Ok(config) = Config::from_environment() else { return Vec::new() };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let devices = config.visible.len();
    let mut findings = vec![Finding::fine(
        ABOUT,
        format!(
            "Programs use the host device: {devices} device{} like {}, simulated on {processors} processor{}",
            plural(devices),
            config.model.name,
            plural(processors),
        ),
    )];
    if let Err(error) = host_compiler::get() {
        findings.push(Finding::new(
            Severity::Note,
            ABOUT,
            format!("Kernels that are compiled at run time cannot be used: {}", error.message()),
            "Install a C++ compiler (Debian: g++), or set PLINTH_CXX to one",
        ));
    }
    findings
}

/// Tries the host device on a machine where GPUs cannot be used. Returns whether it works.
pub fn works_instead() -> bool {
    runtime::choose_kind(DeviceKind::Host).is_ok()
        && trial::check().iter().all(|finding| finding.severity == Severity::Fine)
}
