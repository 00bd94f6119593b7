//! Every driver call of a graph's life failing in turn.

use super::{graph::Rig, graph_exec::with_add, *};
use crate::driver::{
    Call, ConditionalKind, Context, Driver, DriverResult, Failure, FillNode, Graph, GraphExec, HostFunction,
    KernelNode, Kind, codes::*, fault_injection,
};

/// What a life has made so far, for whoever cleans up after it.
#[derive(Default)]
struct Made {
    graphs: Vec<Graph>,
    execs: Vec<GraphExec>,
}

/// A graph with a kernel, a fill and a conditional, copied, drawn, made executable, changed and launched.
fn life(
    driver: &Driver,
    rig: &Rig,
    context: Context,
    memory: u64,
    kernel: &KernelNode,
    made: &mut Made,
) -> DriverResult<()> {
    let graph = driver.graph_create()?;
    made.graphs.push(graph);
    let fill = FillNode::new(super::graph::span(memory, 4), 0, 4);
    let fill = driver.graph_add_fill(graph, &[], &fill, context)?;
    let add = driver.graph_add_kernel(graph, &[fill], kernel)?;
    let clone = driver.graph_clone(graph)?;
    made.graphs.push(clone);
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
    made.execs.push(exec);
    driver.graph_exec_set_kernel(exec, add, kernel)?;
    driver.graph_node_set_enabled(exec, fill, true)?;
    driver.graph_upload(exec, rig.stream)?;
    driver.graph_launch(exec, rig.stream)?;
    driver.graph_exec_update(exec, graph)?.expect("a graph fits what was made of it");
    driver.stream_synchronize(rig.stream)
}

#[test]
fn a_call_that_fails_is_told_and_leaves_nothing() {
    in_child("graph_fault::a_call_that_fails_is_told_and_leaves_nothing", &[], || {
        let rig = Rig::new();
        let (driver, memory) = (Driver::new(Kind::Host, crate::table(), true), alloc(&rig.t, 4));
        let mut failed: Vec<Call> = Vec::new();
        with_add(&rig, memory, 1, |kernel| {
            for nth in 1.. {
                let (before, mut made) = (crate::live(), Made::default());
                fault_injection::arm(nth, CUDA_ERROR_EXTERNAL_DEVICE);
                let answer = life(&driver, &rig, rig.context, memory, kernel, &mut made);
                fault_injection::arm(0, CUDA_SUCCESS);
                rig.driver.stream_synchronize(rig.stream).expect("what was launched ends well");
                made.execs.into_iter().for_each(|exec| rig.driver.graph_exec_destroy(exec).expect("it is live"));
                made.graphs.into_iter().for_each(|graph| rig.driver.graph_destroy(graph).expect("it is live"));
                let after = crate::live();
                assert_eq!((after.graphs, after.execs, after.objects), (before.graphs, before.execs, before.objects));
                let Err(Failure { call, code }) = answer else { break };
                assert_eq!(code, CUDA_ERROR_EXTERNAL_DEVICE);
                failed.push(call);
            }
        });
        // The launch and what is around it were all met.
        for call in [Call::cuGraphCreate, Call::cuGraphAddNode_v2, Call::cuGraphExecUpdate_v2, Call::cuGraphLaunch] {
            assert!(failed.contains(&call), "{failed:?}");
        }
        assert_eq!(read(&rig.t, memory, 4), 1_u32.to_le_bytes());
    });
}
