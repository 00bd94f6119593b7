//! Thresholds between algorithms: measured on four H200s, and configurable by programs and by the environment.

use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A size in bytes from which another algorithm is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Threshold {
    /// From this size on, the receivers of a broadcast share it: each fetches a part, and writes it to all.
    BroadcastSplit = 0,
    /// From this size on, all devices reduce a part.
    ReduceSplit = 1,
    /// From this size on, all ranks work in a collective with a result for every rank.
    ExchangeSplit = 2,
    /// From this size of a contiguous copy on, scatter and gather use the copy engines.
    CopyEngine = 3,
}

/// The thresholds, their names in `PLINTH_COMM_CONF`, and their defaults.
const THRESHOLDS: [(Threshold, &str, u64); 4] = [
    (Threshold::BroadcastSplit, "broadcast_split", 6 << 20),
    (Threshold::ReduceSplit, "reduce_split", 6 << 20),
    (Threshold::ExchangeSplit, "exchange_split", 6 << 20),
    (Threshold::CopyEngine, "copy_engine", 64 << 20),
];

static VALUES: [AtomicU64; THRESHOLDS.len()] = [const { AtomicU64::new(0) }; THRESHOLDS.len()];
static READ: OnceCell<()> = OnceCell::new();
static TORCH_ORDER: AtomicBool = AtomicBool::new(false);

impl Threshold {
    /// Returns the threshold with this number.
    pub fn from_number(number: i32) -> Option<Threshold> {
        THRESHOLDS.iter().map(|line| line.0).find(|threshold| *threshold as i32 == number)
    }

    /// Returns its value.
    pub fn bytes(self) -> Result<u64> {
        read_environment()?;
        Ok(VALUES[self as usize].load(Ordering::Relaxed))
    }

    /// Sets its value, at least 1.
    pub fn set(self, bytes: u64) -> Result<()> {
        read_environment()?;
        VALUES[self as usize].store(bytes.max(1), Ordering::Relaxed);
        Ok(())
    }
}

/// Reads the environment variable once.
fn read_environment() -> Result<()> {
    READ.get_or_try_init(|| {
        let text = std::env::var_os("PLINTH_COMM_CONF").unwrap_or_default();
        let values = parse(&text.to_string_lossy())?;
        for (threshold, value) in VALUES.iter().zip(values) {
            threshold.store(value, Ordering::Relaxed);
        }
        Ok(())
    })
    .copied()
}

/// Parses a list of `name:bytes`, separated by commas.
fn parse(text: &str) -> Result<[u64; THRESHOLDS.len()]> {
    let mut values = THRESHOLDS.map(|line| line.2);
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let parsed = entry.split_once(':').and_then(|(name, bytes)| {
            let index = THRESHOLDS.iter().position(|line| line.1 == name.trim())?;
            Some((index, bytes.trim().parse::<u64>().ok().filter(|bytes| *bytes > 0)?))
        });
        let Some((index, bytes)) = parsed else {
            let names = THRESHOLDS.map(|line| line.1).join(", ");
            return Err(Error::new(
                Status::INVALID_CONFIGURATION,
                format!("PLINTH_COMM_CONF has {entry:?}; it can have NAME:BYTES of {names}"),
            ));
        };
        values[index] = bytes;
    }
    Ok(values)
}

/// Makes `reduce_add` add like torch's own addition: the tensor on the destination device first, then the others in
/// their order, with each sum rounded to the tensors' type. Otherwise sums are in the order of the tensors, and those
/// of 8- and 16-bit floats are rounded once.
pub fn set_torch_order(on: bool) {
    TORCH_ORDER.store(on, Ordering::Relaxed);
}

/// Returns whether `reduce_add` adds like torch.
pub fn uses_torch_order() -> bool {
    TORCH_ORDER.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_have_the_numbers_of_their_positions() {
        for (index, (threshold, ..)) in THRESHOLDS.iter().enumerate() {
            assert_eq!(*threshold as usize, index);
            assert_eq!(Threshold::from_number(index as i32), Some(*threshold));
        }
        assert_eq!(Threshold::from_number(4), None);
        assert_eq!(Threshold::from_number(-1), None);
    }

    #[test]
    fn the_environment_sets_the_thresholds_that_it_names() {
        let values = parse(" reduce_split : 5 ,copy_engine:7,").unwrap();
        assert_eq!(values[1], 5);
        assert_eq!(values[3], 7);
        assert_eq!(values[0], THRESHOLDS[0].2);
        for wrong in ["reduce_split", "reduce_split:0", "reduce:5", "reduce_split:-1", "reduce_split:1MiB"] {
            assert!(parse(wrong).unwrap_err().message().contains("broadcast_split"), "{wrong}");
        }
    }
}
