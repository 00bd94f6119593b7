//! The conditions that conditional nodes ask: a value each, which kernels set while a graph runs.

use super::Choice;
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

/// The most bodies that a conditional node can have here: far more than anybody writes.
const MOST_BODIES: u32 = 1 << 12;

pub struct Condition {
    pub handle: Id,
    /// The graph that it was created for: its node is in there or in a part of it.
    pub graph: Id,
    pub device: usize,
    pub default: u32,
    /// Whether each launch begins with the default value.
    pub is_assigned: bool,
    value: AtomicU32,
    /// Whether a node asks it; no second one may.
    used: AtomicBool,
}

impl Condition {
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Which of `size` bodies a conditional node of this kind carries out now, if any.
    pub fn pick(&self, kind: u32, size: usize) -> Option<usize> {
        let value = self.value.load(Ordering::Acquire) as usize;
        let body = match kind {
            CU_GRAPH_COND_TYPE_SWITCH => value,
            _ => usize::from(value == 0),
        };
        (body < size).then_some(body)
    }

    /// Begins a launch.
    pub fn reset(&self) {
        if self.is_assigned {
            self.value.store(self.default, Ordering::Release);
        }
    }
}

/// What the device function `cudaGraphSetConditional` is to a kernel on a GPU: a kernel's twin calls it while it runs.
pub fn set_conditional(handle: CUgraphConditionalHandle, value: u32) -> Result<(), Code> {
    let engine = state::get()?.engine.lock();
    let condition = engine.conditions.get(&handle).and_then(std::sync::Weak::upgrade);
    condition.ok_or(codes::CUDA_ERROR_INVALID_VALUE)?.value.store(value, Ordering::Release);
    Ok(())
}

impl Engine {
    pub fn create_condition(&mut self, graph: Id, device: usize, default: u32, is_assigned: bool) -> Result<Id, Code> {
        self.graph(graph)?;
        // Those of graphs that are gone, and of no executable graph either.
        self.conditions.retain(|_, condition| condition.strong_count() > 0);
        let handle = ids::next();
        let (value, used) = (AtomicU32::new(0), AtomicBool::new(false));
        let condition = Arc::new(Condition { handle, graph, device, default, is_assigned, value, used });
        self.conditions.insert(handle, Arc::downgrade(&condition));
        self.graph_mut(graph)?.conditions.push(condition);
        Ok(handle)
    }

    /// The condition for a new conditional node of a graph, with `size` bodies for it.
    pub fn choose_by(&mut self, graph: Id, handle: Id, kind: u32, size: u32, device: usize) -> Result<Choice, Code> {
        let fits = match kind {
            CU_GRAPH_COND_TYPE_IF => size == 1 || size == 2,
            CU_GRAPH_COND_TYPE_WHILE => size == 1,
            CU_GRAPH_COND_TYPE_SWITCH => (1..=MOST_BODIES).contains(&size),
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
        Ok(Choice { condition, kind, bodies })
    }
}
