//! Events. Each recording creates a new signal; an event refers to its last recording.

use super::{
    context,
    engine::Engine,
    graph::Action,
    ids::{self, Id},
    shared::SharedEvent,
    signal::Signal,
    state::{self, State},
    stream::{Kind, LEAST_PRIORITY, Op},
};
use crate::driver::{codes, table::Code, types::*};
use std::sync::Arc;

pub struct Event {
    pub device: usize,
    pub flags: u32,
    /// The last recording in this process; `None` before the first.
    pub signal: Option<Arc<Signal>>,
    /// The capture and the frontier that the event refers to, if it was last recorded in a capture.
    pub captured: Option<(Id, Vec<usize>)>,
    pub shared: Option<Arc<SharedEvent>>,
    /// The number of this process's last recording among the shared recordings.
    recording: u32,
}

/// The last recording of an event, which a wait refers to.
pub enum LastRecording {
    Never,
    Local(Arc<Signal>),
    Remote(Arc<SharedEvent>, u32),
}

impl Event {
    pub fn last_recording(&self) -> LastRecording {
        if let Some(shared) = &self.shared {
            let latest = shared.last_recording();
            if latest != self.recording {
                return LastRecording::Remote(shared.clone(), latest);
            }
        }
        self.signal.as_ref().map_or(LastRecording::Never, |signal| LastRecording::Local(signal.clone()))
    }

    fn is_timed(&self) -> bool {
        self.flags & CU_EVENT_DISABLE_TIMING == 0
    }
}

const FLAGS: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

impl Engine {
    pub fn create_event(&mut self, device: usize, flags: u32) -> Result<Id, Code> {
        let interprocess = flags & CU_EVENT_INTERPROCESS != 0;
        if flags & !FLAGS != 0 || (interprocess && flags & CU_EVENT_DISABLE_TIMING == 0) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let shared = if interprocess { Some(SharedEvent::create()?) } else { None };
        Ok(self.add_event(device, flags, shared))
    }

    /// Opens another process's event.
    pub fn open_event(&mut self, device: usize, handle: &[u8; 64]) -> Result<Id, Code> {
        let shared = SharedEvent::open(handle)?;
        Ok(self.add_event(device, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, Some(shared)))
    }

    fn add_event(&mut self, device: usize, flags: u32, shared: Option<Arc<SharedEvent>>) -> Id {
        let id = ids::next();
        self.events.insert(id, Event { device, flags, signal: None, captured: None, shared, recording: 0 });
        id
    }

    pub fn event(&self, id: Id) -> Result<&Event, Code> {
        self.events.get(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Records an event in a stream, or in the capture that the stream is part of.
    pub fn record(&mut self, id: Id, stream: Id, external: bool) -> Result<(), Code> {
        let capture = self.capture_of(stream)?;
        let event = self.event(id)?;
        if event.device != self.stream_device(stream)? {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        let interprocess = event.shared.is_some();
        match capture {
            None if external => return Err(codes::CUDA_ERROR_ILLEGAL_STATE),
            Some(_) if external => {
                self.add_node(stream, Action::Record(id));
            }
            // A graph cannot refer to a point that other processes wait for.
            Some(_) if interprocess => return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            Some(capture) => {
                let frontier = self.frontier(stream);
                if let Some(event) = self.events.get_mut(&id) {
                    event.captured = Some((capture, frontier));
                }
            }
            None => {
                self.order_with_legacy(stream);
                self.count_submission(stream);
                self.push_record(id, stream);
            }
        }
        Ok(())
    }

    /// Records an event after all work that is now in a device's streams.
    pub fn record_in_device(&mut self, id: Id, device: usize) -> Result<(), Code> {
        if self.event(id)?.device != device {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        let signals = self.tail_signals(device);
        let stream = self.create_stream(device, Kind::Branch, CU_STREAM_NON_BLOCKING, LEAST_PRIORITY);
        signals.into_iter().for_each(|signal| self.push(stream, Op::Wait(signal)));
        self.push_record(id, stream);
        self.destroy_stream(stream);
        Ok(())
    }

    /// Pushes a recording to a stream, without capture or ordering with the legacy stream.
    pub fn push_record(&mut self, id: Id, stream: Id) {
        let Some(event) = self.events.get_mut(&id) else { return };
        let signal = Signal::new();
        event.signal = Some(signal.clone());
        event.captured = None;
        let shared = event.shared.clone().map(|shared| {
            let recording = shared.begin_recording();
            event.recording = recording;
            (shared, recording)
        });
        self.push(stream, Op::Signal(signal));
        if let Some((shared, recording)) = shared {
            self.push(stream, Op::Publish(shared, recording));
        }
    }

    /// Makes a stream wait for an event, or join the capture that the event was recorded in.
    ///
    /// A wait that fails invalidates the stream's capture; a recording that fails does not.
    pub fn wait_event(&mut self, stream: Id, id: Id, external: bool) -> Result<(), Code> {
        let own = self.capture_of(stream)?;
        let result = self.wait_event_in(own, stream, id, external);
        if let Some(own) = own.filter(|_| result.is_err()) {
            self.invalidate(own);
        }
        result
    }

    fn wait_event_in(&mut self, own: Option<Id>, stream: Id, id: Id, external: bool) -> Result<(), Code> {
        let event = self.event(id)?;
        let (captured, interprocess) = (event.captured.clone(), event.shared.is_some());
        let never = matches!(event.last_recording(), LastRecording::Never);
        match (own, captured) {
            // Nothing can wait for a point inside a capture that has failed or ended.
            (_, Some((other, _))) if self.captures.get(&other).is_none_or(|capture| capture.invalid) => {
                Err(codes::CUDA_ERROR_INVALID_VALUE)
            }
            (None, _) if external => Err(codes::CUDA_ERROR_ILLEGAL_STATE),
            (Some(_), _) if external => {
                self.add_node(stream, Action::Wait(id));
                Ok(())
            }
            (Some(_), _) if interprocess => Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (Some(own), Some((other, _))) if own != other => {
                self.invalidate(other);
                Err(codes::CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            (Some(own), Some((other, nodes))) if own == other => {
                self.extend_frontier(stream, &nodes);
                Ok(())
            }
            (Some(_), None) if never => Ok(()),
            (Some(_), _) => Err(codes::CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
            (None, Some((capture, nodes))) => self.join_capture(stream, capture, nodes),
            (None, None) if never => Ok(()),
            (None, None) => {
                self.order_with_legacy(stream);
                self.count_submission(stream);
                self.push_wait(stream, id)
            }
        }
    }

    /// Pushes a wait to a stream, without capture or ordering with the legacy stream.
    pub fn push_wait(&mut self, stream: Id, id: Id) -> Result<(), Code> {
        match self.event(id)?.last_recording() {
            LastRecording::Never => {}
            LastRecording::Local(signal) => self.push(stream, Op::Wait(signal)),
            LastRecording::Remote(shared, recording) => self.push(stream, Op::WaitShared(shared, recording)),
        }
        Ok(())
    }

    /// Refuses queries of an event that was last recorded in a capture. An H200's driver behaves the same: the first
    /// query during a capture returns `CUDA_ERROR_CAPTURED_EVENT` and invalidates the capture; from then on, and after
    /// the end of the capture, the event is an invalid value until it is recorded again.
    fn check_not_captured(&mut self, id: Id) -> Result<(), Code> {
        let Some((capture, _)) = self.event(id)?.captured else { return Ok(()) };
        let refused = self.refuse_captured(id);
        self.invalidate(capture);
        refused
    }

    /// As [`check_not_captured`](Self::check_not_captured), but the capture goes on.
    fn refuse_captured(&self, id: Id) -> Result<(), Code> {
        match &self.event(id)?.captured {
            Some((capture, _)) if self.captures.get(capture).is_some_and(|capture| !capture.invalid) => {
                Err(codes::CUDA_ERROR_CAPTURED_EVENT)
            }
            Some(_) => Err(codes::CUDA_ERROR_INVALID_VALUE),
            None => Ok(()),
        }
    }

    /// Returns an event if the CPU may query it or wait for it now.
    fn queryable_event(&mut self, id: Id) -> Result<&Event, Code> {
        self.check_not_captured(id)?;
        self.forbid_unsafe(context::thread_number())?;
        self.event(id)
    }

    pub fn query_event(&mut self, id: Id) -> Result<(), Code> {
        let event = self.queryable_event(id)?;
        match event.last_recording() {
            LastRecording::Never => {}
            LastRecording::Local(signal) => signal.query()?,
            LastRecording::Remote(shared, recording) if shared.is_finished(recording) => {}
            LastRecording::Remote(..) => return Err(codes::CUDA_ERROR_NOT_READY),
        }
        context::check(state::get()?, event.device)
    }

    /// Returns the milliseconds between the completions of two recordings.
    pub fn elapsed(&mut self, start: Id, end: Id) -> Result<f32, Code> {
        let device = self.event(start)?.device;
        let mut instants = [None, None];
        for (instant, id) in instants.iter_mut().zip([start, end]) {
            self.refuse_captured(id)?;
            let event = self.event(id)?;
            if !event.is_timed() || event.device != device {
                return Err(codes::CUDA_ERROR_INVALID_HANDLE);
            }
            *instant = Some(event.signal.clone().ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?);
        }
        let [Some(start), Some(end)] = instants else { return Err(codes::CUDA_ERROR_INVALID_HANDLE) };
        start.query()?;
        end.query()?;
        context::check(state::get()?, device)?;
        let (Some(start), Some(end)) = (start.completed_at(), end.completed_at()) else {
            return Err(codes::CUDA_ERROR_NOT_READY);
        };
        let seconds = match end.checked_duration_since(start) {
            Some(after) => after.as_secs_f64(),
            None => -start.duration_since(end).as_secs_f64(),
        };
        Ok((seconds * 1e3) as f32)
    }
}

/// Blocks until an event's last recording is complete.
pub fn synchronize_event(state: &'static State, id: Id) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let event = engine.queryable_event(id)?;
    let device = event.device;
    match event.last_recording() {
        LastRecording::Never => {}
        LastRecording::Local(signal) => signal.wait(&mut engine)?,
        LastRecording::Remote(shared, recording) => {
            drop(engine);
            shared.wait(recording)?;
        }
    }
    context::check(state, device)
}
