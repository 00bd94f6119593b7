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
pub const LOCAL_NCCL_FROM: u64 = 64 << 20;
/// The same for ranks in separate processes, by the maximum number of ranks: where NCCL is faster in a graph. The last entry
/// is an estimate, the others were measured (docs/benchmarks.md).
const SHARED_NCCL_FROM: [(u32, u64); 3] = [(2, 64 << 20), (4, 32 << 20), (u32::MAX, 4 << 20)];
/// The environment variable that overrides these thresholds.
pub const NCCL_FROM_VARIABLE: &str = "PLINTH_COMMUNICATOR_NCCL_FROM";

/// Returns the default threshold for this number of ranks in separate processes.
pub fn shared_nccl_from(ranks: u32) -> u64 {
    by_ranks(&SHARED_NCCL_FROM, ranks)
}

/// Returns the threshold in bytes from which a new communicator prefers NCCL. All ranks must have the same threshold.
/// `default` applies if the environment variable is not set.
pub fn nccl_from(default: u64) -> Result<u64> {
    let Some(value) = std::env::var_os(NCCL_FROM_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(default);
    };
    value.to_str().and_then(|value| value.parse().ok()).ok_or_else(|| {
        Error::new(
            Status::INVALID_CONFIGURATION,
            format!("{NCCL_FROM_VARIABLE} is {:?}; it can be a number of bytes", value.to_string_lossy()),
        )
    })
}
