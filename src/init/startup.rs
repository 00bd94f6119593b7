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
    let sanitized = sanitizer::mode_from_environment().and_then(sanitizer::enable);
    random::seed::apply_pending(runtime)?;
    sanitized
}

extern "C" fn at_load() {
    process::install_panic_hook();
    process::register_fork();
    runtime::set_startup(Startup { loaded: process::register_exit, check, ready });
}

/// Runs `at_load` when the library is loaded. The priority puts it before the constructors of a program that links the library
/// statically, which may call it already.
#[used]
#[unsafe(link_section = ".init_array.00099")]
static AT_LOAD: extern "C" fn() = at_load;
