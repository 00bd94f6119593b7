//! Updates of executable graphs: what may change, and what is told when something else did.

use super::{
    graph::{Rig, code, span},
    graph_exec::{add, run, word},
    *,
};
use crate::driver::{ConditionalKind, FillNode, Graph, GraphExec, GraphNode, UpdateError, UpdateRefusal, codes::*};

fn refused(rig: &Rig, exec: GraphExec, graph: Graph) -> UpdateRefusal {
    let answer = rig.driver.graph_exec_update(exec, graph).expect("both are live");
    answer.expect_err("the graph does not fit")
}

#[test]
fn parameters_are_taken_over() {
    let rig = Rig::new();
    let (driver, memory, log) = (&rig.driver, alloc(&rig.t, 64), Log::default());
    let build = |value: u32, amount, entry| {
        let (graph, inner) = (rig.graph(), rig.graph());
        let fill = FillNode::new(span(memory, 4 + value as usize * 4), value, 4);
        let fill = driver.graph_add_fill(graph, &[], &fill, rig.context).expect("a fill is a node");
        rig.note(inner, &[], &log, entry);
        let child = driver.graph_add_child(graph, &[fill], inner).expect("a graph is a node");
        let kernel = add(&rig, graph, &[child], memory, amount);
        let copy = driver.graph_add_copy(graph, &[kernel], span(memory + 32, 4), span(memory, 4), rig.context);
        copy.expect("a copy is a node");
        driver.graph_destroy(inner).expect("the graph is live");
        graph
    };
    let (old, new) = (build(1, 2, 1), build(5, 6, 2));
    let exec = driver.graph_instantiate(old, 0).expect("the graph is sound");
    run(&rig, exec);
    assert_eq!(word(&rig, memory + 32), 3);
    // What is in a stream already stays as it was.
    let gate = Gate::close(&rig.t, rig.stream.handle() as CUstream);
    driver.graph_launch(exec, rig.stream).expect("it can be launched");
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    driver.graph_destroy(new).expect("the graph is live");
    gate.open();
    driver.stream_synchronize(rig.stream).expect("it ends well");
    assert_eq!(word(&rig, memory + 32), 3);
    run(&rig, exec);
    assert_eq!((word(&rig, memory + 32), word(&rig, memory + 20)), (11, 5));
    assert_eq!(log.entries(), [1, 1, 2]);
    // The nodes of the graph that it was made of still name its nodes.
    let fill = driver.graph_nodes(old).expect("the graph is live")[0];
    driver.graph_node_set_enabled(exec, fill, false).expect("fills have a switch");
    run(&rig, exec);
    assert_eq!(word(&rig, memory), 17);
    driver.graph_exec_destroy(exec).expect("it is live");
    assert_eq!(code(driver.graph_exec_update(exec, old)), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(old).expect("the graph is live");
    rig.free(memory);
}

#[test]
fn nodes_are_paired_by_their_edges() {
    let rig = Rig::new();
    let (driver, log) = (&rig.driver, Log::default());
    let (old, new) = (rig.graph(), rig.graph());
    let first = rig.note(old, &[], &log, 1);
    rig.note(old, &[first], &log, 2);
    // The same chain, added the other way round.
    let last = rig.note(new, &[], &log, 4);
    let before = rig.note(new, &[], &log, 3);
    driver.graph_add_dependencies(new, &[(before, last)]).expect("the edge is new");
    let exec = driver.graph_instantiate(old, 0).expect("the graph is sound");
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    run(&rig, exec);
    assert_eq!(log.entries(), [3, 4]);
    driver.graph_exec_destroy(exec).expect("it is live");
}

#[test]
fn other_shapes_are_refused() {
    let rig = Rig::new();
    let (driver, old, log) = (&rig.driver, rig.graph(), Log::default());
    // Two before two, each after one.
    let [a, b] = [1, 2].map(|entry| rig.note(old, &[], &log, entry));
    rig.note(old, &[a], &log, 3);
    rig.note(old, &[b], &log, 4);
    let exec = driver.graph_instantiate(old, 0).expect("the graph is sound");
    let topology = |node, from| UpdateRefusal { error: UpdateError::TopologyChanged, node, from };

    let fewer = rig.graph();
    rig.note(fewer, &[], &log, 9);
    assert_eq!(refused(&rig, exec, fewer), topology(None, None));

    // More ends than there were.
    let flat = rig.graph();
    let nodes: Vec<GraphNode> = (0..4).map(|entry| rig.note(flat, &[], &log, entry)).collect();
    assert_eq!(refused(&rig, exec, flat), topology(Some(nodes[2]), None));

    // Another number of edges to a node.
    let denser = rig.graph();
    let [a, b] = [1, 2].map(|entry| rig.note(denser, &[], &log, entry));
    rig.note(denser, &[a], &log, 3);
    let last = rig.note(denser, &[b, a], &log, 4);
    assert_eq!(refused(&rig, exec, denser), topology(Some(last), None));

    let typed = rig.graph();
    let a = rig.note(typed, &[], &log, 1);
    let b = driver.graph_add_empty(typed, &[]).expect("nothing is a node");
    rig.note(typed, &[a], &log, 3);
    rig.note(typed, &[b], &log, 4);
    let refusal = UpdateRefusal { error: UpdateError::NodeTypeChanged, node: Some(b), from: None };
    assert_eq!(refused(&rig, exec, typed), refusal);
    // Nothing has changed.
    run(&rig, exec);
    let mut entries = log.entries();
    entries.sort_unstable();
    assert_eq!(entries, [1, 2, 3, 4]);
    driver.graph_exec_destroy(exec).expect("it is live");
}

#[test]
fn an_edge_from_elsewhere_is_told() {
    let rig = Rig::new();
    let (driver, log) = (&rig.driver, Log::default());
    let build = |swapped: bool| {
        let graph = rig.graph();
        let root = rig.note(graph, &[], &log, 0);
        let [a, b] = [1, 2].map(|entry| rig.note(graph, &[root], &log, entry));
        let last = rig.note(graph, &if swapped { [b, a] } else { [a, b] }, &log, 3);
        // This pairs the first of the two, whatever the edges to the node before say.
        rig.note(graph, &[last, a], &log, 4);
        (graph, b, last)
    };
    let ((old, ..), (new, b, last)) = (build(false), build(true));
    let exec = driver.graph_instantiate(old, 0).expect("the graph is sound");
    let refusal = UpdateRefusal { error: UpdateError::TopologyChanged, node: Some(last), from: Some(b) };
    assert_eq!(refused(&rig, exec, new), refusal);
    driver.graph_exec_destroy(exec).expect("it is live");
}

#[test]
fn parameters_that_cannot_change_are_refused() {
    let rig = Rig::new();
    let (driver, memory) = (&rig.driver, alloc(&rig.t, 64));
    let elsewhere = {
        let t = setup(1);
        let address = alloc(&t, 64);
        setup(0);
        address
    };
    let mut own = [0_u8; 8];
    let program = own.as_mut_ptr() as u64;
    let refusal = |old: &dyn Fn(Graph) -> GraphNode, new: &dyn Fn(Graph) -> GraphNode| {
        let (before, after) = (rig.graph(), rig.graph());
        old(before);
        let node = new(after);
        let exec = driver.graph_instantiate(before, 0).expect("the graph is sound");
        let refusal = refused(&rig, exec, after);
        assert_eq!((refusal.node, refusal.from), (Some(node), None));
        driver.graph_exec_destroy(exec).expect("it is live");
        driver.graph_destroy(before).expect("the graph is live");
        driver.graph_destroy(after).expect("the graph is live");
        refusal.error
    };
    let fill = |rows, width| {
        let (driver, context) = (&rig.driver, rig.context);
        move |graph| {
            let fill = FillNode::rows(span(memory, 64), 1, 1, width, rows, 16);
            driver.graph_add_fill(graph, &[], &fill, context).expect("a fill is a node")
        }
    };
    assert_eq!(refusal(&fill(2, 4), &fill(2, 8)), UpdateError::ParametersChanged);
    assert_eq!(refusal(&fill(1, 4), &fill(2, 4)), UpdateError::ParametersChanged);
    let copy = |to, from| {
        let (driver, context) = (&rig.driver, rig.context);
        move |graph| driver.graph_add_copy(graph, &[], span(to, 8), span(from, 8), context).expect("a copy is a node")
    };
    assert_eq!(refusal(&copy(memory, memory + 8), &copy(program, memory + 8)), UpdateError::ParametersChanged);
    assert_eq!(refusal(&copy(memory, memory + 8), &copy(memory, elsewhere)), UpdateError::ParametersChanged);
    let conditional = |kind| {
        let (driver, context) = (&rig.driver, rig.context);
        move |graph| {
            let condition = driver.graph_create_conditional(graph, context, Some(0)).expect("conditions can be made");
            let added = driver.graph_add_conditional(graph, &[], condition, kind, 1, context);
            added.expect("a conditional is a node").0
        }
    };
    let (once, again) = (conditional(ConditionalKind::If), conditional(ConditionalKind::While));
    assert_eq!(refusal(&once, &again), UpdateError::ParametersChanged);
    // A kernel of another device.
    setup(1);
    let other = rig.function(c"plinth_sleep");
    setup(0);
    let here = rig.function(c"plinth_sleep");
    static ZERO: u64 = 0;
    let sleep = |function| {
        let driver = &rig.driver;
        move |graph| {
            let parameters = [(&raw const ZERO).cast()];
            // SAFETY: the kernel has one parameter, a 64-bit integer.
            let kernel = unsafe { crate::driver::KernelNode::new(function, &parameters) };
            driver.graph_add_kernel(graph, &[], &kernel).expect("a kernel is a node")
        }
    };
    assert_eq!(refusal(&sleep(here), &sleep(other)), UpdateError::UnsupportedFunctionChange);
    rig.free(memory);
    rig.free(elsewhere);
}
