//! The engine of processes of one machine: the library's kernels over shared memory, and NCCL for large operations if
//! the ranks are connected through NCCL.
//!
//! The caller need not specify whether all ranks are on one machine: ranks that are connected through NCCL compare
//! their machines.

use super::{
    division::Division,
    engine::NcclShare,
    nccl::{self, IssueError},
    nccl_exchange::{ROW, exchange},
    operation::{Kind, Operation},
};
use crate::{
    collectives::processes::{Candidate, GatherRow, GatheringCall, ProcessGroup, Transfer},
    driver::{Span, group::MAX_RANKS, signals},
    error::{Context, Error, Result},
    runtime::Runtime,
    status::Status,
    stream::Stream,
};
use std::{
    collections::hash_map::DefaultHasher, fs, hash::Hasher, io, sync::Arc, thread::ScopedJoinHandle, time::Duration,
};

/// One rank in a group of processes.
pub struct ProcessRank {
    group: ProcessGroup,
    nccl: Option<Arc<nccl::NcclRank>>,
    /// What NCCL executes.
    nccl_share: NcclShare,
}

/// The size of an id in a row that ranks exchange, before the identity of the machine and the share of NCCL.
const ID: usize = 128;
/// The maximum duration of a rendezvous of ranks that NCCL has connected. A rank that cannot take part waits for the
/// others in NCCL meanwhile, so half of its limit must remain.
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(30);

impl ProcessRank {
    /// Creates a rank without NCCL.
    pub fn from_group(group: ProcessGroup) -> ProcessRank {
        ProcessRank { group, nccl: None, nccl_share: NcclShare::NONE }
    }

    /// Joins a group by an id of the library.
    pub fn join(id: &[u8; ID], rank_and_size: (u32, u32), device: u32, limit: Duration) -> Result<ProcessRank> {
        let group = ProcessGroup::join(id, rank_and_size.0, rank_and_size.1, device, Some(limit))?;
        group.set_timeout(limit);
        Ok(ProcessRank::from_group(group))
    }

    /// Converts a rank of NCCL to shared memory if all ranks are on one machine and can share memory; otherwise returns
    /// `None`. After an error the rank of NCCL is aborted, because the ranks no longer know each other's state.
    pub fn from_nccl(
        runtime: &Runtime,
        rank: &Arc<nccl::NcclRank>,
        nccl_share: NcclShare,
        limit: Duration,
    ) -> Result<Option<ProcessRank>> {
        let (size, device) = (rank.size(), rank.device());
        if size as usize > MAX_RANKS {
            return Ok(None);
        }
        // The end of a group waits for the work of the device, in which NCCL waits for the other ranks. Report the first error.
        let abort = |_: &Error| drop(rank.abort(runtime));
        let exchange = |row: &[u8; ROW]| {
            exchange(runtime, rank, row, limit).inspect_err(abort).context(|| "asking the ranks for their machines")
        };
        // Prepare before the exchange: a rank that cannot share memory reports it there, and no rank waits for it.
        let candidate = Candidate::new(rank.rank(), size, device);
        let mut row = [0; ROW];
        row[..ID].copy_from_slice(&ProcessGroup::new_id().inspect_err(abort)?);
        row[ID..ID + 8].copy_from_slice(&machine().to_le_bytes());
        // Ranks that use NCCL differently do not share memory.
        row[ID + 8..ID + 17].copy_from_slice(&nccl_share.bytes());
        row[ID + 17] = u8::from(candidate.is_ok());
        let rows = exchange(&row)?;
        let candidate = match candidate {
            Ok(candidate) if rows.iter().all(|other| other[ID..] == row[ID..]) => candidate,
            _ => return Ok(None),
        };
        let mut id = [0; ID];
        id.copy_from_slice(&rows[0][..ID]);
        let joined = candidate.join(&id, Some(RENDEZVOUS_LIMIT.min(limit / 2)), &|| None);
        // All ranks must make the same choice.
        let rows = exchange(&[u8::from(joined.is_ok()); ROW])?;
        match joined {
            Ok(group) if rows.iter().all(|row| row[0] == 1) => {
                group.set_timeout(limit);
                Ok(Some(ProcessRank { group, nccl: Some(rank.clone()), nccl_share }))
            }
            _ => Ok(None),
        }
    }

    /// Returns NCCL's communicator, if there is one.
    pub fn nccl(&self) -> Option<&Arc<nccl::NcclRank>> {
        self.nccl.as_ref()
    }

    /// Returns NCCL's communicator if NCCL executes the operation.
    pub fn nccl_for(&self, operation: &Operation) -> Option<&Arc<nccl::NcclRank>> {
        let NcclShare { from, only_unregistered } = self.nccl_share;
        self.nccl.as_ref().filter(|_| operation.bytes() >= from && !(only_unregistered && self.is_direct(operation)))
    }

    /// Returns whether the operation is a message, or a collective that uses registered memory where it is.
    fn is_direct(&self, operation: &Operation) -> bool {
        let Operation { from, to, .. } = *operation;
        let is_registered = |memory| self.group.is_registered(memory);
        match operation.kind {
            Kind::Send { .. } | Kind::Receive { .. } => true,
            Kind::AllReduce { .. } => is_registered(from) && is_registered(to),
            Kind::Reduce { .. } | Kind::ReduceScatter { .. } => is_registered(from),
            Kind::Broadcast { .. } | Kind::AllGather => is_registered(to),
            Kind::AllToAll => from.address() != to.address() && is_registered(to),
        }
    }

    /// Returns the error that aborted the group, or NCCL's asynchronous error.
    pub fn sticky_error(&self) -> Option<Error> {
        self.group_error().err().or_else(|| self.nccl.as_ref()?.check_health().err())
    }

    /// Sets the timeout of later waits for other ranks.
    pub fn set_timeout(&self, limit: Duration) {
        self.group.set_timeout(limit);
    }

    /// Releases the memory of the group, and NCCL's if its version can. Collective.
    pub fn put_to_sleep(&self, runtime: &Runtime, limit: Duration) -> std::result::Result<(), IssueError> {
        self.announced(self.group.put_to_sleep())?;
        self.nccl_that_sleeps().map_or(Ok(()), |rank| rank.suspend(runtime, limit, || self.group_error()))
    }

    /// Allocates the memory again. Collective.
    pub fn wake(&self, runtime: &Runtime, limit: Duration) -> std::result::Result<(), IssueError> {
        let check_room = || self.nccl_that_sleeps().map_or(Ok(()), |rank| rank.check_room(runtime));
        self.announced(self.group.wake(check_room))?;
        // The group may be awake already, if an earlier call failed after that.
        check_room()?;
        self.nccl_that_sleeps().map_or(Ok(()), |rank| rank.resume(runtime, limit, || self.group_error()))
    }

    fn nccl_that_sleeps(&self) -> Option<&Arc<nccl::NcclRank>> {
        self.nccl.as_ref().filter(|rank| rank.nccl().has_sleep())
    }

    fn group_error(&self) -> Result<()> {
        self.announced(self.group.error().map_or(Ok(()), Err))
    }

    /// Notifies the other ranks if a call fails because of a failure of the group.
    fn announced<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|_| self.group.announce_failure())
    }

    /// Fails while the communicator sleeps.
    pub fn check_awake(&self) -> Result<()> {
        self.group.check_awake()
    }

    /// Aborts the work of this rank and of the others.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        self.group.abort();
        self.nccl.as_ref().map_or(Ok(()), |rank| rank.abort(runtime))
    }

    /// Leaves the group, whose work is done unless it has failed.
    pub fn release(self, runtime: &Runtime, has_failed: bool, limit: Duration) -> Result<()> {
        match &self.nccl {
            None => Ok(()),
            Some(rank) if has_failed || self.group.error().is_some() => rank.abort(runtime),
            Some(rank) => rank.destroy(runtime, limit, || self.group_error()),
        }
    }

    /// Registers memory with all ranks. Collective; blocks.
    pub fn register(&self, memory: Span) -> Result<()> {
        self.announced(self.group.register(memory))
    }

    /// Ends the registration of memory at this rank.
    pub fn deregister(&self, address: u64) -> Result<()> {
        self.group.deregister(address)
    }

    /// Enqueues this rank's part of a collective in its stream. Does nothing for a point-to-point operation.
    pub fn issue_collective(&self, operation: &Operation) -> Result<()> {
        let Operation { kind, from, to, count, element, stream } = *operation;
        let group = &self.group;
        self.announced(match kind {
            Kind::AllReduce { op } => group.all_reduce(from, to, count, element, op, stream),
            Kind::Reduce { op, root } => group.reduce(from, to, count, element, op, root, stream),
            Kind::Broadcast { root } => group.broadcast(from, to, count, element, root, stream),
            Kind::AllGather => group.all_gather(from, to, count, element, stream),
            Kind::ReduceScatter { op } => group.reduce_scatter(from, to, count, element, op, stream),
            Kind::AllToAll => group.all_to_all(from, to, count, element, stream),
            Kind::Send { .. } | Kind::Receive { .. } => Ok(()),
        })
    }

    /// Enqueues this rank's point-to-point operations in their streams, together.
    pub fn issue_transfers(&self, transfers: &[(Transfer, Stream)]) -> Result<()> {
        self.announced(self.group.exchange_in_streams(transfers))
    }

    /// Starts a division and sends this rank's part of it to the others. Divisions are matched by the order of these calls.
    fn begin(&self, division: &Division) -> Result<GatherRow> {
        let mut own_row = Vec::from(ProcessGroup::new_id()?);
        match division {
            Division::Split { color, key } => {
                self.group_error()?;
                self.group.check_awake()?;
                own_row.extend(color.map_or(-1, i64::from).to_le_bytes());
                own_row.extend(key.to_le_bytes());
                self.group.send_row(GatheringCall::Split, &own_row)
            }
            Division::Shrink(shrink) => {
                self.announced(self.group.begin_shrink(&shrink.excluded, shrink.aborts, &own_row))
            }
        }
    }

    /// Completes a division: waits for the other ranks, and joins this rank's new group.
    fn end(&self, row: &GatherRow, division: &Division, limit: Duration) -> Result<Option<Part>> {
        match division {
            Division::Split { color, .. } => color
                .map_or_else(|| self.group.collect_rows(row).map(|_| None), |color| self.end_split(row, color, limit)),
            Division::Shrink(_) => {
                let part =
                    self.group.after_shrink(row, |rows, stop| self.join_part(row.ranks(), &rows[0], limit, stop));
                part.map(Some)
            }
        }
    }

    fn end_split(&self, row: &GatherRow, color: u32, limit: Duration) -> Result<Option<Part>> {
        let rows = self.group.collect_rows(row)?;
        let number = |row: &[u8], from: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(row.get(from..from + bytes)?);
            Some(i64::from_le_bytes(number))
        };
        let mut members: Vec<(i32, u32)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| number(row, ID, 8) == Some(color.into()))
            .filter_map(|(rank, row)| Some((number(row, ID + 8, 4)? as i32, rank as u32)))
            .collect();
        members.sort_unstable();
        let members: Vec<usize> = members.into_iter().map(|(_, rank)| rank as usize).collect();
        let Some(first) = members.first() else {
            return Err(Error::new(Status::PANIC, "a split without its own rank"));
        };
        let part = self.group.after_gather(row, &members, "the parent communicator", |stop| {
            self.join_part(&members, &rows[*first], limit, stop)
        });
        part.map(Some)
    }

    /// Joins the group of some ranks, in their order. The row of the first one begins with the group's id.
    fn join_part(
        &self,
        members: &[usize],
        row_of_first: &[u8],
        limit: Duration,
        stop: &dyn Fn() -> Option<Error>,
    ) -> Result<Part> {
        let id = row_of_first.first_chunk::<ID>();
        let (Some(id), Some(own)) = (id, members.iter().position(|rank| *rank == self.group.rank() as usize)) else {
            return Err(Error::new(Status::PANIC, "a part without its own rank, or without an id"));
        };
        let (rank, size) = (own as u32, members.len() as u32);
        let group = Candidate::new(rank, size, self.group.device())?.join(id, Some(limit), stop)?;
        group.set_timeout(limit);
        Ok(Part { process_rank: ProcessRank::from_group(group), rank, size })
    }
}

/// This rank's new communicator of a division.
pub struct Part {
    /// The rank.
    pub process_rank: ProcessRank,
    /// Its number.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
}

/// Divides groups for several ranks of this process at once. All ranks send first, and then each waits in its own
/// thread: they may be ranks of one group, or of groups whose ranks in other processes call in another order.
pub fn divide(requests: &[(&ProcessRank, &Division)], limit: Duration) -> Result<Vec<Option<Part>>> {
    let begun: Vec<Result<GatherRow>> =
        requests.iter().map(|(process_rank, division)| process_rank.begin(division)).collect();
    let end = |((process_rank, division), row): (&(&ProcessRank, &Division), &Result<GatherRow>)| match row {
        Ok(row) => process_rank.end(row, division, limit),
        Err(error) => Err(Error::new(error.status(), error.message())),
    };
    let mut parts = requests.iter().zip(&begun);
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let thread = |part| {
            let _blocked = signals::block();
            std::thread::Builder::new().name("plinth divide".into()).spawn_scoped(scope, move || end(part))
        };
        let threads: Vec<io::Result<ScopedJoinHandle<'_, _>>> = parts.map(thread).collect();
        let not_started =
            |error: &io::Error| Error::new(Status::SYSTEM, format!("starting a thread for a rank: {error}"));
        for (((process_rank, _), row), thread) in requests.iter().zip(&begun).skip(1).zip(&threads) {
            if let (Ok(row), Err(error)) = (row, thread) {
                process_rank.group.send_failure(row, &not_started(error));
            }
        }
        let own = end(first);
        let ended = |thread: io::Result<ScopedJoinHandle<'_, Result<Option<Part>>>>| {
            let thread = thread.map_err(|error| not_started(&error))?;
            thread.join().unwrap_or_else(|_| Err(Error::new(Status::PANIC, "a division panicked")))
        };
        // Join all threads, regardless of errors.
        let ended: Vec<Result<Option<Part>>> = [own].into_iter().chain(threads.into_iter().map(ended)).collect();
        ended.into_iter().collect()
    })
}

/// Returns the transfer that a point-to-point operation is, with its stream.
pub fn transfer(operation: &Operation) -> Option<(Transfer, Stream)> {
    let Operation { kind, from, to, element, stream, .. } = *operation;
    match kind {
        Kind::Send { peer } => Some((Transfer { peer, sends: true, memory: from, element }, stream)),
        Kind::Receive { peer } => Some((Transfer { peer, sends: false, memory: to, element }, stream)),
        _ => None,
    }
}

/// Returns a hash that is equal for two processes only if they can connect through sockets of one machine.
fn machine() -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    hasher.write(network.as_os_str().as_encoded_bytes());
    hasher.finish()
}
