//! Finds the block around an address that others than this process may use.

use super::{backend, ipc::import, located_block::LocatedBlock};
use crate::{
    error::{Error, Result},
    runtime::Runtime,
    status::Status,
};

/// Finds the live block of the caching allocator that contains an address, and marks it so that its free takes into account
/// who uses it. Fails for memory of other processes and of other allocators.
pub fn find(runtime: &Runtime, address: u64) -> Result<LocatedBlock> {
    if import::is_imported(address) {
        let what = format!("{address:#x} is memory of another process; only that process can share it");
        return Err(Error::new(Status::IPC_REEXPORT, what));
    }
    if backend::around(address).is_some() {
        let what = format!("{address:#x} is memory of another backend; only the native backend can share memory");
        return Err(Error::new(Status::IPC_NOT_SHAREABLE, what));
    }
    LocatedBlock::find(runtime, address)
}
