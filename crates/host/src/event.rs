//! Events. Each recording makes a new signal; an event stands for the last one.

use super::{
    context,
    engine::Engine,
    graph::Action,
    ids::{self, Id},
    shared::Shared,
    signal::Signal,
    state::State,
    stream::Op,
};
use crate::driver::{codes, table::Code, types::*};
use std::sync::Arc;

pub struct Event {
    pub device: usize,
    pub flags: u32,
    /// The last recording in this process; `None` before the first.
    pub signal: Option<Arc<Signal>>,
    /// The capture and the nodes that the event stands for, when it was last recorded in a capture.
    pub captured: Option<(Id, Vec<usize>)>,
    pub shared: Option<Arc<Shared>>,
    /// The number among the shared recordings of the last one in this process.
    recording: u32,
}

/// What an event stands for when somebody waits for it.
pub enum Recorded {
    Never,
    Here(Arc<Signal>),
    Elsewhere(Arc<Shared>, u32),
}

impl Event {
    pub fn recorded(&self) -> Recorded {
        if let Some(shared) = &self.shared {
            let latest = shared.recorded();
            if latest != self.recording {
                return Recorded::Elsewhere(shared.clone(), latest);
            }
        }
        self.signal.as_ref().map_or(Recorded::Never, |signal| Recorded::Here(signal.clone()))
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
        let shared = if interprocess { Some(Shared::create()?) } else { None };
        Ok(self.add_event(device, flags, shared))
    }

    /// Makes another process's event known here.
    pub fn open_event(&mut self, device: usize, handle: &[u8; 64]) -> Result<Id, Code> {
        let shared = Shared::open(handle)?;
        Ok(self.add_event(device, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, Some(shared)))
    }

    fn add_event(&mut self, device: usize, flags: u32, shared: Option<Arc<Shared>>) -> Id {
        let id = ids::next();
        self.events.insert(id, Event { device, flags, signal: None, captured: None, shared, recording: 0 });
        id
    }

    pub fn event(&self, id: Id) -> Result<&Event, Code> {
        self.events.get(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Records an event in a stream, or in the capture that the stream is part of.
    pub fn record(&mut self, id: Id, stream: Id, external: bool) -> Result<(), Code> {
        if self.event(id)?.device != self.stream_device(stream)? {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        match self.capture_of(stream)? {
            Some(_) if external => {
                self.add_node(stream, Action::Record(id));
            }
            Some(capture) => {
                let frontier = self.frontier(stream);
                if let Some(event) = self.events.get_mut(&id) {
                    event.captured = Some((capture, frontier));
                }
            }
            None => {
                self.order(stream);
                self.note_submission(stream);
                self.record_now(id, stream);
            }
        }
        Ok(())
    }

    /// Puts a recording into a stream as it is.
    pub fn record_now(&mut self, id: Id, stream: Id) {
        let Some(event) = self.events.get_mut(&id) else { return };
        let signal = Signal::new();
        event.signal = Some(signal.clone());
        event.captured = None;
        let shared = event.shared.clone().map(|shared| {
            let recording = shared.begin();
            event.recording = recording;
            (shared, recording)
        });
        self.push(stream, Op::Signal(signal));
        if let Some((shared, recording)) = shared {
            self.push(stream, Op::Publish(shared, recording));
        }
    }

    /// Makes a stream wait for an event, or join the capture that the event was recorded in.
    pub fn wait_event(&mut self, stream: Id, id: Id, external: bool) -> Result<(), Code> {
        let event = self.event(id)?;
        let captured = event.captured.clone();
        let never = matches!(event.recorded(), Recorded::Never);
        match (self.capture_of(stream)?, captured) {
            (Some(_), _) if external => {
                self.add_node(stream, Action::Wait(id));
                Ok(())
            }
            (Some(own), Some((other, _))) if own != other && self.captures.contains_key(&other) => {
                self.invalidate(own);
                self.invalidate(other);
                Err(codes::CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            (Some(own), Some((other, nodes))) if own == other => {
                self.depend(stream, &nodes);
                Ok(())
            }
            (Some(_), None) if never => Ok(()),
            (Some(own), _) => {
                self.invalidate(own);
                Err(codes::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (None, Some((capture, nodes))) => self.join(stream, capture, nodes),
            (None, None) => {
                self.order(stream);
                self.note_submission(stream);
                self.wait_now(stream, id)
            }
        }
    }

    /// Puts a wait into a stream as it is.
    pub fn wait_now(&mut self, stream: Id, id: Id) -> Result<(), Code> {
        match self.event(id)?.recorded() {
            Recorded::Never => {}
            Recorded::Here(signal) => self.push(stream, Op::Wait(signal)),
            Recorded::Elsewhere(shared, recording) => self.push(stream, Op::Await(shared, recording)),
        }
        Ok(())
    }

    /// Refuses to be asked about an event that was last recorded in a capture. As an H200's driver answers: a capture
    /// under way is named and becomes invalid; from then on, and after its end, the event is merely not valid until it
    /// is recorded again.
    fn refuse_captured(&mut self, id: Id) -> Result<(), Code> {
        let Some((capture, _)) = self.event(id)?.captured else { return Ok(()) };
        if self.captures.get(&capture).is_none_or(|capture| capture.invalid) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        self.invalidate(capture);
        Err(codes::CUDA_ERROR_CAPTURED_EVENT)
    }

    /// An event that may be asked about or waited for by the CPU now.
    fn event_to_ask(&mut self, id: Id) -> Result<&Event, Code> {
        self.refuse_captured(id)?;
        self.forbid_unsafe(context::thread())?;
        self.event(id)
    }

    pub fn query_event(&mut self, id: Id) -> Result<(), Code> {
        match self.event_to_ask(id)?.recorded() {
            Recorded::Never => Ok(()),
            Recorded::Here(signal) => signal.query(),
            Recorded::Elsewhere(shared, recording) if shared.is_finished(recording) => Ok(()),
            Recorded::Elsewhere(..) => Err(codes::CUDA_ERROR_NOT_READY),
        }
    }

    /// Milliseconds between the instants at which two recordings were reached.
    pub fn elapsed(&mut self, start: Id, end: Id) -> Result<f32, Code> {
        let device = self.event(start)?.device;
        let mut instants = [None, None];
        for (place, id) in instants.iter_mut().zip([start, end]) {
            self.refuse_captured(id)?;
            let event = self.event(id)?;
            if !event.is_timed() || event.device != device {
                return Err(codes::CUDA_ERROR_INVALID_HANDLE);
            }
            *place = Some(event.signal.clone().ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?);
        }
        let [Some(start), Some(end)] = instants else { return Err(codes::CUDA_ERROR_INVALID_HANDLE) };
        start.query()?;
        end.query()?;
        let (Some(start), Some(end)) = (start.reached(), end.reached()) else {
            return Err(codes::CUDA_ERROR_NOT_READY);
        };
        let seconds = match end.checked_duration_since(start) {
            Some(after) => after.as_secs_f64(),
            None => -start.duration_since(end).as_secs_f64(),
        };
        Ok((seconds * 1e3) as f32)
    }
}

/// Sleeps until an event's last recording has been reached.
pub fn synchronize_event(state: &'static State, id: Id) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    match engine.event_to_ask(id)?.recorded() {
        Recorded::Never => Ok(()),
        Recorded::Here(signal) => signal.wait(&mut engine),
        Recorded::Elsewhere(shared, recording) => {
            drop(engine);
            shared.wait(recording)
        }
    }
}
