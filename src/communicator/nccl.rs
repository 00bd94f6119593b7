//! The engine that is NCCL: the fastest for large messages, and the only one across machines.
//!
//! Communicators are made in NCCL's non-blocking mode, so that no call hangs for a rank that never comes: what NCCL has
//! not done when the call returns is looked after here, until it is done, fails, or the time is over. For that, NCCL hands
//! each call to a thread of its own, which costs it some microseconds; the blocking mode can be asked for instead.

use super::{
    operation::{Kind, Operation},
    patience::Patience,
};
use crate::{
    comm::ReduceOp,
    driver::{
        self, Span,
        nccl::{
            self, Comm, CommCell, ID_BYTES, Nccl, Progress, What,
            table::{data_type, reduction},
        },
    },
    error::{Error, Result},
    runtime::Runtime,
    sanitizer,
    status::Status,
    tensor::ElementType,
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
            self.cell.settle();
        }
        Ok(done)
    }

    /// Waits until all that it was asked is done.
    fn settle(&self, patience: Patience, what: &str) -> Result<()> {
        patience.until(|| what, || Ok(self.look()?.then_some(())))
    }

    /// The same for one whose calls nobody else makes yet.
    pub fn wait_until_ready(&self, limit: Duration, what: &str) -> Result<()> {
        let _calls = self.calls.lock();
        self.settle(Patience::new(limit), what)
    }

    /// Gives NCCL an operation.
    fn issue(&self, runtime: &Runtime, operation: &Operation, size: u32) -> Result<()> {
        let comm = self.comm()?;
        let Operation { kind, from, to, stream, .. } = *operation;
        let (nccl, stream) = (self.nccl, stream.raw);
        let moved = moving(operation);
        let device = runtime.device(self.device as i32)?;
        device.with_context(&runtime.driver, |_| {
            match kind {
                Kind::AllReduce { op } => {
                    let (what, op) = reducing(operation, op)?;
                    nccl.all_reduce(from, to, what, op, comm, stream)
                }
                Kind::Reduce { op, root } => {
                    let (what, op) = reducing(operation, op)?;
                    nccl.reduce(from, to, what, op, root, comm, stream)
                }
                Kind::ReduceScatter { op } => {
                    let (what, op) = reducing(operation, op)?;
                    nccl.reduce_scatter(from, to, what, op, comm, stream)
                }
                Kind::Broadcast { root } => nccl.broadcast(from, to, moved, root, comm, stream),
                Kind::AllGather => nccl.all_gather(from, to, moved, comm, stream),
                Kind::AllToAll => match nccl.all_to_all(from, to, moved, comm, stream)? {
                    Some(progress) => Ok(progress),
                    None => {
                        let bytes = operation.bytes() as usize;
                        let part = |span: Span, rank: u32| span.part(rank as usize * bytes, bytes);
                        let exchange = || {
                            for rank in 0..size {
                                nccl.send(part(from, rank), moved, rank, comm, stream)?;
                                nccl.receive(part(to, rank), moved, rank, comm, stream)?;
                            }
                            Ok(())
                        };
                        nccl.group(exchange).map(|((), progress)| progress)
                    }
                },
                Kind::Send { peer } => nccl.send(from, moved, peer, comm, stream),
                Kind::Receive { peer } => nccl.receive(to, moved, peer, comm, stream),
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
        self.cell.settle();
        ended
    }
}

/// The operation's elements as NCCL may take them where they are only moved: it knows fewer types than there are.
fn moving(operation: &Operation) -> What {
    match data_kind(operation.element) {
        Some(kind) => What { count: operation.count as usize, kind },
        None => What { count: operation.bytes() as usize, kind: data_type::UINT8 },
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
fn reducing(operation: &Operation, op: ReduceOp) -> Result<(What, c_int)> {
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
    Ok((What { count: operation.count as usize, kind }, op))
}

/// Keeps other threads' calls away from communicators, whatever the order in which these were named.
fn hold<'a>(ranks: &[&'a Rank]) -> Vec<MutexGuard<'a, ()>> {
    let mut ranks: Vec<&Rank> = ranks.to_vec();
    ranks.sort_by_key(|rank| std::ptr::from_ref(*rank) as usize);
    ranks.dedup_by_key(|rank| std::ptr::from_ref(*rank) as usize);
    ranks.into_iter().map(|rank| rank.calls.lock()).collect()
}

/// What came of a batch that NCCL was given.
pub enum Issued {
    /// It was refused, and nothing of it is under way.
    Refused(Error),
    /// NCCL took it, and failed with it, or did not come to an end.
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

/// Gives NCCL operations of one or several ranks of this process, as one group, each with the size of its communicator, and
/// waits until they are in their streams.
pub fn issue(
    runtime: &Runtime,
    batch: &[(&Rank, u32, &Operation)],
    limit: Duration,
) -> std::result::Result<(), Issued> {
    let Some((first, size, operation)) = batch.first() else { return Ok(()) };
    let ranks: Vec<&Rank> = batch.iter().map(|(rank, ..)| *rank).collect();
    let _held = hold(&ranks);
    for (_, _, Operation { from, to, stream, .. }) in batch {
        let used = [sanitizer::read(*from), sanitizer::write(*to)];
        sanitizer::access(runtime, *stream, &used).map_err(Issued::Refused)?;
    }
    let given = if batch.len() == 1 {
        first.issue(runtime, operation, *size)
    } else {
        let all = || batch.iter().try_for_each(|(rank, size, operation)| rank.issue(runtime, operation, *size));
        first.nccl.group(all).map(drop)
    };
    given.map_err(Issued::Refused)?;
    for (rank, _, operation) in batch {
        if !rank.blocking {
            let what = format!("NCCL worked at {operation}");
            rank.settle(Patience::new(limit), &what).map_err(Issued::Failed)?;
        }
    }
    Ok(())
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
    let all = || {
        let begin = |(rank, color, key): &(&Rank, Option<u32>, i32)| {
            let device = runtime.device(rank.device as i32)?;
            let (cell, _) =
                device.with_context(&runtime.driver, |_| rank.nccl.split(rank.comm()?, *color, *key, rank.blocking))?;
            Ok(Rank::new(rank.nccl, cell, rank.device, rank.blocking))
        };
        batch.iter().map(begin).collect::<Result<Vec<Rank>>>()
    };
    let (parts, _) = first.nccl.group(all).map_err(Issued::Refused)?;
    for rank in ranks {
        rank.settle(Patience::new(limit), "NCCL worked at a split").map_err(Issued::Failed)?;
    }
    let finish = |(part, (_, color, _)): (Rank, &(&Rank, Option<u32>, i32))| {
        if color.is_none() {
            part.cell.settle();
            return Ok(None);
        }
        part.wait_until_ready(limit, "NCCL worked at a part of a split")?;
        let (number, size) = part.nccl.place(part.comm()?)?;
        Ok(Some(Part { rank: part, number, size }))
    };
    parts.into_iter().zip(batch).map(finish).collect::<Result<Vec<_>>>().map_err(Issued::Failed)
}
