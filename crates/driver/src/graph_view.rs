//! Looking at the driver's graphs: what nodes there are, and what each of them does.

use super::{Driver, DriverResult, Failure, Function, Graph, GraphNode, call, graph_node::FillNode, types::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    mem::MaybeUninit,
    ptr,
};

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeType {
    /// A kernel.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
    /// A call of a function of the program's.
    Host,
    /// A graph of its own.
    Graph,
    /// Nothing but a point to wait for.
    Empty,
    /// A wait for an event.
    WaitEvent,
    /// A recording of an event.
    EventRecord,
    /// Graphs that are carried out as a condition says.
    Conditional,
    /// Another of `CU_GRAPH_NODE_TYPE_...`.
    Other(c_uint),
}

/// What the driver tells of a kernel's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelView {
    /// The kernel, if the driver names it so: it may have been launched by another kind of handle.
    pub function: Option<Function>,
    /// How many blocks, along each axis.
    pub grid: [u32; 3],
    /// How many threads a block has, along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes a block.
    pub shared_bytes: u32,
    /// The address of an array with the address of each parameter; 0 if they were given otherwise. Both live as long as
    /// the node.
    pub parameters: usize,
}

/// What the driver tells of a copy's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyView {
    /// The first byte written; 0 for an array.
    pub destination: u64,
    /// The first byte read; 0 for an array.
    pub source: u64,
    /// The bytes of a row.
    pub width: usize,
    /// How many rows there are.
    pub height: usize,
    /// How many layers of rows there are.
    pub depth: usize,
}

/// What the driver tells of a host function's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostView {
    /// The function's address.
    pub function: usize,
    /// Its argument.
    pub data: usize,
}

impl NodeType {
    fn new(raw: c_uint) -> NodeType {
        match raw {
            CU_GRAPH_NODE_TYPE_KERNEL => NodeType::Kernel,
            CU_GRAPH_NODE_TYPE_MEMCPY => NodeType::Memcpy,
            CU_GRAPH_NODE_TYPE_MEMSET => NodeType::Memset,
            CU_GRAPH_NODE_TYPE_HOST => NodeType::Host,
            CU_GRAPH_NODE_TYPE_GRAPH => NodeType::Graph,
            CU_GRAPH_NODE_TYPE_EMPTY => NodeType::Empty,
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => NodeType::WaitEvent,
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => NodeType::EventRecord,
            CU_GRAPH_NODE_TYPE_CONDITIONAL => NodeType::Conditional,
            other => NodeType::Other(other),
        }
    }
}

/// Lists nodes by a call that tells the count when there is no place for them.
fn list(ask: impl Fn(*mut CUgraphNode, &mut usize) -> Result<(), Failure>) -> DriverResult<Vec<GraphNode>> {
    let mut count = 0;
    ask(ptr::null_mut(), &mut count)?;
    let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
    if count > 0 {
        ask(nodes.as_mut_ptr(), &mut count)?;
    }
    nodes.truncate(count);
    Ok(nodes.into_iter().map(GraphNode::from_raw).collect())
}

/// The end of a copy: the pointer that its type names.
fn end(kind: c_uint, host: *const c_void, device: u64, offset: usize) -> u64 {
    match kind {
        CU_MEMORYTYPE_HOST => (host as u64).wrapping_add(offset as u64),
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device.wrapping_add(offset as u64),
        _ => 0,
    }
}

impl Driver {
    /// A graph's nodes, without those of the graphs inside it.
    pub fn graph_nodes(&self, graph: Graph) -> DriverResult<Vec<GraphNode>> {
        // SAFETY: the graph is live, and there is room for as many nodes as is said.
        list(|nodes, count| unsafe { call!(self, cuGraphGetNodes(graph.raw(), nodes, count)) })
    }

    /// How many nodes a graph has, without those of the graphs inside it.
    pub fn graph_node_count(&self, graph: Graph) -> DriverResult<usize> {
        let mut count = 0;
        // SAFETY: the graph is live; without a place for nodes, only their count is told.
        unsafe { call!(self, cuGraphGetNodes(graph.raw(), ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// A graph's edges: each second node waits for the first.
    pub fn graph_edges(&self, graph: Graph) -> DriverResult<Vec<(GraphNode, GraphNode)>> {
        let mut count = 0;
        // SAFETY: the graph is live; without a place for them, only the count is told.
        unsafe { call!(self, cuGraphGetEdges(graph.raw(), ptr::null_mut(), ptr::null_mut(), &mut count)) }?;
        let mut from: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        let mut to = from.clone();
        if count > 0 {
            // SAFETY: the graph is live, and there is room for `count` nodes twice.
            unsafe { call!(self, cuGraphGetEdges(graph.raw(), from.as_mut_ptr(), to.as_mut_ptr(), &mut count)) }?;
        }
        let pairs = from.into_iter().zip(to).take(count);
        Ok(pairs.map(|(from, to)| (GraphNode::from_raw(from), GraphNode::from_raw(to))).collect())
    }

    /// The nodes that a node waits for.
    pub fn graph_node_dependencies(&self, node: GraphNode) -> DriverResult<Vec<GraphNode>> {
        // SAFETY: the node is live, and there is room for as many nodes as is said.
        list(|nodes, count| unsafe { call!(self, cuGraphNodeGetDependencies(node.raw(), nodes, count)) })
    }

    /// What a node is.
    pub fn graph_node_type(&self, node: GraphNode) -> DriverResult<NodeType> {
        let mut kind = 0;
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphNodeGetType(node.raw(), &mut kind)) }?;
        Ok(NodeType::new(kind))
    }

    /// What a kernel's node launches.
    pub fn graph_kernel(&self, node: GraphNode) -> DriverResult<KernelView> {
        let mut place = MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphKernelNodeGetParams_v2(node.raw(), place.as_mut_ptr())) }?;
        // SAFETY: the structure is made of integers and pointers, of which zeros are values, too.
        let found = unsafe { place.assume_init() };
        Ok(KernelView {
            function: (!found.func.is_null()).then(|| Function::from_raw(found.func)),
            grid: [found.gridDimX, found.gridDimY, found.gridDimZ],
            block: [found.blockDimX, found.blockDimY, found.blockDimZ],
            shared_bytes: found.sharedMemBytes,
            parameters: found.kernelParams as usize,
        })
    }

    /// A kernel's name, as its module has it.
    pub fn function_name(&self, function: Function) -> DriverResult<String> {
        let mut name = ptr::null();
        // SAFETY: the output is a live local, and the function is live.
        unsafe { call!(self, cuFuncGetName(&mut name, function.raw())) }?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: the driver gave a text that ends in a NUL and stays while the kernel's module is loaded.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// What a copy's node copies.
    pub fn graph_copy(&self, node: GraphNode) -> DriverResult<CopyView> {
        let mut found = MemcpyNodeParams::ROW;
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphMemcpyNodeGetParams(node.raw(), &mut found)) }?;
        let to = end(found.destination_type, found.destination_host, found.destination_device, found.destination_x);
        let from = end(found.source_type, found.source_host, found.source_device, found.source_x);
        Ok(CopyView { destination: to, source: from, width: found.width, height: found.height, depth: found.depth })
    }

    /// What a fill's node fills.
    pub fn graph_fill(&self, node: GraphNode) -> DriverResult<FillNode> {
        let mut found = CUDA_MEMSET_NODE_PARAMS { dst: 0, pitch: 0, value: 0, elementSize: 0, width: 0, height: 0 };
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphMemsetNodeGetParams(node.raw(), &mut found)) }?;
        Ok(FillNode::from_raw(&found))
    }

    /// What a host function's node calls.
    pub fn graph_host(&self, node: GraphNode) -> DriverResult<HostView> {
        let mut found = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphHostNodeGetParams(node.raw(), &mut found)) }?;
        let function = found.fn_.map_or(0, |function| function as usize);
        Ok(HostView { function, data: found.userData as usize })
    }

    /// The graph inside a node of the type [`NodeType::Graph`], which lives as long as the node.
    pub fn graph_child(&self, node: GraphNode) -> DriverResult<Graph> {
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphChildGraphNodeGetGraph(node.raw(), &mut graph)) }?;
        Ok(Graph::from_raw(graph))
    }
}
