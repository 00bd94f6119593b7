//! Conditional nodes: the device decides during a replay whether their bodies run, and run again.

use super::{
    Ready,
    build::{self, NodeTarget},
    lock,
    parts::Parts,
};
use crate::{
    driver::{Conditional, ConditionalKind, GraphNode, Span},
    error::{Context, Error, Result},
    observe, runtime,
    status::Status,
    stream::{self, kernel::Kernel},
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// The state of a condition.
#[derive(Debug, Clone, Copy)]
struct ConditionState {
    condition: Conditional,
    device: u32,
    /// Whether a node uses the condition; a second node must not.
    used: bool,
}

/// The conditions of all live graphs, by handle.
static CONDITIONS: Mutex<Option<HashMap<u64, ConditionState>>> = Mutex::new(None);

fn find(handle: u64) -> Result<ConditionState> {
    CONDITIONS.lock().as_ref().and_then(|known| known.get(&handle)).copied().ok_or_else(|| {
        Error::new(
            Status::INVALID_HANDLE,
            format!("{handle:#x} is not a condition of plinth_graph_condition_create, or its graph was destroyed"),
        )
    })
}

/// Removes the conditions of a graph that is destroyed.
pub(super) fn remove(handles: &[u64]) {
    if let Some(known) = CONDITIONS.lock().as_mut() {
        known.retain(|handle, _| !handles.contains(handle));
    }
}

/// Adds the required driver version to an error about missing support.
fn add_required_version(error: Error, kind: ConditionalKind, size: u32) -> Error {
    if error.status() != Status::NOT_SUPPORTED {
        return error;
    }
    let version = if kind == ConditionalKind::Switch || size > 1 { "12.8" } else { "12.4" };
    error.context(format_args!("this needs a driver of CUDA {version} or newer"))
}

/// Creates a condition for one conditional node of a graph or of a body in it. Each replay starts with the default
/// value.
pub fn create(handle: u64, default: u32) -> Result<u64> {
    let attempt = "creating a condition";
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut(attempt)?;
    let native = ready.nodes()?;
    let device = runtime.device(ready.resources.device as i32)?;
    let context = device.context(&runtime.driver)?;
    let condition = device
        .with_context(&runtime.driver, |driver| Ok(driver.graph_create_conditional(native, context, Some(default))?))
        .map_err(|error: Error| add_required_version(error, ConditionalKind::If, 1))
        .context(|| attempt)?;
    let known = ConditionState { condition, device: device.ordinal, used: false };
    CONDITIONS.lock().get_or_insert_default().insert(condition.handle(), known);
    ready.parts.add_condition(condition.handle());
    Ok(condition.handle())
}

/// Marks a condition as used or unused.
fn set_used(handle: u64, used: bool) {
    if let Some(known) = CONDITIONS.lock().as_mut().and_then(|known| known.get_mut(&handle)) {
        known.used = used;
    }
}

/// Adds a conditional node with `size` bodies. Returns the node and the handles of the bodies.
pub fn add(
    handle: u64,
    dependencies: &[usize],
    condition: u64,
    kind: ConditionalKind,
    size: u32,
) -> Result<(GraphNode, Vec<u64>)> {
    let attempt = "adding a conditional node to a graph";
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut(attempt)?;
    let known = find(condition).context(|| attempt)?;
    if known.used {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{attempt}: condition {condition:#x} belongs to another node; create one for each node"),
        ));
    }
    if size == 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("{attempt}: size is 0; it must be at least 1")));
    }
    let mut natives = Vec::new();
    let node = ready
        .add(runtime, dependencies, |target| {
            let NodeTarget { driver, graph, context, dependencies, .. } = *target;
            let added = driver.graph_add_conditional(graph, dependencies, known.condition, kind, size, context)?;
            natives = added.1;
            Ok(added.0)
        })
        .map_err(|error| add_required_version(error, kind, size))
        .context(|| attempt)?;
    set_used(condition, true);
    let mut bodies = Vec::with_capacity(natives.len());
    for native in natives {
        let parts: Parts = ready.parts.for_body();
        let inner =
            Ready { exec: None, native: Some(native), resources: Arc::clone(&ready.resources), parts, updated: None };
        let inner = build::insert_ready(inner).context(|| attempt)?;
        ready.parts.add_body(inner);
        bodies.push(inner);
    }
    Ok((node, bodies))
}

/// Adds a kernel that sets a condition to the 32-bit value in memory at the time it runs.
pub fn add_set(handle: u64, dependencies: &[usize], condition: u64, value: Span) -> Result<GraphNode> {
    let known = find(condition).context(|| "setting a condition")?;
    check_value(value)?;
    let runtime = runtime::ready()?;
    let function = runtime.device(known.device as i32)?.kernel(&runtime.driver, Kernel::ConditionSet)?;
    build::add(handle, dependencies, "a kernel that sets a condition", |target| {
        let NodeTarget { driver, graph, dependencies, .. } = *target;
        Ok(driver.graph_add_condition_set(graph, dependencies, function, known.condition, value)?)
    })
}

/// Launches the same kernel in a capturing stream.
pub fn set_from(condition: u64, value: Span, stream_handle: usize) -> Result<()> {
    let attempt = "setting a condition";
    let known = find(condition).context(|| attempt)?;
    check_value(value)?;
    let runtime = runtime::ready()?;
    let stream = stream::resolve_same(runtime, stream_handle, known.device).context(|| attempt)?;
    if !stream::is_validated_capturing(runtime, stream)? {
        return Err(Error::new(
            Status::GRAPH_NOT_CAPTURING,
            format!("{attempt}: only a node of the condition's graph can set it, and the stream is not capturing"),
        ));
    }
    let function = runtime.device(known.device as i32)?.kernel(&runtime.driver, Kernel::ConditionSet)?;
    observe::access(runtime, stream, &[observe::read(value.with_length(size_of::<u32>()))])?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.launch_condition_set(function, known.condition, value, raw)?))
        .context(|| "launching plinth_condition_set")
}

fn check_value(value: Span) -> Result<()> {
    if value.address() == 0 {
        return Err(Error::new(Status::NULL_POINTER, "value is NULL"));
    }
    if !value.address().is_multiple_of(4) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("value: {:#x} is not aligned to a 32-bit integer", value.address()),
        ));
    }
    Ok(())
}
