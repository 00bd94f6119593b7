//! Access of one device to the memory of another.

use crate::{
    driver::{Code, Context as Peer, Driver, DriverResult, codes},
    error::{Context, Result},
    memory::{self, reach},
    runtime,
};

/// Whether `device` can be given access to the memory of `peer`; false for a device and itself, as CUDA answers.
pub fn can_access(device: i32, peer: i32) -> Result<bool> {
    let runtime = runtime::loaded()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    Ok(runtime.driver.can_access_peer(device.native, peer.native)?)
}

/// Gives `device` access to the memory of `peer`. Nothing happens where it has that already, or is its own peer.
pub fn enable(device: i32, peer: i32) -> Result<()> {
    change(device, peer, Driver::enable_peer_access, codes::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        .and_then(|()| memory::add_peer(device, peer))
        .context(|| format!("giving device {device} access to device {peer}"))
}

/// Takes back what [`enable`] gave. Nothing happens where there is nothing to take back.
pub fn disable(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    reach::forget(runtime.device(device)?.ordinal, runtime.device(peer)?.ordinal);
    memory::remove_peer(device, peer)
        .and_then(|()| change(device, peer, Driver::disable_peer_access, codes::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED))
        .context(|| format!("taking device {device}'s access to device {peer}"))
}

/// Makes `call` in the context of `device` with that of `peer`; `nothing_to_do` is its code for having been made before.
fn change(device: i32, peer: i32, call: fn(&Driver, Peer) -> DriverResult<()>, nothing_to_do: Code) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Ok(());
    }
    let peer = peer.context(&runtime.driver)?;
    device.with_context(&runtime.driver, |driver| match call(driver, peer) {
        Err(failure) if failure.code == nothing_to_do => Ok(()),
        answer => Ok(answer?),
    })
}
