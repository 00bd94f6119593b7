//! Conditional nodes: if, while and switch.

use super::{
    graph::{Fixture, code, span},
    graph_exec::{add, run, word},
    *,
};
use crate::{
    driver::{
        Conditional,
        ConditionalKind::{self, *},
        FillNode, Graph, GraphNode, KernelNode,
        codes::*,
    },
    graph::set_conditional,
    kernels::{HostKernel, Launch, Run, register},
};

/// Sets a condition (the first parameter) to a value (the second).
static SET: HostKernel = HostKernel { name: "test_set_conditional", parameter_sizes: &[8, 4], run: Run::Function(set) };

fn set(launch: &Launch) {
    let (Some(handle), Some(value)) = (launch.u64(0), launch.u32(1)) else {
        return launch.fail(CUDA_ERROR_INVALID_VALUE);
    };
    if let Err(error) = set_conditional(handle, value) {
        launch.fail(error);
    }
}

/// Sets a condition (the first parameter) to whether a word (at the second) is below a limit (the third).
static BELOW: HostKernel =
    HostKernel { name: "test_set_below", parameter_sizes: &[8, 8, 4], run: Run::Function(below) };

fn below(launch: &Launch) {
    let (Some(handle), Some(address), Some(limit)) = (launch.u64(0), launch.u64(1), launch.u32(2)) else {
        return launch.fail(CUDA_ERROR_INVALID_VALUE);
    };
    let word = launch.memory(address, 4, false);
    // SAFETY: checked to be accessible for a word; the test keeps it mapped until the stream is done.
    let result = word.and_then(|word| set_conditional(handle, u32::from(unsafe { word.cast::<u32>().read() } < limit)));
    if let Err(error) = result {
        launch.fail(error);
    }
}

/// Creates the test fixture, with kernels that set conditions.
pub fn fixture() -> Fixture {
    register(&SET);
    register(&BELOW);
    Fixture::new()
}

fn add_set(fixture: &Fixture, graph: Graph, before: &[GraphNode], handle: u64, value: u32) -> GraphNode {
    let parameters: [*const c_void; 2] = [(&raw const handle).cast(), (&raw const value).cast()];
    // SAFETY: these are the parameters of the kernel.
    let kernel = unsafe { KernelNode::new(fixture.function(c"test_set_conditional"), &parameters) };
    fixture.driver.graph_add_kernel(graph, before, &kernel).expect("a kernel node can be added")
}

/// Adds a kernel that sets a condition to whether a word is below a limit.
pub fn add_below(fixture: &Fixture, graph: Graph, before: &[GraphNode], condition: Conditional, word: u64, limit: u32) {
    let handle = condition.handle();
    let parameters: [*const c_void; 3] =
        [(&raw const handle).cast(), (&raw const word).cast(), (&raw const limit).cast()];
    // SAFETY: these are the parameters of the kernel, and the tests keep the memory.
    let kernel = unsafe { KernelNode::new(fixture.function(c"test_set_below"), &parameters) };
    fixture.driver.graph_add_kernel(graph, before, &kernel).expect("a kernel node can be added");
}

fn condition(fixture: &Fixture, graph: Graph, default: Option<u32>) -> Conditional {
    fixture.driver.graph_create_conditional(graph, fixture.context, default).expect("a condition can be created")
}

fn branch(
    fixture: &Fixture,
    graph: Graph,
    before: &[GraphNode],
    condition: Conditional,
    kind: ConditionalKind,
    size: u32,
) -> (GraphNode, Vec<Graph>) {
    let added = fixture.driver.graph_add_conditional(graph, before, condition, kind, size, fixture.context);
    added.expect("a conditional node can be added")
}

/// Adds a fill that sets a word to 0, before all other nodes of a graph.
fn start(fixture: &Fixture, graph: Graph, word: u64) -> GraphNode {
    let zero = FillNode::new(span(word, 4), 0, 4);
    fixture.driver.graph_add_fill(graph, &[], &zero, fixture.context).expect("a fill node can be added")
}

#[test]
fn an_if_runs_one_body() {
    let (fixture, log) = (fixture(), Log::default());
    let (driver, memory) = (&fixture.driver, alloc(&fixture.t, 8));
    // With the default, with a kernel that overrides the default, and with a second body.
    let cases = [(0, None, 2), (1, None, 1), (7, None, 1), (0, Some(3), 1), (1, Some(0), 2)];
    for size in [1, 2] {
        for (default, by_kernel, expected) in cases {
            let graph = fixture.graph();
            let condition = condition(&fixture, graph, Some(default));
            let mut last = start(&fixture, graph, memory);
            if let Some(value) = by_kernel {
                last = add_set(&fixture, graph, &[last], condition.handle(), value);
            }
            let (node, bodies) = branch(&fixture, graph, &[last], condition, If, size);
            assert_eq!(driver.graph_node_type(node), Ok(crate::driver::NodeType::Conditional));
            assert_eq!(bodies.len(), size as usize);
            for (index, body) in bodies.iter().enumerate() {
                add(&fixture, *body, &[], memory, index as u32 + 1);
            }
            fixture.note(graph, &[node], &log, 1);
            fixture.launch(graph).expect("the graph runs");
            let expected = if size == 1 && expected == 2 { 0 } else { expected };
            assert_eq!(word(&fixture, memory), expected, "{default} {by_kernel:?} {size}");
            driver.graph_destroy(graph).expect("the graph is live");
            assert_eq!(code(driver.graph_nodes(bodies[0])), CUDA_ERROR_INVALID_VALUE);
        }
    }
    assert_eq!(log.entries().len(), 10);
    fixture.free(memory);
}

#[test]
fn a_while_runs_its_body_again_and_again() {
    let (fixture, log) = (fixture(), Log::default());
    let (driver, memory, graph) = (&fixture.driver, alloc(&fixture.t, 8), fixture.graph());
    let condition = condition(&fixture, graph, Some(1));
    let first = start(&fixture, graph, memory);
    let (node, bodies) = branch(&fixture, graph, &[first], condition, While, 1);
    // Two branches, so that the body needs its own stream beside the launching one.
    let other = start(&fixture, bodies[0], memory + 4);
    let step = add(&fixture, bodies[0], &[], memory, 1);
    let both = driver.graph_add_empty(bodies[0], &[other, step]).expect("an empty node can be added");
    add_below(&fixture, bodies[0], &[both], condition, memory, 100);
    fixture.note(graph, &[node], &log, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    // Each launch resets the condition to the default.
    for launch in 1..4 {
        run(&fixture, exec);
        assert_eq!((word(&fixture, memory), log.entries().len()), (100, launch));
    }
    // Launches are asynchronous and serialized.
    let stream = fixture.stream.handle() as CUstream;
    let gate = Gate::close(&fixture.t, stream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    // Work of a destroyed executable graph still finishes, including loops.
    driver.graph_exec_destroy(exec).expect("the handle is live");
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(driver.stream_query(fixture.stream), Ok(false));
    gate.open();
    driver.stream_synchronize(fixture.stream).expect("the work succeeds");
    assert_eq!((word(&fixture, memory), log.entries().len()), (100, 5));
    assert_eq!(set_conditional(condition.handle(), 1), Err(CUDA_ERROR_INVALID_VALUE));
    fixture.free(memory);
}

#[test]
fn conditionals_nest() {
    let fixture = fixture();
    let (driver, memory, graph) = (&fixture.driver, alloc(&fixture.t, 16), fixture.graph());
    let (rounds, total, odd) = (memory, memory + 4, memory + 8);
    let outer = condition(&fixture, graph, Some(1));
    let first = driver.graph_add_fill(graph, &[], &FillNode::new(span(memory, 16), 0, 4), fixture.context);
    let (_, bodies) = branch(&fixture, graph, &[first.expect("a fill node can be added")], outer, While, 1);
    let body = bodies[0];
    // An inner loop of four iterations, and an if that runs only in the first iteration.
    let inner = condition(&fixture, body, None);
    let inner_start = start(&fixture, body, odd);
    let ready = add_set(&fixture, body, &[inner_start], inner.handle(), 1);
    let (loop_node, inner_bodies) = branch(&fixture, body, &[ready], inner, While, 1);
    let step = add(&fixture, inner_bodies[0], &[], total, 1);
    let count = add(&fixture, inner_bodies[0], &[step], odd, 1);
    add_below(&fixture, inner_bodies[0], &[count], inner, odd, 4);
    let once = condition(&fixture, graph, Some(1));
    let (if_node, if_bodies) = branch(&fixture, body, &[loop_node], once, If, 1);
    let hundred = add(&fixture, if_bodies[0], &[], total, 100);
    add_set(&fixture, if_bodies[0], &[hundred], once.handle(), 0);
    let round = add(&fixture, body, &[if_node], rounds, 1);
    add_below(&fixture, body, &[round], outer, rounds, 5);
    for _ in 0..2 {
        fixture.launch(graph).expect("the graph runs");
        assert_eq!((word(&fixture, rounds), word(&fixture, total)), (5, 120));
    }
    driver.graph_destroy(graph).expect("the graph is live");
    fixture.free(memory);
}

#[test]
fn a_switch_picks_by_number() {
    let fixture = fixture();
    let (driver, memory) = (&fixture.driver, alloc(&fixture.t, 8));
    for (value, expected) in [(0, 1), (2, 3), (3, 0), (u32::MAX, 0)] {
        let graph = fixture.graph();
        let condition = condition(&fixture, graph, Some(value));
        let first = start(&fixture, graph, memory);
        let (_, bodies) = branch(&fixture, graph, &[first], condition, Switch, 3);
        for (index, body) in bodies.iter().enumerate() {
            add(&fixture, *body, &[], memory, index as u32 + 1);
        }
        fixture.launch(graph).expect("the graph runs");
        assert_eq!(word(&fixture, memory), expected);
        driver.graph_destroy(graph).expect("the graph is live");
    }
    fixture.free(memory);
}

#[test]
fn without_a_default_the_value_persists() {
    let fixture = fixture();
    let (driver, memory, graph) = (&fixture.driver, alloc(&fixture.t, 8), fixture.graph());
    let (t, condition) = (&fixture.t, condition(&fixture, graph, None));
    let (node, bodies) = branch(&fixture, graph, &[], condition, If, 1);
    add(&fixture, bodies[0], &[], memory, 1);
    add_set(&fixture, graph, &[node], condition.handle(), 1);
    ok!(t.cuMemsetD32Async(memory, 0, 2, fixture.stream.handle() as CUstream));
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    for expected in 0..3 {
        run(&fixture, exec);
        assert_eq!(word(&fixture, memory), expected);
    }
    driver.graph_exec_destroy(exec).expect("the handle is live");
    driver.graph_destroy(graph).expect("the graph is live");
    fixture.free(memory);
}

#[test]
fn an_update_replaces_the_condition() {
    let fixture = fixture();
    let (driver, memory) = (&fixture.driver, alloc(&fixture.t, 8));
    let build = |default, amount| {
        let graph = fixture.graph();
        let condition = condition(&fixture, graph, Some(default));
        let first = start(&fixture, graph, memory);
        let (_, bodies) = branch(&fixture, graph, &[first], condition, If, 1);
        add(&fixture, bodies[0], &[], memory, amount);
        graph
    };
    let exec = driver.graph_instantiate(build(0, 1), 0).expect("the graph is valid");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 0);
    let new = build(1, 2);
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    driver.graph_destroy(new).expect("the graph is live");
    run(&fixture, exec);
    assert_eq!(word(&fixture, memory), 2);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    fixture.free(memory);
}

#[test]
fn a_body_that_fails_ends_the_loop() {
    in_child("conditional::a_body_that_fails_ends_the_loop", &[], || {
        let (fixture, log) = (fixture(), Log::default());
        let (driver, graph, t) = (&fixture.driver, fixture.graph(), &fixture.t);
        let condition = condition(&fixture, graph, Some(1));
        let (node, bodies) = branch(&fixture, graph, &[], condition, While, 1);
        let hole = reserve(t, GRANULE);
        add(&fixture, bodies[0], &[], hole, 1);
        fixture.note(graph, &[node], &log, 1);
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        driver.graph_launch(exec, fixture.stream).expect("it can be launched");
        assert_eq!(code(driver.stream_synchronize(fixture.stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code(driver.graph_launch(exec, fixture.stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(log.entries().is_empty());
        driver.graph_exec_destroy(exec).expect("the handle is live");
        driver.graph_destroy(graph).expect("the graph is live");
    });
}

#[test]
fn an_empty_loop_does_not_block_other_streams() {
    in_child("conditional::an_empty_loop_does_not_block_other_streams", &[], || {
        let (fixture, log) = (fixture(), Log::default());
        let (driver, graph) = (&fixture.driver, fixture.graph());
        let condition = condition(&fixture, graph, Some(1));
        branch(&fixture, graph, &[], condition, While, 1);
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        driver.graph_launch(exec, fixture.stream).expect("it can be launched");
        let other = driver.stream_create(0).expect("a stream can be created");
        for entry in 0..50 {
            log.note(&fixture.t, other.handle() as CUstream, entry);
        }
        driver.stream_synchronize(other).expect("the work succeeds");
        assert_eq!((log.entries().len(), driver.stream_query(fixture.stream)), (50, Ok(false)));
        // Any code with the handle can end the loop.
        set_conditional(condition.handle(), 0).expect("the condition is live");
        driver.stream_synchronize(fixture.stream).expect("the work succeeds");
    });
}

#[test]
fn wrong_conditionals_are_refused() {
    let (fixture, log) = (fixture(), Log::default());
    let (driver, graph, t) = (&fixture.driver, fixture.graph(), &fixture.t);
    let wrong = CUDA_ERROR_INVALID_VALUE;
    let adding = |graph, condition, kind, size, context| {
        code(driver.graph_add_conditional(graph, &[], condition, kind, size, context))
    };
    let own = condition(&fixture, graph, Some(0));
    // A condition that no node uses.
    assert_eq!(code(driver.graph_instantiate(graph, 0)), wrong);
    assert_eq!(adding(graph, own, If, 0, fixture.context), wrong);
    assert_eq!(adding(graph, own, If, 3, fixture.context), wrong);
    assert_eq!(adding(graph, own, While, 2, fixture.context), wrong);
    assert_eq!(adding(graph, own, Switch, 0, fixture.context), wrong);
    assert_eq!(adding(graph, own, Switch, u32::MAX, fixture.context), wrong);
    let elsewhere = driver.primary_context(1).expect("there are two devices");
    assert_eq!(adding(graph, own, If, 1, elsewhere), wrong);
    let other = fixture.graph();
    assert_eq!(adding(other, own, If, 1, fixture.context), wrong);
    let (_, bodies) = branch(&fixture, graph, &[], own, If, 1);
    // A condition belongs to one node only.
    assert_eq!(adding(graph, own, If, 1, fixture.context), wrong);
    driver.graph_destroy(other).expect("the graph is live");
    assert_eq!(code(driver.graph_create_conditional(other, fixture.context, None)), wrong);
    let mut handle = 0;
    let (raw, context) = (graph.handle() as CUgraph, super::context(t, 0));
    assert_eq!(super::code!(t.cuGraphConditionalHandleCreate(&mut handle, raw, context, 0, 2)), wrong);
    // Graphs with such nodes cannot be copied, and bodies cannot be used alone.
    let parent = fixture.graph();
    assert_eq!(code(driver.graph_clone(graph)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(code(driver.graph_add_child(parent, &[], graph)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(code(driver.graph_destroy(bodies[0])), wrong);
    assert_eq!(code(driver.graph_instantiate(bodies[0], 0)), CUDA_ERROR_NOT_SUPPORTED);
    // A body, and a graph inside it, must not contain a host function, an event or work of another device.
    let child = fixture.graph();
    fixture.note(child, &[], &log, 1);
    driver.graph_add_child(bodies[0], &[], child).expect("a child graph node can be added");
    assert_eq!(code(driver.graph_instantiate(graph, 0)), wrong);
    for graph in [graph, parent, child] {
        driver.graph_destroy(graph).expect("the graph is live");
    }
    assert_eq!(driver.graph_nodes(bodies[0]).map_err(|failure| failure.code), Err(wrong));
}
