//! Layout of a graph for execution.
//!
//! A program is a list of plans: the plan of the graph itself, then one for each body of each conditional node, since
//! only a launch decides whether a body runs. Child graphs become part of the plan that contains them. The nodes of a
//! plan are in an order in which they may run, and divided into branches: a node continues the branch of a node that it
//! depends on, or starts a new one. Each branch has its own stream. A launch uses the launching stream instead of the
//! first branch's.

use super::{Action, Graph, Node, condition::Condition};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{Id, IdMap},
    stream::Kind,
    work::{HostCall, Work},
};
use std::{collections::BTreeSet, sync::Arc};

/// The operation of a planned node.
#[derive(Clone)]
pub enum Step {
    Work(Work),
    Host(HostCall),
    Record(Id),
    Wait(Id),
    Empty,
    /// A conditional node, with the plans of its bodies.
    Conditional {
        condition: Arc<Condition>,
        kind: u32,
        bodies: Vec<usize>,
    },
}

#[derive(Clone)]
pub struct PlannedNode {
    pub step: Step,
    /// The indices of the nodes of the same plan that it waits for.
    pub before: Vec<usize>,
    pub branch: usize,
    /// Whether another branch waits for it.
    pub awaited: bool,
    /// Whether it is enabled; a disabled node does nothing.
    pub enabled: bool,
    pub device: usize,
    pub priority: i32,
}

#[derive(Clone)]
pub struct Branch {
    pub device: usize,
    pub stream: Id,
    /// The last node so far, while the branches are assigned.
    tail: usize,
}

#[derive(Clone, Default)]
pub struct Plan {
    pub nodes: Vec<PlannedNode>,
    pub branches: Vec<Branch>,
}

#[derive(Clone, Default)]
pub struct Program {
    pub plans: Vec<Plan>,
    /// The conditions of all conditional nodes, which a launch resets.
    pub conditions: Vec<Arc<Condition>>,
}

/// The structure of the graph that a program was made from, which an update compares with another graph.
#[derive(Default)]
pub struct Shape {
    pub nodes: Vec<ShapeNode>,
}

pub struct ShapeNode {
    pub node_type: u32,
    pub dependencies: Vec<usize>,
    /// The index of the planned node; `None` for a child graph node.
    pub index: Option<PlanIndex>,
    pub inner: Vec<Shape>,
}

/// The index of a plan in a program, and of a node in that plan.
pub type PlanIndex = (usize, usize);

/// The layout of a graph.
#[derive(Default)]
pub struct Layout {
    pub program: Program,
    pub shape: Shape,
    /// The index of the planned node of each node of the graph and of the graphs inside it.
    pub plan_indices: IdMap<PlanIndex>,
}

impl Program {
    pub fn node(&self, index: PlanIndex) -> Option<&PlannedNode> {
        self.plans.get(index.0)?.nodes.get(index.1)
    }

    pub fn node_mut(&mut self, index: PlanIndex) -> Option<&mut PlannedNode> {
        self.plans.get_mut(index.0)?.nodes.get_mut(index.1)
    }

    /// Collects the conditions of the conditional nodes.
    pub fn collect_conditions(&mut self) {
        let steps = self.plans.iter().flat_map(|plan| &plan.nodes).map(|node| &node.step);
        self.conditions = steps
            .filter_map(|step| match step {
                Step::Conditional { condition, .. } => Some(condition.clone()),
                _ => None,
            })
            .collect();
    }

    /// Returns the streams of all branches.
    pub fn streams(&self) -> Vec<Id> {
        self.plans.iter().flat_map(|plan| &plan.branches).map(|branch| branch.stream).collect()
    }
}

/// Returns the indices of a graph's nodes in topological order, and otherwise in the order of their addition. A cycle
/// is an error.
fn order(graph: &Graph) -> Result<Vec<usize>, Code> {
    let nodes = &graph.nodes;
    if graph.edges().all(|(from, to)| from < to) {
        return Ok((0..nodes.len()).collect());
    }
    let mut dependents = vec![Vec::new(); nodes.len()];
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.dependencies.len()).collect();
    graph.edges().for_each(|(from, to)| dependents[from].push(to));
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|index| missing[*index] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for after in &dependents[index] {
            missing[*after] -= 1;
            if missing[*after] == 0 {
                ready.insert(*after);
            }
        }
    }
    if order.len() == nodes.len() { Ok(order) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
}

impl Layout {
    /// Adds a graph to a plan, after the nodes `before` of the plan. Returns the graph's shape and its last nodes. In
    /// the body of a conditional node, `within` is the device on which the whole body must run.
    fn add(
        &mut self,
        engine: &Engine,
        graph: Id,
        plan: usize,
        before: &[usize],
        within: Option<usize>,
    ) -> Result<(Shape, Vec<usize>), Code> {
        let graph = engine.graph(graph)?;
        // A condition that no node uses is an error.
        if graph.conditions.iter().any(|condition| !condition.is_used()) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
        let mut shapes: Vec<Option<ShapeNode>> = graph.nodes.iter().map(|_| None).collect();
        for index in order(graph)? {
            let node = &graph.nodes[index];
            check_body(node, within)?;
            let mut after: Vec<usize> = node.dependencies.iter().flat_map(|index| ends[*index].clone()).collect();
            after.sort_unstable();
            after.dedup();
            if after.is_empty() {
                after = before.to_vec();
            }
            let mut shape = ShapeNode {
                node_type: node.action.node_type(),
                dependencies: node.dependencies.clone(),
                index: None,
                inner: Vec::new(),
            };
            if let Action::Child(child) = &node.action {
                let (inner, leaves) = self.add(engine, *child, plan, &after, within)?;
                shape.inner.push(inner);
                ends[index] = if leaves.is_empty() { after } else { leaves };
            } else {
                let step = self.step(engine, node, &mut shape.inner)?;
                let nodes = &mut self.program.plans[plan].nodes;
                ends[index] = vec![nodes.len()];
                shape.index = Some((plan, nodes.len()));
                self.plan_indices.insert(node.id, (plan, nodes.len()));
                let (device, priority) = (node.device, node.priority);
                let (branch, awaited, enabled) = (0, false, true);
                nodes.push(PlannedNode { step, before: after, branch, awaited, enabled, device, priority });
            }
            shapes[index] = Some(shape);
        }
        let leaves =
            graph.leaves().into_iter().zip(ends).filter(|(leaf, _)| *leaf).flat_map(|(_, ends)| ends).collect();
        Ok((Shape { nodes: shapes.into_iter().flatten().collect() }, leaves))
    }

    /// Returns the step of a node that is not a child graph. The bodies of a conditional node get plans.
    fn step(&mut self, engine: &Engine, node: &Node, inner: &mut Vec<Shape>) -> Result<Step, Code> {
        let Action::Conditional(conditional) = &node.action else { return Ok(plain_step(&node.action)) };
        let mut bodies = Vec::with_capacity(conditional.bodies.len());
        for body in conditional.bodies.iter() {
            let plan = self.program.plans.len();
            self.program.plans.push(Plan::default());
            inner.push(self.add(engine, *body, plan, &[], Some(conditional.condition.device))?.0);
            bodies.push(plan);
        }
        Ok(Step::Conditional { condition: conditional.condition.clone(), kind: conditional.kind, bodies })
    }
}

/// Returns the step of a node that contains no graphs.
pub fn plain_step(action: &Action) -> Step {
    match action {
        Action::Work(work) => Step::Work(work.clone()),
        Action::Host(call) => Step::Host(*call),
        Action::Record(event) => Step::Record(*event),
        Action::Wait(event) => Step::Wait(*event),
        // A launch allocates and frees.
        Action::Allocate(_) | Action::Free(_) => Step::Empty,
        Action::Empty | Action::Child(_) | Action::Conditional(_) => Step::Empty,
    }
}

/// Refuses nodes that a body of a conditional node must not contain: work of another device, host functions and events.
fn check_body(node: &Node, within: Option<usize>) -> Result<(), Code> {
    let Some(device) = within else { return Ok(()) };
    let fits = match &node.action {
        Action::Work(_) | Action::Conditional(_) => node.device == device,
        Action::Empty | Action::Child(_) => true,
        Action::Host(_) | Action::Record(_) | Action::Wait(_) | Action::Allocate(_) | Action::Free(_) => false,
    };
    if fits { Ok(()) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
}

impl Engine {
    /// Lays a graph out, and creates streams for its branches.
    pub fn lay_out(&mut self, graph: Id) -> Result<Layout, Code> {
        let mut layout = Layout::default();
        layout.program.plans.push(Plan::default());
        layout.shape = layout.add(self, graph, 0, &[], None)?.0;
        layout.program.collect_conditions();
        for plan in &mut layout.program.plans {
            self.assign_branches(plan);
        }
        Ok(layout)
    }

    /// Assigns each node of a plan to a branch.
    fn assign_branches(&mut self, plan: &mut Plan) {
        for index in 0..plan.nodes.len() {
            let (before, rest) = plan.nodes.split_at_mut(index);
            let Some(node) = rest.first_mut() else { return };
            let continued = node.before.iter().map(|earlier| before[*earlier].branch).find(|branch| {
                let branch = &plan.branches[*branch];
                branch.device == node.device && node.before.contains(&branch.tail)
            });
            node.branch = match continued {
                Some(branch) => {
                    plan.branches[branch].tail = index;
                    branch
                }
                None => {
                    let stream = self.create_stream(node.device, Kind::Branch, CU_STREAM_NON_BLOCKING, node.priority);
                    plan.branches.push(Branch { device: node.device, stream, tail: index });
                    plan.branches.len() - 1
                }
            };
            for earlier in &node.before {
                if before[*earlier].branch != node.branch {
                    before[*earlier].awaited = true;
                }
            }
        }
    }
}
