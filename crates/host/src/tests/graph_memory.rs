//! Memory that graphs allocate. A capture prohibits calls in the whole process, so each test runs in a separate process.

use super::*;
use crate::driver::codes::*;

fn begin(t: &Table, stream: CUstream) {
    ok!(t.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

fn end(t: &Table, stream: CUstream) -> CUgraph {
    let mut graph = std::ptr::null_mut();
    ok!(t.cuStreamEndCapture(stream, &mut graph));
    graph
}

fn instantiate(t: &Table, graph: CUgraph, auto_free: bool) -> CUgraphExec {
    let mut exec = std::ptr::null_mut();
    let flags = if auto_free { CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH } else { 0 };
    ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, flags));
    exec
}

fn alloc(t: &Table, bytes: usize, stream: CUstream) -> u64 {
    let mut pointer = 0;
    ok!(t.cuMemAllocAsync(&mut pointer, bytes, stream));
    pointer
}

fn held() -> u64 {
    crate::live().device_bytes[0]
}

#[test]
fn a_graph_allocates_and_frees() {
    in_child("graph_memory::a_graph_allocates_and_frees", &[], || {
        let t = setup(0);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        begin(&t, stream);
        let first = alloc(&t, 4 * MIB, stream);
        ok!(t.cuMemsetD8Async(first, 1, 4 * MIB, stream));
        ok!(t.cuMemFreeAsync(first, stream));
        assert_eq!(code!(t.cuMemFreeAsync(first, stream)), CUDA_ERROR_INVALID_VALUE);
        // The stream's order permits the reuse.
        assert_eq!(alloc(&t, 4 * MIB, stream), first);
        ok!(t.cuMemFreeAsync(first, stream));
        let graph = end(&t, stream);
        let exec = instantiate(&t, graph, false);
        for _ in 0..3 {
            ok!(t.cuGraphLaunch(exec, stream));
        }
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(code!(t.cuMemFreeAsync(first, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuGraphExecDestroy(exec));
        assert_eq!(held(), 4 << 20);
        ok!(t.cuGraphDestroy(graph));
        assert_eq!(held(), 0);
    });
}

#[test]
fn memory_outlives_its_graph() {
    in_child("graph_memory::memory_outlives_its_graph", &[], || {
        let t = setup(0);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        begin(&t, stream);
        let kept = alloc(&t, 2 * MIB, stream);
        ok!(t.cuMemsetD8Async(kept, 7, 2 * MIB, stream));
        let graph = end(&t, stream);
        // Before the launch there is nothing to free.
        assert_eq!(code!(t.cuMemFreeAsync(kept, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemFree_v2(kept)), CUDA_ERROR_INVALID_VALUE);
        let exec = instantiate(&t, graph, false);
        ok!(t.cuGraphLaunch(exec, stream));
        // It is not free, so the graph cannot allocate it again.
        assert_eq!(code!(t.cuGraphLaunch(exec, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuGraphExecDestroy(exec));
        ok!(t.cuGraphDestroy(graph));
        let mut byte = 0_u8;
        ok!(t.cuMemcpyAsync((&raw mut byte) as u64, kept, 1, stream));
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(byte, 7);
        ok!(t.cuMemFreeAsync(kept, stream));
        assert_eq!(code!(t.cuMemFreeAsync(kept, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(held(), 0);
    });
}

#[test]
fn a_launch_can_free_what_the_last_one_left() {
    in_child("graph_memory::a_launch_can_free_what_the_last_one_left", &[], || {
        let t = setup(0);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        begin(&t, stream);
        let kept = alloc(&t, 2 * MIB, stream);
        let graph = end(&t, stream);
        let exec = instantiate(&t, graph, true);
        for _ in 0..3 {
            ok!(t.cuGraphLaunch(exec, stream));
        }
        ok!(t.cuMemFree_v2(kept));
        ok!(t.cuGraphLaunch(exec, stream));
        // Another graph can free it.
        begin(&t, stream);
        ok!(t.cuMemFreeAsync(kept, stream));
        let other = end(&t, stream);
        let frees = instantiate(&t, other, false);
        ok!(t.cuGraphLaunch(frees, stream));
        assert_eq!(code!(t.cuGraphLaunch(frees, stream)), CUDA_ERROR_INVALID_VALUE);
        for one in [exec, frees] {
            ok!(t.cuGraphExecDestroy(one));
        }
        for one in [graph, other] {
            ok!(t.cuGraphDestroy(one));
        }
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(held(), 0);
    });
}

#[test]
fn graphs_with_memory_are_restricted() {
    in_child("graph_memory::graphs_with_memory_are_restricted", &[], || {
        let t = setup(0);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        let ordinary = alloc(&t, MIB, stream);
        begin(&t, stream);
        let kept = alloc(&t, MIB, stream);
        // Only memory of graphs can be freed by a node.
        assert_eq!(code!(t.cuMemFreeAsync(ordinary, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemFreeAsync(kept + 512, stream)), CUDA_ERROR_INVALID_VALUE);
        let graph = end(&t, stream);
        let mut clone = std::ptr::null_mut();
        assert_eq!(code!(t.cuGraphClone(&mut clone, graph)), CUDA_ERROR_NOT_SUPPORTED);
        let exec = instantiate(&t, graph, true);
        let mut second = std::ptr::null_mut();
        assert_eq!(code!(t.cuGraphInstantiateWithFlags(&mut second, graph, 0)), CUDA_ERROR_NOT_SUPPORTED);
        // Work must not use it before a launch.
        ok!(t.cuMemsetD8Async(kept, 1, MIB, stream));
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(t.cuGraphExecDestroy(exec));
        ok!(t.cuGraphDestroy(graph));
    });
}
