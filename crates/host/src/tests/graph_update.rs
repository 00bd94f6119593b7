//! Updates of executable graphs: permitted changes, and the reported reasons for refused ones.

use super::{
    graph::{Fixture, code, span},
    graph_exec::{add, run, word},
    *,
};
use crate::driver::{ConditionalKind, FillNode, Graph, GraphExec, GraphNode, UpdateError, UpdateRefusal, codes::*};

fn expect_refusal(fixture: &Fixture, exec: GraphExec, graph: Graph) -> UpdateRefusal {
    let answer = fixture.driver.graph_exec_update(exec, graph).expect("both are live");
    answer.expect_err("the update is refused")
}

#[test]
fn parameters_are_updated() {
    let fixture = Fixture::new();
    let (driver, memory, log) = (&fixture.driver, alloc(&fixture.t, 64), Log::default());
    let build = |value: u32, amount, entry| {
        let (graph, inner) = (fixture.graph(), fixture.graph());
        let fill = FillNode::new(span(memory, 4 + value as usize * 4), value, 4);
        let fill = driver.graph_add_fill(graph, &[], &fill, fixture.context).expect("a fill node can be added");
        fixture.note(inner, &[], &log, entry);
        let child = driver.graph_add_child(graph, &[fill], inner).expect("a child graph node can be added");
        let kernel = add(&fixture, graph, &[child], memory, amount);
        let copy = driver.graph_add_copy(graph, &[kernel], span(memory + 32, 4), span(memory, 4), fixture.context);
        copy.expect("a copy node can be added");
        driver.graph_destroy(inner).expect("the graph is live");
        graph
    };
    let (old, new) = (build(1, 2, 1), build(5, 6, 2));
    let exec = driver.graph_instantiate(old, 0).expect("the graph is valid");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory + 32), 3);
    // Submitted work is unchanged.
    let gate = Gate::close(&fixture.t, fixture.stream.handle() as CUstream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    driver.graph_destroy(new).expect("the graph is live");
    gate.open();
    driver.stream_synchronize(fixture.stream).expect("the work succeeds");
    assert_eq!(word(&fixture, memory + 32), 3);
    run(&fixture, exec);
    assert_eq!((word(&fixture, memory + 32), word(&fixture, memory + 20)), (11, 5));
    assert_eq!(log.entries(), [1, 1, 2]);
    // The nodes of the original graph still refer to the executable graph's nodes.
    let fill = driver.graph_nodes(old).expect("the graph is live")[0];
    driver.graph_node_set_enabled(exec, fill, false).expect("fill nodes can be disabled");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 17);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    assert_eq!(code(driver.graph_exec_update(exec, old)), CUDA_ERROR_INVALID_VALUE);
    driver.graph_destroy(old).expect("the graph is live");
    fixture.free(memory);
}

#[test]
fn nodes_are_paired_by_their_edges() {
    let fixture = Fixture::new();
    let (driver, log) = (&fixture.driver, Log::default());
    let (old, new) = (fixture.graph(), fixture.graph());
    let first = fixture.note(old, &[], &log, 1);
    fixture.note(old, &[first], &log, 2);
    // The same chain, added in reverse order.
    let last = fixture.note(new, &[], &log, 4);
    let before = fixture.note(new, &[], &log, 3);
    driver.graph_add_dependencies(new, &[(before, last)]).expect("the edge is new");
    let exec = driver.graph_instantiate(old, 0).expect("the graph is valid");
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    run(&fixture, exec);
    assert_eq!(log.entries(), [3, 4]);
    driver.graph_exec_destroy(exec).expect("the handle is live");
}

#[test]
fn other_shapes_are_refused() {
    let fixture = Fixture::new();
    let (driver, old, log) = (&fixture.driver, fixture.graph(), Log::default());
    // Two nodes before two nodes, each with one dependency.
    let [a, b] = [1, 2].map(|entry| fixture.note(old, &[], &log, entry));
    fixture.note(old, &[a], &log, 3);
    fixture.note(old, &[b], &log, 4);
    let exec = driver.graph_instantiate(old, 0).expect("the graph is valid");
    let topology = |node, from| UpdateRefusal { error: UpdateError::TopologyChanged, node, from };

    let fewer = fixture.graph();
    fixture.note(fewer, &[], &log, 9);
    assert_eq!(expect_refusal(&fixture, exec, fewer), topology(None, None));

    // More leaves than before.
    let flat = fixture.graph();
    let nodes: Vec<GraphNode> = (0..4).map(|entry| fixture.note(flat, &[], &log, entry)).collect();
    assert_eq!(expect_refusal(&fixture, exec, flat), topology(Some(nodes[2]), None));

    // A different number of dependencies of a node.
    let denser = fixture.graph();
    let [a, b] = [1, 2].map(|entry| fixture.note(denser, &[], &log, entry));
    fixture.note(denser, &[a], &log, 3);
    let last = fixture.note(denser, &[b, a], &log, 4);
    assert_eq!(expect_refusal(&fixture, exec, denser), topology(Some(last), None));

    let typed = fixture.graph();
    let a = fixture.note(typed, &[], &log, 1);
    let b = driver.graph_add_empty(typed, &[]).expect("an empty node can be added");
    fixture.note(typed, &[a], &log, 3);
    fixture.note(typed, &[b], &log, 4);
    let refusal = UpdateRefusal { error: UpdateError::NodeTypeChanged, node: Some(b), from: None };
    assert_eq!(expect_refusal(&fixture, exec, typed), refusal);
    // Nothing has changed.
    run(&fixture, exec);
    let mut entries = log.entries();
    entries.sort_unstable();
    assert_eq!(entries, [1, 2, 3, 4]);
    driver.graph_exec_destroy(exec).expect("the handle is live");
}

#[test]
fn a_mismatched_edge_is_reported() {
    let fixture = Fixture::new();
    let (driver, log) = (&fixture.driver, Log::default());
    let build = |swapped: bool| {
        let graph = fixture.graph();
        let root = fixture.note(graph, &[], &log, 0);
        let [a, b] = [1, 2].map(|entry| fixture.note(graph, &[root], &log, entry));
        let last = fixture.note(graph, &if swapped { [b, a] } else { [a, b] }, &log, 3);
        // This pairs the first of the two, whatever the edges to the earlier node are.
        fixture.note(graph, &[last, a], &log, 4);
        (graph, b, last)
    };
    let ((old, ..), (new, b, last)) = (build(false), build(true));
    let exec = driver.graph_instantiate(old, 0).expect("the graph is valid");
    let refusal = UpdateRefusal { error: UpdateError::TopologyChanged, node: Some(last), from: Some(b) };
    assert_eq!(expect_refusal(&fixture, exec, new), refusal);
    driver.graph_exec_destroy(exec).expect("the handle is live");
}

#[test]
fn parameters_that_cannot_change_are_refused() {
    let fixture = Fixture::new();
    let (driver, memory) = (&fixture.driver, alloc(&fixture.t, 64));
    let elsewhere = {
        let t = setup(1);
        let address = alloc(&t, 64);
        setup(0);
        address
    };
    let mut own = [0_u8; 8];
    let program = own.as_mut_ptr() as u64;
    let refusal = |old: &dyn Fn(Graph) -> GraphNode, new: &dyn Fn(Graph) -> GraphNode| {
        let (before, after) = (fixture.graph(), fixture.graph());
        old(before);
        let node = new(after);
        let exec = driver.graph_instantiate(before, 0).expect("the graph is valid");
        let refusal = expect_refusal(&fixture, exec, after);
        assert_eq!((refusal.node, refusal.from), (Some(node), None));
        driver.graph_exec_destroy(exec).expect("the handle is live");
        driver.graph_destroy(before).expect("the graph is live");
        driver.graph_destroy(after).expect("the graph is live");
        refusal.error
    };
    let fill = |rows, width| {
        let (driver, context) = (&fixture.driver, fixture.context);
        move |graph| {
            let fill = FillNode::rows(span(memory, 64), 1, 1, width, rows, 16);
            driver.graph_add_fill(graph, &[], &fill, context).expect("a fill node can be added")
        }
    };
    assert_eq!(refusal(&fill(2, 4), &fill(2, 8)), UpdateError::ParametersChanged);
    assert_eq!(refusal(&fill(1, 4), &fill(2, 4)), UpdateError::ParametersChanged);
    let copy = |to, from| {
        let (driver, context) = (&fixture.driver, fixture.context);
        move |graph| {
            driver.graph_add_copy(graph, &[], span(to, 8), span(from, 8), context).expect("a copy node can be added")
        }
    };
    assert_eq!(refusal(&copy(memory, memory + 8), &copy(program, memory + 8)), UpdateError::ParametersChanged);
    assert_eq!(refusal(&copy(memory, memory + 8), &copy(memory, elsewhere)), UpdateError::ParametersChanged);
    let conditional = |kind| {
        let (driver, context) = (&fixture.driver, fixture.context);
        move |graph| {
            let condition =
                driver.graph_create_conditional(graph, context, Some(0)).expect("a condition can be created");
            let added = driver.graph_add_conditional(graph, &[], condition, kind, 1, context);
            added.expect("a conditional node can be added").0
        }
    };
    let (once, again) = (conditional(ConditionalKind::If), conditional(ConditionalKind::While));
    assert_eq!(refusal(&once, &again), UpdateError::ParametersChanged);
    // A kernel of another device.
    setup(1);
    let other = fixture.function(c"plinth_sleep");
    setup(0);
    let here = fixture.function(c"plinth_sleep");
    static ZERO: u64 = 0;
    let sleep = |function| {
        let driver = &fixture.driver;
        move |graph| {
            let parameters = [(&raw const ZERO).cast()];
            // SAFETY: the kernel has one parameter, a 64-bit integer.
            let kernel = unsafe { crate::driver::KernelNode::new(function, &parameters) };
            driver.graph_add_kernel(graph, &[], &kernel).expect("a kernel node can be added")
        }
    };
    assert_eq!(refusal(&sleep(here), &sleep(other)), UpdateError::UnsupportedFunctionChange);
    fixture.free(memory);
    fixture.free(elsewhere);
}
