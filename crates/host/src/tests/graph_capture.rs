//! Captures through the driver's methods, and captures into graphs that are there. A capture forbids calls to the whole
//! process, so each test has one of its own.

use super::{
    graph::{Rig, code, span},
    graph_exec::{add, word},
    *,
};
use crate::driver::{ConditionalKind, FillNode, NodeType, codes::*};

const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn a_capture_tells_of_itself() {
    in_child("graph_capture::a_capture_tells_of_itself", &[], || {
        let (rig, log) = (Rig::new(), Log::default());
        let (driver, stream) = (&rig.driver, rig.stream.handle() as CUstream);
        let info = driver.stream_capture_info(rig.stream).expect("the stream is live");
        assert_eq!((info.status, info.graph), (CU_STREAM_CAPTURE_STATUS_NONE, None));
        driver.stream_begin_capture(rig.stream, RELAXED).expect("the stream can be captured");
        log.note(&rig.t, stream, 1);
        log.note(&rig.t, stream, 2);
        let info = driver.stream_capture_info(rig.stream).expect("the stream is live");
        let graph = info.graph.expect("there is a graph already");
        let nodes = driver.graph_nodes(graph).expect("the graph can be looked at");
        assert_eq!((info.status, info.dependencies.as_slice()), (CU_STREAM_CAPTURE_STATUS_ACTIVE, &nodes[1..]));
        assert!(info.id > 0);
        // It can be added to, but neither be destroyed nor launched.
        let extra = rig.note(graph, &nodes[1..], &log, 3);
        assert_eq!(code(driver.graph_destroy(graph)), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(code(driver.graph_instantiate(graph, 0)), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(driver.stream_end_capture(rig.stream), Ok(graph));
        assert!(driver.graph_nodes(graph).expect("the graph is live").contains(&extra));
        rig.launch(graph).expect("the graph runs");
        assert_eq!(log.entries(), [1, 2, 3]);
        driver.graph_destroy(graph).expect("the graph is live");
        assert_eq!(code(driver.stream_end_capture(rig.stream)), CUDA_ERROR_ILLEGAL_STATE);
        // An upload has no place in a capture.
        let empty = rig.graph();
        let exec = driver.graph_instantiate(empty, 0).expect("the graph is sound");
        driver.stream_begin_capture(rig.stream, RELAXED).expect("the stream can be captured");
        assert_eq!(code(driver.graph_upload(exec, rig.stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let info = driver.stream_capture_info(rig.stream).expect("the stream is live");
        assert_eq!((info.status, info.graph), (CU_STREAM_CAPTURE_STATUS_INVALIDATED, None));
        assert_eq!(code(driver.stream_end_capture(rig.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn captures_go_into_graphs_that_are_there() {
    in_child("graph_capture::captures_go_into_graphs_that_are_there", &[], || {
        let (rig, log) = (Rig::new(), Log::default());
        let (driver, stream, graph) = (&rig.driver, rig.stream.handle() as CUstream, rig.graph());
        let first = rig.note(graph, &[], &log, 1);
        let begin = |graph, before: &[_]| driver.stream_begin_capture_to_graph(rig.stream, graph, before, RELAXED);
        begin(graph, &[first]).expect("the graph is live");
        log.note(&rig.t, stream, 2);
        let other = driver.stream_create(0).expect("streams can be made");
        let twice = driver.stream_begin_capture_to_graph(other, graph, &[], RELAXED);
        assert_eq!(code(twice), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(driver.stream_end_capture(rig.stream), Ok(graph));
        rig.launch(graph).expect("the graph runs");
        assert_eq!(log.entries(), [1, 2]);
        // A capture that fails leaves the graph to the program.
        begin(graph, &[]).expect("the graph is live");
        let event = driver.event_create(CU_EVENT_DISABLE_TIMING).expect("events can be made");
        driver.event_record(event, other).expect("both are live");
        assert_eq!(code(driver.stream_wait_event(rig.stream, event, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(code(driver.stream_end_capture(rig.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(driver.graph_nodes(graph).expect("the graph is live").len(), 2);
        let foreign = rig.graph();
        assert_eq!(code(begin(foreign, &[first])), CUDA_ERROR_INVALID_VALUE);
        driver.graph_destroy(foreign).expect("the graph is live");
        assert_eq!(code(begin(foreign, &[])), CUDA_ERROR_INVALID_VALUE);
        driver.graph_destroy(graph).expect("the graph is live");
    });
}

#[test]
fn bodies_can_be_captured() {
    in_child("graph_capture::bodies_can_be_captured", &[], || {
        let rig = Rig::new();
        let (driver, t) = (&rig.driver, &rig.t);
        let (stream, memory) = (rig.stream.handle() as CUstream, alloc(t, 8));
        driver.stream_begin_capture(rig.stream, RELAXED).expect("the stream can be captured");
        ok!(t.cuMemsetD32Async(memory, 1, 2, stream));
        // As PyTorch does it: the node goes behind what is captured so far, and its body is captured in another stream.
        let info = driver.stream_capture_info(rig.stream).expect("the stream is live");
        let graph = info.graph.expect("there is a graph already");
        let condition = driver.graph_create_conditional(graph, rig.context, Some(1)).expect("conditions can be made");
        let kind = ConditionalKind::If;
        let added = driver.graph_add_conditional(graph, &info.dependencies, condition, kind, 1, rig.context);
        let (_, bodies) = added.expect("a conditional is a node");
        let side = driver.stream_create(0).expect("streams can be made");
        driver.stream_begin_capture_to_graph(side, bodies[0], &[], RELAXED).expect("the body is live");
        ok!(t.cuMemsetD32Async(memory, 7, 1, side.handle() as CUstream));
        assert_eq!(driver.stream_end_capture(side), Ok(bodies[0]));
        assert_eq!(driver.stream_end_capture(rig.stream), Ok(graph));
        rig.launch(graph).expect("the graph runs");
        assert_eq!((word(&rig, memory), word(&rig, memory + 4)), (7, 1));
        // Under capture, a body keeps the graph around it, too.
        driver.stream_begin_capture_to_graph(side, bodies[0], &[], RELAXED).expect("the body is live");
        assert_eq!(code(driver.graph_destroy(graph)), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(code(driver.graph_instantiate(graph, 0)), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(driver.stream_end_capture(side), Ok(bodies[0]));
        // A graph with such a node cannot become a part of a capture.
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is sound");
        driver.stream_begin_capture(rig.stream, RELAXED).expect("the stream can be captured");
        assert_eq!(code(driver.graph_launch(exec, rig.stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(code(driver.stream_end_capture(rig.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn a_captured_launch_is_as_the_executable_graph_is() {
    in_child("graph_capture::a_captured_launch_is_as_the_executable_graph_is", &[], || {
        let rig = Rig::new();
        let (driver, memory, inner) = (&rig.driver, alloc(&rig.t, 4), rig.graph());
        let zero = FillNode::new(span(memory, 4), 40, 4);
        let fill = driver.graph_add_fill(inner, &[], &zero, rig.context).expect("a fill is a node");
        let kernel = add(&rig, inner, &[fill], memory, 2);
        let exec = driver.graph_instantiate(inner, 0).expect("the graph is sound");
        driver.graph_node_set_enabled(exec, kernel, false).expect("kernels have a switch");
        driver.stream_begin_capture(rig.stream, RELAXED).expect("the stream can be captured");
        driver.graph_launch(exec, rig.stream).expect("launches can be captured");
        let graph = driver.stream_end_capture(rig.stream).expect("the capture is sound");
        driver.graph_exec_destroy(exec).expect("it is live");
        driver.graph_destroy(inner).expect("the graph is live");
        let nodes = driver.graph_nodes(graph).expect("the graph is live");
        let kinds: Vec<_> = nodes.iter().map(|node| driver.graph_node_type(*node)).collect();
        assert_eq!(kinds, [Ok(NodeType::Memset), Ok(NodeType::Empty)]);
        rig.launch(graph).expect("the graph runs");
        assert_eq!(word(&rig, memory), 40);
    });
}
