//! The ways to make new communicators of the ranks of one: a split by colors, or a shrink to the ranks that remain.

use crate::error::{Result, invalid};
use std::sync::Arc;

/// A rank's part in the making of new communicators.
#[derive(Debug, Clone)]
pub enum Division {
    /// One for the ranks of each color, ordered by key. All ranks take part.
    Split {
        /// The rank's color; `None` to be in no new communicator.
        color: Option<u32>,
        /// The rank's key.
        key: i32,
    },
    /// One for the ranks that are not excluded, in their order. Only they take part.
    Shrink(Shrink),
}

impl Division {
    /// Returns whether it ends the communicator and its work first.
    pub fn aborts(&self) -> bool {
        matches!(self, Division::Shrink(shrink) if shrink.aborts)
    }
}

/// The arguments of a shrink.
#[derive(Debug, Clone)]
pub struct Shrink {
    /// The excluded ranks, in their order.
    pub excluded: Arc<[u32]>,
    /// Whether the work of the communicator ends first, and the communicator with it.
    pub aborts: bool,
}

impl Shrink {
    /// Checks the ranks that `rank` of `size` excludes.
    pub fn new(excluded: &[i32], aborts: bool, rank: u32, size: u32) -> Result<Shrink> {
        let mut ranks = Vec::with_capacity(excluded.len());
        for excluded in excluded {
            let Some(known) = u32::try_from(*excluded).ok().filter(|known| *known < size) else {
                return Err(invalid(format!("there is no rank {excluded} among {size} that a shrink can exclude")));
            };
            if known == rank {
                return Err(invalid(format!("rank {rank} excludes itself; only the ranks that remain call a shrink")));
            }
            ranks.push(known);
        }
        ranks.sort_unstable();
        if let Some(twice) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!("rank {} is excluded twice", twice[0])));
        }
        if ranks.is_empty() {
            return Err(invalid(
                "a shrink excludes no rank; plinth_communicator_split makes a communicator of all ranks",
            ));
        }
        Ok(Shrink { excluded: ranks.into(), aborts })
    }

    /// Returns whether it excludes a rank.
    pub fn excludes(&self, rank: u32) -> bool {
        self.excluded.binary_search(&rank).is_ok()
    }

    /// Returns which of `size` ranks remain, in their order.
    pub fn remaining(&self, size: u32) -> impl Iterator<Item = u32> + '_ {
        (0..size).filter(|rank| !self.excludes(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn the_ranks_of_a_shrink_are_checked() {
        let shrink = Shrink::new(&[4, 0], false, 2, 5).unwrap();
        assert_eq!((&*shrink.excluded, shrink.remaining(5).collect::<Vec<u32>>()), (&[0, 4][..], vec![1, 2, 3]));
        for (excluded, message) in [
            (&[][..], "excludes no rank"),
            (&[5], "there is no rank 5 among 5"),
            (&[-1], "there is no rank -1 among 5"),
            (&[1, 2], "rank 2 excludes itself"),
            (&[1, 3, 1], "rank 1 is excluded twice"),
        ] {
            let error = Shrink::new(excluded, true, 2, 5).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_VALUE);
            assert!(error.message().contains(message), "{error}");
        }
    }
}
