//! The communicators of NCCL behind ranks that are devices of one process, for large operations or for all.

use super::{
    engine::EngineKind,
    in_process_group::InProcessGroup,
    nccl::{self, NcclRank},
    nccl_end,
    operation::Operation,
};
use crate::{driver::nccl::Nccl, error::Result, runtime::Runtime, stream};
use std::sync::Arc;

impl InProcessGroup {
    /// Returns NCCL's communicators if NCCL executes these operations.
    pub(super) fn nccl_for(&self, runtime: &Runtime, operations: &[Operation]) -> Result<Option<&[Arc<NcclRank>]>> {
        if let Some(made) = self.nccl.get()
            && (made.is_none() || self.engine == EngineKind::Nccl)
        {
            return Ok(made.as_deref());
        }
        let large = operations.first().is_some_and(|operation| operation.bytes() >= self.nccl_from);
        if self.engine != EngineKind::Auto || !large || self.devices.len() < 2 {
            return Ok(None);
        }
        if self.nccl.get().is_none() {
            // NCCL allocates while it connects, which a capture forbids.
            for operation in operations {
                if stream::is_validated_capturing(runtime, operation.stream)? {
                    return Ok(None);
                }
            }
        }
        // Without NCCL, the library's kernels execute the operation; the caller did not request NCCL.
        let made = self.nccl.get_or_init(|| nccl::available(runtime).and_then(|nccl| self.connect(runtime, nccl)).ok());
        Ok(made.as_deref())
    }

    /// Creates NCCL's communicators of the devices. Uses NCCL's blocking mode, which is faster: all ranks are in this
    /// process, so none can be missing.
    pub(super) fn connect(&self, runtime: &Runtime, nccl: &'static Nccl) -> Result<Vec<Arc<NcclRank>>> {
        let id = nccl.unique_id()?;
        let size = self.devices.len() as u32;
        let mut ranks = Vec::new();
        let join_all = || {
            for (rank, device) in self.devices.iter().enumerate() {
                ranks.push(NcclRank::join(runtime, nccl, id, (rank as u32, size), *device, true)?);
            }
            Ok(())
        };
        let connected = nccl.group(join_all).and_then(|_| {
            ranks.iter().try_for_each(|rank| rank.wait_until_ready(self.limit, "NCCL connected the devices"))
        });
        if let Err(error) = connected {
            // Report the first error, not one of the abort.
            let _ = nccl_end::abort_together(runtime, ranks.iter().map(|rank| &**rank));
            return Err(error);
        }
        Ok(ranks)
    }
}
