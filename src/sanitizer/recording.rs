//! What a graph does at each replay: its operations, and which of them come after which.

use super::{Operand, order::Track};
use crate::base::stack::StackId;
use std::collections::HashMap;

/// What a node does.
#[derive(Debug, Clone)]
pub enum Action {
    /// It works on memory.
    Work(Vec<Planned>),
    /// It records an event.
    Record(u64),
    /// It waits for an event.
    Wait(u64),
}

/// Bytes that a node works on.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// Which, and how.
    pub operand: Operand,
    /// The life of their block at the capture; 0 for other memory.
    pub life: u32,
    /// Whether the block was given out in the capture: its memory stays the graph's, freed or not.
    pub own: bool,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// The nodes that it comes after, by number.
    pub after: Vec<usize>,
    /// What it does.
    pub action: Action,
    /// The number of its name.
    pub name: u32,
    /// Who made the call that was captured.
    pub stack: StackId,
    /// The branch that it is on. Of the nodes of a branch each comes after the one before it.
    pub branch: usize,
}

/// The nodes of a graph, each after those that it waits for.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Of each branch the last node.
    tails: Vec<usize>,
}

impl Recording {
    /// How many branches there are.
    pub fn branches(&self) -> usize {
        self.tails.len()
    }

    /// Adds a node after others of this recording. Its number.
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

/// A capture that goes on.
#[derive(Debug, Default)]
pub struct Capture {
    /// What there is of the graph.
    pub recording: Recording,
    /// Of each stream in the capture the nodes that its next one comes after.
    pub tips: HashMap<super::Stream, Vec<usize>>,
}

/// A graph.
#[derive(Debug)]
pub struct Graph {
    /// What it does.
    pub recording: Recording,
    /// The tracks that its branches run on.
    pub tracks: Vec<Track>,
    /// The end of its last replay, which the next comes after.
    pub last: Option<super::Moment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_a_branch() {
        let mut recording = Recording::default();
        let mut add = |after: &[usize]| recording.add(after.to_vec(), Action::Work(Vec::new()), 0, StackId::NONE);
        assert_eq!([add(&[]), add(&[0]), add(&[0]), add(&[2]), add(&[1, 3]), add(&[])], [0, 1, 2, 3, 4, 5]);
        let branches: Vec<usize> = recording.nodes.iter().map(|node| node.branch).collect();
        assert_eq!(branches, [0, 0, 1, 1, 0, 2]);
        assert_eq!(recording.branches(), 3);
    }
}
