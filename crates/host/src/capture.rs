//! Stream capture: operations submitted to a capturing stream become nodes of a graph instead of work.
//!
//! Each stream of a capture has a frontier: the nodes that its next node will depend on. Recording an event copies the
//! stream's frontier. Waiting for that event adds the copy to another stream's frontier, which makes that stream join
//! the capture.

use super::{
    engine::Engine,
    graph::Action,
    ids::{self, Id},
    stream::Kind,
};
use crate::driver::{codes, table::Code, types::*};
use std::cell::Cell;

pub struct Capture {
    mode: u32,
    thread: u64,
    origin: Id,
    pub graph: Id,
    /// The identifier that `cuStreamGetCaptureInfo` returns.
    pub number: u64,
    /// Set by the first operation that invalidates the capture; ending the capture then returns that error.
    pub invalid: bool,
    streams: Vec<Id>,
}

/// The state of a stream in a capture.
pub struct CaptureState {
    pub capture: Id,
    frontier: Vec<usize>,
    /// The frontier's handles as last returned to the program, which may read them until it next uses the stream.
    pub reported: Vec<Id>,
}

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Sets this thread's capture mode and returns the previous one. As an H200's driver, it accepts any number.
pub fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

impl Engine {
    /// Begins a capture in a stream: into a new graph, or after nodes of an existing graph.
    pub fn begin_capture(
        &mut self,
        id: Id,
        mode: u32,
        thread: u64,
        into: Option<(Id, Vec<usize>)>,
    ) -> Result<(), Code> {
        if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let capture = ids::next();
        self.forbid_implicit(id)?;
        let stream = self.streams.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        if matches!(stream.kind, Kind::Legacy) {
            return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture.is_some() {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        let (graph, frontier) = into.unwrap_or_else(|| (self.create_graph(None), Vec::new()));
        self.graph_mut(graph)?.capturing = true;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.capture = Some(CaptureState { capture, frontier, reported: Vec::new() });
        }
        self.capture_number += 1;
        let (number, streams, invalid) = (self.capture_number, vec![id], false);
        let new_capture = Capture { mode, thread, origin: id, graph, number, invalid, streams };
        self.captures.insert(capture, new_capture);
        Ok(())
    }

    /// Returns the graph that a stream is captured into, or `None` if it is not captured.
    pub fn captured_graph(&self, id: Id) -> Option<Id> {
        let state = self.streams.get(&id)?.capture.as_ref()?;
        Some(self.captures.get(&state.capture)?.graph)
    }

    /// Returns the capture that a stream is part of, or an error if the capture is no longer valid.
    pub fn capture_of(&self, id: Id) -> Result<Option<Id>, Code> {
        let Some(state) = self.streams.get(&id).and_then(|stream| stream.capture.as_ref()) else { return Ok(None) };
        match self.captures.get(&state.capture) {
            Some(capture) if !capture.invalid => Ok(Some(state.capture)),
            _ => Err(codes::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    pub fn invalidate(&mut self, capture: Id) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    pub fn frontier(&self, id: Id) -> Vec<usize> {
        self.streams
            .get(&id)
            .and_then(|stream| stream.capture.as_ref())
            .map_or_else(Vec::new, |state| state.frontier.clone())
    }

    /// Adds a node that depends on a capturing stream's frontier, and makes it the new frontier.
    pub fn add_node(&mut self, id: Id, action: Action) {
        let dependencies = self.frontier(id);
        let Some((graph, stream)) = self.captured_graph(id).zip(self.streams.get(&id)) else { return };
        if let Ok(index) = self.push_node(graph, action, dependencies, stream.device, stream.priority) {
            self.set_frontier(id, vec![index]);
        }
    }

    pub fn set_frontier(&mut self, id: Id, frontier: Vec<usize>) {
        if let Some(state) = self.streams.get_mut(&id).and_then(|stream| stream.capture.as_mut()) {
            state.frontier = frontier;
        }
    }

    /// Adds nodes to a capturing stream's frontier.
    pub fn extend_frontier(&mut self, id: Id, nodes: &[usize]) {
        let mut frontier = self.frontier(id);
        frontier.extend(nodes);
        frontier.sort_unstable();
        frontier.dedup();
        self.set_frontier(id, frontier);
    }

    /// Makes a stream join the capture that it waits for.
    pub fn join_capture(&mut self, id: Id, capture_id: Id, nodes: Vec<usize>) -> Result<(), Code> {
        let capture = self.captures.get_mut(&capture_id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let stream = self.streams.get_mut(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        if matches!(stream.kind, Kind::Legacy) {
            capture.invalid = true;
            return Err(codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        stream.capture = Some(CaptureState { capture: capture_id, frontier: nodes, reported: Vec::new() });
        capture.streams.push(id);
        Ok(())
    }

    /// Ends the capture that began in a stream. Returns its graph.
    pub fn end_capture(&mut self, id: Id, thread: u64) -> Result<Id, Code> {
        self.forbid_implicit(id)?;
        let stream = self.streams.get(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let capture_id = stream.capture.as_ref().ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?.capture;
        let capture = self.captures.get_mut(&capture_id).ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
        let wrong_thread = capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread;
        if capture.origin != id {
            capture.invalid = true;
            return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let (graph, invalid, streams) = (capture.graph, capture.invalid, capture.streams.clone());
        let result = if invalid {
            Err(codes::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        } else if wrong_thread {
            // As an H200's driver: the capture fails, but it ends.
            Err(codes::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        } else if self.is_joined(graph, id, &streams) {
            Ok(graph)
        } else {
            Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        };
        self.captures.remove(&capture_id);
        for stream in streams {
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.capture = None;
            }
        }
        self.finish_captured_graph(graph, result.is_ok());
        result
    }

    /// Makes the graph of an ended capture available to the program, or destroys it. As an H200's driver, a capture that
    /// fails destroys even a graph that existed before it.
    fn finish_captured_graph(&mut self, graph: Id, keep: bool) {
        match self.graphs.get_mut(&graph) {
            // The body of a conditional node belongs to the node.
            Some(graph) if keep || graph.parent.is_some() => graph.capturing = false,
            _ => self.drop_graph(graph),
        }
    }

    /// Returns whether the origin's frontier depends on everything that the other streams captured.
    fn is_joined(&self, graph: Id, origin: Id, streams: &[Id]) -> bool {
        let Some(graph) = self.graphs.get(&graph) else { return false };
        let reached = graph.ancestors(self.frontier(origin));
        streams.iter().all(|stream| self.frontier(*stream).iter().all(|index| reached[*index]))
    }

    /// Removes a stream that is being destroyed from its capture, and invalidates the capture.
    pub fn leave_capture(&mut self, id: Id) {
        let Some(state) = self.streams.get_mut(&id).and_then(|stream| stream.capture.take()) else { return };
        let Some(capture) = self.captures.get_mut(&state.capture) else { return };
        capture.invalid = true;
        capture.streams.retain(|stream| *stream != id);
        if capture.origin == id {
            // The capture can no longer be ended by a call, so it ends here.
            let (graph, streams) = (capture.graph, capture.streams.clone());
            self.captures.remove(&state.capture);
            for stream in streams {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.capture = None;
                }
            }
            self.finish_captured_graph(graph, false);
        }
    }

    /// Refuses a call that is unsafe during a capture, if the modes of this thread and of the capture prohibit it, and
    /// invalidates those captures.
    pub fn forbid_unsafe(&mut self, thread: u64) -> Result<(), Code> {
        if self.captures.is_empty() || MODE.get() == CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let mut result = Ok(());
        for capture in self.captures.values_mut() {
            let is_own = capture.thread == thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
            let is_global =
                MODE.get() == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            if is_own || is_global {
                capture.invalid = true;
                result = Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        result
    }

    /// Refuses to wait for or query a capturing stream, and invalidates its capture.
    pub fn forbid_capturing(&mut self, id: Id) -> Result<(), Code> {
        match self.capture_of(id) {
            Ok(None) => return Ok(()),
            Ok(Some(capture)) => self.invalidate(capture),
            Err(_) => {}
        }
        Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses to use the legacy stream while a stream that it waits for is capturing, and invalidates the captures.
    pub fn forbid_implicit(&mut self, id: Id) -> Result<(), Code> {
        let captures = self.implicit_dependencies(id);
        for capture in &captures {
            self.invalidate(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses to report whether the legacy stream is capturing while a stream that it waits for is.
    pub fn check_implicit(&self, id: Id) -> Result<(), Code> {
        if self.implicit_dependencies(id).is_empty() { Ok(()) } else { Err(codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Returns the captures that a use of this stream would depend on. Empty unless it is the legacy stream.
    fn implicit_dependencies(&self, id: Id) -> Vec<Id> {
        let legacy = self.streams.get(&id).filter(|stream| matches!(stream.kind, Kind::Legacy));
        let Some(legacy) = legacy.filter(|_| !self.captures.is_empty()) else { return Vec::new() };
        let blocks =
            |id: &Id| self.streams.get(id).is_some_and(|stream| stream.device == legacy.device && stream.is_blocking());
        let captures = self.captures.iter().filter(|(_, capture)| capture.streams.iter().any(blocks));
        captures.map(|(id, _)| *id).collect()
    }

    /// Refuses to wait for a device while one of its streams is capturing.
    pub fn forbid_device(&mut self, device: usize) -> Result<(), Code> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let streams = self.devices[device].streams.clone();
        streams.into_iter().map(|id| self.forbid_capturing(id)).fold(Ok(()), Result::and)
    }
}
