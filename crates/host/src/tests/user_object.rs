//! User objects: retained by graphs and executable graphs, and destroyed once.

use super::{
    graph::{Fixture, code},
    *,
};
use crate::driver::{Graph, HostFunction, UserObject, codes::*};

/// Creates an object whose destructor adds `entry` to a log.
fn object(fixture: &Fixture, log: &Log, entry: usize, references: u32) -> UserObject {
    let (function, data) = log.function(entry);
    // SAFETY: a log's function may be called at any time.
    let function = unsafe { HostFunction::new(function, data) };
    fixture.driver.user_object_create(function, references).expect("a user object can be created")
}

/// Creates a graph with the only reference to an object.
fn graph_with(fixture: &Fixture, log: &Log, entry: usize) -> Graph {
    let (graph, object) = (fixture.graph(), object(fixture, log, entry, 1));
    fixture.driver.graph_retain_user_object(graph, object, 1, true).expect("the object is live");
    graph
}

/// Waits until exactly these destructors have run, in this order.
fn expect_destroyed(log: &Log, entries: &[usize]) {
    wait_until("the destructors have run", || log.entries().len() >= entries.len());
    assert_eq!(log.entries(), entries);
}

#[test]
fn the_last_reference_destroys() {
    let (fixture, log) = (Fixture::new(), Log::default());
    let driver = &fixture.driver;
    let (first, second) = (object(&fixture, &log, 1, 2), object(&fixture, &log, 2, 1));
    let graph = fixture.graph();
    driver.graph_retain_user_object(graph, first, 3, false).expect("both are live");
    driver.graph_retain_user_object(graph, second, 1, true).expect("both are live");
    driver.user_object_release(first, 2).expect("the program owns two references");
    // The program owns no reference any more.
    assert_eq!(code(driver.user_object_release(first, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(driver.user_object_release(second, 1)), CUDA_ERROR_INVALID_VALUE);
    let clone = driver.graph_clone(graph).expect("the graph can be copied");
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    let parent = fixture.graph();
    driver.graph_add_child(parent, &[], graph).expect("a child graph node can be added");
    driver.graph_destroy(graph).expect("the graph is live");
    driver.graph_destroy(clone).expect("the clone is live");
    driver.graph_exec_destroy(exec).expect("the handle is live");
    let third = object(&fixture, &log, 3, 1);
    driver.user_object_release(third, 1).expect("the program owns one reference");
    expect_destroyed(&log, &[3]);
    driver.graph_destroy(parent).expect("the graph is live");
    expect_destroyed(&log, &[3, 1, 2]);
}

#[test]
fn work_under_way_keeps_objects() {
    let (fixture, log, work) = (Fixture::new(), Log::default(), Log::default());
    let (driver, graph) = (&fixture.driver, graph_with(&fixture, &log, 1));
    fixture.note(graph, &[], &work, 1);
    let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
    driver.graph_destroy(graph).expect("the graph is live");
    let gate = Gate::close(&fixture.t, fixture.stream.handle() as CUstream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    driver.graph_exec_destroy(exec).expect("the handle is live");
    // Destructors run in order, so an earlier one would have run before this one's.
    driver.user_object_release(object(&fixture, &log, 2, 1), 1).expect("the program owns one reference");
    expect_destroyed(&log, &[2]);
    gate.open();
    expect_destroyed(&log, &[2, 1]);
    assert_eq!(work.entries(), [1]);
}

#[test]
fn an_update_exchanges_objects() {
    let (fixture, log, work) = (Fixture::new(), Log::default(), Log::default());
    let (driver, old, new) = (&fixture.driver, graph_with(&fixture, &log, 1), graph_with(&fixture, &log, 2));
    fixture.note(old, &[], &work, 1);
    fixture.note(new, &[], &work, 2);
    let exec = driver.graph_instantiate(old, 0).expect("the graph is valid");
    driver.graph_destroy(old).expect("the graph is live");
    let gate = Gate::close(&fixture.t, fixture.stream.handle() as CUstream);
    driver.graph_launch(exec, fixture.stream).expect("it can be launched");
    assert_eq!(driver.graph_exec_update(exec, new), Ok(Ok(())));
    driver.graph_destroy(new).expect("the graph is live");
    driver.user_object_release(object(&fixture, &log, 3, 1), 1).expect("the program owns one reference");
    expect_destroyed(&log, &[3]);
    gate.open();
    expect_destroyed(&log, &[3, 1]);
    driver.graph_exec_destroy(exec).expect("the handle is live");
    expect_destroyed(&log, &[3, 1, 2]);
}

#[test]
fn wrong_references_are_refused() {
    in_child("user_object::wrong_references_are_refused", &[], || {
        let (fixture, log) = (Fixture::new(), Log::default());
        let (driver, t, graph) = (&fixture.driver, &fixture.t, fixture.graph());
        let (function, data) = log.function(1);
        let wrong = CUDA_ERROR_INVALID_VALUE;
        let mut raw = std::ptr::null_mut();
        let synchronised = super::code!(t.cuUserObjectCreate(&mut raw, data, Some(function), 1, 0));
        assert_eq!(synchronised, wrong);
        for (function, count) in [(None, 1), (Some(function), 0), (Some(function), 1 << 31)] {
            let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
            assert_eq!(super::code!(t.cuUserObjectCreate(&mut raw, data, function, count, flags)), wrong);
        }
        let object = object(&fixture, &log, 1, 2);
        assert_eq!(code(driver.user_object_release(object, 0)), wrong);
        assert_eq!(code(driver.user_object_release(object, 3)), wrong);
        assert_eq!(code(driver.graph_retain_user_object(graph, object, 0, false)), wrong);
        assert_eq!(code(driver.graph_retain_user_object(graph, object, 3, true)), wrong);
        let (handle, known) = (graph.handle() as CUgraph, object.handle() as CUuserObject);
        assert_eq!(super::code!(t.cuGraphRetainUserObject(handle, known, 1, 2)), wrong);
        driver.graph_destroy(graph).expect("the graph is live");
        assert_eq!(code(driver.graph_retain_user_object(graph, object, 1, true)), wrong);
        assert!(raw.is_null() && log.entries().is_empty());
        assert_eq!(crate::live().objects, 1);
        driver.user_object_release(object, 2).expect("the program owns two references");
        expect_destroyed(&log, &[1]);
        assert_eq!(crate::live().objects, 0);
    });
}
