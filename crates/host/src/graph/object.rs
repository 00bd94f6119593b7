//! User objects: what a program wants kept until the last graph and executable graph that uses it is gone.
//!
//! References are the program's own or those of graphs. When the last one goes, the object's destructor runs, on a
//! thread of this device's own and one after the other.

use crate::{
    driver::{codes, table::Code, types::*},
    engine::Engine,
    ids::{self, Id},
    stream::{Kind, Op},
    work::HostCall,
};

pub struct Object {
    destructor: HostCall,
    /// The references that the program has.
    owned: u64,
    /// Those that graphs and executable graphs have.
    held: u64,
}

impl Engine {
    pub fn create_object(&mut self, destructor: HostCall, owned: u32) -> Id {
        let id = ids::next();
        self.objects.insert(id, Object { destructor, owned: u64::from(owned), held: 0 });
        id
    }

    /// An object of which the program has at least this many references.
    fn owned_object(&mut self, id: Id, count: u32) -> Result<&mut Object, Code> {
        let object = self.objects.get_mut(&id).filter(|object| object.owned >= u64::from(count));
        object.ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Gives the program's references back.
    pub fn release_object(&mut self, id: Id, count: u32) -> Result<(), Code> {
        self.owned_object(id, count)?.owned -= u64::from(count);
        self.bury(id);
        Ok(())
    }

    /// Gives a graph references, new ones or the program's.
    pub fn retain_object(&mut self, graph: Id, id: Id, count: u32, moved: bool) -> Result<(), Code> {
        self.graph(graph)?;
        let object = self.owned_object(id, if moved { count } else { 1 })?;
        if moved {
            object.owned -= u64::from(count);
        }
        object.held += u64::from(count);
        self.graph_mut(graph)?.objects.push((id, count));
        Ok(())
    }

    /// Notes that one more graph has these references.
    pub fn hold_objects(&mut self, objects: &[(Id, u32)]) {
        for (id, count) in objects {
            if let Some(object) = self.objects.get_mut(id) {
                object.held += u64::from(*count);
            }
        }
    }

    /// Notes that one graph fewer has these references.
    pub fn let_go_of_objects(&mut self, objects: &[(Id, u32)]) {
        for (id, count) in objects {
            if let Some(object) = self.objects.get_mut(id) {
                object.held -= u64::from(*count);
            }
            self.bury(*id);
        }
    }

    /// What a graph and its parts hold.
    pub fn all_objects(&self, graph: Id) -> Vec<(Id, u32)> {
        let Some(graph) = self.graphs.get(&graph) else { return Vec::new() };
        let inner = graph.nodes.iter().flat_map(|node| node.action.inner());
        graph.objects.iter().copied().chain(inner.flat_map(|inner| self.all_objects(*inner))).collect()
    }

    /// Lets an object's destructor run if nobody has a reference.
    fn bury(&mut self, id: Id) {
        if self.objects.get(&id).is_none_or(|object| object.owned + object.held > 0) {
            return;
        }
        let Some(object) = self.objects.remove(&id) else { return };
        let stream = match self.burials {
            Some(stream) => stream,
            None => {
                let stream = self.create_stream(0, Kind::Branch, CU_STREAM_NON_BLOCKING, 0);
                // Nobody can wait for a destructor, not even by waiting for the device.
                self.devices[0].streams.retain(|other| *other != stream);
                *self.burials.insert(stream)
            }
        };
        self.push(stream, Op::Host(object.destructor));
    }
}
