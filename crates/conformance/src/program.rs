//! Programs: sequences of driver calls whose arguments name objects by number, so that a program is plain data.

use std::fmt;

/// Groups of calls, which the themes of programs weight differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Stream,
    Event,
    Query,
    Capture,
    Work,
    Gate,
    Graph,
    Conditional,
    Virtual,
    Allocation,
    Pool,
    Other,
}

macro_rules! kinds {
    ($( $name:ident $group:ident $weight:literal $text:literal; )*) => {
        /// The kinds of calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $( $name, )* }

        impl Kind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &[Kind] = &[ $( Kind::$name, )* ];

            /// Returns the group and the weight within it.
            pub fn weight(self) -> (Group, u32) {
                match self { $( Kind::$name => (Group::$group, $weight), )* }
            }

            /// Returns the call as C, with a letter in braces for each argument.
            pub fn text(self) -> &'static str {
                match self { $( Kind::$name => $text, )* }
            }
        }
    };
}

// A letter in braces stands for the next argument: an object of a kind (capital: a new one), `u` a number, `i` a number
// with a sign, `b` a place in memory.
kinds! {
    StreamCreate Stream 6 "cuStreamCreateWithPriority({S}, {u}, {i})";
    StreamDestroy Stream 3 "cuStreamDestroy({s})";
    StreamQuery Query 8 "cuStreamQuery({s})";
    StreamSynchronize Query 5 "cuStreamSynchronize({s})";
    StreamWait Event 12 "cuStreamWaitEvent({s}, {e}, {u})";
    StreamGetPriority Query 2 "cuStreamGetPriority({s}, &priority)";
    StreamGetFlags Query 2 "cuStreamGetFlags({s}, &flags)";
    StreamGetCtx Query 2 "cuStreamGetCtx({s}, &context)";
    StreamGetId Query 2 "cuStreamGetId({s}, &id)";
    IsCapturing Capture 7 "cuStreamIsCapturing({s}, &status)";
    CaptureInfo Capture 5 "cuStreamGetCaptureInfo({s}, &status, &id, &graph, &dependencies, &count)";
    BeginCapture Capture 10 "cuStreamBeginCapture({s}, {u})";
    EndCapture Capture 10 "cuStreamEndCapture({s}, {G})";
    BeginCaptureToGraph Capture 2 "cuStreamBeginCaptureToGraph({s}, {g}, {n}, NULL, 0 or 1, {u})";
    ExchangeMode Capture 4 "cuThreadExchangeStreamCaptureMode({u})";
    EventCreate Event 5 "cuEventCreate({E}, {u})";
    EventDestroy Event 1 "cuEventDestroy({e})";
    EventRecord Event 14 "cuEventRecord({e}, {s})";
    EventRecordWithFlags Event 3 "cuEventRecordWithFlags({e}, {s}, {u})";
    EventQuery Query 8 "cuEventQuery({e})";
    EventSynchronize Query 5 "cuEventSynchronize({e})";
    EventElapsed Query 4 "cuEventElapsedTime(&ms, {e}, {e})";
    HostFunction Work 3 "cuLaunchHostFunc({s}, nothing, NULL)";
    CloseGate Gate 10 "cuLaunchHostFunc({s}, wait_at_the_gate, NULL)";
    OpenGate Gate 4 "open_the_gate()";
    Memset8 Work 4 "cuMemsetD8Async({b}, 1, {u}, {s})";
    Memset16 Work 2 "cuMemsetD16Async({b}, 1, {u}, {s})";
    Memset32 Work 2 "cuMemsetD32Async({b}, 1, {u}, {s})";
    Memcpy Work 5 "cuMemcpyAsync({b}, {b}, {u}, {s})";
    MemcpyPeer Work 1 "cuMemcpyPeerAsync({b}, context, {b}, context, {u}, {s})";
    CtxSynchronize Query 3 "cuCtxSynchronize()";
    CtxSetCurrent Other 2 "cuCtxSetCurrent({u} ? context : NULL)";
    CtxGetDevice Other 1 "cuCtxGetDevice(&device)";
    PriorityRange Other 1 "cuCtxGetStreamPriorityRange(&least, &greatest)";
    EnablePeer Other 1 "cuCtxEnablePeerAccess({u} ? context : NULL, {u})";
    DisablePeer Other 1 "cuCtxDisablePeerAccess({u} ? context : NULL)";
    CanAccessPeer Other 1 "cuDeviceCanAccessPeer(&can, {i}, {i})";
    PrimaryState Other 1 "cuDevicePrimaryCtxGetState({i}, &flags, &active)";
    DeviceGet Other 1 "cuDeviceGet(&device, {i})";
    DeviceAttribute Other 1 "cuDeviceGetAttribute(&value, {u}, {i})";
    ErrorName Other 2 "cuGetErrorName({u}, &name)";
    NullOutput Other 3 "null_output({u}, {s})";
    MemInfo Allocation 2 "cuMemGetInfo(&free, &total)";
    MemAlloc Allocation 6 "cuMemAlloc({M}, {u})";
    MemFree Allocation 4 "cuMemFree({m})";
    AddressRange Allocation 3 "cuMemGetAddressRange(&base, &bytes, {m} + {u})";
    HostAlloc Allocation 4 "cuMemHostAlloc({M}, {u}, {u})";
    HostFree Allocation 3 "cuMemFreeHost({m})";
    ManagedAlloc Allocation 2 "cuMemAllocManaged({M}, {u}, {u})";
    HostRegister Allocation 3 "cuMemHostRegister(page {u}, {u} pages, {u})";
    HostUnregister Allocation 3 "cuMemHostUnregister(page {u})";
    PointerAttribute Allocation 5 "cuPointerGetAttribute(&value, {u}, {m} + {u})";
    PointerAttributes Allocation 2 "cuPointerGetAttributes(4, [type, device, managed, mapped], values, {m} + {u})";
    IpcGetMem Allocation 2 "cuIpcGetMemHandle(&handle, {m})";
    IpcOpenMem Allocation 2 "cuIpcOpenMemHandle(&address, handle of {m}, {u})";
    IpcCloseMem Allocation 1 "cuIpcCloseMemHandle({m})";
    IpcGetEvent Event 1 "cuIpcGetEventHandle(&handle, {e})";
    IpcOpenEvent Event 1 "cuIpcOpenEventHandle(&event, handle of {e})";
    DefaultPool Pool 2 "cuDeviceGetDefaultMemPool(&pool, {i})";
    PoolGet Pool 3 "cuMemPoolGetAttribute(pool, {u}, &value)";
    PoolSet Pool 3 "cuMemPoolSetAttribute(pool, {u}, {u})";
    PoolTrim Pool 2 "cuMemPoolTrimTo(pool, {u})";
    PoolAccess Pool 1 "cuMemPoolSetAccess(pool, [device {i}, {u}], 1)";
    AllocAsync Pool 6 "cuMemAllocAsync({M}, {u}, {s})";
    FreeAsync Pool 6 "cuMemFreeAsync({m}, {s})";
    Reserve Virtual 5 "cuMemAddressReserve({R}, {u} KiB, {u}, 0, {u})";
    AddressFree Virtual 2 "cuMemAddressFree({r} + {u} KiB, {u} KiB)";
    Create Virtual 6 "cuMemCreate({H}, {u} KiB, kind {u}, {u})";
    Release Virtual 2 "cuMemRelease({h})";
    Map Virtual 9 "cuMemMap({r} + {u} KiB, {u} KiB, {u}, {h}, {u})";
    Unmap Virtual 4 "cuMemUnmap({r} + {u} KiB, {u} KiB)";
    SetAccess Virtual 7 "cuMemSetAccess({r} + {u} KiB, {u} KiB, [device {i}, {u}], 1)";
    GetAccess Virtual 3 "cuMemGetAccess(&flags, device {i}, {r} + {u} KiB)";
    Granularity Virtual 2 "cuMemGetAllocationGranularity(&bytes, kind {u}, {u})";
    Export Virtual 2 "cuMemExportToShareableHandle(&fd, {h}, {u}, {u})";
    Import Virtual 2 "cuMemImportFromShareableHandle({H}, fd of {h}, 1)";
    RetainHandle Virtual 2 "cuMemRetainAllocationHandle({H}, {r} + {u} KiB)";
    RangeOfVirtual Virtual 2 "cuMemGetAddressRange(&base, &bytes, {r} + {u} KiB)";
    AttributeOfVirtual Virtual 2 "cuPointerGetAttribute(&value, {u}, {r} + {u} KiB)";
    GraphCreate Graph 4 "cuGraphCreate({G}, {u})";
    GraphDestroy Graph 1 "cuGraphDestroy({g})";
    AddEmpty Graph 6 "cuGraphAddEmptyNode({N}, {g}, [{n}, {n}])";
    AddMemset Graph 4 "cuGraphAddMemsetNode({N}, {g}, [{n}, {n}], {b}, element {u}, width {u})";
    AddMemcpy Graph 3 "cuGraphAddMemcpyNode({N}, {g}, [{n}, {n}], {b}, {u} bytes)";
    AddHost Graph 3 "cuGraphAddHostNode({N}, {g}, [{n}, {n}], nothing)";
    AddChild Graph 3 "cuGraphAddChildGraphNode({N}, {g}, [{n}, {n}], {g})";
    AddRecord Graph 2 "cuGraphAddEventRecordNode({N}, {g}, [{n}, {n}], {e})";
    AddWait Graph 2 "cuGraphAddEventWaitNode({N}, {g}, [{n}, {n}], {e})";
    AddDependencies Graph 4 "cuGraphAddDependencies({g}, {n}, {n}, 1)";
    GetNodes Graph 3 "cuGraphGetNodes({g}, nodes, &count)";
    GetEdges Graph 2 "cuGraphGetEdges({g}, from, to, &count)";
    NodeDependencies Graph 2 "cuGraphNodeGetDependencies({n}, nodes, &count)";
    NodeType Graph 2 "cuGraphNodeGetType({n}, &type)";
    GraphClone Graph 2 "cuGraphClone({G}, {g})";
    FindInClone Graph 2 "cuGraphNodeFindInClone({N}, {n}, {g})";
    Instantiate Graph 7 "cuGraphInstantiateWithFlags({X}, {g}, {u})";
    Upload Graph 1 "cuGraphUpload({x}, {s})";
    Launch Graph 7 "cuGraphLaunch({x}, {s})";
    ExecDestroy Graph 1 "cuGraphExecDestroy({x})";
    Update Graph 4 "cuGraphExecUpdate({x}, {g}, &info)";
    SetEnabled Graph 3 "cuGraphNodeSetEnabled({x}, {n}, {u})";
    GetEnabled Graph 2 "cuGraphNodeGetEnabled({x}, {n}, &enabled)";
    ExecFlags Graph 2 "cuGraphExecGetFlags({x}, &flags)";
    ObjectCreate Graph 2 "cuUserObjectCreate({O}, NULL, nothing, {u}, {u})";
    ObjectRelease Graph 1 "cuUserObjectRelease({o}, {u})";
    ObjectRetain Graph 2 "cuGraphRetainUserObject({g}, {o}, {u}, {u})";
    ConditionCreate Conditional 3 "cuGraphConditionalHandleCreate({C}, {g}, context, {u}, {u})";
    AddConditional Conditional 5 "cuGraphAddNode({N}, {g}, [{n}, {n}], conditional {c} kind {u} size {u} body {G})";
    Cleanup Other 0 "end of the program: destroy everything, then check the device";
}

/// The number of arguments that a call has at most.
pub const ARGUMENTS: usize = 8;

/// One call of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The number of the thread that makes the call.
    pub thread: u8,
    pub kind: Kind,
    pub arguments: [u32; ARGUMENTS],
    /// Whether the work in question is known to be behind the closed gate.
    pub gated: bool,
}

/// A sequence of calls, each made after the one before it has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub steps: Vec<Step>,
}

/// Writes an object's name: `s3` or, as an output, `&s3`.
fn write_object(f: &mut fmt::Formatter, letter: char, number: u32) -> fmt::Result {
    let name = letter.to_ascii_lowercase();
    match (letter, number) {
        ('s', 0) => write!(f, "NULL"),
        ('s', 1) => write!(f, "CU_STREAM_LEGACY"),
        ('s', 2) => write!(f, "CU_STREAM_PER_THREAD"),
        ('s', number) => write!(f, "s{}", number - 3),
        (_, number) if letter.is_ascii_uppercase() => write!(f, "&{name}{number}"),
        (_, 0) => write!(f, "NULL"),
        (_, number) => write!(f, "{name}{}", number - 1),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "T{}: ", self.thread)?;
        let mut arguments = self.arguments.iter().copied();
        let mut rest = self.kind.text();
        while let Some((before, after)) = rest.split_once('{') {
            let (letter, behind) = after.split_once('}').unwrap_or((after, ""));
            write!(f, "{before}")?;
            let value = arguments.next().unwrap_or(0);
            match letter.chars().next().unwrap_or('u') {
                'u' => write!(f, "{value}")?,
                'i' => write!(f, "{}", value as i32)?,
                'b' => write!(f, "{}", ["device", "pinned", "pageable"][value as usize % 3])?,
                letter => write_object(f, letter, value)?,
            }
            rest = behind;
        }
        write!(f, "{rest}")
    }
}
