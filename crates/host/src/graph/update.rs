//! Changing what an executable graph will do from its next launch on.
//!
//! An update pairs the nodes of a new graph with those of the one that the executable graph was made from: the nodes
//! at the ends, in their order, then what those depend on, in the order of the edges, and so on. Nothing is changed
//! unless everything can be.

use super::{
    Action, Graph,
    exec::Retired,
    plan::{Place, Program, Shape, Step, plain_step},
};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::Id,
    kernels::Launch,
    memory::check::{By, Place as Memory},
    state,
    work::{Copying, Fill, Work},
};
use std::sync::Arc;

/// Why an update cannot be: which of `CU_GRAPH_EXEC_UPDATE_...`, at which node, over which one that it depends on.
pub struct Mismatch {
    pub result: u32,
    pub node: Id,
    pub from: Id,
}

impl Mismatch {
    fn new(result: u32, node: Id) -> Mismatch {
        Mismatch { result, node, from: 0 }
    }
}

/// What an update would put in, place by place.
type Changes = Vec<(Place, Step)>;

/// The old node that each new node is paired with.
fn pair(old: &Shape, new: &Graph) -> Result<Vec<usize>, Mismatch> {
    let changed = |node| Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
    if old.nodes.len() != new.nodes.len() {
        return Err(changed(0));
    }
    let mut has_dependent = vec![false; old.nodes.len()];
    old.nodes.iter().flat_map(|node| &node.dependencies).for_each(|index| has_dependent[*index] = true);
    let mut ends = (0..old.nodes.len()).filter(|index| !has_dependent[*index]);
    let mut pairs: Vec<Option<usize>> = vec![None; new.nodes.len()];
    let mut taken = vec![false; old.nodes.len()];
    let mut next = Vec::new();
    for (index, _) in new.leaves().iter().enumerate().filter(|(_, leaf)| **leaf) {
        let end = ends.next().ok_or_else(|| changed(new.nodes[index].id))?;
        (pairs[index], taken[end]) = (Some(end), true);
        next.push((index, end));
    }
    while let Some((index, partner)) = next.pop() {
        let (node, was) = (&new.nodes[index], &old.nodes[partner]);
        if node.action.node_type() != was.node_type {
            return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node.id));
        }
        if node.dependencies.len() != was.dependencies.len() {
            return Err(changed(node.id));
        }
        for (from, before) in node.dependencies.iter().zip(&was.dependencies) {
            match pairs[*from] {
                Some(known) if known == *before => {}
                None if !taken[*before] => {
                    (pairs[*from], taken[*before]) = (Some(*before), true);
                    next.push((*from, *before));
                }
                _ => return Err(Mismatch { from: new.nodes[*from].id, ..changed(node.id) }),
            }
        }
    }
    pairs.into_iter().collect::<Option<_>>().ok_or_else(|| changed(0))
}

/// The device that memory is of, or none if it is the program's.
fn device_of(address: u64) -> Option<usize> {
    match state::get().ok()?.memory.read().place_of(address, 1) {
        Memory::Device(device) => Some(device),
        Memory::Pageable | Memory::Pinned | Memory::Hole => None,
    }
}

/// Whether a copy may become this other one: from and to memory of the same kinds and devices.
fn copy_fits(old: &Copying, new: &Copying) -> bool {
    let alike = |old: (u64, By), new: (u64, By)| {
        (old.1 == By::Program) == (new.1 == By::Program) && device_of(old.0) == device_of(new.0)
    };
    alike((old.to, old.to_by), (new.to, new.to_by)) && alike((old.from, old.from_by), (new.from, new.from_by))
}

/// Whether a fill may become this other one: of rows, only the address and the value may differ.
fn fill_fits(old: &Fill, new: &Fill) -> bool {
    let shape = |fill: &Fill| (fill.width, fill.count, fill.rows, fill.pitch);
    device_of(old.to) == device_of(new.to) && (shape(old) == shape(new) || (old.rows == 1 && new.rows == 1))
}

impl Engine {
    /// What it takes to make a program of a shape do what a graph says.
    fn changes(&self, program: &Program, old: &Shape, new: Id, changes: &mut Changes) -> Result<(), Mismatch> {
        let Some(new) = self.graphs.get(&new) else { return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR, 0)) };
        let pairs = pair(old, new)?;
        for (node, partner) in new.nodes.iter().zip(pairs) {
            let was = &old.nodes[partner];
            let different = Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node.id);
            let known = was.place.and_then(|place| program.at(place));
            let mut step = plain_step(&node.action);
            match (known.map(|known| &known.step), &node.action) {
                (Some(Step::Work(Work::Kernel(old))), Action::Work(Work::Kernel(new))) if old.device != new.device => {
                    let result = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
                    return Err(Mismatch::new(result, node.id));
                }
                (Some(Step::Work(Work::Copy(old))), Action::Work(Work::Copy(new))) if !copy_fits(old, new) => {
                    return Err(different);
                }
                (Some(Step::Work(Work::Fill(old))), Action::Work(Work::Fill(new))) if !fill_fits(old, new) => {
                    return Err(different);
                }
                (Some(Step::Choose { condition, kind, bodies }), Action::Choose(choice)) => {
                    let same_device = condition.device == choice.condition.device;
                    if *kind != choice.kind || bodies.len() != choice.bodies.len() || !same_device {
                        return Err(different);
                    }
                    let condition = choice.condition.clone();
                    step = Step::Choose { condition, kind: *kind, bodies: bodies.clone() };
                }
                _ => {}
            }
            for (was, inner) in was.inner.iter().zip(node.action.inner()) {
                self.changes(program, was, *inner, changes)?;
            }
            changes.extend(was.place.map(|place| (place, step)));
        }
        Ok(())
    }

    /// Makes an executable graph do what a graph says, if that differs in no more than what may change. The inner
    /// result tells why not.
    pub fn update_exec(&mut self, id: Id, graph: Id) -> Result<Result<(), Mismatch>, Code> {
        let exec = self.exec(id)?;
        self.graph(graph)?;
        if self.any_part(graph, &|graph| graph.capturing) {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        let mut changes = Changes::new();
        if let Err(mismatch) = self.changes(&exec.program, &exec.shape, graph, &mut changes) {
            return Ok(Err(mismatch));
        }
        let objects = self.all_objects(graph);
        self.hold_objects(&objects);
        let exec = self.exec_mut(id)?;
        let program = Arc::make_mut(&mut exec.program);
        for (place, step) in changes {
            if let Some(node) = program.at_mut(place) {
                node.step = step;
            }
        }
        program.collect_conditions();
        // What it held stays until the launches that may use it are over.
        let (last, old) = (exec.last.clone(), std::mem::replace(&mut exec.objects, objects));
        self.retire_after(last, Retired::objects(old));
        Ok(Ok(()))
    }

    /// Where a node of the graph that an executable graph was made from went.
    fn place_in(&self, exec: Id, node: Id) -> Result<Place, Code> {
        self.node(node)?;
        self.exec(exec)?.places.get(&node).copied().ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Gives a kernel's node of an executable graph another launch.
    pub fn set_launch(&mut self, exec: Id, node: Id, launch: Launch) -> Result<(), Code> {
        let place = self.place_in(exec, node)?;
        let exec = self.exec_mut(exec)?;
        match exec.program.at(place).map(|node| &node.step) {
            Some(Step::Work(Work::Kernel(old))) if old.device == launch.device => {}
            _ => return Err(codes::CUDA_ERROR_INVALID_VALUE),
        }
        if let Some(node) = Arc::make_mut(&mut exec.program).at_mut(place) {
            node.step = Step::Work(Work::Kernel(Arc::new(launch)));
        }
        Ok(())
    }

    /// A kernel, copy or fill of an executable graph, which can be switched off.
    fn switch(&self, exec: Id, node: Id) -> Result<Place, Code> {
        let place = self.place_in(exec, node)?;
        let planned = self.exec(exec)?.program.at(place).filter(|node| matches!(node.step, Step::Work(_)));
        planned.map(|_| place).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn is_enabled(&self, exec: Id, node: Id) -> Result<bool, Code> {
        let place = self.switch(exec, node)?;
        Ok(self.exec(exec)?.program.at(place).is_some_and(|node| node.enabled))
    }

    pub fn set_enabled(&mut self, exec: Id, node: Id, enabled: bool) -> Result<(), Code> {
        let place = self.switch(exec, node)?;
        if let Some(node) = Arc::make_mut(&mut self.exec_mut(exec)?.program).at_mut(place) {
            node.enabled = enabled;
        }
        Ok(())
    }
}
