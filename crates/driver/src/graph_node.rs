//! Adding to the driver's graphs: nodes of every type that plinth knows, and edges.

use super::{Context, Driver, DriverResult, Event, Function, Graph, GraphNode, Span, call, observer, types::*};
use std::{
    ffi::{c_uint, c_void},
    marker::PhantomData,
    ptr,
};

/// A launch of a kernel as a node has it.
#[derive(Debug, Clone, Copy)]
pub struct KernelNode<'a> {
    /// The kernel.
    pub function: Function,
    /// How many blocks, along each axis.
    pub grid: [u32; 3],
    /// How many threads a block has, along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes a block.
    pub shared_bytes: u32,
    /// Where the parameters are: private, for whoever makes one answers for them.
    parameters: *const *const c_void,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> KernelNode<'a> {
    /// A launch of one block of one thread, to be changed.
    ///
    /// # Safety
    /// Each of `parameters` leads to a value of the type that the kernel takes in that place; adding the node copies it.
    /// What the kernel does with the addresses among them is right, whenever it is launched.
    pub unsafe fn new(function: Function, parameters: &'a [*const c_void]) -> Self {
        let parameters = parameters.as_ptr();
        KernelNode { function, grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters, lifetime: PhantomData }
    }

    /// A launch whose parameters C lists.
    ///
    /// # Safety
    /// As [`KernelNode::new`], of a list of as many addresses as the kernel takes parameters, which stays for as long as
    /// this does.
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
            // The driver reads what they lead to, and copies it.
            kernelParams: self.parameters.cast_mut().cast(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }
    }
}

/// A fill of rows with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillNode {
    /// The address of the first row: private, for whoever makes one answers for the memory.
    address: u64,
    /// The value of each element.
    pub value: u32,
    /// An element's size: 1, 2 or 4 bytes.
    pub element_size: u32,
    /// How many elements a row has.
    pub width: usize,
    /// How many rows there are.
    pub rows: usize,
    /// From the beginning of a row to that of the next, in bytes; of no use to one row.
    pub pitch: usize,
}

impl FillNode {
    /// A fill of all of `memory`, whose length is a multiple of the element's size.
    pub fn new(memory: Span, value: u32, element_size: u32) -> FillNode {
        let width = memory.bytes() / (element_size.max(1) as usize);
        FillNode { address: memory.address(), value, element_size, width, rows: 1, pitch: 0 }
    }

    /// A fill of rows that lie in `memory`.
    pub fn rows(memory: Span, value: u32, element_size: u32, width: usize, rows: usize, pitch: usize) -> FillNode {
        FillNode { address: memory.address(), value, element_size, width, rows, pitch }
    }

    /// A fill that the driver told of.
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

    /// The address of the first row.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// A function of the program's to be called by a graph, at each launch, with its argument.
#[derive(Debug, Clone, Copy)]
pub struct NodeFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

impl NodeFunction {
    /// A function for nodes.
    ///
    /// # Safety
    /// `function` may be called with `data`, from any thread, at every launch of the graphs that get it and of copies of
    /// theirs, and does not unwind.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        NodeFunction { function, data }
    }
}

/// What a conditional node asks when a graph gets to it: a value that kernels set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conditional(CUgraphConditionalHandle);

impl Conditional {
    /// The condition with this handle.
    ///
    /// # Safety
    /// The handle is a live one of the driver's.
    pub unsafe fn from_handle(handle: u64) -> Self {
        Conditional(handle)
    }

    /// What a kernel names it by: the first argument of `cudaGraphSetConditional`, or, on the host device, of
    /// [`set_conditional`](super::host::graph::set_conditional).
    pub fn handle(self) -> u64 {
        self.0
    }
}

/// The kinds of conditional nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalKind {
    /// The first body is carried out if the value is not zero, the second one, if there are two, if it is.
    If,
    /// The body is carried out again and again while the value is not zero.
    While,
    /// The body whose number the value is is carried out, if there is one.
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

/// A list of nodes as the driver takes it: a node is its handle, and no more.
pub(super) fn raw_nodes(nodes: &[GraphNode]) -> *const CUgraphNode {
    nodes.as_ptr().cast()
}

fn graph_changed(graph: Graph) {
    if let Some(observer) = observer::current() {
        observer.graph_changed(graph);
    }
}

fn event_node_added(graph: Graph, node: GraphNode, event: Event) {
    if let Some(observer) = observer::current() {
        observer.graph_changed(graph);
        observer.event_node_added(graph, node, event);
    }
}

impl Driver {
    /// Adds a kernel to a graph, behind `dependencies`.
    pub fn graph_add_kernel(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        kernel: &KernelNode,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let (mut node, parameters) = (ptr::null_mut(), kernel.raw());
        // SAFETY: the output is a live local, graph and nodes are live, and a `KernelNode` was vouched for when it was
        // made.
        unsafe { call!(self, cuGraphAddKernelNode_v2(&mut node, graph.raw(), before, count, &parameters)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a copy of as many bytes as `destination` has, between whatever memories the two addresses lie in.
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
        // One row needs no pitch, which could not be as large as a copy can.
        let parameters = MemcpyNodeParams {
            source_device: source.address(),
            destination_device: destination.address(),
            width: destination.bytes(),
            ..MemcpyNodeParams::ROW
        };
        // SAFETY: the output is a live local, graph, nodes and context are live, and the caller vouched for both spans.
        unsafe {
            call!(self, cuGraphAddMemcpyNode(&mut node, graph.raw(), before, count, &parameters, context.raw()))
        }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a fill.
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
        // SAFETY: the output is a live local, graph, nodes and context are live, and whoever made the fill vouched for the
        // memory.
        unsafe {
            call!(self, cuGraphAddMemsetNode(&mut node, graph.raw(), before, count, &parameters, context.raw()))
        }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a call of a function of the program's.
    pub fn graph_add_host(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        function: NodeFunction,
    ) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        let parameters = CUDA_HOST_NODE_PARAMS { fn_: Some(function.function), userData: function.data };
        // SAFETY: the output is a live local, graph and nodes are live, and a `NodeFunction` was vouched for when it was
        // made.
        unsafe { call!(self, cuGraphAddHostNode(&mut node, graph.raw(), before, count, &parameters)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a copy of another graph as one node.
    pub fn graph_add_child(&self, graph: Graph, dependencies: &[GraphNode], child: Graph) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graphs and nodes are live.
        unsafe { call!(self, cuGraphAddChildGraphNode(&mut node, graph.raw(), before, count, child.raw())) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a node that does nothing but wait for others.
    pub fn graph_add_empty(&self, graph: Graph, dependencies: &[GraphNode]) -> DriverResult<GraphNode> {
        let (before, count) = (raw_nodes(dependencies), dependencies.len());
        let mut node: CUgraphNode = ptr::null_mut();
        // SAFETY: the output is a live local; graph and nodes are live.
        unsafe { call!(self, cuGraphAddEmptyNode(&mut node, graph.raw(), before, count)) }?;
        graph_changed(graph);
        Ok(GraphNode::from_raw(node))
    }

    /// Adds a recording of an event.
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
        let node = GraphNode::from_raw(node);
        event_node_added(graph, node, event);
        Ok(node)
    }

    /// Adds a wait for what an event recorded last.
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
        let node = GraphNode::from_raw(node);
        event_node_added(graph, node, event);
        Ok(node)
    }

    /// Makes the second node of each pair wait for the first.
    pub fn graph_add_dependencies(&self, graph: Graph, edges: &[(GraphNode, GraphNode)]) -> DriverResult<()> {
        let (from, to): (Vec<GraphNode>, Vec<GraphNode>) = edges.iter().copied().unzip();
        // SAFETY: graph and nodes are live, and both lists are as long as is said.
        unsafe { call!(self, cuGraphAddDependencies(graph.raw(), raw_nodes(&from), raw_nodes(&to), edges.len())) }?;
        graph_changed(graph);
        Ok(())
    }

    /// Makes a condition for a conditional node of a graph or of a part of it. With a default, each launch of the graph
    /// begins with that; otherwise with what the last one left.
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

    /// Adds a conditional node with `size` bodies, graphs to be filled, which live as long as the node. The context is the
    /// condition's.
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
        // SAFETY: the outputs are live locals, graph, nodes and context are live, edges need no data, and the parameters
        // are of the size that they have for every type, with zeros in what this type does not use.
        unsafe { call!(self, cuGraphAddNode_v2(&mut node, graph.raw(), before, ptr::null(), count, &mut parameters)) }?;
        // SAFETY: the driver put the address of an array there that has a graph for each body and lives with the node.
        let bodies = (0..size as usize).map(|index| Graph::from_raw(unsafe { parameters.bodies.add(index).read() }));
        graph_changed(graph);
        Ok((GraphNode::from_raw(node), bodies.collect()))
    }
}
