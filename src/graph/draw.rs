//! Descriptions of a graph: a Graphviz drawing, and a table of its nodes.

use super::lock;
use crate::{
    base::units::Bytes,
    driver::{Driver, Graph, GraphNode, NodeType, types::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE},
    error::{Context, Error, Result},
    runtime,
    status::Status,
};
use std::{collections::HashMap, ffi::CString, fmt::Write, os::unix::ffi::OsStrExt, path::Path};

/// Writes a graph to a file in the DOT language of Graphviz.
pub fn debug_dump(handle: u64, path: &Path) -> Result<()> {
    let runtime = runtime::ready()?;
    let graph_state = lock(handle)?;
    let native = graph_state.ready("drawing a graph")?.nodes()?;
    let file = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(Status::INVALID_VALUE, "a path cannot hold a NUL"))?;
    runtime
        .in_any_context(|driver| Ok(driver.graph_draw(native, &file, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)?))
        .context(|| format!("drawing a graph into {}", path.display()))
}

/// Returns a table of a graph's nodes. Each line has, separated by tabs, a node's number, its layer, its position in
/// that layer, its type, what it does, and the numbers of the nodes that it depends on.
pub fn summary(handle: u64) -> Result<String> {
    let runtime = runtime::ready()?;
    let graph_state = lock(handle)?;
    let native = graph_state.ready("describing a graph")?.nodes()?;
    let nodes = runtime.in_any_context(|driver| read(driver, native)).context(|| "describing a graph")?;
    Ok(table(&nodes))
}

struct Node {
    kind: &'static str,
    what: String,
    waits_for: Vec<usize>,
}

fn read(driver: &Driver, graph: Graph) -> Result<Vec<Node>> {
    let handles = driver.graph_nodes(graph)?;
    let numbers: HashMap<GraphNode, usize> = handles.iter().enumerate().map(|(number, node)| (*node, number)).collect();
    let mut nodes = Vec::with_capacity(handles.len());
    for handle in &handles {
        let (kind, what) = describe(driver, *handle)?;
        nodes.push(Node { kind, what, waits_for: Vec::new() });
    }
    for (from, to) in driver.graph_edges(graph)? {
        if let (Some(from), Some(to)) = (numbers.get(&from), numbers.get(&to)) {
            nodes[*to].waits_for.push(*from);
        }
    }
    for node in &mut nodes {
        node.waits_for.sort_unstable();
    }
    Ok(nodes)
}

/// Returns the type of a node as a word, and what the node does.
pub(super) fn describe(driver: &Driver, node: GraphNode) -> Result<(&'static str, String)> {
    Ok(match driver.graph_node_type(node)? {
        NodeType::Kernel => {
            let kernel = driver.graph_kernel(node)?;
            let name = match kernel.function {
                Some(function) => driver.function_name(function)?,
                None => "a kernel".to_string(),
            };
            let ([x, y, z], [a, b, c]) = (kernel.grid, kernel.block);
            ("kernel", format!("{name} <<<{x}x{y}x{z}, {a}x{b}x{c}, {}>>>", kernel.shared_bytes))
        }
        NodeType::Memcpy => {
            let copy = driver.graph_copy(node)?;
            let bytes = copy.width as u64 * copy.height as u64 * copy.depth as u64;
            ("memcpy", format!("{} from {:#x} to {:#x}", Bytes(bytes), copy.source, copy.destination))
        }
        NodeType::Memset => {
            let fill = driver.graph_fill(node)?;
            let bytes = fill.width as u64 * u64::from(fill.element_size) * fill.rows as u64;
            let (value, digits) = (fill.value, 2 + 2 * fill.element_size as usize);
            ("memset", format!("{} at {:#x} with {value:#0digits$x}", Bytes(bytes), fill.address()))
        }
        NodeType::Host => ("host", format!("{:#x}", driver.graph_host(node)?.function)),
        NodeType::Graph => ("graph", format!("{} nodes", driver.graph_node_count(driver.graph_child(node)?)?)),
        NodeType::Empty => ("empty", String::new()),
        NodeType::WaitEvent => ("wait_event", String::new()),
        NodeType::EventRecord => ("event_record", String::new()),
        NodeType::Conditional => ("conditional", String::new()),
        NodeType::Other(number) => ("other", format!("type {number}")),
    })
}

/// Returns for each node the length of the longest path to it.
fn layers(nodes: &[Node]) -> Vec<usize> {
    let mut layers = vec![0; nodes.len()];
    // Captured nodes follow their dependencies, so one pass suffices; built nodes may need more.
    for _ in 0..nodes.len() {
        let mut changed = false;
        for (number, node) in nodes.iter().enumerate() {
            let layer = node.waits_for.iter().map(|other| layers[*other] + 1).max().unwrap_or(0);
            changed |= layer != layers[number];
            layers[number] = layer;
        }
        if !changed {
            break;
        }
    }
    layers
}

fn table(nodes: &[Node]) -> String {
    let mut text = String::from("node\tlayer\tplace\ttype\twhat\twaits_for\n");
    let mut used: HashMap<usize, usize> = HashMap::new();
    for ((number, node), layer) in nodes.iter().enumerate().zip(layers(nodes)) {
        let place = used.entry(layer).or_default();
        let waits_for: Vec<String> = node.waits_for.iter().map(ToString::to_string).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{number}\t{layer}\t{place}\t{}\t{}\t{}", node.kind, node.what, waits_for.join(","));
        *place += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_follow_dependencies() {
        let node = |waits_for: &[usize]| Node { kind: "empty", what: String::new(), waits_for: waits_for.to_vec() };
        // The list is not in topological order: 3 comes first, then 0 and 1, then 2.
        let nodes = [node(&[3]), node(&[3]), node(&[0, 3]), node(&[])];
        assert_eq!(layers(&nodes), [1, 1, 2, 0]);
        let text = table(&nodes);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            ["0\t1\t0\tempty\t\t3", "1\t1\t1\tempty\t\t3", "2\t2\t0\tempty\t\t0,3", "3\t0\t0\tempty\t\t"]
        );
    }
}
