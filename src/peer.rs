//! Access of one device to the memory of another.

use crate::{
    driver::codes,
    error::{Context, Result},
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
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Ok(());
    }
    let peer_context = peer.context(&runtime.driver)?;
    device
        .with_context(&runtime.driver, |driver| match driver.enable_peer_access(peer_context) {
            Err(failure) if failure.code == codes::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            answer => Ok(answer?),
        })
        .context(|| format!("giving device {} access to device {}", device.ordinal, peer.ordinal))
}

/// Takes back what [`enable`] gave. Nothing happens where there is nothing to take back.
pub fn disable(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Ok(());
    }
    let peer_context = peer.context(&runtime.driver)?;
    device
        .with_context(&runtime.driver, |driver| match driver.disable_peer_access(peer_context) {
            Err(failure) if failure.code == codes::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED => Ok(()),
            answer => Ok(answer?),
        })
        .context(|| format!("taking device {}'s access to device {}", device.ordinal, peer.ordinal))
}
