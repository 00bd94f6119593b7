//! Connects the layers when the library is loaded: what the runtime calls as it starts.

#![allow(unsafe_code)]

use super::process;
use crate::{
    collectives::{
        communicator::engine::{self, EngineKind},
        devices::tuning::Threshold,
        processes::tuning::Tuning,
    },
    error::{Error, Result},
    memory::{config, ipc},
    ops::{jit::cache::Cache, random},
    runtime::{self, Runtime, Startup, availability},
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

/// Returns the errors of the environment variables whose values the library refuses when it needs them, except those of
/// the host device.
pub fn refused_variables() -> Vec<Error> {
    let read = [
        config::get().err(),
        ipc::mode::mode().err(),
        sanitizer::mode_from_environment().err(),
        availability::is_nvml_enabled().err(),
        runtime::are_faults_enabled().err(),
        EngineKind::Auto.or_from_environment().err(),
        engine::local_nccl_from().err(),
        Threshold::CopyEngine.bytes().err(),
        Tuning::of(2, 1).err(),
        Cache::get().err(),
    ];
    read.into_iter().flatten().collect()
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
