//! What comes after what: the clocks of the tracks on which work runs.

use std::sync::Arc;

/// The number of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u32);

impl Track {
    /// That of the CPU.
    pub const CPU: Track = Track(0);

    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Of some tracks, in their order, the epochs up to which they were waited for. Shared until it is changed.
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

/// A moment of a track: all that it had done by then, and all that it had waited for.
#[derive(Debug, Clone)]
pub struct Moment {
    track: Track,
    epoch: u64,
    seen: Clock,
}

impl Moment {
    /// Whether an operation of a track is a part of what was done by then.
    pub fn covers(&self, track: Track, epoch: u64) -> bool {
        let known = if track == self.track { self.epoch } else { self.seen.get(track) };
        epoch <= known
    }
}

/// What the clocks know of one track.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// That of the newest thing that happened on the track. It grows with each operation and each wait, so that a track and
    /// an epoch say all that was waited for.
    epoch: u64,
    /// The epoch up to which the CPU knows that all is done.
    done: u64,
    /// What the track has waited for.
    seen: Clock,
}

/// The clocks of all tracks.
#[derive(Debug)]
pub struct Order {
    lines: Vec<Line>,
    /// Tracks that nothing runs on any more.
    idle: Vec<Track>,
}

impl Order {
    /// With the CPU's track only.
    pub fn new() -> Order {
        // What the CPU itself did is done.
        Order { lines: vec![Line { done: u64::MAX, ..Line::default() }], idle: Vec::new() }
    }

    /// A track for something new to run on.
    pub fn add(&mut self) -> Track {
        // One that was used before would make new work come after the old, so that has to be done.
        let is_done = |track: &Track| self.lines[track.index()].epoch <= self.lines[track.index()].done;
        if let Some(index) = self.idle.iter().position(is_done) {
            return self.idle.swap_remove(index);
        }
        self.lines.push(Line::default());
        Track(self.lines.len() as u32 - 1)
    }

    /// Nothing will run on a track any more.
    pub fn retire(&mut self, track: Track) {
        self.idle.push(track);
    }

    /// The next thing happens on a track: its epoch.
    pub fn step(&mut self, track: Track) -> u64 {
        let line = &mut self.lines[track.index()];
        line.epoch += 1;
        line.epoch
    }

    /// What a track has done and waited for so far.
    pub fn moment(&self, track: Track) -> Moment {
        let line = &self.lines[track.index()];
        Moment { track, epoch: line.epoch, seen: line.seen.clone() }
    }

    /// What comes later on a track comes after a moment of another.
    pub fn wait(&mut self, track: Track, moment: &Moment) {
        if moment.track == track || self.is_done(moment.track, moment.epoch) {
            return;
        }
        self.step(track);
        let seen = &mut self.lines[track.index()].seen;
        seen.join(&moment.seen);
        seen.raise(moment.track, moment.epoch);
    }

    /// The CPU knows now that all of a moment is done.
    pub fn finish(&mut self, moment: &Moment) {
        if self.is_done(moment.track, moment.epoch) {
            return;
        }
        for (track, epoch) in moment.seen.0.iter().chain([&(moment.track, moment.epoch)]) {
            let done = &mut self.lines[track.index()].done;
            *done = (*done).max(*epoch);
        }
    }

    /// What there is of a track, for [`put_back`](Self::put_back).
    pub fn line(&self, track: Track) -> Line {
        self.lines[track.index()].clone()
    }

    /// Lets a track be what it was: what happened on it since did not happen.
    pub fn put_back(&mut self, track: Track, line: Line) {
        self.lines[track.index()] = line;
    }

    /// Whether the CPU knows that an operation is done.
    pub fn is_done(&self, track: Track, epoch: u64) -> bool {
        epoch <= self.lines[track.index()].done
    }

    /// Whether what a track does next comes after an operation.
    pub fn is_before(&self, track: Track, epoch: u64, later: Track) -> bool {
        track == later || self.is_done(track, epoch) || epoch <= self.waited_for(track, later)
    }

    /// Up to which epoch a track has waited for another; 0 if it never did.
    pub fn waited_for(&self, track: Track, later: Track) -> u64 {
        let line = &self.lines[track.index()];
        if later == Track::CPU { line.done } else { self.lines[later.index()].seen.get(track) }
    }

    /// Forgets what is known to be done, which comes before everything anyway.
    pub fn sweep(&mut self) {
        for index in 0..self.lines.len() {
            let seen = std::mem::take(&mut self.lines[index].seen);
            let is_open = |entry: &&(Track, u64)| !self.is_done(entry.0, entry.1);
            let open = seen.0.iter().filter(is_open).count();
            self.lines[index].seen = if open == seen.0.len() {
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
    fn a_wait_is_for_what_was_there_and_passes_on() {
        let mut order = Order::new();
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
    fn what_the_cpu_has_waited_for_comes_before_all() {
        let mut order = Order::new();
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
    fn a_track_is_used_again_once_it_is_done() {
        let mut order = Order::new();
        let old = order.add();
        order.step(old);
        order.retire(old);
        let other = order.add();
        assert_ne!(old, other);
        order.finish(&order.moment(old));
        assert_eq!(order.add(), old);
    }
}
