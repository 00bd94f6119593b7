//! User objects: resources of the program that live until the last graph and executable graph that uses them is
//! destroyed.
//!
//! References are owned by the program or by graphs. When the last one is released, the object's destructor runs on a
//! thread of the host device, one destructor at a time.

use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{self, Id},
    stream::{Kind, Op},
    work::HostCall,
};

pub struct Object {
    destructor: HostCall,
    /// The number of references that the program owns.
    owned: u64,
    /// The number of references that graphs and executable graphs own.
    graph_owned: u64,
}

impl Engine {
    pub fn create_object(&mut self, destructor: HostCall, owned: u32) -> Id {
        let id = ids::next();
        self.objects.insert(id, Object { destructor, owned: u64::from(owned), graph_owned: 0 });
        id
    }

    /// Returns an object of which the program owns at least `count` references.
    fn owned_object(&mut self, id: Id, count: u32) -> Result<&mut Object, Code> {
        let object = self.objects.get_mut(&id).filter(|object| object.owned >= u64::from(count));
        object.ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Releases references of the program.
    pub fn release_object(&mut self, id: Id, count: u32) -> Result<(), Code> {
        self.owned_object(id, count)?.owned -= u64::from(count);
        self.destroy_unreferenced(id);
        Ok(())
    }

    /// Adds references for a graph: new ones, or moved from the program.
    pub fn retain_object(&mut self, graph: Id, id: Id, count: u32, is_move: bool) -> Result<(), Code> {
        self.graph(graph)?;
        let object = self.owned_object(id, if is_move { count } else { 1 })?;
        if is_move {
            object.owned -= u64::from(count);
        }
        object.graph_owned += u64::from(count);
        self.graph_mut(graph)?.objects.push((id, count));
        Ok(())
    }

    /// Adds references for one more graph.
    pub fn retain_graph_objects(&mut self, objects: &[(Id, u32)]) {
        for (id, count) in objects {
            if let Some(object) = self.objects.get_mut(id) {
                object.graph_owned += u64::from(*count);
            }
        }
    }

    /// Releases references of a graph.
    pub fn release_graph_objects(&mut self, objects: &[(Id, u32)]) {
        for (id, count) in objects {
            if let Some(object) = self.objects.get_mut(id) {
                object.graph_owned -= u64::from(*count);
            }
            self.destroy_unreferenced(*id);
        }
    }

    /// Returns the user objects that a graph and the graphs inside it retain.
    pub fn all_objects(&self, graph: Id) -> Vec<(Id, u32)> {
        let Some(graph) = self.graphs.get(&graph) else { return Vec::new() };
        let inner = graph.nodes.iter().flat_map(|node| node.action.inner_graphs());
        graph.objects.iter().copied().chain(inner.flat_map(|inner| self.all_objects(*inner))).collect()
    }

    /// Queues an object's destructor if the object has no references left.
    fn destroy_unreferenced(&mut self, id: Id) {
        if self.objects.get(&id).is_none_or(|object| object.owned + object.graph_owned > 0) {
            return;
        }
        let Some(object) = self.objects.remove(&id) else { return };
        let stream = match self.destructor_stream {
            Some(stream) => stream,
            None => {
                let stream = self.create_stream(0, Kind::Branch, CU_STREAM_NON_BLOCKING, 0);
                // No call can wait for a destructor, not even by waiting for the device.
                self.devices[0].streams.retain(|other| *other != stream);
                *self.destructor_stream.insert(stream)
            }
        };
        self.push(stream, Op::Host(object.destructor));
    }
}
