//! The table of NCCL's calls.
//!
//! Each line lists one call, with the NCCL version that introduced it and whether plinth requires it. The types are
//! those of nccl.h, declared by hand: a communicator is a pointer, an enumeration an integer.

#![allow(missing_docs)]

use crate::calls::calls;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// The return type of an NCCL call: 0, or another `ncclResult_t`.
pub type Code = c_int;

pub const SUCCESS: Code = 0;
pub const UNHANDLED_CUDA_ERROR: Code = 1;
pub const SYSTEM_ERROR: Code = 2;
pub const INVALID_ARGUMENT: Code = 4;
pub const INVALID_USAGE: Code = 5;
pub const REMOTE_ERROR: Code = 6;
pub const IN_PROGRESS: Code = 7;
pub const TIMEOUT: Code = 8;
/// Not an NCCL code: the stub of a missing call returns it.
pub const ABSENT: Code = -1;

/// NCCL's data types.
pub mod data_type {
    use super::c_int;
    pub const INT8: c_int = 0;
    pub const UINT8: c_int = 1;
    pub const INT32: c_int = 2;
    pub const UINT32: c_int = 3;
    pub const INT64: c_int = 4;
    pub const UINT64: c_int = 5;
    pub const FLOAT16: c_int = 6;
    pub const FLOAT32: c_int = 7;
    pub const FLOAT64: c_int = 8;
    pub const BFLOAT16: c_int = 9;
    pub const FLOAT8_E4M3: c_int = 10;
    pub const FLOAT8_E5M2: c_int = 11;
}

/// NCCL's reductions.
pub mod reduction {
    use super::c_int;
    pub const SUM: c_int = 0;
    pub const PRODUCT: c_int = 1;
    pub const MAXIMUM: c_int = 2;
    pub const MINIMUM: c_int = 3;
    pub const AVERAGE: c_int = 4;
}

/// The color of a rank that joins no part of a split.
pub const SPLIT_NO_COLOR: c_int = -1;

/// The only flags of a revocation.
pub const REVOKE_DEFAULT: c_int = 0;
/// A shrink leaves the communicator as it is.
pub const SHRINK_DEFAULT: c_int = 0;
/// A shrink ends the communicator's work first.
pub const SHRINK_ABORT: c_int = 1;

/// An `ncclComm_t`: a pointer that only NCCL dereferences.
pub type RawComm = *mut c_void;
/// A stream: the CUDA runtime and the driver use the same handles.
pub type RawStream = *mut c_void;

/// NCCL's `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    pub internal: [u8; 128],
}

/// NCCL's `ncclConfig_t` of version 2.32; the older versions are prefixes of it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Config {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub cga_cluster_size: c_int,
    pub min_ctas: c_int,
    pub max_ctas: c_int,
    pub net_name: *const c_char,
    pub split_share: c_int,
    pub traffic_class: c_int,
    pub comm_name: *const c_char,
    pub collnet_enable: c_int,
    pub cta_policy: c_int,
    pub shrink_share: c_int,
    pub nvls_ctas: c_int,
    pub channels_per_net_peer: c_int,
    pub nvlink_centric_sched: c_int,
    pub graph_usage_mode: c_int,
    pub num_rma_ctx: c_int,
    pub max_p2p_peers: c_int,
    pub graph_stream_ordering: c_int,
    pub launch_order_implicit: c_int,
    pub num_rma_sig: c_int,
    pub rma_eager_init: c_int,
    pub host_cft_mode: c_int,
    pub nvls_host_mode: c_int,
}

calls! {
    Code, ABSENT;

    // The library.
    required 20000 ncclGetVersion(version: *mut c_int);

    // Communicators.
    required 20000 ncclGetUniqueId(id: *mut UniqueId);
    required 21400 ncclCommInitRankConfig(
        comm: *mut RawComm, ranks: c_int, id: UniqueId, rank: c_int, config: *mut Config);
    required 21400 ncclCommFinalize(comm: RawComm);
    required 20400 ncclCommAbort(comm: RawComm);
    optional 22807 ncclCommRevoke(comm: RawComm, flags: c_int);
    required 20000 ncclCommDestroy(comm: RawComm);
    required 20400 ncclCommGetAsyncError(comm: RawComm, error: *mut Code);
    required 20000 ncclCommCount(comm: RawComm, ranks: *mut c_int);
    required 20000 ncclCommUserRank(comm: RawComm, rank: *mut c_int);
    optional 21800 ncclCommSplit(
        comm: RawComm, color: c_int, key: c_int, part: *mut RawComm, config: *mut Config);
    optional 22700 ncclCommShrink(
        comm: RawComm, excluded: *mut c_int, count: c_int, part: *mut RawComm, config: *mut Config, flags: c_int);

    // Registered memory.
    optional 21900 ncclCommRegister(comm: RawComm, memory: *mut c_void, bytes: usize, buffer: *mut *mut c_void);
    optional 21900 ncclCommDeregister(comm: RawComm, buffer: *mut c_void);
    optional 22700 ncclCommWindowRegister(
        comm: RawComm, memory: *mut c_void, bytes: usize, window: *mut *mut c_void, flags: c_int);
    optional 22700 ncclCommWindowDeregister(comm: RawComm, window: *mut c_void);

    // Sleep.
    optional 22907 ncclCommSuspend(comm: RawComm, flags: c_int);
    optional 22907 ncclCommResume(comm: RawComm);
    optional 22907 ncclCommMemStats(comm: RawComm, which: c_int, bytes: *mut u64);

    // Groups.
    required 20000 ncclGroupStart();
    required 20000 ncclGroupEnd();

    // Collectives and point-to-point operations.
    required 20000 ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, op: c_int, comm: RawComm, stream: RawStream);
    required 20000 ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, op: c_int, root: c_int, comm: RawComm,
        stream: RawStream);
    required 20202 ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, root: c_int, comm: RawComm,
        stream: RawStream);
    required 20000 ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, comm: RawComm, stream: RawStream);
    required 20000 ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, op: c_int, comm: RawComm, stream: RawStream);
    required 20700 ncclSend(
        from: *const c_void, count: usize, kind: c_int, peer: c_int, comm: RawComm, stream: RawStream);
    required 20700 ncclRecv(
        to: *mut c_void, count: usize, kind: c_int, peer: c_int, comm: RawComm, stream: RawStream);
    optional 22800 ncclAlltoAll(
        from: *const c_void, to: *mut c_void, count: usize, kind: c_int, comm: RawComm, stream: RawStream);
}

/// The flag of a window whose memory has the same offset at all ranks, so that kernels read the memory of the others.
pub const WINDOW_SYMMETRIC: c_int = 1;

/// The flag of a suspension that releases memory.
pub const SUSPEND_MEMORY: c_int = 1;
/// The statistic of the memory that a suspension releases.
pub const STATISTIC_SUSPENDED_MEMORY: c_int = 0;

/// The type of `ncclGetErrorString`, which like `ncclGetLastError` returns a string and is therefore not in the table.
pub type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;
/// The type of `ncclGetLastError`, available since 2.13.
pub type LastError = unsafe extern "C" fn(RawComm) -> *const c_char;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn config_layout_matches_c() {
        // The layout in the header of 2.32.3 on a 64-bit machine.
        let offsets = [
            (offset_of!(Config, blocking), 16),
            (offset_of!(Config, net_name), 32),
            (offset_of!(Config, split_share), 40),
            (offset_of!(Config, comm_name), 48),
            (offset_of!(Config, collnet_enable), 56),
            (offset_of!(Config, nvls_host_mode), 112),
            (size_of::<Config>(), 120),
        ];
        for (actual, expected) in offsets {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn missing_call_returns_absent() {
        // SAFETY: no pointer is supplied.
        let (table, missing) = unsafe { Table::from_symbols(|_| None) };
        assert_eq!(missing, Some(Call::ncclGetVersion));
        // SAFETY: the stub ignores its arguments.
        assert_eq!(unsafe { (table.ncclGroupStart)() }, ABSENT);
    }
}
