//! Executable graphs: made, launched and destroyed.
//!
//! A launch puts every node into a stream, with signals where branches meet, so independent nodes run at the same
//! time, as far as the device has room for them. Only a conditional node waits for its turn: when a stream gets to
//! it, what the body is made of goes in front of the rest of that stream. Launches of one executable graph follow
//! each other.

use super::{
    Action,
    plan::{Layout, Place, Program, Shape, Step},
};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{self, Id, IdMap},
    signal::Signal,
    stream::{Kind, Op},
};
use std::{ffi::c_ulonglong, sync::Arc};

pub struct Exec {
    /// Shared with launches that are not over: whoever changes it makes a copy for the launches to come.
    pub program: Arc<Program>,
    pub shape: Shape,
    pub places: IdMap<Place>,
    pub flags: c_ulonglong,
    /// The user objects that it holds.
    pub objects: Vec<(Id, u32)>,
    /// The end of the last launch.
    pub last: Option<Arc<Signal>>,
}

/// What an executable graph leaves behind.
pub struct Retired {
    streams: Vec<Id>,
    objects: Vec<(Id, u32)>,
}

impl Engine {
    pub fn exec(&self, id: Id) -> Result<&Exec, Code> {
        self.execs.get(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn exec_mut(&mut self, id: Id) -> Result<&mut Exec, Code> {
        self.execs.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    pub fn instantiate(&mut self, id: Id, flags: c_ulonglong) -> Result<Id, Code> {
        if self.graph(id)?.parent.is_some() {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let Layout { program, shape, places } = self.lay_out(id)?;
        let objects = self.all_objects(id);
        self.hold_objects(&objects);
        let exec = ids::next();
        let program = Arc::new(program);
        self.execs.insert(exec, Exec { program, shape, places, flags, objects, last: None });
        Ok(exec)
    }

    /// Destroys an executable graph, which finishes its work first.
    pub fn destroy_exec(&mut self, id: Id) -> Result<(), Code> {
        let exec = self.execs.remove(&id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let retired = Retired { streams: exec.program.streams(), objects: exec.objects };
        self.retire_after(exec.last, retired);
        Ok(())
    }

    /// Gives up what an executable graph held, once its last launch is over.
    pub fn retire_after(&mut self, last: Option<Arc<Signal>>, retired: Retired) {
        let Some(last) = last.filter(|last| !last.is_reached()) else { return self.retire(retired) };
        let stream = self.create_stream(0, Kind::Branch, CU_STREAM_NON_BLOCKING, 0);
        self.push(stream, Op::Wait(last));
        self.push(stream, Op::Retire(retired));
        self.destroy_stream(stream);
    }

    pub fn retire(&mut self, retired: Retired) {
        for stream in retired.streams {
            self.destroy_stream(stream);
        }
        self.let_go_of_objects(&retired.objects);
    }

    /// Launches an executable graph, or adds its nodes to the capture that the stream is part of.
    pub fn launch(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        let exec = self.exec(id)?;
        let (program, last) = (exec.program.clone(), exec.last.clone());
        if let Some(capture) = self.capture_of(stream)? {
            let added = self.add_nodes_of(id, stream);
            if added.is_err() {
                self.invalidate(capture);
            }
            return added;
        }
        for node in program.plans.iter().flat_map(|plan| &plan.nodes) {
            if let Step::Record(event) | Step::Wait(event) = node.step {
                self.event(event)?;
            }
        }
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        self.order(stream);
        self.note_submission(stream);
        if let Some(last) = last.filter(|last| !last.is_reached()) {
            self.push(stream, Op::Wait(last));
        }
        if !program.conditions.is_empty() {
            self.push(stream, Op::Reset(program.clone()));
        }
        self.spread(&program, 0, stream)?;
        let end = self.mark(stream);
        self.exec_mut(id)?.last = Some(end);
        Ok(())
    }

    /// Readies an executable graph for its launches, of which there is nothing to do here but to keep the order.
    pub fn upload(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        let last = self.exec(id)?.last.clone();
        if let Some(capture) = self.capture_of(stream)? {
            self.invalidate(capture);
            return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if let Some(stream) = self.streams.get(&stream) {
            stream.check()?;
        }
        if let Some(last) = last.filter(|last| !last.is_reached()) {
            self.submit(stream, Op::Wait(last));
        }
        Ok(())
    }

    /// Puts a plan into streams: the first branch into this one, if it is of the same device, and the others into
    /// their own, which begin and end within it.
    fn spread(&mut self, program: &Arc<Program>, index: usize, stream: Id) -> Result<(), Code> {
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
            let start = self.mark(stream);
            self.push(*other, Op::Begin(start));
        }
        let mut signals: Vec<Option<Arc<Signal>>> = vec![None; plan.nodes.len()];
        for (place, node) in plan.nodes.iter().enumerate() {
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
                Step::Record(event) => self.record_now(*event, target),
                Step::Wait(event) => self.wait_now(target, *event)?,
                Step::Choose { .. } => self.push(target, Op::Choose(program.clone(), (index, place))),
            }
            if node.awaited {
                signals[place] = Some(self.mark(target));
            }
        }
        for other in others {
            let end = self.mark(other);
            self.push(stream, Op::Join(end));
        }
        Ok(())
    }

    /// Carries a conditional node out: what its condition picks goes in front of the rest of the stream, which a thread
    /// has taken the node from. A loop goes there again, behind its body.
    pub fn choose(&mut self, stream: Id, program: &Arc<Program>, place: Place) -> Result<(), Code> {
        let Some(Step::Choose { condition, kind, bodies }) = program.at(place).map(|node| &node.step) else {
            return Ok(());
        };
        let Some(body) = condition.pick(*kind, bodies.len()) else { return Ok(()) };
        let taken = self.streams.get_mut(&stream).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let rest = std::mem::take(&mut taken.queue);
        let spread = self.spread(program, bodies[body], stream);
        if *kind == CU_GRAPH_COND_TYPE_WHILE {
            self.push(stream, Op::Choose(program.clone(), place));
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.extend(rest);
        }
        spread
    }

    /// Adds the nodes of an executable graph as it is now to a capture, after the stream's frontier.
    fn add_nodes_of(&mut self, id: Id, stream: Id) -> Result<(), Code> {
        let exec = self.exec(id)?;
        let (program, objects) = (exec.program.clone(), exec.objects.clone());
        let graph = self.captured_graph(stream).ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
        // A conditional node's bodies are the graph's that it is in, and cannot be copied.
        let [plan] = program.plans.as_slice() else { return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) };
        let frontier = self.frontier(stream);
        let mut added: Vec<usize> = Vec::with_capacity(plan.nodes.len());
        let mut is_leaf = vec![true; plan.nodes.len()];
        for node in &plan.nodes {
            let mut dependencies = frontier.clone();
            if !node.before.is_empty() {
                dependencies = node.before.iter().map(|before| added[*before]).collect();
                node.before.iter().for_each(|before| is_leaf[*before] = false);
            }
            let action = match &node.step {
                Step::Work(work) if node.enabled => Action::Work(work.clone()),
                Step::Host(call) => Action::Host(*call),
                Step::Record(event) => Action::Record(*event),
                Step::Wait(event) => Action::Wait(*event),
                Step::Work(_) | Step::Empty | Step::Choose { .. } => Action::Empty,
            };
            added.push(self.push_node(graph, action, dependencies, node.device, node.priority)?);
        }
        if !added.is_empty() {
            let leaves = added.into_iter().zip(is_leaf).filter_map(|(place, leaf)| leaf.then_some(place));
            self.set_frontier(stream, leaves.collect());
        }
        self.hold_objects(&objects);
        self.graph_mut(graph)?.objects.extend(objects);
        Ok(())
    }
}

impl Retired {
    /// Only user objects, for the streams serve on.
    pub fn objects(objects: Vec<(Id, u32)>) -> Retired {
        Retired { streams: Vec::new(), objects }
    }
}
