//! The sanitizer's model, and its updates for each event.

mod foreign;
mod memory_checks;
mod replay;

use super::{
    access_names::AccessNames,
    blocks::{self, Allocation, Block, Blocks, FreeProgress},
    call::{Call, Executor, Stream, StreamKind},
    order::{Moment, Track, TrackOrder},
    ranges::{Access, RangeConflict, Ranges},
    recording::{Action, Capture, Graph, PlannedAccess, Recording},
    report::{Conflict, Missing, Report, Site},
};
use crate::{base::stack::StackId, observe::Operand};
use foreign::ForeignMemory;
use memory_checks::SleepingMemory;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The minimum number of ranges at which the map is swept. Otherwise it is swept at twice the number that the last
/// sweep left.
const MIN_SWEEP: usize = 4096;

static NEXT_STATE: AtomicU64 = AtomicU64::new(1);

/// The position that an event recorded.
#[derive(Debug, Clone)]
pub(super) enum Position {
    Moment(Moment),
    /// Nodes of a graph in capture.
    Nodes {
        graph: u64,
        nodes: Vec<usize>,
    },
}

/// The streams of a device that synchronize with each other implicitly.
#[derive(Debug, Default)]
struct BlockingStreams {
    default: Option<Track>,
    blocking: Vec<Track>,
}

/// An operation that is about to run.
#[derive(Debug, Clone, Copy)]
struct Operation {
    track: Track,
    name: u32,
    stack: StackId,
}

/// The sanitizer's model. The caller reports each call while it is made, except calls that only establish order, which
/// it reports once they have succeeded.
#[derive(Debug)]
pub struct State {
    number: u64,
    order: TrackOrder,
    ranges: Ranges,
    blocks: Blocks,
    foreign: ForeignMemory,
    sleeping: SleepingMemory,
    names: AccessNames,
    streams: HashMap<Stream, Track>,
    /// Streams that have ended, and whose work is not known to be complete.
    ended_streams: Vec<Stream>,
    blocking_streams: HashMap<u32, BlockingStreams>,
    events: HashMap<u64, Position>,
    captures: HashMap<u64, Capture>,
    /// The graph for which each stream is being captured.
    capturing: HashMap<Stream, u64>,
    graphs: HashMap<u64, Graph>,
    operations: u64,
    allocations: u32,
    sweep_at: usize,
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// Creates an empty model.
    pub fn new() -> State {
        State {
            number: NEXT_STATE.fetch_add(1, Ordering::Relaxed),
            order: TrackOrder::new(),
            ranges: Ranges::default(),
            blocks: Blocks::default(),
            foreign: ForeignMemory::default(),
            sleeping: SleepingMemory::default(),
            names: AccessNames::default(),
            streams: HashMap::new(),
            ended_streams: Vec::new(),
            blocking_streams: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            capturing: HashMap::new(),
            graphs: HashMap::new(),
            operations: 0,
            allocations: 0,
            sweep_at: MIN_SWEEP,
        }
    }

    /// Returns a number that distinguishes the moments of this state from those of another.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn track(&mut self, stream: Stream) -> Track {
        if let Some(track) = self.streams.get(&stream) {
            return *track;
        }
        let track = self.order.add();
        self.streams.insert(stream, track);
        self.names.set_site(track, Site::Stream(stream));
        let blocking_streams = self.blocking_streams.entry(stream.device).or_default();
        match stream.kind {
            StreamKind::NonBlocking => {}
            StreamKind::Blocking => blocking_streams.blocking.push(track),
            StreamKind::Default => blocking_streams.default = Some(track),
        }
        track
    }

    /// Returns the track of a stream; that of the CPU for host memory, and for a stream without work that may be
    /// incomplete.
    fn track_of(&self, stream: Option<Stream>) -> Track {
        stream.and_then(|stream| self.streams.get(&stream).copied()).unwrap_or(Track::CPU)
    }

    /// Removes streams that end: those of a thread, or one that is destroyed. Work that is not known to be complete keeps
    /// its order until it is: the default stream and the device still wait for it.
    pub fn end_streams(&mut self, is_ended: impl Fn(&Stream) -> bool) {
        self.ended_streams.extend(self.streams.keys().filter(|stream| is_ended(stream)));
        let ended = std::mem::take(&mut self.ended_streams);
        for stream in ended {
            let Some(track) = self.streams.get(&stream).copied() else { continue };
            if self.capturing.contains_key(&stream) || !self.order.is_complete(track) {
                self.ended_streams.push(stream);
                continue;
            }
            self.streams.remove(&stream);
            if let Some(blocking_streams) = self.blocking_streams.get_mut(&stream.device) {
                blocking_streams.blocking.retain(|other| *other != track);
            }
            self.order.retire(track);
        }
    }

    /// Returns the track of a stream that gets more work now, after its implicit waits for other streams.
    fn enter_stream(&mut self, stream: Stream) -> Track {
        let track = self.track(stream);
        if stream.kind != StreamKind::NonBlocking
            && let Some(blocking_streams) = self.blocking_streams.get(&stream.device)
        {
            let awaited = if stream.kind == StreamKind::Default {
                blocking_streams.blocking.as_slice()
            } else {
                blocking_streams.default.as_slice()
            };
            for other in awaited {
                self.order.wait(track, &self.order.moment(*other));
            }
        }
        track
    }

    /// Returns the graph that a stream is being captured for.
    pub fn capture_of(&self, stream: Stream) -> Option<u64> {
        if self.capturing.is_empty() { None } else { self.capturing.get(&stream).copied() }
    }

    /// Returns the number of an operation's name.
    pub fn name(&mut self, name: &str) -> u32 {
        self.names.number(name)
    }

    /// Checks and adds an operation of a stream or of the CPU. Returns the findings. If there are any and `refuse` is
    /// set, the operation is not added, because the call will not be made.
    pub fn operation(&mut self, executor: Executor, call: Call<'_>, operands: &[Operand], refuse: bool) -> Vec<Report> {
        let name = self.names.number(call.name);
        let track = match executor {
            Executor::Cpu => Track::CPU,
            Executor::Stream(stream) => match self.capture_of(stream) {
                Some(graph) => return self.capture(graph, stream, (name, call.stack), operands, refuse),
                None => self.enter_stream(stream),
            },
        };
        let planned =
            operands.iter().map(|operand| PlannedAccess { operand: *operand, allocation: 0, graph_owned: false });
        let reports = self.run(Operation { track, name, stack: call.stack }, planned, refuse);
        self.sweep_if_due();
        reports
    }

    fn run(
        &mut self,
        operation: Operation,
        operands: impl Iterator<Item = PlannedAccess> + Clone,
        refuse: bool,
    ) -> Vec<Report> {
        self.operations += 1;
        let (number, epoch) = (self.operations, self.order.step(operation.track));
        let mut reports = Vec::new();
        let mut conflicts = Vec::new();
        let operands = operands.filter(|planned| planned.operand.start < planned.operand.end);
        for planned in operands.clone() {
            let (access, alive) = self.access(operation, &planned, number, epoch);
            if !alive {
                self.check_allocation(self.names.site(operation.track), &access, planned.allocation, &mut reports);
            }
            self.check_awake(operation.track, &access, &mut reports);
            let order = &self.order;
            let is_before = |earlier: &Access| order.is_before(earlier.track, earlier.epoch, operation.track);
            if refuse {
                self.ranges.find_conflicts((access.start, access.end), access.kind, is_before, &mut conflicts);
            } else {
                self.ranges.add_and_find_conflicts(&access, is_before, &mut conflicts);
            }
            reports.extend(conflicts.drain(..).map(|conflict| self.report(&access, &conflict)));
        }
        if refuse && reports.is_empty() {
            for planned in operands {
                let (access, _) = self.access(operation, &planned, number, epoch);
                let order = &self.order;
                self.ranges.add(&access, |earlier| order.is_before(earlier.track, earlier.epoch, operation.track));
            }
        }
        reports
    }

    /// Returns an access, and whether none of its memory was freed, as far as a single block shows it, which is the
    /// usual case.
    fn access(&self, operation: Operation, planned: &PlannedAccess, number: u64, epoch: u64) -> (Access, bool) {
        let Operand { start, end, kind } = planned.operand;
        let block = if planned.graph_owned { None } else { self.blocks.at(start) };
        let allocation =
            if planned.graph_owned { planned.allocation } else { block.map_or(0, |block| block.allocation.number) };
        let is_alive = |block: &Block| {
            block.freed_at.is_none()
                && block.end >= end
                && (planned.allocation == 0 || planned.allocation == block.allocation.number)
        };
        let alive = planned.graph_owned || block.is_some_and(is_alive);
        let Operation { track, name, stack } = operation;
        (Access { start, end, track, epoch, number, stack, name, allocation, kind }, alive)
    }

    /// Returns the access of a graph's node to the memory that is allocated now.
    pub fn plan(&self, operand: Operand) -> PlannedAccess {
        let block = self.blocks.at(operand.start);
        let graph_owned = block.is_some_and(|block| block.allocation.of_graph);
        PlannedAccess { operand, allocation: block.map_or(0, |block| block.allocation.number), graph_owned }
    }

    #[cold]
    fn report(&self, access: &Access, conflict: &RangeConflict) -> Report {
        let previous = &conflict.previous;
        let block = self.blocks.at(conflict.start);
        // An access from before the block was known belongs to its oldest known allocation.
        let is_former = |allocation: &&Allocation| allocation.number == previous.allocation || previous.allocation == 0;
        let former = block.and_then(|block| block.former.iter().rev().find(is_former));
        // The former allocation may no longer be stored, because only a limited number is kept.
        let is_other = |block: &Block| block.allocation.number != previous.allocation;
        let is_gone = previous.allocation != 0
            && block.is_some_and(is_other)
            && self.blocks.at(previous.start).is_none_or(is_other);
        let site = self.names.site(previous.track);
        // The allocator orders the former owner's own stream before reuse in that stream, so recording it would not
        // help: other streams need an ordinary wait.
        let missing = match former {
            Some(former) if site.stream().is_some_and(|stream| Some(stream) != former.stream) => Missing::RecordStream,
            None if is_gone => Missing::RecordStream,
            _ => Missing::Wait { too_early: self.order.waited_for(previous.track, access.track) > 0 },
        };
        Report {
            conflict: if former.is_some() || is_gone { Conflict::Reuse } else { Conflict::Race },
            access: self.names.describe(access),
            previous: Some(self.names.describe(previous)),
            address: conflict.start,
            bytes: conflict.end - conflict.start,
            missing,
            allocation: block.map(|block| block.allocation.clone()),
            former: former.cloned(),
            times: 1,
        }
    }

    fn sweep_if_due(&mut self) {
        if self.ranges.len() >= self.sweep_at || self.names.is_full() {
            self.sweep();
        }
    }

    /// Removes everything that is known to be complete, which cannot conflict any more, and names without use.
    pub fn sweep(&mut self) {
        let order = &self.order;
        self.ranges.sweep(|access| order.is_done(access.track, access.epoch));
        self.order.sweep();
        let graphs = self.graphs.values().map(|graph| &graph.recording);
        let recordings = graphs.chain(self.captures.values().map(|capture| &capture.recording));
        let of_nodes = recordings.flat_map(|recording| recording.nodes.iter().map(|node| node.name));
        self.names.retain(self.ranges.accesses().map(|access| access.name).chain(of_nodes));
        self.sweep_at = (2 * self.ranges.len()).max(MIN_SWEEP);
    }
}

/// Events that establish order.
impl State {
    pub(super) fn position(&mut self, stream: Stream) -> Position {
        match self.capture_of(stream).and_then(|graph| Some((graph, self.captures.get(&graph)?))) {
            Some((graph, capture)) => {
                Position::Nodes { graph, nodes: capture.frontiers.get(&stream).cloned().unwrap_or_default() }
            }
            None => Position::Moment(self.moment(stream)),
        }
    }

    pub(super) fn wait_for(&mut self, stream: Stream, position: &Position) {
        match position {
            Position::Moment(moment) => {
                // A captured stream cannot wait for work outside of its graph.
                if self.capture_of(stream).is_none() {
                    let track = self.enter_stream(stream);
                    self.order.wait(track, moment);
                }
            }
            Position::Nodes { graph, nodes } => {
                let Some(capture) = self.captures.get_mut(graph) else { return };
                // A stream that waits for a captured stream joins the capture.
                if *self.capturing.entry(stream).or_insert(*graph) == *graph {
                    let frontier = capture.frontiers.entry(stream).or_default();
                    frontier.extend(nodes);
                    frontier.sort_unstable();
                    frontier.dedup();
                }
            }
        }
    }

    /// Returns the current moment of a stream, for a host function that it gets, or a wait that ends later.
    pub fn moment(&mut self, stream: Stream) -> Moment {
        let track = self.enter_stream(stream);
        self.order.moment(track)
    }

    /// Returns the moment that is complete once the CPU has synchronized with a stream.
    pub fn end_of_stream(&mut self, stream: Stream) -> Moment {
        let track = if stream.kind == StreamKind::Default { self.enter_stream(stream) } else { self.track(stream) };
        self.order.moment(track)
    }

    /// Returns the moments that are complete once the CPU has synchronized with a device.
    pub fn end_of_device(&self, device: u32) -> Vec<Moment> {
        let of_device = self.streams.iter().filter(|(stream, _)| stream.device == device);
        of_device.map(|(_, track)| self.order.moment(*track)).collect()
    }

    /// Returns the moment that is complete once the CPU has synchronized with an event.
    pub fn end_of_event(&self, event: u64) -> Option<Moment> {
        match self.events.get(&event) {
            Some(Position::Moment(moment)) => Some(moment.clone()),
            _ => None,
        }
    }

    /// Marks a moment as known to be complete by the CPU.
    pub fn finish(&mut self, moment: &Moment) {
        self.order.finish(moment);
    }

    /// Makes a stream wait for the current work of another.
    pub fn wait_stream(&mut self, waiting: Stream, awaited: Stream) {
        let position = self.position(awaited);
        self.wait_for(waiting, &position);
    }

    /// Records an event in a stream; with `external` in a capture, the graph records it at each replay.
    pub fn record_event(&mut self, event: u64, stream: Stream, external: bool) {
        if external && let Some(graph) = self.capture_of(stream) {
            return self.capture_node(graph, stream, Action::Record(event), 0, StackId::NONE);
        }
        let position = self.position(stream);
        self.events.insert(event, position);
    }

    /// Makes a stream wait for an event's last record; with `external` in a capture, the graph waits at each replay.
    pub fn wait_event(&mut self, event: u64, stream: Stream, external: bool) {
        if external && let Some(graph) = self.capture_of(stream) {
            return self.capture_node(graph, stream, Action::Wait(event), 0, StackId::NONE);
        }
        if let Some(position) = self.events.get(&event).cloned() {
            self.wait_for(stream, &position);
        }
    }

    /// Removes a destroyed event.
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }
}

/// Allocations and frees.
impl State {
    /// Adds a block that was allocated for a stream or for the CPU.
    pub fn alloc(&mut self, address: u64, bytes: u64, stream: impl Into<Option<Stream>>, stack: StackId) {
        if bytes == 0 {
            return;
        }
        let stream = stream.into();
        let track = stream.map_or(Track::CPU, |stream| self.track(stream));
        let of_graph = stream.is_some_and(|stream| self.is_capturing(stream));
        // 0 means no allocation.
        self.allocations = self.allocations.wrapping_add(1).max(1);
        let end = address.saturating_add(bytes);
        let allocation =
            Allocation { number: self.allocations, address, bytes, stream, stack, of_graph, freed: None, name: None };
        let former = blocks::former(self.remove_blocks(address, bytes, Some(track)));
        self.blocks.insert(address, Block { end, allocation, recorded: Vec::new(), freed_at: None, former });
    }

    /// Marks a block as allocated in a capture.
    pub fn set_of_graph(&mut self, address: u64) {
        if let Some(block) = self.blocks.live_mut(address) {
            block.allocation.of_graph = true;
        }
    }

    /// Removes the blocks in freed memory that goes to its next owner, and the accesses that the allocator has waited
    /// for, which cannot conflict any more. Returns the removed parts.
    pub fn remove_blocks(&mut self, address: u64, bytes: u64, owner: Option<Track>) -> Vec<(u64, u64, Block)> {
        let parts = self.blocks.remove(address, address.saturating_add(bytes));
        for (from, to, block) in &parts {
            let Some(freed_at) = &block.freed_at else { continue };
            // The recorded streams have completed, and the block's own stream has, too, if the memory goes to another
            // stream.
            let track = self.track_of(block.allocation.stream);
            let own = owner.filter(|owner| *owner != track).map(|_| &freed_at.own);
            let moments = || freed_at.recorded.iter().chain(own);
            if moments().next().is_some() {
                let is_past = |access: &Access| moments().any(|moment| moment.covers(access.track, access.epoch));
                self.ranges.retain(*from, *to, |access| !is_past(access));
            }
        }
        parts
    }

    /// Adds a block that was allocated before the sanitizer was enabled, unless it is known.
    pub fn ensure_block(&mut self, address: u64, bytes: u64, stream: impl Into<Option<Stream>>) {
        if self.blocks.live_mut(address).is_none() {
            self.alloc(address, bytes, stream, StackId::NONE);
        }
    }

    /// Records a stream for a block.
    pub fn record_stream(&mut self, address: u64, stream: Stream) {
        if let Some(block) = self.blocks.live_mut(address)
            && block.allocation.stream != Some(stream)
            && !block.recorded.contains(&stream)
        {
            block.recorded.push(stream);
        }
    }

    /// Marks a block as freed, with the name that it had.
    pub fn free(&mut self, address: u64, stack: StackId, name: Option<Arc<str>>) {
        let Some(block) = self.blocks.live_mut(address) else { return };
        block.allocation.name = name;
        block.allocation.freed = Some(stack);
        let (own, recorded) = (block.allocation.stream, block.recorded.clone());
        let own = self.order.moment(self.track_of(own));
        let recorded = recorded.into_iter().map(|stream| self.order.moment(self.track_of(Some(stream)))).collect();
        if let Some(block) = self.blocks.live_mut(address) {
            block.freed_at = Some(FreeProgress { own, recorded });
        }
    }

    /// Marks a freed block as allocated again, with its recorded streams, because its free has failed.
    pub fn undo_free(&mut self, address: u64) {
        let Some(block) = self.blocks.freed_mut(address) else { return };
        block.allocation.name = None;
        block.allocation.freed = None;
        block.freed_at = None;
    }

    /// Removes the accesses to memory whose users have all completed.
    pub fn forget_accesses(&mut self, address: u64, bytes: u64) {
        self.ranges.forget(address, address.saturating_add(bytes));
    }

    /// Removes the blocks and accesses of memory that was released, and whose users have all completed.
    pub fn forget_memory(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        self.blocks.remove(address, end);
        self.ranges.forget(address, end);
    }
}

/// Captures and graphs.
impl State {
    /// Returns whether a stream is in a known capture.
    pub fn is_capturing(&self, stream: Stream) -> bool {
        self.capture_of(stream).is_some()
    }

    /// Begins a capture.
    pub fn capture_begin(&mut self, graph: u64, stream: Stream) {
        let mut capture = Capture::default();
        capture.frontiers.insert(stream, Vec::new());
        self.captures.insert(graph, capture);
        self.capturing.insert(stream, graph);
    }

    /// Ends a capture; without `keep`, it failed and its graph is dropped.
    pub fn capture_end(&mut self, graph: u64, keep: bool) {
        self.capturing.retain(|_, captured| *captured != graph);
        self.events.retain(|_, position| !matches!(position, Position::Nodes { graph: of, .. } if *of == graph));
        if let Some(capture) = self.captures.remove(&graph)
            && keep
        {
            self.add_graph(graph, capture.recording);
        }
    }

    /// Copies the operations of a graph to another. Returns whether the first is known.
    pub fn copy_graph(&mut self, from: u64, to: u64) -> bool {
        let recording = self.graphs.get(&from).map(|graph| graph.recording.clone());
        recording.map(|recording| self.add_graph(to, recording)).is_some()
    }

    /// Adds a graph, or replaces its operations: its next replay comes after those so far.
    pub fn add_graph(&mut self, graph: u64, recording: Recording) {
        self.graphs.entry(graph).or_default().recording = recording;
    }

    /// Removes a graph.
    pub fn forget_graph(&mut self, graph: u64) {
        for track in self.graphs.remove(&graph).into_iter().flat_map(|graph| graph.tracks) {
            self.order.retire(track);
        }
    }

    fn capture(
        &mut self,
        graph: u64,
        stream: Stream,
        (name, stack): (u32, StackId),
        operands: &[Operand],
        refuse: bool,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut planned = Vec::new();
        self.operations += 1;
        let operation = Operation { track: Track::CPU, name, stack };
        for operand in operands.iter().filter(|operand| operand.start < operand.end) {
            let work = self.plan(*operand);
            let (access, alive) = self.access(operation, &work, self.operations, 0);
            if work.graph_owned || !alive {
                self.check_allocation(Site::Capture { graph, stream }, &access, 0, &mut reports);
            }
            planned.push(work);
        }
        // A refused call adds no node.
        if !refuse || reports.is_empty() {
            self.capture_node(graph, stream, Action::Work(planned), name, stack);
        }
        reports
    }

    fn capture_node(&mut self, graph: u64, stream: Stream, action: Action, name: u32, stack: StackId) {
        let Some(capture) = self.captures.get_mut(&graph) else { return };
        let frontier = capture.frontiers.entry(stream).or_default();
        let node = capture.recording.add(std::mem::take(frontier), action, name, stack);
        frontier.push(node);
    }
}
