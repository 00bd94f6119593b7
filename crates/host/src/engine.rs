//! The engine: every stream, event, graph and module of the process, under one lock, and the rule by which streams
//! move on.
//!
//! Nothing here polls. A stream moves when something is put into it, when its work ends, or when a signal that it is
//! parked at is reached; each of those calls [`Engine::advance`], which takes bookkeeping off the front of the queue
//! at once and hands the first real work to a thread of the [`scheduler`](super::scheduler).

use super::{
    capture::Capture,
    event::Event,
    graph::{Graph, condition::Condition, exec::Exec, object::Object},
    ids::{Id, IdMap},
    kernels::{Function, Module},
    scheduler::{DeviceQueue, Pool},
    signal::Signal,
    stream::{Op, Stream},
};
use crate::driver::{codes, table::Code};
use std::{collections::VecDeque, sync::Weak};

pub struct Engine {
    pub streams: IdMap<Stream>,
    pub events: IdMap<Event>,
    pub captures: IdMap<Capture>,
    pub graphs: IdMap<Graph>,
    /// The graph that each node belongs to, and its place there.
    pub nodes: IdMap<(Id, usize)>,
    pub execs: IdMap<Exec>,
    /// The conditions of graphs and executable graphs, which keep them.
    pub conditions: IdMap<Weak<Condition>>,
    pub objects: IdMap<Object>,
    /// The stream that runs user objects' destructors.
    pub burials: Option<Id>,
    pub modules: IdMap<Module>,
    pub functions: IdMap<Function>,
    pub devices: Vec<DeviceQueue>,
    /// Streams whose first entry waits for a thread that may block.
    pub calls: VecDeque<Id>,
    pub callers: Pool,
    pub stream_number: u64,
    pub capture_number: u64,
    /// Streams to look at, while `advance` is at work.
    moving: VecDeque<Id>,
    advancing: bool,
}

impl Engine {
    pub fn new(devices: usize) -> Engine {
        Engine {
            streams: IdMap::default(),
            events: IdMap::default(),
            captures: IdMap::default(),
            graphs: IdMap::default(),
            nodes: IdMap::default(),
            execs: IdMap::default(),
            conditions: IdMap::default(),
            objects: IdMap::default(),
            burials: None,
            modules: IdMap::default(),
            functions: IdMap::default(),
            devices: (0..devices).map(|_| DeviceQueue::default()).collect(),
            calls: VecDeque::new(),
            callers: Pool::unlimited(),
            stream_number: 0,
            capture_number: 0,
            moving: VecDeque::new(),
            advancing: false,
        }
    }

    /// Moves a stream on as far as it goes without a thread, and every stream that this sets free.
    pub fn advance(&mut self, id: Id) {
        self.moving.push_back(id);
        if self.advancing {
            return;
        }
        self.advancing = true;
        while let Some(id) = self.moving.pop_front() {
            while self.step(id) {}
        }
        self.advancing = false;
    }

    /// Takes one entry off a stream's queue if it needs no thread; returns whether to try the next.
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
                stream.queue.pop_front();
                self.reach(&signal, error);
                return true;
            }
            Some(Op::Wait(signal) | Op::Begin(signal) | Op::Join(signal)) if !signal.is_reached() => {
                signal.park(id);
                stream.parked = true;
                return false;
            }
            Some(Op::Wait(_)) => {}
            Some(Op::Begin(signal)) => stream.error = signal.error(),
            Some(Op::Join(signal)) => {
                if error == codes::CUDA_SUCCESS {
                    stream.error = signal.error();
                }
            }
            Some(Op::Publish(shared, recording)) => shared.finish(*recording),
            Some(Op::Reset(program)) => program.conditions.iter().for_each(|condition| condition.reset()),
            Some(Op::Retire(_)) => {
                if let Some(Op::Retire(retired)) = stream.queue.pop_front() {
                    self.retire(retired);
                }
                return true;
            }
            Some(Op::Await(shared, recording)) => {
                if error == codes::CUDA_SUCCESS && !shared.is_finished(*recording) {
                    stream.busy = true;
                    self.calls.push_back(id);
                    self.want_caller(id);
                    return false;
                }
            }
            // After an error nothing more is done, but whoever waits is still told.
            Some(Op::Work(_) | Op::Host(_) | Op::Choose(..) | Op::Free(..)) if error != codes::CUDA_SUCCESS => {}
            Some(Op::Work(work)) if work.may_wait() => {
                stream.busy = true;
                self.calls.push_back(id);
                self.want_caller(id);
                return false;
            }
            // A worker looks at conditions, too: a loop that never ends must not take the lock for itself.
            Some(Op::Work(_) | Op::Choose(..) | Op::Free(..)) => {
                stream.busy = true;
                self.want_worker(id);
                return false;
            }
            Some(Op::Host(_)) => {
                stream.busy = true;
                self.calls.push_back(id);
                self.want_caller(id);
                return false;
            }
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue.pop_front();
        }
        true
    }

    fn reach(&mut self, signal: &Signal, error: Code) {
        for id in signal.reach(error) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.parked = false;
            }
            self.moving.push_back(id);
        }
    }

    /// Notes that the work a thread had taken from a stream has ended.
    pub fn finish(&mut self, id: Id, result: Result<(), Code>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.busy = false;
            if let Err(error) = result
                && stream.error == codes::CUDA_SUCCESS
            {
                stream.error = error;
            }
        }
        self.advance(id);
    }

    /// Takes the entry that a thread is to carry out.
    pub fn take(&mut self, id: Id) -> Option<(usize, Op)> {
        let stream = self.streams.get_mut(&id)?;
        stream.queue.pop_front().map(|op| (stream.device, op))
    }
}
