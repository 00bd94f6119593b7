//! Memory that graphs allocate and free: the allocation nodes of stream-ordered allocations in a capture.
//!
//! An allocation has its address from the capture on, but may be used only after a launch of the graph. If no node of
//! the graph frees it, the program does, or a launch of an executable graph that was instantiated with
//! `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`. A later allocation of the same capture reuses memory that an
//! earlier node has freed. The pages are taken at the capture; a GPU takes them at the launch.

use super::{Memory, containing, sys, whole::Allocation};
use crate::{
    config::GRANULE,
    driver::{codes, table::Code},
    ids::Id,
};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// The memory of one or, one after the other, of several allocation nodes of a graph.
pub struct GraphMemory {
    /// The graph.
    graph: Id,
    device: usize,
    bytes: u64,
    /// The index of the node that frees it.
    freed_by: Option<usize>,
    /// Whether a launch has allocated it.
    launched: bool,
    /// Whether the program has to free it.
    live: bool,
    /// The executable graphs that allocate it, one at most at a time.
    execs: usize,
    /// What keeps it: the allocation nodes, the executable graphs until their last launch is complete, and the program
    /// until its free is complete.
    references: usize,
}

/// The memory that an executable graph allocates and frees.
#[derive(Clone, Default)]
pub struct ExecMemory {
    pub allocated: Vec<u64>,
    pub freed: Vec<u64>,
}

impl ExecMemory {
    pub fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.freed.is_empty()
    }
}

impl Memory {
    /// Allocates memory for a node of a graph. `is_before` tells whether a node of the graph precedes the new one.
    pub fn allocate_in_graph(
        &mut self,
        graph: Id,
        device: usize,
        bytes: u64,
        is_before: impl Fn(usize) -> bool,
    ) -> Result<u64, Code> {
        let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        let fits = |one: &GraphMemory| (one.graph, one.device, one.bytes) == (graph, device, rounded);
        let freed = self.graph_memory.iter_mut().find(|(_, one)| fits(one) && one.freed_by.is_some_and(&is_before));
        if let Some((address, one)) = freed {
            one.freed_by = None;
            one.references += 1;
            return Ok(*address);
        }
        let address = self.map_whole(device, rounded, self.pools[device].readers())?;
        if let Err(error) = sys::protect(address, rounded, sys::PROT_NONE) {
            self.unmap_allocation(address);
            return Err(super::os_error(error));
        }
        let buffer = self.next_buffer();
        let allocation =
            Allocation { device, bytes: rounded, requested: bytes, mapping: address, buffer, managed: false };
        self.allocations.insert(address, allocation);
        let one = GraphMemory {
            graph,
            device,
            bytes: rounded,
            freed_by: None,
            launched: false,
            live: false,
            execs: 0,
            references: 1,
        };
        self.graph_memory.insert(address, one);
        Ok(address)
    }

    /// Frees memory of a graph in a node of that graph, whose index will be `node`.
    pub fn free_in_graph(&mut self, graph: Id, address: u64, node: usize) -> Result<(), Code> {
        let one = self.graph_memory.get_mut(&address).ok_or(INVALID)?;
        // A graph may free the memory of another one, which must then be allocated at the launch.
        if one.graph == graph {
            if one.freed_by.is_some() {
                return Err(INVALID);
            }
            one.freed_by = Some(node);
        }
        Ok(())
    }

    /// Returns whether an address is that of memory of a graph.
    pub fn is_graph_memory(&self, address: u64) -> bool {
        self.graph_memory.contains_key(&address)
    }

    /// Returns whether an address is in memory of a graph that was never launched.
    pub fn is_unlaunched(&self, address: u64) -> bool {
        containing(&self.graph_memory, address, |one| one.bytes).is_some_and(|(_, one)| !one.launched)
    }

    /// Adds an executable graph. A graph that allocates memory can be instantiated once at a time.
    pub fn add_exec(&mut self, memory: &ExecMemory) -> Result<(), Code> {
        let is_used = |address| self.graph_memory.get(address).is_none_or(|one| one.execs > 0);
        if memory.allocated.iter().any(is_used) {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        for address in &memory.allocated {
            if let Some(one) = self.graph_memory.get_mut(address) {
                one.execs += 1;
                one.references += 1;
            }
        }
        Ok(())
    }

    /// Records that an executable graph was destroyed. Its memory is released by [`release_graph_memory`](Self::release_graph_memory)
    /// after its last launch.
    pub fn remove_exec(&mut self, memory: &ExecMemory) {
        for address in &memory.allocated {
            if let Some(one) = self.graph_memory.get_mut(address) {
                one.execs -= 1;
            }
        }
    }

    /// Allocates and frees for a launch. Returns the memory of other graphs that is freed, which
    /// [`release_graph_memory`](Self::release_graph_memory) releases after the launch.
    pub fn launch_graph_memory(&mut self, memory: &ExecMemory, auto_free: bool) -> Result<Vec<u64>, Code> {
        let own = |address: &u64| memory.allocated.contains(address);
        let live = |address: &u64| self.graph_memory.get(address).is_some_and(|one| one.live);
        if !auto_free && memory.allocated.iter().any(live) || memory.freed.iter().any(|one| !own(one) && !live(one)) {
            return Err(INVALID);
        }
        for address in &memory.allocated {
            let Some(one) = self.graph_memory.get_mut(address) else { continue };
            if !one.launched {
                sys::protect(*address, one.bytes, sys::PROT_WRITE).map_err(super::os_error)?;
                one.launched = true;
            }
            if one.freed_by.is_none() && !one.live {
                one.live = true;
                one.references += 1;
            }
        }
        let freed: Vec<u64> = memory.freed.iter().copied().filter(|address| !own(address)).collect();
        freed.iter().try_for_each(|address| self.begin_graph_free(*address))?;
        Ok(freed)
    }

    /// Takes memory of a graph from the program. [`release_graph_memory`](Self::release_graph_memory) ends the free.
    pub fn begin_graph_free(&mut self, address: u64) -> Result<(), Code> {
        let one = self.graph_memory.get_mut(&address).filter(|one| one.live).ok_or(INVALID)?;
        one.live = false;
        Ok(())
    }

    /// Drops one reference to memory of a graph, and releases the memory after the last one.
    pub fn release_graph_memory(&mut self, address: u64) {
        let Some(one) = self.graph_memory.get_mut(&address) else { return };
        one.references -= 1;
        if one.references == 0 {
            self.graph_memory.remove(&address);
            // It is an allocation until here, so this cannot fail.
            let _ = self.drop_allocation(address);
        }
    }
}
