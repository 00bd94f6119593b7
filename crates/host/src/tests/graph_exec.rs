//! Executable graphs: launches, enabling and disabling nodes, destruction.

use super::{
    graph::{Fixture, code, span},
    stress::Numbers,
    *,
};
use crate::driver::{FillNode, Graph, GraphExec, GraphNode, KernelNode, codes::*};

/// Adds a kernel node that adds a number to a word.
pub fn add(fixture: &Fixture, graph: Graph, before: &[GraphNode], word: u64, amount: u32) -> GraphNode {
    with_add(fixture, word, amount, |kernel| fixture.driver.graph_add_kernel(graph, before, kernel))
        .expect("a kernel node can be added")
}

/// Calls `body` with the parameters of a kernel that adds a number to a word.
pub fn with_add<T>(fixture: &Fixture, word: u64, amount: u32, body: impl FnOnce(&KernelNode) -> T) -> T {
    let count = 1_u32;
    let parameters: [*const c_void; 3] =
        [(&raw const word).cast(), (&raw const count).cast(), (&raw const amount).cast()];
    // SAFETY: these are the parameters of the kernel, and the tests keep the memory.
    body(&unsafe { KernelNode::new(fixture.function(c"test_add"), &parameters) })
}

/// Reads a word of device memory.
pub fn word(fixture: &Fixture, address: u64) -> u32 {
    u32::from_le_bytes(read(&fixture.t, address, 4).try_into().expect("a word has four bytes"))
}

/// Launches an executable graph, and waits for it.
pub fn run(fixture: &Fixture, exec: GraphExec) {
    fixture.driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    fixture.driver.stream_synchronize(fixture.stream).expect("the work succeeds");
}

#[test]
fn a_graph_without_nodes_can_be_launched() {
    let fixture = Fixture::new();
    let (driver, graph) = (&fixture.driver, fixture.graph());
    fixture.launch(graph).expect("an empty graph cannot fail");
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(code(driver.graph_instantiate(graph, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn graphs_of_any_shape_keep_their_order() {
    let fixture = Fixture::new();
    let (driver, mut numbers) = (&fixture.driver, Numbers(1));
    for _ in 0..40 {
        let (graph, inner, log) = (fixture.graph(), fixture.graph(), Log::default());
        let nodes: Vec<GraphNode> = (0..30).map(|entry| fixture.note(graph, &[], &log, entry)).collect();
        // Each node has a distinct rank; edges go from lower ranks to higher ones.
        let mut ranks: Vec<usize> = (0..30).collect();
        for index in (1..30).rev() {
            ranks.swap(index, numbers.below(index + 1));
        }
        let mut edges = Vec::new();
        for _ in 0..60 {
            let (one, other) = (numbers.below(30), numbers.below(30));
            let edge = if ranks[one] < ranks[other] { (one, other) } else { (other, one) };
            if one != other && !edges.contains(&edge) {
                edges.push(edge);
            }
        }
        let handles: Vec<_> = edges.iter().map(|(from, to)| (nodes[*from], nodes[*to])).collect();
        driver.graph_add_dependencies(graph, &handles).expect("the edges are new and make no cycle");
        // Sometimes a child graph between two nodes: its nodes run between them, too.
        let (child, from, to) = (numbers.below(2) == 1, edges[0].0, edges[0].1);
        if child {
            fixture.note(inner, &[], &log, 30);
            fixture.note(inner, &[], &log, 31);
            let node = driver.graph_add_child(graph, &[nodes[from]], inner).expect("a child graph node can be added");
            driver.graph_add_dependencies(graph, &[(node, nodes[to])]).expect("the edge is new");
        }
        fixture.launch(graph).expect("the graph runs");
        let entries = log.entries();
        assert_eq!(entries.len(), if child { 32 } else { 30 });
        let at = |entry: usize| entries.iter().position(|known| *known == entry).expect("every node runs once");
        for (from, to) in &edges {
            assert!(at(*from) < at(*to), "{from} before {to}: {entries:?}");
        }
        for entry in if child { 30..32 } else { 0..0 } {
            assert!(at(from) < at(entry) && at(entry) < at(to), "{from}, {entry}, {to}: {entries:?}");
        }
        driver.graph_destroy(graph).expect("the graph is live");
        driver.graph_destroy(inner).expect("the graph is live");
    }
}

#[test]
fn flags_are_kept() {
    let fixture = Fixture::new();
    let (driver, graph) = (&fixture.driver, fixture.graph());
    let kept = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let priorities = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    let exec = driver.graph_instantiate(graph, kept | priorities).expect("the flags are valid");
    assert_eq!(code(driver.graph_instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(driver.graph_exec_flags(exec).expect("the handle is live"), kept);
    assert_eq!(code(driver.graph_instantiate(graph, 1 << 20)), CUDA_ERROR_INVALID_VALUE);
    let by_kernels = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    assert_eq!(code(driver.graph_instantiate(graph, by_kernels)), CUDA_ERROR_NOT_SUPPORTED);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    assert_eq!(code(driver.graph_exec_flags(exec)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_exec_destroy(exec)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_launch(exec, fixture.stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_upload(exec, fixture.stream)), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(graph).expect("the graph is live");
}

#[test]
fn disabling_nodes_affects_later_launches() {
    let fixture = Fixture::new();
    let (driver, graph, memory, log) = (&fixture.driver, fixture.graph(), alloc(&fixture.t, 4), Log::default());
    let zero = FillNode::new(span(memory, 4), 0, 4);
    let fill = driver.graph_add_fill(graph, &[], &zero, fixture.context).expect("a fill node can be added");
    let kernel = add(&fixture, graph, &[fill], memory, 5);
    let host = fixture.note(graph, &[kernel], &log, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 5);
    // Submitted work is unchanged.
    let stream = fixture.stream.handle() as CUstream;
    let gate = Gate::close(&fixture.t, stream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    driver.graph_node_set_enabled(exec, fill, false).expect("fill nodes can be disabled");
    assert_eq!((driver.graph_node_enabled(exec, fill), driver.graph_node_enabled(exec, kernel)), (Ok(false), Ok(true)));
    gate.open();
    driver.stream_synchronize(fixture.stream).expect("the work succeeds");
    assert_eq!(word(&fixture, memory), 5);
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 10);
    with_add(&fixture, memory, 100, |kernel_node| driver.graph_exec_set_kernel(exec, kernel, kernel_node))
        .expect("it fits");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 110);
    driver.graph_node_set_enabled(exec, fill, true).expect("fill nodes can be disabled");
    driver.graph_node_set_enabled(exec, kernel, false).expect("kernel nodes can be disabled");
    run(&fixture, exec);
    assert_eq!((word(&fixture, memory), log.entries().len()), (0, 5));
    // The graph itself is unchanged.
    fixture.launch(graph).expect("the graph runs");
    assert_eq!(word(&fixture, memory), 5);
    // Host functions cannot be disabled, fills have no kernel, and nodes of another graph are invalid here.
    assert_eq!(code(driver.graph_node_set_enabled(exec, host, false)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_node_enabled(exec, host)), CUDA_ERROR_INVALID_VALUE);
    let set =
        |exec, node| with_add(&fixture, memory, 1, |kernel| code(driver.graph_exec_set_kernel(exec, node, kernel)));
    assert_eq!(set(exec, fill), CUDA_ERROR_INVALID_VALUE);
    let other = fixture.graph();
    let foreign = add(&fixture, other, &[], memory, 1);
    assert_eq!(set(exec, foreign), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_node_enabled(exec, foreign)), CUDA_ERROR_INVALID_VALUE);
    // Once the graph is destroyed, its nodes' handles are invalid.
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(set(exec, kernel), CUDA_ERROR_INVALID_VALUE);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    assert_eq!(set(exec, foreign), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(other).expect("the graph is live");
    fixture.free(memory);
}

#[test]
fn a_destroyed_executable_graph_finishes_first() {
    in_child("graph_exec::a_destroyed_executable_graph_finishes_first", &[], || {
        let fixture = Fixture::new();
        let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
        let first = fixture.note(graph, &[], &log, 1);
        let branches = [2, 3, 4].map(|entry| fixture.note(graph, &[first], &log, entry));
        fixture.note(graph, &branches, &log, 5);
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        let gate = Gate::close(&fixture.t, fixture.stream.handle() as CUstream);
        driver.graph_launch(exec, fixture.stream).expect("it can be launched");
        driver.graph_upload(exec, fixture.stream).expect("it can be uploaded after the launch");
        driver.graph_exec_destroy(exec).expect("the handle is live");
        driver.graph_destroy(graph).expect("the graph is live");
        assert!(log.entries().is_empty());
        gate.open();
        driver.stream_synchronize(fixture.stream).expect("the work succeeds");
        let mut entries = log.entries();
        entries[1..4].sort_unstable();
        assert_eq!(entries, [1, 2, 3, 4, 5]);
        let live = crate::live();
        assert_eq!((live.graphs, live.execs), (0, 0));
        let branches = || {
            let engine = crate::state::get().expect("it was initialised").engine.lock();
            engine.streams.values().filter(|stream| matches!(stream.kind, crate::stream::Kind::Branch)).count()
        };
        wait_until("the branches' streams go", || branches() == 0);
    });
}

#[test]
fn an_upload_waits_for_launches() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    fixture.note(graph, &[], &log, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    let other = driver.stream_create(0).expect("a stream can be created");
    let gate = Gate::close(&fixture.t, fixture.stream.handle() as CUstream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    driver.graph_upload(exec, other).expect("it can be uploaded");
    assert_eq!(driver.stream_query(other), Ok(false));
    gate.open();
    driver.stream_synchronize(other).expect("the work succeeds");
    assert_eq!(log.entries(), [1]);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    driver.graph_destroy(graph).expect("the graph is live");
}

#[test]
fn events_in_graphs_synchronize_with_other_streams() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    let event = |flags| driver.event_create(flags).expect("an event can be created");
    let (before, after) = (event(CU_EVENT_DISABLE_TIMING), event(CU_EVENT_DISABLE_TIMING));
    let wait = driver.graph_add_event_wait(graph, &[], before).expect("an event wait node can be added");
    let note = fixture.note(graph, &[wait], &log, 2);
    driver.graph_add_event_record(graph, &[note], after).expect("an event record node can be added");
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    let other = driver.stream_create(0).expect("a stream can be created");
    let gate = Gate::close(&fixture.t, other.handle() as CUstream);
    log.note(&fixture.t, other.handle() as CUstream, 1);
    driver.event_record(before, other).expect("both are live");
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    assert_eq!(driver.event_query(after), Ok(false));
    gate.open();
    driver.event_synchronize(after).expect("the work succeeds");
    assert_eq!(log.entries(), [1, 2]);
    driver.event_destroy(before).expect("the event is live");
    assert_eq!(code(driver.graph_launch(exec, fixture.stream)), CUDA_ERROR_INVALID_HANDLE);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    driver.graph_destroy(graph).expect("the graph is live");
}
