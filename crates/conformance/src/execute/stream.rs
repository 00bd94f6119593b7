//! Streams, events, captures, copies and fills.

use super::{
    super::{
        answer::Answer,
        program::{Kind, Step},
    },
    gate,
    state::{Graph, State, call, get, set},
};
use plinth_driver::types::*;
use std::{ffi::c_uint, mem, ptr, time::Duration};

/// The offset of the sources of copies from their destinations.
const SOURCE: u64 = 32 << 10;

impl State {
    pub fn stream_step(&mut self, step: &Step, thread: u8) -> Option<Answer> {
        use Kind::*;
        let [first, second, third, fourth, ..] = step.arguments;
        Some(match step.kind {
            StreamCreate => {
                let mut stream = ptr::null_mut();
                let code = call!(self, cuStreamCreateWithPriority(&mut stream, second, third as i32));
                let handle = if code == 0 { stream as usize } else { 0 };
                set(&mut self.streams, first, handle, || 0);
                Answer::status(code)
            }
            StreamDestroy => {
                let stream = self.stream(first)?;
                let code = call!(self, cuStreamDestroy_v2(stream));
                if code == 0 {
                    self.captures.retain(|(captured, _)| *captured != stream as usize);
                    self.streams[first as usize - 3] = 0;
                }
                Answer::status(code)
            }
            StreamQuery => {
                let stream = self.stream(first)?;
                Answer::status(self.poll(step.gated, || call!(self, cuStreamQuery(stream))))
            }
            StreamSynchronize => Answer::status(call!(self, cuStreamSynchronize(self.stream(first)?))),
            StreamWait => {
                Answer::status(call!(self, cuStreamWaitEvent(self.stream(first)?, self.event(second)?, third)))
            }
            StreamGetPriority => {
                let mut priority = 99;
                let code = call!(self, cuStreamGetPriority(self.stream(first)?, &mut priority));
                Answer::value(code, priority)
            }
            StreamGetFlags => {
                let mut flags = 99;
                let code = call!(self, cuStreamGetFlags(self.stream(first)?, &mut flags));
                Answer::value(code, flags as i32)
            }
            StreamGetCtx => {
                let mut context = ptr::null_mut();
                let code = call!(self, cuStreamGetCtx(self.stream(first)?, &mut context));
                Answer::value(code, i32::from(context as usize == self.context))
            }
            StreamGetId => {
                let mut id = 0;
                let code = call!(self, cuStreamGetId(self.stream(first)?, &mut id));
                Answer::status(code)
            }
            IsCapturing => {
                let mut status = 99;
                let code = call!(self, cuStreamIsCapturing(self.stream(first)?, &mut status));
                Answer::value(code, status as i32)
            }
            CaptureInfo => self.capture_info(self.stream(first)?),
            BeginCapture => {
                let stream = self.stream(first)?;
                self.begun(stream, thread, call!(self, cuStreamBeginCapture_v2(stream, second)))
            }
            BeginCaptureToGraph => {
                let (stream, graph) = (self.stream(first)?, self.graph(second)?);
                // A GPU's driver may end the process after two captures into the same graph.
                if self.captured_into.contains(&(graph as usize)) {
                    return None;
                }
                let node = get(&self.nodes, third)? as CUgraphNode;
                let code = call!(
                    self,
                    cuStreamBeginCaptureToGraph(stream, graph, &node, ptr::null(), usize::from(third > 0), fourth)
                );
                if code == 0 {
                    self.captured_into.push(graph as usize);
                }
                self.begun(stream, thread, code)
            }
            EndCapture => {
                let stream = self.stream(first)?;
                let mut graph = ptr::null_mut();
                let code = call!(self, cuStreamEndCapture(stream, &mut graph));
                let handle = graph as usize;
                // A capture into a graph returns that graph, which the program has already.
                if code == 0 && handle != 0 && self.graphs.iter().all(|one| one.handle != handle) {
                    let new = Graph { handle, owned: true };
                    set(&mut self.graphs, second, new, || Graph { handle: 0, owned: false });
                }
                Answer::value(code, i32::from(handle != 0))
            }
            ExchangeMode => {
                let mut mode = first;
                let code = call!(self, cuThreadExchangeStreamCaptureMode(&mut mode));
                Answer::value(code, mode as i32)
            }
            EventCreate => {
                let mut event = ptr::null_mut();
                let code = call!(self, cuEventCreate(&mut event, second));
                let handle = if code == 0 { event as usize } else { 0 };
                set(&mut self.events, first, handle, || 0);
                Answer::status(code)
            }
            EventDestroy => {
                let code = call!(self, cuEventDestroy_v2(self.event(first)?));
                if code == 0 {
                    self.events[first as usize - 1] = 0;
                }
                Answer::status(code)
            }
            EventRecord => Answer::status(call!(self, cuEventRecord(self.event(first)?, self.stream(second)?))),
            EventRecordWithFlags => {
                Answer::status(call!(self, cuEventRecordWithFlags(self.event(first)?, self.stream(second)?, third)))
            }
            EventQuery => {
                let event = self.event(first)?;
                Answer::status(self.poll(step.gated, || call!(self, cuEventQuery(event))))
            }
            EventSynchronize => Answer::status(call!(self, cuEventSynchronize(self.event(first)?))),
            EventElapsed => {
                let (start, end) = (self.event(first)?, self.event(second)?);
                let mut time = 0.0;
                Answer::status(self.poll(step.gated, || call!(self, cuEventElapsedTime(&mut time, start, end))))
            }
            IpcGetEvent => Answer::status(self.event_handle(self.event(first)?).0),
            IpcOpenEvent => {
                let (code, handle) = self.event_handle(self.event(first)?);
                if code != 0 {
                    return None;
                }
                let mut event = ptr::null_mut();
                let code = call!(self, cuIpcOpenEventHandle(&mut event, handle));
                if code == 0 {
                    call!(self, cuEventDestroy_v2(event));
                }
                Answer::status(code)
            }
            HostFunction => {
                let stream = self.stream(first)?;
                self.host_functions = true;
                Answer::status(call!(self, cuLaunchHostFunc(stream, Some(gate::nothing), ptr::null_mut())))
            }
            CloseGate => {
                let stream = self.stream(first)?;
                if mem::take(&mut self.host_functions) {
                    // Host functions of different streams may run one after the other; earlier ones end first.
                    std::thread::sleep(Duration::from_millis(1));
                }
                // In a capture or after an error nothing waits, and the gate stays open.
                let captured = self.may_capture(stream);
                let closing = gate::close();
                let code = call!(self, cuLaunchHostFunc(stream, Some(gate::wait), closing));
                self.host_functions = true;
                if captured || code != 0 {
                    gate::open();
                }
                Answer::status(code)
            }
            Memset8 => {
                Answer::status(call!(self, cuMemsetD8Async(self.arena, 1, second as usize, self.stream(third)?)))
            }
            Memset16 => {
                Answer::status(call!(self, cuMemsetD16Async(self.arena, 1, second as usize, self.stream(third)?)))
            }
            Memset32 => {
                Answer::status(call!(self, cuMemsetD32Async(self.arena, 1, second as usize, self.stream(third)?)))
            }
            // A GPU's driver waits for the stream before it copies from host memory to host memory.
            Memcpy if first != 0 && second != 0 && gate::is_closed() => return None,
            Memcpy => {
                let (to, from) = (self.place(first), self.place(second) + SOURCE);
                Answer::status(call!(self, cuMemcpyAsync(to, from, third as usize, self.stream(fourth)?)))
            }
            MemcpyPeer => {
                let (context, stream) = (self.context as CUcontext, self.stream(fourth)?);
                let (to, from) = (self.arena, self.arena + SOURCE);
                Answer::status(call!(self, cuMemcpyPeerAsync(to, context, from, context, third as usize, stream)))
            }
            _ => return None,
        })
    }

    /// Returns the memory of a copy: device, pinned or pageable.
    pub fn place(&self, number: u32) -> u64 {
        [self.arena, self.pinned, self.pageable][number as usize % 3]
    }

    fn begun(&mut self, stream: CUstream, thread: u8, code: c_uint) -> Answer {
        if code == 0 {
            self.captures.push((stream as usize, thread));
        }
        Answer::status(code)
    }

    fn capture_info(&self, stream: CUstream) -> Answer {
        let (mut status, mut id, mut graph) = (99, 0, ptr::null_mut());
        let (mut nodes, mut count) = (ptr::null(), 0);
        let code =
            call!(self, cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
        if status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Answer::value(code, status as i32);
        }
        let has = i32::from(id != 0) + 2 * i32::from(!graph.is_null());
        Answer::with(code, [status as i32, count as i32, has])
    }

    fn event_handle(&self, event: CUevent) -> (c_uint, CUipcEventHandle) {
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        (call!(self, cuIpcGetEventHandle(&mut handle, event)), handle)
    }

    /// Returns whether a stream is in a capture, or may be.
    pub fn may_capture(&self, stream: CUstream) -> bool {
        let mut status = 99;
        call!(self, cuStreamIsCapturing(stream, &mut status)) != 0 || status != CU_STREAM_CAPTURE_STATUS_NONE
    }
}
