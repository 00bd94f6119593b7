//! Measurement of the time that each node of a graph takes by itself.
//!
//! The nodes of a copy of the graph are chained in a topological order, with event records before, between and after
//! them. The copy is replayed, and the events give the times.

use super::{Ready, destroy_exec, destroy_native, draw, lock, replay, replay_order::Overlap};
use crate::{
    driver::{Driver, Event, Graph, GraphExec, GraphNode, NodeType},
    error::{Context, Error, Result},
    runtime::{self, Runtime, sync_debug},
    status::Status,
    stream::{
        self,
        event_pool::{self, PooledEvent},
    },
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    fmt::Write,
};

/// The most repeats of a measurement.
pub const MAX_REPEATS: u32 = 10_000;

/// The time of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTime {
    /// The node.
    pub node: GraphNode,
    /// The type of the node.
    pub kind: NodeType,
    /// The type as a word.
    pub kind_name: &'static str,
    /// What the node does: for a kernel its name and its launch.
    pub what: String,
    /// The median of the node's times.
    pub microseconds: f64,
}

/// Runs a graph once for warm-up and then `repeats` times, with its nodes one after the other. Returns the nodes'
/// times in the order in which they ran.
pub fn measure(handle: u64, repeats: u32) -> Result<Vec<NodeTime>> {
    let attempt = "timing the nodes of a graph";
    if repeats == 0 || repeats > MAX_REPEATS {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{attempt}: repeats is {repeats}; it can be 1 to {MAX_REPEATS}"),
        ));
    }
    let runtime = runtime::ready()?;
    lock(handle)?.ready(attempt)?.parts.check_not_body()?;
    // Calls the program's callback, which may use the graph.
    sync_debug::check("plinth_graph_node_times")?;
    let graph_state = lock(handle)?;
    let ready = graph_state.ready(attempt)?;
    ready.parts.check_not_body()?;
    measure_ready(runtime, ready, repeats).context(|| attempt)
}

/// Formats times as a text: a line for each node with the time, the type and what it does, separated by tabs, then a
/// line with the sum.
pub fn table(times: &[NodeTime]) -> String {
    let mut text = String::from("microseconds\ttype\twhat\n");
    for time in times {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:.2}\t{}\t{}", time.microseconds, time.kind_name, time.what);
    }
    let sum: f64 = times.iter().map(|time| time.microseconds).sum();
    let _ = writeln!(text, "{sum:.2}\tall\t{} nodes, one after the other", times.len());
    text
}

fn measure_ready(runtime: &Runtime, ready: &Ready, repeats: u32) -> Result<Vec<NodeTime>> {
    let native = ready.nodes()?;
    let mut times = runtime.in_any_context(|driver| {
        let nodes = topological_order(&driver.graph_nodes(native)?, &driver.graph_edges(native)?)?;
        nodes.into_iter().map(|node| describe(driver, node)).collect::<Result<Vec<_>>>()
    })?;
    if times.iter().any(|time| time.kind == NodeType::Conditional) {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "the graph has a conditional node; timing copies the graph, and the driver cannot copy such graphs",
        ));
    }
    if times.is_empty() {
        return Ok(times);
    }
    let device = runtime.device(ready.resources.device as i32)?;
    let acquire = |_| PooledEvent::acquire(device, &runtime.driver, event_pool::TIMING);
    let pooled = (0..=times.len()).map(acquire).collect::<Result<Vec<PooledEvent>>>()?;
    let events: Vec<Event> = pooled.iter().map(PooledEvent::native).collect();
    let samples = with_serial(runtime, ready, native, &times, &events, repeats)?;
    for (time, mut samples) in times.iter_mut().zip(samples) {
        samples.sort_unstable_by(f64::total_cmp);
        time.microseconds = samples[samples.len() / 2];
    }
    Ok(times)
}

fn describe(driver: &Driver, node: GraphNode) -> Result<NodeTime> {
    let (kind_name, what) = draw::describe(driver, node)?;
    Ok(NodeTime { node, kind: driver.graph_node_type(node)?, kind_name, what, microseconds: 0.0 })
}

/// Returns the nodes in a topological order, which keeps the order of the list where possible.
fn topological_order(nodes: &[GraphNode], edges: &[(GraphNode, GraphNode)]) -> Result<Vec<GraphNode>> {
    let mut waits: HashMap<GraphNode, usize> = HashMap::new();
    let mut next: HashMap<GraphNode, Vec<GraphNode>> = HashMap::new();
    for (from, to) in edges {
        *waits.entry(*to).or_default() += 1;
        next.entry(*from).or_default().push(*to);
    }
    let positions: HashMap<GraphNode, usize> =
        nodes.iter().enumerate().map(|(position, node)| (*node, position)).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !waits.contains_key(node))
        .map(|(position, _)| Reverse(position))
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(first)) = ready.pop() {
        order.push(nodes[first]);
        for follower in next.get(&nodes[first]).into_iter().flatten() {
            if let (Some(left), Some(position)) = (waits.get_mut(follower), positions.get(follower)) {
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse(*position));
                }
            }
        }
    }
    if order.len() == nodes.len() {
        return Ok(order);
    }
    Err(Error::new(Status::INVALID_VALUE, "the graph's nodes depend on each other in a cycle"))
}

/// Creates the serial copy, runs it, and returns the times of each node.
fn with_serial(
    runtime: &Runtime,
    ready: &Ready,
    native: Graph,
    times: &[NodeTime],
    events: &[Event],
    repeats: u32,
) -> Result<Vec<Vec<f64>>> {
    let serial = runtime.in_any_context(|driver| Ok(driver.graph_clone(native)?))?;
    let samples = runtime
        .in_any_context(|driver| chain_nodes(driver, serial, times, events))
        .and_then(|()| replay::instantiate_native(runtime, ready.resources.device, serial))
        .and_then(|exec| {
            let samples = run(runtime, ready, exec, events, repeats);
            let destroyed = destroy_exec(runtime, exec);
            samples.and_then(|samples| destroyed.map(|()| samples))
        });
    let destroyed = destroy_native(runtime, serial);
    samples.and_then(|samples| destroyed.map(|()| samples))
}

/// Chains the nodes of a copy, with an event record before, between and after them.
fn chain_nodes(driver: &Driver, serial: Graph, times: &[NodeTime], events: &[Event]) -> Result<()> {
    let mut last: Option<GraphNode> = None;
    for (time, event) in times.iter().zip(events) {
        let node = driver.graph_node_in_clone(time.node, serial)?;
        let recording = driver.graph_add_event_record(serial, last.as_slice(), *event)?;
        driver.graph_add_dependencies(serial, &[(recording, node)])?;
        last = Some(node);
    }
    if let Some(event) = events.last() {
        driver.graph_add_event_record(serial, last.as_slice(), *event)?;
    }
    Ok(())
}

/// Replays the copy, and reads the events after each replay.
fn run(runtime: &Runtime, ready: &Ready, exec: GraphExec, events: &[Event], repeats: u32) -> Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::with_capacity(repeats as usize); events.len() - 1];
    for round in 0..=repeats {
        ready.run_with(runtime, exec, Overlap::Order, None)?;
        let stream = stream::current_on(runtime, ready.resources.device)?;
        runtime.in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))?;
        // The first replay uploads the graph to the device.
        if round > 0 {
            for (samples, pair) in samples.iter_mut().zip(events.windows(2)) {
                let elapsed = runtime.in_any_context(|driver| Ok(driver.event_elapsed_time(pair[0], pair[1])?))?;
                samples.push(f64::from(elapsed) * 1e3);
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> GraphNode {
        GraphNode::dangling(number)
    }

    #[test]
    fn nodes_run_after_their_dependencies() {
        let nodes = [node(1), node(2), node(3), node(4)];
        assert_eq!(topological_order(&nodes, &[]).unwrap(), nodes);
        let edges = [(node(4), node(1)), (node(3), node(1)), (node(2), node(3))];
        assert_eq!(topological_order(&nodes, &edges).unwrap(), [node(2), node(3), node(4), node(1)]);
        let cycle = [(node(1), node(2)), (node(2), node(1))];
        assert!(topological_order(&nodes, &cycle).unwrap_err().message().contains("in a cycle"));
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let time = |microseconds| NodeTime {
            node: node(1),
            kind: NodeType::Memset,
            kind_name: "memset",
            what: "zeros".to_string(),
            microseconds,
        };
        let text = table(&[time(1.5), time(2.25)]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["1.50\tmemset\tzeros", "2.25\tmemset\tzeros", "3.75\tall\t2 nodes, one after the other"]);
    }
}
