//! The connections between devices: peer access, PCI Express paths and NVLinks.

use super::{failure::Result, libraries};
use nvml_wrapper::{Device as Card, Nvml, enum_wrappers::device::TopologyLevel};
use plinth::internal::{
    memory::peer,
    runtime::{Runtime, properties::Properties},
};
use plinth_driver::Kind;

/// The most NVLinks of a GPU.
const LINKS: u32 = 18;

/// The connections of a device.
pub struct Connections {
    /// Whether it can access the memory of each device; `None` for itself.
    pub peers: Vec<Option<bool>>,
    /// The path to each device, if NVML reports it.
    pub paths: Vec<Option<&'static str>>,
    /// The number of its active NVLinks, if NVML reports it.
    pub links: Option<u32>,
}

/// Finds a GPU in NVML by its UUID or bus ID, because NVML's device numbers differ from CUDA's.
pub fn card<'nvml>(nvml: &'nvml Nvml, properties: &Properties) -> Option<Card<'nvml>> {
    let uuid = uuid_text(&properties.uuid);
    let named = ["GPU-", "MIG-"].iter().find_map(|prefix| nvml.device_by_uuid(format!("{prefix}{uuid}")).ok());
    named.or_else(|| nvml.device_by_pci_bus_id(properties.pci_bus_id_text.as_str()).ok())
}

/// Formats a UUID in its usual notation.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-")
}

fn describe(level: TopologyLevel) -> &'static str {
    match level {
        TopologyLevel::Internal => "board",
        TopologyLevel::Single => "switch",
        TopologyLevel::Multiple => "switches",
        TopologyLevel::HostBridge => "bridge",
        TopologyLevel::Node => "node",
        TopologyLevel::System => "system",
    }
}

fn active_links(card: &Card<'_>) -> Option<u32> {
    let states: Vec<bool> = (0..LINKS).filter_map(|link| card.link_wrapper_for(link).is_active().ok()).collect();
    (!states.is_empty()).then(|| states.iter().filter(|active| **active).count() as u32)
}

/// Returns the connections of all devices.
pub fn connections(runtime: &Runtime) -> Result<Vec<Connections>> {
    let nvml = (runtime.driver.kind() == Kind::Cuda).then(|| libraries::nvml().ok()).flatten();
    let mut cards = Vec::new();
    for device in runtime.devices() {
        let properties = device.properties(&runtime.driver)?;
        cards.push(nvml.as_ref().and_then(|nvml| card(nvml, properties)));
    }
    let count = runtime.devices().len();
    let mut all = Vec::with_capacity(count);
    for one in 0..count {
        let mut connections = Connections { peers: Vec::new(), paths: Vec::new(), links: None };
        connections.links = cards[one].as_ref().and_then(active_links);
        for other in 0..count {
            let apart = one != other;
            connections.peers.push(if apart { Some(peer::can_access(one as i32, other as i32)?) } else { None });
            // `topology_common_ancestor` consumes the other device, so a second handle is opened.
            let others = nvml.as_ref().zip(cards[other].as_ref());
            let others = others.and_then(|(nvml, other)| nvml.device_by_uuid(other.uuid().ok()?).ok());
            let level =
                cards[one].as_ref().zip(others).and_then(|(card, other)| card.topology_common_ancestor(other).ok());
            connections.paths.push(level.filter(|_| apart).map(describe));
        }
        all.push(connections);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_with_dashes() {
        let uuid = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(uuid_text(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
