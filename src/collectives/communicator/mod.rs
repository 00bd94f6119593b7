//! Communicators: ranks that execute collectives together, each on a device.
//!
//! The ranks are devices of one process, processes of one machine, or processes of several machines. [`engine`] selects
//! the implementation: [`in_process_group`] between devices of one process, [`shared`] between processes of one
//! machine, or [`nccl`]. All engines execute the same [`operation`]s, individually or in a [`group`].
//!
//! Every wait for another rank has a deadline ([`deadline`](crate::base::deadline)). A communicator that missed its
//! deadline, or one of whose ranks failed, is aborted; the ranks that are left create a new one, or shrink it.

pub mod division;
pub mod engine;
mod execute;
pub mod group;
mod in_process_division;
pub mod in_process_group;
mod in_process_nccl;
mod in_process_sleep;
pub mod nccl;
mod nccl_division;
mod nccl_end;
mod nccl_end_call;
mod nccl_exchange;
mod nccl_registered;
pub mod nccl_report;
mod nccl_sleep;
pub mod operation;
pub mod shared;
pub mod sticky_error;
pub mod watchdog;

use crate::{
    base::{
        deadline::Deadline,
        handle::{Kind as HandleKind, ReferenceTable},
        log,
    },
    collectives::processes::ProcessGroup,
    driver::{Span, nccl::ID_BYTES},
    error::{Context, Error, Result},
    observe,
    runtime::{self, Runtime, sync_debug, tensor::ElementType},
    status::Status,
    stream,
};
use division::{Division, Shrink};
use engine::{EngineKind, NcclShare};
use group::{Deliver, Item};
use in_process_group::{InProcessRank, Request};
use nccl::{IssueError, NcclRank};
use operation::{Kind, Operation};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The default timeout of waits for other ranks.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// How long the error of a group waits for the work that it ends.
const LAST_WORK: Duration = Duration::from_secs(1);

/// The call that creates the communicator returns before the ranks are connected.
pub const NONBLOCKING: u32 = 1;
/// NCCL is used in its blocking mode, whose calls are faster and have no timeout.
pub const UNLIMITED: u32 = 2;

/// Options of a new communicator.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The engine.
    pub engine: EngineKind,
    /// The timeout of waits for other ranks.
    pub timeout: Duration,
    /// [`NONBLOCKING`] and [`UNLIMITED`].
    pub flags: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { engine: EngineKind::Auto, timeout: TIMEOUT, flags: 0 }
    }
}

/// One rank's communicator.
pub struct Communicator {
    rank: u32,
    size: u32,
    device: u32,
    engine: Engine,
    milliseconds: AtomicU64,
    /// The error that aborted it.
    failure: Mutex<Option<String>>,
}

enum Engine {
    InProcess(InProcessRank),
    Shared(Box<shared::ProcessRank>),
    Nccl(Arc<NcclRank>),
}

static COMMUNICATORS: ReferenceTable<Arc<Communicator>> = ReferenceTable::new(HandleKind::Communicator);

/// Returns the communicator of a handle.
pub fn get(handle: u64) -> Result<Arc<Communicator>> {
    COMMUNICATORS.get(handle)
}

/// Creates an id for a rendezvous of ranks.
pub fn unique_id() -> Result<[u8; ID_BYTES]> {
    let runtime = runtime::ready()?;
    match (EngineKind::Auto.or_from_environment()?, nccl::available(runtime)) {
        (EngineKind::Shared | EngineKind::Local, _) | (EngineKind::Auto, Err(_)) => ProcessGroup::new_id(),
        (_, nccl) => nccl?.unique_id(),
    }
    .context(|| "making an id for ranks to meet by")
}

/// Creates the communicator of one of `size` ranks that share an id, on a device, and returns its handle.
pub fn init_rank(size: i32, id: [u8; ID_BYTES], rank: i32, device: i32, options: Options) -> Result<u64> {
    let runtime = runtime::ready()?;
    let (Ok(size), Ok(rank)) = (u32::try_from(size), u32::try_from(rank)) else {
        return Err(no_such_rank(rank, size));
    };
    if rank >= size {
        return Err(no_such_rank(rank as i32, size as i32));
    }
    group::check_closed(
        "a communicator cannot be made in a group; plinth_communicator_init_all makes those of several devices",
    )?;
    let device = runtime.device(device)?.ordinal;
    let choice = options.engine.or_from_environment()?;
    let attempt = || format!("making rank {rank} of {size} on device {device}");
    if size == 1 && choice != EngineKind::Nccl {
        let ranks = in_process_group::create(runtime, &[device], choice, options.timeout).context(attempt)?;
        let rank_handle =
            ranks.into_iter().next().ok_or_else(|| Error::new(Status::PANIC, "a group without a rank"))?;
        return COMMUNICATORS.insert(Communicator::from_in_process(rank_handle, options.timeout));
    }
    let engine = join(runtime, id, (rank, size), device, choice, options).context(attempt)?;
    COMMUNICATORS.insert(Communicator::new(rank, size, device, engine, options.timeout))
}

/// Connects to the other ranks with the engine that the id and the options select.
fn join(
    runtime: &Runtime,
    id: [u8; ID_BYTES],
    rank_and_size: (u32, u32),
    device: u32,
    choice: EngineKind,
    options: Options,
) -> Result<Engine> {
    let limit = options.timeout;
    if ProcessGroup::is_id(&id) && choice != EngineKind::Nccl {
        return Ok(Engine::Shared(Box::new(shared::ProcessRank::join(&id, rank_and_size, device, limit)?)));
    }
    if ProcessGroup::is_id(&id) || matches!(choice, EngineKind::Local | EngineKind::Shared) {
        let (made_by, requested) =
            if ProcessGroup::is_id(&id) { ("the library itself", "NCCL") } else { ("NCCL", "another engine") };
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "the id is one of {made_by}, and {requested} was requested; select one engine for the id and the ranks"
            ),
        ));
    }
    let nccl = nccl::available(runtime)?;
    let unlimited = options.flags & UNLIMITED != 0;
    let may_share = choice != EngineKind::Nccl && options.flags & (UNLIMITED | NONBLOCKING) == 0;
    // Before NCCL connects the ranks: the others would wait for one that fails alone.
    let nccl_share = may_share.then(|| NcclShare::of(rank_and_size.1)).transpose()?;
    let joined = NcclRank::join(runtime, nccl, id, rank_and_size, device, unlimited)?;
    if options.flags & NONBLOCKING != 0 {
        return Ok(Engine::Nccl(joined));
    }
    if let Err(error) = joined.wait_until_ready(limit, "this rank waited for the others") {
        // Report the first error, not one of the abort.
        let _ = joined.abort(runtime);
        return Err(error);
    }
    let Some(nccl_share) = nccl_share else { return Ok(Engine::Nccl(joined)) };
    let shared = shared::ProcessRank::from_nccl(runtime, &joined, nccl_share, limit)?;
    Ok(shared.map_or(Engine::Nccl(joined), |process_rank| Engine::Shared(Box::new(process_rank))))
}

#[cold]
fn no_such_rank(rank: i32, size: i32) -> Error {
    Error::new(Status::INVALID_VALUE, format!("there is no rank {rank} among {size}"))
}

/// Creates the communicators of this process's devices and returns their handles in order.
pub fn init_all(devices: &[i32], options: Options) -> Result<Vec<u64>> {
    create_in_process(devices, options)?.into_iter().map(|communicator| COMMUNICATORS.insert(communicator)).collect()
}

/// Creates the communicators of this process's devices without handles.
pub fn create_in_process(devices: &[i32], options: Options) -> Result<Vec<Arc<Communicator>>> {
    let runtime = runtime::ready()?;
    let mut ordinals = Vec::new();
    for device in devices {
        let ordinal = runtime.device(*device)?.ordinal;
        if ordinals.contains(&ordinal) {
            return Err(Error::new(Status::INVALID_VALUE, format!("device {ordinal} is there twice")));
        }
        ordinals.push(ordinal);
    }
    let choice = options.engine.or_from_environment()?;
    let ranks = in_process_group::create(runtime, &ordinals, choice, options.timeout)
        .context(|| format!("making the ranks of {} devices", devices.len()))?;
    Ok(ranks.into_iter().map(|rank_handle| Communicator::from_in_process(rank_handle, options.timeout)).collect())
}

fn timeout_of(milliseconds: &AtomicU64) -> Duration {
    Duration::from_millis(milliseconds.load(Ordering::Relaxed))
}

/// Destroys a communicator. Its work in streams should be done.
pub fn destroy(handle: u64) -> Result<()> {
    let Some(communicator) = COMMUNICATORS.remove(handle)? else { return Ok(()) };
    // In a forked child or an exiting process the operating system releases everything.
    let Some(runtime) = runtime::usable() else { return Ok(()) };
    match Arc::try_unwrap(communicator) {
        Ok(Communicator { engine: Engine::InProcess(rank_handle), .. }) => rank_handle.release(runtime),
        Ok(Communicator { engine: Engine::Shared(process_rank), milliseconds, failure, .. }) => {
            process_rank.release(runtime, failure.into_inner().is_some(), timeout_of(&milliseconds))
        }
        Ok(Communicator { engine: Engine::Nccl(rank), milliseconds, failure, .. }) => match failure.into_inner() {
            Some(_) => rank.abort(runtime),
            None => rank.destroy(runtime, timeout_of(&milliseconds), || Ok(())),
        },
        // A concurrent call of another thread uses it, which violates the contract.
        Err(communicator) => communicator.abort(),
    }
    .context(|| "destroying a communicator")
}

impl Communicator {
    fn new(rank: u32, size: u32, device: u32, engine: Engine, timeout: Duration) -> Arc<Communicator> {
        let milliseconds = AtomicU64::new(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        Arc::new(Communicator { rank, size, device, engine, milliseconds, failure: Mutex::new(None) })
    }

    fn from_in_process(rank_handle: InProcessRank, timeout: Duration) -> Arc<Communicator> {
        Communicator::new(
            rank_handle.rank(),
            rank_handle.size(),
            rank_handle.device(),
            Engine::InProcess(rank_handle),
            timeout,
        )
    }

    /// Returns its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Returns its engine; an in-process group that uses NCCL only for large operations is `Local`.
    pub fn engine(&self) -> EngineKind {
        match &self.engine {
            Engine::InProcess(rank_handle) if rank_handle.uses_nccl() => EngineKind::Nccl,
            Engine::InProcess(_) => EngineKind::Local,
            Engine::Shared(_) => EngineKind::Shared,
            Engine::Nccl(_) => EngineKind::Nccl,
        }
    }

    /// Returns the timeout of waits for other ranks.
    pub fn timeout(&self) -> Duration {
        timeout_of(&self.milliseconds)
    }

    /// Sets the timeout of later waits.
    pub fn set_timeout(&self, timeout: Duration) {
        self.milliseconds.store(timeout.as_millis().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Engine::Shared(process_rank) = &self.engine {
            process_rank.set_timeout(timeout);
        }
    }

    /// Fails if the communicator is aborted. The first call after the watchdog's abort reports the watchdog's error, and aborts the
    /// work of the other engine.
    fn check(&self) -> Result<()> {
        let mut failure = self.failure.lock();
        if failure.is_none()
            && let Some(error) = self.nccl_rank().and_then(NcclRank::watchdog_error)
        {
            *failure = Some(error.message().to_owned());
            if let Engine::Shared(process_rank) = &self.engine {
                log::ignore(process_rank.abort(runtime::ready()?), "aborting a communicator");
            }
            return Err(error);
        }
        match &*failure {
            None => Ok(()),
            Some(reason) => Err(Error::new(
                Status::ABORTED,
                format!("the communicator of rank {} was aborted earlier: {reason}", self.rank),
            )),
        }
    }

    /// Returns NCCL's rank, if there is one for this rank alone.
    fn nccl_rank(&self) -> Option<&NcclRank> {
        match &self.engine {
            Engine::InProcess(_) => None,
            Engine::Shared(process_rank) => process_rank.nccl().map(|rank| &**rank),
            Engine::Nccl(rank) => Some(rank),
        }
    }

    /// Records the error that aborted it, unless there is one already.
    fn fail(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.message().to_owned());
    }

    /// Returns the error of a call of NCCL. Unless the call was refused, it ends the communicator.
    fn error_of(&self, issued: IssueError) -> Error {
        if let IssueError::Failed(error) = &issued {
            self.end_with(error);
        }
        issued.into_error()
    }

    /// Aborts it for an error of NCCL, whose work may wait for the other ranks without a limit.
    fn end_with(&self, error: &Error) {
        self.fail(error);
        let abort = |runtime| match &self.engine {
            Engine::InProcess(_) => Ok(()),
            Engine::Shared(process_rank) => process_rank.abort(runtime),
            Engine::Nccl(rank) => rank.abort(runtime),
        };
        log::ignore(runtime::ready().and_then(abort), "aborting a communicator");
    }

    /// Returns whether all ranks are connected and all requests are in the streams. Fails with the error that aborted
    /// the communicator.
    pub fn query(&self) -> Result<bool> {
        self.check()?;
        match &self.engine {
            Engine::InProcess(rank_handle) => rank_handle.sticky_error().map_or(Ok(true), Err),
            Engine::Shared(process_rank) => process_rank.sticky_error().map_or(Ok(true), Err),
            Engine::Nccl(rank) => rank.is_ready(),
        }
        .inspect_err(|error| self.fail(error))
    }

    /// Waits until the ranks are connected and all work of a stream is done, up to a limit. Checks for errors of the
    /// ranks that the stream would wait for. Reports one when the stream's work has ended, because its memory may be
    /// freed then; at most [`LAST_WORK`] later, because the work may be anything. NCCL's work ends with the abort only.
    pub fn wait(&self, handle: usize, limit: Duration) -> Result<()> {
        sync_debug::check("plinth_communicator_wait")?;
        let runtime = runtime::ready()?;
        let stream = stream::resolve_same(runtime, handle, self.device)?;
        let ahead = observe::end_of_stream(stream);
        let ends_itself = !matches!(self.engine, Engine::Nccl(_));
        let mut failure: Option<(Error, Deadline)> = None;
        let waited = Deadline::new(limit).until(
            || format!("rank {} of {} waited for its work", self.rank, self.size),
            // Query the stream first: work that waited in an aborted group ends as if it were done.
            || {
                let done = runtime.in_stream(stream, |driver, raw| Ok(driver.stream_query(raw)?))?;
                if let Some((_, end)) = &failure {
                    return Ok((done || end.is_expired()).then_some(()));
                }
                match self.query() {
                    Err(error) if ends_itself && !done => {
                        failure = Some((error, Deadline::new(LAST_WORK)));
                        Ok(None)
                    }
                    ready => Ok((ready? && done).then_some(())),
                }
            },
        );
        if let Some((error, _)) = failure {
            return Err(error);
        }
        waited?;
        ahead.finish();
        Ok(())
    }

    /// Returns whether an abort of one ends the other: it is the same, or another rank of the same group of this process.
    fn is_aborted_with(&self, other: &Communicator) -> bool {
        match (&self.engine, &other.engine) {
            (Engine::InProcess(one), Engine::InProcess(other)) => one.is_of_group_of(other),
            _ => std::ptr::eq(self, other),
        }
    }

    /// Aborts the communicator and its pending work.
    pub fn abort(&self) -> Result<()> {
        self.abort_with_reason("it was aborted")
    }

    fn abort_with_reason(&self, reason: &str) -> Result<()> {
        let runtime = runtime::ready()?;
        self.fail(&Error::new(Status::ABORTED, reason));
        match &self.engine {
            Engine::InProcess(rank_handle) => rank_handle.abort(runtime),
            Engine::Shared(process_rank) => process_rank.abort(runtime),
            Engine::Nccl(rank) => rank.abort(runtime),
        }
    }
}

/// A rank's buffers for an operation, before they are checked.
#[derive(Debug, Clone, Copy)]
pub struct RankBuffers {
    /// See [`Operation`].
    pub from: Span,
    /// See [`Operation`].
    pub to: Span,
    /// See [`Operation`].
    pub count: u64,
    /// See [`Operation`].
    pub element: ElementType,
}

/// Executes one rank's call of an operation in a stream of its device.
pub fn operate(handle: u64, kind: Kind, buffers: RankBuffers, stream: usize) -> Result<()> {
    let communicator = get(handle)?;
    operate_on(&communicator, kind, buffers, stream)
}

/// Executes the same for a communicator without a handle.
pub fn operate_on(communicator: &Arc<Communicator>, kind: Kind, buffers: RankBuffers, stream: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve_same(runtime, stream, communicator.device)?;
    let RankBuffers { from, to, count, element } = buffers;
    let operation = Operation { kind, count, element, from, to, stream };
    let operation = operation.check(communicator.rank, communicator.size).context(|| operation)?;
    group::submit(Item { communicator: communicator.clone(), request: Request::Operation(operation), deliver: None })
}

/// Splits a communicator by colors; `deliver` receives the handle of this rank's new communicator.
pub fn split(handle: u64, color: Option<u32>, key: i32, deliver: Deliver) -> Result<()> {
    divide(get(handle)?, Division::Split { color, key }, deliver)
}

/// Makes a communicator of the ranks that are not excluded, which make this call; `deliver` receives the handle of this rank's.
pub fn shrink(handle: u64, excluded: &[i32], aborts: bool, deliver: Deliver) -> Result<()> {
    let communicator = get(handle)?;
    let shrink = Shrink::new(excluded, aborts, communicator.rank, communicator.size)?;
    divide(communicator, Division::Shrink(shrink), deliver)
}

fn divide(communicator: Arc<Communicator>, division: Division, deliver: Deliver) -> Result<()> {
    group::submit(Item { communicator, request: Request::Division(division), deliver: Some(deliver) })
}

/// Puts the device memory of a communicator to sleep, or wakes it. An engine without memory of its own has nothing to do.
pub fn set_asleep(handle: u64, asleep: bool) -> Result<()> {
    sync_debug::check(if asleep { "plinth_communicator_sleep" } else { "plinth_communicator_wake" })?;
    let communicator = get(handle)?;
    communicator.check()?;
    group::check_closed("a communicator cannot sleep or wake in a group; end the group")?;
    let (runtime, limit) = (runtime::ready()?, communicator.timeout());
    let changed = match (&communicator.engine, asleep) {
        (Engine::Shared(process_rank), true) => process_rank.put_to_sleep(runtime, limit),
        (Engine::Shared(process_rank), false) => process_rank.wake(runtime, limit),
        (Engine::Nccl(rank), true) => rank.put_to_sleep(runtime, limit),
        (Engine::Nccl(rank), false) => rank.wake(runtime, limit),
        (Engine::InProcess(rank_handle), true) => rank_handle.put_to_sleep(runtime, limit),
        (Engine::InProcess(rank_handle), false) => rank_handle.wake(runtime),
    };
    changed.map_err(|issued| communicator.error_of(issued))
}

/// Registers memory with all ranks of a communicator. Each rank makes this call; it blocks.
pub fn register(handle: u64, memory: Span) -> Result<()> {
    group::check_closed("memory cannot be registered in a group: the call waits for all ranks")?;
    let communicator = get(handle)?;
    communicator.check()?;
    match &communicator.engine {
        Engine::Shared(process_rank) => process_rank.register(memory),
        Engine::Nccl(rank) => {
            let registered = rank.register(runtime::ready()?, memory, communicator.timeout());
            registered.map_err(|error| communicator.error_of(error))
        }
        Engine::InProcess(_) => Err(in_one_process()),
    }
}

/// Ends a rank's registration of the memory at an address.
pub fn deregister(handle: u64, address: u64) -> Result<()> {
    let communicator = get(handle)?;
    communicator.check()?;
    match &communicator.engine {
        Engine::Shared(process_rank) => process_rank.deregister(address),
        Engine::Nccl(rank) => rank.deregister(runtime::ready()?, address, communicator.timeout()),
        Engine::InProcess(_) => Err(in_one_process()),
    }
}

#[cold]
fn in_one_process() -> Error {
    let what = "the devices of one process access the memory of each other without a registration";
    Error::new(Status::NOT_SUPPORTED, what)
}
