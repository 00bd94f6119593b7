//! The driver's graphs, and the executable graphs that are made of them. Their nodes are added in
//! [`graph_node`](super::graph_node) and looked at in [`graph_view`](super::graph_view).

use super::{Driver, DriverResult, HostFunction, Stream, call, codes, graph_node::KernelNode, observer, types::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    panic, ptr,
};

/// A graph: one that a capture left, one built by hand, or a part of another, which lives as long as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(usize);

/// A graph made ready to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphExec(usize);

/// A node of a graph, which lives as long as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct GraphNode(usize);

/// Something of the program's that graphs keep alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserObject(usize);

/// Why an executable graph cannot be updated to another graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateError {
    /// There are other nodes or edges, or they were added in another order.
    TopologyChanged,
    /// A node is of another type.
    NodeTypeChanged,
    /// A node runs another kernel, which drivers before 11.2 could not change.
    FunctionChanged,
    /// A node's parameters differ in what cannot be changed.
    ParametersChanged,
    /// A node is of a type or a kind that cannot be updated.
    NotSupported,
    /// A node runs another kernel, one that cannot take the old one's place.
    UnsupportedFunctionChange,
    /// A node's attributes differ in what cannot be changed.
    AttributesChanged,
    /// Any other reason: one of `CU_GRAPH_EXEC_UPDATE_...`.
    Other(c_uint),
}

/// What the driver tells of an update that cannot be; the executable graph is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateRefusal {
    /// Why.
    pub error: UpdateError,
    /// The node of the new graph that does not fit, if it is one.
    pub node: Option<GraphNode>,
    /// The node that it must not depend on, if that is why.
    pub from: Option<GraphNode>,
}

macro_rules! handle {
    ($name:ident, $raw:ident) => {
        impl $name {
            /// The one with this handle.
            ///
            /// # Safety
            /// The handle is a live one of the driver's, of this kind.
            pub unsafe fn from_handle(handle: usize) -> Self {
                $name(handle)
            }

            /// The driver's own pointer, for programs that call CUDA themselves.
            pub fn handle(self) -> usize {
                self.0
            }

            /// One that the driver named.
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

/// What is to be told when the last graph that holds one of its numbers is gone.
pub trait ReleaseCallback {
    /// The number is back, on a thread of the driver's, and the driver must not be called.
    fn released(number: u64);
}

extern "C" fn released<T: ReleaseCallback>(data: *mut c_void) {
    // There is nobody to tell of a panic.
    let _ = panic::catch_unwind(|| T::released(data as u64));
}

#[cfg(any(test, feature = "test-util"))]
impl GraphNode {
    /// A node that the test at hand never gives to a driver.
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
    /// Makes a graph without nodes.
    pub fn graph_create(&self) -> DriverResult<Graph> {
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and flags must be 0.
        unsafe { call!(self, cuGraphCreate(&mut graph, 0)) }?;
        Ok(Graph::from_raw(graph))
    }

    /// Destroys a graph, with its nodes. Executable graphs made of it stay.
    pub fn graph_destroy(&self, graph: Graph) -> DriverResult<()> {
        // SAFETY: the graph is live until this call, after which its owner forgets it.
        unsafe { call!(self, cuGraphDestroy(graph.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.graph_ended(graph);
        }
        Ok(())
    }

    /// Copies a graph and its child graphs.
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

    /// The node that a node of the original became in a clone.
    pub fn graph_node_in_clone(&self, original: GraphNode, clone: Graph) -> DriverResult<GraphNode> {
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; node and graph are live.
        unsafe { call!(self, cuGraphNodeFindInClone(&mut node, original.raw(), clone.raw())) }?;
        Ok(GraphNode::from_raw(node))
    }

    /// Makes a graph ready to be launched. `flags` are `CUDA_GRAPH_INSTANTIATE_FLAG_...`.
    pub fn graph_instantiate(&self, graph: Graph, flags: u64) -> DriverResult<GraphExec> {
        let mut exec: CUgraphExec = ptr::null_mut();
        // SAFETY: the output is a live local, the graph is live, and wrong flags are answered with a code.
        unsafe { call!(self, cuGraphInstantiateWithFlags(&mut exec, graph.raw(), flags)) }?;
        let exec = GraphExec::from_raw(exec);
        if let Some(observer) = observer::current() {
            observer.exec_made(self, exec, graph);
        }
        Ok(exec)
    }

    /// Brings an executable graph to its device, so that the first launch need not.
    pub fn graph_upload(&self, exec: GraphExec, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live objects of the driver's.
        unsafe { call!(self, cuGraphUpload(exec.raw(), stream.raw())) }
    }

    /// Launches an executable graph in a stream, behind its launches before.
    #[inline]
    pub fn graph_launch(&self, exec: GraphExec, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live objects of the driver's.
        unsafe { call!(self, cuGraphLaunch(exec.raw(), stream.raw())) }
    }

    /// Destroys an executable graph, which finishes its work first.
    pub fn graph_exec_destroy(&self, exec: GraphExec) -> DriverResult<()> {
        // SAFETY: the executable graph is live until this call, after which its owner forgets it.
        unsafe { call!(self, cuGraphExecDestroy(exec.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.exec_ended(exec);
        }
        Ok(())
    }

    /// The flags that an executable graph was made with.
    pub fn graph_exec_flags(&self, exec: GraphExec) -> DriverResult<u64> {
        let mut flags = 0;
        // SAFETY: the output is a live local, and the executable graph is live.
        unsafe { call!(self, cuGraphExecGetFlags(exec.raw(), &mut flags)) }?;
        Ok(flags)
    }

    /// Makes the launches of an executable graph from now on do what a graph says, if that differs in no more than may be
    /// changed. Otherwise the inner result tells what is in the way.
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

    /// Gives a kernel's node other parameters for the launches of an executable graph from now on. `node` is one of the
    /// graph that it was made of, which is not changed.
    pub fn graph_exec_set_kernel(&self, exec: GraphExec, node: GraphNode, kernel: &KernelNode) -> DriverResult<()> {
        let parameters = kernel.raw();
        // SAFETY: executable graph and node are live, and a `KernelNode` was vouched for when it was made.
        unsafe { call!(self, cuGraphExecKernelNodeSetParams_v2(exec.raw(), node.raw(), &parameters)) }?;
        exec_changed(exec);
        Ok(())
    }

    /// Switches a kernel, copy or fill on or off for the launches of an executable graph from now on. `node` is one of the
    /// graph that it was made of.
    pub fn graph_node_set_enabled(&self, exec: GraphExec, node: GraphNode, enabled: bool) -> DriverResult<()> {
        // SAFETY: executable graph and node are live.
        unsafe { call!(self, cuGraphNodeSetEnabled(exec.raw(), node.raw(), c_uint::from(enabled))) }?;
        exec_changed(exec);
        Ok(())
    }

    /// Whether a kernel, copy or fill is switched on.
    pub fn graph_node_enabled(&self, exec: GraphExec, node: GraphNode) -> DriverResult<bool> {
        let mut enabled = 0;
        // SAFETY: the output is a live local; executable graph and node are live.
        unsafe { call!(self, cuGraphNodeGetEnabled(exec.raw(), node.raw(), &mut enabled)) }?;
        Ok(enabled != 0)
    }

    /// Draws a graph into a file, for Graphviz. `flags` are `CU_GRAPH_DEBUG_DOT_FLAGS_...`.
    pub fn graph_draw(&self, graph: Graph, path: &CStr, flags: c_uint) -> DriverResult<()> {
        // SAFETY: the graph is live, and the path is NUL-terminated.
        unsafe { call!(self, cuGraphDebugDotPrint(graph.raw(), path.as_ptr(), flags)) }
    }

    /// Makes an object with `references` references of the program's. `destructor` runs when the last one is gone, on a
    /// thread of the driver's, and must not call the driver.
    pub fn user_object_create(&self, destructor: HostFunction, references: u32) -> DriverResult<UserObject> {
        let mut object: CUuserObject = ptr::null_mut();
        let (function, data) = destructor.parts();
        let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        // SAFETY: the output is a live local, and a `HostFunction` was vouched for when it was made.
        unsafe { call!(self, cuUserObjectCreate(&mut object, data, Some(function), references, flags)) }?;
        Ok(UserObject::from_raw(object))
    }

    /// Gives references of the program's back.
    pub fn user_object_release(&self, object: UserObject, references: u32) -> DriverResult<()> {
        // SAFETY: the program has these references, as its core sees to, so the object is live.
        unsafe { call!(self, cuUserObjectRelease(object.raw(), references)) }
    }

    /// Makes a graph, and what will be made of it, keep an object. With `moved`, the references are the program's, which
    /// loses them; otherwise they are new.
    pub fn graph_retain_user_object(
        &self,
        graph: Graph,
        object: UserObject,
        references: u32,
        moved: bool,
    ) -> DriverResult<()> {
        let flags = if moved { CU_GRAPH_USER_OBJECT_MOVE } else { 0 };
        // SAFETY: the graph is live, and so is the object, of which the program has a reference.
        unsafe { call!(self, cuGraphRetainUserObject(graph.raw(), object.raw(), references, flags)) }
    }

    /// Makes a graph, and what will be made of it, hold a number, which comes back when the last of them is gone.
    pub fn graph_attach_release_callback<T: ReleaseCallback>(&self, graph: Graph, number: u64) -> DriverResult<()> {
        // SAFETY: the function takes the number for what it is and never follows it, may be called from any thread, and
        // lets no panic out.
        let destructor = unsafe { HostFunction::new(released::<T>, number as *mut c_void) };
        let object = self.user_object_create(destructor, 1)?;
        self.graph_retain_user_object(graph, object, 1, true).inspect_err(|_| {
            // The error that counts is why the graph has it not.
            let _ = self.user_object_release(object, 1);
        })
    }
}
