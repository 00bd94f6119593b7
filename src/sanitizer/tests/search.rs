//! Random programs, whose races are also found by searching all pairs of accesses in an explicit happens-before graph.

use super::super::{
    call::{Call, Executor, StreamKind},
    report::Site,
    state::State,
    *,
};
use crate::base::stack::StackId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const STREAMS: [Stream; 5] = [
    Stream { device: 0, handle: 0, thread: 0, kind: StreamKind::Default },
    Stream { device: 0, handle: 0x100, thread: 0, kind: StreamKind::Blocking },
    Stream { device: 0, handle: 0x200, thread: 0, kind: StreamKind::NonBlocking },
    Stream { device: 0, handle: 0x300, thread: 0, kind: StreamKind::NonBlocking },
    Stream { device: 1, handle: 0x400, thread: 0, kind: StreamKind::NonBlocking },
];
/// The index of the first stream that can be captured.
const FIRST_NON_BLOCKING: usize = 2;
const BYTES: usize = 64;

/// An access: its first byte, its size, and its kind.
type AccessRange = (u64, u64, Kind);

/// A step of a program. Streams, events, graphs and blocks are small numbers. A destroyed stream's handle is that of
/// another stream later.
#[derive(Debug, Clone)]
enum Step {
    Work { stream: usize, operands: Vec<AccessRange> },
    CpuAccess { operand: AccessRange },
    Record { event: u64, stream: usize },
    Wait { event: u64, stream: usize },
    WaitStream { waiting: usize, awaited: usize },
    FinishStream { stream: usize },
    FinishEvent { event: u64 },
    FinishDevice { device: u32 },
    Destroy { stream: usize },
    Alloc { start: usize, bytes: usize, stream: usize },
    RecordStream { block: usize, stream: usize },
    Free { block: usize },
    Sweep,
    Begin { graph: u64, stream: usize },
    End { graph: u64 },
    Replay { graph: u64, stream: usize },
}

fn operand() -> impl Strategy<Value = AccessRange> {
    let kind = prop_oneof![3 => Just(Kind::Read), 2 => Just(Kind::Write), 1 => Just(Kind::ReadWrite)];
    (0..BYTES as u64 - 12, 0_u64..12, kind)
}

fn step() -> impl Strategy<Value = Step> {
    let (stream, event, graph) = (0..STREAMS.len(), 0_u64..3, 0_u64..2);
    prop_oneof![
        12 => (stream.clone(), prop::collection::vec(operand(), 1..3))
            .prop_map(|(stream, operands)| Step::Work { stream, operands }),
        1 => operand().prop_map(|operand| Step::CpuAccess { operand }),
        4 => (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Record { event, stream }),
        4 => (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Wait { event, stream }),
        3 => (stream.clone(), stream.clone())
            .prop_map(|(waiting, awaited)| Step::WaitStream { waiting, awaited }),
        1 => stream.clone().prop_map(|stream| Step::FinishStream { stream }),
        1 => event.prop_map(|event| Step::FinishEvent { event }),
        1 => (0_u32..2).prop_map(|device| Step::FinishDevice { device }),
        2 => (1..STREAMS.len()).prop_map(|stream| Step::Destroy { stream }),
        4 => (0_usize..8, 1_usize..4, stream.clone())
            .prop_map(|(start, units, stream)| Step::Alloc { start: start * 8, bytes: units * 8, stream }),
        2 => (0_usize..8, stream.clone()).prop_map(|(block, stream)| Step::RecordStream { block, stream }),
        4 => (0_usize..8).prop_map(|block| Step::Free { block }),
        1 => Just(Step::Sweep),
        2 => (graph.clone(), FIRST_NON_BLOCKING..STREAMS.len())
            .prop_map(|(graph, stream)| Step::Begin { graph, stream }),
        2 => graph.clone().prop_map(|graph| Step::End { graph }),
        3 => (graph, stream).prop_map(|(graph, stream)| Step::Replay { graph, stream }),
    ]
}

/// The happens-before graph: for each node, all nodes before it.
#[derive(Default)]
struct Dag(Vec<BTreeSet<usize>>);

impl Dag {
    fn add(&mut self, after: impl IntoIterator<Item = usize>) -> usize {
        let mut before = BTreeSet::new();
        for node in after {
            before.extend(&self.0[node]);
            before.insert(node);
        }
        self.0.push(before);
        self.0.len() - 1
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.0[to].contains(&from)
    }
}

#[derive(Clone)]
enum Position {
    Node(usize),
    Local { graph: u64, tips: BTreeSet<usize> },
}

#[derive(Default, Clone)]
struct Captured {
    tips: HashMap<usize, BTreeSet<usize>>,
    nodes: Vec<(BTreeSet<usize>, Vec<AccessRange>)>,
}

struct Access {
    number: u64,
    node: usize,
    operand: AccessRange,
}

struct Block {
    allocation: u32,
    start: usize,
    end: usize,
    stream: usize,
    recorded: Vec<usize>,
}

/// Bytes that were reallocated before the access with this index. Accesses that precede these nodes have completed.
struct Reuse {
    before: usize,
    bytes: BTreeSet<usize>,
    nodes: Vec<usize>,
}

/// The state of a freed byte: its allocation, its stream, and the progress of the streams at the free.
#[derive(Clone)]
struct Freed {
    allocation: u32,
    stream: usize,
    own: Option<usize>,
    recorded: Vec<usize>,
}

#[derive(Default)]
struct Model {
    dag: Dag,
    last: [Option<usize>; STREAMS.len()],
    cpu: Option<usize>,
    events: BTreeMap<u64, Position>,
    captures: BTreeMap<u64, Captured>,
    capturing: BTreeMap<usize, u64>,
    graphs: BTreeMap<u64, (Captured, Option<usize>)>,
    accesses: Vec<Access>,
    reuses: Vec<Reuse>,
    blocks: Vec<Block>,
    freed: BTreeMap<usize, Freed>,
    operations: u64,
    allocations: u32,
}

impl Model {
    /// Adds a node to a stream.
    fn enter(&mut self, stream: usize) -> usize {
        let implicit = match STREAMS[stream].kind {
            StreamKind::Default => self.last[1],
            StreamKind::Blocking => self.last[0],
            StreamKind::NonBlocking => None,
        };
        let node = self.dag.add([self.last[stream], self.cpu, implicit].into_iter().flatten());
        self.last[stream] = Some(node);
        node
    }

    fn finish(&mut self, node: Option<usize>) {
        self.cpu = Some(self.dag.add(self.cpu.into_iter().chain(node)));
    }

    fn position(&mut self, stream: usize) -> Position {
        match self.capturing.get(&stream) {
            Some(graph) => {
                let tips = self.captures[graph].tips.get(&stream).cloned().unwrap_or_default();
                Position::Local { graph: *graph, tips }
            }
            None => Position::Node(self.enter(stream)),
        }
    }

    fn wait_for(&mut self, stream: usize, position: Position) {
        match position {
            Position::Node(node) => {
                if !self.capturing.contains_key(&stream) {
                    self.enter(stream);
                    self.last[stream] = Some(self.dag.add([node].into_iter().chain(self.last[stream])));
                }
            }
            Position::Local { graph, tips } => {
                if *self.capturing.entry(stream).or_insert(graph) == graph {
                    self.captures.get_mut(&graph).unwrap().tips.entry(stream).or_default().extend(tips);
                }
            }
        }
    }

    fn run(&mut self, node: usize, operands: &[AccessRange]) {
        self.operations += 1;
        let number = self.operations;
        self.accesses.extend(operands.iter().map(|operand| Access { number, node, operand: *operand }));
    }

    /// Returns the freed allocations that the operands access.
    fn freed_allocations(&self, operands: &[AccessRange]) -> BTreeSet<u32> {
        let bytes = operands.iter().flat_map(|(start, bytes, _)| *start..start + bytes);
        bytes.filter_map(|byte| Some(self.freed.get(&(byte as usize))?.allocation)).collect()
    }

    fn is_exempt(&self, byte: u64, earlier: usize, later: usize) -> bool {
        self.reuses.iter().any(|reuse| {
            (earlier < reuse.before && reuse.before <= later)
                && reuse.bytes.contains(&(byte as usize))
                && reuse.nodes.iter().any(|node| self.dag.reaches(self.accesses[earlier].node, *node))
        })
    }

    /// Returns whether two accesses, given by index, race on a byte.
    fn is_race(&self, byte: u64, earlier: usize, later: usize) -> bool {
        let (one, two) = (&self.accesses[earlier], &self.accesses[later]);
        let has = |access: &Access| (access.operand.0..access.operand.0 + access.operand.1).contains(&byte);
        one.number < two.number
            && has(one)
            && has(two)
            && (one.operand.2.writes() || two.operand.2.writes())
            && !self.dag.reaches(one.node, two.node)
            && !self.is_exempt(byte, earlier, later)
    }
}

fn operands(accesses: &[AccessRange]) -> Vec<Operand> {
    accesses.iter().map(|(start, bytes, kind)| Operand::new(*start, *bytes, *kind)).collect()
}

/// Applies a step to the model and to the sanitizer, and returns the sanitizer's reports.
fn apply(model: &mut Model, state: &mut State, step: &Step) -> Vec<Report> {
    let call = Call { name: "work", stack: StackId::NONE };
    match step {
        Step::Work { stream, operands: list } => {
            let expected = model.freed_allocations(list);
            match model.capturing.get(stream) {
                Some(graph) => {
                    let captured = model.captures.get_mut(graph).unwrap();
                    let after = std::mem::take(captured.tips.entry(*stream).or_default());
                    captured.tips.entry(*stream).or_default().insert(captured.nodes.len());
                    captured.nodes.push((after, list.clone()));
                    model.operations += 1;
                }
                None => {
                    let node = model.enter(*stream);
                    model.run(node, list);
                }
            }
            let reports = state.operation(Executor::Stream(STREAMS[*stream]), call, &operands(list), false);
            let freed = reports.iter().filter(|report| report.conflict == Conflict::UseAfterFree);
            let found: BTreeSet<u32> = freed.map(|report| report.allocation.as_ref().unwrap().number).collect();
            assert_eq!(found, expected);
            return reports;
        }
        Step::CpuAccess { operand } => {
            model.finish(None);
            model.run(model.cpu.unwrap(), &[*operand]);
            return state.operation(Executor::Cpu, call, &operands(&[*operand]), false);
        }
        Step::Record { event, stream } => {
            let position = model.position(*stream);
            model.events.insert(*event, position);
            state.record_event(*event, STREAMS[*stream], false);
        }
        Step::Wait { event, stream } => {
            let position = model.events.get(event).cloned();
            if *stream < FIRST_NON_BLOCKING && matches!(position, Some(Position::Local { .. })) {
                return Vec::new();
            }
            if let Some(position) = position {
                model.wait_for(*stream, position);
            }
            state.wait_event(*event, STREAMS[*stream], false);
        }
        Step::WaitStream { waiting, awaited } => {
            if *waiting < FIRST_NON_BLOCKING && model.capturing.contains_key(awaited) {
                return Vec::new();
            }
            let position = model.position(*awaited);
            model.wait_for(*waiting, position);
            state.wait_stream(STREAMS[*waiting], STREAMS[*awaited]);
        }
        Step::FinishStream { stream } => {
            if *stream == 0 {
                model.enter(0);
            }
            model.finish(model.last[*stream]);
            state.finish_stream(STREAMS[*stream]);
        }
        Step::FinishEvent { event } => {
            if let Some(Position::Node(node)) = model.events.get(event) {
                model.finish(Some(*node));
            }
            state.finish_event(*event);
        }
        Step::FinishDevice { device } => {
            for (index, stream) in STREAMS.iter().enumerate() {
                if stream.device == *device {
                    model.finish(model.last[index]);
                }
            }
            state.finish_device(*device);
        }
        Step::Destroy { stream } => state.end_streams(|ended| *ended == STREAMS[*stream]),
        Step::Alloc { start, bytes, stream } => {
            let end = start + bytes;
            if model.blocks.iter().any(|block| block.start < end && *start < block.end) {
                return Vec::new();
            }
            for byte in *start..end {
                let Some(freed) = model.freed.remove(&byte) else { continue };
                let own = freed.own.filter(|_| freed.stream != *stream);
                let nodes = freed.recorded.into_iter().chain(own).collect();
                model.reuses.push(Reuse { before: model.accesses.len(), bytes: [byte].into(), nodes });
            }
            model.allocations += 1;
            let (start, stream, allocation) = (*start, *stream, model.allocations);
            model.blocks.push(Block { allocation, start, end, stream, recorded: Vec::new() });
            state.alloc(start as u64, *bytes as u64, STREAMS[stream], StackId::NONE);
        }
        Step::RecordStream { block, stream } => {
            if let Some(block) = model.blocks.get_mut(*block) {
                if block.stream != *stream {
                    block.recorded.push(*stream);
                }
                state.record_stream(block.start as u64, STREAMS[*stream]);
            }
        }
        Step::Free { block } => {
            if *block < model.blocks.len() {
                let Block { allocation, start, end, stream, recorded } = model.blocks.remove(*block);
                let recorded = recorded.iter().filter_map(|stream| model.last[*stream]).collect();
                let freed = Freed { allocation, stream, own: model.last[stream], recorded };
                model.freed.extend((start..end).map(|byte| (byte, freed.clone())));
                state.free(start as u64, StackId::NONE, None);
            }
        }
        Step::Sweep => state.sweep(),
        Step::Begin { graph, stream } => {
            if !model.captures.contains_key(graph) && !model.capturing.contains_key(stream) {
                let tips = [(*stream, BTreeSet::new())].into();
                model.captures.insert(*graph, Captured { tips, nodes: Vec::new() });
                model.capturing.insert(*stream, *graph);
                state.capture_begin(*graph, STREAMS[*stream]);
            }
        }
        Step::End { graph } => {
            if let Some(captured) = model.captures.remove(graph) {
                model.capturing.retain(|_, of| of != graph);
                model
                    .events
                    .retain(|_, position| !matches!(position, Position::Local { graph: of, .. } if of == graph));
                model.graphs.insert(*graph, (captured, None));
                state.capture_end(*graph, true);
            }
        }
        Step::Replay { graph, stream } => {
            if model.capturing.contains_key(stream) {
                return Vec::new();
            }
            if let Some((captured, last)) = model.graphs.get(graph).cloned() {
                let entered = model.enter(*stream);
                let begin = model.dag.add([entered].into_iter().chain(last));
                let mut made = Vec::new();
                for (after, list) in &captured.nodes {
                    let after: Vec<usize> = after.iter().map(|local| made[*local]).chain([begin]).collect();
                    let node = model.dag.add(after);
                    made.push(node);
                    model.run(node, list);
                }
                let end = model.dag.add(made.into_iter().chain([begin]));
                model.last[*stream] = Some(end);
                model.graphs.insert(*graph, (captured, Some(end)));
            }
            return state.replay(*graph, STREAMS[*stream], false);
        }
    }
    Vec::new()
}

/// Runs a program. Returns an error if the sanitizer's reports are wrong; otherwise whether the program has a race.
fn check(program: &[Step]) -> Result<bool, String> {
    let (mut model, mut state) = (Model::default(), State::new());
    let mut reports = Vec::new();
    for step in program {
        reports.extend(apply(&mut model, &mut state, step));
    }
    // The others are about one access.
    reports.retain(|report| matches!(report.conflict, Conflict::Race | Conflict::Reuse));
    for report in &reports {
        let previous = report.previous.as_ref().unwrap();
        let of = |number| {
            let accesses = model.accesses.iter().enumerate();
            accesses.filter(move |(_, access)| access.number == number).map(|(index, _)| index)
        };
        let mut bytes = report.address..report.address + report.bytes;
        let is_real = bytes.any(|byte| {
            of(previous.number).any(|earlier| of(report.access.number).any(|later| model.is_race(byte, earlier, later)))
        });
        if !is_real || matches!(report.access.site, Site::Capture { .. }) {
            return Err(format!("no race: {}", report.text()));
        }
    }
    // The first race on each byte is reported.
    let mut raced = false;
    for byte in 0..BYTES as u64 {
        let first = (0..model.accesses.len()).find(|later| (0..*later).any(|one| model.is_race(byte, one, *later)));
        let Some(first) = first else { continue };
        raced = true;
        let number = model.accesses[first].number;
        let holds = |report: &Report| {
            report.access.number == number && (report.address..report.address + report.bytes).contains(&byte)
        };
        if !reports.iter().any(holds) {
            return Err(format!("the race of operation {number} on byte {byte} was not found"));
        }
    }
    Ok(raced)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reports_match_an_exhaustive_search(program in prop::collection::vec(step(), 1..60)) {
        if let Err(error) = check(&program) {
            prop_assert!(false, "{error}");
        }
    }
}

#[test]
fn random_programs_include_racy_and_clean_ones() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut racy = 0;
    for _ in 0..200 {
        let program = prop::collection::vec(step(), 8).new_tree(&mut runner).unwrap().current();
        racy += usize::from(check(&program).unwrap());
    }
    assert!((20..180).contains(&racy), "{racy} of 200 have a race");
}
