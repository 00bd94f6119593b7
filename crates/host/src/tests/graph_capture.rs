//! Captures through the driver's methods, and captures into existing graphs. A capture prohibits calls in the whole
//! process, so each test runs in a separate process.

use super::{
    graph::{Fixture, code},
    graph_exec::word,
    *,
};
use crate::driver::{ConditionalKind, codes::*};

const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn a_capture_returns_its_info() {
    in_child("graph_capture::a_capture_returns_its_info", &[], || {
        let (fixture, log) = (Fixture::new(), Log::default());
        let (driver, stream) = (&fixture.driver, fixture.stream.handle() as CUstream);
        let info = driver.stream_capture_info(fixture.stream).expect("the stream is live");
        assert_eq!((info.status, info.graph), (CU_STREAM_CAPTURE_STATUS_NONE, None));
        driver.stream_begin_capture(fixture.stream, RELAXED).expect("the stream can be captured");
        log.note(&fixture.t, stream, 1);
        log.note(&fixture.t, stream, 2);
        let info = driver.stream_capture_info(fixture.stream).expect("the stream is live");
        let graph = info.graph.expect("the capture has a graph");
        let nodes = driver.graph_nodes(graph).expect("the graph can be queried");
        assert_eq!((info.status, info.dependencies.as_slice()), (CU_STREAM_CAPTURE_STATUS_ACTIVE, &nodes[1..]));
        assert!(info.id > 0);
        // Nodes can be added to it, and it can be instantiated, but not destroyed.
        let extra = fixture.note(graph, &nodes[1..], &log, 3);
        assert_eq!(code(driver.graph_destroy(graph)), CUDA_ERROR_ILLEGAL_STATE);
        let early = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        driver.graph_exec_destroy(early).expect("the handle is live");
        assert_eq!(driver.stream_end_capture(fixture.stream), Ok(graph));
        assert!(driver.graph_nodes(graph).expect("the graph is live").contains(&extra));
        fixture.launch(graph).expect("the graph runs");
        assert_eq!(log.entries(), [1, 2, 3]);
        driver.graph_destroy(graph).expect("the graph is live");
        assert_eq!(code(driver.stream_end_capture(fixture.stream)), CUDA_ERROR_ILLEGAL_STATE);
        // An upload cannot be captured.
        let empty = fixture.graph();
        let exec = driver.graph_instantiate(empty, 0).expect("the graph is valid");
        driver.stream_begin_capture(fixture.stream, RELAXED).expect("the stream can be captured");
        assert_eq!(code(driver.graph_upload(exec, fixture.stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let info = driver.stream_capture_info(fixture.stream).expect("the stream is live");
        assert_eq!((info.status, info.graph), (CU_STREAM_CAPTURE_STATUS_INVALIDATED, None));
        assert_eq!(code(driver.stream_end_capture(fixture.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn captures_can_extend_existing_graphs() {
    in_child("graph_capture::captures_can_extend_existing_graphs", &[], || {
        let (fixture, log) = (Fixture::new(), Log::default());
        let (driver, stream, graph) = (&fixture.driver, fixture.stream.handle() as CUstream, fixture.graph());
        let first = fixture.note(graph, &[], &log, 1);
        let begin = |graph, before: &[_]| driver.stream_begin_capture_to_graph(fixture.stream, graph, before, RELAXED);
        begin(graph, &[first]).expect("the graph is live");
        log.note(&fixture.t, stream, 2);
        let other = driver.stream_create(0).expect("a stream can be created");
        let twice = driver.stream_begin_capture_to_graph(other, graph, &[], RELAXED);
        assert_eq!(code(twice), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(driver.stream_end_capture(fixture.stream), Ok(graph));
        fixture.launch(graph).expect("the graph runs");
        assert_eq!(log.entries(), [1, 2]);
        // A capture that fails destroys the graph.
        begin(graph, &[]).expect("the graph is live");
        let event = driver.event_create(CU_EVENT_DISABLE_TIMING).expect("an event can be created");
        driver.event_record(event, other).expect("both are live");
        assert_eq!(code(driver.stream_wait_event(fixture.stream, event, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(code(driver.stream_end_capture(fixture.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(code(driver.graph_nodes(graph)), CUDA_ERROR_INVALID_VALUE);
        let foreign = fixture.graph();
        assert_eq!(code(begin(foreign, &[first])), CUDA_ERROR_INVALID_VALUE);
        driver.graph_destroy(foreign).expect("the graph is live");
        assert_eq!(code(begin(foreign, &[])), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn bodies_can_be_captured() {
    in_child("graph_capture::bodies_can_be_captured", &[], || {
        let fixture = Fixture::new();
        let (driver, t) = (&fixture.driver, &fixture.t);
        let (stream, memory) = (fixture.stream.handle() as CUstream, alloc(t, 8));
        driver.stream_begin_capture(fixture.stream, RELAXED).expect("the stream can be captured");
        ok!(t.cuMemsetD32Async(memory, 1, 2, stream));
        // As in PyTorch: the node depends on what is captured so far, and its body is captured in another stream.
        let info = driver.stream_capture_info(fixture.stream).expect("the stream is live");
        let graph = info.graph.expect("the capture has a graph");
        let condition =
            driver.graph_create_conditional(graph, fixture.context, Some(1)).expect("a condition can be created");
        let kind = ConditionalKind::If;
        let added = driver.graph_add_conditional(graph, &info.dependencies, condition, kind, 1, fixture.context);
        let (_, bodies) = added.expect("a conditional node can be added");
        let side = driver.stream_create(0).expect("a stream can be created");
        driver.stream_begin_capture_to_graph(side, bodies[0], &[], RELAXED).expect("the body is live");
        ok!(t.cuMemsetD32Async(memory, 7, 1, side.handle() as CUstream));
        assert_eq!(driver.stream_end_capture(side), Ok(bodies[0]));
        assert_eq!(driver.stream_end_capture(fixture.stream), Ok(graph));
        fixture.launch(graph).expect("the graph runs");
        assert_eq!((word(&fixture, memory), word(&fixture, memory + 4)), (7, 1));
        // While a body is captured, the graph that contains it cannot be destroyed either.
        driver.stream_begin_capture_to_graph(side, bodies[0], &[], RELAXED).expect("the body is live");
        assert_eq!(code(driver.graph_destroy(graph)), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(driver.stream_end_capture(side), Ok(bodies[0]));
        // A launch cannot be captured.
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        driver.stream_begin_capture(fixture.stream, RELAXED).expect("the stream can be captured");
        assert_eq!(code(driver.graph_launch(exec, fixture.stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(code(driver.stream_end_capture(fixture.stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}
