//! Tests that fail every driver call in the lifecycle of a graph in turn.

use super::{graph::Fixture, graph_exec::with_add, *};
use crate::driver::{
    Call, ConditionalKind, Context, Driver, DriverResult, Failure, FillNode, Graph, GraphExec, HostFunction,
    KernelNode, Kind, codes::*, fault_injection,
};

/// The objects that a lifecycle has created so far, for clean-up.
#[derive(Default)]
struct Created {
    graphs: Vec<Graph>,
    execs: Vec<GraphExec>,
}

/// Creates, copies, draws, instantiates, updates and launches a graph with a kernel, a fill and a conditional.
fn run_lifecycle(
    driver: &Driver,
    fixture: &Fixture,
    context: Context,
    memory: u64,
    kernel: &KernelNode,
    created: &mut Created,
) -> DriverResult<()> {
    let graph = driver.graph_create()?;
    created.graphs.push(graph);
    let fill = FillNode::new(super::graph::span(memory, 4), 0, 4);
    let fill = driver.graph_add_fill(graph, &[], &fill, context)?;
    let add = driver.graph_add_kernel(graph, &[fill], kernel)?;
    let clone = driver.graph_clone(graph)?;
    created.graphs.push(clone);
    driver.graph_node_in_clone(add, clone)?;
    driver.function_name(driver.graph_kernel(add)?.function.expect("the kernel has a handle"))?;
    assert_eq!(driver.graph_edges(graph)?, [(fill, add)]);
    assert_eq!(driver.graph_nodes(graph)?, [fill, add]);
    let condition = driver.graph_create_conditional(graph, context, Some(0))?;
    driver.graph_add_conditional(graph, &[add], condition, ConditionalKind::If, 1, context)?;
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    // SAFETY: a function that does nothing may be called at any time.
    let destructor = unsafe { HostFunction::new(nothing, std::ptr::null_mut()) };
    let object = driver.user_object_create(destructor, 1)?;
    if let Err(failure) = driver.graph_retain_user_object(graph, object, 1, true) {
        driver.user_object_release(object, 1)?;
        return Err(failure);
    }
    let exec = driver.graph_instantiate(graph, 0)?;
    created.execs.push(exec);
    driver.graph_exec_set_kernel(exec, add, kernel)?;
    driver.graph_node_set_enabled(exec, fill, true)?;
    driver.graph_upload(exec, fixture.stream)?;
    driver.graph_launch(exec, fixture.stream)?;
    driver.graph_exec_update(exec, graph)?.expect("a graph matches its executable graph");
    driver.stream_synchronize(fixture.stream)
}

#[test]
fn a_failing_call_is_reported_and_leaks_nothing() {
    in_child("graph_fault::a_failing_call_is_reported_and_leaks_nothing", &[], || {
        let fixture = Fixture::new();
        let (driver, memory) = (Driver::new(Kind::Host, crate::table(), true), alloc(&fixture.t, 4));
        let mut failed: Vec<Call> = Vec::new();
        with_add(&fixture, memory, 1, |kernel| {
            for nth in 1.. {
                let (before, mut created) = (crate::live(), Created::default());
                fault_injection::arm(nth, CUDA_ERROR_EXTERNAL_DEVICE);
                let answer = run_lifecycle(&driver, &fixture, fixture.context, memory, kernel, &mut created);
                fault_injection::arm(0, CUDA_SUCCESS);
                fixture.driver.stream_synchronize(fixture.stream).expect("the launched work succeeds");
                created
                    .execs
                    .into_iter()
                    .for_each(|exec| fixture.driver.graph_exec_destroy(exec).expect("the handle is live"));
                created
                    .graphs
                    .into_iter()
                    .for_each(|graph| fixture.driver.graph_destroy(graph).expect("the handle is live"));
                let after = crate::live();
                assert_eq!((after.graphs, after.execs, after.objects), (before.graphs, before.execs, before.objects));
                let Err(Failure { call, code }) = answer else { break };
                assert_eq!(code, CUDA_ERROR_EXTERNAL_DEVICE);
                failed.push(call);
            }
        });
        // The launch and the calls around it were all reached.
        for call in [Call::cuGraphCreate, Call::cuGraphAddNode_v2, Call::cuGraphExecUpdate_v2, Call::cuGraphLaunch] {
            assert!(failed.contains(&call), "{failed:?}");
        }
        assert_eq!(read(&fixture.t, memory, 4), 1_u32.to_le_bytes());
    });
}
