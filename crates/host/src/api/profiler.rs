//! Profilers.

use super::{contexts, enter};
use crate::driver::table::{Call, Code};

/// No profiler ever listens to the host device: there is nothing to begin, but the call is one.
pub unsafe extern "C" fn cuProfilerStart() -> Code {
    enter(Call::cuProfilerStart, 0, |state| contexts::current(state).map(drop))
}

pub unsafe extern "C" fn cuProfilerStop() -> Code {
    enter(Call::cuProfilerStop, 0, |state| contexts::current(state).map(drop))
}
