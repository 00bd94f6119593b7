//! What the generator knows of the objects of the program that it makes. Only legal uses are generated: an object that
//! a step destroys is not used again, whether or not the step succeeds.

use super::random::Random;

#[derive(Clone)]
pub struct Stream {
    pub alive: bool,
    pub blocking: bool,
    pub in_capture: bool,
    pub gated: bool,
}

#[derive(Clone)]
pub struct Event {
    pub alive: bool,
    /// Whether a graph or a capture may refer to it, so that it must live until the end of the program.
    pub kept: bool,
    pub captured: bool,
    pub gated: bool,
    pub timed: bool,
}

#[derive(Clone)]
pub struct Graph {
    pub alive: bool,
    /// The graph that owns it, if it is the body of a conditional node.
    pub parent: Option<u32>,
    /// Whether a capture adds to it, so that it must live until the end of the program.
    pub kept: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    Device,
    Pinned,
    Managed,
    Pool,
}

#[derive(Clone)]
pub struct Memory {
    pub alive: bool,
    pub kind: MemoryKind,
    pub bytes: u32,
    pub stream: u32,
}

#[derive(Clone)]
pub struct Reservation {
    pub alive: bool,
    pub kib: u32,
}

#[derive(Clone)]
pub struct Condition {
    pub graph: u32,
    pub used: bool,
    pub may_loop: bool,
}

/// The objects that a program has made so far.
#[derive(Default)]
pub struct Model {
    pub streams: Vec<Stream>,
    /// The legacy stream and the per-thread streams.
    pub legacy_gated: bool,
    pub per_thread_gated: bool,
    pub events: Vec<Event>,
    pub graphs: Vec<Graph>,
    /// The graph of each node.
    pub nodes: Vec<u32>,
    pub execs: Vec<bool>,
    pub memory: Vec<Memory>,
    pub reservations: Vec<Reservation>,
    pub handles: Vec<bool>,
    /// The references that the program holds of each user object.
    pub objects: Vec<u32>,
    pub conditions: Vec<Condition>,
    /// The stream and thread of each capture that has begun.
    pub captures: Vec<(u32, u8)>,
    pub gate_closed: bool,
}

/// Returns the index of a random element that passes `test`.
pub fn pick<T>(random: &mut Random, list: &[T], test: impl Fn(&T) -> bool) -> Option<u32> {
    let passing = list.iter().filter(|one| test(one)).count() as u32;
    if passing == 0 {
        return None;
    }
    let chosen = random.below(passing) as usize;
    list.iter().enumerate().filter(|(_, one)| test(one)).nth(chosen).map(|(index, _)| index as u32)
}

impl Model {
    /// Returns whether a stream's work is known to be behind the closed gate. `stream` is an argument of a call.
    pub fn is_gated(&self, stream: u32) -> bool {
        self.gate_closed
            && match stream {
                0 | 1 => self.legacy_gated || self.streams.iter().any(|one| one.alive && one.blocking && one.gated),
                2 => self.per_thread_gated,
                number => self.streams.get(number as usize - 3).is_some_and(|one| one.gated),
            }
    }

    /// Notes that work was submitted to a stream, `gated` if it waits for work behind the gate.
    pub fn submit(&mut self, stream: u32, gated: bool) {
        if !self.gate_closed {
            return;
        }
        let legacy = self.is_gated(0);
        match stream {
            0 | 1 => self.legacy_gated |= legacy || gated,
            2 => self.per_thread_gated |= gated || self.legacy_gated,
            number => {
                let follows = self.legacy_gated;
                if let Some(one) = self.streams.get_mut(number as usize - 3) {
                    one.gated |= !one.in_capture && (gated || (one.blocking && follows));
                }
            }
        }
    }

    pub fn open_gate(&mut self) {
        self.gate_closed = false;
        self.legacy_gated = false;
        self.per_thread_gated = false;
        self.streams.iter_mut().for_each(|one| one.gated = false);
        self.events.iter_mut().for_each(|one| one.gated = false);
    }

    /// Marks a graph as destroyed, with the bodies of its conditional nodes.
    pub fn destroy_graph(&mut self, graph: u32) {
        if let Some(one) = self.graphs.get_mut(graph as usize) {
            one.alive = false;
        }
        let bodies: Vec<u32> =
            (0..self.graphs.len() as u32).filter(|index| self.graphs[*index as usize].parent == Some(graph)).collect();
        for body in bodies {
            self.destroy_graph(body);
        }
    }

    /// Returns whether a graph or one that contains it must live until the end of the program.
    pub fn is_kept(&self, graph: u32) -> bool {
        self.graphs.get(graph as usize).is_some_and(|one| one.kept)
            || self
                .graphs
                .iter()
                .enumerate()
                .any(|(index, one)| one.parent == Some(graph) && self.is_kept(index as u32))
    }
}
