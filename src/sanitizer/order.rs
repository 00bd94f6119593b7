//! The happens-before order: the vector clocks of the tracks on which work runs.

use std::sync::Arc;

/// Identifies a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u32);

impl Track {
    /// The track of the CPU.
    pub const CPU: Track = Track(0);

    /// Returns the track as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The epochs up to which other tracks were waited for, sorted by track. Copied on write.
#[derive(Debug, Clone, Default)]
struct Clock(Arc<Vec<(Track, u64)>>);

impl Clock {
    fn get(&self, track: Track) -> u64 {
        self.0.binary_search_by_key(&track, |entry| entry.0).map_or(0, |index| self.0[index].1)
    }

    fn raise(&mut self, track: Track, epoch: u64) {
        match self.0.binary_search_by_key(&track, |entry| entry.0) {
            Ok(index) if self.0[index].1 >= epoch => {}
            Ok(index) => Arc::make_mut(&mut self.0)[index].1 = epoch,
            Err(index) => Arc::make_mut(&mut self.0).insert(index, (track, epoch)),
        }
    }

    fn join(&mut self, other: &Clock) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        if self.0.is_empty() {
            self.0 = other.0.clone();
            return;
        }
        for (track, epoch) in other.0.iter() {
            self.raise(*track, *epoch);
        }
    }
}

/// A moment of a track: everything that it had done and waited for by then.
#[derive(Debug, Clone)]
pub struct Moment {
    track: Track,
    epoch: u64,
    seen: Clock,
}

impl Moment {
    /// Returns whether an operation of a track had completed or was waited for by then.
    pub fn covers(&self, track: Track, epoch: u64) -> bool {
        let known = if track == self.track { self.epoch } else { self.seen.get(track) };
        epoch <= known
    }
}

/// The state of one track.
#[derive(Debug, Clone, Default)]
pub struct TrackState {
    /// The epoch of the latest event on the track. It increases with each operation and each wait, so a track and an
    /// epoch identify everything that was waited for.
    epoch: u64,
    /// The epoch up to which the CPU knows that everything is complete.
    done: u64,
    /// The moments that the track has waited for.
    seen: Clock,
}

/// The states of all tracks.
#[derive(Debug)]
pub struct TrackOrder {
    tracks: Vec<TrackState>,
    /// Retired tracks.
    idle: Vec<Track>,
}

impl TrackOrder {
    /// Creates an order with only the CPU's track.
    pub fn new() -> TrackOrder {
        // The CPU's own operations are always complete.
        TrackOrder { tracks: vec![TrackState { done: u64::MAX, ..TrackState::default() }], idle: Vec::new() }
    }

    /// Adds a track, or reuses a retired one.
    pub fn add(&mut self) -> Track {
        // New work on a reused track is ordered after its old work, so the old work must be complete.
        if let Some(index) = self.idle.iter().position(|track| self.is_complete(*track)) {
            return self.idle.swap_remove(index);
        }
        self.tracks.push(TrackState::default());
        Track(self.tracks.len() as u32 - 1)
    }

    /// Returns whether the CPU knows that everything on a track is complete.
    pub fn is_complete(&self, track: Track) -> bool {
        let state = &self.tracks[track.index()];
        state.epoch <= state.done
    }

    /// Retires a track: nothing will run on it any more.
    pub fn retire(&mut self, track: Track) {
        self.idle.push(track);
    }

    /// Begins the next event on a track, and returns its epoch.
    pub fn step(&mut self, track: Track) -> u64 {
        let state = &mut self.tracks[track.index()];
        state.epoch += 1;
        state.epoch
    }

    /// Returns the current moment of a track.
    pub fn moment(&self, track: Track) -> Moment {
        let state = &self.tracks[track.index()];
        Moment { track, epoch: state.epoch, seen: state.seen.clone() }
    }

    /// Orders later work of a track after a moment.
    pub fn wait(&mut self, track: Track, moment: &Moment) {
        if moment.track == track || self.is_done(moment.track, moment.epoch) {
            return;
        }
        self.step(track);
        let seen = &mut self.tracks[track.index()].seen;
        seen.join(&moment.seen);
        seen.raise(moment.track, moment.epoch);
    }

    /// Marks everything up to a moment as complete and known to the CPU.
    pub fn finish(&mut self, moment: &Moment) {
        if self.is_done(moment.track, moment.epoch) {
            return;
        }
        for (track, epoch) in moment.seen.0.iter().chain([&(moment.track, moment.epoch)]) {
            let done = &mut self.tracks[track.index()].done;
            *done = (*done).max(*epoch);
        }
    }

    /// Returns a copy of a track's state for [`restore`](Self::restore).
    pub fn save(&self, track: Track) -> TrackState {
        self.tracks[track.index()].clone()
    }

    /// Restores the state of a track: the events since it was saved did not happen.
    pub fn restore(&mut self, track: Track, state: TrackState) {
        self.tracks[track.index()] = state;
    }

    /// Returns whether the CPU knows that an operation is complete.
    pub fn is_done(&self, track: Track, epoch: u64) -> bool {
        epoch <= self.tracks[track.index()].done
    }

    /// Returns whether the next event of track `later` is ordered after an operation.
    pub fn is_before(&self, track: Track, epoch: u64, later: Track) -> bool {
        track == later || self.is_done(track, epoch) || epoch <= self.waited_for(track, later)
    }

    /// Returns the epoch up to which track `later` has waited for `track`; 0 if it never did.
    pub fn waited_for(&self, track: Track, later: Track) -> u64 {
        let state = &self.tracks[track.index()];
        if later == Track::CPU { state.done } else { self.tracks[later.index()].seen.get(track) }
    }

    /// Removes clock entries of work that is known to be complete, which precedes everything anyway.
    pub fn sweep(&mut self) {
        for index in 0..self.tracks.len() {
            let seen = std::mem::take(&mut self.tracks[index].seen);
            let is_open = |entry: &&(Track, u64)| !self.is_done(entry.0, entry.1);
            let open = seen.0.iter().filter(is_open).count();
            self.tracks[index].seen = if open == seen.0.len() {
                seen
            } else {
                Clock(Arc::new(seen.0.iter().filter(is_open).copied().collect()))
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_covers_earlier_work_and_is_transitive() {
        let mut order = TrackOrder::new();
        let (a, b, c) = (order.add(), order.add(), order.add());
        let first = order.step(a);
        order.wait(b, &order.moment(a));
        let second = order.step(a);
        assert!(order.is_before(a, first, b) && !order.is_before(a, second, b));
        order.wait(c, &order.moment(b));
        assert!(order.is_before(a, first, c) && !order.is_before(a, second, c));
        assert!(order.is_before(a, second, a) && !order.is_before(a, first, Track::CPU));
    }

    #[test]
    fn work_that_the_cpu_waited_for_precedes_everything() {
        let mut order = TrackOrder::new();
        let (a, b, c) = (order.add(), order.add(), order.add());
        let (first, other) = (order.step(a), order.step(c));
        order.wait(b, &order.moment(a));
        order.step(b);
        order.finish(&order.moment(b));
        assert!(order.is_before(a, first, c) && order.is_before(a, first, Track::CPU));
        assert!(!order.is_before(c, other, a));
        order.sweep();
        assert!(order.is_before(a, first, c) && !order.is_before(c, other, a));
        assert_eq!(order.waited_for(a, b), 0);
    }

    #[test]
    fn a_track_is_reused_once_it_is_complete() {
        let mut order = TrackOrder::new();
        let old = order.add();
        order.step(old);
        order.retire(old);
        let other = order.add();
        assert_ne!(old, other);
        order.finish(&order.moment(old));
        assert_eq!(order.add(), old);
    }
}
