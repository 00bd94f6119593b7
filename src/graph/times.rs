//! The times of a graph's nodes, each for itself.
//!
//! A copy of the graph is made serial: its nodes one after the other, in an order that their dependencies allow, with the
//! recording of an event before, between and behind them. That is replayed, and the events tell the times.

use super::{Ready, destroy_exec, destroy_native, draw, lock, replay, replay_order::Overlap};
use crate::{
    driver::{Driver, Event, Graph, GraphExec, GraphNode, NodeType},
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
    stream::{self, event_pool},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    fmt::Write,
};

/// The most repeats of a measurement.
pub const MOST_REPEATS: u32 = 10_000;

/// How long a node takes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTime {
    /// The node.
    pub node: GraphNode,
    /// What it is.
    pub kind: NodeType,
    /// The same as a word.
    pub kind_name: &'static str,
    /// What it does: for a kernel its name and its launch.
    pub what: String,
    /// The median of its times.
    pub microseconds: f64,
}

/// Runs a graph `repeats` times and once before that, its nodes one after the other, and tells their times in the order
/// in which they ran.
pub fn measure(handle: u64, repeats: u32) -> Result<Vec<NodeTime>> {
    let attempt = "timing the nodes of a graph";
    if repeats == 0 || repeats > MOST_REPEATS {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{attempt}: repeats is {repeats}; it can be 1 to {MOST_REPEATS}"),
        ));
    }
    let runtime = runtime::ready()?;
    let body = lock(handle)?;
    let ready = body.ready(attempt)?;
    ready.parts.check_whole()?;
    sync_debug::check("plinth_graph_node_times")?;
    measure_ready(runtime, ready, repeats).context(|| attempt)
}

/// The same as a text: a line for each node, with tabs between the time, the type, and what it does, then their sum.
pub fn table(times: &[NodeTime]) -> String {
    let mut text = String::from("microseconds\ttype\twhat\n");
    for time in times {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{:.2}\t{}\t{}", time.microseconds, time.kind_name, time.what);
    }
    let sum: f64 = times.iter().map(|time| time.microseconds).sum();
    let _ = writeln!(text, "{sum:.2}\tall\t{} nodes, one after the other", times.len());
    text
}

fn measure_ready(runtime: &Runtime, ready: &Ready, repeats: u32) -> Result<Vec<NodeTime>> {
    let native = ready.nodes()?;
    let mut times = runtime.in_any_context(|driver| {
        let nodes = order(&driver.graph_nodes(native)?, &driver.graph_edges(native)?)?;
        nodes.into_iter().map(|node| describe(driver, node)).collect::<Result<Vec<_>>>()
    })?;
    if times.iter().any(|time| time.kind == NodeType::Conditional) {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "the graph has a conditional node, and the driver does not copy such graphs, which this would have to",
        ));
    }
    if times.is_empty() {
        return Ok(times);
    }
    let device = runtime.device(ready.kept.device as i32)?;
    let mut events = Vec::with_capacity(times.len() + 1);
    let samples = take_events(runtime, device, times.len() + 1, &mut events)
        .and_then(|()| with_serial(runtime, ready, native, &times, &events, repeats));
    for event in events {
        event_pool::give_back(device, event_pool::TIMING, event);
    }
    for (time, mut samples) in times.iter_mut().zip(samples?) {
        samples.sort_by(f64::total_cmp);
        time.microseconds = samples[samples.len() / 2];
    }
    Ok(times)
}

fn take_events(runtime: &Runtime, device: &Device, count: usize, events: &mut Vec<Event>) -> Result<()> {
    for _ in 0..count {
        events.push(event_pool::take(device, &runtime.driver, event_pool::TIMING)?);
    }
    Ok(())
}

fn describe(driver: &Driver, node: GraphNode) -> Result<NodeTime> {
    let (kind_name, what) = draw::describe(driver, node)?;
    Ok(NodeTime { node, kind: driver.graph_node_type(node)?, kind_name, what, microseconds: 0.0 })
}

/// The nodes in an order in which they can run: that of the list where that is one.
fn order(nodes: &[GraphNode], edges: &[(GraphNode, GraphNode)]) -> Result<Vec<GraphNode>> {
    let mut waits: HashMap<GraphNode, usize> = HashMap::new();
    let mut next: HashMap<GraphNode, Vec<GraphNode>> = HashMap::new();
    for (from, to) in edges {
        *waits.entry(*to).or_default() += 1;
        next.entry(*from).or_default().push(*to);
    }
    let place: HashMap<GraphNode, usize> = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !waits.contains_key(node))
        .map(|(place, _)| Reverse(place))
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(first)) = ready.pop() {
        order.push(nodes[first]);
        for follower in next.get(&nodes[first]).into_iter().flatten() {
            if let (Some(left), Some(place)) = (waits.get_mut(follower), place.get(follower)) {
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse(*place));
                }
            }
        }
    }
    if order.len() == nodes.len() {
        return Ok(order);
    }
    Err(Error::new(Status::INVALID_VALUE, "the graph's nodes wait for each other in a circle"))
}

/// Makes the serial copy, runs it, and gives the times of each node.
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
        .in_any_context(|driver| chain(driver, serial, times, events))
        .and_then(|()| replay::instantiate_native(runtime, ready.kept.device, serial))
        .and_then(|exec| {
            let samples = run(runtime, ready, exec, events, repeats);
            let destroyed = destroy_exec(runtime, exec);
            samples.and_then(|samples| destroyed.map(|()| samples))
        });
    let destroyed = destroy_native(runtime, serial);
    samples.and_then(|samples| destroyed.map(|()| samples))
}

/// Puts the nodes of a copy one behind the other, with a recording between any two.
fn chain(driver: &Driver, serial: Graph, times: &[NodeTime], events: &[Event]) -> Result<()> {
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

/// Replays the copy, and asks the events after each replay.
fn run(runtime: &Runtime, ready: &Ready, exec: GraphExec, events: &[Event], repeats: u32) -> Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::with_capacity(repeats as usize); events.len() - 1];
    for round in 0..=repeats {
        ready.run(runtime, exec, Overlap::Order)?;
        let stream = stream::current_on(runtime, ready.kept.device)?;
        runtime.in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))?;
        // The first one brings the graph to the device.
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
    fn nodes_run_behind_what_they_wait_for() {
        let nodes = [node(1), node(2), node(3), node(4)];
        assert_eq!(order(&nodes, &[]).unwrap(), nodes);
        let edges = [(node(4), node(1)), (node(3), node(1)), (node(2), node(3))];
        assert_eq!(order(&nodes, &edges).unwrap(), [node(2), node(3), node(4), node(1)]);
        let circle = [(node(1), node(2)), (node(2), node(1))];
        assert!(order(&nodes, &circle).unwrap_err().message().contains("in a circle"));
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
