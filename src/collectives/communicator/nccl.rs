//! The engine that is NCCL: the fastest for large messages, and the only one across machines.
//!
//! Communicators are made in NCCL's non-blocking mode, so that no call hangs for a rank that never comes: what NCCL has
//! not done when the call returns is looked after here, until it is done, fails, or the time is over. For that, NCCL hands
//! each call to a thread of its own, which costs it some microseconds; the blocking mode can be asked for instead.

use super::operation::{Kind, Operation};
use crate::base::deadline::Deadline;
use crate::{
    collectives::devices::ReduceOp,
    driver::{
        self, Span,
        nccl::{
            self, Comm, CommCell, Elements, ID_BYTES, Nccl, Progress,
            table::{data_type, reduction},
        },
    },
    error::{Error, Result},
    runtime::{Runtime, tensor::ElementType},
    sanitizer,
    status::Status,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    ffi::c_int,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// How long an abort waits for a call of another thread's to notice it. A call that NCCL itself blocks in notices only the
/// abort.
const NOTICE: Duration = Duration::from_secs(1);

/// NCCL, if it is there and works on this kind of device.
pub fn available(runtime: &Runtime) -> Result<&'static Nccl> {
    let nccl = nccl::get()?;
    if runtime.driver.kind() == driver::Kind::Cuda || nccl.works_on_host_device() {
        return Ok(nccl);
    }
    Err(Error::new(Status::NCCL_UNAVAILABLE, "NCCL works with NVIDIA's GPUs, and not with the built-in host device"))
}

/// One rank's communicator of NCCL's.
pub struct Rank {
    nccl: &'static Nccl,
    cell: CommCell,
    device: u32,
    blocking: bool,
    /// NCCL wants one call at a time for a communicator.
    calls: Mutex<()>,
    /// It was aborted or destroyed, or is about to be.
    ended: AtomicBool,
}

impl Rank {
    /// Begins to be one of `size` ranks that meet by an id, on a device. [`Rank::is_ready`] tells when they have met.
    pub fn join(
        runtime: &Runtime,
        nccl: &'static Nccl,
        id: [u8; ID_BYTES],
        place: (u32, u32),
        device: u32,
        blocking: bool,
    ) -> Result<Rank> {
        let (rank, size) = place;
        let owner = runtime.device(device as i32)?;
        let (cell, _) = owner.with_context(&runtime.driver, |_| nccl.init_rank(size, id, rank, blocking))?;
        Ok(Rank::new(nccl, cell, device, blocking))
    }

    fn new(nccl: &'static Nccl, cell: CommCell, device: u32, blocking: bool) -> Rank {
        Rank { nccl, cell, device, blocking, calls: Mutex::new(()), ended: AtomicBool::new(false) }
    }

    fn check_not_ended(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::new(Status::ABORTED, "the communicator was aborted"));
        }
        Ok(())
    }

    fn comm(&self) -> Result<Comm> {
        self.check_not_ended()?;
        self.cell.get().ok_or_else(|| Error::new(Status::COMMUNICATOR_NOT_READY, "NCCL still makes the communicator"))
    }

    /// Whether all that it was asked is done, as far as the CPU is concerned. An error that it came to is returned each time.
    pub fn is_ready(&self) -> Result<bool> {
        // Another thread that is in a call looks itself.
        let Some(_calls) = self.calls.try_lock() else { return Ok(false) };
        self.look()
    }

    /// Fails with what the communicator came to.
    pub fn check_health(&self) -> Result<()> {
        self.is_ready().map(drop)
    }

    fn look(&self) -> Result<bool> {
        self.check_not_ended()?;
        let Some(comm) = self.cell.get() else { return Ok(false) };
        let done = self.nccl.progress(comm)? == Progress::Done;
        if done {
            self.cell.mark_complete();
        }
        Ok(done)
    }

    /// Waits until all that it was asked is done.
    fn settle(&self, patience: Deadline, what: &str) -> Result<()> {
        patience.until(|| what, || Ok(self.look()?.then_some(())))
    }

    /// The same for one whose calls nobody else makes yet.
    pub fn wait_until_ready(&self, limit: Duration, what: &str) -> Result<()> {
        let _calls = self.calls.lock();
        self.settle(Deadline::new(limit), what)
    }

    /// Checks what can be checked of an operation before NCCL has anything of its batch.
    fn prepare(&self, operation: &Operation) -> Result<Prepared> {
        let comm = self.comm()?;
        let (what, op) = match operation.kind {
            Kind::AllReduce { op } | Kind::Reduce { op, .. } | Kind::ReduceScatter { op } => reducing(operation, op)?,
            _ => (moving(operation), reduction::SUM),
        };
        Ok(Prepared { comm, what, op })
    }

    /// Gives NCCL an operation.
    fn issue(&self, runtime: &Runtime, operation: &Operation, prepared: &Prepared, size: u32) -> Result<()> {
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
                            for rank in 0..size {
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

    /// Ends the communicator, with whatever it still does.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        self.end(runtime, |nccl, comm| nccl.abort(comm))
    }

    /// Ends a communicator whose work is done; one that failed is aborted.
    pub fn destroy(&self, runtime: &Runtime) -> Result<()> {
        let healthy = matches!(self.is_ready(), Ok(true));
        self.end(runtime, |nccl, comm| if healthy { nccl.destroy(comm) } else { nccl.abort(comm) })
    }

    fn end(&self, runtime: &Runtime, end: impl FnOnce(&Nccl, Comm) -> Result<()>) -> Result<()> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _calls = self.calls.try_lock_for(NOTICE);
        let Some(comm) = self.cell.get() else { return Ok(()) };
        let device = runtime.device(self.device as i32)?;
        let ended = device.with_context(&runtime.driver, |_| end(self.nccl, comm));
        self.cell.mark_complete();
        ended
    }
}

/// An operation in NCCL's terms.
struct Prepared {
    comm: Comm,
    what: Elements,
    /// Which reduction, if it is one.
    op: c_int,
}

/// The operation's elements as NCCL may take them where they are only moved: it knows fewer types than there are.
fn moving(operation: &Operation) -> Elements {
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

/// The operation's elements and reduction as NCCL knows them. The sum of truths is "or", their product "and".
fn reducing(operation: &Operation, op: ReduceOp) -> Result<(Elements, c_int)> {
    let Some(kind) = data_kind(operation.element) else {
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

/// Keeps other threads' calls away from communicators, whatever the order in which these were named.
fn hold<'a>(ranks: &[&'a Rank]) -> Vec<MutexGuard<'a, ()>> {
    let mut ranks: Vec<&Rank> = ranks.to_vec();
    ranks.sort_by_key(|rank| std::ptr::from_ref(*rank) as usize);
    ranks.dedup_by_key(|rank| std::ptr::from_ref(*rank) as usize);
    ranks.into_iter().map(|rank| rank.calls.lock()).collect()
}

/// What came of a batch that was no success.
pub enum Issued {
    /// It was refused, and nothing of it is under way.
    Refused(Error),
    /// NCCL took it or a part of it, and failed with it, or did not come to an end.
    Failed(Error),
}

impl Issued {
    /// The error, whichever it is.
    pub fn into_error(self) -> Error {
        match self {
            Issued::Refused(error) | Issued::Failed(error) => error,
        }
    }
}

impl From<Error> for Issued {
    fn from(error: Error) -> Issued {
        Issued::Refused(error)
    }
}

/// Gives NCCL operations of one or several ranks of this process, as one group, each with the size of its communicator, and
/// waits until they are in their streams.
pub fn issue(
    runtime: &Runtime,
    batch: &[(&Rank, u32, &Operation)],
    limit: Duration,
) -> std::result::Result<(), Issued> {
    let Some((first, ..)) = batch.first() else { return Ok(()) };
    let ranks: Vec<&Rank> = batch.iter().map(|(rank, ..)| *rank).collect();
    let _held = hold(&ranks);
    // NCCL would carry out what it has of a group that is not given to its end.
    let prepare = |(rank, _, operation): &(&Rank, u32, &Operation)| rank.prepare(operation);
    let prepared = batch.iter().map(prepare).collect::<Result<Vec<Prepared>>>()?;
    for (_, _, Operation { from, to, stream, .. }) in batch {
        let used = [sanitizer::read(*from), sanitizer::write(*to)];
        sanitizer::access(runtime, *stream, &used)?;
    }
    let mut taken = 0;
    let mut all = || {
        for ((rank, size, operation), prepared) in batch.iter().zip(&prepared) {
            rank.issue(runtime, operation, prepared, *size)?;
            taken += 1;
        }
        Ok(())
    };
    let given = if batch.len() == 1 { all() } else { first.nccl.group(all).map(drop) };
    // Also where it failed: NCCL may be at work on what came before, and notes errors with its communicators.
    let mut settled = Ok(());
    for (index, (rank, _, operation)) in batch.iter().enumerate().filter(|(_, (rank, ..))| !rank.blocking) {
        settled = settled.and_then(|()| match given.is_ok() || index < taken {
            true => rank.settle(Deadline::new(limit), &format!("NCCL worked at {operation}")),
            false => rank.look().map(drop),
        });
    }
    let Err(error) = given else { return settled.map_err(Issued::Failed) };
    // NCCL drops a group in which a call of its own failed, and not one that a call of the driver's cut short. And where it
    // has the whole, it looks at the arguments before it begins, and comes to all other errors on the way.
    let cut_short = taken > 0 && error.driver_code() != 0;
    let begun = taken == batch.len() && error.status() != Status::INVALID_VALUE;
    Err(if cut_short || begun || settled.is_err() { Issued::Failed(error) } else { Issued::Refused(error) })
}

/// A part of a communicator, and the place of this rank in it.
pub struct Part {
    /// The new communicator.
    pub rank: Rank,
    /// This rank's number there.
    pub number: u32,
    /// How many ranks there are.
    pub size: u32,
}

/// Splits communicators of this process, each by the color and the key of its own rank. The answers are in order.
pub fn split(
    runtime: &Runtime,
    batch: &[(&Rank, Option<u32>, i32)],
    limit: Duration,
) -> std::result::Result<Vec<Option<Part>>, Issued> {
    let Some((first, ..)) = batch.first() else { return Ok(Vec::new()) };
    let ranks: Vec<&Rank> = batch.iter().map(|(rank, ..)| *rank).collect();
    let _held = hold(&ranks);
    let comms = ranks.iter().map(|rank| rank.comm()).collect::<Result<Vec<Comm>>>()?;
    let all = || {
        let begin = |((rank, color, key), comm): (&(&Rank, Option<u32>, i32), &Comm)| {
            let device = runtime.device(rank.device as i32)?;
            let (cell, _) =
                device.with_context(&runtime.driver, |_| rank.nccl.split(*comm, *color, *key, rank.blocking))?;
            Ok(Rank::new(rank.nccl, cell, rank.device, rank.blocking))
        };
        batch.iter().zip(&comms).map(begin).collect::<Result<Vec<Rank>>>()
    };
    let (parts, _) = first.nccl.group(all).map_err(Issued::Refused)?;
    for rank in ranks {
        rank.settle(Deadline::new(limit), "NCCL worked at a split").map_err(Issued::Failed)?;
    }
    let finish = |(part, (_, color, _)): (Rank, &(&Rank, Option<u32>, i32))| {
        if color.is_none() {
            part.cell.mark_complete();
            return Ok(None);
        }
        part.wait_until_ready(limit, "NCCL worked at a part of a split")?;
        let (number, size) = part.nccl.rank_and_size(part.comm()?)?;
        Ok(Some(Part { rank: part, number, size }))
    };
    parts.into_iter().zip(batch).map(finish).collect::<Result<Vec<_>>>().map_err(Issued::Failed)
}
