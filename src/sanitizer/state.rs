//! All that the sanitizer knows, and what each thing that happens changes in it.

mod replay;

use super::{
    Call, Conflict, Manner, Operand, Place, Report, Stream,
    access_names::Sides,
    blocks::{self, Block, Blocks, Life, Passed},
    order::{Moment, Order, Track},
    ranges::{Access, Meeting, Ranges},
    recording::{Action, Capture, Graph, Planned, Recording},
    report::{Missing, Site},
};
use crate::base::stack::StackId;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// The map is swept when it has grown to this many pieces, or to twice what the last sweep left.
const LEAST_SWEEP: usize = 4096;

static NEXT_STATE: AtomicU64 = AtomicU64::new(1);

/// What an event recorded.
#[derive(Debug, Clone)]
pub(super) enum Mark {
    Moment(Moment),
    /// Nodes of a graph that is being captured.
    Nodes {
        graph: u64,
        nodes: Vec<usize>,
    },
}

/// The streams of a device that wait for each other by themselves.
#[derive(Debug, Default)]
struct Lane {
    default: Option<Track>,
    blocking: Vec<Track>,
}

/// An operation that is about to run.
#[derive(Debug, Clone, Copy)]
struct Run {
    track: Track,
    name: u32,
    stack: StackId,
}

/// See the module's comment. Whoever holds it tells it of each call while it is made; a call that only makes order is told
/// once it has succeeded.
#[derive(Debug)]
pub struct State {
    number: u64,
    order: Order,
    ranges: Ranges,
    blocks: Blocks,
    sides: Sides,
    streams: HashMap<Stream, Track>,
    lanes: HashMap<u32, Lane>,
    events: HashMap<u64, Mark>,
    captures: HashMap<u64, Capture>,
    /// The graphs that streams are being captured for.
    capturing: HashMap<Stream, u64>,
    graphs: HashMap<u64, Graph>,
    operations: u64,
    lives: u32,
    sweep_at: usize,
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// Where nothing has happened yet.
    pub fn new() -> State {
        State {
            number: NEXT_STATE.fetch_add(1, Ordering::Relaxed),
            order: Order::new(),
            ranges: Ranges::default(),
            blocks: Blocks::default(),
            sides: Sides::default(),
            streams: HashMap::new(),
            lanes: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            capturing: HashMap::new(),
            graphs: HashMap::new(),
            operations: 0,
            lives: 0,
            sweep_at: LEAST_SWEEP,
        }
    }

    /// What tells its moments from those of another.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn track(&mut self, stream: Stream) -> Track {
        if let Some(track) = self.streams.get(&stream) {
            return *track;
        }
        let track = self.order.add();
        self.streams.insert(stream, track);
        self.sides.place(track, Site::Stream(stream));
        let lane = self.lanes.entry(stream.device).or_default();
        match stream.manner {
            Manner::Apart => {}
            Manner::Blocking => lane.blocking.push(track),
            Manner::Default => lane.default = Some(track),
        }
        track
    }

    /// The track of a stream that gets more work now, which lets it wait for the streams that it waits for by itself.
    fn enter(&mut self, stream: Stream) -> Track {
        let track = self.track(stream);
        if stream.manner != Manner::Apart
            && let Some(lane) = self.lanes.get(&stream.device)
        {
            let awaited =
                if stream.manner == Manner::Default { lane.blocking.as_slice() } else { lane.default.as_slice() };
            for other in awaited {
                self.order.wait(track, &self.order.moment(*other));
            }
        }
        track
    }

    /// The capture that a stream is in.
    pub fn capture_of(&self, stream: Stream) -> Option<u64> {
        if self.capturing.is_empty() { None } else { self.capturing.get(&stream).copied() }
    }

    /// The number of a name.
    pub fn name(&mut self, name: &str) -> u32 {
        self.sides.number(name)
    }

    /// An operation is put into a stream, or done by the CPU. What is wrong with it; where anything is and `refuse` is set, the
    /// operation will not be made.
    pub fn operation(&mut self, place: Place, call: Call<'_>, operands: &[Operand], refuse: bool) -> Vec<Report> {
        let name = self.sides.number(call.name);
        let track = match place {
            Place::Cpu => Track::CPU,
            Place::Stream(stream) => match self.capture_of(stream) {
                Some(graph) => return self.capture(graph, stream, name, call.stack, operands),
                None => self.enter(stream),
            },
        };
        let planned = operands.iter().map(|operand| Planned { operand: *operand, life: 0, own: false });
        let reports = self.run(Run { track, name, stack: call.stack }, planned, refuse);
        if self.ranges.len() >= self.sweep_at {
            self.sweep();
        }
        reports
    }

    fn run(&mut self, run: Run, operands: impl Iterator<Item = Planned> + Clone, refuse: bool) -> Vec<Report> {
        self.operations += 1;
        let (number, epoch) = (self.operations, self.order.step(run.track));
        let mut reports = Vec::new();
        let mut meetings = Vec::new();
        let operands = operands.filter(|planned| planned.operand.start < planned.operand.end);
        for planned in operands.clone() {
            let (access, alive) = self.access(run, &planned, number, epoch);
            if !alive {
                self.check_life(self.sides.site(run.track), &access, planned.life, &mut reports);
            }
            let order = &self.order;
            let is_before = |earlier: &Access| order.is_before(earlier.track, earlier.epoch, run.track);
            if refuse {
                self.ranges.meetings((access.start, access.end), access.kind, is_before, &mut meetings);
            } else {
                self.ranges.meet_and_add(&access, is_before, &mut meetings);
            }
            reports.extend(meetings.drain(..).map(|meeting| self.conflict(&access, &meeting)));
        }
        if refuse && reports.is_empty() {
            for planned in operands {
                let (access, _) = self.access(run, &planned, number, epoch);
                let order = &self.order;
                self.ranges.add(&access, |earlier| order.is_before(earlier.track, earlier.epoch, run.track));
            }
        }
        reports
    }

    /// An access, and whether it is known at once that nothing of its memory was freed: mostly it lies in one block.
    fn access(&self, run: Run, planned: &Planned, number: u64, epoch: u64) -> (Access, bool) {
        let Operand { start, end, kind } = planned.operand;
        let block = if planned.own { None } else { self.blocks.at(start) };
        let life = if planned.own { planned.life } else { block.map_or(0, |block| block.life.number) };
        let is_alive = |block: &Block| {
            block.passed.is_none() && block.end >= end && (planned.life == 0 || planned.life == block.life.number)
        };
        let alive = planned.own || block.is_some_and(is_alive);
        let Run { track, name, stack } = run;
        (Access { start, end, track, epoch, number, stack, name, life, kind }, alive)
    }

    /// The number of the life of the block that a byte lies in; 0 for other memory.
    pub fn life_at(&self, byte: u64) -> u32 {
        self.blocks.at(byte).map_or(0, |block| block.life.number)
    }

    /// Reports an access to memory that was freed. `planned` is the life that the access was meant for, if that is known.
    fn check_life(&self, site: Site, access: &Access, planned: u32, reports: &mut Vec<Report>) {
        for block in self.blocks.across(access.start, access.end) {
            let follows = planned != 0 && block.life.number != planned && block.life(planned).is_some();
            if !follows && block.passed.is_none() {
                continue;
            }
            let life = if follows { block.life(planned) } else { Some(&block.life) };
            let from = access.start.max(self.blocks.start_of(block));
            reports.push(Report {
                conflict: Conflict::UseAfterFree,
                access: self.sides.side_in(site, access),
                previous: None,
                address: from,
                bytes: access.end.min(block.end) - from,
                missing: Missing::LaterFree,
                allocation: life.cloned(),
                former: None,
                times: 1,
            });
        }
    }

    #[cold]
    fn conflict(&self, access: &Access, meeting: &Meeting) -> Report {
        let previous = &meeting.previous;
        let block = self.blocks.at(meeting.start);
        // An access before anybody knew of the block was in the oldest of its lives that is known.
        let is_former = |life: &&Life| life.number == previous.life || previous.life == 0;
        let former = block.and_then(|block| block.past.iter().rev().find(is_former));
        // One that nobody remembers any more, of so many that there were.
        let is_gone = previous.life != 0
            && block.is_some_and(|block| block.life.number != previous.life)
            && self.life_at(previous.start) != previous.life;
        let site = self.sides.site(previous.track);
        // What the former owner's own stream still does is waited for by that stream: the others wait for it as ever.
        let missing = match former {
            Some(life) if site.stream().is_some_and(|stream| Some(stream) != life.stream) => Missing::RecordStream,
            None if is_gone => Missing::RecordStream,
            _ => Missing::Wait { too_early: self.order.waited_for(previous.track, access.track) > 0 },
        };
        Report {
            conflict: if former.is_some() || is_gone { Conflict::Reuse } else { Conflict::Race },
            access: self.sides.side(access),
            previous: Some(self.sides.side(previous)),
            address: meeting.start,
            bytes: meeting.end - meeting.start,
            missing,
            allocation: block.map(|block| block.life.clone()),
            former: former.cloned(),
            times: 1,
        }
    }

    /// Forgets what is known to be done, with which nothing can be in conflict any more.
    pub fn sweep(&mut self) {
        let order = &self.order;
        self.ranges.sweep(|access| order.is_done(access.track, access.epoch));
        self.order.sweep();
        self.sweep_at = (2 * self.ranges.len()).max(LEAST_SWEEP);
    }
}

/// What makes order.
impl State {
    pub(super) fn mark(&mut self, stream: Stream) -> Mark {
        match self.capture_of(stream).and_then(|graph| Some((graph, self.captures.get(&graph)?))) {
            Some((graph, capture)) => {
                Mark::Nodes { graph, nodes: capture.tips.get(&stream).cloned().unwrap_or_default() }
            }
            None => Mark::Moment(self.moment(stream)),
        }
    }

    pub(super) fn obey(&mut self, stream: Stream, mark: &Mark) {
        match mark {
            Mark::Moment(moment) => {
                // A captured stream cannot wait for what is no part of its graph.
                if self.capture_of(stream).is_none() {
                    let track = self.enter(stream);
                    self.order.wait(track, moment);
                }
            }
            Mark::Nodes { graph, nodes } => {
                let Some(capture) = self.captures.get_mut(graph) else { return };
                // Whoever waits for a captured stream is captured.
                if *self.capturing.entry(stream).or_insert(*graph) == *graph {
                    let tips = capture.tips.entry(stream).or_default();
                    tips.extend(nodes);
                    tips.sort_unstable();
                    tips.dedup();
                }
            }
        }
    }

    /// All that a stream has now: for a host function that it gets, or a wait that ends later.
    pub fn moment(&mut self, stream: Stream) -> Moment {
        let track = self.enter(stream);
        self.order.moment(track)
    }

    /// What the CPU sees done that waits now until a stream has nothing left to do.
    pub fn end_of_stream(&mut self, stream: Stream) -> Moment {
        let track = if stream.manner == Manner::Default { self.enter(stream) } else { self.track(stream) };
        self.order.moment(track)
    }

    /// The same of a device.
    pub fn end_of_device(&self, device: u32) -> Vec<Moment> {
        let of_device = self.streams.iter().filter(|(stream, _)| stream.device == device);
        of_device.map(|(_, track)| self.order.moment(*track)).collect()
    }

    /// The same of an event.
    pub fn end_of_event(&self, event: u64) -> Option<Moment> {
        match self.events.get(&event) {
            Some(Mark::Moment(moment)) => Some(moment.clone()),
            _ => None,
        }
    }

    /// The CPU has seen that all of a moment is done.
    pub fn finish(&mut self, moment: &Moment) {
        self.order.finish(moment);
    }

    /// A stream waits for what another has now.
    pub fn wait_stream(&mut self, waiting: Stream, awaited: Stream) {
        let mark = self.mark(awaited);
        self.obey(waiting, &mark);
    }

    /// An event is recorded in a stream; with `external`, in a capture, by a node of the graph.
    pub fn record_event(&mut self, event: u64, stream: Stream, external: bool) {
        if external && let Some(graph) = self.capture_of(stream) {
            return self.capture_node(graph, stream, Action::Record(event), 0, StackId::NONE);
        }
        let mark = self.mark(stream);
        self.events.insert(event, mark);
    }

    /// A stream waits for what an event recorded last; with `external`, in a capture, by a node of the graph.
    pub fn wait_event(&mut self, event: u64, stream: Stream, external: bool) {
        if external && let Some(graph) = self.capture_of(stream) {
            return self.capture_node(graph, stream, Action::Wait(event), 0, StackId::NONE);
        }
        if let Some(mark) = self.events.get(&event).cloned() {
            self.obey(stream, &mark);
        }
    }

    /// An event is no more.
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }
}

/// Memory.
impl State {
    /// An allocator has given a block out, for a stream or for the CPU.
    pub fn alloc(&mut self, address: u64, bytes: u64, stream: impl Into<Option<Stream>>, stack: StackId) {
        if bytes == 0 {
            return;
        }
        let stream = stream.into();
        let track = stream.map_or(Track::CPU, |stream| self.track(stream));
        let graph = stream.and_then(|stream| self.capture_of(stream));
        // 0 is none.
        self.lives = self.lives.wrapping_add(1).max(1);
        let end = address.saturating_add(bytes);
        let life = Life { number: self.lives, address, bytes, stream, stack, graph, freed: None };
        let past = blocks::past(self.take_back(address, bytes, Some(track)));
        self.blocks.add(address, Block { end, life, track, recorded: Vec::new(), passed: None, past });
    }

    /// Freed memory goes to its next owner: what the allocator has waited for can be in conflict with nothing any more. What
    /// there was of blocks.
    pub fn take_back(&mut self, address: u64, bytes: u64, owner: Option<Track>) -> Vec<(u64, u64, Block)> {
        let pieces = self.blocks.take(address, address.saturating_add(bytes));
        for (from, to, block) in &pieces {
            let Some(passed) = &block.passed else { continue };
            // The recorded streams have passed, and another stream's memory only goes on when that has.
            let own = owner.filter(|track| block.track != *track).map(|_| &passed.own);
            let moments = || passed.recorded.iter().chain(own);
            if moments().next().is_some() {
                let is_past = |access: &Access| moments().any(|moment| moment.covers(access.track, access.epoch));
                self.ranges.retain(*from, *to, |access| !is_past(access));
            }
        }
        pieces
    }

    /// A block is there that was given out before anybody listened, unless it is known.
    pub fn ensure(&mut self, address: u64, bytes: u64, stream: impl Into<Option<Stream>>) {
        if self.blocks.live_mut(address).is_none() {
            self.alloc(address, bytes, stream, StackId::NONE);
        }
    }

    /// A stream is recorded as using a block.
    pub fn record_stream(&mut self, address: u64, stream: Stream) {
        let track = self.track(stream);
        if let Some(block) = self.blocks.live_mut(address)
            && block.track != track
            && !block.recorded.contains(&track)
        {
            block.recorded.push(track);
        }
    }

    /// A block is freed.
    pub fn free(&mut self, address: u64, stack: StackId) {
        let Some(block) = self.blocks.live_mut(address) else { return };
        block.life.freed = Some(stack);
        let own = self.order.moment(block.track);
        let recorded = block.recorded.iter().map(|track| self.order.moment(*track)).collect();
        block.passed = Some(Passed { own, recorded });
    }

    /// All that used memory is done.
    pub fn forget_accesses(&mut self, address: u64, bytes: u64) {
        self.ranges.forget(address, address.saturating_add(bytes));
    }

    /// Memory is no longer there, and all that used it is done.
    pub fn forget_memory(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        self.blocks.take(address, end);
        self.ranges.forget(address, end);
    }
}

/// Graphs.
impl State {
    /// Whether a stream captures, as far as is known here.
    pub fn captures(&self, stream: Stream) -> bool {
        self.capture_of(stream).is_some()
    }

    /// A stream begins to capture a graph.
    pub fn capture_begin(&mut self, graph: u64, stream: Stream) {
        let mut capture = Capture::default();
        capture.tips.insert(stream, Vec::new());
        self.captures.insert(graph, capture);
        self.capturing.insert(stream, graph);
    }

    /// The capture of a graph has ended; without `keep` it failed.
    pub fn capture_end(&mut self, graph: u64, keep: bool) {
        self.capturing.retain(|_, captured| *captured != graph);
        self.events.retain(|_, mark| !matches!(mark, Mark::Nodes { graph: of, .. } if *of == graph));
        if let Some(capture) = self.captures.remove(&graph)
            && keep
        {
            self.add_graph(graph, capture.recording);
        }
    }

    /// A graph does what another does. Whether that one is known.
    pub fn copy_graph(&mut self, from: u64, to: u64) -> bool {
        let recording = self.graphs.get(&from).map(|graph| graph.recording.clone());
        let known = recording.is_some();
        match recording {
            Some(recording) => self.add_graph(to, recording),
            None => self.forget_graph(to),
        }
        known
    }

    /// There is a graph.
    pub fn add_graph(&mut self, graph: u64, recording: Recording) {
        self.forget_graph(graph);
        self.graphs.insert(graph, Graph { recording, tracks: Vec::new(), last: None });
    }

    /// A graph is no more.
    pub fn forget_graph(&mut self, graph: u64) {
        for track in self.graphs.remove(&graph).into_iter().flat_map(|graph| graph.tracks) {
            self.order.retire(track);
        }
    }

    fn capture(&mut self, graph: u64, stream: Stream, name: u32, stack: StackId, operands: &[Operand]) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut planned = Vec::new();
        self.operations += 1;
        let run = Run { track: Track::CPU, name, stack };
        for operand in operands.iter().filter(|operand| operand.start < operand.end) {
            let block = self.blocks.at(operand.start);
            let own = block.is_some_and(|block| block.life.graph.is_some());
            let work = Planned { operand: *operand, life: block.map_or(0, |block| block.life.number), own };
            let (access, alive) = self.access(run, &work, self.operations, 0);
            if own || !alive {
                self.check_life(Site::Capture { graph, stream }, &access, 0, &mut reports);
            }
            planned.push(work);
        }
        self.capture_node(graph, stream, Action::Work(planned), name, stack);
        reports
    }

    fn capture_node(&mut self, graph: u64, stream: Stream, action: Action, name: u32, stack: StackId) {
        let Some(capture) = self.captures.get_mut(&graph) else { return };
        let tips = capture.tips.entry(stream).or_default();
        let node = capture.recording.add(std::mem::take(tips), action, name, stack);
        tips.push(node);
    }
}
