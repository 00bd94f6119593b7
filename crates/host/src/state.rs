//! What `cuInit` sets up, once for the life of the process.

use super::{
    config::Config,
    engine::Engine,
    green_context::GreenContexts,
    ids::{self, Id},
    memory::Memory,
};
use crate::driver::{codes, table::Code};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::AtomicBool;

/// The process's host devices. Whoever needs both locks takes the engine's first; nobody runs the program's code or
/// a device's work while holding the engine's.
pub struct State {
    pub config: Config,
    /// The handle of each device's primary context.
    pub contexts: Vec<Id>,
    /// Whether each primary context has been retained.
    pub retained: Vec<AtomicBool>,
    /// Held for look-ups only, whatever other lock is held.
    pub green: Mutex<GreenContexts>,
    pub memory: RwLock<Memory>,
    pub engine: Mutex<Engine>,
    /// Where each device's idle workers wait, with the engine's lock.
    pub workers: Vec<Condvar>,
    /// Where idle threads for host functions wait, with the engine's lock.
    pub callers: Condvar,
}

static STATE: OnceCell<State> = OnceCell::new();
static ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Reads the configuration; a wrong one is an error, and the next call tries again.
pub fn initialise() -> Result<(), Code> {
    let result = STATE.get_or_try_init(|| Config::read(|name| std::env::var(name).ok()).map(State::new));
    match result {
        Ok(state) if state.config.visible.is_empty() => Err(codes::CUDA_ERROR_NO_DEVICE),
        Ok(_) => Ok(()),
        Err(reason) => {
            *ERROR.lock() = Some(reason);
            Err(codes::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

/// The state, if `cuInit` has succeeded.
pub fn get() -> Result<&'static State, Code> {
    STATE.get().ok_or(codes::CUDA_ERROR_NOT_INITIALIZED)
}

/// Why the last failed `cuInit` failed.
pub fn config_error() -> Option<String> {
    ERROR.lock().clone()
}

impl State {
    fn new(config: Config) -> State {
        State {
            contexts: config.visible.iter().map(|_| ids::next()).collect(),
            retained: config.visible.iter().map(|_| AtomicBool::new(false)).collect(),
            green: Mutex::default(),
            memory: RwLock::new(Memory::new(&config)),
            engine: Mutex::new(Engine::new(config.visible.len())),
            workers: config.visible.iter().map(|_| Condvar::new()).collect(),
            callers: Condvar::new(),
            config,
        }
    }
}
