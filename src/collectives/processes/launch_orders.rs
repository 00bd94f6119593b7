//! The order of a group's launches, and how much of their work is complete.

use crate::{
    driver::{
        Driver, codes,
        group::{ENTRIES, GroupKernel},
    },
    error::Result,
    observe,
    runtime::{self, Runtime, device::Device},
    stream::{Stream, event_pool::PooledEvent, ordering, prepared_launch::PreparedLaunch, stream_id::StreamId},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The sequence that a launch belongs to: all collectives are one sequence, and so is each direction to each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    Collectives,
    Sends(u32),
    Receives(u32),
}

/// What a launch adds to a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addition {
    /// The sequence.
    pub sequence: Sequence,
    /// The amount of work: 1 for a collective, the chunks in the first lane for a transfer.
    pub parts: u64,
    /// Whether a send waits for the receiver, and not only for room.
    pub is_rendezvous: bool,
}

/// The last launches of a sequence.
#[derive(Debug)]
pub struct LaunchOrder {
    of: Sequence,
    /// The last launch outside of captures.
    eager: Option<EagerLaunch>,
    /// The last launch in each capture, the latest capture last.
    captured: Vec<CapturedLaunch>,
    prepared: PreparedLaunch<GroupKernel>,
}

/// The last launch of a sequence outside of captures.
#[derive(Debug, Clone)]
struct EagerLaunch {
    stream: StreamId,
    /// Recorded after the launch, and shared by the sequences of which it is the last one.
    event: Arc<PooledEvent>,
    /// Whether the driver refused to record the event, so that nothing is known of the launch.
    is_unrecorded: bool,
}

/// The last launch of a sequence in a capture.
#[derive(Debug)]
struct CapturedLaunch {
    /// The id of the capture.
    capture: u64,
    /// The stream; `None` until the first launch is recorded.
    stream: Option<StreamId>,
    event: PooledEvent,
}

/// The number of captures whose last launches are known, for each sequence. The end of a capture is not.
const MAX_CAPTURES: usize = 16;

/// The order of the launches of a group. Launches of one sequence in different streams wait for each other; those of a
/// capture wait for those of the same capture.
#[derive(Debug, Default)]
pub struct LaunchOrders(Vec<LaunchOrder>);

impl LaunchOrders {
    /// Adds the sequences that a launch adds to, unless they are known, and returns the event to record after the launch; `None`
    /// in a capture, where each sequence has its own.
    pub fn add(
        &mut self,
        additions: &[Addition],
        capture: Option<u64>,
        device: &Device,
        driver: &Driver,
    ) -> Result<Option<Arc<PooledEvent>>> {
        for Addition { sequence, .. } in additions {
            if !self.0.iter().any(|order| order.of == *sequence) {
                let (captured, prepared) = (Vec::new(), PreparedLaunch::default());
                self.0.push(LaunchOrder { of: *sequence, eager: None, captured, prepared });
            }
        }
        if let Some(capture) = capture {
            self.of(additions).try_for_each(|order| order.add_capture(capture, device, driver))?;
            return Ok(None);
        }
        let own = self.event_only_of(additions);
        Ok(Some(own.map_or_else(|| PooledEvent::acquire(device, driver, 0).map(Arc::new), Ok)?))
    }

    /// Returns the event of the last launch of some of these sequences, if it is not that of another sequence: that one would
    /// wait for the next launch.
    fn event_only_of(&self, additions: &[Addition]) -> Option<Arc<PooledEvent>> {
        let events = || self.0.iter().filter(|order| order.is_in(additions)).filter_map(|order| order.event());
        let is_only_of = |event: &&Arc<PooledEvent>| {
            Arc::strong_count(event) == events().filter(|other| Arc::ptr_eq(other, event)).count()
        };
        events().find(is_only_of).cloned()
    }

    /// Returns the last launches of the sequences that a launch adds to, each once.
    pub fn of(&mut self, additions: &[Addition]) -> impl Iterator<Item = &mut LaunchOrder> {
        self.0.iter_mut().filter(|order| order.is_in(additions))
    }

    /// Records a launch, with what [`LaunchOrders::add`] returned.
    pub fn record(
        &mut self,
        additions: &[Addition],
        event: Option<&Arc<PooledEvent>>,
        driver: &Driver,
        stream_id: StreamId,
        capture: Option<u64>,
    ) -> Result<()> {
        let Some(event) = event else {
            // All of them, although the first error is returned: the work is launched.
            let record = |order: &mut LaunchOrder| order.record_captured(driver, stream_id, capture);
            return self.of(additions).map(record).fold(Ok(()), Result::and);
        };
        // The work is launched already, and only this event tells when it is done.
        let record = || driver.event_record(event.native(), stream_id.native());
        let recorded = record().or_else(|_| record()).or_else(|_| record());
        let launch = EagerLaunch { stream: stream_id, event: event.clone(), is_unrecorded: recorded.is_err() };
        self.of(additions).for_each(|order| order.eager = Some(launch.clone()));
        Ok(recorded?)
    }

    /// Destroys the graphs of launches.
    pub fn release_graphs(&mut self) {
        for order in &mut self.0 {
            order.prepared = PreparedLaunch::default();
        }
    }

    /// Returns whether a collective launched outside of captures has not completed.
    pub fn has_pending_collective(&self) -> bool {
        self.pending().iter().any(|order| order.of == Sequence::Collectives)
    }

    /// Returns whether all work launched outside of captures has completed.
    pub fn is_idle(&self) -> bool {
        self.pending().is_empty()
    }

    /// Reports that the CPU knows that all work launched outside of captures has completed.
    pub fn report_completed(&self) {
        let events = self.0.iter().filter_map(|order| Some(order.eager.as_ref()?.event.native()));
        events.for_each(|event| observe::end_of_event(event).finish());
    }

    /// Returns the sequences whose last launch outside of captures has not completed. If that cannot be asked, it counts
    /// as pending, because its memory must not be unmapped, unless the device has lost all work.
    fn pending(&self) -> Vec<&LaunchOrder> {
        let Ok(runtime) = runtime::ready() else { return Vec::new() };
        let launched = || self.0.iter().filter_map(|order| Some((order, order.eager.as_ref()?)));
        let query = |event: &PooledEvent| runtime.in_any_context(|driver| Ok(driver.event_query(event.native())?));
        let is_pending = |(_, launch): &(&LaunchOrder, &EagerLaunch)| match query(&launch.event) {
            Ok(done) => !done || launch.is_unrecorded,
            Err(error) => !codes::is_context_lost(error.driver_code()),
        };
        let pending =
            runtime.driver.with_relaxed_capture(|| launched().filter(is_pending).map(|(order, _)| order).collect());
        pending.unwrap_or_else(|_| launched().map(|(order, _)| order).collect())
    }
}

/// How much work was launched in each sequence, outside of captures. Its lock is never held during a call of the driver, so it
/// can be asked while a launch waits for room in its stream.
#[derive(Debug, Default)]
pub struct LaunchedWork(Mutex<Vec<SequenceWork>>);

#[derive(Debug, Clone, Copy)]
struct SequenceWork {
    sequence: Sequence,
    /// See [`Addition::parts`].
    parts: u64,
    /// What `parts` was after the last rendezvous, and before the last addition.
    parts_of_rendezvous: u64,
    parts_of_rendezvous_before: u64,
}

impl LaunchedWork {
    /// Adds what is about to be launched.
    pub fn add(&self, additions: &[Addition]) {
        let mut work = self.0.lock();
        for Addition { sequence, parts, is_rendezvous } in additions {
            let index = work.iter().position(|of| of.sequence == *sequence).unwrap_or_else(|| {
                work.push(SequenceWork::new(*sequence));
                work.len() - 1
            });
            let of = &mut work[index];
            of.parts += parts;
            of.parts_of_rendezvous_before = of.parts_of_rendezvous;
            if *is_rendezvous {
                of.parts_of_rendezvous = of.parts;
            }
        }
    }

    /// Undoes the last addition, if nothing was launched.
    pub fn undo(&self, additions: &[Addition]) {
        let mut work = self.0.lock();
        for Addition { sequence, parts, .. } in additions {
            if let Some(of) = work.iter_mut().find(|of| of.sequence == *sequence) {
                of.parts -= parts;
                of.parts_of_rendezvous = of.parts_of_rendezvous_before;
            }
        }
    }

    /// Returns whether work was launched in which a rank that has left does not take part: it cannot complete. A send only
    /// needs free entries, unless it is a rendezvous.
    pub fn exceeds(&self, peer: u32, done: &CompletedWork) -> bool {
        let lacks_room = |parts: u64| parts > done.received + u64::from(ENTRIES);
        self.0.lock().iter().any(|of| match of.sequence {
            Sequence::Collectives => of.parts > done.collectives,
            Sequence::Sends(to) => to == peer && (lacks_room(of.parts) || of.parts_of_rendezvous > done.received),
            Sequence::Receives(from) => from == peer && of.parts > done.sent,
        })
    }
}

impl SequenceWork {
    fn new(sequence: Sequence) -> Self {
        SequenceWork { sequence, parts: 0, parts_of_rendezvous: 0, parts_of_rendezvous_before: 0 }
    }
}

/// The work that a leaving rank has completed with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedWork {
    /// The number of collectives.
    pub collectives: u64,
    /// The number of chunks sent to the other rank, in the lane that every transfer uses.
    pub sent: u64,
    /// The number of chunks received from the other rank.
    pub received: u64,
}

impl CompletedWork {
    /// Returns what a message contains.
    pub fn bytes(&self) -> Vec<u8> {
        [self.collectives, self.sent, self.received].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads it from a message.
    pub fn read(bytes: &[u8]) -> Option<CompletedWork> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let [collectives, sent, received] = numbers else { return None };
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        rest.is_empty().then_some(CompletedWork {
            collectives: number(collectives),
            sent: number(sent),
            received: number(received),
        })
    }
}

impl LaunchOrder {
    fn is_in(&self, additions: &[Addition]) -> bool {
        additions.iter().any(|addition| addition.sequence == self.of)
    }

    fn event(&self) -> Option<&Arc<PooledEvent>> {
        self.eager.as_ref().map(|launch| &launch.event)
    }

    /// Makes the capture the latest one, with an event for its launches.
    fn add_capture(&mut self, capture: u64, device: &Device, driver: &Driver) -> Result<()> {
        let last = match self.captured.iter().position(|last| last.capture == capture) {
            Some(index) => self.captured.remove(index),
            None if self.captured.len() == MAX_CAPTURES => {
                CapturedLaunch { capture, stream: None, event: self.captured.remove(0).event }
            }
            None => CapturedLaunch { capture, stream: None, event: PooledEvent::acquire(device, driver, 0)? },
        };
        self.captured.push(last);
        Ok(())
    }

    /// Makes a stream wait for the last launch, if it may run beside the next one there.
    pub fn wait(&self, runtime: &Runtime, stream: Stream, stream_id: StreamId, capture: Option<u64>) -> Result<()> {
        let awaited = match capture {
            None => self.eager.as_ref().filter(|last| !last.stream.is_same_eager(stream_id)).map(|last| &*last.event),
            Some(id) => {
                let last = self.captured.iter().find(|last| last.capture == id);
                let is_beside = |before: StreamId| !before.is_same_captured(stream_id);
                last.filter(|last| last.stream.is_some_and(is_beside)).map(|last| &last.event)
            }
        };
        match awaited {
            Some(event) => ordering::wait_for_event(runtime, stream, event.native()),
            None => Ok(()),
        }
    }

    /// Launches a kernel, which [`LaunchOrders::record`] must record.
    pub fn launch(
        &mut self,
        driver: &Driver,
        device: &Device,
        stream_id: StreamId,
        capture: Option<u64>,
        kernel: &GroupKernel,
    ) -> Result<()> {
        match capture {
            None => self.prepared.launch(driver, device, stream_id, kernel),
            Some(_) => Ok(driver.launch_call(kernel, stream_id.native())?),
        }
    }

    fn record_captured(&mut self, driver: &Driver, stream_id: StreamId, capture: Option<u64>) -> Result<()> {
        if let Some(last) = self.captured.iter_mut().find(|last| Some(last.capture) == capture) {
            driver.event_record(last.event.native(), stream_id.native())?;
            last.stream = Some(stream_id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_exceeds_what_a_rank_has_done_until_it_is_undone() {
        let work = LaunchedWork::default();
        let done = |sent, received| CompletedWork { collectives: 2, sent, received };
        let add = |sequence, parts, is_rendezvous| {
            let addition = [Addition { sequence, parts, is_rendezvous }];
            work.add(&addition);
            addition
        };
        add(Sequence::Collectives, 1, false);
        add(Sequence::Collectives, 1, false);
        assert!(!work.exceeds(1, &done(0, 0)));
        let third = add(Sequence::Collectives, 1, false);
        assert!(work.exceeds(1, &done(0, 0)));
        work.undo(&third);
        assert!(!work.exceeds(1, &done(0, 0)));
        // Four entries are free.
        add(Sequence::Sends(1), 4, false);
        assert!(!work.exceeds(1, &done(0, 0)));
        let fifth = add(Sequence::Sends(1), 1, false);
        assert!(work.exceeds(1, &done(0, 0)) && !work.exceeds(2, &done(0, 0)) && !work.exceeds(1, &done(0, 1)));
        work.undo(&fifth);
        // A rendezvous needs the receiver, also after an eager send.
        add(Sequence::Sends(2), 1, true);
        let eager = add(Sequence::Sends(2), 1, false);
        assert!(work.exceeds(2, &done(0, 0)) && !work.exceeds(2, &done(0, 1)));
        work.undo(&eager);
        let second = add(Sequence::Sends(2), 1, true);
        assert!(work.exceeds(2, &done(0, 1)));
        work.undo(&second);
        assert!(!work.exceeds(2, &done(0, 1)) && work.exceeds(2, &done(0, 0)));
        add(Sequence::Receives(3), 1, false);
        assert!(work.exceeds(3, &done(0, 0)) && !work.exceeds(3, &done(1, 0)));
    }
}
