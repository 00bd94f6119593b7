//! The conditions of conditional nodes: one value each, which kernels set while a graph runs.

use super::ConditionalNode;
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{self, Id},
    state,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// The maximum number of bodies of a conditional node here, far above practical use.
const MAX_BODIES: u32 = 1 << 12;

pub struct Condition {
    pub handle: Id,
    /// The graph that it was created for. Its node is in this graph or in a graph inside it.
    pub graph: Id,
    pub device: usize,
    pub default: u32,
    /// Whether each launch resets the value to the default.
    pub is_assigned: bool,
    value: AtomicU32,
    /// Whether a node uses it; a second node may not.
    used: AtomicBool,
}

impl Condition {
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Returns which of `size` bodies a conditional node of this kind runs now, if any.
    pub fn select_body(&self, kind: u32, size: usize) -> Option<usize> {
        let value = self.value.load(Ordering::Acquire) as usize;
        let body = match kind {
            CU_GRAPH_COND_TYPE_SWITCH => value,
            _ => usize::from(value == 0),
        };
        (body < size).then_some(body)
    }

    /// Resets the value at the beginning of a launch, if the condition was created with a default.
    pub fn reset(&self) {
        if self.is_assigned {
            self.value.store(self.default, Ordering::Release);
        }
    }
}

/// Sets the value of a condition. It is to CPU kernels what the device function `cudaGraphSetConditional` is to kernels
/// on a GPU.
pub fn set_conditional(handle: CUgraphConditionalHandle, value: u32) -> Result<(), Code> {
    let engine = state::get()?.engine.lock();
    let condition = engine.conditions.get(&handle).and_then(std::sync::Weak::upgrade);
    condition.ok_or(codes::CUDA_ERROR_INVALID_VALUE)?.value.store(value, Ordering::Release);
    Ok(())
}

impl Engine {
    pub fn create_condition(&mut self, graph: Id, device: usize, default: u32, is_assigned: bool) -> Result<Id, Code> {
        self.graph(graph)?;
        // Drop the conditions whose graphs and executable graphs are all destroyed.
        self.conditions.retain(|_, condition| condition.strong_count() > 0);
        let handle = ids::next();
        let (value, used) = (AtomicU32::new(0), AtomicBool::new(false));
        let condition = Arc::new(Condition { handle, graph, device, default, is_assigned, value, used });
        self.conditions.insert(handle, Arc::downgrade(&condition));
        self.graph_mut(graph)?.conditions.push(condition);
        Ok(handle)
    }

    /// Creates the action of a new conditional node of a graph, with `size` empty bodies.
    pub fn create_conditional_node(
        &mut self,
        graph: Id,
        handle: Id,
        kind: u32,
        size: u32,
        device: usize,
    ) -> Result<ConditionalNode, Code> {
        let fits = match kind {
            CU_GRAPH_COND_TYPE_IF => size == 1 || size == 2,
            CU_GRAPH_COND_TYPE_WHILE => size == 1,
            CU_GRAPH_COND_TYPE_SWITCH => (1..=MAX_BODIES).contains(&size),
            _ => false,
        };
        let condition = self.conditions.get(&handle).and_then(std::sync::Weak::upgrade).filter(|_| fits);
        let condition = condition.ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let within =
            std::iter::successors(Some(graph), |id| self.graphs.get(id)?.parent).any(|id| id == condition.graph);
        if !within || condition.device != device || condition.used.swap(true, Ordering::AcqRel) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let bodies = (0..size).map(|_| self.create_graph(Some(graph))).collect();
        Ok(ConditionalNode { condition, kind, bodies })
    }
}
