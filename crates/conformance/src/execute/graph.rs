//! Graphs, executable graphs and user objects.

use super::{
    super::{
        answer::Answer,
        program::{Kind, Step},
    },
    gate,
    state::{Graph, State, call, get, set},
};
use plinth_driver::types::*;
use std::{ffi::c_uint, ptr};

/// The most nodes of a graph that are listed.
const MOST_NODES: usize = 128;

impl State {
    pub fn graph(&self, argument: u32) -> Option<CUgraph> {
        let one = self.graphs.get(argument.checked_sub(1)? as usize)?;
        (one.handle != 0).then_some(one.handle as CUgraph)
    }

    fn node(&self, argument: u32) -> Option<CUgraphNode> {
        get(&self.nodes, argument).map(|handle| handle as CUgraphNode)
    }

    fn exec(&self, argument: u32) -> Option<CUgraphExec> {
        get(&self.execs, argument).map(|handle| handle as CUgraphExec)
    }

    fn new_graph(&mut self, slot: u32, code: c_uint, graph: CUgraph, owned: bool) -> Answer {
        let handle = if code == 0 { graph as usize } else { 0 };
        set(&mut self.graphs, slot, Graph { handle, owned }, || Graph { handle: 0, owned: false });
        Answer::status(code)
    }

    pub fn graph_step(&mut self, step: &Step) -> Option<Answer> {
        use Kind::*;
        let [first, second, third, fourth, ..] = step.arguments;
        Some(match step.kind {
            GraphCreate => {
                let mut graph = ptr::null_mut();
                let code = call!(self, cuGraphCreate(&mut graph, second));
                self.new_graph(first, code, graph, true)
            }
            GraphDestroy => {
                let code = call!(self, cuGraphDestroy(self.graph(first)?));
                if code == 0 {
                    self.graphs[first as usize - 1].handle = 0;
                }
                Answer::status(code)
            }
            GraphClone => {
                let mut graph = ptr::null_mut();
                let code = call!(self, cuGraphClone(&mut graph, self.graph(second)?));
                self.new_graph(first, code, graph, true)
            }
            AddEmpty | AddMemset | AddMemcpy | AddHost | AddChild | AddRecord | AddWait | AddConditional => {
                return self.add_node(step);
            }
            AddDependencies => {
                let (from, to) = (self.node(second)?, self.node(third)?);
                Answer::status(call!(self, cuGraphAddDependencies(self.graph(first)?, &from, &to, 1)))
            }
            GetNodes => self.list_nodes(self.graph(first)?),
            GetEdges => {
                let mut count = 0;
                let graph = self.graph(first)?;
                let code = call!(self, cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count));
                Answer::value(code, count as i32)
            }
            NodeDependencies => {
                let mut count = 0;
                let code = call!(self, cuGraphNodeGetDependencies(self.node(first)?, ptr::null_mut(), &mut count));
                Answer::value(code, count as i32)
            }
            NodeType => {
                let mut kind = 99;
                let code = call!(self, cuGraphNodeGetType(self.node(first)?, &mut kind));
                Answer::value(code, kind as i32)
            }
            FindInClone => {
                let mut node = ptr::null_mut();
                let code = call!(self, cuGraphNodeFindInClone(&mut node, self.node(second)?, self.graph(third)?));
                set(&mut self.nodes, first, if code == 0 { node as usize } else { 0 }, || 0);
                Answer::status(code)
            }
            Instantiate => {
                let mut exec = ptr::null_mut();
                let code = call!(self, cuGraphInstantiateWithFlags(&mut exec, self.graph(second)?, u64::from(third)));
                set(&mut self.execs, first, if code == 0 { exec as usize } else { 0 }, || 0);
                Answer::status(code)
            }
            Upload => Answer::status(call!(self, cuGraphUpload(self.exec(first)?, self.stream(second)?))),
            Launch => {
                let (exec, stream) = (self.exec(first)?, self.stream(second)?);
                self.host_functions = true;
                Answer::status(call!(self, cuGraphLaunch(exec, stream)))
            }
            ExecDestroy => {
                let code = call!(self, cuGraphExecDestroy(self.exec(first)?));
                if code == 0 {
                    self.execs[first as usize - 1] = 0;
                }
                Answer::status(code)
            }
            Update => {
                let (error_node, error_from_node) = (ptr::null_mut(), ptr::null_mut());
                let mut info = ExecUpdateInfo { result: 99, error_node, error_from_node };
                let code = call!(self, cuGraphExecUpdate_v2(self.exec(first)?, self.graph(second)?, &mut info));
                Answer { status: code as i32, values: [info.result as i32, 0, 0] }
            }
            SetEnabled => {
                Answer::status(call!(self, cuGraphNodeSetEnabled(self.exec(first)?, self.node(second)?, third)))
            }
            GetEnabled => {
                let mut enabled = 99;
                let code = call!(self, cuGraphNodeGetEnabled(self.exec(first)?, self.node(second)?, &mut enabled));
                Answer::value(code, enabled as i32)
            }
            ExecFlags => {
                let mut flags = 99;
                let code = call!(self, cuGraphExecGetFlags(self.exec(first)?, &mut flags));
                Answer::value(code, flags as i32)
            }
            ObjectCreate => {
                let mut object = ptr::null_mut();
                let code =
                    call!(self, cuUserObjectCreate(&mut object, ptr::null_mut(), Some(gate::nothing), second, third));
                let made = if code == 0 { (object as usize, second) } else { (0, 0) };
                set(&mut self.objects, first, made, || (0, 0));
                Answer::status(code)
            }
            ObjectRelease => {
                let (object, held) = self.object(first)?;
                if second > held {
                    return None;
                }
                let code = call!(self, cuUserObjectRelease(object as CUuserObject, second));
                self.release(first, code, second);
                Answer::status(code)
            }
            ObjectRetain => {
                let (graph, (object, held)) = (self.graph(first)?, self.object(second)?);
                if fourth != 0 && third > held {
                    return None;
                }
                let code = call!(self, cuGraphRetainUserObject(graph, object as CUuserObject, third, fourth));
                if fourth == CU_GRAPH_USER_OBJECT_MOVE {
                    self.release(second, code, third);
                }
                Answer::status(code)
            }
            ConditionCreate => {
                let mut handle = 0;
                let code = call!(
                    self,
                    cuGraphConditionalHandleCreate(
                        &mut handle,
                        self.graph(second)?,
                        self.context as CUcontext,
                        third,
                        fourth
                    )
                );
                set(&mut self.conditions, first, if code == 0 { handle } else { u64::MAX }, || u64::MAX);
                Answer::status(code)
            }
            _ => return None,
        })
    }

    /// Returns a user object and the references that the program holds.
    fn object(&self, argument: u32) -> Option<(usize, u32)> {
        self.objects.get(argument.checked_sub(1)? as usize).copied().filter(|(object, held)| *object != 0 && *held > 0)
    }

    fn release(&mut self, argument: u32, code: c_uint, count: u32) {
        if code == 0 {
            self.objects[argument as usize - 1].1 -= count;
        }
    }

    /// Returns the number of a graph's nodes, and a sum over their types.
    fn list_nodes(&self, graph: CUgraph) -> Answer {
        let (mut nodes, mut count) = ([ptr::null_mut(); MOST_NODES], MOST_NODES);
        let code = call!(self, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        let count = count.min(MOST_NODES);
        let mut sum = 0;
        if code == 0 {
            for node in &nodes[..count] {
                let mut kind = 0;
                call!(self, cuGraphNodeGetType(*node, &mut kind));
                sum += (kind as i32 + 1) * (kind as i32 + 1);
            }
        }
        Answer::with(code, [count as i32, sum, 0])
    }

    fn add_node(&mut self, step: &Step) -> Option<Answer> {
        use Kind::*;
        let [first, second, third, fourth, fifth, sixth, seventh, eighth] = step.arguments;
        let graph = self.graph(second)?;
        let mut dependencies = Vec::new();
        for argument in [third, fourth] {
            if argument != 0 {
                dependencies.push(self.node(argument)?);
            }
        }
        let (list, count) = (dependencies.as_ptr(), dependencies.len());
        let context = self.context as CUcontext;
        let mut node = ptr::null_mut();
        let code = match step.kind {
            AddEmpty => call!(self, cuGraphAddEmptyNode(&mut node, graph, list, count)),
            AddHost => {
                let parameters = CUDA_HOST_NODE_PARAMS { fn_: Some(gate::nothing), userData: ptr::null_mut() };
                call!(self, cuGraphAddHostNode(&mut node, graph, list, count, &parameters))
            }
            AddMemset => {
                let parameters = CUDA_MEMSET_NODE_PARAMS {
                    dst: self.arena,
                    pitch: 0,
                    value: 1,
                    elementSize: sixth,
                    width: seventh as usize,
                    height: 1,
                };
                call!(self, cuGraphAddMemsetNode(&mut node, graph, list, count, &parameters, context))
            }
            AddMemcpy => {
                let parameters = MemcpyNodeParams {
                    source_device: self.place(fifth) + (32 << 10),
                    destination_device: self.arena,
                    width: sixth as usize,
                    ..MemcpyNodeParams::ROW
                };
                call!(self, cuGraphAddMemcpyNode(&mut node, graph, list, count, &parameters, context))
            }
            AddChild => {
                call!(self, cuGraphAddChildGraphNode(&mut node, graph, list, count, self.graph(fifth)?))
            }
            AddRecord => {
                call!(self, cuGraphAddEventRecordNode(&mut node, graph, list, count, self.event(fifth)?))
            }
            AddWait => call!(self, cuGraphAddEventWaitNode(&mut node, graph, list, count, self.event(fifth)?)),
            AddConditional => {
                let handle = *self.conditions.get(fifth as usize - 1)?;
                if handle == u64::MAX {
                    return None;
                }
                let mut parameters = ConditionalNodeParams {
                    node_type: CU_GRAPH_NODE_TYPE_CONDITIONAL,
                    reserved0: [0; 3],
                    handle,
                    kind: sixth,
                    size: seventh,
                    bodies: ptr::null_mut(),
                    context,
                    unused: [0; 25],
                    reserved2: 0,
                };
                let code = call!(self, cuGraphAddNode_v2(&mut node, graph, list, ptr::null(), count, &mut parameters));
                let body = if code == 0 && !parameters.bodies.is_null() {
                    // SAFETY: the driver returned an array of `size` bodies, which is at least 1 if it succeeded.
                    unsafe { parameters.bodies.read() }
                } else {
                    ptr::null_mut()
                };
                self.new_graph(eighth, code, body, false);
                code
            }
            _ => return None,
        };
        set(&mut self.nodes, first, if code == 0 { node as usize } else { 0 }, || 0);
        Some(Answer::status(code))
    }
}
