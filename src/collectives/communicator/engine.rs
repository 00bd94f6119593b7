//! The engines of communicators, and how one is selected.

use crate::{
    collectives::processes::tuning::by_ranks,
    error::{Error, Result},
    status::Status,
};

/// An engine, as a caller requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum EngineKind {
    /// The library selects the engine.
    #[default]
    Auto = 0,
    /// NCCL.
    Nccl = 1,
    /// The library's own kernels and copies, between devices of one process.
    Local = 2,
    /// The library's own kernels, between processes of one machine.
    Shared = 3,
}

/// The environment variable that selects the engine for callers that leave it to the library.
pub const VARIABLE: &str = "PLINTH_COMMUNICATOR_ENGINE";

impl EngineKind {
    /// Returns the engine with this number.
    pub fn from_number(number: u32) -> Option<EngineKind> {
        [EngineKind::Auto, EngineKind::Nccl, EngineKind::Local, EngineKind::Shared]
            .into_iter()
            .find(|choice| *choice as u32 == number)
    }

    /// Returns the engine; for `Auto`, the one that the environment variable names.
    pub fn or_from_environment(self) -> Result<EngineKind> {
        if self != EngineKind::Auto {
            return Ok(self);
        }
        match std::env::var_os(VARIABLE).as_deref().map(|value| value.to_string_lossy()).as_deref() {
            None | Some("" | "auto") => Ok(EngineKind::Auto),
            Some("nccl") => Ok(EngineKind::Nccl),
            Some("local") => Ok(EngineKind::Local),
            Some("shared") => Ok(EngineKind::Shared),
            Some(other) => Err(Error::new(
                Status::INVALID_CONFIGURATION,
                format!("{VARIABLE} is {other:?}; it can be auto, nccl, local or shared"),
            )),
        }
    }
}

/// From this number of bytes on, NCCL is used for operations that the library's kernels also support, if one process
/// has all ranks.
const LOCAL_NCCL_FROM: u64 = 64 << 20;
/// The same for ranks in separate processes, by the maximum number of ranks: where NCCL is faster in a graph, with memory that is
/// not registered. The last entry is an estimate, the others were measured (docs/benchmarks.md).
const SHARED_NCCL_FROM: [(u32, u64); 3] = [(2, 64 << 20), (4, 32 << 20), (u32::MAX, 4 << 20)];
/// The environment variable that overrides these thresholds.
pub const NCCL_FROM_VARIABLE: &str = "PLINTH_COMMUNICATOR_NCCL_FROM";

/// Returns the number of bytes from which NCCL is used if one process has all ranks.
pub fn local_nccl_from() -> Result<u64> {
    Ok(nccl_from()?.unwrap_or(LOCAL_NCCL_FROM))
}

/// Returns the number of bytes in the environment variable, if it is set.
fn nccl_from() -> Result<Option<u64>> {
    let Some(value) = std::env::var_os(NCCL_FROM_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    value.to_str().and_then(|value| value.parse().ok()).map(Some).ok_or_else(|| {
        Error::new(
            Status::INVALID_CONFIGURATION,
            format!("{NCCL_FROM_VARIABLE} is {:?}; it can be a number of bytes", value.to_string_lossy()),
        )
    })
}

/// The share of NCCL in the operations of ranks in separate processes. All ranks of a communicator must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclShare {
    /// The number of bytes from which NCCL is used.
    pub from: u64,
    /// Whether the library's kernels do messages, and collectives that use registered memory where it is, whatever their size:
    /// between two ranks they are faster.
    pub only_unregistered: bool,
}

impl NcclShare {
    /// No operation.
    pub const NONE: NcclShare = NcclShare { from: u64::MAX, only_unregistered: false };

    /// Returns the share for a number of ranks. With the environment variable only the size decides.
    pub fn of(ranks: u32) -> Result<NcclShare> {
        let own = nccl_from()?;
        let from = own.unwrap_or_else(|| by_ranks(&SHARED_NCCL_FROM, ranks));
        Ok(NcclShare { from, only_unregistered: own.is_none() && ranks <= 2 })
    }

    /// Returns what ranks compare.
    pub fn bytes(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.only_unregistered); 9];
        bytes[..8].copy_from_slice(&self.from.to_le_bytes());
        bytes
    }
}
