//! Graphs: what captures leave behind, and what launching them does.
//!
//! Instantiating lays the nodes out in branches: a node follows on the branch of a node that it depends on, and
//! otherwise opens one. A launch puts the first branch into the launching stream and the others into streams of the
//! graph's own, with signals where branches meet; so independent nodes run at the same time, as far as the device
//! has room for them. Launches of one executable graph follow each other.

use super::{
    engine::Engine,
    ids::{self, Id},
    signal::Signal,
    stream::{Kind, Op},
    work::{HostCall, Work},
};
use crate::driver::{codes, table::Code, types::*};
use std::sync::Arc;

/// What a node does.
#[derive(Clone)]
pub enum Action {
    Work(Work),
    Host(HostCall),
    Record(Id),
    Wait(Id),
}

/// A node; it depends only on nodes before it.
#[derive(Clone)]
pub struct Node {
    pub id: Id,
    pub action: Action,
    pub dependencies: Vec<usize>,
    pub device: usize,
    pub priority: i32,
}

pub struct Graph {
    pub nodes: Vec<Node>,
    /// Whether its capture still goes on: then the program may look at it, no more.
    pub capturing: bool,
}

/// An executable graph.
pub struct Exec {
    nodes: Arc<[Node]>,
    /// The branch of each node, and whether another branch waits for it.
    places: Arc<[(usize, bool)]>,
    branches: Vec<Branch>,
    /// The end of the last launch.
    last: Option<Arc<Signal>>,
}

struct Branch {
    device: usize,
    stream: Id,
    /// The last node so far, while nodes are laid out.
    tail: usize,
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
        }
    }
}

impl Engine {
    /// A graph that the program may use.
    pub fn graph(&self, id: Id) -> Result<&Graph, Code> {
        self.graphs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn drop_graph(&mut self, id: Id) {
        if let Some(graph) = self.graphs.remove(&id) {
            for node in graph.nodes {
                self.nodes.remove(&node.id);
            }
        }
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
        }
        Ok(())
    }

    pub fn instantiate(&mut self, id: Id) -> Result<Id, Code> {
        let graph = self.graph(id)?;
        if graph.capturing {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        let nodes: Arc<[Node]> = graph.nodes.clone().into();
        let mut branches: Vec<Branch> = Vec::new();
        let mut places: Vec<(usize, bool)> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let continued = node.dependencies.iter().map(|before| places[*before].0).find(|branch| {
                let branch = &branches[*branch];
                branch.device == node.device && node.dependencies.contains(&branch.tail)
            });
            let branch = match continued {
                Some(branch) => {
                    branches[branch].tail = index;
                    branch
                }
                None => {
                    let stream = self.create_stream(node.device, Kind::Branch, CU_STREAM_NON_BLOCKING, node.priority);
                    branches.push(Branch { device: node.device, stream, tail: index });
                    branches.len() - 1
                }
            };
            places.push((branch, false));
            for before in &node.dependencies {
                if places[*before].0 != branch {
                    places[*before].1 = true;
                }
            }
        }
        let exec = ids::next();
        self.execs.insert(exec, Exec { nodes, places: places.into(), branches, last: None });
        Ok(exec)
    }

    pub fn destroy_exec(&mut self, id: Id) -> Result<(), Code> {
        let exec = self.execs.remove(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        for branch in exec.branches {
            self.destroy_stream(branch.stream);
        }
        Ok(())
    }

    /// Launches an executable graph, or adds its nodes to the capture that the stream is part of.
    pub fn launch(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        let exec = self.execs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let (nodes, places) = (exec.nodes.clone(), exec.places.clone());
        if self.capture_of(stream)?.is_some() {
            self.add_child(stream, &nodes);
            return Ok(());
        }
        let device = self.stream_device(stream)?;
        for node in nodes.iter() {
            if let Action::Record(event) | Action::Wait(event) = node.action {
                self.event(event)?;
            }
        }
        let mut targets: Vec<Id> = exec.branches.iter().map(|branch| branch.stream).collect();
        if let (Some(target), Some(branch)) = (targets.first_mut(), exec.branches.first())
            && branch.device == device
        {
            *target = stream;
        }
        let last = exec.last.clone();
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        self.order(stream);
        self.note_submission(stream);
        if let Some(last) = last.filter(|last| !last.is_reached()) {
            self.push(stream, Op::Wait(last));
        }
        let others: Vec<Id> = targets.iter().copied().filter(|target| *target != stream).collect();
        for other in &others {
            let start = self.mark(stream);
            self.push(*other, Op::Begin(start));
        }
        let mut signals: Vec<Option<Arc<Signal>>> = vec![None; nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            let (branch, awaited) = places[index];
            let target = targets[branch];
            for before in node.dependencies.iter().filter(|before| places[**before].0 != branch) {
                if let Some(signal) = &signals[*before] {
                    self.push(target, Op::Join(signal.clone()));
                }
            }
            match &node.action {
                Action::Work(work) => self.push(target, Op::Work(work.clone())),
                Action::Host(call) => self.push(target, Op::Host(*call)),
                Action::Record(event) => self.record_now(*event, target),
                Action::Wait(event) => self.wait_now(target, *event)?,
            }
            if awaited {
                signals[index] = Some(self.mark(target));
            }
        }
        for other in others {
            let end = self.mark(other);
            self.push(stream, Op::Join(end));
        }
        let end = self.mark(stream);
        if let Some(exec) = self.execs.get_mut(&id) {
            exec.last = Some(end);
        }
        Ok(())
    }

    /// Adds a graph's nodes to a capture, after the stream's frontier.
    fn add_child(&mut self, stream: Id, nodes: &[Node]) {
        let before = self.frontier(stream);
        let mut added: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
        let mut is_leaf = vec![true; nodes.len()];
        for node in nodes {
            let mut dependencies = before.clone();
            if !node.dependencies.is_empty() {
                dependencies = node.dependencies.iter().filter_map(|index| added[*index]).collect();
                node.dependencies.iter().for_each(|index| is_leaf[*index] = false);
            }
            added.push(self.add_node_after(stream, node.action.clone(), dependencies));
        }
        let leaves: Vec<usize> =
            added.iter().zip(&is_leaf).filter(|(_, leaf)| **leaf).filter_map(|(node, _)| *node).collect();
        if !leaves.is_empty() {
            self.set_frontier(stream, leaves);
        }
    }
}
