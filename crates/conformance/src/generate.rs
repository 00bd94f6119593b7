//! The generator of programs: random calls that are legal, or wrong in a way that the driver answers with an error.
//!
//! What a driver leaves undefined is not generated: uses of destroyed objects, faults of kernels and copies, calls that
//! wait for the closed gate.

use super::{
    model::{Event, Graph, Memory, MemoryKind, Model, Stream, pick},
    program::{ARGUMENTS, Group, Kind, Program, Step},
    random::Random,
};

/// The version of the generator. Records of another version cannot be replayed.
pub const VERSION: u32 = 1;

/// The weights of the groups in programs of each theme, in the order of `Group`.
const THEMES: [[u32; 12]; 8] = [
    // stream, event, query, capture, work, gate, graph, conditional, virtual, allocation, pool, other
    [3, 4, 4, 1, 3, 0, 0, 0, 0, 0, 0, 1],
    [1, 3, 2, 5, 2, 0, 1, 0, 0, 0, 0, 0],
    [1, 4, 1, 4, 2, 0, 0, 0, 0, 1, 0, 0],
    [0, 1, 0, 1, 1, 0, 8, 1, 0, 0, 0, 0],
    [0, 0, 0, 1, 0, 0, 0, 0, 8, 1, 0, 0],
    [1, 0, 1, 1, 1, 0, 0, 0, 0, 4, 3, 1],
    [1, 4, 4, 2, 3, 3, 1, 0, 0, 0, 0, 0],
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
];

struct Generator {
    random: Random,
    model: Model,
    steps: Vec<Step>,
    threads: u8,
    theme: [u32; 12],
    /// Whether each thread has no current context.
    bare: [bool; 3],
}

type Arguments = [u32; ARGUMENTS];

/// Makes one program from its number.
pub fn program(seed: u64, number: u32) -> Program {
    let mut random = Random::new(seed, number);
    let theme = random.choose(&THEMES);
    let threads = if random.percent(60) { 1 } else { 2 + random.below(2) as u8 };
    let mut generator =
        Generator { random, model: Model::default(), steps: Vec::new(), threads, theme, bare: [false; 3] };
    generator.generate();
    Program { steps: generator.steps }
}

/// Returns whether a call does not wait for work, so that it can be made while the gate is closed.
fn never_waits(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        StreamQuery
            | StreamWait
            | StreamGetPriority
            | StreamGetFlags
            | StreamGetCtx
            | StreamGetId
            | IsCapturing
            | CaptureInfo
            | BeginCapture
            | EndCapture
            | ExchangeMode
            | EventCreate
            | EventRecord
            | EventRecordWithFlags
            | EventQuery
            | EventElapsed
            | OpenGate
            | Memset8
            | Memset16
            | Memset32
            | Memcpy
            | CtxGetDevice
            | PriorityRange
            | DeviceGet
    )
}

/// Arguments from a short list.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {{
        let given = [$($value as u32),*];
        let mut all: Arguments = [0; ARGUMENTS];
        all[..given.len()].copy_from_slice(&given);
        all
    }};
}

mod graph;
mod memory;

impl Generator {
    fn generate(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            self.push(Kind::StreamCreate);
        }
        for _ in 0..1 + self.random.below(3) {
            self.push(Kind::EventCreate);
        }
        let length = 14 + self.random.below(24);
        for _ in 0..length {
            self.push_any();
        }
        if self.model.gate_closed {
            self.push(Kind::OpenGate);
        }
        for (stream, thread) in std::mem::take(&mut self.model.captures) {
            if self.random.percent(70) {
                let graph = self.new_graph(None);
                self.add(thread, Kind::EndCapture, arguments![stream, graph]);
                if self.random.percent(60) {
                    self.model.execs.push(true);
                    let exec = self.model.execs.len() as u32 - 1;
                    self.add(thread, Kind::GetNodes, arguments![graph + 1]);
                    self.add(thread, Kind::Instantiate, arguments![exec, graph + 1, 0]);
                    self.add(thread, Kind::Launch, arguments![exec + 1, self.model.streams.len().min(1) * 3]);
                }
            }
        }
        self.add(0, Kind::Cleanup, [0; ARGUMENTS]);
    }

    fn add(&mut self, thread: u8, kind: Kind, arguments: Arguments) {
        let gated = match kind {
            Kind::StreamQuery => self.model.is_gated(arguments[0]),
            Kind::EventQuery => self.is_event_gated(arguments[0]),
            Kind::EventElapsed => self.is_event_gated(arguments[0]) || self.is_event_gated(arguments[1]),
            _ => false,
        };
        self.steps.push(Step { thread, kind, arguments, gated });
    }

    fn is_event_gated(&self, event: u32) -> bool {
        event > 0 && self.model.events.get(event as usize - 1).is_some_and(|one| one.gated)
    }

    fn weight(&self, kind: Kind) -> u32 {
        let (group, weight) = kind.weight();
        if self.model.gate_closed && !never_waits(kind) {
            return 0;
        }
        if group == Group::Gate && (kind == Kind::OpenGate) != self.model.gate_closed {
            return 0;
        }
        weight * self.theme[group as usize]
    }

    fn push_any(&mut self) {
        let total: u32 = Kind::ALL.iter().map(|kind| self.weight(*kind)).sum();
        for _ in 0..20 {
            let mut at = self.random.below(total);
            let chosen = Kind::ALL.iter().copied().find(|kind| {
                let weight = self.weight(*kind);
                let found = at < weight;
                at = at.wrapping_sub(weight);
                found
            });
            if chosen.is_some_and(|kind| self.push(kind)) {
                return;
            }
        }
    }

    /// Adds a call with random arguments, unless there are no legal ones.
    fn push(&mut self, kind: Kind) -> bool {
        let mut thread = self.random.below(u32::from(self.threads)) as u8;
        if self.bare[thread as usize] && self.random.percent(50) {
            self.bare[thread as usize] = false;
            self.add(thread, Kind::CtxSetCurrent, arguments![1]);
        }
        match self.arguments(kind, &mut thread) {
            Some(arguments) => {
                self.add(thread, kind, arguments);
                self.note(kind, &arguments);
                true
            }
            None => false,
        }
    }

    // ---- arguments: objects

    fn stream(&mut self) -> u32 {
        if self.random.percent(12) {
            return self.random.choose(&[0, 0, 1, 2, 2]);
        }
        pick(&mut self.random, &self.model.streams, |one| one.alive).map_or(0, |index| index + 3)
    }

    fn event(&mut self) -> u32 {
        if self.random.percent(1) {
            return 0;
        }
        pick(&mut self.random, &self.model.events, |one| one.alive).map_or(0, |index| index + 1)
    }

    fn graph(&mut self) -> Option<u32> {
        pick(&mut self.random, &self.model.graphs, |one| one.alive).map(|index| index + 1)
    }

    fn exec(&mut self) -> Option<u32> {
        pick(&mut self.random, &self.model.execs, |one| *one).map(|index| index + 1)
    }

    fn node(&mut self) -> Option<u32> {
        let graphs = &self.model.graphs;
        pick(&mut self.random, &self.model.nodes, |graph| graphs[*graph as usize].alive).map(|index| index + 1)
    }

    /// Returns a node of a graph, seldom one of another graph; 0 for none.
    fn node_of(&mut self, graph: u32) -> u32 {
        if self.random.percent(3) {
            return self.node().unwrap_or(0);
        }
        pick(&mut self.random, &self.model.nodes, |one| one + 1 == graph).map_or(0, |index| index + 1)
    }

    /// Returns up to two dependencies of a new node.
    fn dependencies(&mut self, graph: u32) -> (u32, u32) {
        match self.random.below(4) {
            0 => (0, 0),
            1 | 2 => (self.node_of(graph), 0),
            _ => (self.node_of(graph), self.node_of(graph)),
        }
    }

    /// Returns memory of some kinds; the numbers below 4 are what every program has.
    fn memory(&mut self, test: impl Fn(MemoryKind) -> bool) -> Option<u32> {
        pick(&mut self.random, &self.model.memory, |one| one.alive && test(one.kind)).map(|index| index + 4)
    }

    fn any_memory(&mut self) -> u32 {
        if self.random.percent(25) {
            return self.random.choose(&[1, 1, 2, 2, 3]);
        }
        self.memory(|_| true).unwrap_or(1)
    }

    /// Returns an offset into memory.
    fn offset_in(&mut self, memory: u32) -> u32 {
        let bytes =
            memory.checked_sub(4).and_then(|index| self.model.memory.get(index as usize)).map_or(4096, |one| one.bytes);
        if self.random.percent(50) { 0 } else { self.random.below(bytes) }
    }

    fn reservation(&mut self) -> Option<u32> {
        pick(&mut self.random, &self.model.reservations, |one| one.alive && one.kib > 0).map(|index| index + 1)
    }

    fn handle(&mut self) -> Option<u32> {
        pick(&mut self.random, &self.model.handles, |one| *one).map(|index| index + 1)
    }

    /// Returns a range of a reservation, as offset and size in KiB.
    fn range(&mut self, reservation: u32) -> (u32, u32) {
        let kib = self.model.reservations[reservation as usize - 1].kib;
        let offset = self.random.below(kib.div_ceil(2048)) * 2048;
        let size = self.random.choose(&[2048, 2048, 2048, 4096]).min(kib - offset);
        match self.random.below(20) {
            0 if kib > offset + 1024 => (offset + 1024, size.min(kib - offset - 1024)),
            1 => (offset, 0),
            2 => (offset, size / 2),
            3 => (0, kib),
            _ => (offset, size),
        }
    }

    // ---- new objects

    fn new_graph(&mut self, parent: Option<u32>) -> u32 {
        self.model.graphs.push(Graph { alive: true, parent, kept: false });
        self.model.graphs.len() as u32 - 1
    }

    fn new_node(&mut self, graph: u32) -> u32 {
        self.model.nodes.push(graph - 1);
        self.model.nodes.len() as u32 - 1
    }

    fn new_memory(&mut self, kind: MemoryKind, bytes: u32, stream: u32) -> u32 {
        // What cannot be allocated is not used: the executor skips it.
        self.model.memory.push(Memory { alive: true, kind, bytes: bytes.max(1), stream });
        self.model.memory.len() as u32 - 1
    }

    fn new_handle(&mut self) -> u32 {
        self.model.handles.push(true);
        self.model.handles.len() as u32 - 1
    }

    /// Returns one of the usual values, seldom one of the wrong ones.
    fn mostly(&mut self, usual: &[u32], wrong: &[u32]) -> u32 {
        if self.random.percent(8) { self.random.choose(wrong) } else { self.random.choose(usual) }
    }

    fn device(&mut self) -> u32 {
        self.mostly(&[0], &[7, u32::MAX])
    }

    fn bytes(&mut self) -> u32 {
        self.random.choose(&[0, 1, 4, 16, 64, 256, 1000, 4096])
    }

    /// Returns a place of a copy: device, pinned or pageable memory.
    fn place(&mut self) -> u32 {
        if self.model.gate_closed { self.random.below(2) } else { self.random.below(3) }
    }

    fn arguments(&mut self, kind: Kind, thread: &mut u8) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            StreamCreate | StreamDestroy | StreamQuery | StreamSynchronize | StreamWait | StreamGetPriority
            | StreamGetFlags | StreamGetCtx | StreamGetId | IsCapturing | CaptureInfo | BeginCapture | EndCapture
            | BeginCaptureToGraph | ExchangeMode => return self.stream_arguments(kind, thread),
            EventCreate | EventDestroy | EventRecord | EventRecordWithFlags | EventQuery | EventSynchronize
            | EventElapsed | IpcGetEvent | IpcOpenEvent => return self.event_arguments(kind),
            HostFunction | CloseGate => arguments![self.stream()],
            OpenGate | CtxSynchronize | CtxGetDevice | PriorityRange | MemInfo => [0; ARGUMENTS],
            Memset8 | Memset16 | Memset32 => arguments![0, self.bytes() / 4, self.stream()],
            Memcpy => arguments![self.place(), self.place(), self.bytes(), self.stream()],
            MemcpyPeer => arguments![0, 0, self.bytes(), self.stream()],
            CtxSetCurrent => {
                let bare = self.random.percent(50);
                self.bare[*thread as usize] = bare;
                arguments![!bare]
            }
            EnablePeer => arguments![self.mostly(&[1], &[0]), self.mostly(&[0], &[1])],
            DisablePeer => arguments![self.mostly(&[1], &[0])],
            CanAccessPeer => arguments![self.device(), self.device()],
            PrimaryState => arguments![self.device()],
            DeviceGet => arguments![self.device()],
            DeviceAttribute => arguments![self.mostly(&[1, 10, 41, 78, 102], &[0, 9999]), self.device()],
            ErrorName => arguments![self.random.below(1010)],
            NullOutput => arguments![self.random.below(12), self.stream()],
            MemAlloc | MemFree | AddressRange | HostAlloc | HostFree | ManagedAlloc | HostRegister | HostUnregister
            | PointerAttribute | PointerAttributes | IpcGetMem | IpcOpenMem | IpcCloseMem | DefaultPool | PoolGet
            | PoolSet | PoolTrim | PoolAccess | AllocAsync | FreeAsync => return self.memory_arguments(kind),
            Reserve | AddressFree | Create | Release | Map | Unmap | SetAccess | GetAccess | Granularity | Export
            | Import | RetainHandle | RangeOfVirtual | AttributeOfVirtual => return self.virtual_arguments(kind),
            Cleanup => return None,
            _ => return self.graph_arguments(kind),
        })
    }

    fn stream_arguments(&mut self, kind: Kind, thread: &mut u8) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            StreamCreate => {
                let flags = self.mostly(&[0, 1, 1], &[2, 3, 16]);
                let priority = self.random.choose(&[0, 0, -1, -3, -5, -100, 5]);
                self.model.streams.push(Stream { alive: true, blocking: flags == 0, in_capture: false, gated: false });
                arguments![self.model.streams.len() - 1, flags, priority]
            }
            StreamDestroy => {
                let rarely = self.random.percent(15);
                let index =
                    pick(&mut self.random, &self.model.streams, |one| one.alive && (rarely || !one.in_capture))?;
                self.model.streams[index as usize].alive = false;
                self.model.captures.retain(|(stream, _)| *stream != index + 3);
                arguments![index + 3]
            }
            StreamWait => arguments![self.stream(), self.event(), self.mostly(&[0], &[1, 1, 2])],
            BeginCapture => {
                let stream = self.stream();
                arguments![stream, self.mostly(&[0, 1, 2], &[3, 100])]
            }
            BeginCaptureToGraph => {
                let (stream, graph) = (self.stream(), self.graph()?);
                let node = if self.random.percent(50) { self.node_of(graph) } else { 0 };
                arguments![stream, graph, node, self.mostly(&[0, 1, 2], &[3])]
            }
            EndCapture => {
                let known = self.model.captures.clone();
                let known = if known.is_empty() { None } else { Some(self.random.choose(&known)) };
                let (stream, own) = match known {
                    Some(pair) if self.random.percent(85) => pair,
                    _ if self.random.percent(30) => (self.stream(), *thread),
                    _ => return None,
                };
                if self.random.percent(85) {
                    *thread = own;
                }
                arguments![stream, self.new_graph(None)]
            }
            ExchangeMode => arguments![self.mostly(&[0, 1, 2, 2], &[3, 99])],
            _ => arguments![self.stream()],
        })
    }

    fn event_arguments(&mut self, kind: Kind) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            EventCreate => {
                let flags = self.mostly(&[0, 2, 2, 1, 3], &[4, 6, 7, 8, 16]);
                let timed = flags & 2 == 0;
                self.model.events.push(Event { alive: true, kept: false, captured: false, gated: false, timed });
                arguments![self.model.events.len() - 1, flags]
            }
            EventDestroy => {
                let index = pick(&mut self.random, &self.model.events, |one| one.alive && !one.kept)?;
                self.model.events[index as usize].alive = false;
                arguments![index + 1]
            }
            EventRecord => arguments![self.event(), self.stream()],
            EventRecordWithFlags => {
                let event = self.event();
                if let Some(one) = event.checked_sub(1).and_then(|index| self.model.events.get_mut(index as usize)) {
                    one.kept = true;
                }
                arguments![event, self.stream(), self.mostly(&[0, 1], &[2])]
            }
            EventElapsed => {
                let timed = self.random.percent(80);
                let mut one = || pick(&mut self.random, &self.model.events, |one| one.alive && (one.timed || !timed));
                arguments![one()? + 1, one()? + 1]
            }
            _ => arguments![self.event()],
        })
    }

    /// Keeps the model up to date after a step.
    fn note(&mut self, kind: Kind, arguments: &Arguments) {
        use Kind::*;
        let first = arguments[0];
        let own = |stream: u32| stream.checked_sub(3).map(|index| index as usize);
        match kind {
            BeginCapture | BeginCaptureToGraph => {
                if first > 1 && !self.model.captures.iter().any(|(stream, _)| *stream == first) {
                    let thread = self.steps.last().map_or(0, |step| step.thread);
                    self.model.captures.push((first, thread));
                }
                if let Some(one) = own(first).and_then(|index| self.model.streams.get_mut(index)) {
                    one.in_capture = true;
                }
                if kind == BeginCaptureToGraph {
                    self.model.graphs[arguments[1] as usize - 1].kept = true;
                }
            }
            EndCapture => self.model.captures.retain(|(stream, _)| *stream != first),
            CloseGate => {
                self.model.gate_closed = true;
                self.model.submit(first, true);
            }
            OpenGate => self.model.open_gate(),
            EventRecord | EventRecordWithFlags => {
                self.model.submit(arguments[1], false);
                let gated = self.model.is_gated(arguments[1]);
                let captured = own(arguments[1]).is_some_and(|index| self.model.streams[index].in_capture);
                if let Some(one) = first.checked_sub(1).and_then(|index| self.model.events.get_mut(index as usize)) {
                    one.gated = gated;
                    one.captured = captured;
                }
            }
            StreamWait => {
                let gated = self.is_event_gated(arguments[1]);
                let captured = arguments[1]
                    .checked_sub(1)
                    .and_then(|index| self.model.events.get(index as usize))
                    .is_some_and(|one| one.captured);
                if captured && let Some(one) = own(first).and_then(|index| self.model.streams.get_mut(index)) {
                    one.in_capture = true;
                }
                self.model.submit(first, gated);
            }
            Memset8 | Memset16 | Memset32 => self.model.submit(arguments[2], false),
            Memcpy => self.model.submit(arguments[3], false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The programs of a version never change: records contain only answers.
    #[test]
    fn programs_are_those_of_the_version() {
        let text: String =
            (0..100).flat_map(|number| program(1, number).steps).map(|step| format!("{step}\n")).collect();
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        assert_eq!((VERSION, hash), (1, 0x9ae85332c6f0b85e));
    }

    #[test]
    fn nothing_waits_for_the_closed_gate() {
        for number in 0..500 {
            let mut is_closed = false;
            for step in program(3, number).steps {
                match step.kind {
                    Kind::CloseGate => is_closed = true,
                    Kind::OpenGate => is_closed = false,
                    Kind::Cleanup => assert!(!is_closed, "program {number}"),
                    kind => assert!(!is_closed || never_waits(kind), "program {number}: {step}"),
                }
            }
        }
    }
}
