//! Changing what a graph does, and copying it.

use super::{Body, Ready, Stage, insert, lock};
use crate::{
    driver::{self, UpdateError, UpdateRefusal},
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use std::sync::Arc;

/// Lets a graph's replays from now on do what another does that kept its nodes, with the other's memory and generators.
pub fn update(handle: u64, other: u64) -> Result<()> {
    let attempt = "updating a graph";
    if handle == other {
        return Err(Error::new(Status::INVALID_VALUE, "a graph cannot be updated to itself"));
    }
    let runtime = runtime::ready()?;
    // Always in the same order: two threads may update two graphs to each other.
    let (mut body, other) = if handle < other {
        let body = lock(handle)?;
        (body, lock(other)?)
    } else {
        let other = lock(other)?;
        (lock(handle)?, other)
    };
    let (nodes, kept) = {
        let ready = other.ready("updating a graph to another")?;
        (ready.nodes()?, Arc::clone(&ready.kept))
    };
    let ready = body.ready_mut(attempt)?;
    if ready.kept.device != kept.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{attempt}: it is on device {}, the other on device {}", ready.kept.device, kept.device),
        ));
    }
    ready.update(runtime, nodes).context(|| attempt)?;
    let before = std::mem::replace(&mut ready.kept, kept);
    drop((body, other));
    // Its memory goes back now, behind the last replay, unless another graph has it, too.
    drop(before);
    Ok(())
}

/// Lets a graph's replays from now on do what a graph of the driver's says.
pub fn update_native(handle: u64, native: driver::Graph) -> Result<()> {
    let mut body = lock(handle)?;
    body.ready_mut("updating a graph")?.update(runtime::ready()?, native).context(|| "updating a graph")
}

/// Copies a graph that kept its nodes. Both share memory and generators.
pub fn clone(handle: u64) -> Result<u64> {
    let runtime = runtime::ready()?;
    let body = lock(handle)?;
    let ready = body.ready("copying a graph")?;
    let nodes = ready.nodes()?;
    let native = runtime.in_any_context(|driver| Ok(driver.graph_clone(nodes)?)).context(|| "copying a graph")?;
    let copy = Ready { exec: None, native: Some(native), kept: Arc::clone(&ready.kept), parts: ready.parts.of_copy() };
    let copy =
        Body { keep: true, debug: body.debug, overlap: body.overlap, stage: Stage::Ready(copy), ..Body::default() };
    drop(body);
    insert(copy).inspect_err(|_| {
        // The error that counts is the table's.
        let _ = super::destroy_native(runtime, native);
    })
}

impl Ready {
    fn update(&mut self, runtime: &Runtime, native: driver::Graph) -> Result<()> {
        let exec = self.executable(runtime)?;
        let outcome = runtime
            .in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.graph_exec_update(exec, native))??))?;
        outcome.map_err(|refusal| {
            let number = refusal.node.and_then(|node| {
                let nodes = runtime.in_any_context(|driver| Ok(driver.graph_nodes(native)?)).ok()?;
                nodes.iter().position(|other| *other == node)
            });
            refused(refusal, number)
        })
    }
}

#[cold]
fn refused(refusal: UpdateRefusal, number: Option<usize>) -> Error {
    let reason = match refusal.error {
        UpdateError::TopologyChanged => "the nodes or their edges are others".to_string(),
        UpdateError::NodeTypeChanged => "a node is of another type".to_string(),
        UpdateError::FunctionChanged => "a node runs another kernel".to_string(),
        UpdateError::ParametersChanged => "a node's parameters differ in what cannot be changed".to_string(),
        UpdateError::NotSupported => "a node is of a kind that cannot be updated".to_string(),
        UpdateError::UnsupportedFunctionChange => {
            "a node runs another kernel, one that cannot take the place of the one before".to_string()
        }
        UpdateError::AttributesChanged => "a node's attributes differ in what cannot be changed".to_string(),
        UpdateError::Other(number) => format!("the driver's reason is {number}"),
    };
    let place = number.map(|number| format!(" (node {number} of the other graph)")).unwrap_or_default();
    Error::new(Status::GRAPH_UPDATE_REFUSED, format!("{reason}{place}; the graph is as it was"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why_and_where() {
        let refusal = UpdateRefusal { error: UpdateError::TopologyChanged, node: None, from: None };
        assert_eq!(refused(refusal, None).message(), "the nodes or their edges are others; the graph is as it was");
        let error = refused(UpdateRefusal { error: UpdateError::Other(99), ..refusal }, Some(4));
        assert_eq!(error.status(), Status::GRAPH_UPDATE_REFUSED);
        assert_eq!(error.message(), "the driver's reason is 99 (node 4 of the other graph); the graph is as it was");
    }
}
