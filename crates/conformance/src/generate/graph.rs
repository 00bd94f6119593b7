//! Arguments of the calls for graphs, executable graphs and user objects.

use super::{
    super::model::{Condition, pick},
    ARGUMENTS, Arguments, Generator, Kind,
};

impl Generator {
    pub(super) fn graph_arguments(&mut self, kind: Kind) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            GraphCreate => arguments![self.new_graph(None), self.mostly(&[0], &[1])],
            GraphDestroy => {
                let graph = self.graph()?;
                if self.model.graphs[graph as usize - 1].parent.is_some() || self.model.is_kept(graph - 1) {
                    return None;
                }
                self.model.destroy_graph(graph - 1);
                arguments![graph]
            }
            AddEmpty | AddMemset | AddMemcpy | AddHost | AddChild | AddRecord | AddWait | AddConditional => {
                return self.node_arguments(kind);
            }
            AddDependencies => {
                let graph = self.graph()?;
                let (from, to) = (self.node_of(graph), self.node_of(graph));
                if from == 0 || to == 0 {
                    return None;
                }
                arguments![graph, from, to]
            }
            GetNodes | GetEdges => arguments![self.graph()?],
            NodeDependencies | NodeType => arguments![self.node()?],
            GraphClone => {
                let graph = self.graph()?;
                arguments![self.new_graph(None), graph]
            }
            FindInClone => {
                let (node, graph) = (self.node()?, self.graph()?);
                arguments![self.new_node(graph), node, graph]
            }
            Instantiate => {
                let graph = self.graph()?;
                self.model.execs.push(true);
                arguments![self.model.execs.len() - 1, graph, self.mostly(&[0, 0, 1, 8], &[2, 16, 128])]
            }
            Upload | Launch => {
                let exec = if self.random.percent(1) { 0 } else { self.exec()? };
                arguments![exec, self.stream()]
            }
            ExecDestroy => {
                let exec = self.exec()?;
                self.model.execs[exec as usize - 1] = false;
                arguments![exec]
            }
            Update => arguments![self.exec()?, self.graph()?],
            SetEnabled => arguments![self.exec()?, self.node()?, self.random.below(2)],
            GetEnabled => arguments![self.exec()?, self.node()?],
            ExecFlags => arguments![self.exec()?],
            ObjectCreate => {
                let (count, flags) = (self.mostly(&[1, 2, 3], &[0]), self.mostly(&[1], &[0, 2]));
                self.model.objects.push(count);
                arguments![self.model.objects.len() - 1, count, flags]
            }
            ObjectRelease | ObjectRetain => {
                let object = pick(&mut self.random, &self.model.objects, |count| *count > 0)?;
                let held = self.model.objects[object as usize];
                let count = if self.random.percent(10) { 0 } else { 1 + self.random.below(held) };
                if kind == ObjectRelease {
                    self.model.objects[object as usize] -= count;
                    return Some(arguments![object + 1, count]);
                }
                let (graph, flags) = (self.graph()?, self.mostly(&[0, 1], &[2]));
                if flags != 0 {
                    self.model.objects[object as usize] -= count;
                }
                arguments![graph, object + 1, count, flags]
            }
            ConditionCreate => {
                let graph = self.graph()?;
                let (default, flags) = (self.random.below(2), self.mostly(&[0, 1], &[2]));
                let may_loop = default != 0 || flags != 1;
                self.model.conditions.push(Condition { graph: graph - 1, used: false, may_loop });
                arguments![self.model.conditions.len() - 1, graph, default, flags]
            }
            _ => return None,
        })
    }

    fn node_arguments(&mut self, kind: Kind) -> Option<Arguments> {
        use Kind::*;
        if kind == AddConditional {
            let graphs = &self.model.graphs;
            let condition =
                pick(&mut self.random, &self.model.conditions, |one| !one.used && graphs[one.graph as usize].alive)?;
            let graph = self.model.conditions[condition as usize].graph + 1;
            let (first, second) = self.dependencies(graph);
            let may_loop = self.model.conditions[condition as usize].may_loop;
            let kind = if may_loop { self.mostly(&[0, 2], &[3, 9]) } else { self.mostly(&[0, 1, 2], &[3, 9]) };
            let size = self.mostly(&[1, 1, 2], &[0, 3]);
            self.model.conditions[condition as usize].used = true;
            let node = self.new_node(graph);
            let body = self.new_graph(Some(graph - 1));
            return Some(arguments![node, graph, first, second, condition + 1, kind, size, body]);
        }
        let graph = self.graph()?;
        let (first, second) = self.dependencies(graph);
        let (fifth, sixth, seventh) = match kind {
            AddMemset => (0, self.mostly(&[1, 2, 4], &[3, 0, 8]), self.mostly(&[1, 16, 100], &[0])),
            AddMemcpy => (self.place(), self.mostly(&[1, 64, 4096], &[0]), 0),
            AddChild => {
                let child = self.graph()?;
                if child == graph || self.is_within(graph - 1, child - 1) {
                    return None;
                }
                (child, 0, 0)
            }
            AddRecord | AddWait => {
                let event = self.event();
                if let Some(one) = event.checked_sub(1).and_then(|index| self.model.events.get_mut(index as usize)) {
                    one.kept = true;
                }
                (event, 0, 0)
            }
            _ => (0, 0, 0),
        };
        Some(arguments![self.new_node(graph), graph, first, second, fifth, sixth, seventh])
    }

    /// Returns whether a graph is a body within another one.
    fn is_within(&self, graph: u32, outer: u32) -> bool {
        match self.model.graphs[graph as usize].parent {
            Some(parent) => parent == outer || self.is_within(parent, outer),
            None => false,
        }
    }
}
