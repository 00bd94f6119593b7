//! Green contexts: partitions of a device's multiprocessors.
//!
//! The host device has no multiprocessors, only the number that its model has. A partition is a number, too, and does
//! not limit work. The bookkeeping and the streams are real. The default stream of a green context is the device's
//! default stream, whereas CUDA has a separate one.

use super::ids::{self, Id, IdMap};
use crate::driver::{codes, table::Code};

/// The green contexts and resource descriptions.
#[derive(Default)]
pub struct GreenContexts {
    /// The device and the number of its multiprocessors, for each resource description.
    descriptions: IdMap<(usize, u32)>,
    contexts: IdMap<Green>,
}

/// One green context.
#[derive(Clone, Copy)]
struct Green {
    device: usize,
    /// Its handle as a context.
    context: Id,
}

impl GreenContexts {
    /// Creates a resource description.
    pub fn describe(&mut self, device: usize, count: u32) -> Id {
        let id = ids::next();
        self.descriptions.insert(id, (device, count));
        id
    }

    /// Creates a green context from a description, which must be of the device.
    pub fn create(&mut self, description: Id, device: usize) -> Result<Id, Code> {
        match self.descriptions.get(&description) {
            Some((of, _)) if *of == device => {}
            _ => return Err(codes::CUDA_ERROR_INVALID_VALUE),
        }
        let id = ids::next();
        self.contexts.insert(id, Green { device, context: ids::next() });
        Ok(id)
    }

    /// Destroys a green context. Returns its handle as a context.
    pub fn destroy(&mut self, id: Id) -> Result<Id, Code> {
        self.contexts.remove(&id).map(|green| green.context).ok_or(codes::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Returns the device of a green context and its handle as a context.
    pub fn find(&self, id: Id) -> Result<(usize, Id), Code> {
        self.contexts.get(&id).map(|green| (green.device, green.context)).ok_or(codes::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Returns the device of the green context with this context handle.
    pub fn device_of_context(&self, context: Id) -> Option<usize> {
        self.contexts.values().find(|green| green.context == context && context != 0).map(|green| green.device)
    }

    /// Returns the handle itself if it is the context handle of a green context, else 0.
    pub fn context(&self, handle: Id) -> Id {
        if self.device_of_context(handle).is_some() { handle } else { 0 }
    }
}
