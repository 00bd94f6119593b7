//! Peer access: access of one device to the memory of another.

use crate::{
    base::log,
    driver::{Code, Context as Peer, Driver, DriverResult, codes},
    error::{Context, Result},
    memory::{self, reach},
    runtime,
};

/// Returns whether `device` can access the memory of `peer`. `false` if both are the same device, as in CUDA.
pub fn can_access(device: i32, peer: i32) -> Result<bool> {
    let runtime = runtime::loaded()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    Ok(runtime.driver.can_access_peer(device.native, peer.native)?)
}

/// Enables access of `device` to the memory of `peer`. Does nothing if it is enabled already or both are the same
/// device.
pub fn enable(device: i32, peer: i32) -> Result<()> {
    change(device, peer, Driver::enable_peer_access, codes::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        .and_then(|()| memory::add_peer(device, peer))
        .context(|| format!("enabling access of device {device} to device {peer}"))
}

/// Disables access that [`enable`] enabled. Does nothing if it is not enabled.
pub fn disable(device: i32, peer: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    reach::clear_access(runtime.device(device)?.ordinal, runtime.device(peer)?.ordinal);
    memory::remove_peer(device, peer)
        .and_then(|removed| {
            let disabled = change(device, peer, Driver::disable_peer_access, codes::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
            if disabled.is_err() && removed {
                log::ignore(memory::add_peer(device, peer), "restoring the access to mapped memory");
            }
            disabled
        })
        .context(|| format!("disabling access of device {device} to device {peer}"))
}

/// Makes `call` in the context of `device` with that of `peer`. Ignores the code `nothing_to_do`, which means that the
/// call was made before.
fn change(device: i32, peer: i32, call: fn(&Driver, Peer) -> DriverResult<()>, nothing_to_do: Code) -> Result<()> {
    let runtime = runtime::ready()?;
    let (device, peer) = (runtime.device(device)?, runtime.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Ok(());
    }
    let peer = peer.context(&runtime.driver)?;
    // A stream may be capturing.
    device.with_context(&runtime.driver, |driver| match driver.with_relaxed_capture(|| call(driver, peer))? {
        Err(failure) if failure.code == nothing_to_do => Ok(()),
        answer => Ok(answer?),
    })
}
