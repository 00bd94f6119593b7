//! Conditional nodes: bodies that are carried out or not, once or again and again.

use super::{
    graph::{Rig, code, span},
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
    kernels::{HostKernel, Launch, register},
};

/// Sets a condition (the first parameter) to a value (the second).
static SET: HostKernel = HostKernel { name: "test_set_conditional", parameter_sizes: &[8, 4], run: set };

fn set(launch: &Launch) {
    let (Some(handle), Some(value)) = (launch.u64(0), launch.u32(1)) else {
        return launch.fail(CUDA_ERROR_INVALID_VALUE);
    };
    if let Err(error) = set_conditional(handle, value) {
        launch.fail(error);
    }
}

/// Sets a condition (the first parameter) to whether a word (at the second) is below a limit (the third).
static BELOW: HostKernel = HostKernel { name: "test_set_below", parameter_sizes: &[8, 8, 4], run: below };

fn below(launch: &Launch) {
    let (Some(handle), Some(address), Some(limit)) = (launch.u64(0), launch.u64(1), launch.u32(2)) else {
        return launch.fail(CUDA_ERROR_INVALID_VALUE);
    };
    let word = launch.memory(address, 4, false);
    // SAFETY: found usable for a word; the test keeps it mapped until the stream is done.
    let result = word.and_then(|word| set_conditional(handle, u32::from(unsafe { word.cast::<u32>().read() } < limit)));
    if let Err(error) = result {
        launch.fail(error);
    }
}

/// What the tests need, kernels that set conditions among it.
pub fn rig() -> Rig {
    register(&SET);
    register(&BELOW);
    Rig::new()
}

fn add_set(rig: &Rig, graph: Graph, before: &[GraphNode], handle: u64, value: u32) -> GraphNode {
    let parameters: [*const c_void; 2] = [(&raw const handle).cast(), (&raw const value).cast()];
    // SAFETY: these are the parameters of the kernel.
    let kernel = unsafe { KernelNode::new(rig.function(c"test_set_conditional"), &parameters) };
    rig.driver.graph_add_kernel(graph, before, &kernel).expect("a kernel is a node")
}

/// Adds a kernel that sets a condition to whether a word is below a limit.
pub fn add_below(rig: &Rig, graph: Graph, before: &[GraphNode], condition: Conditional, word: u64, limit: u32) {
    let handle = condition.handle();
    let parameters: [*const c_void; 3] =
        [(&raw const handle).cast(), (&raw const word).cast(), (&raw const limit).cast()];
    // SAFETY: these are the parameters of the kernel, and the tests keep the memory.
    let kernel = unsafe { KernelNode::new(rig.function(c"test_set_below"), &parameters) };
    rig.driver.graph_add_kernel(graph, before, &kernel).expect("a kernel is a node");
}

fn condition(rig: &Rig, graph: Graph, default: Option<u32>) -> Conditional {
    rig.driver.graph_create_conditional(graph, rig.context, default).expect("conditions can be made")
}

fn branch(
    rig: &Rig,
    graph: Graph,
    before: &[GraphNode],
    condition: Conditional,
    kind: ConditionalKind,
    size: u32,
) -> (GraphNode, Vec<Graph>) {
    let added = rig.driver.graph_add_conditional(graph, before, condition, kind, size, rig.context);
    added.expect("a conditional is a node")
}

/// Sets a word before anything else of a graph.
fn start(rig: &Rig, graph: Graph, word: u64) -> GraphNode {
    let zero = FillNode::new(span(word, 4), 0, 4);
    rig.driver.graph_add_fill(graph, &[], &zero, rig.context).expect("a fill is a node")
}

#[test]
fn an_if_runs_one_body() {
    let (rig, log) = (rig(), Log::default());
    let (driver, memory) = (&rig.driver, alloc(&rig.t, 8));
    // By default, by a kernel against the default, and with a second body.
    let cases = [(0, None, 2), (1, None, 1), (7, None, 1), (0, Some(3), 1), (1, Some(0), 2)];
    for size in [1, 2] {
        for (default, by_kernel, expected) in cases {
            let graph = rig.graph();
            let condition = condition(&rig, graph, Some(default));
            let mut last = start(&rig, graph, memory);
            if let Some(value) = by_kernel {
                last = add_set(&rig, graph, &[last], condition.handle(), value);
            }
            let (node, bodies) = branch(&rig, graph, &[last], condition, If, size);
            assert_eq!(driver.graph_node_type(node), Ok(crate::driver::NodeType::Conditional));
            assert_eq!(bodies.len(), size as usize);
            for (index, body) in bodies.iter().enumerate() {
                add(&rig, *body, &[], memory, index as u32 + 1);
            }
            rig.note(graph, &[node], &log, 1);
            rig.launch(graph).expect("the graph runs");
            let expected = if size == 1 && expected == 2 { 0 } else { expected };
            assert_eq!(word(&rig, memory), expected, "{default} {by_kernel:?} {size}");
            driver.graph_destroy(graph).expect("the graph is live");
            assert_eq!(code(driver.graph_nodes(bodies[0])), CUDA_ERROR_INVALID_VALUE);
        }
    }
    assert_eq!(log.entries().len(), 10);
    rig.free(memory);
}

#[test]
fn a_while_runs_its_body_again_and_again() {
    let (rig, log) = (rig(), Log::default());
    let (driver, memory, graph) = (&rig.driver, alloc(&rig.t, 8), rig.graph());
    let condition = condition(&rig, graph, Some(1));
    let first = start(&rig, graph, memory);
    let (node, bodies) = branch(&rig, graph, &[first], condition, While, 1);
    // Two branches, so that the body needs a stream of its own beside the launching one.
    let other = start(&rig, bodies[0], memory + 4);
    let step = add(&rig, bodies[0], &[], memory, 1);
    let both = driver.graph_add_empty(bodies[0], &[other, step]).expect("nothing is a node");
    add_below(&rig, bodies[0], &[both], condition, memory, 100);
    rig.note(graph, &[node], &log, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is sound");
    // Each launch begins with the default again.
    for launch in 1..4 {
        run(&rig, exec);
        assert_eq!((word(&rig, memory), log.entries().len()), (100, launch));
    }
    // Launches do not wait to be carried out, and follow each other.
    let stream = rig.stream.handle() as CUstream;
    let gate = Gate::close(&rig.t, stream);
    driver.graph_launch(exec, rig.stream).expect("it can be launched");
    driver.graph_launch(exec, rig.stream).expect("it can be launched");
    // One that is destroyed on the way finishes, loops included.
    driver.graph_exec_destroy(exec).expect("it is live");
    driver.graph_destroy(graph).expect("the graph is live");
    assert_eq!(driver.stream_query(rig.stream), Ok(false));
    gate.open();
    driver.stream_synchronize(rig.stream).expect("it ends well");
    assert_eq!((word(&rig, memory), log.entries().len()), (100, 5));
    assert_eq!(set_conditional(condition.handle(), 1), Err(CUDA_ERROR_INVALID_VALUE));
    rig.free(memory);
}

#[test]
fn conditionals_nest() {
    let rig = rig();
    let (driver, memory, graph) = (&rig.driver, alloc(&rig.t, 16), rig.graph());
    let (rounds, total, odd) = (memory, memory + 4, memory + 8);
    let outer = condition(&rig, graph, Some(1));
    let first = driver.graph_add_fill(graph, &[], &FillNode::new(span(memory, 16), 0, 4), rig.context);
    let (_, bodies) = branch(&rig, graph, &[first.expect("a fill is a node")], outer, While, 1);
    let body = bodies[0];
    // An inner loop of four steps, and an if that only its own condition of the first round allows.
    let inner = condition(&rig, body, None);
    let inner_start = start(&rig, body, odd);
    let ready = add_set(&rig, body, &[inner_start], inner.handle(), 1);
    let (loop_node, inner_bodies) = branch(&rig, body, &[ready], inner, While, 1);
    let step = add(&rig, inner_bodies[0], &[], total, 1);
    let count = add(&rig, inner_bodies[0], &[step], odd, 1);
    add_below(&rig, inner_bodies[0], &[count], inner, odd, 4);
    let once = condition(&rig, graph, Some(1));
    let (if_node, if_bodies) = branch(&rig, body, &[loop_node], once, If, 1);
    let hundred = add(&rig, if_bodies[0], &[], total, 100);
    add_set(&rig, if_bodies[0], &[hundred], once.handle(), 0);
    let round = add(&rig, body, &[if_node], rounds, 1);
    add_below(&rig, body, &[round], outer, rounds, 5);
    for _ in 0..2 {
        rig.launch(graph).expect("the graph runs");
        assert_eq!((word(&rig, rounds), word(&rig, total)), (5, 120));
    }
    driver.graph_destroy(graph).expect("the graph is live");
    rig.free(memory);
}

#[test]
fn a_switch_picks_by_number() {
    let rig = rig();
    let (driver, memory) = (&rig.driver, alloc(&rig.t, 8));
    for (value, expected) in [(0, 1), (2, 3), (3, 0), (u32::MAX, 0)] {
        let graph = rig.graph();
        let condition = condition(&rig, graph, Some(value));
        let first = start(&rig, graph, memory);
        let (_, bodies) = branch(&rig, graph, &[first], condition, Switch, 3);
        for (index, body) in bodies.iter().enumerate() {
            add(&rig, *body, &[], memory, index as u32 + 1);
        }
        rig.launch(graph).expect("the graph runs");
        assert_eq!(word(&rig, memory), expected);
        driver.graph_destroy(graph).expect("the graph is live");
    }
    rig.free(memory);
}

#[test]
fn without_a_default_the_value_stays() {
    let rig = rig();
    let (driver, memory, graph) = (&rig.driver, alloc(&rig.t, 8), rig.graph());
    let (t, condition) = (&rig.t, condition(&rig, graph, None));
    let (node, bodies) = branch(&rig, graph, &[], condition, If, 1);
    add(&rig, bodies[0], &[], memory, 1);
    add_set(&rig, graph, &[node], condition.handle(), 1);
    ok!(t.cuMemsetD32Async(memory, 0, 2, rig.stream.handle() as CUstream));
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is sound");
    for expected in 0..3 {
        run(&rig, exec);
        assert_eq!(word(&rig, memory), expected);
    }
    driver.graph_exec_destroy(exec).expect("it is live");
    driver.graph_destroy(graph).expect("the graph is live");
    rig.free(memory);
}

#[test]
fn an_update_brings_its_condition() {
    let rig = rig();
    let (driver, memory) = (&rig.driver, alloc(&rig.t, 8));
    let build = |default, amount| {
        let graph = rig.graph();
        let condition = condition(&rig, graph, Some(default));
        let first = start(&rig, graph, memory);
        let (_, bodies) = branch(&rig, graph, &[first], condition, If, 1);
        add(&rig, bodies[0], &[], memory, amount);
        graph
    };
    let exec = driver.graph_instantiate(build(0, 1), 0).expect("the graph is sound");
    run(&rig, exec);
    assert_eq!(word(&rig, memory), 0);
    let new = build(1, 2);
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    driver.graph_destroy(new).expect("the graph is live");
    run(&rig, exec);
    assert_eq!(word(&rig, memory), 2);
    driver.graph_exec_destroy(exec).expect("it is live");
    rig.free(memory);
}

#[test]
fn a_body_that_fails_ends_the_loop() {
    let (rig, log) = (rig(), Log::default());
    let (driver, graph, t) = (&rig.driver, rig.graph(), &rig.t);
    let condition = condition(&rig, graph, Some(1));
    let (node, bodies) = branch(&rig, graph, &[], condition, While, 1);
    let hole = reserve(t, GRANULE);
    add(&rig, bodies[0], &[], hole, 1);
    rig.note(graph, &[node], &log, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is sound");
    driver.graph_launch(exec, rig.stream).expect("it can be launched");
    assert_eq!(code(driver.stream_synchronize(rig.stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(code(driver.graph_launch(exec, rig.stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(log.entries().is_empty());
    driver.graph_exec_destroy(exec).expect("it is live");
    driver.graph_destroy(graph).expect("the graph is live");
    ok!(t.cuMemAddressFree(hole, GRANULE));
}

#[test]
fn a_loop_that_does_nothing_disturbs_nobody() {
    in_child("conditional::a_loop_that_does_nothing_disturbs_nobody", &[], || {
        let (rig, log) = (rig(), Log::default());
        let (driver, graph) = (&rig.driver, rig.graph());
        let condition = condition(&rig, graph, Some(1));
        branch(&rig, graph, &[], condition, While, 1);
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is sound");
        driver.graph_launch(exec, rig.stream).expect("it can be launched");
        let other = driver.stream_create(0).expect("streams can be made");
        for entry in 0..50 {
            log.note(&rig.t, other.handle() as CUstream, entry);
        }
        driver.stream_synchronize(other).expect("it ends well");
        assert_eq!((log.entries().len(), driver.stream_query(rig.stream)), (50, Ok(false)));
        // Whoever knows the handle can end it.
        set_conditional(condition.handle(), 0).expect("the condition is live");
        driver.stream_synchronize(rig.stream).expect("it ends well");
    });
}

#[test]
fn wrong_conditionals_are_refused() {
    let (rig, log) = (rig(), Log::default());
    let (driver, graph, t) = (&rig.driver, rig.graph(), &rig.t);
    let wrong = CUDA_ERROR_INVALID_VALUE;
    let adding = |graph, condition, kind, size, context| {
        code(driver.graph_add_conditional(graph, &[], condition, kind, size, context))
    };
    let own = condition(&rig, graph, Some(0));
    // A condition that nothing asks.
    assert_eq!(code(driver.graph_instantiate(graph, 0)), wrong);
    assert_eq!(adding(graph, own, If, 0, rig.context), wrong);
    assert_eq!(adding(graph, own, If, 3, rig.context), wrong);
    assert_eq!(adding(graph, own, While, 2, rig.context), wrong);
    assert_eq!(adding(graph, own, Switch, 0, rig.context), wrong);
    assert_eq!(adding(graph, own, Switch, u32::MAX, rig.context), wrong);
    let elsewhere = driver.primary_context(1).expect("there are two devices");
    assert_eq!(adding(graph, own, If, 1, elsewhere), wrong);
    let other = rig.graph();
    assert_eq!(adding(other, own, If, 1, rig.context), wrong);
    let (_, bodies) = branch(&rig, graph, &[], own, If, 1);
    // One condition, one node.
    assert_eq!(adding(graph, own, If, 1, rig.context), wrong);
    driver.graph_destroy(other).expect("the graph is live");
    assert_eq!(code(driver.graph_create_conditional(other, rig.context, None)), wrong);
    let mut handle = 0;
    let (raw, context) = (graph.handle() as CUgraph, super::context(t, 0));
    assert_eq!(super::code!(t.cuGraphConditionalHandleCreate(&mut handle, raw, context, 0, 2)), wrong);
    // Graphs with such nodes cannot be copied, and bodies cannot stand alone.
    let parent = rig.graph();
    assert_eq!(code(driver.graph_clone(graph)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(code(driver.graph_add_child(parent, &[], graph)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(code(driver.graph_destroy(bodies[0])), wrong);
    assert_eq!(code(driver.graph_instantiate(bodies[0], 0)), wrong);
    // No host function, event or work of another device is in a body, nor in a graph inside it.
    let child = rig.graph();
    rig.note(child, &[], &log, 1);
    driver.graph_add_child(bodies[0], &[], child).expect("a graph is a node");
    assert_eq!(code(driver.graph_instantiate(graph, 0)), wrong);
    for graph in [graph, parent, child] {
        driver.graph_destroy(graph).expect("the graph is live");
    }
    assert_eq!(driver.graph_nodes(bodies[0]).map_err(|failure| failure.code), Err(wrong));
}
