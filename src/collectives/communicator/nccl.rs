//! The NCCL engine: the fastest one for large messages, and the only one across machines.
//!
//! Communicators are created in NCCL's non-blocking mode, so that no call hangs because of a missing rank. This module
//! polls a call that NCCL has not finished until it completes, fails, or times out. In this mode NCCL runs each call in
//! its own thread, which costs 50 to 100 microseconds; the caller can request the blocking mode instead.

use super::{
    nccl_division::Divisions,
    nccl_end::Siblings,
    nccl_registered::RegisteredMemory,
    operation::{Kind, Operation},
    sticky_error::StickyError,
    watchdog::{self, Launches},
};
use crate::{
    base::{
        deadline::Deadline,
        log::{self, Level},
    },
    collectives::{devices::ReduceOp, sleep::SleepState},
    driver::{
        self, Span,
        nccl::{
            self, Comm, Elements, ID_BYTES, Nccl, OutputCell, Progress,
            table::{data_type, reduction},
        },
    },
    error::{Error, Result, invalid},
    observe,
    runtime::{self, Runtime, tensor::ElementType},
    status::Status,
    stream::{
        self, Stream,
        capture_scope::{self, CaptureResource},
    },
};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, MutexGuard};
use std::{
    ffi::c_int,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long the watchdog may need for a check.
const WATCHDOG_CHECK: Duration = Duration::from_millis(1);
/// The compute capability from which NCCL reduces floats of 8 bits.
const FLOAT8_CAPABILITY: i32 = 9;
/// How long NCCL may take to end work without an abort.
const REVOCATION: Duration = Duration::from_secs(5);
/// How long an abort waits for a call of another thread to notice it. A call that blocks inside NCCL returns only after
/// the abort.
pub(super) const ABORT_GRACE: Duration = Duration::from_secs(1);

/// Returns NCCL, if it is installed and supports this kind of device.
pub fn available(runtime: &Runtime) -> Result<&'static Nccl> {
    let nccl = nccl::get()?;
    if runtime.driver.kind() == driver::Kind::Cuda || nccl.works_on_host_device() {
        return Ok(nccl);
    }
    Err(Error::new(Status::NCCL_UNAVAILABLE, "NCCL works with NVIDIA's GPUs, and not with the built-in host device"))
}

/// The NCCL communicator of one rank.
pub struct NcclRank {
    nccl: &'static Nccl,
    pub(super) cell: OutputCell,
    rank: u32,
    size: u32,
    device: u32,
    blocking: bool,
    /// NCCL allows one call at a time for each communicator.
    calls: Mutex<()>,
    /// Whether it was aborted or destroyed, or is about to be.
    pub(super) ended: AtomicBool,
    pub(super) abort_is_complete: AtomicBool,
    /// Whether the watchdog has ended its work, and it can only shrink or be aborted.
    revoked: AtomicBool,
    /// Whether a capture has had an operation of it.
    pub(super) captured: AtomicBool,
    /// The error for which the watchdog aborted it.
    sticky_error: OnceCell<StickyError>,
    launches: Mutex<Launches>,
    registered: Arc<Mutex<Vec<RegisteredMemory>>>,
    sleep: Arc<SleepState>,
    pub(super) siblings: Arc<Siblings>,
    divisions: Mutex<Divisions>,
    /// The stream of what the ranks exchange.
    own_stream: OnceCell<Stream>,
}

impl NcclRank {
    /// Begins to join `size` ranks that share an id, on a device. [`NcclRank::is_ready`] returns when they are
    /// connected.
    pub fn join(
        runtime: &Runtime,
        nccl: &'static Nccl,
        id: [u8; ID_BYTES],
        rank_and_size: (u32, u32),
        device: u32,
        blocking: bool,
    ) -> Result<Arc<NcclRank>> {
        let (rank, size) = rank_and_size;
        let owner = runtime.device(device as i32)?;
        let siblings = Siblings::of_id(id);
        let begun = owner.with_context(&runtime.driver, |_| nccl.init_rank(size, id, rank, blocking));
        let (cell, _) = begun.inspect_err(|_| siblings.leave_unjoined())?;
        Ok(Arc::new(NcclRank::new(nccl, cell, rank_and_size, device, blocking, siblings)))
    }

    pub(super) fn new(
        nccl: &'static Nccl,
        cell: OutputCell,
        (rank, size): (u32, u32),
        device: u32,
        blocking: bool,
        siblings: Arc<Siblings>,
    ) -> NcclRank {
        NcclRank {
            nccl,
            cell,
            rank,
            size,
            device,
            blocking,
            calls: Mutex::new(()),
            ended: AtomicBool::new(false),
            abort_is_complete: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            captured: AtomicBool::new(false),
            sticky_error: OnceCell::new(),
            launches: Mutex::default(),
            registered: Arc::default(),
            sleep: Arc::default(),
            siblings,
            divisions: Mutex::default(),
            own_stream: OnceCell::new(),
        }
    }

    /// Returns the launches that the watchdog watches.
    pub(super) fn launches(&self) -> &Mutex<Launches> {
        &self.launches
    }

    pub(super) fn check_not_ended(&self) -> Result<()> {
        self.check_not(self.has_ended())
    }

    fn check_not(&self, has_ended: bool) -> Result<()> {
        if has_ended {
            let aborted = || Error::new(Status::ABORTED, "the communicator was aborted");
            return Err(self.sticky_error.get().map_or_else(aborted, StickyError::error));
        }
        Ok(())
    }

    /// Returns its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn device(&self) -> u32 {
        self.device
    }

    /// Asks NCCL for the rank and the size of a new part.
    pub(super) fn read_rank_and_size(&mut self) -> Result<()> {
        (self.rank, self.size) = self.nccl.rank_and_size(self.comm()?)?;
        Ok(())
    }

    pub(super) fn divisions(&self) -> &Mutex<Divisions> {
        &self.divisions
    }

    /// Returns a stream of the device for small operations of the library itself.
    pub(super) fn own_stream(&self, runtime: &Runtime) -> Result<Stream> {
        let create = || stream::resolve(runtime, stream::create(self.device as i32, 0)?);
        self.own_stream.get_or_try_init(create).copied()
    }

    /// Returns whether it uses NCCL's blocking mode.
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    pub(super) fn nccl(&self) -> &'static Nccl {
        self.nccl
    }

    /// Locks the calls of the communicator.
    pub(super) fn calls(&self) -> MutexGuard<'_, ()> {
        self.calls.lock()
    }

    /// The same, unless a call takes longer than [`ABORT_GRACE`].
    pub(super) fn calls_of_end(&self) -> Option<MutexGuard<'_, ()>> {
        self.calls.try_lock_for(ABORT_GRACE)
    }

    pub(super) fn sleep_state(&self) -> &SleepState {
        &self.sleep
    }

    /// Returns the registered memory.
    pub(super) fn registered(&self) -> &Arc<Mutex<Vec<RegisteredMemory>>> {
        &self.registered
    }

    pub(super) fn comm(&self) -> Result<Comm> {
        self.sleep.check_awake()?;
        self.comm_even_asleep()
    }

    pub(super) fn comm_even_asleep(&self) -> Result<Comm> {
        self.check_not_ended()?;
        self.ready_comm()
    }

    /// Returns the communicator for a shrink that aborts it, which may follow an error that the watchdog has found.
    pub(super) fn comm_to_shrink(&self) -> Result<Comm> {
        self.check_not(self.ended.load(Ordering::Acquire))?;
        self.sleep.check_awake()?;
        self.ready_comm()
    }

    fn ready_comm(&self) -> Result<Comm> {
        // An asynchronous error is one of the call.
        let comm = self.cell.comm().filter(|_| self.cell.is_complete() || !matches!(self.poll(), Ok(false)));
        let not_ready = "the ranks are not connected; plinth_communicator_wait waits for them";
        comm.ok_or_else(|| Error::new(Status::COMMUNICATOR_NOT_READY, not_ready))
    }

    /// Returns whether all calls are complete on the CPU's side. An asynchronous error is returned every time.
    pub fn is_ready(&self) -> Result<bool> {
        self.check_not_ended()?;
        // A thread that is in a call polls by itself. The watchdog has the lock for a moment only.
        let Some(_calls) = self.calls.try_lock_for(WATCHDOG_CHECK) else { return Ok(false) };
        self.poll()
    }

    /// Fails with the communicator's asynchronous error, unless a thread is in a call.
    pub fn check_health(&self) -> Result<()> {
        self.check_not_ended()?;
        self.calls.try_lock().map_or(Ok(()), |_calls| self.poll().map(drop))
    }

    /// Returns the error for which the watchdog aborted it.
    pub fn watchdog_error(&self) -> Option<Error> {
        self.sticky_error.get().map(StickyError::error)
    }

    /// Returns whether it was aborted or destroyed, or is about to be, or can only shrink.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.is_revoked()
    }

    /// Returns whether the watchdog has ended its work.
    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    pub(super) fn poll(&self) -> Result<bool> {
        self.check_not(self.ended.load(Ordering::Acquire))?;
        let Some(comm) = self.cell.comm() else { return Ok(false) };
        let done = self.nccl.progress(comm)? == Progress::Done;
        if done {
            self.cell.mark_complete();
        }
        Ok(done)
    }

    /// Waits until all calls are complete.
    pub(super) fn wait_until_settled<D: Display>(&self, deadline: Deadline, what: impl FnOnce() -> D) -> Result<()> {
        self.wait_until_settled_while(deadline, what, || Ok(()))
    }

    /// The same, while `health` does not fail.
    pub(super) fn wait_until_settled_while<D: Display>(
        &self,
        deadline: Deadline,
        what: impl FnOnce() -> D,
        health: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let poll = || match self.poll()? {
            true => Ok(Some(())),
            false => health().map(|()| None),
        };
        deadline.until(what, poll)
    }

    /// Waits until all calls are complete. No other thread may use the communicator yet.
    pub fn wait_until_ready(&self, limit: Duration, what: &str) -> Result<()> {
        let _calls = self.calls.lock();
        self.wait_until_settled(Deadline::new(limit), || what)
    }

    /// Checks what can be checked of an operation before NCCL receives anything of its batch.
    fn prepare(&self, runtime: &Runtime, operation: &Operation) -> Result<Prepared> {
        let comm = self.comm()?;
        self.check_registered_whole([operation.from, operation.to])?;
        let is_in_place = operation.count > 0 && operation.from.address() == operation.to.address();
        if operation.kind == Kind::AllToAll && is_in_place && self.size > 1 {
            // NCCL's messages to and from the other ranks would use the same memory at once.
            return Err(invalid(format!(
                "NCCL cannot execute {operation} in place; use separate memory for the output"
            )));
        }
        let device = runtime.device(self.device as i32)?;
        let reduces_float8 = || -> Result<bool> {
            Ok(self.nccl.has_float8() && device.properties(&runtime.driver)?.major >= FLOAT8_CAPABILITY)
        };
        let (what, op) = match operation.kind {
            Kind::AllReduce { op } | Kind::Reduce { op, .. } | Kind::ReduceScatter { op } => {
                reduction_arguments(operation, op, reduces_float8)?
            }
            _ => (copy_arguments(operation), reduction::SUM),
        };
        Ok(Prepared { comm, what, op })
    }

    /// Issues an operation to NCCL.
    fn issue(&self, runtime: &Runtime, operation: &Operation, prepared: &Prepared) -> Result<()> {
        let Operation { kind, from, to, stream, .. } = *operation;
        let Prepared { comm, what, op } = *prepared;
        let (nccl, stream) = (self.nccl, stream.raw);
        let device = runtime.device(self.device as i32)?;
        device.with_context(&runtime.driver, |_| {
            match kind {
                Kind::AllReduce { .. } => nccl.all_reduce(from, to, what, op, comm, stream),
                Kind::Reduce { root, .. } => nccl.reduce(from, to, what, op, root, comm, stream),
                Kind::ReduceScatter { .. } => nccl.reduce_scatter(from, to, what, op, comm, stream),
                Kind::Broadcast { root } => nccl.broadcast(from, to, what, root, comm, stream),
                Kind::AllGather => nccl.all_gather(from, to, what, comm, stream),
                Kind::AllToAll => match nccl.all_to_all(from, to, what, comm, stream)? {
                    Some(progress) => Ok(progress),
                    None => {
                        let bytes = operation.bytes() as usize;
                        let part = |span: Span, rank: u32| span.part(rank as usize * bytes, bytes);
                        let exchange = || {
                            for rank in 0..self.size {
                                nccl.send(part(from, rank), what, rank, comm, stream)?;
                                nccl.receive(part(to, rank), what, rank, comm, stream)?;
                            }
                            Ok(())
                        };
                        nccl.group(exchange).map(|((), progress)| progress)
                    }
                },
                Kind::Send { peer } => nccl.send(from, what, peer, comm, stream),
                Kind::Receive { peer } => nccl.receive(to, what, peer, comm, stream),
            }
            .map(drop)
        })
    }

    /// Aborts the communicator for an error that the watchdog has found, and which later calls return. Logs the error before
    /// `prepare`.
    pub(super) fn abort_with_error(&self, runtime: &Runtime, error: Error, prepare: impl FnOnce()) {
        if self.has_ended() {
            return;
        }
        let error = error.context(format!("rank {} of {}", self.rank, self.size));
        log::log(Level::Error, || format!("the communicator is aborted: {}", error.message()));
        prepare();
        if runtime::usable().is_none() || self.has_ended() {
            return;
        }
        // Calls return the error from here on, and then the work has to end.
        let _ = self.sticky_error.set(StickyError::from(error));
        if !self.revoke(runtime) {
            log::ignore(self.abort(runtime), "aborting a communicator of NCCL");
        }
    }

    /// Ends the work, and keeps the communicator for a shrink. Returns whether NCCL has done so: it waits for graphs, and cannot
    /// interrupt a call.
    fn revoke(&self, runtime: &Runtime) -> bool {
        let Some(comm) = self.cell.comm().filter(|_| !self.blocking) else { return false };
        let Some(_calls) = self.calls_of_end().filter(|_| !self.captured.load(Ordering::Relaxed)) else { return false };
        self.revoked.store(true, Ordering::Release);
        let end = || {
            let device = runtime.device(self.device as i32)?;
            device.with_context(&runtime.driver, |_| self.nccl.revoke(comm))?;
            self.wait_until_settled(Deadline::new(REVOCATION), || "NCCL ended the work of a communicator")
        };
        end().inspect_err(|error| log::log(Level::Info, || format!("aborting a communicator instead: {error}"))).is_ok()
    }
}

/// An operation in NCCL's terms.
struct Prepared {
    comm: Comm,
    what: Elements,
    /// The reduction, if the operation has one.
    op: c_int,
}

/// Returns the elements of an operation that only copies; NCCL has fewer types than the library, so some are copied as
/// bytes.
fn copy_arguments(operation: &Operation) -> Elements {
    match data_kind(operation.element) {
        Some(kind) => Elements { count: operation.count as usize, kind },
        None => Elements { count: operation.bytes() as usize, kind: data_type::UINT8 },
    }
}

fn data_kind(element: ElementType) -> Option<c_int> {
    Some(match element {
        ElementType::F16 => data_type::FLOAT16,
        ElementType::Bf16 => data_type::BFLOAT16,
        ElementType::F32 => data_type::FLOAT32,
        ElementType::F64 => data_type::FLOAT64,
        ElementType::U8 | ElementType::Bool => data_type::UINT8,
        ElementType::U32 => data_type::UINT32,
        ElementType::U64 => data_type::UINT64,
        ElementType::I8 => data_type::INT8,
        ElementType::I32 => data_type::INT32,
        ElementType::I64 => data_type::INT64,
        _ => return None,
    })
}

/// Returns the elements and the reduction in NCCL's terms. The sum of bools is "or", their product "and".
fn reduction_arguments(
    operation: &Operation,
    op: ReduceOp,
    reduces_float8: impl Fn() -> Result<bool>,
) -> Result<(Elements, c_int)> {
    let kind = match operation.element {
        ElementType::F8E4M3 if reduces_float8()? => Some(data_type::FLOAT8_E4M3),
        ElementType::F8E5M2 if reduces_float8()? => Some(data_type::FLOAT8_E5M2),
        element => data_kind(element),
    };
    let Some(kind) = kind else {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            format!("NCCL does not reduce {}, which {operation} asks for", operation.element),
        ));
    };
    let op = match (op, operation.element) {
        (ReduceOp::Sum | ReduceOp::Average, ElementType::Bool) => reduction::MAXIMUM,
        (ReduceOp::Product, ElementType::Bool) => reduction::MINIMUM,
        (ReduceOp::Sum, _) => reduction::SUM,
        (ReduceOp::Product, _) => reduction::PRODUCT,
        (ReduceOp::Minimum, _) => reduction::MINIMUM,
        (ReduceOp::Maximum, _) => reduction::MAXIMUM,
        (ReduceOp::Average, _) => reduction::AVERAGE,
    };
    Ok((Elements { count: operation.count as usize, kind }, op))
}

/// Locks the calls of communicators, in an order that does not depend on the order of the arguments.
pub(super) fn lock_calls<'a>(ranks: &[&'a NcclRank]) -> Vec<MutexGuard<'a, ()>> {
    let mut ranks: Vec<&NcclRank> = ranks.to_vec();
    ranks.sort_by_cached_key(|rank| std::ptr::from_ref(*rank).addr() as u64);
    ranks.dedup_by_key(|rank| std::ptr::from_ref(*rank) as usize);
    ranks.into_iter().map(|rank| rank.calls.lock()).collect()
}

/// The failure of a batch.
pub enum IssueError {
    /// The batch was rejected, and nothing of it is in progress.
    Refused(Error),
    /// NCCL accepted the batch or a part of it, and failed or timed out.
    Failed(Error),
}

impl IssueError {
    /// Returns the error of either kind.
    pub fn into_error(self) -> Error {
        match self {
            IssueError::Refused(error) | IssueError::Failed(error) => error,
        }
    }

    /// Adds what was attempted to the message.
    pub fn context<D: Display>(self, what: impl FnOnce() -> D) -> IssueError {
        match self {
            IssueError::Refused(error) => IssueError::Refused(error.context(what())),
            IssueError::Failed(error) => IssueError::Failed(error.context(what())),
        }
    }
}

impl From<Error> for IssueError {
    fn from(error: Error) -> IssueError {
        IssueError::Refused(error)
    }
}

/// Issues operations of one or several ranks of this process to NCCL as one group, and waits until they are in their
/// streams.
pub fn issue(
    runtime: &Runtime,
    batch: &[(&Arc<NcclRank>, &Operation)],
    limit: Duration,
) -> std::result::Result<(), IssueError> {
    let Some((first, _)) = batch.first() else { return Ok(()) };
    let ranks: Vec<&NcclRank> = batch.iter().map(|(rank, _)| &***rank).collect();
    let _calls = lock_calls(&ranks);
    // Prepare everything first: NCCL would execute the part of a group that it has received.
    let prepare = |(rank, operation): &(&Arc<NcclRank>, &Operation)| rank.prepare(runtime, operation);
    let prepared = batch.iter().map(prepare).collect::<Result<Vec<Prepared>>>()?;
    for (rank, Operation { from, to, stream, .. }) in batch {
        if let Some(capture) = stream::capture_id(runtime, *stream)? {
            rank.captured.store(true, Ordering::Relaxed);
            capture_scope::add(capture, &rank.sleep);
            rank.add_registered_to(capture, [*from, *to]);
        }
        let used = [observe::read(*from), observe::write(*to)];
        observe::access(runtime, *stream, &used)?;
    }
    // In the blocking mode no rank is missing, or the caller has asked for calls without a limit.
    let watched = watchdog::start(runtime, batch.iter().copied().filter(|(rank, _)| !rank.blocking));
    let mut issued_count = 0;
    let mut all = || {
        for ((rank, operation), prepared) in batch.iter().zip(&prepared) {
            rank.issue(runtime, operation, prepared)?;
            issued_count += 1;
        }
        Ok(())
    };
    let issued = if batch.len() == 1 { all() } else { first.nccl.group(all).map(drop) };
    // Also after an error: NCCL may be executing the previous operations, and records errors in their communicators.
    let mut settled = Ok(());
    for (index, (rank, operation)) in batch.iter().enumerate().filter(|(_, (rank, _))| !rank.blocking) {
        settled = settled.and_then(|()| match issued.is_ok() || index < issued_count {
            true => rank.wait_until_settled(Deadline::new(limit), || format!("NCCL worked at {operation}")),
            false => rank.poll().map(drop),
        });
    }
    if issued.is_ok() && settled.is_ok() {
        watchdog::watch(runtime, watched, limit);
    }
    let Err(error) = issued else { return settled.map_err(IssueError::Failed) };
    let begun = has_begun(&error, issued_count, batch.len()) || settled.is_err();
    Err(if begun { IssueError::Failed(error) } else { IssueError::Refused(error) })
}

/// Returns whether NCCL executes a group, or a part of it, that ended with an error after `issued` of its calls.
pub(super) fn has_begun(error: &Error, issued: usize, calls: usize) -> bool {
    // NCCL discards a group in which one of its own calls failed, but not one that a call of the driver interrupted.
    // Once it has the whole group, it checks the arguments before it starts; all other errors occur during execution.
    issued > 0 && error.driver_code() != 0 || issued == calls && error.status() != Status::INVALID_VALUE
}
