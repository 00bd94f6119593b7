//! Access of other devices to mapped memory. The driver's peer access covers only its own allocations; each mapping
//! needs explicit access.

use super::{arena::Arena, device_memory, ipc::import, mapped::Backing};
use crate::{
    base::log,
    driver::{Driver, DriverResult},
    error::Result,
    runtime::{self, device::Device},
};

/// Gives `device` read and write access to present and future mappings on `peer`.
pub fn add_peer(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Ok(());
    }
    // A device that is listed has access once no change is in progress.
    let _changing = peer.memory().changing_peers.lock();
    if peer.memory().peers.lock().contains(&device.native) {
        return Ok(());
    }
    // Add the device for future mappings first, so that no mapping made meanwhile is missed.
    peer.memory().peers.lock().push(device.native);
    let outcome = allow(&runtime.driver, device, peer);
    if outcome.is_err() {
        peer.memory().peers.lock().retain(|native| *native != device.native);
    }
    outcome
}

/// Gives a device access to the present mappings on a peer.
fn allow(driver: &Driver, device: &Device, peer: &Device) -> Result<()> {
    for_each_mapping(driver, peer, |driver, address, bytes| driver.memory_allow(address, bytes, &[device.native]))
}

/// Gives a device access to the memory of another device that contains an address, if that is mapped memory, access is
/// missing and peer access is possible. Returns whether it, or another thread meanwhile, did.
pub fn ensure_mapping_access(device: u32, address: u64) -> bool {
    let Ok(runtime) = runtime::ready() else { return false };
    let (Ok(Some(owner)), Ok(accessor)) = (device_memory::owner(runtime, address), runtime.device(device as i32))
    else {
        return false;
    };
    let Ok(peer) = runtime.device(owner as i32) else { return false };
    let has_access =
        || peer.memory().changing_peers.try_lock().is_some() && peer.memory().peers.lock().contains(&accessor.native);
    if owner == device || has_access() || (peer.memory().count_arenas() == 0 && !import::is_imported(address)) {
        return false;
    }
    if !runtime.driver.can_access_peer(accessor.native, peer.native).unwrap_or(false) {
        log::warning(|| {
            format!("device {device} has no access to the memory of device {owner}: copy through the host instead")
        });
        return false;
    }
    let added = add_peer(device as i32, owner as i32);
    let succeeded = added.is_ok();
    log::ignore(added, "enabling the access of a device to the memory of another");
    succeeded
}

/// Gives every device access to the present and future mappings of all peers that it can access.
pub fn add_all_peers() -> Result<()> {
    let runtime = runtime::ready()?;
    for accessor in runtime.devices() {
        for peer in runtime.devices() {
            if accessor.ordinal != peer.ordinal && runtime.driver.can_access_peer(accessor.native, peer.native)? {
                add_peer(accessor.ordinal as i32, peer.ordinal as i32)?;
            }
        }
    }
    Ok(())
}

/// Revokes access that [`add_peer`] gave. Returns whether there was such access.
pub fn remove_peer(device: i32, peer: i32) -> Result<bool> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    let _changing = peer.memory().changing_peers.lock();
    if !peer.memory().peers.lock().contains(&device.native) {
        return Ok(false);
    }
    peer.memory().previous_mappings.lock().remove_unused(&runtime.driver);
    // Remove the device for future mappings first, as above.
    peer.memory().peers.lock().retain(|native| *native != device.native);
    let outcome = for_each_mapping(&runtime.driver, peer, |driver, address, bytes| {
        driver.memory_forbid(address, bytes, &[device.native])
    });
    if outcome.is_err() {
        peer.memory().peers.lock().push(device.native);
        // The device is listed again, so it has access to all mappings.
        log::ignore(allow(&runtime.driver, device, peer), "restoring the access of a device to the memory of another");
    }
    outcome.map(|()| true)
}

/// Calls a function for every mapping of a device. Holding `growth` keeps the arena itself from unmapping any of them
/// meanwhile.
fn for_each_mapping(
    driver: &Driver,
    device: &Device,
    call: impl Fn(&Driver, u64, u64) -> DriverResult<()>,
) -> Result<()> {
    for arena in device.memory().arenas() {
        let _growing = arena.growth.lock();
        for (address, bytes) in mappings(arena) {
            if let Err(failure) = call(driver, address, bytes)
                // If another arena took the handle, the mapping no longer exists, and the failure does not matter.
                && mappings(arena).contains(&(address, bytes))
            {
                return Err(failure.into());
            }
        }
    }
    // Memory of the device that other processes share is mapped here outside of all arenas.
    import::for_each_span(device, |address, bytes| Ok(call(driver, address, bytes)?))
}

fn mappings(arena: &Arena) -> Vec<(u64, u64)> {
    let inner = arena.lock();
    let handles = inner.space.mapped.iter().filter(|(_, mapped)| matches!(mapped.backing, Backing::Handle(_)));
    handles.map(|(address, mapped)| (*address, mapped.bytes)).collect()
}
