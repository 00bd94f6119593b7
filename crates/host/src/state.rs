//! The state that `cuInit` creates, once for the life of the process.

use super::{
    config::Config,
    engine::Engine,
    green_context::GreenContexts,
    ids::{self, Id},
    memory::{Memory, share},
};
use crate::driver::{codes, table::Code};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32};

/// The process's host devices. Lock order: the engine's lock before the memory's. No thread runs the program's code or
/// a device's work while it holds the engine's lock.
pub struct State {
    pub config: Config,
    /// The handle of each device's primary context.
    pub contexts: Vec<Id>,
    /// Whether each primary context has been retained.
    pub retained: Vec<AtomicBool>,
    /// The error of the work that ended each device's contexts; `CUDA_SUCCESS` while they are usable.
    pub lost: Vec<AtomicU32>,
    /// Locked for look-ups only, so it may be locked under any other lock.
    pub green: Mutex<GreenContexts>,
    pub memory: RwLock<Memory>,
    pub engine: Mutex<Engine>,
    /// The condition variable of each device's idle workers, used with the engine's lock.
    pub workers: Vec<Condvar>,
    /// The condition variable of idle threads for blocking operations, used with the engine's lock.
    pub blocking_threads: Condvar,
}

static STATE: OnceCell<State> = OnceCell::new();
static ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Creates the state from the configuration. An invalid configuration is an error, and the next call tries again.
pub fn initialise() -> Result<(), Code> {
    let result = STATE.get_or_try_init(|| Config::from_environment().and_then(State::new));
    match result {
        Ok(state) if state.config.visible.is_empty() => Err(codes::CUDA_ERROR_NO_DEVICE),
        Ok(_) => Ok(()),
        Err(reason) => {
            *ERROR.lock() = Some(reason);
            Err(codes::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

/// Returns the number of visible devices as the environment has them now. Initializes nothing. The error is the reason
/// why the configuration is invalid.
pub fn device_count() -> Result<usize, String> {
    Ok(Config::from_environment()?.visible.len())
}

/// Returns the state, or an error before `cuInit` has succeeded.
pub fn get() -> Result<&'static State, Code> {
    STATE.get().ok_or(codes::CUDA_ERROR_NOT_INITIALIZED)
}

/// Returns the reason of the last failed `cuInit`.
pub fn config_error() -> Option<String> {
    ERROR.lock().clone()
}

impl State {
    fn new(config: Config) -> Result<State, String> {
        let shared = config.memory_name.as_deref().map(share::join).transpose()?;
        Ok(State {
            contexts: config.visible.iter().map(|_| ids::next()).collect(),
            retained: config.visible.iter().map(|_| AtomicBool::new(false)).collect(),
            lost: config.visible.iter().map(|_| AtomicU32::new(codes::CUDA_SUCCESS)).collect(),
            green: Mutex::default(),
            memory: RwLock::new(Memory::new(&config, shared)),
            engine: Mutex::new(Engine::new(config.visible.len())),
            workers: config.visible.iter().map(|_| Condvar::new()).collect(),
            blocking_threads: Condvar::new(),
            config,
        })
    }
}
