//! Graphs built with the driver's methods: their contents, and invalid arguments.

use super::*;
use crate::driver::{
    Context, Driver, DriverResult, FillNode, Function, Graph, GraphNode, KernelNode, Kind, NodeFunction, NodeType,
    Span, Stream, codes::*,
};

/// A driver of the host device, with a stream and the context of device 0.
pub struct Fixture {
    pub t: Table,
    pub driver: Driver,
    pub context: Context,
    pub stream: Stream,
}

impl Fixture {
    pub fn new() -> Fixture {
        let t = setup(0);
        let driver = Driver::new(Kind::Host, crate::table(), false);
        let context = driver.primary_context(0).expect("there is a device");
        let stream = driver.stream_create(0).expect("a stream can be created");
        super::super::kernels::register(&super::kernel::ADD);
        Fixture { t, driver, context, stream }
    }

    pub fn graph(&self) -> Graph {
        self.driver.graph_create().expect("a graph can be created")
    }

    pub fn free(&self, address: u64) {
        let t = &self.t;
        ok!(t.cuMemFree_v2(address));
    }

    /// Returns a registered kernel.
    pub fn function(&self, name: &std::ffi::CStr) -> Function {
        // SAFETY: the handle was just returned.
        unsafe { Function::from_handle(super::kernel::function(&self.t, name) as usize) }
    }

    /// Adds a node that adds `entry` to a log.
    pub fn note(&self, graph: Graph, before: &[GraphNode], log: &Log, entry: usize) -> GraphNode {
        let (function, data) = log.function(entry);
        // SAFETY: a log's function may be called at any time.
        let function = unsafe { NodeFunction::new(function, data) };
        self.driver.graph_add_host(graph, before, function).expect("a host node can be added")
    }

    /// Launches a graph once in the stream, and waits for it.
    pub fn launch(&self, graph: Graph) -> DriverResult<()> {
        let exec = self.driver.graph_instantiate(graph, 0)?;
        self.driver.graph_launch(exec, self.stream)?;
        self.driver.graph_exec_destroy(exec)?;
        self.driver.stream_synchronize(self.stream)
    }
}

/// Creates a span of memory that the test keeps.
pub fn span(address: u64, bytes: usize) -> Span {
    // SAFETY: each test keeps its allocations until its work is done, or expects the work to fail.
    unsafe { Span::new(address, bytes) }
}

/// Returns the code of a call that must fail.
pub fn code<T>(answer: DriverResult<T>) -> u32 {
    answer.err().map_or(CUDA_SUCCESS, |failure| failure.code)
}

#[test]
fn graphs_run_their_nodes() {
    let fixture = Fixture::new();
    let (driver, graph, memory) = (&fixture.driver, fixture.graph(), alloc(&fixture.t, 64));
    let mut result = [0_u8; 16];
    let bytes = FillNode::new(span(memory, 16), 0x11, 1);
    let rows = FillNode::rows(span(memory + 16, 48), 0xABCD, 2, 2, 3, 16);
    let first = driver.graph_add_fill(graph, &[], &bytes, fixture.context).expect("a fill node can be added");
    let second = driver.graph_add_fill(graph, &[], &rows, fixture.context).expect("a fill of rows can be added");
    let empty = driver.graph_add_empty(graph, &[first, second]).expect("an empty node can be added");
    let copy = driver.graph_add_copy(graph, &[empty], span(memory, 4), span(memory + 32, 4), fixture.context);
    let copy = copy.expect("a copy node can be added");
    let out = span(result.as_mut_ptr() as u64, 16);
    driver
        .graph_add_copy(graph, &[copy], out, span(memory, 16), fixture.context)
        .expect("a copy to the host can be added");
    fixture.launch(graph).expect("the graph runs");
    let mut expected = [0x11; 16];
    expected[..4].copy_from_slice(&[0xCD, 0xAB, 0xCD, 0xAB]);
    assert_eq!(result, expected);
    let all = read(&fixture.t, memory, 64);
    for row in [16, 32, 48] {
        assert_eq!(all[row..row + 4], [0xCD, 0xAB, 0xCD, 0xAB]);
    }
    // The memory between the rows is unchanged.
    assert_ne!(all[20..22], [0xCD, 0xAB]);
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(code(driver.graph_destroy(graph)), CUDA_ERROR_INVALID_VALUE);
    fixture.free(memory);
}

#[test]
fn nodes_return_their_parameters() {
    let fixture = Fixture::new();
    let (driver, graph, memory) = (&fixture.driver, fixture.graph(), alloc(&fixture.t, 64));
    let (mut address, mut count, mut amount) = (memory, 16_u32, 2_u32);
    let parameters: [*const c_void; 3] =
        [(&raw const address).cast(), (&raw const count).cast(), (&raw const amount).cast()];
    // SAFETY: these are the parameters of the kernel, and the memory stays allocated.
    let mut kernel = unsafe { KernelNode::new(fixture.function(c"test_add"), &parameters) };
    (kernel.grid, kernel.block, kernel.shared_bytes) = ([2, 3, 4], [8, 2, 1], 256);
    let kernel_node = driver.graph_add_kernel(graph, &[], &kernel).expect("a kernel node can be added");
    (address, count, amount) = (0, 0, 0);
    assert_eq!((address, count, amount), (0, 0, 0));
    let view = driver.graph_kernel(kernel_node).expect("it is a kernel");
    assert_eq!((view.grid, view.block, view.shared_bytes), ([2, 3, 4], [8, 2, 1], 256));
    let function = view.function.expect("the kernel has a handle");
    assert_eq!(driver.function_name(function).expect("the kernel has a name"), "test_add");
    let reported = view.parameters as *const *const u64;
    // SAFETY: the node lives, and its first parameter is a 64-bit integer.
    assert_eq!(unsafe { reported.read().read_unaligned() }, memory);

    let fill = FillNode::rows(span(memory, 64), 7, 4, 2, 4, 16);
    let fill_node =
        driver.graph_add_fill(graph, &[kernel_node], &fill, fixture.context).expect("a fill node can be added");
    assert_eq!(driver.graph_fill(fill_node).expect("it is a fill"), fill);
    let mut own = [0_u8; 8];
    let target = span(own.as_mut_ptr() as u64, 8);
    let copy_node = driver.graph_add_copy(graph, &[fill_node], target, span(memory + 8, 8), fixture.context);
    let copy_node = copy_node.expect("a copy node can be added");
    let copy = driver.graph_copy(copy_node).expect("it is a copy");
    assert_eq!((copy.destination, copy.source), (target.address(), memory + 8));
    assert_eq!((copy.width, copy.height, copy.depth), (8, 1, 1));
    let log = Log::default();
    let host_node = fixture.note(graph, &[fill_node, copy_node], &log, 1);
    let host = driver.graph_host(host_node).expect("it is a host function");
    assert!(host.function != 0 && host.data != 0);
    let event = driver.event_create(CU_EVENT_DISABLE_TIMING).expect("an event can be created");
    let record = driver.graph_add_event_record(graph, &[host_node], event).expect("an event record node can be added");
    let wait = driver.graph_add_event_wait(graph, &[], event).expect("an event wait node can be added");
    let empty = driver.graph_add_empty(graph, &[]).expect("an empty node can be added");
    let other = fixture.graph();
    driver.graph_add_empty(other, &[]).expect("a child needs no more");
    let child = driver.graph_add_child(graph, &[empty], other).expect("a child graph node can be added");

    let nodes = [kernel_node, fill_node, copy_node, host_node, record, wait, empty, child];
    assert_eq!(driver.graph_nodes(graph).expect("the graph is live"), nodes);
    use NodeType::*;
    let kinds = [Kernel, Memset, Memcpy, Host, EventRecord, WaitEvent, Empty, Graph];
    for (node, kind) in nodes.into_iter().zip(kinds) {
        assert_eq!(driver.graph_node_type(node).expect("the node is live"), kind);
        // Each node returns only the parameters of its own type.
        assert_eq!(driver.graph_kernel(node).is_ok(), kind == Kernel);
        assert_eq!(driver.graph_copy(node).is_ok(), kind == Memcpy);
        assert_eq!(driver.graph_fill(node).is_ok(), kind == Memset);
        assert_eq!(driver.graph_host(node).is_ok(), kind == Host);
        assert_eq!(driver.graph_child(node).is_ok(), kind == Graph);
        assert_eq!(driver.graph_recorded_event(node).ok(), (kind == EventRecord).then_some(event));
        assert_eq!(driver.graph_awaited_event(node).ok(), (kind == WaitEvent).then_some(event));
    }
    let inner = driver.graph_child(child).expect("it is a child");
    assert_ne!(inner, other);
    assert_eq!(driver.graph_nodes(inner).expect("the child graph lives with its node").len(), 1);
    assert_eq!(driver.graph_node_dependencies(host_node).expect("the handle is live"), [fill_node, copy_node]);
    assert!(driver.graph_node_dependencies(empty).expect("the handle is live").is_empty());
    let edges = driver.graph_edges(graph).expect("the graph is live");
    assert_eq!(edges.len(), 6);
    assert!(edges.contains(&(copy_node, host_node)) && edges.contains(&(empty, child)));
    driver.graph_destroy(graph).expect("the graph is live");
    for node in nodes {
        assert_eq!(code(driver.graph_node_type(node)), CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(code(driver.graph_nodes(inner)), CUDA_ERROR_INVALID_VALUE);
    fixture.free(memory);
}

#[test]
fn edges_order_the_nodes() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    // Added last to first, so that only the edges determine the order.
    let nodes: Vec<GraphNode> = (0..6).rev().map(|entry| fixture.note(graph, &[], &log, entry)).collect();
    let edges: Vec<(GraphNode, GraphNode)> = nodes.windows(2).map(|pair| (pair[1], pair[0])).collect();
    driver.graph_add_dependencies(graph, &edges).expect("the edges are new");
    fixture.launch(graph).expect("the graph runs");
    assert_eq!(log.entries(), [0, 1, 2, 3, 4, 5]);
    // An existing edge, the same edge twice, an edge to the node itself, and one to another graph.
    let other = fixture.graph();
    let foreign = driver.graph_add_empty(other, &[]).expect("an empty node can be added");
    let wrong = [
        vec![edges[0]],
        vec![(nodes[5], nodes[3]), (nodes[5], nodes[3])],
        vec![(nodes[2], nodes[2])],
        vec![(nodes[2], foreign)],
        vec![(foreign, nodes[2])],
    ];
    for edges in wrong {
        assert_eq!(code(driver.graph_add_dependencies(graph, &edges)), CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(driver.graph_edges(graph).expect("the graph is live").len(), 5);
    // A cycle is detected when the graph is instantiated.
    driver.graph_add_dependencies(graph, &[(nodes[0], nodes[5])]).expect("this edge is new, too");
    assert_eq!(code(driver.graph_instantiate(graph, 0)), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(other).expect("the graph is live");
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(code(driver.graph_add_dependencies(graph, &[])), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn wrong_nodes_are_refused() {
    let fixture = Fixture::new();
    let (driver, graph, memory) = (&fixture.driver, fixture.graph(), alloc(&fixture.t, 64));
    let (t, wrong) = (&fixture.t, CUDA_ERROR_INVALID_VALUE);
    let node = driver.graph_add_empty(graph, &[]).expect("an empty node can be added");
    let other = fixture.graph();
    let foreign = driver.graph_add_empty(other, &[]).expect("an empty node can be added");
    driver.graph_destroy(other).expect("the graph is live");
    assert_eq!(code(driver.graph_add_empty(graph, &[node, node])), wrong);
    assert_eq!(code(driver.graph_add_empty(graph, &[foreign])), wrong);
    assert_eq!(code(driver.graph_add_empty(other, &[])), wrong);
    assert_eq!(code(driver.graph_add_child(graph, &[], other)), wrong);
    let fill = |fill: FillNode| code(driver.graph_add_fill(graph, &[], &fill, fixture.context));
    let rows = |size, width, rows, pitch| FillNode::rows(span(memory, 64), 1, size, width, rows, pitch);
    for (size, width, number, pitch) in
        [(3, 4, 1, 0), (4, 0, 1, 0), (4, 4, 0, 16), (4, 4, 2, 8), (4, 2, 2, 10), (4, 2, usize::MAX, usize::MAX & !3)]
    {
        assert_eq!(fill(rows(size, width, number, pitch)), wrong, "{size} {width} {number} {pitch}");
    }
    assert_eq!(fill(FillNode::new(span(memory + 2, 4), 1, 4)), wrong);
    assert_eq!(fill(FillNode::new(span(std::ptr::from_ref(&fixture).addr() as u64, 4), 1, 1)), wrong);
    let copy = |to, from| code(driver.graph_add_copy(graph, &[], to, from, fixture.context));
    assert_eq!(copy(span(memory, 0), span(memory, 0)), wrong);
    assert_eq!(copy(span(0, 8), span(memory, 8)), wrong);
    assert_eq!(copy(span(memory, 8), span(u64::MAX, 8)), wrong);
    let hole = reserve(t, GRANULE);
    assert_eq!(copy(span(memory, 8), span(hole, 8)), wrong);
    ok!(t.cuMemAddressFree(hole, GRANULE));
    let event = driver.event_create(0).expect("an event can be created");
    driver.event_destroy(event).expect("the event is live");
    assert_eq!(code(driver.graph_add_event_record(graph, &[], event)), wrong);
    assert_eq!(code(driver.graph_add_event_wait(graph, &[], event)), wrong);
    let (mut raw, handle) = (std::ptr::null_mut(), graph.handle() as CUgraph);
    let none = CUDA_HOST_NODE_PARAMS { fn_: None, userData: std::ptr::null_mut() };
    assert_eq!(super::code!(t.cuGraphAddHostNode(&mut raw, handle, std::ptr::null(), 0, &none)), wrong);
    assert_eq!(super::code!(t.cuGraphAddEmptyNode(&mut raw, handle, std::ptr::null(), 1)), wrong);
    assert_eq!(super::code!(t.cuGraphCreate(&mut handle.clone(), 1)), wrong);
    let mut count = 1;
    assert_eq!(super::code!(t.cuGraphGetEdges(handle, &mut raw, std::ptr::null_mut(), &mut count)), wrong);
    // None of these calls changed the graph.
    assert!(raw.is_null());
    assert_eq!(driver.graph_nodes(graph).expect("the graph is live"), [node]);
    driver.graph_destroy(graph).expect("the graph is live");
    ok!(t.cuMemFree_v2(memory));
}

#[test]
fn clones_are_independent() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    let child = fixture.graph();
    let leaf = fixture.note(child, &[], &log, 2);
    let first = fixture.note(graph, &[], &log, 1);
    let middle = driver.graph_add_child(graph, &[first], child).expect("a child graph node can be added");
    let last = fixture.note(graph, &[middle], &log, 3);
    // The child was copied: nodes added to the original afterwards are not in it.
    fixture.note(child, &[leaf], &log, 9);
    let clone = driver.graph_clone(graph).expect("the graph can be copied");
    let copied = driver.graph_node_in_clone(last, clone).expect("the clone contains it");
    assert!(driver.graph_nodes(clone).expect("the clone is live").contains(&copied));
    let middle_copy = driver.graph_node_in_clone(middle, clone).expect("the clone contains it");
    assert_eq!(driver.graph_node_dependencies(copied).expect("the handle is live"), [middle_copy]);
    assert_ne!(
        driver.graph_child(middle_copy).expect("it is a child"),
        driver.graph_child(middle).expect("it is a child")
    );
    let later = fixture.note(graph, &[last], &log, 4);
    assert_eq!(code(driver.graph_node_in_clone(later, clone)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_node_in_clone(copied, clone)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_node_in_clone(last, graph)), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(code(driver.graph_clone(graph)), CUDA_ERROR_INVALID_VALUE);
    fixture.launch(clone).expect("the clone runs");
    assert_eq!(log.entries(), [1, 2, 3]);
    driver.graph_destroy(clone).expect("the clone is live");
    driver.graph_destroy(child).expect("the child's original is live");
}

#[test]
fn child_graphs_belong_to_their_parents() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    let empty = fixture.graph();
    let before = fixture.note(graph, &[], &log, 1);
    let node = driver.graph_add_child(graph, &[before], empty).expect("an empty graph can be a child");
    fixture.note(graph, &[node], &log, 3);
    let child = driver.graph_child(node).expect("it is a child");
    fixture.launch(graph).expect("the graph runs");
    assert_eq!(log.entries(), [1, 3]);
    // The program may add to a child graph, but neither destroy nor launch it alone.
    fixture.note(child, &[], &log, 2);
    assert_eq!(code(driver.graph_destroy(child)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.graph_instantiate(child, 0)), CUDA_ERROR_INVALID_VALUE);
    fixture.launch(graph).expect("the graph runs again");
    assert_eq!(log.entries(), [1, 3, 1, 2, 3]);
    driver.graph_destroy(graph).expect("the graph is live");
    driver.graph_destroy(empty).expect("the child's original is live");
}

#[test]
fn graphs_can_be_drawn() {
    let fixture = Fixture::new();
    let (driver, graph, log) = (&fixture.driver, fixture.graph(), Log::default());
    let cycles = 0_u64;
    let parameters = [(&raw const cycles).cast()];
    // SAFETY: the kernel has one parameter, a 64-bit integer.
    let kernel = unsafe { KernelNode::new(fixture.function(c"plinth_sleep"), &parameters) };
    let first = driver.graph_add_kernel(graph, &[], &kernel).expect("a kernel node can be added");
    let inner = fixture.graph();
    fixture.note(inner, &[], &log, 1);
    driver.graph_add_child(graph, &[first], inner).expect("a child graph node can be added");
    let path = std::env::temp_dir().join(format!("plinth-graph-{}.dot", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().expect("the path is UTF-8")).expect("the path contains no NUL");
    driver.graph_draw(graph, &name, 0).expect("the file can be written");
    let plain = std::fs::read_to_string(&path).expect("the file exists");
    assert!(plain.starts_with("digraph") && plain.contains("KERNEL") && plain.contains("plinth_sleep"));
    assert!(plain.contains("\"graph_1_node_0\" -> \"graph_1_node_1\""));
    assert!(plain.contains("subgraph cluster_2") && plain.contains("HOST") && !plain.contains("gridDim"));
    driver.graph_draw(graph, &name, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE).expect("the file can be written");
    let verbose = std::fs::read_to_string(&path).expect("the file exists");
    assert!(verbose.contains("gridDim") && verbose.contains("userData"));
    assert!(verbose.contains(&format!("{:#x}", first.handle())));
    // Every opening brace outside of a label has a closing one.
    let depth = |text: &str| {
        text.replace("\\{", "").replace("\\}", "").chars().fold(0, |depth, letter| match letter {
            '{' => depth + 1,
            '}' => depth - 1,
            _ => depth,
        })
    };
    assert_eq!((depth(&plain), depth(&verbose)), (0, 0));
    std::fs::remove_file(&path).expect("the file exists");
    assert_eq!(code(driver.graph_draw(graph, c"/nonexistent/graph.dot", 0)), CUDA_ERROR_OPERATING_SYSTEM);
    driver.graph_destroy(graph).expect("the graph is live");
    driver.graph_destroy(inner).expect("the graph is live");
    assert_eq!(code(driver.graph_draw(graph, &name, 0)), CUDA_ERROR_INVALID_VALUE);
}
