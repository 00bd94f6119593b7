//! Stream sanitizer
//!
//! Finds accesses to the same memory that no stream order, event or wait separates, and uses of freed memory:
//! torch.cuda._sanitizer.
//!
//! The mode, the callback and the reports hold for the whole process. Reports belong to the library, and what a
//! callback receives is valid during the callback only. A text that a function returns is the caller's, who frees it
//! with plinth_string_free. The callback is called by the thread whose call found something, possibly by several
//! threads at once.

use crate::{
    error::{Result, invalid},
    ffi::{
        CUstream_st, Output, c_text, graph::plinth_graph_t, graph_build::plinth_graph_node_t, guard::guard, handle,
        null, owned_text, plinth_stream_t, status::plinth_status_t, string, structs::StructList,
    },
    graph::node,
    memory, observe,
    runtime::{self, thread::call_program},
    sanitizer::{
        self, Conflict, Kind, Mode, Operand, Report,
        report::{AccessInfo, Missing},
    },
    stream,
};
use std::{
    ffi::{CString, c_char, c_void},
    ptr,
    sync::Arc,
};

/// The sanitizer is off. The initial mode.
pub const PLINTH_SANITIZER_OFF: i32 = 0;
/// Findings are stored, for plinth_sanitizer_each, _text and _json.
pub const PLINTH_SANITIZER_COLLECT: i32 = 1;
/// Findings are stored, and the callback is called for each new report.
pub const PLINTH_SANITIZER_WARN: i32 = 2;
/// As PLINTH_SANITIZER_WARN, and each call in which something is found fails with PLINTH_ERROR_RACE, before it has any
/// effect.
pub const PLINTH_SANITIZER_ERROR: i32 = 3;

/// An operation reads bytes.
pub const PLINTH_SANITIZER_READ: u32 = 1;
/// An operation writes bytes. Combine both constants for an operation that reads and writes.
pub const PLINTH_SANITIZER_WRITE: u32 = 2;

/// Two accesses to the same bytes, at least one of them a write, are unordered.
pub const PLINTH_SANITIZER_RACE: i32 = 0;
/// A race where an allocator freed and reused the memory between the two accesses.
pub const PLINTH_SANITIZER_REUSE: i32 = 1;
/// Freed memory is used.
pub const PLINTH_SANITIZER_USE_AFTER_FREE: i32 = 2;
/// An access begins in a block and runs past its end.
pub const PLINTH_SANITIZER_OUT_OF_BOUNDS: i32 = 3;
/// Memory that sleeps is used.
pub const PLINTH_SANITIZER_USE_WHILE_ASLEEP: i32 = 4;

/// The stream of the access, or the CPU, did not wait for the stream of the earlier access.
pub const PLINTH_SANITIZER_MISSING_WAIT: i32 = 0;
/// It did wait, but before the earlier access was enqueued.
pub const PLINTH_SANITIZER_MISSING_LATER_WAIT: i32 = 1;
/// The stream of the earlier access was not recorded for the block (plinth_record_stream) before the block was freed.
pub const PLINTH_SANITIZER_MISSING_RECORD_STREAM: i32 = 2;
/// The block was freed before the access.
pub const PLINTH_SANITIZER_MISSING_LATER_FREE: i32 = 3;
/// The block is too small for the access.
pub const PLINTH_SANITIZER_MISSING_LARGER_BLOCK: i32 = 4;
/// The memory must wake before the access.
pub const PLINTH_SANITIZER_MISSING_WAKE: i32 = 5;

/// A range of bytes that an operation accesses.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_access_t {
    /// sizeof(plinth_sanitizer_access_t) in the caller's version of the header.
    pub struct_size: usize,
    /// The first byte. NULL with 0 bytes is no access.
    pub pointer: *const c_void,
    /// Number of bytes.
    pub bytes: usize,
    /// PLINTH_SANITIZER_READ, _WRITE, or both.
    pub kind: u32,
    /// Reserved: 0.
    pub reserved: u32,
}

/// One of the two accesses of a report.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_side_t {
    /// The size of the struct in the library's version.
    pub struct_size: usize,
    /// The name of the library's function, or the name that the program gave its operation; NULL if there is no such
    /// access.
    pub name: *const c_char,
    /// The first byte of the access.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The sequence number of the operation, in the order of the calls.
    pub operation: u64,
    /// The stream; NULL for a default stream, and for the CPU.
    pub stream: plinth_stream_t,
    /// The stream's device; -1 for the CPU.
    pub device: i32,
    /// PLINTH_SANITIZER_READ, _WRITE, or both.
    pub kind: u32,
}

/// A finding of the sanitizer. What it points to is valid during the callback.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_report_t {
    /// The size of the struct, which grows at its end in newer versions.
    pub struct_size: usize,
    /// The kind: PLINTH_SANITIZER_RACE, _REUSE, _USE_AFTER_FREE, _OUT_OF_BOUNDS or _USE_WHILE_ASLEEP.
    pub kind: i32,
    /// What would have ordered the two accesses: one of PLINTH_SANITIZER_MISSING_....
    pub missing: i32,
    /// The first conflicting byte; for an access out of bounds, the end of the block.
    pub address: u64,
    /// Number of conflicting bytes.
    pub bytes: u64,
    /// How often this was found so far.
    pub times: u64,
    /// The access that caused the report.
    pub access: *const plinth_sanitizer_side_t,
    /// The earlier access; its name is NULL unless the kind is PLINTH_SANITIZER_RACE or _REUSE.
    pub previous: *const plinth_sanitizer_side_t,
    /// A full description in several lines: both accesses with stack traces, what would have ordered them, the block,
    /// and where it was allocated.
    pub text: *const c_char,
    /// The report as a JSON object; see plinth_sanitizer_json.
    pub json: *const c_char,
}

/// Receives a report, and the context. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_sanitizer_callback_t =
    Option<unsafe extern "C" fn(report: *const plinth_sanitizer_report_t, context: *mut c_void)>;

fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Read => PLINTH_SANITIZER_READ,
        Kind::Write => PLINTH_SANITIZER_WRITE,
        Kind::ReadWrite => PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE,
    }
}

fn operand(pointer: *const c_void, bytes: usize, kind: u32, what: &str) -> Result<Operand> {
    let kind = match kind {
        PLINTH_SANITIZER_READ => Kind::Read,
        PLINTH_SANITIZER_WRITE => Kind::Write,
        3 => Kind::ReadWrite,
        other => {
            return Err(invalid(format!("{what}kind is {other}; it can be PLINTH_SANITIZER_READ, _WRITE or both")));
        }
    };
    let address = pointer as u64;
    if address == 0 && bytes > 0 {
        return Err(null(&format!("{what}pointer")));
    }
    if address.checked_add(bytes as u64).is_none() {
        return Err(invalid(format!("{what}{bytes} bytes from {address:#x} run past the end of the address space")));
    }
    Ok(Operand::new(address, bytes as u64, kind))
}

/// Validates the operands that C passed.
///
/// # Safety
/// `accesses` is NULL, or points to `count` elements.
unsafe fn operands(accesses: *const plinth_sanitizer_access_t, count: usize) -> Result<Vec<Operand>> {
    let initial = plinth_sanitizer_access_t { struct_size: 0, pointer: ptr::null(), bytes: 0, kind: 0, reserved: 0 };
    // SAFETY: the caller makes this promise.
    let accesses = unsafe { StructList::new(accesses, count, initial, "accesses") }?;
    let checked = accesses.iter().enumerate().map(|(index, access)| {
        let access = access?;
        operand(access.pointer, access.bytes, access.kind, &format!("accesses[{index}]: "))
    });
    checked.collect()
}

fn side(side: &AccessInfo, name: &CString) -> plinth_sanitizer_side_t {
    let stream = side.site.stream();
    plinth_sanitizer_side_t {
        struct_size: size_of::<plinth_sanitizer_side_t>(),
        name: name.as_ptr(),
        address: side.address,
        bytes: side.bytes,
        operation: side.number,
        stream: stream.map_or(ptr::null_mut(), |stream| stream.handle as *mut CUstream_st),
        device: stream.map_or(-1, |stream| stream.device as i32),
        kind: kind_number(side.kind),
    }
}

const NO_SIDE: plinth_sanitizer_side_t = plinth_sanitizer_side_t {
    struct_size: size_of::<plinth_sanitizer_side_t>(),
    name: ptr::null(),
    address: 0,
    bytes: 0,
    operation: 0,
    stream: ptr::null_mut(),
    device: -1,
    kind: 0,
};

/// Passes a report to a C function.
fn show(report: &Report, body: impl FnOnce(&plinth_sanitizer_report_t)) {
    let (name, words, json) =
        (c_text(&report.access.name), c_text(&report.text()), c_text(&sanitizer::json::one(report)));
    let earlier = report.previous.as_ref().map(|previous| (c_text(&previous.name), previous));
    let access = side(&report.access, &name);
    let previous = earlier.as_ref().map_or(NO_SIDE, |(name, previous)| side(previous, name));
    body(&plinth_sanitizer_report_t {
        struct_size: size_of::<plinth_sanitizer_report_t>(),
        kind: match report.conflict {
            Conflict::Race => PLINTH_SANITIZER_RACE,
            Conflict::Reuse => PLINTH_SANITIZER_REUSE,
            Conflict::UseAfterFree => PLINTH_SANITIZER_USE_AFTER_FREE,
            Conflict::OutOfBounds => PLINTH_SANITIZER_OUT_OF_BOUNDS,
            Conflict::UseWhileAsleep => PLINTH_SANITIZER_USE_WHILE_ASLEEP,
        },
        missing: match report.missing {
            Missing::Wait { too_early: false } => PLINTH_SANITIZER_MISSING_WAIT,
            Missing::Wait { too_early: true } => PLINTH_SANITIZER_MISSING_LATER_WAIT,
            Missing::RecordStream => PLINTH_SANITIZER_MISSING_RECORD_STREAM,
            Missing::LaterFree => PLINTH_SANITIZER_MISSING_LATER_FREE,
            Missing::LargerBlock => PLINTH_SANITIZER_MISSING_LARGER_BLOCK,
            Missing::Wake => PLINTH_SANITIZER_MISSING_WAKE,
        },
        address: report.address,
        bytes: report.bytes,
        times: report.times,
        access: &raw const access,
        previous: &raw const previous,
        text: words.as_ptr(),
        json: json.as_ptr(),
    });
}

/// Enables the stream sanitizer, as torch.cuda._sanitizer.enable_cuda_sanitizer does, or changes its mode. While
/// enabled, it checks all calls of the library for two accesses to the same bytes that are unordered and of which at
/// least one is a write (from different streams, or from a stream and the CPU), for uses of freed memory, and for
/// accesses past the end of a block. It checks order, not timing: what it finds is a defect even if nothing went wrong
/// in this run. docs/sanitizer.md describes what it covers.
///
/// Of the time before it was enabled, it knows only which blocks are allocated. While it is enabled, an access costs
/// about one microsecond more, and host memory is used for the work in progress; while it is off, it costs nothing. The
/// library prints nothing; to have reports printed, see PLINTH_SANITIZER_LOG in docs/sanitizer.md.
///
/// @param mode PLINTH_SANITIZER_COLLECT, _WARN or _ERROR. _OFF is the same as plinth_sanitizer_disable.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_enable(mode: i32) -> plinth_status_t {
    guard(|| {
        sanitizer::set_mode(match mode {
            PLINTH_SANITIZER_OFF => Mode::Off,
            PLINTH_SANITIZER_COLLECT => Mode::Collect,
            PLINTH_SANITIZER_WARN => Mode::Warn,
            PLINTH_SANITIZER_ERROR => Mode::Error,
            other => return Err(invalid(format!("{other} is not a mode of the sanitizer; they are 0 to 3"))),
        })
    })
}

/// Disables the stream sanitizer. Its state is discarded; reports are kept until plinth_sanitizer_clear.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_disable() -> plinth_status_t {
    guard(|| sanitizer::set_mode(Mode::Off))
}

/// Returns the mode of the stream sanitizer. Needs no device.
///
/// @param mode Out: PLINTH_SANITIZER_OFF, _COLLECT, _WARN or _ERROR.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_mode(mode: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let mode = unsafe { Output::new(mode, "mode") }?;
        mode.set(sanitizer::mode() as i32);
        Ok(())
    })
}

/// Sets the callback for new reports, in the modes PLINTH_SANITIZER_WARN and _ERROR. All findings between the same two
/// places in the program are one report, however often they occur. Needs no device.
///
/// When this returns, other threads may still be in the previous callback, or about to call it, so its context must
/// stay valid.
///
/// @param callback Called by the thread whose call finds something, before that call returns. It may call the library;
///        findings in those calls are only stored. NULL for none. It must not unwind or throw.
/// @param context Passed to the callback, which may be called by several threads at once.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_set_callback(
    callback: plinth_sanitizer_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let context = context as usize;
        sanitizer::set_callback(callback.map(|callback| -> sanitizer::Callback {
            Arc::new(move |report| {
                show(report, |shown| {
                    // SAFETY: the caller of plinth_sanitizer_set_callback promises that the callback may be called with
                    // its context from any thread until another one is set; the struct outlives the call.
                    call_program(|| unsafe { callback(shown, context as *mut c_void) });
                });
            })
        }));
        Ok(())
    })
}

/// Declares an access of the program's own work to a range of bytes: for example of a kernel that it is about to launch
/// into a stream, or of another library. In a capture it becomes a part of the graph, and is checked at each replay.
/// Does nothing while the sanitizer is off.
///
/// @param pointer The first byte.
/// @param bytes Number of bytes.
/// @param kind PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE, or both.
/// @param stream The stream; NULL for the default stream of the memory's device.
/// @return PLINTH_OK; PLINTH_ERROR_RACE in the mode PLINTH_SANITIZER_ERROR, in which case the work must not be
///         enqueued; PLINTH_ERROR_INVALID_VALUE for another kind; PLINTH_ERROR_NULL_POINTER for a NULL pointer;
///         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_access(
    pointer: *const c_void,
    bytes: usize,
    kind: u32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        let operand = operand(pointer, bytes, kind, "")?;
        operate("plinth_sanitizer_access", stream, &[operand])
    })
}

/// Declares a named operation of the program in a stream, with all ranges of bytes that it accesses. Otherwise like
/// plinth_sanitizer_access.
///
/// @param name The operation's name in reports, for example a kernel's name.
/// @param accesses The ranges of bytes.
/// @param access_count The number of ranges.
/// @param stream The stream; NULL for the default stream of the device of the first range in device memory.
/// @return The statuses of plinth_sanitizer_access; PLINTH_ERROR_NULL_POINTER also for a NULL name or list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_operation(
    name: *const c_char,
    accesses: *const plinth_sanitizer_access_t,
    access_count: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string, and NULL or `access_count` elements.
        let (name, operands) = unsafe { (string(name, "name")?, operands(accesses, access_count)?) };
        operate(&name, stream, &operands)
    })
}

/// Declares an operation that the CPU performs now, on memory that streams access too: pinned or managed memory, or
/// memory that is read through a mapping. Declare what a host function does with plinth_sanitizer_operation in its
/// stream, when it is enqueued.
///
/// @param name The operation's name in reports.
/// @param accesses The ranges of bytes.
/// @param access_count The number of ranges.
/// @return The statuses of plinth_sanitizer_operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_host_operation(
    name: *const c_char,
    accesses: *const plinth_sanitizer_access_t,
    access_count: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string, and NULL or `access_count` elements.
        let (name, operands) = unsafe { (string(name, "name")?, operands(accesses, access_count)?) };
        runtime::ready()?;
        if sanitizer::is_on() { sanitizer::operation_of_cpu(&name, &operands) } else { Ok(()) }
    })
}

/// Declares what a node of a graph accesses at each replay: a kernel or a host function of an explicitly built graph,
/// or a conditional node with its whole body. The declaration replaces earlier ones for the node, and what the
/// sanitizer observed of it; it applies from the next instantiation on. For a captured graph the accesses are known
/// from the capture, and a declaration applies only once the graph has got further nodes. A declaration does not apply
/// to a copy of the graph that is a child node of another graph. Does nothing while the sanitizer is off.
///
/// @param graph The graph, which must have kept its nodes.
/// @param node A node of the graph; not a child graph node or an event node.
/// @param name The operation's name in reports.
/// @param accesses The ranges of bytes.
/// @param access_count The number of ranges.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another kind of access and another kind
///         of node; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
///         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_graph_operation(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    name: *const c_char,
    accesses: *const plinth_sanitizer_access_t,
    access_count: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string, and NULL or `access_count` elements.
        let (name, operands) = unsafe { (string(name, "name")?, operands(accesses, access_count)?) };
        node::declare_accesses(handle(graph, "graph")?, node as usize, &name, &operands)
    })
}

fn operate(name: &str, handle: plinth_stream_t, operands: &[Operand]) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = memory::device_for(runtime, operands.iter().map(|operand| operand.start))?;
    let stream = stream::resolve_on(runtime, handle as usize, device)?;
    observe::operation(runtime, stream, name, operands)
}

/// Declares that later work of a stream waits for the present work of another, by a mechanism that the sanitizer does
/// not observe, such as a CUDA event of another library or a flag in memory. The order that the library's own calls
/// establish is known without it.
///
/// @param stream The stream that waits.
/// @param other The stream that is waited for.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_wait_stream(
    stream: plinth_stream_t,
    other: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        let runtime = runtime::ready()?;
        let (waiting, awaited) =
            (stream::resolve(runtime, stream as usize)?, stream::resolve(runtime, other as usize)?);
        sanitizer::wait_stream(waiting, awaited);
        Ok(())
    })
}

/// Declares that all work of a stream is complete, and that the CPU knows it by a mechanism that the sanitizer does not
/// observe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_stream_done(stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        let runtime = runtime::ready()?;
        observe::end_of_stream(stream::resolve(runtime, stream as usize)?).finish();
        Ok(())
    })
}

/// Returns the number of reports. Needs no device.
///
/// @param reports Out: the number of stored reports, at most 1000.
/// @param findings Out, unless NULL: the total number of findings, including repeated ones.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `reports` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_count(reports: *mut usize, findings: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let reports = unsafe { Output::new(reports, "reports") }?;
        let (kept, total) = sanitizer::counts();
        reports.set(kept);
        if !findings.is_null() {
            // SAFETY: it is not NULL, so the caller passes a valid pointer.
            unsafe { findings.write(total) };
        }
        Ok(())
    })
}

/// Passes all reports to a callback, in the order in which they were found. Looks up the function names of the stack
/// traces, which takes milliseconds the first time. Needs no device.
///
/// @param callback Called for each report, in the calling thread; it may call the library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_each(
    callback: plinth_sanitizer_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for report in sanitizer::reports() {
            // SAFETY: this is the caller's function, with a struct that outlives the call.
            show(&report, |shown| call_program(|| unsafe { callback(shown, context) }));
        }
        Ok(())
    })
}

/// Returns all reports as text, in the order in which they were found; an empty string if there are none. Needs no
/// device.
///
/// @param text Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_text(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(text, "text") }?;
        let all: Vec<String> = sanitizer::reports().iter().map(Report::text).collect();
        output.set(owned_text(&all.join("\n").replace('\0', "\u{FFFD}"))?);
        Ok(())
    })
}

/// Returns all reports as JSON: a list of objects, in the order in which they were found.
///
/// A report has "kind" ("race", "reuse", "use_after_free", "out_of_bounds", "use_while_asleep"), "message", "times",
/// "address", "bytes", "access", "previous" (null unless the kind is "race" or "reuse"), "missing" ("wait", "later_wait",
/// "record_stream", "later_free", "larger_block", "wake"), "advice", "allocation" (the block that contains the bytes, or
/// null), and "former_allocation" (the block that contained them before, if it is involved). An access has "name", "kind" ("read", "write", "read_write"), "device"
/// and "stream" (null for the CPU), "graph" (the driver's handle of the executable graph, or null), "address", "bytes",
/// "operation" and "frames". A block has "address", "bytes", "device", "stream", "frames" and "freed_frames" (null if
/// it is not freed). A frame has "name", "filename" and "line". Needs no device.
///
/// @param json Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_json(json: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(json, "json") }?;
        output.set(owned_text(&sanitizer::json::json(&sanitizer::reports()))?);
        Ok(())
    })
}

/// Discards all reports; a finding that was reported before is new again. The sanitizer's state is kept. Needs no
/// device.
///
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_clear() -> plinth_status_t {
    guard(|| {
        sanitizer::clear();
        Ok(())
    })
}
