//! Streams: ordered queues of work, and the order that the legacy default stream imposes on the others.

use super::{
    capture::CaptureState,
    context,
    engine::Engine,
    graph::{
        exec::Retired,
        plan::{PlanIndex, Program},
    },
    ids::{self, Id},
    scheduler::RETRY_INTERVAL,
    shared::SharedEvent,
    signal::Signal,
    state,
    work::{HostCall, Work},
};
use crate::driver::{codes, signals, table::Code, types::*, work_report};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, MutexGuard};
use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// The range of priorities: lower numbers go first.
pub const LEAST_PRIORITY: i32 = 0;
pub const GREATEST_PRIORITY: i32 = -5;

/// The number of operations from which on a queue is full. Drivers take about as many launches.
const LONGEST_QUEUE: usize = 1024;

/// The kind of a stream, as the program sees it.
pub enum Kind {
    /// The legacy default stream of its context.
    Legacy,
    /// The default stream of one thread. The thread has ended when the reference is dead.
    PerThread(Weak<()>),
    Created,
    /// A branch of an instantiated graph, which the program does not see.
    Branch,
}

/// One operation in a stream's queue.
pub enum Op {
    Signal(Arc<Signal>),
    Wait(Arc<Signal>),
    /// Starts a branch of a graph after the launching stream's signal, and replaces the branch's error by that
    /// stream's.
    Fork(Arc<Signal>),
    /// Waits for another branch of the same graph, and fails if that branch failed.
    Join(Arc<Signal>),
    /// Notifies other processes that a recording of a shared event is complete.
    Publish(Arc<SharedEvent>, u32),
    /// Waits for a recording that another process made.
    WaitShared(Arc<SharedEvent>, u32),
    Work(Work),
    /// A stream-ordered free of a block of a device's pool, by its ticket.
    Free(usize, u64),
    /// A stream-ordered free of memory that a graph allocated, by its address.
    FreeGraphMemory(u64),
    Host(HostCall),
    /// Resets the conditions of a graph to their default values.
    ResetConditions(Arc<Program>),
    /// A conditional node. The operations of the body that it selects are inserted before the rest of the queue.
    Conditional(Arc<Program>, PlanIndex),
    /// Releases the resources of an executable graph.
    Retire(Retired),
}

pub struct Stream {
    pub device: usize,
    pub kind: Kind,
    /// The context handle of the green context in which the stream was created; 0 for none.
    pub green: Id,
    pub flags: u32,
    pub priority: i32,
    /// The number that `cuStreamGetId` returns.
    pub number: u64,
    pub queue: VecDeque<Op>,
    /// Threads that sleep until the queue has room, with the engine's lock.
    room: Arc<Condvar>,
    /// Whether its first operation runs or waits for a thread to run it.
    pub busy: bool,
    /// Whether that operation is a copy.
    pub copying: bool,
    /// Whether it is parked until the signal at the front of the queue completes.
    pub parked: bool,
    pub destroyed: bool,
    /// The first error of its work, or of other work of the device. It is permanent, and the rest of the work is skipped.
    pub error: Code,
    /// The number of operations that the program has submitted.
    submitted: u64,
    /// `submitted` when the legacy stream last waited for this one.
    ordered: u64,
    pub capture: Option<CaptureState>,
}

impl Stream {
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.busy
    }

    /// Returns whether this stream and the legacy stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        matches!(self.kind, Kind::Created | Kind::PerThread(_)) && self.flags & CU_STREAM_NON_BLOCKING == 0
    }

    /// Returns whether the program can use the stream's handle.
    pub fn is_visible(&self) -> bool {
        !self.destroyed && !matches!(self.kind, Kind::Branch)
    }

    /// Returns whether the program must wait before it adds work; a capture has room for any number of nodes.
    fn is_full(&self) -> bool {
        self.queue.len() >= LONGEST_QUEUE && self.capture.is_none()
    }

    /// Removes the first operation.
    pub fn pop(&mut self) -> Option<Op> {
        let op = self.queue.pop_front();
        if self.queue.len() < LONGEST_QUEUE {
            self.room.notify_all();
        }
        op
    }

    pub fn check(&self) -> Result<(), Code> {
        if self.error == codes::CUDA_SUCCESS { Ok(()) } else { Err(self.error) }
    }
}

/// A thread's default streams.
#[derive(Default)]
struct Defaults {
    /// When it is dropped, the engine detects that the thread has ended.
    alive: Arc<()>,
    /// The stream for each device that has one, as (device, stream).
    streams: RefCell<Vec<(usize, Id)>>,
}

impl Defaults {
    /// Returns the calling thread's default streams. They live until after the destructors of the thread's variables, as a
    /// driver's do, which ends them in the destructor of a key. A thread that uses one still later gets a new one.
    #[allow(unsafe_code)]
    fn of_thread() -> Option<Rc<Defaults>> {
        static KEY: OnceCell<Option<libc::pthread_key_t>> = OnceCell::new();
        unsafe extern "C" fn end(defaults: *mut libc::c_void) {
            // A signal handler of the program must not interrupt the C library's allocator here: it may make a call.
            let _blocked = signals::block();
            // SAFETY: the value of the key, which is set below only, and to NULL before this call.
            drop(unsafe { Rc::from_raw(defaults.cast::<Defaults>()) });
        }
        let key = (*KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: the key is a valid output, and the destructor takes the values that are set below.
            (unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0).then_some(key)
        }))?;
        // SAFETY: the key is never deleted.
        let known = unsafe { libc::pthread_getspecific(key) }.cast::<Defaults>();
        if !known.is_null() {
            // SAFETY: the key's value is from `Rc::into_raw`, and this thread has not ended it; the count includes the result.
            return Some(unsafe {
                Rc::increment_strong_count(known);
                Rc::from_raw(known)
            });
        }
        let defaults = Rc::new(Defaults::default());
        let value = Rc::into_raw(defaults.clone());
        // SAFETY: the key is never deleted, and its destructor takes the value.
        if unsafe { libc::pthread_setspecific(key, value.cast()) } != 0 {
            // SAFETY: the value is from `Rc::into_raw`, and the key did not take it.
            drop(unsafe { Rc::from_raw(value) });
            return None;
        }
        Some(defaults)
    }
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
            room: Arc::default(),
            busy: false,
            copying: false,
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

    /// Returns the stream of a handle. `current` is the current context's device. Fails if work has ended the stream's
    /// context.
    pub fn find_stream(&mut self, handle: CUstream, current: Result<usize, Code>) -> Result<Id, Code> {
        let id = self.find_lost_stream(handle, current)?;
        context::check(state::get()?, self.stream_device(id)?).map(|()| id)
    }

    /// As [`find_stream`](Self::find_stream), also if work has ended the stream's context.
    pub fn find_lost_stream(&mut self, handle: CUstream, current: Result<usize, Code>) -> Result<Id, Code> {
        match handle as usize {
            0 | CU_STREAM_LEGACY => Ok(self.find_or_create_legacy(current?)),
            CU_STREAM_PER_THREAD => self.find_or_create_per_thread(current?),
            handle => {
                let id = handle as Id;
                match self.streams.get(&id) {
                    Some(stream) if stream.is_visible() => Ok(id),
                    _ if self.destroyed_streams.contains(&id) => Err(self.use_destroyed_stream(id)),
                    _ => Err(codes::CUDA_ERROR_INVALID_HANDLE),
                }
            }
        }
    }

    /// Ends all contexts. A driver reads freed memory if it is passed the handle of a destroyed stream: it may
    /// crash, or use another stream. A program must not be able to miss that here.
    #[cold]
    fn use_destroyed_stream(&mut self, id: Id) -> Code {
        let report = format!("a call used the stream {id:#x}, which is destroyed");
        work_report::set(Some((codes::CUDA_ERROR_ILLEGAL_ADDRESS, report)));
        (0..self.devices.len()).for_each(|device| self.lose_context(device, codes::CUDA_ERROR_ILLEGAL_ADDRESS));
        codes::CUDA_ERROR_ILLEGAL_ADDRESS
    }

    /// Ends a device's contexts because of work that failed. The captures of its streams end, since no call can end them any
    /// more, and the rest of the work in all its streams is skipped. Work that runs now goes on; until it is done, queries
    /// of its stream and its events report that it is not ready.
    pub fn lose_context(&mut self, device: usize, error: Code) {
        if let Ok(state) = state::get() {
            context::lose(state, device, error);
        }
        for id in self.devices[device].streams.clone() {
            self.leave_capture(id);
            if let Some(stream) = self.streams.get_mut(&id)
                && stream.error == codes::CUDA_SUCCESS
            {
                stream.error = error;
            }
        }
    }

    fn find_or_create_legacy(&mut self, device: usize) -> Id {
        if let Some(id) = self.devices[device].legacy {
            return id;
        }
        let id = self.create_stream(device, Kind::Legacy, CU_STREAM_DEFAULT, LEAST_PRIORITY);
        self.devices[device].legacy = Some(id);
        id
    }

    fn find_or_create_per_thread(&mut self, device: usize) -> Result<Id, Code> {
        let defaults = Defaults::of_thread().ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        let existing = defaults.streams.borrow().iter().find(|(of, _)| *of == device).map(|(_, id)| *id);
        if let Some(id) = existing {
            return Ok(id);
        }
        self.destroy_orphaned_streams(device);
        let kind = Kind::PerThread(Arc::downgrade(&defaults.alive));
        let id = self.create_stream(device, kind, CU_STREAM_DEFAULT, LEAST_PRIORITY);
        defaults.streams.borrow_mut().push((device, id));
        Ok(id)
    }

    /// Destroys the default streams of threads that have ended.
    fn destroy_orphaned_streams(&mut self, device: usize) {
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

    /// Destroys a stream after its work is complete.
    pub fn destroy_stream(&mut self, id: Id) {
        self.leave_capture(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        self.advance(id);
    }

    /// Submits an operation of the program to a stream, in the order that the legacy stream imposes.
    pub fn submit(&mut self, id: Id, op: Op) {
        self.order_with_legacy(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.submitted += 1;
        }
        self.push(id, op);
    }

    /// Pushes an operation to a stream without ordering it with the legacy stream.
    pub fn push(&mut self, id: Id, op: Op) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue.push_back(op);
            if !stream.busy && !stream.parked {
                self.advance(id);
            }
        }
    }

    /// Counts work that was added with `push`, so that the legacy stream orders itself after it.
    pub fn count_submission(&mut self, id: Id) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.submitted += 1;
        }
    }

    /// Makes the legacy stream wait for the blocking streams, or a blocking stream for the legacy stream.
    pub fn order_with_legacy(&mut self, id: Id) {
        let Some(stream) = self.streams.get(&id) else { return };
        let device = stream.device;
        if matches!(stream.kind, Kind::Legacy) {
            for other in self.devices[device].streams.clone() {
                let Some(before) = self.streams.get_mut(&other) else { continue };
                if before.is_blocking() && !before.is_idle() && before.ordered != before.submitted {
                    before.ordered = before.submitted;
                    self.chain_streams(other, id);
                }
            }
        } else if stream.is_blocking()
            && let Some(legacy_id) = self.devices[device].legacy
            && let Some(legacy) = self.streams.get(&legacy_id)
            && !legacy.is_idle()
        {
            // A redundant wait is harmless and rare: the legacy stream is seldom busy.
            self.chain_streams(legacy_id, id);
        }
    }

    /// Makes the next work in `after` wait for all work that is now in `before`.
    fn chain_streams(&mut self, before: Id, after: Id) {
        let signal = self.push_signal(before);
        self.push(after, Op::Wait(signal));
    }

    /// Pushes a signal that completes after all work that is now in a stream.
    pub fn push_signal(&mut self, id: Id) -> Arc<Signal> {
        let signal = Signal::new();
        self.push(id, Op::Signal(signal.clone()));
        signal
    }

    /// Returns a signal at the end of the work that is now in a stream, or `None` if the stream is idle.
    pub fn tail_signal(&mut self, id: Id) -> Option<Arc<Signal>> {
        if matches!(self.streams.get(&id)?.kind, Kind::Legacy) {
            self.order_with_legacy(id);
        }
        if self.streams.get(&id)?.is_idle() {
            return None;
        }
        Some(self.push_signal(id))
    }

    /// Returns whether the stream's work, including that of the streams it waits for, is complete.
    pub fn query_stream(&self, id: Id) -> Result<(), Code> {
        let Some(stream) = self.streams.get(&id) else { return Err(codes::CUDA_ERROR_INVALID_HANDLE) };
        if !stream.busy {
            stream.check()?;
        }
        let idle = stream.is_idle()
            && (!matches!(stream.kind, Kind::Legacy)
                || self.devices[stream.device]
                    .streams
                    .iter()
                    .filter_map(|other| self.streams.get(other))
                    .all(|other| !other.is_blocking() || other.is_idle()));
        if idle { context::check(state::get()?, stream.device) } else { Err(codes::CUDA_ERROR_NOT_READY) }
    }

    /// Returns signals at the ends of all work that is now in a device's streams.
    pub fn tail_signals(&mut self, device: usize) -> Vec<Arc<Signal>> {
        self.devices[device].streams.clone().into_iter().filter_map(|id| self.tail_signal(id)).collect()
    }

    /// Returns the error that ended a device's contexts, or the first error among its streams.
    pub fn device_error(&self, device: usize) -> Result<(), Code> {
        context::check(state::get()?, device)?;
        self.streams
            .values()
            .filter(|stream| stream.device == device && stream.is_visible())
            .try_for_each(Stream::check)
    }

    /// Returns the device of a stream.
    pub fn stream_device(&self, id: Id) -> Result<usize, Code> {
        self.streams.get(&id).map(|stream| stream.device).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Blocks until all work that is now in a device's streams is complete.
pub fn synchronize_device(state: &'static super::state::State, device: usize) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let errors: Vec<_> =
        engine.tail_signals(device).iter().filter_map(|signal| signal.wait(&mut engine).err()).collect();
    errors.first().map_or_else(|| engine.device_error(device), |error| Err(*error))
}

/// Blocks while a copy of a device is in progress or about to begin.
pub fn await_copies(state: &'static super::state::State, device: usize) {
    while state.engine.lock().streams.values().any(|stream| stream.device == device && stream.copying) {
        thread::sleep(Duration::from_micros(100));
    }
}

/// Locks the engine and finds the stream to which a call adds work. Blocks while its queue is full, as a driver does.
pub fn lock_for_work(
    state: &'static super::state::State,
    handle: CUstream,
) -> Result<(MutexGuard<'static, Engine>, Id), Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    while let Some(stream) = engine.streams.get(&id).filter(|stream| stream.is_full()) {
        let room = stream.room.clone();
        room.wait_for(&mut engine, RETRY_INTERVAL);
        engine.retry_threads();
        // The call began before the stream was destroyed, so it is no use after the destruction.
        if engine.streams.get(&id).is_none_or(|stream| stream.destroyed) {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
    }
    Ok((engine, id))
}

/// Blocks until all work that is now in a stream is complete.
pub fn synchronize_stream(state: &'static super::state::State, handle: CUstream) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_lost_stream(handle, context::current_device(state))?;
    if let Some(signal) = engine.tail_signal(id) {
        signal.wait(&mut engine)?;
    }
    engine.streams.get(&id).map_or(Ok(()), Stream::check)
}
