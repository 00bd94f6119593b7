//! Executable graphs: instantiation, launch and destruction.
//!
//! A launch pushes every node to a stream, with signals between branches, so independent nodes run concurrently as far
//! as the device has workers. Only a conditional node is deferred: when a stream reaches it, the operations of the
//! selected body are inserted before the rest of that stream's queue. Launches of one executable graph are serialized.

use super::{
    Action, Node,
    plan::{Layout, PlanIndex, Program, Shape, Step},
    release_memory,
};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{self, Id, IdMap},
    memory::graph::ExecMemory,
    signal::Signal,
    state,
    stream::{Kind, Op},
};
use std::{ffi::c_ulonglong, sync::Arc};

pub struct Exec {
    /// Shared with launches in progress. A change makes a copy for later launches.
    pub program: Arc<Program>,
    pub shape: Shape,
    pub plan_indices: IdMap<PlanIndex>,
    pub flags: c_ulonglong,
    /// The user objects that it retains.
    pub objects: Vec<(Id, u32)>,
    /// The memory that a launch allocates and frees.
    pub memory: ExecMemory,
    /// The signal at the end of the last launch.
    pub last: Option<Arc<Signal>>,
}

/// The resources to release after the last launch of an executable graph.
pub struct Retired {
    streams: Vec<Id>,
    objects: Vec<(Id, u32)>,
    memory: Vec<u64>,
}

impl Engine {
    pub fn exec(&self, id: Id) -> Result<&Exec, Code> {
        self.execs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn exec_mut(&mut self, id: Id) -> Result<&mut Exec, Code> {
        self.execs.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn instantiate(&mut self, id: Id, flags: c_ulonglong) -> Result<Id, Code> {
        if let Some(parent) = self.graph(id)?.parent {
            let is_body = |node: &Node| matches!(&node.action, Action::Conditional(one) if one.bodies.contains(&id));
            let is_body = self.graph(parent)?.nodes.iter().any(is_body);
            return Err(if is_body { codes::CUDA_ERROR_NOT_SUPPORTED } else { codes::CUDA_ERROR_INVALID_VALUE });
        }
        let memory = self.memory_of_nodes(id)?;
        if !memory.is_empty() {
            state::get()?.memory.write().add_exec(&memory)?;
        }
        let laid_out = self.lay_out(id).inspect_err(|_| discard(&memory));
        let Layout { program, shape, plan_indices } = laid_out?;
        let objects = self.all_objects(id);
        self.retain_graph_objects(&objects);
        let exec = ids::next();
        let program = Arc::new(program);
        self.execs.insert(exec, Exec { program, shape, plan_indices, flags, objects, memory, last: None });
        Ok(exec)
    }

    /// Destroys an executable graph. Its resources are released after its last launch.
    pub fn destroy_exec(&mut self, id: Id) -> Result<(), Code> {
        let exec = self.execs.remove(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        if !exec.memory.is_empty() {
            state::get()?.memory.write().remove_exec(&exec.memory);
        }
        let (streams, memory) = (exec.program.streams(), exec.memory.allocated);
        let retired = Retired { streams, objects: exec.objects, memory };
        self.retire_after(exec.last, retired);
        Ok(())
    }

    /// Releases resources of an executable graph after its last launch is complete.
    pub fn retire_after(&mut self, last: Option<Arc<Signal>>, retired: Retired) {
        let Some(last) = last.filter(|last| !last.is_complete()) else { return self.retire(retired) };
        let stream = self.create_stream(0, Kind::Branch, CU_STREAM_NON_BLOCKING, 0);
        self.push(stream, Op::Wait(last));
        self.push(stream, Op::Retire(retired));
        self.destroy_stream(stream);
    }

    pub fn retire(&mut self, retired: Retired) {
        for stream in retired.streams {
            self.destroy_stream(stream);
        }
        self.release_graph_objects(&retired.objects);
        release_memory(&retired.memory);
    }

    /// Returns the memory that the nodes of a graph allocate and free, each address once.
    fn memory_of_nodes(&self, id: Id) -> Result<ExecMemory, Code> {
        let mut memory = ExecMemory::default();
        for node in &self.graph(id)?.nodes {
            let (list, address) = match node.action {
                Action::Allocate(address) => (&mut memory.allocated, address),
                Action::Free(address) => (&mut memory.freed, address),
                _ => continue,
            };
            if !list.contains(&address) {
                list.push(address);
            }
        }
        Ok(memory)
    }

    /// Launches an executable graph in a stream that is not in a capture.
    pub fn launch(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        let exec = self.exec(id)?;
        let (program, last) = (exec.program.clone(), exec.last.clone());
        for node in program.plans.iter().flat_map(|plan| &plan.nodes) {
            if let Step::Record(event) | Step::Wait(event) = node.step {
                self.event(event)?;
            }
        }
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        let exec = self.exec(id)?;
        let mut freed = Vec::new();
        if !exec.memory.is_empty() {
            let auto_free = exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH != 0;
            freed = state::get()?.memory.write().launch_graph_memory(&exec.memory, auto_free)?;
        }
        self.order_with_legacy(stream);
        self.count_submission(stream);
        if let Some(last) = last.filter(|last| !last.is_complete()) {
            self.push(stream, Op::Wait(last));
        }
        if !program.conditions.is_empty() {
            self.push(stream, Op::ResetConditions(program.clone()));
        }
        self.push_plan(&program, 0, stream)?;
        freed.into_iter().for_each(|address| self.push(stream, Op::FreeGraphMemory(address)));
        let end = self.push_signal(stream);
        self.exec_mut(id)?.last = Some(end);
        Ok(())
    }

    /// Implements `cuGraphUpload`. A host device has nothing to upload; only the order after the last launch is kept.
    pub fn upload(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        self.forbid_capturing(stream)?;
        let last = self.exec(id)?.last.clone();
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        if let Some(last) = last.filter(|last| !last.is_complete()) {
            self.submit(stream, Op::Wait(last));
        }
        Ok(())
    }

    /// Pushes a plan to streams: the first branch to `stream`, if that is of the same device, and the others to their
    /// own streams, which are forked from `stream` and joined to it.
    fn push_plan(&mut self, program: &Arc<Program>, index: usize, stream: Id) -> Result<(), Code> {
        let device = self.stream_device(stream)?;
        let plan = &program.plans[index];
        let mut targets: Vec<Id> = plan.branches.iter().map(|branch| branch.stream).collect();
        if let (Some(target), Some(branch)) = (targets.first_mut(), plan.branches.first())
            && branch.device == device
        {
            *target = stream;
        }
        let others: Vec<Id> = targets.iter().copied().filter(|target| *target != stream).collect();
        for other in &others {
            let start = self.push_signal(stream);
            self.push(*other, Op::Fork(start));
        }
        let mut signals: Vec<Option<Arc<Signal>>> = vec![None; plan.nodes.len()];
        for (position, node) in plan.nodes.iter().enumerate() {
            let target = targets[node.branch];
            for before in node.before.iter().filter(|before| plan.nodes[**before].branch != node.branch) {
                if let Some(signal) = &signals[*before] {
                    self.push(target, Op::Join(signal.clone()));
                }
            }
            match &node.step {
                Step::Work(work) if node.enabled => self.push(target, Op::Work(work.clone())),
                Step::Work(_) | Step::Empty => {}
                Step::Host(call) => self.push(target, Op::Host(*call)),
                Step::Record(event) => self.push_record(*event, target),
                Step::Wait(event) => self.push_wait(target, *event)?,
                Step::Conditional { .. } => self.push(target, Op::Conditional(program.clone(), (index, position))),
            }
            if node.awaited {
                signals[position] = Some(self.push_signal(target));
            }
        }
        for other in others {
            let end = self.push_signal(other);
            self.push(stream, Op::Join(end));
        }
        Ok(())
    }

    /// Executes a conditional node that a thread has removed from the stream's queue. The selected body's operations
    /// are inserted before the rest of the queue. A while node is inserted again after its body.
    pub fn run_conditional(&mut self, stream: Id, program: &Arc<Program>, index: PlanIndex) -> Result<(), Code> {
        let Some(Step::Conditional { condition, kind, bodies }) = program.node(index).map(|node| &node.step) else {
            return Ok(());
        };
        let Some(body) = condition.select_body(*kind, bodies.len()) else { return Ok(()) };
        let target = self.streams.get_mut(&stream).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let rest = std::mem::take(&mut target.queue);
        let result = self.push_plan(program, bodies[body], stream);
        if *kind == CU_GRAPH_COND_TYPE_WHILE {
            self.push(stream, Op::Conditional(program.clone(), index));
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.extend(rest);
        }
        result
    }
}

/// Undoes the registration of an executable graph that could not be made.
fn discard(memory: &ExecMemory) {
    if let Ok(state) = state::get()
        && !memory.is_empty()
    {
        state.memory.write().remove_exec(memory);
        release_memory(&memory.allocated);
    }
}

impl Retired {
    /// Retires only user objects; the streams remain in use.
    pub fn objects(objects: Vec<(Id, u32)>) -> Retired {
        Retired { streams: Vec::new(), objects, memory: Vec::new() }
    }
}
