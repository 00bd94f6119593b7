//! Updates of an executable graph, which apply to later launches.
//!
//! An update pairs the nodes of a new graph with those of the graph that the executable graph was made from: first the
//! leaves, in their order, then the nodes that those depend on, in the order of the edges, and so on. Either all nodes
//! are updated or none. Nodes that allocate or free memory cannot be updated.

use super::{
    Action, Graph,
    exec::Retired,
    plan::{PlanIndex, Program, Shape, Step, plain_step},
};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::Id,
    kernels::Launch,
    memory::check::{Accessor, MemoryKind},
    state,
    work::{CopyWork, Fill, Work},
};
use std::sync::Arc;

/// Why an update is impossible: the `CU_GRAPH_EXEC_UPDATE_...` result, the node, and the node that it depends on if
/// their edge is the reason.
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

/// The steps that an update will store, with their indices.
type Changes = Vec<(PlanIndex, Step)>;

/// Returns the old node that each new node is paired with.
fn pair_nodes(old: &Shape, new: &Graph) -> Result<Vec<usize>, Mismatch> {
    let changed = |node| Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
    if old.nodes.len() != new.nodes.len() {
        return Err(changed(0));
    }
    let mut has_dependent = vec![false; old.nodes.len()];
    old.nodes.iter().flat_map(|node| &node.dependencies).for_each(|index| has_dependent[*index] = true);
    let mut ends = (0..old.nodes.len()).filter(|index| !has_dependent[*index]);
    let mut pairs: Vec<Option<usize>> = vec![None; new.nodes.len()];
    let mut taken = vec![false; old.nodes.len()];
    let leaves = new.leaves();
    let mut new_ends = leaves.iter().enumerate().filter(|(_, leaf)| **leaf).skip(ends.clone().count());
    if let Some((index, _)) = new_ends.next() {
        return Err(changed(new.nodes[index].id));
    }
    if leaves.iter().filter(|leaf| **leaf).count() < ends.clone().count() {
        return Err(changed(0));
    }
    let mut next = Vec::new();
    for (index, _) in leaves.iter().enumerate().filter(|(_, leaf)| **leaf) {
        let end = ends.next().ok_or_else(|| changed(new.nodes[index].id))?;
        (pairs[index], taken[end]) = (Some(end), true);
        next.push((index, end));
    }
    while let Some((index, partner)) = next.pop() {
        let (node, old_node) = (&new.nodes[index], &old.nodes[partner]);
        if node.action.node_type() != old_node.node_type {
            return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node.id));
        }
        if node.dependencies.len() != old_node.dependencies.len() {
            return Err(changed(node.id));
        }
        for (from, before) in node.dependencies.iter().zip(&old_node.dependencies) {
            match pairs[*from] {
                Some(paired) if paired == *before => {}
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

/// Returns the device that owns the memory at an address, or `None` for host memory.
fn device_of(address: u64) -> Option<usize> {
    match state::get().ok()?.memory.read().kind_of(address, 1) {
        MemoryKind::Device(device) => Some(device),
        MemoryKind::Pageable | MemoryKind::Pinned | MemoryKind::Unmapped => None,
    }
}

/// Returns whether a copy may be replaced by another: both ends must be in memory of the same kind and device, and a
/// copy of several rows must keep its shape.
fn copy_fits(old: &CopyWork, new: &CopyWork) -> bool {
    let alike = |old: (u64, Accessor), new: (u64, Accessor)| {
        (old.1 == Accessor::Program) == (new.1 == Accessor::Program) && device_of(old.0) == device_of(new.0)
    };
    let shape = |copy: &CopyWork| (copy.bytes, copy.rows, copy.to_pitch, copy.from_pitch);
    let is_same_shape = shape(old) == shape(new) || (old.rows == 1 && new.rows == 1);
    is_same_shape
        && alike((old.to, old.to_accessor), (new.to, new.to_accessor))
        && alike((old.from, old.from_accessor), (new.from, new.from_accessor))
}

/// Returns whether a fill may be replaced by another. For fills of several rows, only the address and the value may
/// differ.
fn fill_fits(old: &Fill, new: &Fill) -> bool {
    let shape = |fill: &Fill| (fill.width, fill.count, fill.rows, fill.pitch);
    device_of(old.to) == device_of(new.to) && (shape(old) == shape(new) || (old.rows == 1 && new.rows == 1))
}

impl Engine {
    /// Collects the changes that make a program of a shape execute the graph `new`.
    fn collect_changes(&self, program: &Program, old: &Shape, new: Id, changes: &mut Changes) -> Result<(), Mismatch> {
        let Some(new) = self.graphs.get(&new) else { return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR, 0)) };
        let pairs = pair_nodes(old, new)?;
        for (node, partner) in new.nodes.iter().zip(pairs) {
            let old_node = &old.nodes[partner];
            if matches!(node.action, Action::Allocate(_) | Action::Free(_)) {
                return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, node.id));
            }
            let different = Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node.id);
            let planned = old_node.index.and_then(|index| program.node(index));
            let mut step = plain_step(&node.action);
            match (planned.map(|planned| &planned.step), &node.action) {
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
                (Some(Step::Conditional { condition, kind, bodies }), Action::Conditional(conditional)) => {
                    let same_device = condition.device == conditional.condition.device;
                    if *kind != conditional.kind || bodies.len() != conditional.bodies.len() || !same_device {
                        return Err(different);
                    }
                    let condition = conditional.condition.clone();
                    step = Step::Conditional { condition, kind: *kind, bodies: bodies.clone() };
                }
                _ => {}
            }
            for (old_inner, inner) in old_node.inner.iter().zip(node.action.inner_graphs()) {
                self.collect_changes(program, old_inner, *inner, changes)?;
            }
            changes.extend(old_node.index.map(|index| (index, step)));
        }
        Ok(())
    }

    /// Updates an executable graph to a graph, if they differ only in what may change. The inner result is the reason
    /// why not.
    pub fn update_exec(&mut self, id: Id, graph: Id) -> Result<Result<(), Mismatch>, Code> {
        let exec = self.exec(id)?;
        self.graph(graph)?;
        let mut changes = Changes::new();
        if let Err(mismatch) = self.collect_changes(&exec.program, &exec.shape, graph, &mut changes) {
            return Ok(Err(mismatch));
        }
        let objects = self.all_objects(graph);
        self.retain_graph_objects(&objects);
        let exec = self.exec_mut(id)?;
        let program = Arc::make_mut(&mut exec.program);
        for (index, step) in changes {
            if let Some(node) = program.node_mut(index) {
                node.step = step;
            }
        }
        program.collect_conditions();
        // The old references stay until the launches that may use them are complete.
        let (last, old) = (exec.last.clone(), std::mem::replace(&mut exec.objects, objects));
        self.retire_after(last, Retired::objects(old));
        Ok(Ok(()))
    }

    /// Returns the index of the planned node for a node of the original graph.
    fn plan_index_of(&self, exec: Id, node: Id) -> Result<PlanIndex, Code> {
        self.node(node)?;
        self.exec(exec)?.plan_indices.get(&node).copied().ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Replaces the launch of a kernel node of an executable graph.
    pub fn set_launch(&mut self, exec: Id, node: Id, mut launch: Launch) -> Result<(), Code> {
        let index = self.plan_index_of(exec, node)?;
        let exec = self.exec_mut(exec)?;
        match exec.program.node(index).map(|node| &node.step) {
            Some(Step::Work(Work::Kernel(old))) if old.device == launch.device => {
                // The parameters of a node do not state whether it is cooperative.
                if old.cooperative {
                    launch.make_cooperative()?;
                }
            }
            _ => return Err(codes::CUDA_ERROR_INVALID_VALUE),
        }
        if let Some(node) = Arc::make_mut(&mut exec.program).node_mut(index) {
            node.step = Step::Work(Work::Kernel(Arc::new(launch)));
        }
        Ok(())
    }

    /// Returns the index of a kernel, copy or fill node of an executable graph; only these can be disabled.
    fn switchable_node(&self, exec: Id, node: Id) -> Result<PlanIndex, Code> {
        let index = self.plan_index_of(exec, node)?;
        let planned = self.exec(exec)?.program.node(index).filter(|node| matches!(node.step, Step::Work(_)));
        planned.map(|_| index).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn is_enabled(&self, exec: Id, node: Id) -> Result<bool, Code> {
        let index = self.switchable_node(exec, node)?;
        Ok(self.exec(exec)?.program.node(index).is_some_and(|node| node.enabled))
    }

    pub fn set_enabled(&mut self, exec: Id, node: Id, enabled: bool) -> Result<(), Code> {
        let index = self.switchable_node(exec, node)?;
        if let Some(node) = Arc::make_mut(&mut self.exec_mut(exec)?.program).node_mut(index) {
            node.enabled = enabled;
        }
        Ok(())
    }
}
