//! Output of a graph as Graphviz text, with a cluster for the graph and one for each graph inside it.

use super::{Action, ConditionalNode, Node};
use crate::{
    driver::{table::Code, types::*},
    engine::Engine,
    ids::Id,
    work::{CopyWork, Fill, Work},
};
use std::fmt::Write;

/// The details of each node in the output, beside its type and index.
#[derive(Clone, Copy)]
struct Detail(u32);

impl Detail {
    fn has(self, flag: u32) -> bool {
        self.0 & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) != 0
    }
}

/// One line of a node's label: a name and a value.
type Line = (&'static str, String);

/// Escapes all characters that have a meaning in a record's label.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '{' | '}' | '|' | '<' | '>' | '"' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn type_name(action: &Action) -> &'static str {
    match action {
        Action::Work(Work::Kernel(_)) => "KERNEL",
        Action::Work(Work::Copy(_) | Work::Staged { .. }) => "MEMCPY",
        Action::Work(Work::Fill(_)) => "MEMSET",
        Action::Host(_) => "HOST",
        Action::Record(_) => "EVENT_RECORD",
        Action::Wait(_) => "EVENT_WAIT",
        Action::Empty => "EMPTY",
        Action::Allocate(_) => "MEM_ALLOC",
        Action::Free(_) => "MEM_FREE",
        Action::Child(_) => "CHILD_GRAPH",
        Action::Conditional(_) => "CONDITIONAL",
    }
}

fn dimensions(size: [u32; 3]) -> String {
    format!("{{{},{},{}}}", size[0], size[1], size[2])
}

fn copy_lines(copy: &CopyWork) -> Vec<Line> {
    let mut lines = vec![("dst", hex(copy.to)), ("src", hex(copy.from)), ("bytes", copy.bytes.to_string())];
    if copy.rows > 1 {
        let pitches = [("dstPitch", copy.to_pitch), ("srcPitch", copy.from_pitch), ("height", copy.rows)];
        lines.extend(pitches.map(|(name, value)| (name, value.to_string())));
    }
    lines
}

fn fill_lines(fill: &Fill) -> Vec<Line> {
    vec![
        ("dst", hex(fill.to)),
        ("pitch", fill.pitch.to_string()),
        ("value", fill.value.to_string()),
        ("elementSize", fill.width.to_string()),
        ("width", fill.count.to_string()),
        ("height", fill.rows.to_string()),
    ]
}

fn conditional_lines(conditional: &ConditionalNode) -> Vec<Line> {
    let kind = match conditional.kind {
        CU_GRAPH_COND_TYPE_IF => "IF",
        CU_GRAPH_COND_TYPE_WHILE => "WHILE",
        _ => "SWITCH",
    };
    vec![
        ("type", kind.to_owned()),
        ("size", conditional.bodies.len().to_string()),
        ("conditionalHandle", hex(conditional.condition.handle)),
        ("defaultLaunchValue", conditional.condition.default.to_string()),
    ]
}

/// Returns the lines of a node's label below its type.
fn lines(node: &Node, detail: Detail) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |flag, more: Vec<Line>| {
        if detail.has(flag) {
            lines.extend(more);
        }
    };
    add(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES, vec![("handle", hex(node.id))]);
    match &node.action {
        Action::Work(Work::Kernel(launch)) => add(
            CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS,
            vec![
                ("gridDim", dimensions(launch.grid)),
                ("blockDim", dimensions(launch.block)),
                ("sharedMemBytes", launch.shared_bytes.to_string()),
            ],
        ),
        Action::Work(Work::Copy(copy)) => add(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS, copy_lines(copy)),
        Action::Work(Work::Fill(fill)) => add(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS, fill_lines(fill)),
        Action::Host(call) => add(
            CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS,
            vec![("fn", hex(call.function as usize as u64)), ("userData", hex(call.data as u64))],
        ),
        Action::Record(event) | Action::Wait(event) => {
            add(CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS, vec![("event", hex(*event))]);
        }
        Action::Conditional(conditional) => {
            add(CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS, conditional_lines(conditional))
        }
        Action::Work(Work::Staged { .. })
        | Action::Empty
        | Action::Allocate(_)
        | Action::Free(_)
        | Action::Child(_) => {}
    }
    lines
}

fn label(node: &Node, index: usize, detail: Detail) -> String {
    let mut label = format!("{{{}|{{ID|{index}}}", type_name(&node.action));
    if let Action::Work(Work::Kernel(launch)) = &node.action {
        let blocks: u64 = launch.grid.iter().map(|size| u64::from(*size)).product();
        let threads: u64 = launch.block.iter().map(|size| u64::from(*size)).product();
        let call = format!("{}<<<{blocks},{threads},{}>>>", launch.kernel.name, launch.shared_bytes);
        label.push_str(&format!("|{}", escape(&call)));
    }
    for (name, value) in lines(node, detail) {
        label.push_str(&format!("|{{{name}|{}}}", escape(&value)));
    }
    label.push('}');
    label
}

impl Engine {
    /// Returns a graph as Graphviz text. `flags` are `CU_GRAPH_DEBUG_DOT_FLAGS_...`.
    pub fn draw(&self, graph: Id, flags: u32) -> Result<String, Code> {
        self.graph(graph)?;
        let mut text = String::from("digraph dot {\ncompound=\"true\";\n");
        let mut number = 0;
        // Writing into a string cannot fail.
        let _ = self.draw_graph(&mut text, &mut number, graph, Detail(flags));
        text.push_str("}\n");
        Ok(text)
    }

    fn draw_graph(&self, text: &mut String, number: &mut usize, graph: Id, detail: Detail) -> std::fmt::Result {
        let Some(graph) = self.graphs.get(&graph) else { return Ok(()) };
        *number += 1;
        let name = format!("graph_{number}");
        writeln!(text, "subgraph cluster_{number} {{\nlabel=\"{name}\" graph[style=\"dashed\"];")?;
        for (index, node) in graph.nodes.iter().enumerate() {
            let label = label(node, index, detail);
            writeln!(text, "\"{name}_node_{index}\"[style=\"solid\" shape=\"record\" label=\"{label}\"];")?;
        }
        for (order, (from, to)) in graph.edges().enumerate() {
            write!(text, "\"{name}_node_{from}\" -> \"{name}_node_{to}\"")?;
            if detail.has(CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO) {
                write!(text, " [label=\"{order}\"]")?;
            }
            writeln!(text, ";")?;
        }
        text.push_str("}\n");
        for (index, node) in graph.nodes.iter().enumerate() {
            for inner in node.action.inner_graphs() {
                let next = *number + 1;
                self.draw_graph(text, number, *inner, detail)?;
                // An edge needs a node at its end, so an empty graph gets no edge.
                if self.graphs.get(inner).is_some_and(|inner| !inner.nodes.is_empty()) {
                    let target = format!("\"graph_{next}_node_0\" [style=\"dashed\" lhead=\"cluster_{next}\"]");
                    writeln!(text, "\"{name}_node_{index}\" -> {target};")?;
                }
            }
        }
        Ok(())
    }
}
