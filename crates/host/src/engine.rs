//! The engine: every stream, event, graph and module of the process under one lock, and the rule by which streams
//! advance.
//!
//! Nothing here polls, except for a thread that the system refuses. A stream advances when an operation is pushed to it,
//! when its work ends, or when a signal that it waits for completes. Each of these calls [`Engine::advance`], which
//! processes bookkeeping operations at the front of the queue at once and hands the first real work to a thread of the
//! [`scheduler`](super::scheduler).

use super::{
    capture::Capture,
    event::Event,
    graph::{Graph, condition::Condition, exec::Exec, object::Object},
    ids::{Id, IdMap},
    kernels::{Function, Module},
    scheduler::{DeviceQueue, Pool},
    signal::Signal,
    stream::{Op, Stream},
    work::Work,
};
use crate::driver::{codes, table::Code};
use std::{
    collections::{HashSet, VecDeque},
    sync::Weak,
    time::Instant,
};

pub struct Engine {
    pub streams: IdMap<Stream>,
    /// The handles of streams that the program destroyed.
    pub destroyed_streams: HashSet<Id>,
    pub events: IdMap<Event>,
    pub captures: IdMap<Capture>,
    pub graphs: IdMap<Graph>,
    /// The graph of each node, and the node's index there.
    pub nodes: IdMap<(Id, usize)>,
    pub execs: IdMap<Exec>,
    /// The conditions, which graphs and executable graphs own.
    pub conditions: IdMap<Weak<Condition>>,
    pub objects: IdMap<Object>,
    /// The stream that runs user objects' destructors.
    pub destructor_stream: Option<Id>,
    pub modules: IdMap<Module>,
    pub functions: IdMap<Function>,
    pub devices: Vec<DeviceQueue>,
    /// Streams whose first operation needs a thread that may block.
    pub blocking_queue: VecDeque<Id>,
    pub blocking_threads: Pool,
    /// Since when operations wait for a thread that the system refuses.
    pub short_since: Option<Instant>,
    pub stream_number: u64,
    pub capture_number: u64,
    /// Streams to process while `advance` runs.
    pending_streams: VecDeque<Id>,
    advancing: bool,
}

impl Engine {
    pub fn new(devices: usize) -> Engine {
        Engine {
            streams: IdMap::default(),
            destroyed_streams: HashSet::new(),
            events: IdMap::default(),
            captures: IdMap::default(),
            graphs: IdMap::default(),
            nodes: IdMap::default(),
            execs: IdMap::default(),
            conditions: IdMap::default(),
            objects: IdMap::default(),
            destructor_stream: None,
            modules: IdMap::default(),
            functions: IdMap::default(),
            devices: (0..devices).map(|_| DeviceQueue::default()).collect(),
            blocking_queue: VecDeque::new(),
            blocking_threads: Pool::unlimited(),
            short_since: None,
            stream_number: 0,
            capture_number: 0,
            pending_streams: VecDeque::new(),
            advancing: false,
        }
    }

    /// Advances a stream as far as possible without a thread, and every stream that this unblocks.
    pub fn advance(&mut self, id: Id) {
        self.pending_streams.push_back(id);
        if self.advancing {
            return;
        }
        self.advancing = true;
        while let Some(id) = self.pending_streams.pop_front() {
            while self.step(id) {}
        }
        self.advancing = false;
    }

    /// Processes one operation of a stream's queue if it needs no thread. Returns whether to try the next one.
    fn step(&mut self, id: Id) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        if stream.busy || stream.parked {
            return false;
        }
        let error = stream.error;
        match stream.queue.front() {
            None => {
                if stream.destroyed {
                    let device = stream.device;
                    self.streams.remove(&id);
                    self.devices[device].streams.retain(|other| *other != id);
                }
                return false;
            }
            Some(Op::Signal(signal)) => {
                let signal = signal.clone();
                stream.pop();
                self.complete(&signal, error);
                return true;
            }
            Some(Op::Wait(signal) | Op::Fork(signal) | Op::Join(signal)) if !signal.is_complete() => {
                signal.park(id);
                stream.parked = true;
                return false;
            }
            Some(Op::Wait(_)) => {}
            Some(Op::Fork(signal)) => stream.error = signal.error(),
            Some(Op::Join(signal)) => {
                if error == codes::CUDA_SUCCESS {
                    stream.error = signal.error();
                }
            }
            Some(Op::Publish(shared, recording)) => shared.finish_recording(*recording),
            Some(Op::ResetConditions(program)) => program.conditions.iter().for_each(|condition| condition.reset()),
            Some(Op::Retire(_)) => {
                if let Some(Op::Retire(retired)) = stream.pop() {
                    self.retire(retired);
                }
                return true;
            }
            Some(Op::WaitShared(shared, recording)) => {
                if error == codes::CUDA_SUCCESS && !shared.is_finished(*recording) {
                    stream.busy = true;
                    self.blocking_queue.push_back(id);
                    self.request_blocking_thread();
                    return false;
                }
            }
            // After an error the remaining work is skipped, but signals still complete.
            Some(Op::Work(_) | Op::Host(_) | Op::Conditional(..) | Op::Free(..) | Op::FreeGraphMemory(_))
                if error != codes::CUDA_SUCCESS => {}
            Some(Op::Work(work)) if work.may_block() => {
                stream.busy = true;
                self.blocking_queue.push_back(id);
                self.request_blocking_thread();
                return false;
            }
            // A worker evaluates conditions, too: a loop that never ends must not hold the lock.
            Some(op @ (Op::Work(_) | Op::Conditional(..) | Op::Free(..) | Op::FreeGraphMemory(_))) => {
                stream.copying = matches!(op, Op::Work(Work::Copy(_) | Work::Staged { .. }));
                stream.busy = true;
                self.request_worker(id);
                return false;
            }
            Some(Op::Host(_)) => {
                stream.busy = true;
                self.blocking_queue.push_back(id);
                self.request_blocking_thread();
                return false;
            }
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.pop();
        }
        true
    }

    fn complete(&mut self, signal: &Signal, error: Code) {
        for id in signal.complete(error) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.parked = false;
            }
            self.pending_streams.push_back(id);
        }
    }

    /// Records that the operation that a thread took from a stream has ended.
    pub fn finish(&mut self, id: Id, result: Result<(), Code>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            (stream.busy, stream.copying) = (false, false);
            if let Err(error) = result
                && stream.error == codes::CUDA_SUCCESS
            {
                stream.error = error;
            }
        }
        self.advance(id);
    }

    /// Removes the operation that a thread is about to execute.
    pub fn take(&mut self, id: Id) -> Option<(usize, Op)> {
        let stream = self.streams.get_mut(&id)?;
        stream.pop().map(|op| (stream.device, op))
    }
}
