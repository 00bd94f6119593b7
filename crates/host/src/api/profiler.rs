//! Profiler control.

use super::{contexts, enter};
use crate::driver::table::{Call, Code};

/// Only checks the context, since no profiler can attach to the host device.
pub unsafe extern "C" fn cuProfilerStart() -> Code {
    enter(Call::cuProfilerStart, 0, |state| contexts::current(state).map(drop))
}

pub unsafe extern "C" fn cuProfilerStop() -> Code {
    enter(Call::cuProfilerStop, 0, |state| contexts::current(state).map(drop))
}
