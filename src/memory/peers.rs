//! Access of other devices to memory that is mapped: the driver's switch for peers is about its own allocations, and a
//! mapping has to be told for itself.

use super::{arena::Arena, ipc, mapped::Backing};
use crate::{
    driver::{Driver, DriverResult},
    error::Result,
    runtime::{self, device::Device},
};

/// Lets `device` read and write what is mapped on `peer`, now and later.
pub fn add_peer(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal || peer.memory.peers.lock().contains(&device.native) {
        return Ok(());
    }
    // First for what will be mapped, so that nothing slips through between the two.
    peer.memory.peers.lock().push(device.native);
    let outcome = for_each_mapping(&runtime.driver, peer, |driver, address, bytes| {
        driver.memory_allow(address, bytes, &[device.native])
    });
    if outcome.is_err() {
        peer.memory.peers.lock().retain(|native| *native != device.native);
    }
    outcome
}

/// Lets a device reach the memory of another that an address is in, if that is mapped memory which it could not reach yet
/// and can. Whether it did.
pub fn let_reach(device: u32, address: u64) -> bool {
    let Ok(runtime) = runtime::ready() else { return false };
    let (Ok(Some(owner)), Ok(reader)) = (super::owner(runtime, address), runtime.device(device as i32)) else {
        return false;
    };
    let Ok(peer) = runtime.device(owner as i32) else { return false };
    owner != device
        && !peer.memory.peers.lock().contains(&reader.native)
        && (peer.memory.count_arenas() > 0 || ipc::is_imported(address))
        && runtime.driver.can_access_peer(reader.native, peer.native).unwrap_or(false)
        && add_peer(device as i32, owner as i32).is_ok()
}

/// Lets every device reach every other's memory that it can, now and later.
pub fn add_all_peers() -> Result<()> {
    let runtime = runtime::ready()?;
    for reader in runtime.devices() {
        for peer in runtime.devices() {
            if reader.ordinal != peer.ordinal && runtime.driver.can_access_peer(reader.native, peer.native)? {
                add_peer(reader.ordinal as i32, peer.ordinal as i32)?;
            }
        }
    }
    Ok(())
}

/// Takes back what [`add_peer`] gave.
pub fn remove_peer(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if !peer.memory.peers.lock().contains(&device.native) {
        return Ok(());
    }
    // First for what will be mapped, as above.
    peer.memory.peers.lock().retain(|native| *native != device.native);
    let outcome = for_each_mapping(&runtime.driver, peer, |driver, address, bytes| {
        driver.memory_forbid(address, bytes, &[device.native])
    });
    if outcome.is_err() {
        peer.memory.peers.lock().push(device.native);
    }
    outcome
}

/// Makes a call for every mapping of a device, none of which goes meanwhile by its own arena's doing.
fn for_each_mapping(
    driver: &Driver,
    device: &Device,
    call: impl Fn(&Driver, u64, u64) -> DriverResult<()>,
) -> Result<()> {
    for arena in device.memory.arenas() {
        let _growing = arena.growth.lock();
        for (address, bytes) in mappings(arena) {
            if let Err(failure) = call(driver, address, bytes)
                // Another arena may have taken the handle: then there is nothing to be told any more.
                && mappings(arena).contains(&(address, bytes))
            {
                return Err(failure.into());
            }
        }
    }
    // Memory of the device's that other processes share is mapped here by nobody's arena.
    ipc::for_each_span(device, |address, bytes| Ok(call(driver, address, bytes)?))
}

fn mappings(arena: &Arena) -> Vec<(u64, u64)> {
    let inner = arena.lock();
    let handles = inner.space.mapped.iter().filter(|(_, mapped)| matches!(mapped.backing, Backing::Handle(_)));
    handles.map(|(address, mapped)| (*address, mapped.bytes)).collect()
}
