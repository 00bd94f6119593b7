//! Connects the layers when the library is loaded: what the runtime calls as it starts.

#![allow(unsafe_code)]

use super::process;
use crate::{
    error::Result,
    ops::random,
    runtime::{self, Runtime, Startup},
    sanitizer,
};

fn check() -> Result<()> {
    sanitizer::mode_from_environment().map(drop)
}

fn ready(runtime: &'static Runtime) -> Result<()> {
    sanitizer::enable(sanitizer::mode_from_environment()?)?;
    random::seed::apply_pending(runtime)
}

extern "C" fn at_load() {
    process::install_panic_hook();
    runtime::set_startup(Startup { loaded: process::register, check, ready });
}

/// Runs `at_load` when the library is loaded, so that no call needs to check whether it ran.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
