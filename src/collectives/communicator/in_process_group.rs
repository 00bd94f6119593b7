//! The engine of ranks that are devices of one process.
//!
//! Each rank submits its call, all from one thread in a group or each from its own thread. The thread that submits the last call
//! enqueues the operation in all streams, with the library's kernels or with NCCL. A rank's call returns when that is done, so
//! its later work in its stream comes after the operation. A rank whose wait times out aborts the group.

use super::{
    division::Division,
    engine::{EngineKind, local_nccl_from},
    in_process_division::{self, PendingShrinks},
    in_process_sleep,
    nccl::{self, IssueError, NcclRank},
    nccl_end,
    operation::{Kind, Operation},
    sticky_error::StickyError,
};
use crate::{
    base::deadline::Deadline,
    collectives::devices::local::{self, RankOperands},
    error::{Error, Result},
    observe,
    ops::copy::{DeviceSpan, copy_peer},
    runtime::Runtime,
    status::Status,
    stream::{self, Stream},
};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long the release of a rank waits for one that looks for it.
const LOOK: Duration = Duration::from_millis(100);

/// A group of ranks that are devices of this process.
pub struct InProcessGroup {
    pub(super) devices: Vec<u32>,
    pub(super) engine: EngineKind,
    pub(super) limit: Duration,
    /// The number of bytes from which NCCL is used, if it is available.
    pub(super) nccl_from: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Which ranks were released and submit nothing any more.
    released: Vec<AtomicBool>,
    /// NCCL's communicators, if they could be created on first use.
    pub(super) nccl: OnceCell<Option<Vec<Arc<NcclRank>>>>,
}

/// What changes in a group.
#[derive(Default)]
pub(super) struct State {
    /// Pending requests: collectives by rank, and point-to-point operations by pair of ranks.
    pub(super) requests: Vec<VecDeque<PendingRequest>>,
    pub(super) sends: HashMap<(u32, u32), VecDeque<PendingRequest>>,
    pub(super) receives: HashMap<(u32, u32), VecDeque<PendingRequest>>,
    pub(super) shrinks: PendingShrinks,
    /// The error that aborted the group.
    pub(super) sticky_error: Option<StickyError>,
}

/// A request of a rank.
#[derive(Clone)]
pub enum Request {
    /// A collective or a point-to-point operation.
    Operation(Operation),
    /// A split or a shrink.
    Division(Division),
}

impl Request {
    /// Returns whether it ends the communicator and its work first.
    pub fn aborts(&self) -> bool {
        matches!(self, Request::Division(division) if division.aborts())
    }
}

/// The result of a request.
pub enum Outcome {
    /// The operation is in the rank's stream.
    Done,
    /// The rank's place in its new group.
    NewGroup(Option<InProcessRank>),
}

/// A request that is submitted.
struct Submission<'a> {
    rank_handle: &'a InProcessRank,
    request: &'a Request,
    result: Arc<ResultSlot>,
}

/// A request that waits for the other ranks.
pub(super) struct PendingRequest {
    request: Request,
    result: Arc<ResultSlot>,
}

/// The slot for the result of a request.
#[derive(Default)]
pub(super) struct ResultSlot(Mutex<Option<std::result::Result<Outcome, StickyError>>>);

impl ResultSlot {
    pub fn set(&self, result: std::result::Result<Outcome, StickyError>) {
        *self.0.lock() = Some(result);
    }
}

/// One rank of a group.
#[derive(Clone)]
pub struct InProcessRank {
    group: Arc<InProcessGroup>,
    rank: u32,
}

impl InProcessRank {
    /// Returns its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.group.devices.len() as u32
    }

    /// Returns whether another rank is of the same group.
    pub fn is_of_group_of(&self, other: &InProcessRank) -> bool {
        Arc::ptr_eq(&self.group, &other.group)
    }

    /// Returns its device.
    pub fn device(&self) -> u32 {
        self.group.devices[self.rank as usize]
    }

    /// Returns the error that aborted the group.
    pub fn sticky_error(&self) -> Option<Error> {
        let rank = self.group.nccl.get().and_then(|ranks| ranks.as_ref()?.get(self.rank as usize));
        // If the lock is taken, the call in progress reports its own errors.
        let sticky_error =
            self.group.state.try_lock().and_then(|state| state.sticky_error.as_ref().map(StickyError::error));
        sticky_error.or_else(|| rank?.check_health().err())
    }

    /// Aborts the group: pending and later calls of all ranks fail.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        // Abort NCCL first: a call of NCCL that does not return holds the lock.
        let ranks = self.group.nccl.get().into_iter().flatten().flatten().map(|rank| &**rank);
        let aborted = nccl_end::abort_together(runtime, ranks);
        self.group.fail(StickyError::new(Status::ABORTED, format!("rank {} aborted the communicator", self.rank)));
        aborted.map(drop)
    }

    /// Releases a rank; the last one destroys the shared resources. Ranks that wait for it fail.
    pub fn release(self, runtime: &Runtime) -> Result<()> {
        self.group.released[self.rank as usize].store(true, Ordering::Release);
        // A rank that has looked holds the lock until it waits. A call of NCCL may hold it for ever.
        drop(self.group.state.try_lock_for(LOOK));
        self.group.changed.notify_all();
        let Some(group) = Arc::into_inner(self.group) else { return Ok(()) };
        let ranks = group.nccl.into_inner().flatten().unwrap_or_default();
        let mut released = in_process_sleep::end(runtime, &ranks);
        for rank in ranks {
            released = released.and(rank.destroy(runtime, group.limit, || Ok(())));
        }
        released
    }

    /// Returns the ranks of NCCL, if there are any.
    pub(super) fn nccl_ranks(&self) -> Option<&[Arc<NcclRank>]> {
        self.group.nccl.get()?.as_deref()
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.group.state.lock()
    }

    /// Returns whether the engine is NCCL for all operations.
    pub fn uses_nccl(&self) -> bool {
        self.group.engine == EngineKind::Nccl
    }
}

/// Creates a group of devices and returns its ranks in order. The devices must be distinct.
pub fn create(runtime: &Runtime, devices: &[u32], engine: EngineKind, limit: Duration) -> Result<Vec<InProcessRank>> {
    let state = State { requests: devices.iter().map(|_| VecDeque::new()).collect(), ..State::default() };
    let group = Arc::new(InProcessGroup {
        devices: devices.to_vec(),
        engine,
        limit,
        nccl_from: local_nccl_from()?,
        state: Mutex::new(state),
        changed: Condvar::new(),
        released: devices.iter().map(|_| AtomicBool::new(false)).collect(),
        nccl: OnceCell::new(),
    });
    if engine == EngineKind::Nccl {
        let ranks = group.connect(runtime, nccl::available(runtime)?)?;
        // No other thread has the group yet.
        let _ = group.nccl.set(Some(ranks));
    }
    Ok(group.ranks().collect())
}

/// Submits requests of ranks of this process, and waits until all of them are in their streams. The requests of one
/// group are queued together, so that those of two threads do not interleave. After an error no request stays queued,
/// because its owner may reuse the memory.
pub fn submit(runtime: &Runtime, batch: &[(InProcessRank, Request)], limit: Duration) -> Result<Vec<Outcome>> {
    let deadline = Deadline::new(limit);
    let parts: Vec<Submission> = batch
        .iter()
        .map(|(rank_handle, request)| Submission { rank_handle, request, result: Arc::default() })
        .collect();
    let mut groups: Vec<&Arc<InProcessGroup>> = Vec::new();
    for part in &parts {
        if !groups.iter().any(|group| Arc::ptr_eq(group, &part.rank_handle.group)) {
            groups.push(&part.rank_handle.group);
        }
    }
    let mut outcomes = Vec::with_capacity(parts.len());
    let Err(error) = execute(runtime, &parts, &groups, &deadline, &mut outcomes) else { return Ok(outcomes) };
    for group in groups {
        group.withdraw(&parts);
    }
    outcomes.extend(parts.iter().filter_map(|part| part.result.0.lock().take()?.ok()));
    for outcome in outcomes {
        if let Outcome::NewGroup(Some(rank_handle)) = outcome {
            // The caller does not get it. Report the error of the batch, not of the cleanup.
            let _ = rank_handle.release(runtime);
        }
    }
    Err(error)
}

fn execute(
    runtime: &Runtime,
    parts: &[Submission],
    groups: &[&Arc<InProcessGroup>],
    deadline: &Deadline,
    outcomes: &mut Vec<Outcome>,
) -> Result<()> {
    // Check first, so that a group that is aborted or sleeps does not let the work of the others begin.
    parts.iter().try_for_each(|part| part.check(&part.rank_handle.group.state.lock()))?;
    groups.iter().try_for_each(|group| group.queue(parts))?;
    for group in groups {
        group.execute(runtime);
    }
    for part in parts {
        outcomes.push(part.wait(deadline)?);
    }
    Ok(())
}

impl State {
    pub(super) fn check(&self) -> Result<()> {
        self.sticky_error.as_ref().map_or(Ok(()), |sticky_error| Err(sticky_error.error()))
    }

    /// Aborts the group, unless it is.
    pub(super) fn fail(&mut self, sticky_error: StickyError) {
        self.sticky_error.get_or_insert(sticky_error);
    }

    /// Returns whether a request of a rank waits for other ranks.
    pub(super) fn has_requests_of(&self, rank: u32) -> bool {
        let sends = self.sends.iter().filter(|((sender, _), _)| *sender == rank).map(|(_, sends)| sends);
        let receives =
            self.receives.iter().filter(|((_, receiver), _)| *receiver == rank).map(|(_, receives)| receives);
        let waits = sends.chain(receives).chain([&self.requests[rank as usize]]).any(|waiting| !waiting.is_empty());
        waits || self.shrinks.has_one_of(rank)
    }
}

impl Submission<'_> {
    /// Fails if the group is aborted or the rank sleeps, which do not matter to a shrink that aborts the group.
    fn check(&self, state: &State) -> Result<()> {
        if self.request.aborts() {
            return Ok(());
        }
        state.check().and_then(|()| self.rank_handle.check_awake())
    }

    /// Aborts the group because this rank cannot get an answer. A shrink fails alone, for all ranks that have called it.
    fn fail(&self, state: &mut State, error: &Error) {
        match self.request {
            Request::Division(Division::Shrink(shrink)) => state.fail_shrink(shrink, error),
            _ => state.fail(StickyError::aborted_by(error)),
        }
        self.rank_handle.group.changed.notify_all();
    }

    fn wait(&self, deadline: &Deadline) -> Result<Outcome> {
        let (rank_handle, group) = (self.rank_handle, &self.rank_handle.group);
        let mut state = group.state.lock();
        loop {
            if let Some(outcome) = self.result.0.lock().take() {
                return outcome.map_err(|sticky_error| sticky_error.error());
            }
            self.check(&state)?;
            if let Some(error) = rank_handle.never_answered(&state, self.request) {
                if error.status() == Status::PEER_LOST {
                    self.fail(&mut state, &error);
                }
                return Err(error);
            }
            let over = match deadline.end() {
                Some(end) => group.changed.wait_until(&mut state, end).timed_out(),
                None => {
                    group.changed.wait(&mut state);
                    false
                }
            };
            if over && self.result.0.lock().is_none() {
                let missing = rank_handle.missing(&state, self.request);
                let error = deadline.error(format_args!("rank {} waited for {missing}", rank_handle.rank));
                // The other ranks would wait for this rank until their deadline.
                self.fail(&mut state, &error);
                return Err(error);
            }
        }
    }
}

impl InProcessRank {
    /// Returns the ranks that a request waits for.
    fn awaited(&self, state: &State, request: &Request) -> Vec<u32> {
        match request {
            Request::Operation(Operation { kind: Kind::Send { peer } | Kind::Receive { peer }, .. }) => vec![*peer],
            Request::Division(Division::Shrink(shrink)) => state.shrinks.awaited(shrink, self.size()),
            _ => (0..self.size()).filter(|rank| state.requests[*rank as usize].is_empty()).collect(),
        }
    }

    /// Returns the error of a request that no rank can answer any more.
    fn never_answered(&self, state: &State, request: &Request) -> Option<Error> {
        let awaited = self.awaited(state, request);
        if awaited.contains(&self.rank) {
            let what = "a rank sends to itself only while it receives, in one group";
            return Some(Error::new(Status::INVALID_VALUE, what));
        }
        let is_gone = |rank: &u32| self.group.released[*rank as usize].load(Ordering::Acquire);
        let gone = awaited.into_iter().find(is_gone)?;
        let what = format!("rank {} waited for rank {gone}, whose communicator was destroyed", self.rank);
        Some(Error::new(Status::PEER_LOST, what))
    }

    /// Describes the ranks that this rank waits for.
    fn missing(&self, state: &State, request: &Request) -> String {
        let ranks: Vec<String> = self.awaited(state, request).iter().map(u32::to_string).collect();
        format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranks.join(", "))
    }
}

impl InProcessGroup {
    fn ranks(self: &Arc<InProcessGroup>) -> impl Iterator<Item = InProcessRank> {
        (0..self.devices.len() as u32).map(|rank| InProcessRank { group: self.clone(), rank })
    }

    fn fail(&self, sticky_error: StickyError) {
        self.state.lock().fail(sticky_error);
        self.changed.notify_all();
    }

    /// Queues the requests of this group.
    fn queue(self: &Arc<InProcessGroup>, parts: &[Submission]) -> Result<()> {
        let mut state = self.state.lock();
        let parts = parts.iter().filter(|part| Arc::ptr_eq(&part.rank_handle.group, self));
        parts.clone().try_for_each(|part| part.check(&state))?;
        for Submission { rank_handle, request, result } in parts {
            let pending = PendingRequest { request: (*request).clone(), result: result.clone() };
            let list = match request {
                Request::Operation(Operation { kind: Kind::Send { peer }, .. }) => {
                    state.sends.entry((rank_handle.rank, *peer)).or_default()
                }
                Request::Operation(Operation { kind: Kind::Receive { peer }, .. }) => {
                    state.receives.entry((*peer, rank_handle.rank)).or_default()
                }
                Request::Division(Division::Shrink(shrink)) => {
                    state.shrinks.push(rank_handle.rank, shrink.clone(), result.clone());
                    continue;
                }
                _ => &mut state.requests[rank_handle.rank as usize],
            };
            list.push_back(pending);
        }
        Ok(())
    }

    /// Removes the requests that are still queued. The lock guarantees that a request which was dequeued is in its
    /// stream when this returns.
    fn withdraw(&self, parts: &[Submission]) {
        let mut state = self.state.lock();
        let State { requests, sends, receives, shrinks, .. } = &mut *state;
        shrinks.withdraw(|result| parts.iter().any(|part| Arc::ptr_eq(&part.result, result)));
        for list in requests.iter_mut().chain(sends.values_mut()).chain(receives.values_mut()) {
            list.retain(|pending| !parts.iter().any(|part| Arc::ptr_eq(&part.result, &pending.result)));
        }
    }

    /// Enqueues all operations whose ranks have submitted their calls. The lock makes the order the same for all ranks.
    fn execute(self: &Arc<InProcessGroup>, runtime: &Runtime) {
        let mut state = self.state.lock();
        while state.sticky_error.is_none() && state.requests.iter().all(|queue| !queue.is_empty()) {
            let round: Vec<PendingRequest> = state.requests.iter_mut().filter_map(VecDeque::pop_front).collect();
            state.sticky_error = self.execute_collective(runtime, &round);
        }
        let State { sends, receives, sticky_error, .. } = &mut *state;
        for (pair, sends) in sends.iter_mut() {
            let Some(receives) = receives.get_mut(pair) else { continue };
            while sticky_error.is_none() && !sends.is_empty() && !receives.is_empty() {
                if let (Some(send), Some(receive)) = (sends.pop_front(), receives.pop_front()) {
                    let moved = self.execute_pair(runtime, *pair, &send, &receive).map_err(StickyError::from);
                    send.result.set(moved.clone().map(|()| Outcome::Done));
                    receive.result.set(moved.map(|()| Outcome::Done));
                }
            }
        }
        state.execute_shrinks(|remaining| self.part(runtime, remaining));
        self.changed.notify_all();
    }

    /// Executes one request of every rank; returns an error that aborts the group.
    fn execute_collective(
        self: &Arc<InProcessGroup>,
        runtime: &Runtime,
        round: &[PendingRequest],
    ) -> Option<StickyError> {
        let mut operations = Vec::new();
        let mut splits = Vec::new();
        for pending in round {
            match pending.request {
                Request::Operation(operation) => operations.push(operation),
                Request::Division(Division::Split { color, key }) => splits.push((color, key)),
                // Not all ranks make a shrink, which has a queue of its own.
                Request::Division(Division::Shrink(_)) => {}
            }
        }
        let answer_all = |result: std::result::Result<(), StickyError>| {
            round.iter().for_each(|pending| pending.result.set(result.clone().map(|()| Outcome::Done)));
        };
        if operations.len() == round.len() {
            let done = self.operate(runtime, &operations);
            let end = match &done {
                Err(IssueError::Failed(error)) => Some(StickyError::aborted_by(error)),
                _ => None,
            };
            answer_all(done.map_err(|issued| StickyError::from(issued.into_error())));
            return end;
        } else if splits.len() == round.len() {
            match in_process_division::split(&splits, |members| self.part(runtime, members)) {
                Ok(parts) => {
                    for (pending, part) in round.iter().zip(parts) {
                        pending.result.set(Ok(Outcome::NewGroup(part)));
                    }
                }
                Err(error) => answer_all(Err(error.into())),
            }
        } else {
            let what = "some ranks ask for a split, and others for something else";
            answer_all(Err(StickyError::new(Status::RANK_MISMATCH, what)));
        }
        None
    }

    /// Creates a group of some of the ranks, and returns their new ranks in order.
    fn part(&self, runtime: &Runtime, members: &[u32]) -> Result<Vec<InProcessRank>> {
        let devices: Vec<u32> = members.iter().map(|rank| self.devices[*rank as usize]).collect();
        create(runtime, &devices, self.engine, self.limit)
    }

    fn operate(&self, runtime: &Runtime, operations: &[Operation]) -> std::result::Result<(), IssueError> {
        let Some(first) = operations.first() else { return Ok(()) };
        if let Some(other) = operations.iter().position(|operation| !operation.agrees(first)) {
            return Err(mismatch((0, first), (other, &operations[other])).into());
        }
        if first.count == 0 {
            return Ok(());
        }
        if let Some(ranks) = self.nccl_for(runtime, operations)? {
            let batch: Vec<_> = ranks.iter().zip(operations).collect();
            nccl::issue(runtime, &batch, self.limit).inspect_err(|issued| {
                if let IssueError::Failed(_) = issued {
                    // A part of the operation may be in a stream and wait there for the rest. Report the first error.
                    let _ = nccl_end::abort_together(runtime, ranks.iter().map(|rank| &**rank));
                }
            })?;
            let streams: Vec<Stream> = operations.iter().map(|operation| operation.stream).collect();
            observe::wait_mutually(&streams, |pending, awaited| match first.kind {
                Kind::Broadcast { root } => awaited == root as usize,
                Kind::Reduce { root, .. } => pending == root as usize,
                _ => true,
            });
            return Ok(());
        }
        let parts: Vec<RankOperands> = operations
            .iter()
            .zip(&self.devices)
            .map(|(operation, device)| RankOperands {
                device: *device,
                stream: operation.stream,
                from: operation.from,
                to: operation.to,
            })
            .collect();
        let (count, element) = (first.count, first.element);
        match first.kind {
            Kind::AllReduce { op } => local::all_reduce(&parts, count, element, op),
            Kind::Reduce { op, root } => local::reduce(&parts, root as usize, count, element, op),
            Kind::Broadcast { root } => local::broadcast(&parts, root as usize, count, element),
            Kind::AllGather => local::all_gather(&parts, count, element),
            Kind::ReduceScatter { op } => local::reduce_scatter(&parts, count, element, op),
            Kind::AllToAll => local::all_to_all(&parts, count, element),
            // Point-to-point operations have their own queues.
            Kind::Send { .. } | Kind::Receive { .. } => {
                Err(Error::new(Status::PANIC, "two ranks' work among all ranks'"))
            }
        }
        .map_err(IssueError::Refused)
    }

    /// Executes a send and its receive: a copy between their streams.
    fn execute_pair(
        &self,
        runtime: &Runtime,
        pair: (u32, u32),
        send: &PendingRequest,
        receive: &PendingRequest,
    ) -> Result<()> {
        let (Request::Operation(send), Request::Operation(receive)) = (&send.request, &receive.request) else {
            return Ok(());
        };
        if (send.count, send.element) != (receive.count, receive.element) {
            return Err(mismatch((pair.0 as usize, send), (pair.1 as usize, receive)));
        }
        if send.count == 0 {
            return Ok(());
        }
        let apart = (send.stream.raw, send.stream.device()) != (receive.stream.raw, receive.stream.device());
        if apart {
            stream::make_wait(runtime, send.stream, receive.stream)?;
        }
        let memory = |span, rank: u32| DeviceSpan { span, device: self.devices[rank as usize] };
        copy_peer(runtime, send.stream, memory(send.from, pair.0), memory(receive.to, pair.1), send.bytes())?;
        if apart {
            stream::make_wait(runtime, receive.stream, send.stream)?;
        }
        Ok(())
    }
}

#[cold]
fn mismatch(one: (usize, &Operation), other: (usize, &Operation)) -> Error {
    Error::new(
        Status::RANK_MISMATCH,
        format!("rank {} asks for {}, and rank {} for {}", one.0, one.1, other.0, other.1),
    )
}
