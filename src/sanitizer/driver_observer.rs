//! Observes the driver's calls for the sanitizer: events, waits, captures and graphs.
//!
//! The operations of a captured graph are known from the capture, in which every operation of its streams became a
//! node. For a graph that was built, or changed after its capture, copies and fills are read from the driver's nodes;
//! the program can report the operations of other nodes.

use super::{
    call::Stream,
    library_observer,
    recording::{Action, Recording},
    session::{caller, stream_of_handle, with},
    state::State,
};
use crate::{
    driver::{
        Driver, Event, Graph, GraphExec, GraphNode, NodeType, Stream as RawStream,
        observer::{Observer, OnWaitEnd},
    },
    observe::{Kind, Operand},
    runtime::{self, thread},
    stream::capture_status::{self, CaptureStatus},
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// The observer of the driver's calls.
pub static OBSERVER: DriverObserver = DriverObserver;

/// Updates the sanitizer's state for each driver call.
#[derive(Debug)]
pub struct DriverObserver;

/// Executable graphs are identified by the driver's handle; the graphs that they are instantiated from, by the handle
/// and this bit.
const TEMPLATE: u64 = 1 << 63;
/// Marks a capture into a part of a graph, such as a conditional body, which may not be executed.
const PART: u64 = 1 << 62;
/// The maximum nesting depth of child graphs that are examined.
const MAX_DEPTH: usize = 16;

static NEXT_CAPTURE: AtomicU64 = AtomicU64::new(1);
/// The operations that the program reported for nodes, by graph.
static REPORTED_NODES: Mutex<Option<HashMap<u64, HashMap<GraphNode, ReportedNode>>>> = Mutex::new(None);

/// The reported operation of a node.
#[derive(Debug, Clone)]
struct ReportedNode {
    name: String,
    operands: Vec<Operand>,
}

/// Removes all data about nodes.
pub(super) fn forget() {
    *REPORTED_NODES.lock() = None;
}

/// Stores the operation of a node, which takes effect when the graph is next instantiated.
pub fn report_node(graph: Graph, node: GraphNode, name: &str, operands: &[Operand]) {
    let reported = ReportedNode { name: name.to_owned(), operands: operands.to_vec() };
    REPORTED_NODES.lock().get_or_insert_default().entry(graph.handle() as u64).or_default().insert(node, reported);
}

fn reported_node(graph: Graph, node: GraphNode) -> Option<ReportedNode> {
    REPORTED_NODES.lock().as_ref()?.get(&(graph.handle() as u64))?.get(&node).cloned()
}

/// Returns the device of the calling thread's context, which determines the default stream.
fn current_device(driver: &Driver) -> u32 {
    let native = driver.context_device().ok();
    let devices = runtime::usable().map(|runtime| runtime.devices()).unwrap_or_default();
    let owner = devices.iter().find(|device| Some(device.native) == native);
    owner.map_or_else(thread::device, |device| device.ordinal)
}

fn name_of(driver: &Driver, stream: RawStream) -> Stream {
    stream_of_handle(stream.handle(), || current_device(driver))
}

/// Returns whether a stream is in a capture that the sanitizer did not see begin.
fn is_in_unknown_capture(driver: &Driver, raw: RawStream, stream: Stream) -> bool {
    with(|state| state.is_capturing(stream)) == Some(false)
        && matches!(capture_status::of(driver, raw), Ok(CaptureStatus::Active | CaptureStatus::Invalidated))
}

fn number(event: Event) -> u64 {
    event.native() as u64
}

fn template(graph: Graph) -> u64 {
    graph.handle() as u64 | TEMPLATE
}

impl Observer for DriverObserver {
    fn stream_awaited(&self, driver: &Driver, stream: RawStream) -> OnWaitEnd {
        let pending = library_observer::pending_stream(name_of(driver, stream));
        Box::new(move || pending.finish())
    }

    fn event_awaited(&self, event: Event) -> OnWaitEnd {
        let pending = library_observer::pending_event(event);
        Box::new(move || pending.finish())
    }

    fn context_awaited(&self, driver: &Driver) -> OnWaitEnd {
        let pending = library_observer::pending_device(current_device(driver));
        Box::new(move || pending.finish())
    }

    fn recorded(&self, driver: &Driver, event: Event, stream: RawStream, external: bool) {
        let (raw, stream) = (stream, name_of(driver, stream));
        if is_in_unknown_capture(driver, raw, stream) {
            // The recorded position is unknown here, but it is not the stream's current moment.
            with(|state| state.forget_event(number(event)));
        } else {
            with(|state| state.record_event(number(event), stream, external));
        }
    }

    fn waits(&self, driver: &Driver, stream: RawStream, event: Event, external: bool) {
        let (raw, stream) = (stream, name_of(driver, stream));
        // Other events belong to the same unknown capture, so nothing is known of them.
        if external && is_in_unknown_capture(driver, raw, stream) {
            return;
        }
        with(|state| state.wait_event(number(event), stream, external));
    }

    fn stream_ended(&self, stream: RawStream) {
        with(|state| state.end_streams(|ended| ended.handle == stream.handle()));
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
        let stream = name_of(driver, stream);
        with(|state| state.capture_begin(capture, stream));
    }

    fn capture_ended(&self, driver: &Driver, stream: RawStream, graph: Option<Graph>) {
        // A failed call may have left the capture in progress.
        if graph.is_none() && capture_status::may_capture(driver, stream) {
            return;
        }
        let stream = name_of(driver, stream);
        with(|state| {
            let Some(capture) = state.capture_of(stream) else { return };
            let kept_graph = graph.filter(|_| capture & PART == 0);
            state.capture_end(capture, kept_graph.is_some());
            if let Some(graph) = kept_graph {
                state.copy_graph(capture, template(graph));
                state.forget_graph(capture);
            }
        });
    }

    fn graph_changed(&self, graph: Graph) {
        with(|state| state.forget_graph(template(graph)));
    }

    fn graph_copied(&self, from: Graph, to: Graph) {
        with(|state| state.copy_graph(template(from), template(to)));
    }

    fn graph_ended(&self, graph: Graph) {
        if let Some(reported) = REPORTED_NODES.lock().as_mut() {
            reported.remove(&(graph.handle() as u64));
        }
        with(|state| state.forget_graph(template(graph)));
    }

    fn exec_made(&self, driver: &Driver, exec: GraphExec, graph: Graph) {
        let exec = exec.handle() as u64;
        if with(|state| state.copy_graph(template(graph), exec)) == Some(false) {
            let mut steps = Vec::new();
            let examined = collect_steps(driver, graph, &[], MAX_DEPTH, &mut steps);
            let stack = caller();
            with(|state| {
                // A graph that cannot be examined is not checked.
                if examined.is_none() {
                    return state.forget_graph(exec);
                }
                let recording = record(state, &steps, stack);
                state.add_graph(exec, recording);
            });
        }
    }

    fn exec_changed(&self, exec: GraphExec) {
        with(|state| state.forget_graph(exec.handle() as u64));
    }

    fn exec_ended(&self, exec: GraphExec) {
        with(|state| state.forget_graph(exec.handle() as u64));
    }
}

/// The action of a node, as far as it is known.
enum NodeAction {
    Work(Cow<'static, str>, Vec<Operand>),
    Record(u64),
    Wait(u64),
}

struct Step {
    after: Vec<usize>,
    action: NodeAction,
}

/// Adds the steps of a graph's nodes in topological order, after the steps `before`. Returns the indices of the last
/// ones.
fn collect_steps(
    driver: &Driver,
    graph: Graph,
    before: &[usize],
    depth: usize,
    steps: &mut Vec<Step>,
) -> Option<Vec<usize>> {
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
        let action = match driver.graph_node_type(node).ok()? {
            NodeType::Graph => {
                let inner = driver.graph_child(node).ok()?;
                let last = collect_steps(driver, inner, &after, depth.checked_sub(1)?, steps)?;
                ends.insert(node, if last.is_empty() { after.clone() } else { last });
                None
            }
            NodeType::EventRecord => Some(NodeAction::Record(number(driver.graph_recorded_event(node).ok()?))),
            NodeType::WaitEvent => Some(NodeAction::Wait(number(driver.graph_awaited_event(node).ok()?))),
            seen => Some(match (reported_node(graph, node), seen) {
                (Some(reported), _) => NodeAction::Work(reported.name.into(), reported.operands),
                (None, NodeType::Memcpy) => NodeAction::Work("a copy".into(), copied(driver, node)?),
                (None, NodeType::Memset) => NodeAction::Work("a fill".into(), filled(driver, node)?),
                (None, _) => NodeAction::Work("a node".into(), Vec::new()),
            }),
        };
        if let Some(action) = action {
            steps.push(Step { after, action });
            ends.insert(node, vec![steps.len() - 1]);
        }
        for next in waiting.get(&node).into_iter().flatten() {
            let remaining = open.get_mut(next)?;
            *remaining -= 1;
            if *remaining == 0 {
                ready.push(*next);
            }
        }
        if !waiting.contains_key(&node) {
            leaves.extend(&ends[&node]);
        }
    }
    Some(leaves)
}

fn copied(driver: &Driver, node: GraphNode) -> Option<Vec<Operand>> {
    let copy = driver.graph_copy(node).ok()?;
    // The distance between several rows is not known.
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
    for Step { after, action } in steps {
        let (name, action) = match action {
            NodeAction::Work(name, operands) => {
                let planned = operands.iter().map(|operand| state.plan(*operand)).collect();
                (state.name(name), Action::Work(planned))
            }
            NodeAction::Record(event) => (0, Action::Record(*event)),
            NodeAction::Wait(event) => (0, Action::Wait(*event)),
        };
        recording.add(after.clone(), action, name, stack);
    }
    recording
}
