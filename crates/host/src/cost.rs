//! The costs of driver calls: each call counts itself and adds its price on an H200.
//!
//! Prices are nanoseconds with driver 580 (CUDA 13.0). Those marked "measured" come from the table in the design notes.
//! The rest are estimates in the order of magnitude of the same machine, and matter only in that they are not zero.

use super::{config::Costs, state};
use crate::driver::table::Call::{self, *};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

static COUNTS: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];
static NANOSECONDS: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];

/// Returns how often `call` was made, including failed calls.
pub fn call_count(call: Call) -> u64 {
    COUNTS[call as usize].load(Ordering::Relaxed)
}

/// Returns what those calls would have cost on an H200, in nanoseconds.
pub fn call_cost(call: Call) -> u64 {
    NANOSECONDS[call as usize].load(Ordering::Relaxed)
}

/// Resets the counts and the costs to 0.
pub fn reset_counts() {
    for number in COUNTS.iter().chain(&NANOSECONDS) {
        number.store(0, Ordering::Relaxed);
    }
}

/// A call in progress. If calls are to take their time, dropping it spins until the price has passed.
pub struct Charge {
    started: Option<(Instant, Duration)>,
}

/// Counts `call` and charges its price in nanoseconds.
pub fn charge(call: Call, price: u64) -> Charge {
    COUNTS[call as usize].fetch_add(1, Ordering::Relaxed);
    NANOSECONDS[call as usize].fetch_add(price, Ordering::Relaxed);
    let spins = state::get().is_ok_and(|state| state.config.costs == Costs::Spin);
    Charge { started: spins.then(|| (Instant::now(), Duration::from_nanos(price))) }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((start, price)) = self.started {
            while start.elapsed() < price {
                std::hint::spin_loop();
            }
        }
    }
}

const SIZES: [u64; 5] = [2 << 20, 8 << 20, 32 << 20, 256 << 20, 1 << 30];

/// Interpolates linearly between the two measured sizes around `bytes`; beyond the last one, the last slope continues.
fn interpolate(bytes: u64, prices: [u64; 5]) -> u64 {
    let right = SIZES.iter().position(|size| bytes <= *size).unwrap_or(SIZES.len() - 1);
    if right == 0 {
        return prices[0];
    }
    let (x0, x1) = (SIZES[right - 1] as f64, SIZES[right] as f64);
    let (y0, y1) = (prices[right - 1] as f64, prices[right] as f64);
    (y0 + (y1 - y0) * (bytes as f64 - x0) / (x1 - x0)) as u64
}

/// What mapping, and unmapping, memory for network adapters takes more, measured.
pub const GPU_DIRECT_RDMA: u64 = 6400;

/// Returns the price of one call in nanoseconds. `bytes` is the size of the affected memory, where that matters.
pub fn price(call: Call, bytes: u64) -> u64 {
    match call {
        // Measured, by size. A range of several handles pays for each of them.
        cuMemCreate => interpolate(bytes, [7500, 7500, 7000, 11_000, 22_000]),
        cuMemMap => interpolate(bytes, [500, 500, 500, 600, 700]),
        cuMemSetAccess => interpolate(bytes, [21_000, 20_000, 20_000, 31_000, 52_000]),
        cuMemUnmap => interpolate(bytes, [14_000, 14_000, 13_000, 17_000, 25_000]),
        cuMemRelease => interpolate(bytes, [8000, 10_000, 15_000, 76_000, 275_000]),
        // Measured.
        cuMemAddressReserve => 3000,
        cuEventRecord | cuEventRecordWithFlags => 150,
        cuEventQuery | cuStreamQuery => 140,
        cuStreamWaitEvent => 130,
        cuStreamBatchMemOp_v2 => 1400,
        cuStreamIsCapturing | cuStreamGetId => 40,
        cuCtxGetCurrent => 30,
        cuMemGetInfo_v2 => 3600,
        cuLaunchKernel | cuLaunchKernelEx => 2300,
        // Estimated: an allocation creates, maps and sets access; a free undoes that.
        cuMemAlloc_v2 => 2000 + interpolate(bytes, [28_000, 30_000, 40_000, 80_000, 200_000]),
        cuMemFree_v2 => 2000 + interpolate(bytes, [20_000, 24_000, 30_000, 95_000, 300_000]),
        cuMemAllocAsync | cuMemFreeAsync => 400,
        cuMemPoolTrimTo => 20_000,
        cuMemAddressFree | cuMemRetainAllocationHandle => 2000,
        cuMemHostAlloc | cuMemFreeHost | cuMemHostRegister_v2 | cuMemHostUnregister => 20_000 + bytes / 16,
        cuMemAllocManaged => 40_000,
        cuMemExportToShareableHandle | cuMemImportFromShareableHandle => 15_000,
        cuMemGetHandleForAddressRange => 20_000,
        cuIpcGetMemHandle | cuIpcGetEventHandle => 5000,
        cuIpcOpenMemHandle_v2 | cuIpcOpenEventHandle | cuIpcCloseMemHandle => 100_000,
        cuMemcpyAsync | cuMemcpyPeerAsync | cuMemcpy2DAsync_v2 => 1900,
        cuMemsetD8Async | cuMemsetD16Async | cuMemsetD32Async => 1800,
        cuStreamCreateWithPriority | cuStreamDestroy_v2 => 5000,
        cuStreamSynchronize | cuCtxSynchronize | cuEventSynchronize => 1000,
        cuEventCreate | cuEventDestroy_v2 => 300,
        cuEventElapsedTime => 500,
        cuCtxRecordEvent => 5000,
        cuLaunchHostFunc => 2500,
        cuGraphLaunch => 2500,
        cuGraphInstantiateWithFlags => 30_000,
        cuGraphUpload | cuGraphExecUpdate_v2 | cuGraphClone => 10_000,
        cuGraphDestroy | cuGraphExecDestroy => 5000,
        cuGraphAddKernelNode_v2 | cuGraphAddMemcpyNode | cuGraphAddMemsetNode | cuGraphAddHostNode => 500,
        cuGraphAddChildGraphNode | cuGraphAddNode_v2 => 2000,
        cuGraphAddEmptyNode | cuGraphAddEventRecordNode | cuGraphAddEventWaitNode | cuGraphAddDependencies => 300,
        cuGraphExecKernelNodeSetParams_v2 | cuGraphNodeSetEnabled => 1000,
        cuGraphCreate | cuGraphConditionalHandleCreate | cuUserObjectCreate => 500,
        cuGraphDebugDotPrint => 100_000,
        cuStreamBeginCapture_v2 | cuStreamBeginCaptureToGraph | cuStreamEndCapture => 1000,
        cuModuleLoadData | cuModuleLoadDataEx => 1_000_000,
        cuModuleUnload => 20_000,
        cuCtxEnablePeerAccess | cuCtxDisablePeerAccess => 100_000,
        cuDevicePrimaryCtxRetain | cuModuleGetFunction | cuModuleGetGlobal_v2 => 1000,
        cuGreenCtxCreate | cuGreenCtxDestroy => 1_000_000,
        cuGreenCtxStreamCreate => 5000,
        cuInit => 100_000,
        _ => 50,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_interpolate() {
        assert_eq!(price(cuMemCreate, 2 << 20), 7500);
        assert_eq!(price(cuMemCreate, 1), 7500);
        assert_eq!(price(cuMemCreate, 1 << 30), 22_000);
        assert_eq!(price(cuMemSetAccess, 20 << 20), 20_000);
        assert_eq!(price(cuMemRelease, (256 + 384) << 20), (76_000 + 275_000) / 2);
        assert!(price(cuMemCreate, 2 << 30) > 30_000);
        assert_eq!(price(cuEventRecord, 0), 150);
    }
}
