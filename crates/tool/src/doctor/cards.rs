//! Checks of the GPUs' configuration, from NVML.

use super::{
    super::{libraries, topology},
    Finding, Severity,
};
use nvml_wrapper::{Device as Card, bitmasks::device::ThrottleReasons, enum_wrappers::device::ComputeMode};
use plinth::internal::runtime::properties;
use plinth_driver::Driver;

/// Returns the findings; none without NVML, which [`libraries`](super::libraries) reports.
pub fn check(driver: &Driver) -> Vec<Finding> {
    let Ok(nvml) = libraries::nvml() else { return Vec::new() };
    let mut findings = Vec::new();
    for ordinal in 0..driver.device_count().unwrap_or(0) {
        let properties = driver.device(ordinal).ok().and_then(|device| properties::read(driver, device).ok());
        if let Some(card) = properties.and_then(|properties| topology::card(&nvml, &properties)) {
            findings.extend(check_card(&format!("Device {ordinal}"), &card));
        }
    }
    // GPUs in MIG mode without instances do not appear as CUDA devices.
    for index in 0..nvml.device_count().unwrap_or(0) {
        let Ok(card) = nvml.device_by_index(index) else { continue };
        let parted = card.mig_mode().is_ok_and(|mode| mode.current == 1);
        let parts = card.mig_device_count().unwrap_or(0);
        let any = (0..parts).any(|part| card.mig_device_by_index(part).is_ok());
        if parted && !any {
            findings.push(Finding::new(
                Severity::Warning,
                "MIG",
                format!("GPU {index} is in MIG mode but has no instances, so it is not a CUDA device"),
                "Create instances (nvidia-smi mig -cgi ... -C), or turn MIG off (nvidia-smi -mig 0)",
            ));
        }
    }
    findings
}

fn check_card(name: &str, card: &Card<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if card.mig_is_mig_device_handle().unwrap_or(false) {
        findings.push(Finding {
            severity: Severity::Note,
            about: "MIG",
            says: format!("{name} is a MIG instance: it has no peers, and only some telemetry"),
            advice: None,
        });
        return findings;
    }
    match card.compute_mode() {
        Ok(ComputeMode::Prohibited) => findings.push(Finding::new(
            Severity::Problem,
            "card",
            format!("{name} is in compute mode Prohibited, so no process can use it"),
            "Run nvidia-smi -c 0 as root",
        )),
        Ok(ComputeMode::ExclusiveThread | ComputeMode::ExclusiveProcess) => findings.push(Finding::new(
            Severity::Note,
            "card",
            format!("{name} is in an exclusive compute mode: one process can use it at a time"),
            "Run nvidia-smi -c 0 as root if several processes are to use it",
        )),
        _ => {}
    }
    if !card.is_in_persistent_mode().unwrap_or(true) {
        findings.push(Finding::new(
            Severity::Note,
            "card",
            format!(
                "{name} has persistence mode off: the first program after a pause waits seconds for initialization"
            ),
            "Start nvidia-persistenced, or run nvidia-smi -pm 1 as root",
        ));
    }
    if card.are_pages_pending_retired().unwrap_or(false) {
        findings.push(Finding::new(
            Severity::Warning,
            "card",
            format!("{name} has memory pages with errors, which are retired at its next reset"),
            "Reset the GPU when no process uses it; if errors recur, have it replaced",
        ));
    }
    let hot = ThrottleReasons::SW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    if card.current_throttle_reasons().is_ok_and(|reasons| reasons.intersects(hot)) {
        findings.push(Finding::new(
            Severity::Warning,
            "card",
            format!("{name} is throttled by heat or by lack of power"),
            "Check the GPU's cooling and power supply; plinth top shows the reason",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(
            "card",
            format!("{name} has persistence mode on, is not throttled, and has no pages to retire"),
        ));
    }
    findings
}
