//! The end of a program: everything that it made is destroyed, so that the next one finds the device as before.

use super::{
    super::answer::Answer,
    state::{Memory, State, call},
};
use plinth_driver::types::*;
use std::{ffi::c_void, mem, ptr};

impl State {
    /// Ends the captures of the calling thread, and restores its mode and its context.
    pub fn leave_thread(&mut self, thread: u8) {
        call!(self, cuCtxSetCurrent(self.context as CUcontext));
        for (stream, owner) in self.captures.clone() {
            if owner == thread {
                let mut graph = ptr::null_mut();
                let code = call!(self, cuStreamEndCapture(stream as CUstream, &mut graph));
                let known = self.graphs.iter().any(|one| one.handle == graph as usize);
                if code == 0 && !graph.is_null() && !known {
                    call!(self, cuGraphDestroy(graph));
                }
            }
        }
        self.captures.retain(|(_, owner)| *owner != thread);
        let mut mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        call!(self, cuThreadExchangeStreamCaptureMode(&mut mode));
    }

    /// Destroys all objects, and checks the device. The answer is how synchronization and a query went, and how many
    /// objects could not be destroyed.
    pub fn clean(&mut self) -> Answer {
        let synchronized = call!(self, cuCtxSynchronize());
        let mut failures = 0;
        let mut note = |code: u32| failures += i32::from(code != 0);
        for exec in mem::take(&mut self.execs).into_iter().filter(|handle| *handle != 0) {
            note(call!(self, cuGraphExecDestroy(exec as CUgraphExec)));
        }
        for graph in mem::take(&mut self.graphs).into_iter().filter(|one| one.handle != 0 && one.owned) {
            note(call!(self, cuGraphDestroy(graph.handle as CUgraph)));
        }
        for event in mem::take(&mut self.events).into_iter().filter(|handle| *handle != 0) {
            note(call!(self, cuEventDestroy_v2(event as CUevent)));
        }
        for stream in mem::take(&mut self.streams).into_iter().filter(|handle| *handle != 0) {
            note(call!(self, cuStreamDestroy_v2(stream as CUstream)));
        }
        for (object, held) in
            mem::take(&mut self.objects).into_iter().filter(|(object, held)| *object != 0 && *held > 0)
        {
            note(call!(self, cuUserObjectRelease(object as CUuserObject, held)));
        }
        for memory in mem::take(&mut self.memory) {
            match memory {
                Memory::Device(address) => note(call!(self, cuMemFree_v2(address))),
                Memory::Pinned(address) => note(call!(self, cuMemFreeHost(address as *mut c_void))),
                Memory::None => {}
            }
        }
        for reservation in mem::take(&mut self.reservations).into_iter().filter(|one| one.address != 0) {
            for (address, bytes) in reservation.maps {
                note(call!(self, cuMemUnmap(address, bytes)));
            }
            note(call!(self, cuMemAddressFree(reservation.address, reservation.bytes)));
        }
        for handle in mem::take(&mut self.handles).into_iter().filter(|handle| *handle != 0) {
            note(call!(self, cuMemRelease(handle)));
        }
        for page in mem::take(&mut self.registered) {
            note(call!(self, cuMemHostUnregister(page as *mut c_void)));
        }
        if mem::take(&mut self.pool_changed) {
            for (attribute, value) in [(1, 1_u64), (2, 1), (3, 1), (4, 0)] {
                let mut value = value;
                let pool = self.pool as CUmemoryPool;
                note(call!(self, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())));
            }
        }
        self.nodes.clear();
        self.conditions.clear();
        self.captures.clear();
        self.captured_into.clear();
        self.host_functions = false;
        let synchronized_again = call!(self, cuCtxSynchronize());
        let queried = call!(self, cuStreamQuery(ptr::null_mut()));
        Answer { status: synchronized as i32, values: [synchronized_again as i32, queried as i32, failures] }
    }
}
