//! Inspection of graphs: their nodes, and the parameters of each node.

use super::{Driver, DriverResult, Event, Failure, Function, Graph, GraphNode, call, graph_node::FillNode, types::*};
use std::{
    collections::HashSet,
    ffi::{CStr, c_uint, c_void},
    mem::MaybeUninit,
    ptr,
};

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeType {
    /// A kernel.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
    /// A host function.
    Host,
    /// A child graph.
    Graph,
    /// An empty node, which only orders others.
    Empty,
    /// A wait for an event.
    WaitEvent,
    /// A recording of an event.
    EventRecord,
    /// A conditional node.
    Conditional,
    /// Another type: one of `CU_GRAPH_NODE_TYPE_...`.
    Other(c_uint),
}

/// The parameters of a kernel node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelView {
    /// The kernel; `None` if the driver returns no function, as for kernels launched through another kind of handle.
    pub function: Option<Function>,
    /// The number of blocks along each axis.
    pub grid: [u32; 3],
    /// The number of threads per block along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// The address of an array of the addresses of the parameters; 0 if they were passed in another form. Both live as
    /// long as the node.
    pub parameters: usize,
}

/// The parameters of a copy node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyView {
    /// The destination address; 0 for an array.
    pub destination: u64,
    /// The source address; 0 for an array.
    pub source: u64,
    /// The size of a row in bytes.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of layers of rows.
    pub depth: usize,
}

/// The parameters of a host function node.
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

/// Lists nodes with a driver call that returns only the count if the output is null.
fn list(query: impl Fn(*mut CUgraphNode, &mut usize) -> Result<(), Failure>) -> DriverResult<Vec<GraphNode>> {
    let mut count = 0;
    query(ptr::null_mut(), &mut count)?;
    let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
    if count > 0 {
        query(nodes.as_mut_ptr(), &mut count)?;
    }
    nodes.truncate(count);
    Ok(nodes.into_iter().map(GraphNode::from_raw).collect())
}

/// Returns the address of one end of a copy, from the field that its memory type selects.
fn endpoint_address(kind: c_uint, host: *const c_void, device: u64, offset: usize) -> u64 {
    match kind {
        CU_MEMORYTYPE_HOST => (host as u64).wrapping_add(offset as u64),
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device.wrapping_add(offset as u64),
        _ => 0,
    }
}

impl Driver {
    /// Returns the nodes of a graph, without those of child graphs.
    pub fn graph_nodes(&self, graph: Graph) -> DriverResult<Vec<GraphNode>> {
        // SAFETY: the graph is live, and the output has room for the stated number of nodes.
        list(|nodes, count| unsafe { call!(self, cuGraphGetNodes(graph.raw(), nodes, count)) })
    }

    /// Returns the number of nodes of a graph, without those of child graphs.
    pub fn graph_node_count(&self, graph: Graph) -> DriverResult<usize> {
        let mut count = 0;
        // SAFETY: the graph is live; with a null output the call writes only the count.
        unsafe { call!(self, cuGraphGetNodes(graph.raw(), ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Returns the nodes that no other node depends on.
    pub fn graph_leaves(&self, graph: Graph) -> DriverResult<Vec<GraphNode>> {
        let mut leaves = self.graph_nodes(graph)?;
        let awaited: HashSet<GraphNode> = self.graph_edges(graph)?.into_iter().map(|(from, _)| from).collect();
        leaves.retain(|node| !awaited.contains(node));
        Ok(leaves)
    }

    /// Returns the edges of a graph as pairs; the second node depends on the first.
    pub fn graph_edges(&self, graph: Graph) -> DriverResult<Vec<(GraphNode, GraphNode)>> {
        let mut count = 0;
        // SAFETY: the graph is live; with null outputs the call writes only the count.
        unsafe { call!(self, cuGraphGetEdges(graph.raw(), ptr::null_mut(), ptr::null_mut(), &mut count)) }?;
        let mut from: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        let mut to = from.clone();
        if count > 0 {
            // SAFETY: the graph is live, and both outputs have room for `count` nodes.
            unsafe { call!(self, cuGraphGetEdges(graph.raw(), from.as_mut_ptr(), to.as_mut_ptr(), &mut count)) }?;
        }
        let pairs = from.into_iter().zip(to).take(count);
        Ok(pairs.map(|(from, to)| (GraphNode::from_raw(from), GraphNode::from_raw(to))).collect())
    }

    /// Returns the dependencies of a node.
    pub fn graph_node_dependencies(&self, node: GraphNode) -> DriverResult<Vec<GraphNode>> {
        // SAFETY: the node is live, and the output has room for the stated number of nodes.
        list(|nodes, count| unsafe { call!(self, cuGraphNodeGetDependencies(node.raw(), nodes, count)) })
    }

    /// Returns the type of a node.
    pub fn graph_node_type(&self, node: GraphNode) -> DriverResult<NodeType> {
        let mut kind = 0;
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphNodeGetType(node.raw(), &mut kind)) }?;
        Ok(NodeType::new(kind))
    }

    /// Returns the parameters of a kernel node.
    pub fn graph_kernel(&self, node: GraphNode) -> DriverResult<KernelView> {
        let mut output = MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphKernelNodeGetParams_v2(node.raw(), output.as_mut_ptr())) }?;
        // SAFETY: the struct consists of integers and pointers, for which zeros are valid.
        let parameters = unsafe { output.assume_init() };
        Ok(KernelView {
            function: (!parameters.func.is_null()).then(|| Function::from_raw(parameters.func)),
            grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
            block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
            shared_bytes: parameters.sharedMemBytes,
            parameters: parameters.kernelParams as usize,
        })
    }

    /// Returns the name of a kernel in its module.
    pub fn function_name(&self, function: Function) -> DriverResult<String> {
        let mut name = ptr::null();
        // SAFETY: the output is a live local, and the function is live.
        unsafe { call!(self, cuFuncGetName(&mut name, function.raw())) }?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: the driver returned a NUL-terminated string that stays valid while the kernel's module is loaded.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Returns the parameters of a copy node.
    pub fn graph_copy(&self, node: GraphNode) -> DriverResult<CopyView> {
        let mut parameters = MemcpyNodeParams::ROW;
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphMemcpyNodeGetParams(node.raw(), &mut parameters)) }?;
        let to = endpoint_address(
            parameters.destination_type,
            parameters.destination_host,
            parameters.destination_device,
            parameters.destination_x,
        );
        let from = endpoint_address(
            parameters.source_type,
            parameters.source_host,
            parameters.source_device,
            parameters.source_x,
        );
        Ok(CopyView {
            destination: to,
            source: from,
            width: parameters.width,
            height: parameters.height,
            depth: parameters.depth,
        })
    }

    /// Returns the parameters of a fill node.
    pub fn graph_fill(&self, node: GraphNode) -> DriverResult<FillNode> {
        let mut parameters =
            CUDA_MEMSET_NODE_PARAMS { dst: 0, pitch: 0, value: 0, elementSize: 0, width: 0, height: 0 };
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphMemsetNodeGetParams(node.raw(), &mut parameters)) }?;
        Ok(FillNode::from_raw(&parameters))
    }

    /// Returns the parameters of a host function node.
    pub fn graph_host(&self, node: GraphNode) -> DriverResult<HostView> {
        let mut parameters = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphHostNodeGetParams(node.raw(), &mut parameters)) }?;
        let function = parameters.fn_.map_or(0, |function| function as usize);
        Ok(HostView { function, data: parameters.userData as usize })
    }

    /// Returns the child graph of a node of type [`NodeType::Graph`]. It lives as long as the node.
    pub fn graph_child(&self, node: GraphNode) -> DriverResult<Graph> {
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphChildGraphNodeGetGraph(node.raw(), &mut graph)) }?;
        Ok(Graph::from_raw(graph))
    }

    /// Returns the event that a node of type [`NodeType::EventRecord`] records.
    pub fn graph_recorded_event(&self, node: GraphNode) -> DriverResult<Event> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphEventRecordNodeGetEvent(node.raw(), &mut event)) }?;
        Ok(Event::from_raw(event))
    }

    /// Returns the event that a node of type [`NodeType::WaitEvent`] waits for.
    pub fn graph_awaited_event(&self, node: GraphNode) -> DriverResult<Event> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the output is a live local, and the node is live.
        unsafe { call!(self, cuGraphEventWaitNodeGetEvent(node.raw(), &mut event)) }?;
        Ok(Event::from_raw(event))
    }
}
