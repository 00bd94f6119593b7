//! Which engine carries out what ranks do together.

use crate::{
    error::{Error, Result},
    status::Status,
};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Choice {
    /// The library chooses.
    #[default]
    Auto = 0,
    /// NCCL.
    Nccl = 1,
    /// The library's own kernels and copies, between devices of one process.
    Local = 2,
    /// The library's own kernels, between processes of one machine.
    Shared = 3,
}

/// What chooses where a program leaves it to the library.
pub const VARIABLE: &str = "PLINTH_COMMUNICATOR_ENGINE";

impl Choice {
    /// The choice with this number.
    pub fn from_number(number: u32) -> Option<Choice> {
        [Choice::Auto, Choice::Nccl, Choice::Local, Choice::Shared].into_iter().find(|choice| *choice as u32 == number)
    }

    /// The choice; where that is the library's, the environment's.
    pub fn or_by_environment(self) -> Result<Choice> {
        if self != Choice::Auto {
            return Ok(self);
        }
        match std::env::var_os(VARIABLE).as_deref().map(|value| value.to_string_lossy()).as_deref() {
            None | Some("" | "auto") => Ok(Choice::Auto),
            Some("nccl") => Ok(Choice::Nccl),
            Some("local") => Ok(Choice::Local),
            Some("shared") => Ok(Choice::Shared),
            Some(other) => Err(Error::new(
                Status::INVALID_CONFIGURATION,
                format!("{VARIABLE} is {other:?}; it can be auto, nccl, local or shared"),
            )),
        }
    }
}

/// From how many bytes on NCCL is taken for what both it and the library's own kernels can do, where one process has all the
/// ranks.
pub const LOCAL_NCCL_FROM: u64 = 64 << 20;
/// The same where each rank is a process of its own.
pub const SHARED_NCCL_FROM: u64 = 4 << 20;
/// What sets another number of bytes.
pub const NCCL_FROM_VARIABLE: &str = "PLINTH_COMMUNICATOR_NCCL_FROM";

/// From how many bytes on a new communicator leaves to NCCL what both can do. Ranks must agree on it. `otherwise`
/// is what counts where nobody says it.
pub fn nccl_from(otherwise: u64) -> Result<u64> {
    let Some(value) = std::env::var_os(NCCL_FROM_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(otherwise);
    };
    value.to_str().and_then(|value| value.parse().ok()).ok_or_else(|| {
        Error::new(
            Status::INVALID_CONFIGURATION,
            format!("{NCCL_FROM_VARIABLE} is {:?}; it can be a number of bytes", value.to_string_lossy()),
        )
    })
}
