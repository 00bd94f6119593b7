//! What the driver's calls tell the sanitizer: events, waits, captures and graphs.
//!
//! What a captured graph does is known from the capture, in which all that was told for its streams became nodes. Of a graph
//! that was built, or that was changed after its capture, copies and fills are looked up in the driver's own nodes; what
//! others do, the program can tell.

use super::{
    Kind, Operand, State, Stream, hooks,
    recording::{Action, Planned, Recording},
    session::{caller, is_on, named, with},
};
use crate::{
    driver::{
        Driver, Event, Graph, GraphExec, GraphNode, NodeType, Stream as RawStream,
        observer::{Observer, OnWaitEnd},
        types::CU_STREAM_CAPTURE_STATUS_NONE,
    },
    runtime::{self, thread},
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// The watcher.
pub static WATCHER: Watch = Watch;

/// See the module's comment.
#[derive(Debug)]
pub struct Watch;

/// Graphs that can be launched are known by the driver's handle; what they are made of by that and this.
const TEMPLATE: u64 = 1 << 63;
/// A capture into a part of a graph, of which nobody knows whether it will be carried out.
const PART: u64 = 1 << 62;
/// The most graphs inside each other that are looked into.
const DEEPEST: usize = 16;

static NEXT_CAPTURE: AtomicU64 = AtomicU64::new(1);
/// The events of nodes that were added by hand, by their graph.
static EVENT_NODES: Mutex<Option<HashMap<u64, HashMap<GraphNode, u64>>>> = Mutex::new(None);

/// What the program told of nodes, by their graph.
static TOLD: Mutex<Option<HashMap<u64, HashMap<GraphNode, Told>>>> = Mutex::new(None);

/// What the program told of a node.
#[derive(Debug, Clone)]
struct Told {
    name: String,
    operands: Vec<Operand>,
}

/// Forgets what was remembered of nodes.
pub(super) fn forget() {
    *EVENT_NODES.lock() = None;
    *TOLD.lock() = None;
}

/// What a node of a graph does, from when the graph is instantiated next.
pub fn tell_node(graph: Graph, node: GraphNode, name: &str, operands: &[Operand]) {
    if is_on() {
        let told = Told { name: name.to_owned(), operands: operands.to_vec() };
        TOLD.lock().get_or_insert_default().entry(graph.handle() as u64).or_default().insert(node, told);
    }
}

fn told_of(graph: Graph, node: GraphNode) -> Option<Told> {
    TOLD.lock().as_ref()?.get(&(graph.handle() as u64))?.get(&node).cloned()
}

/// The device of the calling thread's context, whose default stream a default stream is.
fn current_device(driver: &Driver) -> u32 {
    let native = driver.context_device().ok();
    let devices = runtime::usable().map(|runtime| runtime.devices()).unwrap_or_default();
    let owner = devices.iter().find(|device| Some(device.native) == native);
    owner.map_or_else(thread::device, |device| device.ordinal)
}

fn of(driver: &Driver, stream: RawStream) -> Stream {
    named(stream.handle(), || current_device(driver))
}

/// Whether a stream is in a capture of which it is not known here how it began.
fn captures_unseen(driver: &Driver, raw: RawStream, stream: Stream) -> bool {
    with(|state| state.captures(stream)) == Some(false)
        && driver.stream_capture_status(raw).is_ok_and(|status| status != CU_STREAM_CAPTURE_STATUS_NONE)
}

fn number(event: Event) -> u64 {
    event.native() as u64
}

fn template(graph: Graph) -> u64 {
    graph.handle() as u64 | TEMPLATE
}

impl Observer for Watch {
    fn stream_awaited(&self, driver: &Driver, stream: RawStream) -> OnWaitEnd {
        let ahead = hooks::stream_ahead(of(driver, stream));
        Box::new(move || ahead.finish())
    }

    fn event_awaited(&self, event: Event) -> OnWaitEnd {
        let ahead = hooks::event_ahead(event);
        Box::new(move || ahead.finish())
    }

    fn context_awaited(&self, driver: &Driver) -> OnWaitEnd {
        let ahead = hooks::device_ahead(current_device(driver));
        Box::new(move || ahead.finish())
    }

    fn recorded(&self, driver: &Driver, event: Event, stream: RawStream, external: bool) {
        let (raw, stream) = (stream, of(driver, stream));
        if captures_unseen(driver, raw, stream) {
            // What the event is of, nobody knows here; it is not what the stream has done.
            with(|state| state.forget_event(number(event)));
        } else {
            with(|state| state.record_event(number(event), stream, external));
        }
    }

    fn waits(&self, driver: &Driver, stream: RawStream, event: Event, external: bool) {
        let (raw, stream) = (stream, of(driver, stream));
        // Others than such events are of the same capture, so that nothing is known of them.
        if external && captures_unseen(driver, raw, stream) {
            return;
        }
        with(|state| state.wait_event(number(event), stream, external));
    }

    fn event_ended(&self, event: Event) {
        with(|state| state.forget_event(number(event)));
    }

    fn unmapped(&self, address: u64, bytes: u64) {
        with(|state| state.forget_accesses(address, bytes));
    }

    fn allocated(&self, address: u64, bytes: u64) {
        with(|state| state.forget_memory(address, bytes));
    }

    fn capture_begun(&self, driver: &Driver, stream: RawStream, part: bool) {
        let capture = NEXT_CAPTURE.fetch_add(1, Ordering::Relaxed) | if part { PART } else { 0 };
        let stream = of(driver, stream);
        with(|state| state.capture_begin(capture, stream));
    }

    fn capture_ended(&self, driver: &Driver, stream: RawStream, graph: Option<Graph>) {
        // A call that failed may have left the capture as it was.
        let goes_on = || !matches!(driver.stream_capture_status(stream), Ok(CU_STREAM_CAPTURE_STATUS_NONE));
        if graph.is_none() && goes_on() {
            return;
        }
        let stream = of(driver, stream);
        with(|state| {
            let Some(capture) = state.capture_of(stream) else { return };
            let kept = graph.filter(|_| capture & PART == 0);
            state.capture_end(capture, kept.is_some());
            if let Some(graph) = kept {
                state.copy_graph(capture, template(graph));
                state.forget_graph(capture);
            }
        });
    }

    fn graph_changed(&self, graph: Graph) {
        with(|state| state.forget_graph(template(graph)));
    }

    fn event_node_added(&self, graph: Graph, node: GraphNode, event: Event) {
        let mut nodes = EVENT_NODES.lock();
        nodes.get_or_insert_default().entry(graph.handle() as u64).or_default().insert(node, number(event));
    }

    fn graph_copied(&self, from: Graph, to: Graph) {
        with(|state| state.copy_graph(template(from), template(to)));
    }

    fn graph_ended(&self, graph: Graph) {
        if let Some(told) = TOLD.lock().as_mut() {
            told.remove(&(graph.handle() as u64));
        }
        if let Some(nodes) = EVENT_NODES.lock().as_mut() {
            nodes.remove(&(graph.handle() as u64));
        }
        with(|state| state.forget_graph(template(graph)));
    }

    fn exec_made(&self, driver: &Driver, exec: GraphExec, graph: Graph) {
        let exec = exec.handle() as u64;
        if with(|state| state.copy_graph(template(graph), exec)) == Some(false) {
            let mut steps = Vec::new();
            let looked = look(driver, graph, &[], DEEPEST, &mut steps);
            // One that cannot be understood is not looked after: what it does is not told.
            if looked.is_some() {
                let stack = caller();
                with(|state| {
                    let recording = record(state, &steps, stack);
                    state.add_graph(exec, recording);
                });
            }
        }
    }

    fn exec_changed(&self, exec: GraphExec) {
        with(|state| state.forget_graph(exec.handle() as u64));
    }

    fn exec_ended(&self, exec: GraphExec) {
        with(|state| state.forget_graph(exec.handle() as u64));
    }
}

/// What a node does, as far as it can be seen.
enum Deed {
    Work(Cow<'static, str>, Vec<Operand>),
    Record(u64),
    Wait(u64),
}

struct Step {
    after: Vec<usize>,
    deed: Deed,
}

/// Adds what the nodes of a graph do behind others, each after those that it waits for; the numbers of the last ones.
fn look(driver: &Driver, graph: Graph, before: &[usize], deepest: usize, steps: &mut Vec<Step>) -> Option<Vec<usize>> {
    let nodes = driver.graph_nodes(graph).ok()?;
    let edges = driver.graph_edges(graph).ok()?;
    let mut open: HashMap<GraphNode, usize> = nodes.iter().map(|node| (*node, 0)).collect();
    let (mut awaited, mut waiting) = (HashMap::<_, Vec<GraphNode>>::new(), HashMap::<_, Vec<GraphNode>>::new());
    for (from, to) in edges {
        *open.get_mut(&to)? += 1;
        waiting.entry(from).or_default().push(to);
        awaited.entry(to).or_default().push(from);
    }
    let mut ready: Vec<GraphNode> = nodes.iter().copied().filter(|node| open[node] == 0).rev().collect();
    let mut ends: HashMap<GraphNode, Vec<usize>> = HashMap::new();
    let mut leaves = Vec::new();
    while let Some(node) = ready.pop() {
        let mut after: Vec<usize> =
            awaited.get(&node).into_iter().flatten().flat_map(|from| ends[from].iter().copied()).collect();
        if after.is_empty() {
            after.extend(before);
        }
        after.sort_unstable();
        after.dedup();
        let deed = match driver.graph_node_type(node).ok()? {
            NodeType::Graph => {
                let inner = driver.graph_child(node).ok()?;
                let last = look(driver, inner, &after, deepest.checked_sub(1)?, steps)?;
                ends.insert(node, if last.is_empty() { after.clone() } else { last });
                None
            }
            NodeType::EventRecord => Some(Deed::Record(event_of(graph, node)?)),
            NodeType::WaitEvent => Some(Deed::Wait(event_of(graph, node)?)),
            seen => Some(match (told_of(graph, node), seen) {
                (Some(told), _) => Deed::Work(told.name.into(), told.operands),
                (None, NodeType::Memcpy) => Deed::Work("a copy".into(), copied(driver, node)?),
                (None, NodeType::Memset) => Deed::Work("a fill".into(), filled(driver, node)?),
                (None, _) => Deed::Work("a node".into(), Vec::new()),
            }),
        };
        if let Some(deed) = deed {
            steps.push(Step { after, deed });
            ends.insert(node, vec![steps.len() - 1]);
        }
        for next in waiting.get(&node).into_iter().flatten() {
            let left = open.get_mut(next)?;
            *left -= 1;
            if *left == 0 {
                ready.push(*next);
            }
        }
        if !waiting.contains_key(&node) {
            leaves.extend(&ends[&node]);
        }
    }
    Some(leaves)
}

fn event_of(graph: Graph, node: GraphNode) -> Option<u64> {
    EVENT_NODES.lock().as_ref()?.get(&(graph.handle() as u64))?.get(&node).copied()
}

fn copied(driver: &Driver, node: GraphNode) -> Option<Vec<Operand>> {
    let copy = driver.graph_copy(node).ok()?;
    // Of more than one row it is not told how far apart they are.
    if copy.height > 1 || copy.depth > 1 {
        return Some(Vec::new());
    }
    let ends = [(copy.source, Kind::Read), (copy.destination, Kind::Write)];
    let known = ends.into_iter().filter(|(address, _)| *address != 0);
    Some(known.map(|(address, kind)| Operand::new(address, copy.width as u64, kind)).collect())
}

fn filled(driver: &Driver, node: GraphNode) -> Option<Vec<Operand>> {
    let fill = driver.graph_fill(node).ok()?;
    let bytes = fill.width as u64 * u64::from(fill.element_size);
    let row = |row: usize| fill.address().wrapping_add(row as u64 * fill.pitch as u64);
    Some((0..fill.rows).map(|index| Operand::new(row(index), bytes, Kind::Write)).collect())
}

fn record(state: &mut State, steps: &[Step], stack: crate::base::stack::StackId) -> Recording {
    let mut recording = Recording::default();
    for Step { after, deed } in steps {
        let (name, action) = match deed {
            Deed::Work(name, operands) => {
                let plan =
                    |operand: &Operand| Planned { operand: *operand, life: state.life_at(operand.start), own: false };
                let planned = operands.iter().map(plan).collect();
                (state.name(name), Action::Work(planned))
            }
            Deed::Record(event) => (0, Action::Record(*event)),
            Deed::Wait(event) => (0, Action::Wait(*event)),
        };
        recording.add(after.clone(), action, name, stack);
    }
    recording
}
