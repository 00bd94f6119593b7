//! Streams: ordered queues of work, and the order that the legacy default stream imposes on the others.

use super::{
    capture::CaptureState,
    context,
    engine::Engine,
    graph::{
        exec::Retired,
        plan::{Place, Program},
    },
    ids::{self, Id},
    shared::Shared,
    signal::Signal,
    work::{HostCall, Work},
};
use crate::driver::{codes, table::Code, types::*};
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{Arc, Weak},
};

/// The range of priorities: lower numbers go first.
pub const LEAST_PRIORITY: i32 = 0;
pub const GREATEST_PRIORITY: i32 = -5;

/// What a stream is to the program.
pub enum Kind {
    /// The legacy default stream of its context.
    Legacy,
    /// The default stream of one thread, which is gone when the reference is dead.
    PerThread(Weak<()>),
    Created,
    /// A branch of an instantiated graph: the program does not know it.
    Branch,
}

/// One entry of a stream's queue.
pub enum Op {
    Signal(Arc<Signal>),
    Wait(Arc<Signal>),
    /// Starts a branch of a graph behind the launching stream, with that one's error or with none.
    Begin(Arc<Signal>),
    /// Waits for another branch of the same graph, and fails with it.
    Join(Arc<Signal>),
    /// Tells other processes that a recording of a shared event has been reached.
    Publish(Arc<Shared>, u32),
    /// Waits for a recording that another process made.
    Await(Arc<Shared>, u32),
    Work(Work),
    /// The free of a piece of a device's pool, by its number.
    Free(usize, u64),
    Host(HostCall),
    /// Gives the conditions of a graph their default values.
    Reset(Arc<Program>),
    /// A conditional node: what it picks goes in front of the rest.
    Choose(Arc<Program>, Place),
    /// Gives up what an executable graph held.
    Retire(Retired),
}

pub struct Stream {
    pub device: usize,
    pub kind: Kind,
    /// The green context that it was made in, as a context; 0 for none.
    pub green: Id,
    pub flags: u32,
    pub priority: i32,
    /// What `cuStreamGetId` says.
    pub number: u64,
    pub queue: VecDeque<Op>,
    /// Whether its first work runs or waits for a thread to run it.
    pub busy: bool,
    /// Whether it is parked at the signal in front.
    pub parked: bool,
    pub destroyed: bool,
    /// The first error of its work: the rest is skipped, and it stays.
    pub error: Code,
    /// How much the program has put in.
    submitted: u64,
    /// `submitted` when the legacy stream last waited for this one.
    ordered: u64,
    pub capture: Option<CaptureState>,
}

impl Stream {
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.busy
    }

    /// Whether the legacy stream waits for it and it for the legacy stream.
    pub fn is_blocking(&self) -> bool {
        matches!(self.kind, Kind::Created | Kind::PerThread(_)) && self.flags & CU_STREAM_NON_BLOCKING == 0
    }

    /// Whether the program knows it and has not destroyed it.
    pub fn is_visible(&self) -> bool {
        !self.destroyed && !matches!(self.kind, Kind::Branch)
    }

    pub fn check(&self) -> Result<(), Code> {
        if self.error == codes::CUDA_SUCCESS { Ok(()) } else { Err(self.error) }
    }
}

/// A thread's default streams.
#[derive(Default)]
struct Defaults {
    /// Its end tells the engine that the thread is gone.
    alive: Arc<()>,
    /// The stream for each device that has one.
    streams: Vec<(usize, Id)>,
}

thread_local! {
    static DEFAULTS: RefCell<Defaults> = RefCell::new(Defaults::default());
}

impl Engine {
    pub fn create_stream(&mut self, device: usize, kind: Kind, flags: u32, priority: i32) -> Id {
        let id = ids::next();
        self.stream_number += 1;
        let stream = Stream {
            device,
            kind,
            green: 0,
            flags,
            priority: priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY),
            number: self.stream_number,
            queue: VecDeque::new(),
            busy: false,
            parked: false,
            destroyed: false,
            error: codes::CUDA_SUCCESS,
            submitted: 0,
            ordered: 0,
            capture: None,
        };
        self.streams.insert(id, stream);
        self.devices[device].streams.push(id);
        id
    }

    /// The stream that a handle means; `current` is the current context's device.
    pub fn find_stream(&mut self, handle: CUstream, current: Result<usize, Code>) -> Result<Id, Code> {
        match handle as usize {
            0 | CU_STREAM_LEGACY => Ok(self.legacy(current?)),
            CU_STREAM_PER_THREAD => self.per_thread(current?),
            handle => {
                let id = handle as Id;
                let stream = self.streams.get(&id).filter(|stream| stream.is_visible());
                stream.map(|_| id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    fn legacy(&mut self, device: usize) -> Id {
        if let Some(id) = self.devices[device].legacy {
            return id;
        }
        let id = self.create_stream(device, Kind::Legacy, CU_STREAM_DEFAULT, LEAST_PRIORITY);
        self.devices[device].legacy = Some(id);
        id
    }

    fn per_thread(&mut self, device: usize) -> Result<Id, Code> {
        let known = DEFAULTS.try_with(|own| {
            let own = own.borrow();
            let id = own.streams.iter().find(|(of, _)| *of == device).map(|(_, id)| *id);
            id.ok_or_else(|| Arc::downgrade(&own.alive))
        });
        // A thread that is ending has no default stream any more.
        let alive = match known.map_err(|_| codes::CUDA_ERROR_DEINITIALIZED)? {
            Ok(id) => return Ok(id),
            Err(alive) => alive,
        };
        self.drop_orphans(device);
        let id = self.create_stream(device, Kind::PerThread(alive), CU_STREAM_DEFAULT, LEAST_PRIORITY);
        DEFAULTS.with_borrow_mut(|own| own.streams.push((device, id)));
        Ok(id)
    }

    /// Drops the default streams of threads that are gone.
    fn drop_orphans(&mut self, device: usize) {
        for id in self.devices[device].streams.clone() {
            if let Some(stream) = self.streams.get_mut(&id)
                && let Kind::PerThread(alive) = &stream.kind
                && alive.strong_count() == 0
                && stream.capture.is_none()
            {
                stream.destroyed = true;
                self.advance(id);
            }
        }
    }

    /// Lets a stream end when its work has.
    pub fn destroy_stream(&mut self, id: Id) {
        self.leave_capture(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        self.advance(id);
    }

    /// Puts an operation of the program's into a stream, in the order that the legacy stream imposes.
    pub fn submit(&mut self, id: Id, op: Op) {
        self.order(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.submitted += 1;
        }
        self.push(id, op);
    }

    /// Puts an operation into a stream as it is.
    pub fn push(&mut self, id: Id, op: Op) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue.push_back(op);
            if !stream.busy && !stream.parked {
                self.advance(id);
            }
        }
    }

    /// Counts work that was put in by `push`, so that the legacy stream knows of it.
    pub fn note_submission(&mut self, id: Id) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.submitted += 1;
        }
    }

    /// Makes the legacy stream wait for the blocking ones, or a blocking one for the legacy stream.
    pub fn order(&mut self, id: Id) {
        let Some(stream) = self.streams.get(&id) else { return };
        let device = stream.device;
        if matches!(stream.kind, Kind::Legacy) {
            for other in self.devices[device].streams.clone() {
                let Some(before) = self.streams.get_mut(&other) else { continue };
                if before.is_blocking() && !before.is_idle() && before.ordered != before.submitted {
                    before.ordered = before.submitted;
                    self.chain(other, id);
                }
            }
        } else if stream.is_blocking()
            && let Some(legacy_id) = self.devices[device].legacy
            && let Some(legacy) = self.streams.get(&legacy_id)
            && !legacy.is_idle()
        {
            // Waiting again for what was waited for already is harmless, and rare: the legacy stream is seldom busy.
            self.chain(legacy_id, id);
        }
    }

    /// Makes what comes next in `after` wait for all that is in `before`.
    fn chain(&mut self, before: Id, after: Id) {
        let signal = self.mark(before);
        self.push(after, Op::Wait(signal));
    }

    /// A signal that is reached after all that is in a stream now.
    pub fn mark(&mut self, id: Id) -> Arc<Signal> {
        let signal = Signal::new();
        self.push(id, Op::Signal(signal.clone()));
        signal
    }

    /// A signal at the end of what is in a stream now; `None` when there is nothing.
    pub fn tail(&mut self, id: Id) -> Option<Arc<Signal>> {
        if matches!(self.streams.get(&id)?.kind, Kind::Legacy) {
            self.order(id);
        }
        if self.streams.get(&id)?.is_idle() {
            return None;
        }
        Some(self.mark(id))
    }

    /// Whether the stream's work is done, that of the streams it waits for included.
    pub fn query_stream(&self, id: Id) -> Result<(), Code> {
        let Some(stream) = self.streams.get(&id) else { return Err(codes::CUDA_ERROR_INVALID_HANDLE) };
        stream.check()?;
        let idle = stream.is_idle()
            && (!matches!(stream.kind, Kind::Legacy)
                || self.devices[stream.device]
                    .streams
                    .iter()
                    .filter_map(|other| self.streams.get(other))
                    .all(|other| !other.is_blocking() || other.is_idle()));
        if idle { Ok(()) } else { Err(codes::CUDA_ERROR_NOT_READY) }
    }

    /// Signals at the ends of everything that is in a device's streams now.
    pub fn tails(&mut self, device: usize) -> Vec<Arc<Signal>> {
        self.devices[device].streams.clone().into_iter().filter_map(|id| self.tail(id)).collect()
    }

    /// The first error among a device's streams.
    pub fn device_error(&self, device: usize) -> Result<(), Code> {
        self.streams
            .values()
            .filter(|stream| stream.device == device && stream.is_visible())
            .try_for_each(Stream::check)
    }

    /// The device that a stream belongs to.
    pub fn stream_device(&self, id: Id) -> Result<usize, Code> {
        self.streams.get(&id).map(|stream| stream.device).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Sleeps until everything that is in a device's streams now is done.
pub fn synchronize_device(state: &'static super::state::State, device: usize) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let errors: Vec<_> = engine.tails(device).iter().filter_map(|signal| signal.wait(&mut engine).err()).collect();
    errors.first().map_or_else(|| engine.device_error(device), |error| Err(*error))
}

/// Sleeps until everything that is in a stream now is done.
pub fn synchronize_stream(state: &'static super::state::State, handle: CUstream) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    if let Some(signal) = engine.tail(id) {
        signal.wait(&mut engine)?;
    }
    engine.streams.get(&id).map_or(Ok(()), Stream::check)
}
