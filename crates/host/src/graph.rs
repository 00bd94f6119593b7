//! Graphs, created by captures or built explicitly by programs.
//!
//! A graph's nodes are numbered in the order of their addition. Edges may go in either direction; a cycle is detected
//! when the graph is instantiated. The child graph of a node, and each body of a conditional node, is a graph with a
//! parent. The program may inspect it and add to it, and it is destroyed with its parent.
//!
//! [`plan`] lays a graph out in branches, [`exec`] launches it, [`update`] updates the executable graph. [`condition`]
//! implements the conditions of conditional nodes, [`object`] the user objects that graphs retain, [`dot`] the output
//! of a graph in Graphviz format.

pub mod condition;
pub mod dot;
pub mod exec;
pub mod object;
pub mod plan;
pub mod update;

pub use condition::set_conditional;

use self::condition::Condition;
use super::{
    engine::Engine,
    ids::{self, Id, IdMap},
    state,
    stream::Op,
    work::{HostCall, Work},
};
use crate::driver::{codes, table::Code, types::*};
use std::{collections::HashSet, sync::Arc};

/// The operation of a node.
#[derive(Clone)]
pub enum Action {
    Work(Work),
    Host(HostCall),
    Record(Id),
    Wait(Id),
    Empty,
    /// Allocates memory of the graph, at this address.
    Allocate(u64),
    /// Frees memory of a graph.
    Free(u64),
    /// A child graph, which this node owns.
    Child(Id),
    Conditional(ConditionalNode),
}

/// A conditional node: its condition selects at most one of its bodies to run.
#[derive(Clone)]
pub struct ConditionalNode {
    pub condition: Arc<Condition>,
    pub kind: u32,
    /// The bodies' graphs. The program receives a pointer to this array.
    pub bodies: Arc<[Id]>,
}

/// A node. `dependencies` are indices of nodes in the same graph.
#[derive(Clone)]
pub struct Node {
    pub id: Id,
    pub action: Action,
    pub dependencies: Vec<usize>,
    pub device: usize,
    pub priority: i32,
    /// The addresses of a kernel's parameters as returned to the program, which may read them while the node lives.
    pub reported: Vec<usize>,
}

#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// Whether it is being captured; then it can be neither destroyed nor instantiated.
    pub capturing: bool,
    /// The graph that contains it, if it is the child graph or a body of a node.
    pub parent: Option<Id>,
    /// For a clone, the indices of its nodes by the handles of the original's nodes.
    pub originals: IdMap<usize>,
    /// The conditions that were created for this graph.
    pub conditions: Vec<Arc<Condition>>,
    /// The user objects that it retains, and the number of references to each.
    pub objects: Vec<(Id, u32)>,
}

impl Action {
    pub fn node_type(&self) -> u32 {
        match self {
            Action::Work(Work::Copy(_) | Work::Staged { .. }) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Action::Work(Work::Fill(_)) => CU_GRAPH_NODE_TYPE_MEMSET,
            Action::Work(Work::Kernel(_)) => CU_GRAPH_NODE_TYPE_KERNEL,
            Action::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
            Action::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Action::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Action::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Action::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Action::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
            Action::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Action::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// Returns the graphs inside a node.
    pub fn inner_graphs(&self) -> &[Id] {
        match self {
            Action::Child(graph) => std::slice::from_ref(graph),
            Action::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }
}

impl Graph {
    /// Returns the edges as (from, to) node indices, ordered by `to`.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.nodes.iter().enumerate().flat_map(|(to, node)| node.dependencies.iter().map(move |from| (*from, to)))
    }

    /// Returns whether a node allocates or frees memory.
    pub fn has_memory_nodes(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.action, Action::Allocate(_) | Action::Free(_)))
    }

    /// Returns for each node whether it is one of `nodes`, or one of them depends on it.
    pub fn ancestors(&self, mut nodes: Vec<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        while let Some(index) = nodes.pop() {
            if !std::mem::replace(&mut reached[index], true) {
                nodes.extend(&self.nodes[index].dependencies);
            }
        }
        reached
    }

    /// Returns for each node whether no other node depends on it.
    pub fn leaves(&self) -> Vec<bool> {
        let mut leaves = vec![true; self.nodes.len()];
        self.edges().for_each(|(from, _)| leaves[from] = false);
        leaves
    }
}

impl Engine {
    /// Returns a graph by its handle.
    pub fn graph(&self, id: Id) -> Result<&Graph, Code> {
        self.graphs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn graph_mut(&mut self, id: Id) -> Result<&mut Graph, Code> {
        self.graphs.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns a node by its handle.
    pub fn node(&self, id: Id) -> Result<&Node, Code> {
        let (graph, index) = *self.nodes.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        self.graph(graph)?.nodes.get(index).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Creates a graph, alone or inside a parent.
    pub fn create_graph(&mut self, parent: Option<Id>) -> Id {
        let id = ids::next();
        self.graphs.insert(id, Graph { parent, ..Graph::default() });
        id
    }

    /// Returns the indices of nodes of a graph. The nodes must be distinct.
    pub fn node_indices(&self, graph: Id, nodes: &[Id]) -> Result<Vec<usize>, Code> {
        self.graph(graph)?;
        let index_of = |node: &Id| self.nodes.get(node).filter(|(of, _)| *of == graph).map(|(_, index)| *index);
        let indices: Vec<usize> = nodes
            .iter()
            .map(|node| index_of(node).ok_or(codes::CUDA_ERROR_INVALID_VALUE))
            .collect::<Result<_, Code>>()?;
        let different: HashSet<usize> = indices.iter().copied().collect();
        if different.len() == indices.len() { Ok(indices) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Adds a node to a graph. Returns its index.
    pub fn push_node(
        &mut self,
        graph: Id,
        action: Action,
        dependencies: Vec<usize>,
        device: usize,
        priority: i32,
    ) -> Result<usize, Code> {
        let id = ids::next();
        let graph_entry = self.graph_mut(graph)?;
        let index = graph_entry.nodes.len();
        graph_entry.nodes.push(Node { id, action, dependencies, device, priority, reported: Vec::new() });
        self.nodes.insert(id, (graph, index));
        Ok(index)
    }

    /// Adds edges. It is an error if one of them exists.
    pub fn add_edges(&mut self, graph: Id, from: &[Id], to: &[Id]) -> Result<(), Code> {
        let graph_entry = self.graph(graph)?;
        let index_of = |node: &Id| self.nodes.get(node).filter(|(of, _)| *of == graph).map(|(_, index)| *index);
        let mut edges = Vec::with_capacity(from.len());
        let mut new = HashSet::new();
        for (from, to) in from.iter().zip(to) {
            let (from, to) = index_of(from).zip(index_of(to)).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
            if from == to || graph_entry.nodes[to].dependencies.contains(&from) || !new.insert((from, to)) {
                return Err(codes::CUDA_ERROR_INVALID_VALUE);
            }
            edges.push((from, to));
        }
        let graph_entry = self.graph_mut(graph)?;
        for (from, to) in edges {
            graph_entry.nodes[to].dependencies.push(from);
        }
        Ok(())
    }

    /// Returns whether a test holds for a graph or for a graph inside it.
    pub fn any_part(&self, id: Id, test: &impl Fn(&Graph) -> bool) -> bool {
        self.graphs.get(&id).is_some_and(|graph| {
            test(graph)
                || graph
                    .nodes
                    .iter()
                    .any(|node| node.action.inner_graphs().iter().any(|inner| self.any_part(*inner, test)))
        })
    }

    /// Refuses to copy a graph with conditions, or one that allocates or frees memory.
    pub fn check_copyable(&self, id: Id) -> Result<(), Code> {
        self.graph(id)?;
        let is_bound = |graph: &Graph| !graph.conditions.is_empty() || graph.has_memory_nodes();
        if self.any_part(id, &is_bound) { Err(codes::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Copies a graph with its child graphs, and retains its user objects.
    pub fn copy_graph(&mut self, id: Id, parent: Option<Id>) -> Result<Id, Code> {
        self.check_copyable(id)?;
        let copy = self.create_graph(parent);
        let graph = self.graph(id)?;
        let (nodes, objects) = (graph.nodes.clone(), graph.objects.clone());
        for node in nodes {
            let action = match node.action {
                Action::Child(child) => Action::Child(self.copy_graph(child, Some(copy))?),
                action => action,
            };
            let index = self.push_node(copy, action, node.dependencies, node.device, node.priority)?;
            self.graph_mut(copy)?.originals.insert(node.id, index);
        }
        self.retain_graph_objects(&objects);
        self.graph_mut(copy)?.objects = objects;
        Ok(copy)
    }

    /// Destroys a graph that is not inside another graph.
    pub fn destroy_graph(&mut self, id: Id) -> Result<(), Code> {
        if self.graph(id)?.parent.is_some() {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        if self.any_part(id, &|graph| graph.capturing) {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        self.drop_graph(id);
        Ok(())
    }

    pub fn drop_graph(&mut self, id: Id) {
        let Some(graph) = self.graphs.remove(&id) else { return };
        for node in graph.nodes {
            self.nodes.remove(&node.id);
            if let Action::Allocate(address) = node.action {
                release_memory(&[address]);
            }
            node.action.inner_graphs().iter().for_each(|inner| self.drop_graph(*inner));
        }
        self.release_graph_objects(&graph.objects);
    }

    /// Submits an action to a stream, or adds it as a node to the stream's capture.
    pub fn submit_action(&mut self, stream: Id, action: Action) -> Result<(), Code> {
        if self.capture_of(stream)?.is_some() {
            self.add_node(stream, action);
            return Ok(());
        }
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        match action {
            Action::Work(work) => self.submit(stream, Op::Work(work)),
            Action::Host(call) => self.submit(stream, Op::Host(call)),
            Action::Record(event) => self.record(event, stream, false)?,
            Action::Wait(event) => self.wait_event(stream, event, false)?,
            // These actions exist only as nodes.
            Action::Empty | Action::Allocate(_) | Action::Free(_) | Action::Child(_) | Action::Conditional(_) => {}
        }
        Ok(())
    }
}

/// Drops references to memory of graphs.
pub fn release_memory(addresses: &[u64]) {
    if !addresses.is_empty()
        && let Ok(state) = state::get()
    {
        let mut memory = state.memory.write();
        addresses.iter().for_each(|address| memory.release_graph_memory(*address));
    }
}
