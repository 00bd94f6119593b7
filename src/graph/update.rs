//! Updates and copies of graphs.

use super::{GraphState, Ready, Stage, UpdatedResources, insert, lock};
use crate::{
    base::retry::retry,
    driver::{self, UpdateError, UpdateRefusal},
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use std::sync::Arc;

/// Makes a graph's later replays do what another graph does, which must have kept its nodes. They then use the other
/// one's memory and generators. The graph's own nodes, if it kept them, still use its own.
pub fn update(handle: u64, other: u64) -> Result<()> {
    let attempt = "updating a graph";
    if handle == other {
        return Err(Error::new(Status::INVALID_VALUE, "a graph cannot be updated to itself"));
    }
    let runtime = runtime::ready()?;
    // Locked in a fixed order, because two threads may update two graphs to each other.
    let (mut graph_state, other) = if handle < other {
        let graph_state = lock(handle)?;
        (graph_state, lock(other)?)
    } else {
        let other = lock(other)?;
        (lock(handle)?, other)
    };
    let (nodes, resources, parts) = {
        let ready = other.ready("updating a graph to another")?;
        (ready.nodes()?, Arc::clone(&ready.resources), ready.parts.part_resources())
    };
    let ready = graph_state.ready_mut(attempt)?;
    if ready.resources.device != resources.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{attempt}: it is on device {}, the other on device {}", ready.resources.device, resources.device),
        ));
    }
    ready.update(runtime, nodes).context(|| attempt)?;
    // Nodes of the executable graph may have been changed or disabled before.
    resources.write_each_time();
    // Without nodes, nothing uses the graph's own resources any more.
    let own = ready.native.is_none().then(|| std::mem::replace(&mut ready.resources, Arc::clone(&resources)));
    let before = ready.updated.replace(UpdatedResources { resources, parts });
    drop((graph_state, other));
    // Memory that nothing uses any more is released now, ordered after the last replay, while no graph is locked.
    drop((own, before));
    Ok(())
}

/// Makes a graph's later replays do what a driver graph does.
pub fn update_native(handle: u64, native: driver::Graph) -> Result<()> {
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut("updating a graph")?;
    ready.replay_resources().write_each_time();
    ready.update(runtime::ready()?, native).context(|| "updating a graph")
}

/// Copies a graph that kept its nodes. Both share memory and generators.
pub fn clone(handle: u64) -> Result<u64> {
    let runtime = runtime::ready()?;
    let graph_state = lock(handle)?;
    let ready = graph_state.ready("copying a graph")?;
    let nodes = ready.nodes()?;
    let native = runtime.in_any_context(|driver| Ok(driver.graph_clone(nodes)?)).context(|| "copying a graph")?;
    let copy = Ready {
        exec: None,
        native: Some(native),
        resources: Arc::clone(&ready.resources),
        parts: ready.parts.for_copy(),
        updated: None,
    };
    let copy = GraphState {
        keep: true,
        debug: graph_state.debug,
        overlap: graph_state.overlap,
        stage: Stage::Ready(copy),
        ..GraphState::default()
    };
    drop(graph_state);
    insert(copy).inspect_err(|_| {
        // The error of the handle table is returned.
        retry(|| super::destroy_native(runtime, native));
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
        UpdateError::TopologyChanged => "the nodes or their edges differ".to_string(),
        UpdateError::NodeTypeChanged => "a node has another type".to_string(),
        UpdateError::FunctionChanged => "a node runs another kernel".to_string(),
        UpdateError::ParametersChanged => "a node's parameters differ in a way that cannot be updated".to_string(),
        UpdateError::NotSupported => "a node has a type that cannot be updated".to_string(),
        UpdateError::UnsupportedFunctionChange => {
            "a node runs another kernel that cannot replace the original one".to_string()
        }
        UpdateError::AttributesChanged => "a node's attributes differ in a way that cannot be updated".to_string(),
        UpdateError::Other(number) => format!("the driver's reason has the number {number}"),
    };
    let place = number.map(|number| format!(" (node {number} of the other graph)")).unwrap_or_default();
    Error::new(Status::GRAPH_UPDATE_REFUSED, format!("{reason}{place}; the graph is unchanged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_reason_and_the_node() {
        let refusal = UpdateRefusal { error: UpdateError::TopologyChanged, node: None, from: None };
        assert_eq!(refused(refusal, None).message(), "the nodes or their edges differ; the graph is unchanged");
        let error = refused(UpdateRefusal { error: UpdateError::Other(99), ..refusal }, Some(4));
        assert_eq!(error.status(), Status::GRAPH_UPDATE_REFUSED);
        assert_eq!(
            error.message(),
            "the driver's reason has the number 99 (node 4 of the other graph); the graph is unchanged"
        );
    }
}
