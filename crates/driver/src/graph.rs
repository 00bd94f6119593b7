//! Graphs and executable graphs. [`graph_node`](super::graph_node) adds nodes, and [`graph_view`](super::graph_view)
//! inspects them.

use super::{Driver, DriverResult, HostFunction, Stream, call, codes, graph_node::KernelNode, observer, types::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    panic, ptr,
};

/// A graph: the result of a capture, one that was built explicitly, or a child of another graph, which lives as long as
/// its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(usize);

/// An executable graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphExec(usize);

/// A node of a graph, which lives as long as the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct GraphNode(usize);

/// A user object: a resource of the program that graphs keep alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserObject(usize);

/// Why an executable graph cannot be updated to another graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateError {
    /// The nodes or edges differ, or they were added in a different order.
    TopologyChanged,
    /// A node has a different type.
    NodeTypeChanged,
    /// A node runs a different kernel, which drivers before 11.2 could not change.
    FunctionChanged,
    /// A node's parameters differ in a way that cannot be updated.
    ParametersChanged,
    /// The type or kind of a node cannot be updated.
    NotSupported,
    /// A node runs a different kernel, which cannot replace the old one.
    UnsupportedFunctionChange,
    /// A node's attributes differ in a way that cannot be updated.
    AttributesChanged,
    /// Another reason: one of `CU_GRAPH_EXEC_UPDATE_...`.
    Other(c_uint),
}

/// The reason why an update failed. The executable graph is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateRefusal {
    /// The kind of mismatch.
    pub error: UpdateError,
    /// The node of the new graph that does not match, if the mismatch concerns a node.
    pub node: Option<GraphNode>,
    /// The node that it must not depend on, if the mismatch is such an edge.
    pub from: Option<GraphNode>,
}

macro_rules! handle {
    ($name:ident, $raw:ident) => {
        impl $name {
            /// Wraps a handle.
            ///
            /// # Safety
            /// The handle is a live one of the driver and of this kind.
            pub unsafe fn from_handle(handle: usize) -> Self {
                $name(handle)
            }

            /// Returns the driver's pointer, for programs that call CUDA directly.
            pub fn handle(self) -> usize {
                self.0
            }

            /// Wraps a handle that the driver returned.
            pub(super) fn from_raw(raw: $raw) -> Self {
                $name(raw as usize)
            }

            pub(super) fn raw(self) -> $raw {
                self.0 as $raw
            }
        }
    };
}

handle!(Graph, CUgraph);
handle!(GraphExec, CUgraphExec);
handle!(GraphNode, CUgraphNode);
handle!(UserObject, CUuserObject);

/// A callback that runs when the last graph that contains its number is destroyed.
pub trait ReleaseCallback {
    /// Called with the number, in a thread of the driver. It must not call the driver.
    fn released(number: u64);
}

extern "C" fn released<T: ReleaseCallback>(data: *mut c_void) {
    // A panic must not unwind into the driver, and no caller can receive it.
    let _ = panic::catch_unwind(|| T::released(data as u64));
}

#[cfg(any(test, feature = "test-util"))]
impl GraphNode {
    /// Creates an invalid node for tests that never pass it to a driver.
    pub fn dangling(number: usize) -> Self {
        GraphNode(number)
    }
}

impl UpdateError {
    fn new(result: c_uint) -> UpdateError {
        match result {
            CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED => UpdateError::TopologyChanged,
            CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED => UpdateError::NodeTypeChanged,
            CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED => UpdateError::FunctionChanged,
            CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED => UpdateError::ParametersChanged,
            CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => UpdateError::NotSupported,
            CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE => UpdateError::UnsupportedFunctionChange,
            CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED => UpdateError::AttributesChanged,
            other => UpdateError::Other(other),
        }
    }
}

fn exec_changed(exec: GraphExec) {
    if let Some(observer) = observer::current() {
        observer.exec_changed(exec);
    }
}

impl Driver {
    /// Creates an empty graph.
    pub fn graph_create(&self) -> DriverResult<Graph> {
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and flags must be 0.
        unsafe { call!(self, cuGraphCreate(&mut graph, 0)) }?;
        Ok(Graph::from_raw(graph))
    }

    /// Destroys a graph and its nodes. Executable graphs created from it stay valid.
    pub fn graph_destroy(&self, graph: Graph) -> DriverResult<()> {
        // SAFETY: the graph is live until this call, and its owner does not use it afterwards.
        unsafe { call!(self, cuGraphDestroy(graph.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.graph_ended(graph);
        }
        Ok(())
    }

    /// Clones a graph and its child graphs.
    pub fn graph_clone(&self, graph: Graph) -> DriverResult<Graph> {
        let mut clone: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and the graph is live.
        unsafe { call!(self, cuGraphClone(&mut clone, graph.raw())) }?;
        let clone = Graph::from_raw(clone);
        if let Some(observer) = observer::current() {
            observer.graph_copied(graph, clone);
        }
        Ok(clone)
    }

    /// Returns the node of a clone that corresponds to a node of the original.
    pub fn graph_node_in_clone(&self, original: GraphNode, clone: Graph) -> DriverResult<GraphNode> {
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; node and graph are live.
        unsafe { call!(self, cuGraphNodeFindInClone(&mut node, original.raw(), clone.raw())) }?;
        Ok(GraphNode::from_raw(node))
    }

    /// Instantiates a graph. `flags` are `CUDA_GRAPH_INSTANTIATE_FLAG_...`.
    pub fn graph_instantiate(&self, graph: Graph, flags: u64) -> DriverResult<GraphExec> {
        let mut exec: CUgraphExec = ptr::null_mut();
        // SAFETY: the output is a live local, the graph is live, and wrong flags return an error code.
        unsafe { call!(self, cuGraphInstantiateWithFlags(&mut exec, graph.raw(), flags)) }?;
        let exec = GraphExec::from_raw(exec);
        if let Some(observer) = observer::current() {
            observer.exec_made(self, exec, graph);
        }
        Ok(exec)
    }

    /// Uploads an executable graph to its device, so that the first launch does not have to.
    pub fn graph_upload(&self, exec: GraphExec, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live driver objects.
        unsafe { call!(self, cuGraphUpload(exec.raw(), stream.raw())) }
    }

    /// Launches an executable graph in a stream, after its earlier launches.
    #[inline]
    pub fn graph_launch(&self, exec: GraphExec, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live driver objects.
        unsafe { call!(self, cuGraphLaunch(exec.raw(), stream.raw())) }
    }

    /// Destroys an executable graph. Its running work completes first.
    pub fn graph_exec_destroy(&self, exec: GraphExec) -> DriverResult<()> {
        // SAFETY: the executable graph is live until this call, and its owner does not use it afterwards.
        unsafe { call!(self, cuGraphExecDestroy(exec.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.exec_ended(exec);
        }
        Ok(())
    }

    /// Returns the flags that an executable graph was instantiated with.
    pub fn graph_exec_flags(&self, exec: GraphExec) -> DriverResult<u64> {
        let mut flags = 0;
        // SAFETY: the output is a live local, and the executable graph is live.
        unsafe { call!(self, cuGraphExecGetFlags(exec.raw(), &mut flags)) }?;
        Ok(flags)
    }

    /// Updates an executable graph to another graph. Later launches run the new graph. If the graphs differ in
    /// something that cannot be updated, the inner result is the reason.
    pub fn graph_exec_update(&self, exec: GraphExec, graph: Graph) -> DriverResult<Result<(), UpdateRefusal>> {
        let (error_node, error_from_node) = (ptr::null_mut(), ptr::null_mut());
        let mut info = ExecUpdateInfo { result: CU_GRAPH_EXEC_UPDATE_ERROR, error_node, error_from_node };
        // SAFETY: the output is a live local; both graphs are live.
        match unsafe { call!(self, cuGraphExecUpdate_v2(exec.raw(), graph.raw(), &mut info)) } {
            Ok(()) => {
                if let Some(observer) = observer::current() {
                    observer.exec_made(self, exec, graph);
                }
                Ok(Ok(()))
            }
            Err(failure) if failure.code == codes::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => {
                let named = |node: CUgraphNode| (!node.is_null()).then(|| GraphNode::from_raw(node));
                let (node, from) = (named(info.error_node), named(info.error_from_node));
                Ok(Err(UpdateRefusal { error: UpdateError::new(info.result), node, from }))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Sets the parameters of a kernel node for later launches of an executable graph. `node` belongs to the graph that
    /// it was instantiated from, which does not change.
    pub fn graph_exec_set_kernel(&self, exec: GraphExec, node: GraphNode, kernel: &KernelNode) -> DriverResult<()> {
        let parameters = kernel.raw();
        // SAFETY: executable graph and node are live, and the contract of `KernelNode::new` covers the parameters.
        unsafe { call!(self, cuGraphExecKernelNodeSetParams_v2(exec.raw(), node.raw(), &parameters)) }?;
        exec_changed(exec);
        Ok(())
    }

    /// Enables or disables a kernel, copy or fill node for later launches of an executable graph. `node` belongs to the
    /// graph that it was instantiated from.
    pub fn graph_node_set_enabled(&self, exec: GraphExec, node: GraphNode, enabled: bool) -> DriverResult<()> {
        // SAFETY: executable graph and node are live.
        unsafe { call!(self, cuGraphNodeSetEnabled(exec.raw(), node.raw(), c_uint::from(enabled))) }?;
        exec_changed(exec);
        Ok(())
    }

    /// Returns whether a kernel, copy or fill node is enabled.
    pub fn graph_node_enabled(&self, exec: GraphExec, node: GraphNode) -> DriverResult<bool> {
        let mut enabled = 0;
        // SAFETY: the output is a live local; executable graph and node are live.
        unsafe { call!(self, cuGraphNodeGetEnabled(exec.raw(), node.raw(), &mut enabled)) }?;
        Ok(enabled != 0)
    }

    /// Writes a graph to a file in Graphviz format. `flags` are `CU_GRAPH_DEBUG_DOT_FLAGS_...`.
    pub fn graph_draw(&self, graph: Graph, path: &CStr, flags: c_uint) -> DriverResult<()> {
        // SAFETY: the graph is live, and the path is NUL-terminated.
        unsafe { call!(self, cuGraphDebugDotPrint(graph.raw(), path.as_ptr(), flags)) }
    }

    /// Creates a user object with `references` references that the program owns. `destructor` runs when the last
    /// reference is released, in a thread of the driver, and must not call the driver.
    pub fn user_object_create(&self, destructor: HostFunction, references: u32) -> DriverResult<UserObject> {
        let mut object: CUuserObject = ptr::null_mut();
        let (function, data) = destructor.parts();
        let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        // SAFETY: the output is a live local, and the contract of `HostFunction::new` covers the destructor.
        unsafe { call!(self, cuUserObjectCreate(&mut object, data, Some(function), references, flags)) }?;
        Ok(UserObject::from_raw(object))
    }

    /// Releases references that the program owns.
    pub fn user_object_release(&self, object: UserObject, references: u32) -> DriverResult<()> {
        // SAFETY: the program owns these references, which the library's graph code ensures, so the object is live.
        unsafe { call!(self, cuUserObjectRelease(object.raw(), references)) }
    }

    /// Makes a graph retain a user object. Clones and executable graphs of the graph retain it too. With `moved`, the
    /// references are transferred from the program; otherwise they are new.
    pub fn graph_retain_user_object(
        &self,
        graph: Graph,
        object: UserObject,
        references: u32,
        moved: bool,
    ) -> DriverResult<()> {
        let flags = if moved { CU_GRAPH_USER_OBJECT_MOVE } else { 0 };
        // SAFETY: the graph is live, and the object is live because the program owns a reference to it.
        unsafe { call!(self, cuGraphRetainUserObject(graph.raw(), object.raw(), references, flags)) }
    }

    /// Attaches a number to a graph. `T::released` is called with it when the graph and all its clones and executable
    /// graphs are destroyed.
    pub fn graph_attach_release_callback<T: ReleaseCallback>(&self, graph: Graph, number: u64) -> DriverResult<()> {
        // SAFETY: the function uses the pointer as a number and never dereferences it, may be called from any thread,
        // and catches panics.
        let destructor = unsafe { HostFunction::new(released::<T>, number as *mut c_void) };
        let object = self.user_object_create(destructor, 1)?;
        self.graph_retain_user_object(graph, object, 1, true).inspect_err(|_| {
            // The error to report is why the graph does not retain the object.
            let _ = self.user_object_release(object, 1);
        })
    }
}
