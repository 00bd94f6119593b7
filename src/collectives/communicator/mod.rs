//! Communicators: ranks that work together, each on a device.
//!
//! The ranks are devices of one process, processes of one machine, or processes of many. [`engine`] says which engine
//! carries out what they do: [`in_process_group`], between devices of one process; [`shared`], between processes of one machine; [`nccl`].
//! All take the same [`operation`]s, alone or in a [`group`].
//!
//! No call waits without end: what depends on another rank has a limit ([`patience`]), and a communicator that missed it, or
//! whose rank failed, is done with. It can be aborted and a new one made.

pub mod engine;
pub mod group;
pub mod in_process_group;
pub mod nccl;
pub mod operation;
pub mod shared;
pub mod sticky_error;

use crate::base::deadline::Deadline;
use crate::{
    base::handle::{HandleTable, Kind as HandleKind},
    collectives::processes::Group,
    driver::{Span, nccl::ID_BYTES},
    error::{Context, Error, Result},
    runtime::{self, Runtime, sync_debug, tensor::ElementType},
    sanitizer,
    status::Status,
    stream,
};
use engine::Choice;
use group::{Deliver, Item};
use in_process_group::{Asked, Outcome, Seat};
use nccl::Issued;
use operation::{Kind, Operation};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How long ranks wait for each other where nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// The call that makes the communicator returns before the ranks have met.
pub const NONBLOCKING: u32 = 1;
/// NCCL is used in its blocking mode, whose calls are cheaper and have no limit of time.
pub const UNLIMITED: u32 = 2;

/// How a communicator is made.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The engine.
    pub engine: Choice,
    /// How long ranks wait for each other.
    pub timeout: Duration,
    /// [`NONBLOCKING`] and [`UNLIMITED`].
    pub flags: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { engine: Choice::Auto, timeout: TIMEOUT, flags: 0 }
    }
}

/// One rank's communicator.
pub struct Communicator {
    rank: u32,
    size: u32,
    device: u32,
    engine: Engine,
    milliseconds: AtomicU64,
    /// What ended it.
    failure: Mutex<Option<String>>,
}

enum Engine {
    Team(Seat),
    Shared(Box<shared::Member>),
    Nccl(nccl::Rank),
}

#[derive(Default)]
struct Slot(Mutex<Option<Arc<Communicator>>>);

static COMMUNICATORS: HandleTable<Slot> = HandleTable::new(HandleKind::Communicator);

/// The communicator of a handle.
pub fn get(handle: u64) -> Result<Arc<Communicator>> {
    let slot = COMMUNICATORS.get(handle)?;
    slot.0.lock().clone().ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the communicator is being destroyed"))
}

fn register(communicator: Arc<Communicator>) -> Result<u64> {
    COMMUNICATORS.insert(|slot| *slot.0.lock() = Some(communicator))
}

/// A new id for ranks to meet by.
pub fn unique_id() -> Result<[u8; ID_BYTES]> {
    let runtime = runtime::ready()?;
    match (Choice::Auto.or_by_environment()?, nccl::available(runtime)) {
        (Choice::Shared, _) | (Choice::Auto | Choice::Local, Err(_)) => Group::new_id(),
        (_, nccl) => nccl?.unique_id(),
    }
    .context(|| "making an id for ranks to meet by")
}

/// Becomes one of `size` ranks that meet by an id, on a device; as a handle.
pub fn init_rank(size: i32, id: [u8; ID_BYTES], rank: i32, device: i32, options: Options) -> Result<u64> {
    let runtime = runtime::ready()?;
    let (Ok(size), Ok(rank)) = (u32::try_from(size), u32::try_from(rank)) else {
        return Err(no_such_place(rank, size));
    };
    if rank >= size {
        return Err(no_such_place(rank as i32, size as i32));
    }
    if group::is_open() {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "a communicator cannot be made in a group; plinth_communicator_init_all makes those of several devices",
        ));
    }
    let device = runtime.device(device)?.ordinal;
    let choice = options.engine.or_by_environment()?;
    let attempt = || format!("making rank {rank} of {size} on device {device}");
    if size == 1 && choice != Choice::Nccl {
        let seats = in_process_group::gather(runtime, &[device], choice, options.timeout).context(attempt)?;
        let seat = seats.into_iter().next().ok_or_else(|| Error::new(Status::PANIC, "a team without a seat"))?;
        return register(Communicator::of_seat(seat, options.timeout));
    }
    let engine = join(runtime, id, (rank, size), device, choice, options).context(attempt)?;
    register(Communicator::new(rank, size, device, engine, options.timeout))
}

/// Meets the other ranks by the engine that the id and the choice ask for.
fn join(
    runtime: &Runtime,
    id: [u8; ID_BYTES],
    place: (u32, u32),
    device: u32,
    choice: Choice,
    options: Options,
) -> Result<Engine> {
    let limit = options.timeout;
    if Group::is_id(&id) && choice != Choice::Nccl {
        return Ok(Engine::Shared(Box::new(shared::Member::join(&id, place, device, limit)?)));
    }
    if Group::is_id(&id) || matches!(choice, Choice::Local | Choice::Shared) {
        let (made_by, wanted) =
            if Group::is_id(&id) { ("the library itself", "NCCL") } else { ("NCCL", "another engine") };
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "the id is one of {made_by}, and {wanted} was asked for; the engine is chosen where the id is made, too"
            ),
        ));
    }
    let nccl = nccl::available(runtime)?;
    let unlimited = options.flags & UNLIMITED != 0;
    let joined = nccl::Rank::join(runtime, nccl, id, place, device, unlimited)?;
    if options.flags & NONBLOCKING != 0 {
        return Ok(Engine::Nccl(joined));
    }
    if let Err(error) = joined.wait_until_ready(limit, "this rank waited for the others") {
        // What NCCL says of the abort is less to the point.
        let _ = joined.abort(runtime);
        return Err(error);
    }
    if choice == Choice::Nccl || unlimited {
        return Ok(Engine::Nccl(joined));
    }
    Ok(match shared::Member::from_nccl(runtime, joined, place, device, limit)? {
        Ok(member) => Engine::Shared(Box::new(member)),
        Err(joined) => Engine::Nccl(joined),
    })
}

#[cold]
fn no_such_place(rank: i32, size: i32) -> Error {
    Error::new(Status::INVALID_VALUE, format!("there is no rank {rank} among {size}"))
}

/// Makes the ranks of this process's devices; handles in order.
pub fn init_all(devices: &[i32], options: Options) -> Result<Vec<u64>> {
    team_of(devices, options)?.into_iter().map(register).collect()
}

/// The same without handles.
pub fn team_of(devices: &[i32], options: Options) -> Result<Vec<Arc<Communicator>>> {
    let runtime = runtime::ready()?;
    let mut ordinals = Vec::new();
    for device in devices {
        let ordinal = runtime.device(*device)?.ordinal;
        if ordinals.contains(&ordinal) {
            return Err(Error::new(Status::INVALID_VALUE, format!("device {ordinal} is there twice")));
        }
        ordinals.push(ordinal);
    }
    let choice = options.engine.or_by_environment()?;
    let seats = in_process_group::gather(runtime, &ordinals, choice, options.timeout)
        .context(|| format!("making the ranks of {} devices", devices.len()))?;
    Ok(seats.into_iter().map(|seat| Communicator::of_seat(seat, options.timeout)).collect())
}

/// Destroys a communicator. Work that is in streams should be done by then.
pub fn destroy(handle: u64) -> Result<()> {
    let taken = Mutex::new(None);
    COMMUNICATORS.remove(handle, |slot| *taken.lock() = slot.0.lock().take())?;
    let Some(communicator) = taken.into_inner() else { return Ok(()) };
    // In a forked child or an exiting process all of it is left to the operating system.
    let Some(runtime) = runtime::usable() else { return Ok(()) };
    match Arc::try_unwrap(communicator) {
        Ok(Communicator { engine: Engine::Team(seat), .. }) => seat.leave(runtime),
        Ok(Communicator { engine: Engine::Shared(member), .. }) => member.leave(runtime),
        Ok(Communicator { engine: Engine::Nccl(rank), .. }) => rank.destroy(runtime),
        // A call of another thread's is in it, against the rules.
        Err(communicator) => communicator.abort(),
    }
    .context(|| "destroying a communicator")
}

impl Communicator {
    fn new(rank: u32, size: u32, device: u32, engine: Engine, timeout: Duration) -> Arc<Communicator> {
        let milliseconds = AtomicU64::new(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        Arc::new(Communicator { rank, size, device, engine, milliseconds, failure: Mutex::new(None) })
    }

    fn of_seat(seat: Seat, timeout: Duration) -> Arc<Communicator> {
        Communicator::new(seat.rank(), seat.size(), seat.device(), Engine::Team(seat), timeout)
    }

    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Its engine; a team that NCCL helps with what is large is a local one.
    pub fn engine(&self) -> Choice {
        match &self.engine {
            Engine::Team(seat) if seat.uses_nccl() => Choice::Nccl,
            Engine::Team(_) => Choice::Local,
            Engine::Shared(_) => Choice::Shared,
            Engine::Nccl(_) => Choice::Nccl,
        }
    }

    /// How long it waits for other ranks.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    /// Sets how long it waits from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.milliseconds.store(timeout.as_millis().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Engine::Shared(member) = &self.engine {
            member.set_timeout(timeout);
        }
    }

    /// Fails if the communicator is done with.
    fn check(&self) -> Result<()> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some(reason) => {
                Err(Error::new(Status::ABORTED, format!("rank {} came to its end earlier: {reason}", self.rank)))
            }
        }
    }

    /// Notes what ended it, if nothing did before.
    fn fail(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.message().to_owned());
    }

    /// Whether all ranks have met and what was asked is in the streams. Fails with what the communicator failed with.
    pub fn query(&self) -> Result<bool> {
        self.check()?;
        match &self.engine {
            Engine::Team(seat) => seat.trouble().map_or(Ok(true), Err),
            Engine::Shared(member) => member.trouble().map_or(Ok(true), Err),
            Engine::Nccl(rank) => rank.is_ready(),
        }
        .inspect_err(|error| self.fail(error))
    }

    /// Waits until the ranks have met and all work of a stream is done, with a limit, and an eye on errors of the ranks that
    /// the stream would wait for in vain.
    pub fn wait(&self, handle: usize, limit: Duration) -> Result<()> {
        sync_debug::check("plinth_communicator_wait")?;
        let runtime = runtime::ready()?;
        let raw = stream::of_device(handle, self.device as i32)?;
        let stream = stream::from_validated(runtime, raw, self.device);
        let done = |driver: &crate::driver::Driver, raw| Ok(driver.stream_query(raw)?);
        let ahead = sanitizer::end_of_stream(stream);
        Deadline::new(limit).until(
            || format!("rank {} of {} waited for its work", self.rank, self.size),
            // In this order, since what waited in a group that failed ends as if it were done.
            || {
                let done = runtime.in_stream(stream, done)?;
                Ok((self.query()? && done).then_some(()))
            },
        )?;
        ahead.finish();
        Ok(())
    }

    /// Ends the communicator, and what waits in it.
    pub fn abort(&self) -> Result<()> {
        let runtime = runtime::ready()?;
        self.fail(&Error::new(Status::ABORTED, "it was aborted"));
        match &self.engine {
            Engine::Team(seat) => seat.abort(runtime),
            Engine::Shared(member) => member.abort(runtime),
            Engine::Nccl(rank) => rank.abort(runtime),
        }
    }
}

/// What a rank brings to an operation, before it is checked.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// See [`Operation`].
    pub from: Span,
    /// See [`Operation`].
    pub to: Span,
    /// See [`Operation`].
    pub count: u64,
    /// See [`Operation`].
    pub element: ElementType,
}

/// One rank's part in something that ranks do together, in a stream of its device.
pub fn operate(handle: u64, kind: Kind, share: Share, stream: usize) -> Result<()> {
    let communicator = get(handle)?;
    operate_on(&communicator, kind, share, stream)
}

/// The same for a communicator without a handle.
pub fn operate_on(communicator: &Arc<Communicator>, kind: Kind, share: Share, stream: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let raw = stream::of_device(stream, communicator.device as i32)?;
    let stream = stream::from_validated(runtime, raw, communicator.device);
    let Share { from, to, count, element } = share;
    let operation = Operation { kind, count, element, from, to, stream };
    let operation = operation.check(communicator.rank, communicator.size).context(|| operation)?;
    group::submit(Item { communicator: communicator.clone(), asked: Asked::Operation(operation), deliver: None })
}

/// Takes part in the splitting of a communicator by colors; `deliver` gets the handle of this rank's part.
pub fn split(handle: u64, color: Option<u32>, key: i32, deliver: Deliver) -> Result<()> {
    let communicator = get(handle)?;
    group::submit(Item { communicator, asked: Asked::Split { color, key }, deliver: Some(deliver) })
}

/// Gives the engines what was asked, and waits until all of it is in the streams.
fn carry_out(items: Vec<Item>) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let runtime = runtime::ready()?;
    for item in &items {
        item.communicator.check()?;
    }
    let limit = items.iter().map(|item| item.communicator.timeout()).min().unwrap_or(TIMEOUT);
    let (mut team, mut shared, mut nccl) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        match &item.communicator.engine {
            Engine::Team(_) => team.push(item),
            Engine::Shared(_) => shared.push(item),
            Engine::Nccl(_) => nccl.push(item),
        }
    }
    // What one engine refuses is no reason for the ranks of another to wait in vain.
    let by_nccl = carry_out_by_nccl(runtime, nccl, limit);
    let by_shared = carry_out_by_shared(runtime, shared, limit);
    let by_team = carry_out_by_team(runtime, team, limit);
    by_nccl.and(by_shared).and(by_team)
}

fn carry_out_by_shared(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let mut given = Ok(());
    let mut splits = Vec::new();
    let mut rest = items;
    while let Some(communicator) = rest.first().map(|item| item.communicator.clone()) {
        let Engine::Shared(member) = &communicator.engine else { break };
        let (now, later): (Vec<Item>, Vec<Item>) =
            rest.into_iter().partition(|item| Arc::ptr_eq(&item.communicator, &communicator));
        rest = later;
        let mut operations = Vec::new();
        for item in now {
            match item.asked {
                Asked::Operation(operation) => operations.push(operation),
                Asked::Split { .. } => splits.push(item),
            }
        }
        given = given.and(issue_by_shared(runtime, &communicator, member, operations, limit));
    }
    given?;
    let asked: Vec<shared::Split> = splits
        .iter()
        .filter_map(|item| match (&item.communicator.engine, item.asked) {
            (Engine::Shared(member), Asked::Split { color, key }) => Some((&**member, color, key)),
            _ => None,
        })
        .collect();
    let parts = shared::split(&asked, limit)?;
    for (item, part) in splits.into_iter().zip(parts) {
        let (device, timeout) = (item.communicator.device, item.communicator.timeout());
        let part = match part {
            Some(shared::Part { member, rank, size }) => {
                register(Communicator::new(rank, size, device, Engine::Shared(Box::new(member)), timeout))?
            }
            None => 0,
        };
        if let Some(deliver) = item.deliver {
            deliver(part);
        }
    }
    Ok(())
}

/// Issues what a rank was asked in a group. What all ranks do together goes one by one, by NCCL or without: in a stream
/// it is in the order of the calls. NCCL keeps none within a batch of its own. What is between two ranks has no order that
/// all of them know, so it comes last, and in two batches, the same at all ranks.
fn issue_by_shared(
    runtime: &Runtime,
    communicator: &Communicator,
    member: &shared::Member,
    operations: Vec<Operation>,
    limit: Duration,
) -> Result<()> {
    let by_nccl = |batch: &[(&nccl::Rank, u32, &Operation)]| {
        nccl::issue(runtime, batch, limit).map_err(|issued| {
            if let Issued::Failed(error) = &issued {
                communicator.fail(error);
            }
            issued.into_error()
        })
    };
    let (pairs, together): (Vec<Operation>, Vec<Operation>) =
        operations.into_iter().partition(|operation| operation.kind.is_between_two());
    for operation in &together {
        match member.nccl_for(operation) {
            Some(rank) => by_nccl(&[(rank, communicator.size, operation)])?,
            None => member.issue(std::slice::from_ref(operation))?,
        }
    }
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for operation in &pairs {
        match member.nccl_for(operation) {
            Some(rank) => large.push((rank, communicator.size, operation)),
            None => small.push(*operation),
        }
    }
    by_nccl(&large)?;
    member.issue(&small)
}

fn carry_out_by_team(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let seat = |item: &Item| match &item.communicator.engine {
        Engine::Team(seat) => Some((seat.clone(), item.asked)),
        _ => None,
    };
    let batch: Vec<(Seat, Asked)> = items.iter().filter_map(seat).collect();
    for (item, outcome) in items.into_iter().zip(in_process_group::bring(runtime, &batch, limit)?) {
        if let Outcome::Part(part) = outcome {
            let timeout = item.communicator.timeout();
            let part = part.map_or(Ok(0), |seat| register(Communicator::of_seat(seat, timeout)))?;
            if let Some(deliver) = item.deliver {
                deliver(part);
            }
        }
    }
    Ok(())
}

fn carry_out_by_nccl(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let (mut operations, mut splits) = (Vec::new(), Vec::new());
    for item in &items {
        let Engine::Nccl(rank) = &item.communicator.engine else { continue };
        match &item.asked {
            Asked::Operation(operation) => operations.push((rank, item.communicator.size, operation)),
            Asked::Split { color, key } => splits.push((rank, *color, *key)),
        }
    }
    let ended = |issued| match issued {
        Issued::Refused(error) => error,
        Issued::Failed(error) => {
            for item in &items {
                item.communicator.fail(&error);
            }
            error
        }
    };
    nccl::issue(runtime, &operations, limit).map_err(ended)?;
    let parts = nccl::split(runtime, &splits, limit).map_err(ended)?;
    let asked = items.into_iter().filter(|item| matches!(item.asked, Asked::Split { .. }));
    for (item, part) in asked.zip(parts) {
        let (device, timeout) = (item.communicator.device, item.communicator.timeout());
        let part = match part {
            Some(part) => {
                register(Communicator::new(part.number, part.size, device, Engine::Nccl(part.rank), timeout))?
            }
            None => 0,
        };
        if let Some(deliver) = item.deliver {
            deliver(part);
        }
    }
    Ok(())
}
