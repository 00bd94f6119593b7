//! The stream sanitizer, as C sees it.

use crate::{
    error::{Error, Result},
    ffi::{
        CUstream_st, Output, graph::plinth_graph_t, graph_build::plinth_graph_node_t, guard::guard, null, owned_text,
        plinth_stream_t, status::plinth_status_t, string,
    },
    graph::node,
    runtime,
    sanitizer::{
        self, Conflict, Kind, Mode, Operand, Report,
        report::{Missing, Side},
    },
    status::Status,
    stream,
};
use std::{
    ffi::{CString, c_char, c_void},
    ptr, slice,
    sync::Arc,
};

/// The sanitizer is off. The mode at the start.
pub const PLINTH_SANITIZER_OFF: i32 = 0;
/// What is found is kept, for plinth_sanitizer_each, _text and _json.
pub const PLINTH_SANITIZER_COLLECT: i32 = 1;
/// The same, and the callback is told of each report that is new.
pub const PLINTH_SANITIZER_WARN: i32 = 2;
/// The same, and each call at which something is found fails with PLINTH_ERROR_RACE, without having done anything.
pub const PLINTH_SANITIZER_ERROR: i32 = 3;

/// An operation reads bytes.
pub const PLINTH_SANITIZER_READ: u32 = 1;
/// An operation writes bytes. Both together are one that does both.
pub const PLINTH_SANITIZER_WRITE: u32 = 2;

/// Nothing orders two accesses to the same bytes, of which one writes at least.
pub const PLINTH_SANITIZER_RACE: i32 = 0;
/// The same, and between the two an allocator took the memory back and gave it out again.
pub const PLINTH_SANITIZER_REUSE: i32 = 1;
/// Memory is used that was freed.
pub const PLINTH_SANITIZER_USE_AFTER_FREE: i32 = 2;

/// The stream of the access, or the CPU, did not wait for that of the earlier one.
pub const PLINTH_SANITIZER_MISSING_WAIT: i32 = 0;
/// It did, but before the earlier access was there.
pub const PLINTH_SANITIZER_MISSING_LATER_WAIT: i32 = 1;
/// The stream of the earlier access was not recorded for the block (plinth_record_stream) before that was freed.
pub const PLINTH_SANITIZER_MISSING_RECORD_STREAM: i32 = 2;
/// The block was freed before the access.
pub const PLINTH_SANITIZER_MISSING_LATER_FREE: i32 = 3;

/// Bytes that an operation works on.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_access_t {
    /// The first. NULL with 0 bytes is none.
    pub pointer: *const c_void,
    /// How many bytes.
    pub bytes: usize,
    /// PLINTH_SANITIZER_READ, _WRITE, or both.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// One of the two accesses of a report.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_side_t {
    /// The library's call, or the name that the program gave its operation; NULL where there is no such access.
    pub name: *const c_char,
    /// The first byte of the access.
    pub address: u64,
    /// How many there are.
    pub bytes: u64,
    /// The number of the operation, in the order in which the calls were made.
    pub operation: u64,
    /// The stream; NULL is a default stream, or the CPU.
    pub stream: plinth_stream_t,
    /// The stream's device; -1 for the CPU.
    pub device: i32,
    /// PLINTH_SANITIZER_READ, _WRITE, or both.
    pub kind: u32,
}

/// Something that the sanitizer found. What it points at is valid during the call that shows it.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_sanitizer_report_t {
    /// The size of the struct, which grows at its end in newer versions.
    pub struct_size: usize,
    /// What is wrong: PLINTH_SANITIZER_RACE, _REUSE or _USE_AFTER_FREE.
    pub kind: i32,
    /// What would have ordered the two: one of PLINTH_SANITIZER_MISSING_....
    pub missing: i32,
    /// The first byte that is concerned.
    pub address: u64,
    /// How many there are.
    pub bytes: u64,
    /// How often it was found so far.
    pub times: u64,
    /// The access at which it was found.
    pub access: plinth_sanitizer_side_t,
    /// The earlier one; without a name if freed memory was used.
    pub previous: plinth_sanitizer_side_t,
    /// All that is known, in words, on several lines: both accesses with the calls' stacks, what would have ordered them, the
    /// block and who asked for it.
    pub text: *const c_char,
    /// The same as a JSON object; see plinth_sanitizer_json.
    pub json: *const c_char,
}

/// Is shown a report, and the context.
#[allow(non_camel_case_types)]
pub type plinth_sanitizer_callback_t =
    Option<unsafe extern "C" fn(report: *const plinth_sanitizer_report_t, context: *mut c_void)>;

fn invalid(message: String) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// A text for C. None of the library's has a NUL inside, but names may have anything.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default()
}

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
        return Err(invalid(format!("{what}{bytes} bytes from {address:#x} on run past the end of all addresses")));
    }
    Ok(Operand::new(address, bytes as u64, kind))
}

/// The operands that C lists.
///
/// # Safety
/// `accesses` is NULL, or there are `count` of them.
unsafe fn operands(accesses: *const plinth_sanitizer_access_t, count: usize) -> Result<Vec<Operand>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if accesses.is_null() {
        return Err(null("accesses"));
    }
    if count > isize::MAX as usize / size_of::<plinth_sanitizer_access_t>() {
        return Err(invalid(format!("access_count is {count}, more than there is memory for")));
    }
    // SAFETY: it is not NULL, so the caller promises that there are as many.
    let accesses = unsafe { slice::from_raw_parts(accesses, count) };
    let checked = accesses
        .iter()
        .enumerate()
        .map(|(index, access)| operand(access.pointer, access.bytes, access.kind, &format!("accesses[{index}]: ")));
    checked.collect()
}

fn side(side: &Side, name: &CString) -> plinth_sanitizer_side_t {
    let stream = side.site.stream();
    plinth_sanitizer_side_t {
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
    name: ptr::null(),
    address: 0,
    bytes: 0,
    operation: 0,
    stream: ptr::null_mut(),
    device: -1,
    kind: 0,
};

/// Shows a report to a function of C's.
fn show(report: &Report, body: impl FnOnce(&plinth_sanitizer_report_t)) {
    let (name, words, json) = (text(&report.access.name), text(&report.text()), text(&sanitizer::json::one(report)));
    let earlier = report.previous.as_ref().map(|previous| (text(&previous.name), previous));
    body(&plinth_sanitizer_report_t {
        struct_size: size_of::<plinth_sanitizer_report_t>(),
        kind: match report.conflict {
            Conflict::Race => PLINTH_SANITIZER_RACE,
            Conflict::Reuse => PLINTH_SANITIZER_REUSE,
            Conflict::UseAfterFree => PLINTH_SANITIZER_USE_AFTER_FREE,
        },
        missing: match report.missing {
            Missing::Wait { too_early: false } => PLINTH_SANITIZER_MISSING_WAIT,
            Missing::Wait { too_early: true } => PLINTH_SANITIZER_MISSING_LATER_WAIT,
            Missing::RecordStream => PLINTH_SANITIZER_MISSING_RECORD_STREAM,
            Missing::LaterFree => PLINTH_SANITIZER_MISSING_LATER_FREE,
        },
        address: report.address,
        bytes: report.bytes,
        times: report.times,
        access: side(&report.access, &name),
        previous: earlier.as_ref().map_or(NO_SIDE, |(name, previous)| side(previous, name)),
        text: words.as_ptr(),
        json: json.as_ptr(),
    });
}

/// Switches the stream sanitizer on, as torch.cuda._sanitizer.enable_cuda_sanitizer does, or changes its mode. From then on
/// it looks at all that the library does, for accesses to the same bytes from different streams, or from a stream and the
/// CPU, that nothing orders and of which one writes at least; and for uses of freed memory. It is about order and not about
/// time: what it finds is wrong also in a run in which nothing happened to go wrong. docs/sanitizer.md tells what it knows.
///
/// Of what happened before it knows only which blocks there are. An access costs about a microsecond more while it is on, and
/// memory of the CPU is taken for what is under way; off, it costs nothing. The library prints nothing; see
/// PLINTH_SANITIZER_LOG in docs/sanitizer.md for who wants that. Thread-safe.
///
/// @param mode PLINTH_SANITIZER_COLLECT, _WARN or _ERROR; _OFF as plinth_sanitizer_disable.
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

/// Switches the stream sanitizer off. What it knows is forgotten; the reports stay until plinth_sanitizer_clear. Thread-safe.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_disable() -> plinth_status_t {
    guard(|| sanitizer::set_mode(Mode::Off))
}

/// Tells the mode of the stream sanitizer. Needs no device. Thread-safe.
///
/// @param mode Out: PLINTH_SANITIZER_OFF, _COLLECT, _WARN or _ERROR.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_mode(mode: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the mode.
        let mode = unsafe { Output::new(mode, "mode") }?;
        mode.set(sanitizer::mode() as i32);
        Ok(())
    })
}

/// Sets who is told of reports that are new, in the modes PLINTH_SANITIZER_WARN and _ERROR. What two calls of the same places
/// in the program have between them is one report, however often it is found. Needs no device. Thread-safe.
///
/// Other threads may still be in the callback that was set before when this returns, or about to call it, so that one's context
/// has to stay.
///
/// @param callback Called by the thread whose call finds something, before that call returns. It may call the library, and what
///        is wrong with these calls is only kept. NULL for nobody. It must not unwind or throw.
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
                    // SAFETY: the caller of plinth_sanitizer_set_callback promises that the callback may be called with its
                    // context from any thread until another is set; the struct outlives the call.
                    unsafe { callback(shown, context as *mut c_void) }
                });
            })
        }));
        Ok(())
    })
}

/// Tells the sanitizer of work of the program's own on some bytes: a kernel that it is about to launch into a stream, a call of
/// another library. In a capture it becomes a part of the graph, and is looked at in each replay. Does nothing while the
/// sanitizer is off. Thread-safe.
///
/// @param pointer The first byte.
/// @param bytes How many.
/// @param kind PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE, or both.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_RACE in the mode PLINTH_SANITIZER_ERROR, if the work must not be done;
///         PLINTH_ERROR_INVALID_VALUE for another kind; PLINTH_ERROR_NULL_POINTER for a NULL pointer;
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

/// The same for one operation that works on several runs of bytes, under a name. Thread-safe.
///
/// @param name What reports call it: a kernel's name, say.
/// @param accesses The runs of bytes.
/// @param access_count How many.
/// @param stream The stream; NULL for the current device's default stream.
/// @return As plinth_sanitizer_access; PLINTH_ERROR_NULL_POINTER also for a NULL name or list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_operation(
    name: *const c_char,
    accesses: *const plinth_sanitizer_access_t,
    access_count: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { string(name, "name") }?;
        // SAFETY: the caller passes NULL or as many as is said.
        let operands = unsafe { operands(accesses, access_count) }?;
        operate(&name, stream, &operands)
    })
}

/// The same for work that the CPU does itself and now, on memory that streams work on, too: pinned, managed, or read through
/// a mapping. What a host function does is told as an operation of its stream, when it is launched. Thread-safe.
///
/// @param name What reports call it.
/// @param accesses The runs of bytes.
/// @param access_count How many.
/// @return As plinth_sanitizer_operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_host_operation(
    name: *const c_char,
    accesses: *const plinth_sanitizer_access_t,
    access_count: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { string(name, "name") }?;
        // SAFETY: the caller passes NULL or as many as is said.
        let operands = unsafe { operands(accesses, access_count) }?;
        runtime::ready()?;
        if sanitizer::is_on() { sanitizer::operation_of_cpu(&name, &operands) } else { Ok(()) }
    })
}

/// Tells the sanitizer what a node of a graph does to memory at each replay: a kernel or a host function of a graph that was
/// built, or a conditional node with all that is in it. It takes the place of what was told of the node before, or seen of it,
/// and counts from when the graph is instantiated next. What a capture made is known from the capture, and has this counted
/// only once the graph got other nodes; in a copy of the graph that became a node of another graph it does not count. Does nothing while
/// the sanitizer is off. Thread-safe.
///
/// @param graph The graph, which kept its nodes.
/// @param node A node of it that is neither a graph nor an event.
/// @param name What reports call it.
/// @param accesses The runs of bytes.
/// @param access_count How many.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another kind of access and another kind of node;
///         PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
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
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { string(name, "name") }?;
        // SAFETY: the caller passes NULL or as many as is said.
        let operands = unsafe { operands(accesses, access_count) }?;
        node::declare_accesses(super::graph::handle(graph)?, node as usize, &name, &operands)
    })
}

fn operate(name: &str, handle: plinth_stream_t, operands: &[Operand]) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle as usize)?;
    if sanitizer::is_on() { sanitizer::operation(runtime, stream, name, operands) } else { Ok(()) }
}

/// Tells the sanitizer that later work of a stream waits for what another has now, by something that it does not see: an event
/// of CUDA's own, a flag in memory. It knows what the library's own calls order. Thread-safe.
///
/// @param stream The stream that waits.
/// @param other The one that is waited for.
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

/// Tells the sanitizer that the CPU knows by something that it does not see that all work of a stream is done. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_stream_done(stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        let runtime = runtime::ready()?;
        sanitizer::end_of_stream(stream::resolve(runtime, stream as usize)?).finish();
        Ok(())
    })
}

/// Tells how many reports there are. Needs no device. Thread-safe.
///
/// @param reports Out: how many there are to read: 1000 at most.
/// @param findings Out: how often anything was found, the same again included; may be NULL.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for NULL reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_count(reports: *mut usize, findings: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the count.
        let reports = unsafe { Output::new(reports, "reports") }?;
        let (kept, total) = sanitizer::counts();
        reports.set(kept);
        if !findings.is_null() {
            // SAFETY: it is not NULL, so the caller promises that a number may be written there.
            unsafe { findings.write(total) };
        }
        Ok(())
    })
}

/// Shows all reports, in the order in which they were found. Finds out what functions their stacks are of, which takes
/// milliseconds the first time. Needs no device. Thread-safe.
///
/// @param callback Called for each report, by this thread; it may call the library.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_each(
    callback: plinth_sanitizer_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for report in sanitizer::reports() {
            // SAFETY: the caller's function, with a struct that outlives the call.
            show(&report, |shown| unsafe { callback(shown, context) });
        }
        Ok(())
    })
}

/// Gives all reports in words, in the order in which they were found; an empty text if there are none. Needs no device.
/// Thread-safe.
///
/// @param text Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_text(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let output = unsafe { Output::new(text, "text") }?;
        let all: Vec<String> = sanitizer::reports().iter().map(Report::text).collect();
        output.set(owned_text(&all.join("\n").replace('\0', "\u{FFFD}"))?);
        Ok(())
    })
}

/// Gives all reports as JSON: a list of objects, in the order in which they were found.
///
/// Each has "kind" ("race", "reuse", "use_after_free"), "message", "times", "address", "bytes", "access" and "previous", which
/// is null where freed memory was used, "missing" ("wait", "later_wait", "record_stream", "later_free"), "advice",
/// "allocation", the block that the bytes are in or null, and "former_allocation", the block that they were in before, if that
/// is concerned. An access has "name", "kind" ("read", "write", "read_write"), "device" and "stream", null for the CPU, "graph",
/// the driver's handle of what was launched or null, "address", "bytes", "operation" and "frames"; a block has "address",
/// "bytes", "device", "stream", "frames" and "freed_frames", null if it is not freed. A frame has "name", "filename" and "line".
/// Needs no device. Thread-safe.
///
/// @param json Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_json(json: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let output = unsafe { Output::new(json, "json") }?;
        output.set(owned_text(&sanitizer::json::json(&sanitizer::reports()))?);
        Ok(())
    })
}

/// Forgets all reports, so that the same would be new again. What the sanitizer knows of the program stays. Needs no device.
/// Thread-safe.
///
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sanitizer_clear() -> plinth_status_t {
    guard(|| {
        sanitizer::clear();
        Ok(())
    })
}
