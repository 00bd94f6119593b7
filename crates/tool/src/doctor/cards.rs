//! The cards: how they are set up, as NVML tells.

use super::{
    super::{libraries, topology},
    Finding, Weight,
};
use nvml_wrapper::{Device as Card, bitmasks::device::ThrottleReasons, enum_wrappers::device::ComputeMode};
use plinth::{driver::Driver, runtime::properties};

/// What there is to say. Without NVML that is nothing, which [`libraries`](super::libraries) tells.
pub fn check(driver: &Driver) -> Vec<Finding> {
    let Ok(nvml) = libraries::nvml() else { return Vec::new() };
    let mut findings = Vec::new();
    for ordinal in 0..driver.device_count().unwrap_or(0) {
        let properties = driver.device(ordinal).ok().and_then(|device| properties::read(driver, device).ok());
        if let Some(card) = properties.and_then(|properties| topology::card(&nvml, &properties)) {
            findings.extend(check_card(&format!("Device {ordinal}"), &card));
        }
    }
    // Cards that are cut into parts, of which there are none, are no devices of CUDA's.
    for index in 0..nvml.device_count().unwrap_or(0) {
        let Ok(card) = nvml.device_by_index(index) else { continue };
        let parted = card.mig_mode().is_ok_and(|mode| mode.current == 1);
        let parts = card.mig_device_count().unwrap_or(0);
        let any = (0..parts).any(|part| card.mig_device_by_index(part).is_ok());
        if parted && !any {
            findings.push(Finding::new(
                Weight::Warning,
                "MIG",
                format!("Card {index} is to be cut into parts (MIG), but has none, and so is no device"),
                "Make parts (nvidia-smi mig -cgi ... -C), or turn MIG off (nvidia-smi -mig 0)",
            ));
        }
    }
    findings
}

fn check_card(name: &str, card: &Card<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if card.mig_is_mig_device_handle().unwrap_or(false) {
        findings.push(Finding {
            weight: Weight::Note,
            about: "MIG",
            says: format!("{name} is a part of a card: it has no peers, and not all readings"),
            advice: None,
        });
        return findings;
    }
    match card.compute_mode() {
        Ok(ComputeMode::Prohibited) => findings.push(Finding::new(
            Weight::Problem,
            "card",
            format!("{name} is set to let nobody compute"),
            "nvidia-smi -c 0, as root",
        )),
        Ok(ComputeMode::ExclusiveThread | ComputeMode::ExclusiveProcess) => findings.push(Finding::new(
            Weight::Note,
            "card",
            format!("{name} takes one process at a time"),
            "nvidia-smi -c 0, as root, if several are to use it",
        )),
        _ => {}
    }
    if !card.is_in_persistent_mode().unwrap_or(true) {
        findings.push(Finding::new(
            Weight::Note,
            "card",
            format!("{name} is not kept ready: the first program after a pause waits seconds for it"),
            "Start nvidia-persistenced, or nvidia-smi -pm 1, as root",
        ));
    }
    if card.are_pages_pending_retired().unwrap_or(false) {
        findings.push(Finding::new(
            Weight::Warning,
            "card",
            format!("{name} has memory with errors, which it leaves out from its next start on"),
            "Start it anew when nobody uses it; if it goes on, have the card exchanged",
        ));
    }
    let hot = ThrottleReasons::SW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    if card.current_throttle_reasons().is_ok_and(|reasons| reasons.intersects(hot)) {
        findings.push(Finding::new(
            Weight::Warning,
            "card",
            format!("{name} is slowed down, being too warm or short of power"),
            "See to its cooling and power; plinth top tells which it is",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(
            "card",
            format!("{name} is kept ready, is not slowed down, and has no memory to leave out"),
        ));
    }
    findings
}
