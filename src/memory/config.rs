//! The allocator's settings, from `PLINTH_ALLOC_CONF` and from later calls of the program.
//!
//! The grammar and the keys are those of torch's variable, so that one text works for both; `grammar` parses and
//! formats it. Keys that plinth does not need are accepted and stored. docs/allocator_settings.md lists all keys.
//!
//! The hot path never reads the settings. A setting that affects it is stored where the path looks anyway: in the
//! spaces of arenas, or, for rounding and other backends, in the lookup of an arena, which then caches nothing
//! ([`route`](super::route)).

mod grammar;

use super::{
    block::{self, UNIT},
    policy::SplitLimits,
};
use crate::{
    base::log,
    driver::environment,
    error::{Error, Result},
    status::Status,
};
use parking_lot::RwLock;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

const VARIABLE: &str = "PLINTH_ALLOC_CONF";
/// torch's variables in order of precedence; the oldest name has priority.
const TORCH_VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Enables torch's variables if plinth's own is not set.
const USE_TORCH_VARIABLES: &str = "PLINTH_USE_PYTORCH_ALLOC_CONF";
/// Disables caching, so that each request goes to the driver.
const NO_CACHING: &str = "PLINTH_NO_CUDA_MEMORY_CACHING";
/// torch's name for it. As in torch 2.11, only the value 1 disables caching.
const TORCH_NO_CACHING: &str = "PYTORCH_NO_CUDA_MEMORY_CACHING";
/// Enables memory debugging, with the words of the key `debug`.
const DEBUG: &str = "PLINTH_MEMORY_DEBUG";

/// The number of size intervals with their own rounding: below 2 MiB, one for each power of two, and from 32 GiB.
pub const INTERVALS: usize = 16;

/// The kind of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caching allocator.
    Native,
    /// The driver's memory pools, in stream order.
    Async,
    /// The driver, for each request.
    Uncached,
    /// Functions of the program.
    Pluggable,
    /// The debugging allocator, with a separate mapping for each block.
    Debug,
}

impl Kind {
    /// Returns the name as `torch.cuda.get_allocator_backend` returns it, or a name in the same style for plinth's own
    /// backends.
    pub fn name(self) -> &'static CStr {
        match self {
            Kind::Native => c"native",
            Kind::Async => c"cudaMallocAsync",
            Kind::Uncached => c"uncached",
            Kind::Pluggable => c"pluggable",
            Kind::Debug => c"debug",
        }
    }
}

/// The options of memory debugging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Debug {
    /// Each block ends at the end of its mapping, and the address behind it is unmapped.
    pub guard: bool,
    /// Freed blocks are unmapped.
    pub unmap: bool,
    /// Blocks are filled with patterns when they are allocated and when they are freed.
    pub fill: bool,
}

impl Debug {
    /// Returns whether any option is on.
    pub fn is_on(self) -> bool {
        self.guard || self.unmap || self.fill
    }
}

/// The settings, by the names of the keys. Sizes are in bytes unless the name ends in `_mb`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The allocator backend.
    pub backend: Kind,
    /// Whether memory is mapped into reserved address ranges if the driver supports it.
    pub expandable_segments: bool,
    /// Blocks of this size and above are not split if segments cannot move; `u64::MAX` for no limit.
    pub max_split_size: u64,
    /// The maximum difference between such a block and a request that it serves.
    pub max_non_split_rounding: u64,
    /// The segment size for requests above 1 MiB and below 10 MiB.
    pub large_segment_size: u64,
    /// The fraction of the limit above which idle memory is released before more is allocated; 0 to disable.
    pub garbage_collection_threshold: f64,
    /// The number of steps between powers of two to which sizes are rounded, by interval; 0 and 1 to disable.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// The fraction of each device's memory that may be held, unless a call sets another.
    pub per_process_memory_fraction: f64,
    /// No effect: no lock is held during a driver call.
    pub release_lock_on_cudamalloc: bool,
    /// No effect: see docs/allocator_settings.md.
    pub graph_capture_record_stream_reuse: bool,
    /// No effect: a request beyond the fraction never reaches the driver.
    pub throw_on_cudamalloc_oom: bool,
    /// Pinned memory: whether to register host pages instead of allocating through the driver.
    pub pinned_use_cuda_host_register: bool,
    /// Pinned memory: the number of threads that touch such pages.
    pub pinned_num_register_threads: u32,
    /// Pinned memory: whether a background thread processes freed blocks.
    pub pinned_use_background_threads: bool,
    /// Pinned memory: the size of one slab for all blocks, in MiB; 0 for none.
    pub pinned_reserve_segment_size_mb: u64,
    /// Pinned memory: requests above this size in MiB are not rounded up to a power of two; 0 for no limit.
    pub pinned_max_round_threshold_mb: u64,
    /// Pinned memory: blocks above this size in MiB are not cached; 0 for no limit.
    pub pinned_max_cached_size_mb: u64,
    /// Memory debugging options.
    pub debug: Debug,
    /// Memory debugging: the MiB of addresses, or of memory, that wait in quarantine before reuse.
    pub debug_quarantine_mb: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            backend: Kind::Native,
            expandable_segments: true,
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 << 20,
            large_segment_size: 20 << 20,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; INTERVALS],
            per_process_memory_fraction: 1.0,
            release_lock_on_cudamalloc: false,
            graph_capture_record_stream_reuse: false,
            throw_on_cudamalloc_oom: false,
            pinned_use_cuda_host_register: false,
            pinned_num_register_threads: 1,
            pinned_use_background_threads: false,
            pinned_reserve_segment_size_mb: 0,
            pinned_max_round_threshold_mb: 0,
            pinned_max_cached_size_mb: 0,
            debug: Debug::default(),
            debug_quarantine_mb: 64 << 10,
        }
    }
}

static CONFIG: RwLock<Option<Config>> = RwLock::new(None);
/// The bits of the fraction in the settings; those of 1 until the settings are read.
static FRACTION: AtomicU64 = AtomicU64::new(1.0_f64.to_bits());

/// Returns the settings. The environment is read once; if it is invalid, the next call reads it again.
pub fn get() -> Result<Config> {
    if let Some(config) = *CONFIG.read() {
        return Ok(config);
    }
    let mut slot = CONFIG.write();
    match *slot {
        Some(config) => Ok(config),
        None => {
            Ok(store(&mut slot, read(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))?))
        }
    }
}

/// Calls `look` with the settings, which do not change meanwhile.
pub fn with<T>(look: impl FnOnce(&Config) -> T) -> Result<T> {
    let config = get()?;
    let slot = CONFIG.read();
    Ok(look(slot.as_ref().unwrap_or(&config)))
}

fn store(slot: &mut Option<Config>, config: Config) -> Config {
    FRACTION.store(config.per_process_memory_fraction.to_bits(), Ordering::Release);
    *slot = Some(config);
    config
}

/// Returns the fraction of a device's memory that may be held unless a call sets another; 1 if the settings were not
/// read.
pub fn fraction() -> f64 {
    f64::from_bits(FRACTION.load(Ordering::Acquire))
}

/// Changes the settings that a text names, after `allow` approved the old and new settings. Changes all of them or
/// none.
pub fn set(text: &str, allow: impl FnOnce(&Config, &Config) -> Result<()>) -> Result<Config> {
    let before = get()?;
    let mut slot = CONFIG.write();
    let mut config = slot.unwrap_or(before);
    let before = config;
    let invalid = |what| Error::new(Status::INVALID_VALUE, what).context("changing the allocator's settings");
    grammar::parse(text, &mut config).map_err(invalid)?;
    check(&config).map_err(invalid)?;
    allow(&before, &config)?;
    warn_of_ineffective(&before, &config);
    Ok(store(&mut slot, config))
}

/// Returns whether a text that [`set`] accepts names the fraction of each device's memory.
pub fn names_fraction(text: &str) -> bool {
    grammar::names(text, "per_process_memory_fraction")
}

/// Reads the environment through `find`.
fn read(find: impl Fn(&str) -> Option<String>) -> Result<Config> {
    let invalid =
        |variable: &str, what: String| Error::new(Status::INVALID_CONFIGURATION, format!("{variable}: {what}"));
    let switch = |variable: &str| environment::switch(variable, find(variable).map(Into::into));
    let mut config = Config::default();
    let (mut variable, mut text) = (VARIABLE, find(VARIABLE).filter(|text| !text.is_empty()));
    if text.is_none() && switch(USE_TORCH_VARIABLES)? == Some(true) {
        for name in TORCH_VARIABLES.into_iter().rev() {
            if let Some(found) = find(name) {
                (variable, text) = (name, Some(found));
            }
        }
        if let Some(newest) = TORCH_VARIABLES.last().filter(|newest| text.is_some() && **newest != variable) {
            log::warning(|| format!("{variable} is deprecated; set {newest} instead"));
        }
    }
    grammar::parse(&text.unwrap_or_default(), &mut config).map_err(|what| invalid(variable, what))?;
    if let Some(words) = find(DEBUG) {
        config.debug = grammar::debug(&words).map_err(|what| invalid(DEBUG, what))?;
    }
    if switch(NO_CACHING)?.unwrap_or_else(|| find(TORCH_NO_CACHING).as_deref() == Some("1")) {
        config.backend = Kind::Uncached;
    }
    check(&config).map_err(|what| invalid(variable, what))?;
    warn_of_ineffective(&Config::default(), &config);
    Ok(config)
}

/// Logs the settings that a change has switched on and that have no effect.
fn warn_of_ineffective(before: &Config, after: &Config) {
    let settings = |config: &Config| {
        [
            ("release_lock_on_cudamalloc", config.release_lock_on_cudamalloc),
            ("graph_capture_record_stream_reuse", config.graph_capture_record_stream_reuse),
            ("throw_on_cudamalloc_oom", config.throw_on_cudamalloc_oom),
        ]
    };
    for ((key, is_on), (_, was_on)) in settings(after).into_iter().zip(settings(before)) {
        if is_on && !was_on {
            log::warning(|| format!("the setting {key} has no effect"));
        }
    }
}

/// Rejects combinations of settings that are invalid.
fn check(config: &Config) -> std::result::Result<(), String> {
    const MIB: u64 = 1 << 20;
    if config.max_split_size < config.large_segment_size {
        let minimum = config.large_segment_size / MIB;
        return Err(format!("max_split_size_mb must be at least large_segment_size_mb, which is {}", minimum));
    }
    if config.max_non_split_rounding < config.large_segment_size && config.max_split_size != u64::MAX {
        let minimum = config.large_segment_size / MIB;
        return Err(format!("max_non_split_rounding_mb must be at least large_segment_size_mb, which is {}", minimum));
    }
    if config.debug.is_on() && config.backend != Kind::Native {
        return Err("debug cannot be combined with another backend".into());
    }
    Ok(())
}

impl Config {
    /// Returns the settings as a text that [`set`] accepts.
    pub fn text(&self) -> String {
        grammar::write(self)
    }

    /// Returns the backend that these settings select.
    pub fn kind(&self) -> Kind {
        if self.debug.is_on() { Kind::Debug } else { self.backend }
    }

    /// Returns whether sizes are rounded to more than multiples of a unit.
    pub fn has_rounding(&self) -> bool {
        self.roundup_power2_divisions.iter().any(|divisions| *divisions > 1)
    }

    /// Returns the limits on splitting for a space whose memory cannot move, if there are any.
    pub fn split_limits(&self) -> Option<SplitLimits> {
        (self.max_split_size != u64::MAX)
            .then_some(SplitLimits { min_unsplit: self.max_split_size, max_excess: self.max_non_split_rounding })
    }

    /// Rounds a size up as `roundup_power2_divisions` says for its interval, or to whole units. Returns `None` on
    /// overflow.
    pub fn round(&self, bytes: u64) -> Option<u64> {
        let interval = (bytes.max(1).ilog2().saturating_sub(20) as usize).min(INTERVALS - 1);
        let divisions = self.roundup_power2_divisions[interval];
        if divisions <= 1 || bytes <= UNIT * divisions {
            return block::round(bytes);
        }
        if bytes.is_power_of_two() {
            return Some(bytes);
        }
        // For sizes above one unit per division, the step is a multiple of the unit.
        let part = (1 << bytes.ilog2()) / divisions;
        bytes.checked_next_multiple_of(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(pairs: &[(&str, &str)]) -> Result<Config> {
        read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn environment_variables_have_precedence() {
        let on = (USE_TORCH_VARIABLES, "1");
        let torchs = ("PYTORCH_ALLOC_CONF", "max_split_size_mb:100");
        let older = ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:200");
        let own = (VARIABLE, "max_split_size_mb:300");
        let split = |pairs: &[(&str, &str)]| read_from(pairs).unwrap().max_split_size;
        assert_eq!(split(&[torchs, older]), u64::MAX);
        assert_eq!(split(&[on, torchs]), 100 << 20);
        assert_eq!(split(&[on, torchs, older]), 200 << 20);
        assert_eq!(split(&[on, torchs, older, own]), 300 << 20);
        assert_eq!(read_from(&[(NO_CACHING, "1")]).unwrap().kind(), Kind::Uncached);
        assert_eq!(read_from(&[(TORCH_NO_CACHING, "1")]).unwrap().kind(), Kind::Uncached);
        assert_eq!(read_from(&[(TORCH_NO_CACHING, "0")]).unwrap().kind(), Kind::Native);
        assert_eq!(read_from(&[(TORCH_NO_CACHING, "1"), (NO_CACHING, "0")]).unwrap().kind(), Kind::Native);
        assert_eq!(split(&[on, torchs, (VARIABLE, "")]), 100 << 20);
        assert_eq!(read_from(&[(TORCH_NO_CACHING, "1"), (NO_CACHING, "")]).unwrap().kind(), Kind::Uncached);
        assert_eq!(read_from(&[(DEBUG, "guard,fill")]).unwrap().kind(), Kind::Debug);
    }

    #[test]
    fn errors_name_their_variable() {
        for (name, text) in [(VARIABLE, "x:1"), (DEBUG, "gard"), (NO_CACHING, "yes"), (USE_TORCH_VARIABLES, "2")] {
            let error = read_from(&[(name, text)]).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_CONFIGURATION);
            assert!(error.message().starts_with(name), "{error}");
        }
        let error = read_from(&[(USE_TORCH_VARIABLES, "1"), ("PYTORCH_HIP_ALLOC_CONF", "x:1")]).unwrap_err();
        assert!(error.message().starts_with("PYTORCH_HIP_ALLOC_CONF"), "{error}");
        assert!(read_from(&[(DEBUG, "guard"), (NO_CACHING, "1")]).is_err());
    }

    #[test]
    fn sizes_round_to_power_of_two_divisions() {
        let divided = |divisions| Config { roundup_power2_divisions: [divisions; INTERVALS], ..Config::default() };
        // The example in torch's documentation.
        assert_eq!(divided(4).round(1200 << 10), Some(1280 << 10));
        assert_eq!(divided(4).round(1 << 20), Some(1 << 20));
        assert_eq!(divided(4).round(2049), Some(2560));
        assert_eq!(divided(4).round(2048), Some(2048));
        assert_eq!(divided(4).round(1), Some(512));
        assert_eq!(divided(1).round((1 << 20) + 1), Some((1 << 20) + 512));
        assert_eq!(divided(2).round((5 << 20) + 1), Some(6 << 20));
        assert_eq!(divided(8).round(u64::MAX), None);
        assert!(!divided(1).has_rounding() && divided(2).has_rounding());
        for bytes in (1..200_000).step_by(77) {
            let rounded = divided(8).round(bytes).unwrap();
            assert!(rounded >= bytes && rounded.is_multiple_of(512) && rounded <= bytes + (bytes / 8).max(512));
        }
    }
}
