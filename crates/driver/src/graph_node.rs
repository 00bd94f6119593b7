//! Adding nodes and edges to graphs: every node type that plinth supports.

use super::{Context, Driver, DriverResult, Event, Function, Graph, GraphNode, Span, call, observer, types::*};
use std::{
    ffi::{c_uint, c_void},
    marker::PhantomData,
    ptr,
};

/// The parameters of a kernel node.
#[derive(Debug, Clone, Copy)]
pub struct KernelNode<'a> {
    /// The kernel.
    pub function: Function,
    /// The number of blocks along each axis.
    pub grid: [u32; 3],
    /// The number of threads per block along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// The kernel parameters. Private, because the constructors' contracts guarantee them.
    parameters: *const *const c_void,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> KernelNode<'a> {
    /// Creates a launch of one block of one thread; the public fields change it.
    ///
    /// # Safety
    /// Each of `parameters` points to a value of the type that the kernel takes at that position; adding the node
    /// copies it. The kernel's accesses through the addresses among them are valid at every launch.
    pub unsafe fn new(function: Function, parameters: &'a [*const c_void]) -> Self {
        let parameters = parameters.as_ptr();
        KernelNode { function, grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters, lifetime: PhantomData }
    }

    /// Creates a launch from a C array of parameter pointers.
    ///
    /// # Safety
    /// The same as for [`KernelNode::new`]. In addition, the array has one address per kernel parameter and outlives
    /// this value.
    pub unsafe fn of_list(
        function: Function,
        parameters: *const *const c_void,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> Self {
        KernelNode { function, grid, block, shared_bytes, parameters, lifetime: PhantomData }
    }

    pub(super) fn raw(&self) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function.raw(),
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            // The driver copies the values that these pointers refer to.
            kernelParams: self.parameters.cast_mut().cast(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }
    }
}

/// A fill of rows of memory with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillNode {
    /// The address of the first row. Private, because the constructors take a [`Span`], which guarantees the memory.
    address: u64,
    /// The value of each element.
    pub value: u32,
    /// The size of an element: 1, 2 or 4 bytes.
    pub element_size: u32,
    /// The number of elements per row.
    pub width: usize,
    /// The number of rows.
    pub rows: usize,
    /// The distance between the beginnings of two rows, in bytes; ignored for one row.
    pub pitch: usize,
}

impl FillNode {
    /// Creates a fill of all of `memory`, whose length is a multiple of the element size.
    pub fn new(memory: Span, value: u32, element_size: u32) -> FillNode {
        let width = memory.bytes() / (element_size.max(1) as usize);
        FillNode { address: memory.address(), value, element_size, width, rows: 1, pitch: 0 }
    }

    /// Creates a fill of rows within `memory`.
    pub fn rows(memory: Span, value: u32, element_size: u32, width: usize, rows: usize, pitch: usize) -> FillNode {
        FillNode { address: memory.address(), value, element_size, width, rows, pitch }
    }

    /// Converts a fill that the driver returned.
    pub(super) fn from_raw(raw: &CUDA_MEMSET_NODE_PARAMS) -> FillNode {
        FillNode {
            address: raw.dst,
            value: raw.value,
            element_size: raw.elementSize,
            width: raw.width,
            rows: raw.height,
            pitch: raw.pitch,
        }
    }

    /// Returns the address of the first row.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// A host function of the program, with its argument, that a graph calls at each launch.
#[derive(Debug, Clone, Copy)]
pub struct NodeFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

impl NodeFunction {
    /// Creates a host function for nodes.
    ///
    /// # Safety
    /// `function` may be called with `data`, from any thread, at every launch of the graphs that contain it and of
    /// their copies, and does not unwind.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        NodeFunction { function, data }
    }
}

/// The condition of a conditional node: a value that kernels set and the node reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conditional(CUgraphConditionalHandle);

impl Conditional {
    /// Wraps a condition handle.
    ///
    /// # Safety
    /// The handle is a live one of the driver.
    pub unsafe fn from_handle(handle: u64) -> Self {
        Conditional(handle)
    }

    /// Returns the value by which kernels identify the condition: the first argument of `cudaGraphSetConditional` or,
    /// on the host device, of the host crate's `set_conditional`.
    pub fn handle(self) -> u64 {
        self.0
    }
}

/// The kind of a conditional node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalKind {
    /// Runs the first body if the value is not zero; runs the second one, if there is one, if it is zero.
    If,
    /// Runs the body repeatedly while the value is not zero.
    While,
    /// Runs the body whose index is the value, if there is one.
    Switch,
}

impl ConditionalKind {
    fn raw(self) -> c_uint {
        match self {
            ConditionalKind::If => CU_GRAPH_COND_TYPE_IF,
            ConditionalKind::While => CU_GRAPH_COND_TYPE_WHILE,
            ConditionalKind::Switch => CU_GRAPH_COND_TYPE_SWITCH,
        }
    }
}

/// Converts a list of nodes to the driver's form: a node is a transparent wrapper of its handle.
pub(super) fn raw_nodes(nodes: &[GraphNode]) -> *const CUgraphNode {
    nodes.as_ptr().cast()
}

fn graph_changed(graph: Graph) {
    if let Some(observer) = observer::current() {
        observer.graph_changed(graph);
    }
}

impl Driver {
    /// Adds a kernel node that depends on `dependencies`.
    pub fn graph_add_kernel(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        kernel: &KernelNode,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let (mut node, parameters) = (ptr::null_mut(), kernel.raw());
        // SAFETY: the output is a live local, graph and nodes are live, and the contract of `KernelNode::new` covers
        // the parameters.
        unsafe { call!(self, cuGraphAddKernelNode_v2(&mut node, graph.raw(), before, count, &parameters)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a copy of `destination.bytes()` bytes. Each of the two addresses may be in host or device memory.
    pub fn graph_add_copy(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        destination: Span,
        source: Span,
        context: Context,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // A single row needs no pitch; the pitch limit is lower than the size limit of a copy.
        let parameters = MemcpyNodeParams {
            source_device: source.address(),
            destination_device: destination.address(),
            width: destination.bytes(),
            ..MemcpyNodeParams::ROW
        };
        // SAFETY: the output is a live local, graph, nodes and context are live, and the constructors of both spans
        // guarantee their memory.
        unsafe {
            call!(self, cuGraphAddMemcpyNode(&mut node, graph.raw(), before, count, &parameters, context.raw()))
        }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a fill node.
    pub fn graph_add_fill(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        fill: &FillNode,
        context: Context,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        let parameters = CUDA_MEMSET_NODE_PARAMS {
            dst: fill.address,
            pitch: fill.pitch,
            value: fill.value,
            elementSize: fill.element_size,
            width: fill.width,
            height: fill.rows,
        };
        // SAFETY: the output is a live local, graph, nodes and context are live, and the constructor of the fill's span
        // guarantees its memory.
        unsafe {
            call!(self, cuGraphAddMemsetNode(&mut node, graph.raw(), before, count, &parameters, context.raw()))
        }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a node that calls a host function of the program.
    pub fn graph_add_host(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        function: NodeFunction,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        let parameters = CUDA_HOST_NODE_PARAMS { fn_: Some(function.function), userData: function.data };
        // SAFETY: the output is a live local, graph and nodes are live, and the contract of `NodeFunction::new` covers
        // the function.
        unsafe { call!(self, cuGraphAddHostNode(&mut node, graph.raw(), before, count, &parameters)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a clone of another graph as one node.
    pub fn graph_add_child(&self, graph: Graph, dependencies: &[GraphNode], child: Graph) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graphs and nodes are live.
        unsafe { call!(self, cuGraphAddChildGraphNode(&mut node, graph.raw(), before, count, child.raw())) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds an empty node, which only waits for its dependencies.
    pub fn graph_add_empty(&self, graph: Graph, dependencies: &[GraphNode]) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graph and nodes are live.
        unsafe { call!(self, cuGraphAddEmptyNode(&mut node, graph.raw(), before, count)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a node that records an event.
    pub fn graph_add_event_record(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        event: Event,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graph, nodes and event are live.
        unsafe { call!(self, cuGraphAddEventRecordNode(&mut node, graph.raw(), before, count, event.raw())) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a node that waits for an event's last recording.
    pub fn graph_add_event_wait(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        event: Event,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graph, nodes and event are live.
        unsafe { call!(self, cuGraphAddEventWaitNode(&mut node, graph.raw(), before, count, event.raw())) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Makes the second node of each pair wait for the first.
    pub fn graph_add_dependencies(&self, graph: Graph, edges: &[(GraphNode, GraphNode)]) -> DriverResult<()> {
        let (from, to): (Vec<GraphNode>, Vec<GraphNode>) = edges.iter().copied().unzip();
        // SAFETY: graph and nodes are live, and both lists have `edges.len()` nodes.
        unsafe { call!(self, cuGraphAddDependencies(graph.raw(), raw_nodes(&from), raw_nodes(&to), edges.len())) }?;
        graph_changed(graph);
        Ok(())
    }

    /// Creates a condition for a conditional node of a graph or of one of its children. With a default, each launch of
    /// the graph begins with that value; otherwise it begins with the value that the previous launch left.
    pub fn graph_create_conditional(
        &self,
        graph: Graph,
        context: Context,
        default: Option<u32>,
    ) -> DriverResult<Conditional> {
        let mut handle = 0;
        let flags = if default.is_some() { CU_GRAPH_COND_ASSIGN_DEFAULT } else { 0 };
        let value = default.unwrap_or(0);
        // SAFETY: the output is a live local; graph and context are live.
        unsafe { call!(self, cuGraphConditionalHandleCreate(&mut handle, graph.raw(), context.raw(), value, flags)) }?;
        Ok(Conditional(handle))
    }

    /// Adds a conditional node with `size` bodies. The bodies are empty graphs to be filled, which live as long as the
    /// node. The context is that of the condition.
    pub fn graph_add_conditional(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        condition: Conditional,
        kind: ConditionalKind,
        size: u32,
        context: Context,
    ) -> DriverResult<(GraphNode, Vec<Graph>)> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        let mut parameters = ConditionalNodeParams {
            node_type: CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            handle: condition.0,
            kind: kind.raw(),
            size,
            bodies: ptr::null_mut(),
            context: context.raw(),
            unused: [0; 25],
            reserved2: 0,
        };
        // SAFETY: the outputs are live locals, graph, nodes and context are live, edge data may be null, and the
        // parameters have the size of the union of all types, with zeros in the fields that this type does not use.
        unsafe { call!(self, cuGraphAddNode_v2(&mut node, graph.raw(), before, ptr::null(), count, &mut parameters)) }?;
        // SAFETY: the driver stored the address of an array that contains one graph per body and lives as long as the
        // node.
        let bodies = (0..size as usize).map(|index| Graph::from_raw(unsafe { parameters.bodies.add(index).read() }));
        graph_changed(graph);
        Ok((GraphNode::from_raw(node), bodies.collect()))
    }
}
