//! Laying a graph out for execution.
//!
//! A program is a list of plans: the graph's own, then one for each body of each conditional node, for only their
//! launch tells whether they are carried out at all. Child graphs become part of the plan around them. In a plan the
//! nodes stand in an order in which they may run, and in branches: a node follows on the branch of a node that it
//! depends on, and otherwise opens one. Each branch has a stream of its own; a launch puts the first one into the
//! launching stream instead.

use super::{Action, Graph, Node, condition::Condition};
use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{Id, IdMap},
    stream::Kind,
    work::{HostCall, Work},
};
use std::{collections::BTreeSet, sync::Arc};

/// What a planned node does.
#[derive(Clone)]
pub enum Step {
    Work(Work),
    Host(HostCall),
    Record(Id),
    Wait(Id),
    Empty,
    /// One of these plans, all of them in turn, or none.
    Choose {
        condition: Arc<Condition>,
        kind: u32,
        bodies: Vec<usize>,
    },
}

#[derive(Clone)]
pub struct Planned {
    pub step: Step,
    /// The nodes of the same plan that it waits for.
    pub before: Vec<usize>,
    pub branch: usize,
    /// Whether another branch waits for it.
    pub awaited: bool,
    /// Whether it does anything.
    pub enabled: bool,
    pub device: usize,
    pub priority: i32,
}

#[derive(Clone)]
pub struct Branch {
    pub device: usize,
    pub stream: Id,
    /// The last node so far, while nodes are laid out.
    tail: usize,
}

#[derive(Clone, Default)]
pub struct Plan {
    pub nodes: Vec<Planned>,
    pub branches: Vec<Branch>,
}

#[derive(Clone, Default)]
pub struct Program {
    pub plans: Vec<Plan>,
    /// What conditional nodes ask, all of which a launch resets.
    pub conditions: Vec<Arc<Condition>>,
}

/// The graph that a program was made from: what an update compares another with.
#[derive(Default)]
pub struct Shape {
    pub nodes: Vec<ShapeNode>,
}

pub struct ShapeNode {
    pub node_type: u32,
    pub dependencies: Vec<usize>,
    /// The plan and the place there; a child graph has none of its own.
    pub place: Option<Place>,
    pub inner: Vec<Shape>,
}

/// A plan of a program, and a node of that.
pub type Place = (usize, usize);

/// A graph laid out.
#[derive(Default)]
pub struct Layout {
    pub program: Program,
    pub shape: Shape,
    /// Where each node of the graph and its parts went.
    pub places: IdMap<Place>,
}

impl Program {
    pub fn at(&self, place: Place) -> Option<&Planned> {
        self.plans.get(place.0)?.nodes.get(place.1)
    }

    pub fn at_mut(&mut self, place: Place) -> Option<&mut Planned> {
        self.plans.get_mut(place.0)?.nodes.get_mut(place.1)
    }

    /// Collects what the conditional nodes ask.
    pub fn collect_conditions(&mut self) {
        let steps = self.plans.iter().flat_map(|plan| &plan.nodes).map(|node| &node.step);
        self.conditions = steps
            .filter_map(|step| match step {
                Step::Choose { condition, .. } => Some(condition.clone()),
                _ => None,
            })
            .collect();
    }

    /// The streams of all branches.
    pub fn streams(&self) -> Vec<Id> {
        self.plans.iter().flat_map(|plan| &plan.branches).map(|branch| branch.stream).collect()
    }
}

/// The places of a graph's nodes, each after those that it depends on, and otherwise as they were added; an error when
/// there is a cycle.
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
    /// Adds a graph to a plan, after the nodes `before` of that; returns its shape and the nodes at its end. In the
    /// body of a conditional node, `within` is the device that all of it is to run on.
    fn add(
        &mut self,
        engine: &Engine,
        graph: Id,
        plan: usize,
        before: &[usize],
        within: Option<usize>,
    ) -> Result<(Shape, Vec<usize>), Code> {
        let graph = engine.graph(graph)?;
        if graph.capturing {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        // A condition that nothing asks is a mistake.
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
                place: None,
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
                shape.place = Some((plan, nodes.len()));
                self.places.insert(node.id, (plan, nodes.len()));
                let (device, priority) = (node.device, node.priority);
                let (branch, awaited, enabled) = (0, false, true);
                nodes.push(Planned { step, before: after, branch, awaited, enabled, device, priority });
            }
            shapes[index] = Some(shape);
        }
        let leaves =
            graph.leaves().into_iter().zip(ends).filter(|(leaf, _)| *leaf).flat_map(|(_, ends)| ends).collect();
        Ok((Shape { nodes: shapes.into_iter().flatten().collect() }, leaves))
    }

    /// What a node that is no child graph does; the bodies of a conditional node get plans.
    fn step(&mut self, engine: &Engine, node: &Node, inner: &mut Vec<Shape>) -> Result<Step, Code> {
        let Action::Choose(choice) = &node.action else { return Ok(plain_step(&node.action)) };
        let mut bodies = Vec::with_capacity(choice.bodies.len());
        for body in choice.bodies.iter() {
            let plan = self.program.plans.len();
            self.program.plans.push(Plan::default());
            inner.push(self.add(engine, *body, plan, &[], Some(choice.condition.device))?.0);
            bodies.push(plan);
        }
        Ok(Step::Choose { condition: choice.condition.clone(), kind: choice.kind, bodies })
    }
}

/// What a node that has no graphs inside does.
pub fn plain_step(action: &Action) -> Step {
    match action {
        Action::Work(work) => Step::Work(work.clone()),
        Action::Host(call) => Step::Host(*call),
        Action::Record(event) => Step::Record(*event),
        Action::Wait(event) => Step::Wait(*event),
        Action::Empty | Action::Child(_) | Action::Choose(_) => Step::Empty,
    }
}

/// Refuses what must not be in the body of a conditional node: work of another device, and whatever the CPU or another
/// stream has to do with.
fn check_body(node: &Node, within: Option<usize>) -> Result<(), Code> {
    let Some(device) = within else { return Ok(()) };
    let fits = match &node.action {
        Action::Work(_) | Action::Choose(_) => node.device == device,
        Action::Empty | Action::Child(_) => true,
        Action::Host(_) | Action::Record(_) | Action::Wait(_) => false,
    };
    if fits { Ok(()) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
}

impl Engine {
    /// Lays a graph out, with streams for its branches.
    pub fn lay_out(&mut self, graph: Id) -> Result<Layout, Code> {
        let mut layout = Layout::default();
        layout.program.plans.push(Plan::default());
        layout.shape = layout.add(self, graph, 0, &[], None)?.0;
        layout.program.collect_conditions();
        for plan in &mut layout.program.plans {
            self.branch_out(plan);
        }
        Ok(layout)
    }

    /// Gives each node of a plan a branch.
    fn branch_out(&mut self, plan: &mut Plan) {
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
