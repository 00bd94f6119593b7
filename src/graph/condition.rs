//! Conditional nodes: parts of a graph that are carried out, or carried out again, as the device decides while it runs.

use super::{
    Ready,
    build::{self, Place},
    lock,
    parts::Parts,
};
use crate::{
    driver::{Conditional, ConditionalKind, GraphNode, Span},
    error::{Context, Error, Result},
    runtime, sanitizer,
    status::Status,
    stream::{self, kernel::Kernel},
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// What is known of a condition.
#[derive(Debug, Clone, Copy)]
struct Known {
    condition: Conditional,
    device: u32,
    /// Whether a node asks it; no second one may.
    used: bool,
}

/// The conditions of the graphs that there are, by what programs call them.
static CONDITIONS: Mutex<Option<HashMap<u64, Known>>> = Mutex::new(None);

fn find(handle: u64) -> Result<Known> {
    CONDITIONS.lock().as_ref().and_then(|known| known.get(&handle)).copied().ok_or_else(|| {
        Error::new(
            Status::INVALID_HANDLE,
            format!("{handle:#x} is not a condition that plinth_graph_condition_create made, or its graph is gone"),
        )
    })
}

/// Forgets the conditions of a graph that goes.
pub(super) fn forget(handles: &[u64]) {
    if let Some(known) = CONDITIONS.lock().as_mut() {
        known.retain(|handle, _| !handles.contains(handle));
    }
}

/// Says what a driver needs to be for conditional nodes.
fn explain(error: Error, kind: ConditionalKind, size: u32) -> Error {
    if error.status() != Status::NOT_SUPPORTED {
        return error;
    }
    let wanted = if kind == ConditionalKind::Switch || size > 1 { "12.8" } else { "12.4" };
    error.context(format_args!("this needs a driver of CUDA {wanted} or newer"))
}

/// Makes a condition for one conditional node of a graph or of a body in it. Each replay begins with the default.
pub fn create(handle: u64, default: u32) -> Result<u64> {
    let attempt = "making a condition";
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut(attempt)?;
    let native = ready.nodes()?;
    let device = runtime.device(ready.kept.device as i32)?;
    let context = device.context(&runtime.driver)?;
    let condition = device
        .with_context(&runtime.driver, |driver| Ok(driver.graph_create_conditional(native, context, Some(default))?))
        .map_err(|error: Error| explain(error, ConditionalKind::If, 1))
        .context(|| attempt)?;
    let known = Known { condition, device: device.ordinal, used: false };
    CONDITIONS.lock().get_or_insert_default().insert(condition.handle(), known);
    ready.parts.add_condition(condition.handle());
    Ok(condition.handle())
}

/// Takes a condition for a node, or gives it back.
fn claim(handle: u64, used: bool) {
    if let Some(known) = CONDITIONS.lock().as_mut().and_then(|known| known.get_mut(&handle)) {
        known.used = used;
    }
}

/// Adds a conditional node with `size` bodies, whose handles come with it.
pub fn add(
    handle: u64,
    dependencies: &[usize],
    condition: u64,
    kind: ConditionalKind,
    size: u32,
) -> Result<(GraphNode, Vec<u64>)> {
    let attempt = "adding a conditional node to a graph";
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut(attempt)?;
    let known = find(condition).context(|| attempt)?;
    if known.used {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{attempt}: condition {condition:#x} is that of another node; each needs its own"),
        ));
    }
    if size == 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("{attempt}: it needs a body at least")));
    }
    let mut natives = Vec::new();
    let node = ready
        .add(runtime, dependencies, |place| {
            let Place { driver, graph, context, dependencies, .. } = *place;
            let added = driver.graph_add_conditional(graph, dependencies, known.condition, kind, size, context)?;
            natives = added.1;
            Ok(added.0)
        })
        .map_err(|error| explain(error, kind, size))
        .context(|| attempt)?;
    claim(condition, true);
    let mut bodies = Vec::with_capacity(natives.len());
    for native in natives {
        let parts: Parts = ready.parts.of_body();
        let inner = Ready { exec: None, native: Some(native), kept: Arc::clone(&ready.kept), parts };
        let inner = build::insert_ready(inner).context(|| attempt)?;
        ready.parts.add_body(inner);
        bodies.push(inner);
    }
    Ok((node, bodies))
}

/// Adds a kernel that gives a condition the 32-bit value that is in memory when it runs.
pub fn add_set(handle: u64, dependencies: &[usize], condition: u64, value: Span) -> Result<GraphNode> {
    let known = find(condition).context(|| "setting a condition")?;
    check(value)?;
    let runtime = runtime::ready()?;
    let function = runtime.device(known.device as i32)?.kernel(&runtime.driver, Kernel::ConditionSet)?;
    build::add(handle, dependencies, "the setting of a condition", |place| {
        let Place { driver, graph, dependencies, .. } = *place;
        Ok(driver.graph_add_condition_set(graph, dependencies, function, known.condition, value)?)
    })
}

/// The same, captured: launched in a stream that captures.
pub fn set_from(condition: u64, value: Span, stream_handle: usize) -> Result<()> {
    let attempt = "setting a condition";
    let known = find(condition).context(|| attempt)?;
    check(value)?;
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, stream_handle)?;
    if stream.device != known.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{attempt}: it is of device {}, the stream of device {}", known.device, stream.device),
        ));
    }
    if !stream::is_capturing_checked(runtime, stream)? {
        return Err(Error::new(
            Status::GRAPH_NOT_CAPTURING,
            format!("{attempt}: only a part of the graph that asks can set it, and the stream is not capturing"),
        ));
    }
    let function = runtime.device(known.device as i32)?.kernel(&runtime.driver, Kernel::ConditionSet)?;
    sanitizer::access(runtime, stream, &[sanitizer::read(value.with_length(size_of::<u32>()))])?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.launch_condition_set(function, known.condition, value, raw)?))
        .context(|| "launching plinth_condition_set")
}

fn check(value: Span) -> Result<()> {
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
