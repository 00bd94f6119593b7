//! The beginning and the end of NCCL's communicators.

use super::{
    super::calls::library_call,
    Comm, ID_BYTES, Nccl, OutputCell, Progress,
    table::{self, Call, Config, RawComm, UniqueId},
};
use crate::error::Result;
use std::{
    ffi::{c_int, c_uint},
    ptr,
};

/// NCCL's value of an undefined config field.
const UNDEFINED: c_int = c_int::MIN;
/// The magic number of a config.
const CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// The first NCCL version whose config can disable NVLink multicast.
const HAS_MULTICAST_SWITCH: c_int = 23_200;

/// Creates the config of a new communicator, with NVLink multicast disabled if this NCCL version supports that. An
/// older NCCL gets the config of 2.18, of which still older versions read a prefix.
fn config(version: c_int, blocking: bool) -> Config {
    let whole = version >= HAS_MULTICAST_SWITCH;
    Config {
        size: if whole { size_of::<Config>() } else { std::mem::offset_of!(Config, comm_name) },
        magic: CONFIG_MAGIC,
        version: if whole { HAS_MULTICAST_SWITCH as c_uint } else { 21_800 },
        blocking: blocking.into(),
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
        graph_usage_mode: UNDEFINED,
        num_rma_ctx: UNDEFINED,
        max_p2p_peers: UNDEFINED,
        graph_stream_ordering: UNDEFINED,
        launch_order_implicit: UNDEFINED,
        num_rma_sig: UNDEFINED,
        rma_eager_init: UNDEFINED,
        host_cft_mode: UNDEFINED,
        nvls_host_mode: c_int::MAX,
    }
}

impl Nccl {
    /// Begins the initialization of a communicator on the device of the calling thread's context. Unless `blocking`,
    /// the call may return before the communicator is ready.
    pub fn init_rank(
        &self,
        ranks: u32,
        id: [u8; ID_BYTES],
        rank: u32,
        blocking: bool,
    ) -> Result<(OutputCell, Progress)> {
        self.begin(blocking, |output, config| {
            let (ranks, rank, id) = (ranks as c_int, rank as c_int, UniqueId { internal: id });
            // SAFETY: `begin` guarantees the output and the config.
            unsafe { library_call!(self, ncclCommInitRankConfig(output, ranks, id, rank, config)) }
        })
    }

    /// Begins to make a communicator with a call that gets its location, which stays allocated until NCCL no longer writes to
    /// it, and a live config, which NCCL copies.
    fn begin(
        &self,
        blocking: bool,
        call: impl FnOnce(*mut RawComm, &mut Config) -> Result<Progress>,
    ) -> Result<(OutputCell, Progress)> {
        let cell = OutputCell::new();
        // After an immediate error NCCL does not go on.
        let progress = call(cell.as_output(), &mut config(self.version, blocking));
        let progress = progress.inspect_err(|_| cell.mark_complete())?;
        Ok((cell, progress))
    }

    /// Begins to split a communicator: ranks that pass the same color form a new communicator, ordered by key. A rank
    /// that passes `None` joins none.
    pub fn split(&self, comm: Comm, color: Option<u32>, key: i32, blocking: bool) -> Result<(OutputCell, Progress)> {
        let color = color.map_or(table::SPLIT_NO_COLOR, |color| color as c_int);
        self.begin(blocking, |output, config| {
            // SAFETY: `begin` guarantees the output and the config; the communicator is live.
            unsafe { library_call!(self, ncclCommSplit(comm.raw(), color, key, output, config)) }
        })
    }

    /// Begins to make a communicator of the ranks that are not excluded, in their order. They make the call, and the others
    /// do not. With `aborts`, the communicator's work on the device ends first, and it can only be aborted afterwards.
    pub fn shrink(&self, comm: Comm, excluded: &[u32], aborts: bool, blocking: bool) -> Result<(OutputCell, Progress)> {
        let mut excluded: Vec<c_int> = excluded.iter().map(|rank| *rank as c_int).collect();
        let (list, count) = (excluded.as_mut_ptr(), excluded.len() as c_int);
        let flags = if aborts { table::SHRINK_ABORT } else { table::SHRINK_DEFAULT };
        self.begin(blocking, |output, config| {
            // SAFETY: as in `split`; the list has as many ranks, and NCCL sorts and copies it during the call.
            unsafe { library_call!(self, ncclCommShrink(comm.raw(), list, count, output, config, flags)) }
        })
    }

    /// Begins to end the work of a communicator, if NCCL has the call. It can only shrink afterwards, or be aborted.
    pub fn revoke(&self, comm: Comm) -> Result<Progress> {
        // SAFETY: the communicator is live.
        unsafe { library_call!(self, ncclCommRevoke(comm.raw(), table::REVOKE_DEFAULT)) }
    }

    /// Returns the progress of a communicator's last operation, or its asynchronous error.
    pub fn progress(&self, comm: Comm) -> Result<Progress> {
        let mut state = table::SUCCESS;
        // SAFETY: the communicator is live, and the output is a live local.
        unsafe { library_call!(self, ncclCommGetAsyncError(comm.raw(), &mut state)) }?;
        self.check(Call::ncclCommGetAsyncError, state)
            .map_err(|error| error.context("the communicator failed while it worked"))
    }

    /// Returns the communicator's rank and size.
    pub fn rank_and_size(&self, comm: Comm) -> Result<(u32, u32)> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the communicator is live, and the output is a live local.
        unsafe { library_call!(self, ncclCommUserRank(comm.raw(), &mut rank)) }?;
        // SAFETY: as above.
        unsafe { library_call!(self, ncclCommCount(comm.raw(), &mut ranks)) }?;
        Ok((rank as u32, ranks as u32))
    }

    /// Completes the work of a communicator, whose ranks may wait for each other. It must only be destroyed afterwards, or
    /// aborted.
    pub fn finalize(&self, comm: Comm) -> Result<Progress> {
        // SAFETY: the communicator is live.
        unsafe { library_call!(self, ncclCommFinalize(comm.raw())) }
    }

    /// Destroys a communicator. It must not be used afterwards.
    pub fn destroy(&self, comm: Comm) -> Result<()> {
        // SAFETY: the communicator is live until this call.
        unsafe { library_call!(self, ncclCommDestroy(comm.raw())) }.map(drop)
    }

    /// Aborts a communicator and its running work on the device. It must not be used afterwards.
    pub fn abort(&self, comm: Comm) -> Result<()> {
        // SAFETY: the communicator is live until this call.
        unsafe { library_call!(self, ncclCommAbort(comm.raw())) }.map(drop)
    }
}
