//! Graphs: what captures leave behind and programs build by hand.
//!
//! A graph's nodes are numbered as they were added; edges may go either way, and whether they make a cycle is seen
//! when the graph is instantiated. A node of the type child graph, and each body of a conditional node, is a graph
//! with a parent: the program may look at it and add to it, and it goes when its parent goes.
//!
//! [`plan`] lays a graph out in branches, [`exec`] launches it, [`update`] changes what was laid out; [`condition`]
//! is what conditional nodes ask, [`object`] what graphs keep alive, [`dot`] how a graph is drawn.

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
    stream::Op,
    work::{HostCall, Work},
};
use crate::driver::{codes, table::Code, types::*};
use std::{collections::HashSet, sync::Arc};

/// What a node does.
#[derive(Clone)]
pub enum Action {
    Work(Work),
    Host(HostCall),
    Record(Id),
    Wait(Id),
    Empty,
    /// A graph of this node's own.
    Child(Id),
    Choose(Choice),
}

/// A conditional node: one of its bodies, all, or none are carried out as the condition says.
#[derive(Clone)]
pub struct Choice {
    pub condition: Arc<Condition>,
    pub kind: u32,
    /// The bodies' graphs; the program is shown this very array.
    pub bodies: Arc<[Id]>,
}

/// A node, which depends on the nodes at these places of its graph.
#[derive(Clone)]
pub struct Node {
    pub id: Id,
    pub action: Action,
    pub dependencies: Vec<usize>,
    pub device: usize,
    pub priority: i32,
    /// The addresses of a kernel's parameters as the program was shown them; it may look while the node lives.
    pub shown: Vec<usize>,
}

#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// Whether its capture still goes on: then it can be neither destroyed nor instantiated.
    pub capturing: bool,
    /// The graph that it is a part of, if it is the child or the body of a node.
    pub parent: Option<Id>,
    /// For a clone, the places of the nodes that those of the original became.
    pub originals: IdMap<usize>,
    /// The conditions that were created for it.
    pub conditions: Vec<Arc<Condition>>,
    /// The user objects that it holds, and how many references to each.
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
            Action::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Action::Choose(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// The graphs that are parts of a node.
    pub fn inner(&self) -> &[Id] {
        match self {
            Action::Child(graph) => std::slice::from_ref(graph),
            Action::Choose(choice) => &choice.bodies,
            _ => &[],
        }
    }
}

impl Graph {
    /// The nodes' places by the places that depend on them; the graph's edges, in the order of the nodes that they
    /// lead to.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.nodes.iter().enumerate().flat_map(|(to, node)| node.dependencies.iter().map(move |from| (*from, to)))
    }

    /// Whether nothing depends on each node.
    pub fn leaves(&self) -> Vec<bool> {
        let mut leaves = vec![true; self.nodes.len()];
        self.edges().for_each(|(from, _)| leaves[from] = false);
        leaves
    }
}

impl Engine {
    /// A graph that the program may use.
    pub fn graph(&self, id: Id) -> Result<&Graph, Code> {
        self.graphs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn graph_mut(&mut self, id: Id) -> Result<&mut Graph, Code> {
        self.graphs.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// A node that the program may use.
    pub fn node(&self, id: Id) -> Result<&Node, Code> {
        let (graph, index) = *self.nodes.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        self.graph(graph)?.nodes.get(index).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Makes a graph, of its own or as a part of another.
    pub fn create_graph(&mut self, parent: Option<Id>) -> Id {
        let id = ids::next();
        self.graphs.insert(id, Graph { parent, ..Graph::default() });
        id
    }

    /// The places of nodes of a graph, which are to be different ones.
    pub fn places(&self, graph: Id, nodes: &[Id]) -> Result<Vec<usize>, Code> {
        self.graph(graph)?;
        let place = |node: &Id| self.nodes.get(node).filter(|(of, _)| *of == graph).map(|(_, index)| *index);
        let places: Vec<usize> =
            nodes.iter().map(|node| place(node).ok_or(codes::CUDA_ERROR_INVALID_VALUE)).collect::<Result<_, Code>>()?;
        let different: HashSet<usize> = places.iter().copied().collect();
        if different.len() == places.len() { Ok(places) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Adds a node to a graph; returns its place.
    pub fn push_node(
        &mut self,
        graph: Id,
        action: Action,
        dependencies: Vec<usize>,
        device: usize,
        priority: i32,
    ) -> Result<usize, Code> {
        let id = ids::next();
        let known = self.graph_mut(graph)?;
        let index = known.nodes.len();
        known.nodes.push(Node { id, action, dependencies, device, priority, shown: Vec::new() });
        self.nodes.insert(id, (graph, index));
        Ok(index)
    }

    /// Adds edges, none of which may exist.
    pub fn add_edges(&mut self, graph: Id, from: &[Id], to: &[Id]) -> Result<(), Code> {
        let known = self.graph(graph)?;
        let place = |node: &Id| self.nodes.get(node).filter(|(of, _)| *of == graph).map(|(_, index)| *index);
        let mut edges = Vec::with_capacity(from.len());
        let mut new = HashSet::new();
        for (from, to) in from.iter().zip(to) {
            let (from, to) = place(from).zip(place(to)).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
            if from == to || known.nodes[to].dependencies.contains(&from) || !new.insert((from, to)) {
                return Err(codes::CUDA_ERROR_INVALID_VALUE);
            }
            edges.push((from, to));
        }
        let known = self.graph_mut(graph)?;
        for (from, to) in edges {
            known.nodes[to].dependencies.push(from);
        }
        Ok(())
    }

    /// Whether a test holds for a graph or for one that is a part of it.
    pub fn any_part(&self, id: Id, test: &impl Fn(&Graph) -> bool) -> bool {
        self.graphs.get(&id).is_some_and(|graph| {
            test(graph)
                || graph.nodes.iter().any(|node| node.action.inner().iter().any(|inner| self.any_part(*inner, test)))
        })
    }

    /// Copies a graph, with what it holds and its child graphs.
    pub fn copy_graph(&mut self, id: Id, parent: Option<Id>) -> Result<Id, Code> {
        self.graph(id)?;
        if self.any_part(id, &|graph| graph.nodes.iter().any(|node| matches!(node.action, Action::Choose(_)))) {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
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
        self.hold_objects(&objects);
        self.graph_mut(copy)?.objects = objects;
        Ok(copy)
    }

    /// Destroys a graph of the program's own.
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
            node.action.inner().iter().for_each(|inner| self.drop_graph(*inner));
        }
        self.let_go_of_objects(&graph.objects);
    }

    /// Puts work or a host function into a stream, or a node into its capture.
    pub fn act(&mut self, stream: Id, action: Action) -> Result<(), Code> {
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
            // Nothing but a node can be one of these.
            Action::Empty | Action::Child(_) | Action::Choose(_) => {}
        }
        Ok(())
    }
}
