//! placeholder
use super::{Block, Owner, Place};
use crate::{device::Device, error::Result, runtime::Runtime};
pub(super) fn alloc(_place: &Place) -> Result<Option<(u64, Owner)>> {
    Ok(None)
}
pub(super) fn free(_r: &Runtime, _d: &Device, _a: u64, _b: Block) -> Result<()> {
    Ok(())
}
pub(super) fn empty(_r: &Runtime) -> Result<()> {
    Ok(())
}
pub(super) fn held(_d: &Device, _r: &Runtime) -> Option<(u64, u64)> {
    None
}
