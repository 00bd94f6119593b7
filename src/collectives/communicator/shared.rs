//! The engine of processes of one machine: the library's own kernels over memory that the processes share, and NCCL for what
//! is large, if the ranks have met through NCCL.
//!
//! Whether all ranks are on one machine, nobody has to say: ranks that met through NCCL tell each other.

use super::{
    engine::{SHARED_NCCL_FROM, nccl_from},
    nccl,
    operation::{Kind, Operation},
};
use crate::base::deadline::Deadline;
use crate::{
    collectives::processes::{Candidate, Group, Row, Transfer},
    driver::group::MAX_RANKS,
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, tensor::ElementType},
    status::Status,
    stream::{self, Stream},
};
use std::{collections::hash_map::DefaultHasher, fs, hash::Hasher, thread::ScopedJoinHandle, time::Duration};

/// One rank among processes of a machine.
pub struct Member {
    group: Group,
    nccl: Option<nccl::Rank>,
    /// From how many bytes on NCCL is asked.
    nccl_from: u64,
}

/// The bytes that ranks tell each other: the id of a group, and what tells one machine from another.
const ROW: usize = 192;
const ID: usize = 128;

impl Member {
    /// One that has only the group.
    pub fn of_group(group: Group) -> Member {
        Member { group, nccl: None, nccl_from: u64::MAX }
    }

    /// Joins a group by an id of the library's own.
    pub fn join(id: &[u8; ID], place: (u32, u32), device: u32, limit: Duration) -> Result<Member> {
        let group = Group::join(id, place.0, place.1, device, Some(limit))?;
        group.set_timeout(limit);
        Ok(Member::of_group(group))
    }

    /// A member in place of a rank of NCCL's, if all ranks are on one machine and can share memory; else the rank again.
    pub fn from_nccl(
        runtime: &Runtime,
        rank: nccl::Rank,
        place: (u32, u32),
        device: u32,
        limit: Duration,
    ) -> Result<std::result::Result<Member, nccl::Rank>> {
        if place.1 as usize > MAX_RANKS {
            return Ok(Err(rank));
        }
        let exchange = |row: &[u8; ROW]| {
            exchange(runtime, &rank, place, device, row, limit)
                .inspect_err(|_| {
                    // The ranks no longer know of each other where they are.
                    let _ = rank.abort(runtime);
                })
                .context(|| "asking the ranks for their machines")
        };
        let nccl_from = nccl_from(SHARED_NCCL_FROM)?;
        // Before anybody is asked: a rank that cannot share says so, and nobody waits for it in vain.
        let candidate = Candidate::new(place.0, place.1, device);
        let mut row = [0; ROW];
        row[..ID].copy_from_slice(&Group::new_id()?);
        row[ID..ID + 8].copy_from_slice(&machine().to_le_bytes());
        // Ranks that do not agree on this do not share.
        row[ID + 8..ID + 16].copy_from_slice(&nccl_from.to_le_bytes());
        row[ID + 16] = u8::from(candidate.is_ok());
        let rows = exchange(&row)?;
        let candidate = match candidate {
            Ok(candidate) if rows.iter().all(|other| other[ID..] == row[ID..]) => candidate,
            _ => return Ok(Err(rank)),
        };
        let mut id = [0; ID];
        id.copy_from_slice(&rows[0][..ID]);
        let joined = candidate.join(&id, Some(limit), &|| None);
        // All have to go the same way.
        let rows = exchange(&[u8::from(joined.is_ok()); ROW])?;
        match joined {
            Ok(group) if rows.iter().all(|row| row[0] == 1) => {
                group.set_timeout(limit);
                Ok(Ok(Member { group, nccl: Some(rank), nccl_from }))
            }
            _ => Ok(Err(rank)),
        }
    }

    /// Gives NCCL what is large, and is told which that is.
    pub fn nccl_for(&self, operation: &Operation) -> Option<&nccl::Rank> {
        self.nccl.as_ref().filter(|_| operation.bytes() >= self.nccl_from)
    }

    /// The error that ended the group, or what NCCL came to beside it.
    pub fn trouble(&self) -> Option<Error> {
        self.group.error().or_else(|| self.nccl.as_ref()?.check_health().err())
    }

    /// Sets how long work waits for other ranks from now on.
    pub fn set_timeout(&self, limit: Duration) {
        self.group.set_timeout(limit);
    }

    /// Ends what is done, here and at the other ranks.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        self.group.abort();
        self.nccl.as_ref().map_or(Ok(()), |rank| rank.abort(runtime))
    }

    /// Leaves; the work is done.
    pub fn leave(self, runtime: &Runtime) -> Result<()> {
        self.nccl.as_ref().map_or(Ok(()), |rank| rank.destroy(runtime))
    }

    /// Puts this rank's operations into their streams; what is between two ranks all at once.
    pub fn issue(&self, operations: &[Operation]) -> Result<()> {
        let mut pairs: Vec<&Operation> = Vec::new();
        for operation in operations {
            let Operation { kind, from, to, count, element, stream } = *operation;
            let group = &self.group;
            match kind {
                Kind::Send { .. } | Kind::Receive { .. } if count == 0 => Ok(()),
                Kind::Send { .. } | Kind::Receive { .. } => {
                    pairs.push(operation);
                    Ok(())
                }
                Kind::AllReduce { op } => group.all_reduce(from, to, count, element, op, stream),
                Kind::Reduce { op, root } => group.reduce(from, to, count, element, op, root, stream),
                Kind::Broadcast { root } => group.broadcast(from, to, count, element, root, stream),
                Kind::AllGather => group.all_gather(from, to, count, element, stream),
                Kind::ReduceScatter { op } => group.reduce_scatter(from, to, count, element, op, stream),
                Kind::AllToAll => group.all_to_all(from, to, count, element, stream),
            }?;
        }
        let transfers: Vec<(Transfer, Stream)> =
            pairs.into_iter().filter_map(|operation| Some((transfer(operation)?, operation.stream))).collect();
        self.group.exchange_in_streams(&transfers)
    }

    /// Begins this rank's part of a split: tells the others. Two splits are told apart by the order of these calls.
    fn begin_split(&self, color: Option<u32>, key: i32) -> Result<Row> {
        if let Some(error) = self.group.error() {
            return Err(error);
        }
        let mut mine = Vec::from(Group::new_id()?);
        mine.extend(color.map_or(-1, i64::from).to_le_bytes());
        mine.extend(key.to_le_bytes());
        self.group.bring(&mine)
    }

    /// The rest of it, which waits for the others; and this rank's place.
    fn end_split(&self, row: &Row, color: Option<u32>, limit: Duration) -> Result<Option<Part>> {
        let rows = self.group.collect(row)?;
        let Some(color) = color else { return Ok(None) };
        let number = |row: &[u8], from: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(row.get(from..from + bytes)?);
            Some(i64::from_le_bytes(number))
        };
        let mut members: Vec<(i32, usize)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| number(row, ID, 8) == Some(color.into()))
            .filter_map(|(rank, row)| Some((number(row, ID + 8, 4)? as i32, rank)))
            .collect();
        members.sort_unstable();
        let own = members.iter().position(|(_, rank)| *rank == self.group.rank() as usize);
        let (Some(own), Some((_, first))) = (own, members.first()) else {
            return Err(Error::new(Status::PANIC, "a split without its own rank"));
        };
        let mut id = [0; ID];
        id.copy_from_slice(&rows[*first][..ID]);
        let (rank, size) = (own as u32, members.len() as u32);
        // Whoever gives up the whole, gives up the part. That a rank has gone matters only if it is one of the part, and
        // then the meeting finds out.
        let given_up = || self.group.error().filter(|error| error.status() == Status::ABORTED);
        let group = Candidate::new(rank, size, self.group.device())?.join(&id, Some(limit), &given_up)?;
        group.set_timeout(limit);
        Ok(Some(Part { member: Member::of_group(group), rank, size }))
    }
}

/// What a split gives a rank.
pub struct Part {
    /// The rank in its part.
    pub member: Member,
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
}

/// A rank's part in a split: itself, its color and its key.
pub type Split<'a> = (&'a Member, Option<u32>, i32);

/// Takes part in splits, for some ranks of this process at once: all tell first, and then each waits for itself, so that they
/// may be ranks of one group, or of groups whose ranks elsewhere come in another order.
pub fn split(asked: &[Split<'_>], limit: Duration) -> Result<Vec<Option<Part>>> {
    let begun: Vec<Result<Row>> = asked.iter().map(|(member, color, key)| member.begin_split(*color, *key)).collect();
    let end = |((member, color, _), row): (&Split<'_>, Result<Row>)| member.end_split(&row?, *color, limit);
    let mut parts = asked.iter().zip(begun);
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let thread = |part| {
            let started =
                std::thread::Builder::new().name("plinth split".into()).spawn_scoped(scope, move || end(part));
            started.map_err(|error| Error::new(Status::SYSTEM, format!("starting a thread for a split: {error}")))
        };
        let threads: Vec<_> = parts.map(thread).collect();
        let own = end(first);
        let ended = |thread: Result<ScopedJoinHandle<'_, Result<Option<Part>>>>| {
            thread?.join().unwrap_or_else(|_| Err(Error::new(Status::PANIC, "a split panicked")))
        };
        // All are waited for, whatever became of the others.
        let ended: Vec<Result<Option<Part>>> = [own].into_iter().chain(threads.into_iter().map(ended)).collect();
        ended.into_iter().collect()
    })
}

fn transfer(operation: &Operation) -> Option<Transfer> {
    let Operation { kind, from, to, element, .. } = *operation;
    match kind {
        Kind::Send { peer } => Some(Transfer { peer, sends: true, memory: from, element }),
        Kind::Receive { peer } => Some(Transfer { peer, sends: false, memory: to, element }),
        _ => None,
    }
}

/// What is the same for two processes only if they can meet by sockets of one machine.
fn machine() -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    hasher.write(network.as_os_str().as_encoded_bytes());
    hasher.finish()
}

/// Gives each rank the rows of all, through NCCL.
fn exchange(
    runtime: &Runtime,
    rank: &nccl::Rank,
    place: (u32, u32),
    device: u32,
    row: &[u8; ROW],
    limit: Duration,
) -> Result<Vec<[u8; ROW]>> {
    let stream: Stream = stream::resolve(runtime, stream::create(device as i32, 0)?)?;
    let all = ROW * place.1 as usize;
    let scratch = Scratch::alloc((ROW + all) as u64, stream)?;
    let (from, to) = (scratch.memory().part(0, ROW), scratch.memory().part(ROW, all));
    runtime.in_stream(stream, |driver, raw| Ok(driver.copy_from_host(from, row, raw)?))?;
    let operation = Operation { kind: Kind::AllGather, count: ROW as u64, element: ElementType::U8, from, to, stream };
    nccl::issue(runtime, &[(rank, place.1, &operation)], limit).map_err(nccl::Issued::into_error)?;
    Deadline::new(limit).until(
        || "this rank waited for the others",
        || {
            rank.check_health()?;
            Ok(runtime.in_stream(stream, |driver, raw| Ok(driver.stream_query(raw)?))?.then_some(()))
        },
    )?;
    let mut bytes = vec![0; all];
    runtime.in_stream(stream, |driver, raw| Ok(driver.copy_to_host(&mut bytes, to, raw)?))?;
    Ok(bytes.chunks_exact(ROW).map(|chunk| std::array::from_fn(|index| chunk[index])).collect())
}
