//! The operations of a graph's replay, and their order.

use super::{
    call::Stream,
    order::{Moment, Track},
};
use crate::{base::stack::StackId, observe::Operand};
use std::collections::HashMap;

/// The action of a node.
#[derive(Debug, Clone)]
pub enum Action {
    /// Accesses memory.
    Work(Vec<PlannedAccess>),
    /// Records an event.
    Record(u64),
    /// Waits for an event.
    Wait(u64),
}

/// An access of a node at each replay.
#[derive(Debug, Clone, Copy)]
pub struct PlannedAccess {
    /// The bytes and the kind of access.
    pub operand: Operand,
    /// The number of their block's allocation at the capture; 0 for other memory.
    pub allocation: u32,
    /// Whether the block was allocated in the capture. Its memory then belongs to the graph, freed or not.
    pub graph_owned: bool,
}

/// A node of a graph.
#[derive(Debug, Clone)]
pub struct Node {
    /// The indices of the nodes that it depends on.
    pub after: Vec<usize>,
    /// Its action.
    pub action: Action,
    /// The number of the operation's name.
    pub name: u32,
    /// The stack of the captured call.
    pub stack: StackId,
    /// The branch of the node. Each node of a branch comes after the previous one.
    pub branch: usize,
}

/// The nodes of a graph in topological order.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The last node of each branch.
    tails: Vec<usize>,
}

impl Recording {
    /// Returns the number of branches.
    pub fn branches(&self) -> usize {
        self.tails.len()
    }

    /// Adds a node that depends on others of this recording, and returns its index.
    pub fn add(&mut self, after: Vec<usize>, action: Action, name: u32, stack: StackId) -> usize {
        let number = self.nodes.len();
        let branch = match self.tails.iter().position(|tail| after.contains(tail)) {
            Some(branch) => {
                self.tails[branch] = number;
                branch
            }
            None => {
                self.tails.push(number);
                self.tails.len() - 1
            }
        };
        self.nodes.push(Node { after, action, name, stack, branch });
        number
    }
}

/// A capture in progress.
#[derive(Debug, Default)]
pub struct Capture {
    /// The part of the graph that is captured so far.
    pub recording: Recording,
    /// For each stream in the capture, the nodes that its next node depends on.
    pub frontiers: HashMap<Stream, Vec<usize>>,
}

/// An executable graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// Its operations.
    pub recording: Recording,
    /// The tracks that its branches run on.
    pub tracks: Vec<Track>,
    /// The end of its last replay, which the next replay waits for.
    pub last: Option<Moment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_nodes_shares_a_branch() {
        let mut recording = Recording::default();
        let mut add = |after: &[usize]| recording.add(after.to_vec(), Action::Work(Vec::new()), 0, StackId::NONE);
        assert_eq!([add(&[]), add(&[0]), add(&[0]), add(&[2]), add(&[1, 3]), add(&[])], [0, 1, 2, 3, 4, 5]);
        let branches: Vec<usize> = recording.nodes.iter().map(|node| node.branch).collect();
        assert_eq!(branches, [0, 0, 1, 1, 0, 2]);
        assert_eq!(recording.branches(), 3);
    }
}
