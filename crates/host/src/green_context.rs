//! Green contexts: parts of a device's multiprocessors.
//!
//! The host device has no multiprocessors, only the number that its model has. A part of them is a number, too, and
//! does not hold work back: what is real is the bookkeeping, and the streams. The default stream of a green context is
//! the device's own, where CUDA has another one.

use super::ids::{self, Id, IdMap};
use crate::driver::{codes, table::Code};

/// What is known of green contexts.
#[derive(Default)]
pub struct GreenContexts {
    /// What is described by each description: a device, and how many of its multiprocessors.
    descriptions: IdMap<(usize, u32)>,
    contexts: IdMap<Green>,
}

/// One of them.
#[derive(Clone, Copy)]
struct Green {
    device: usize,
    /// The handle that it has as a context.
    context: Id,
}

impl GreenContexts {
    /// A new description.
    pub fn describe(&mut self, device: usize, count: u32) -> Id {
        let id = ids::next();
        self.descriptions.insert(id, (device, count));
        id
    }

    /// A new green context by a description that must be of the device.
    pub fn create(&mut self, description: Id, device: usize) -> Result<Id, Code> {
        match self.descriptions.get(&description) {
            Some((of, _)) if *of == device => {}
            _ => return Err(codes::CUDA_ERROR_INVALID_VALUE),
        }
        let id = ids::next();
        self.contexts.insert(id, Green { device, context: ids::next() });
        Ok(id)
    }

    /// Forgets one; what it was as a context.
    pub fn destroy(&mut self, id: Id) -> Result<Id, Code> {
        self.contexts.remove(&id).map(|green| green.context).ok_or(codes::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The device of one, and its handle as a context.
    pub fn find(&self, id: Id) -> Result<(usize, Id), Code> {
        self.contexts.get(&id).map(|green| (green.device, green.context)).ok_or(codes::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The device of the one that is this context.
    pub fn device_of_context(&self, context: Id) -> Option<usize> {
        self.contexts.values().find(|green| green.context == context && context != 0).map(|green| green.device)
    }

    /// The handle itself if it is that of a green context as a context, else 0.
    pub fn context(&self, handle: Id) -> Id {
        if self.device_of_context(handle).is_some() { handle } else { 0 }
    }
}
