//! Collectives over ranks that are devices of this process, each with contiguous elements in its own memory and a
//! stream.
//!
//! They are ordered like work of every rank's stream, and return without waiting. In-place operands are allowed as
//! described for each function. Results are the same in every run, bit for bit: sums are in the order of the ranks.

use super::{
    ReduceOp,
    chunks::{Chunks, Reduction},
    large::{self, Task},
    stream_group::{StreamGroup, Workers},
    tuning::Threshold,
};
use crate::{
    driver::Span,
    error::{Context, Error, Result},
    ops::copy::DeviceSpan,
    runtime::{self, Runtime, tensor::ElementType},
    status::Status,
    stream::Stream,
};

/// A rank's operands: its device, its stream, and its source and destination.
#[derive(Debug, Clone, Copy)]
pub struct RankOperands {
    /// Ordinal of the device, different for every rank.
    pub device: u32,
    /// A stream of the device.
    pub stream: Stream,
    /// The source. Only the address is used; the length follows from the call.
    pub from: Span,
    /// The destination. Only the address is used.
    pub to: Span,
}

impl RankOperands {
    fn source(&self) -> DeviceSpan {
        DeviceSpan { span: self.from, device: self.device }
    }

    fn destination(&self) -> DeviceSpan {
        DeviceSpan { span: self.to, device: self.device }
    }
}

/// A collective whose arguments are checked.
struct Call<'a> {
    runtime: &'a Runtime,
    parts: &'a [RankOperands],
    /// The bytes of `count` elements.
    bytes: u64,
}

impl<'a> Call<'a> {
    fn new(parts: &'a [RankOperands], count: u64, element: ElementType) -> Result<Call<'a>> {
        let runtime = runtime::ready()?;
        for (rank, part) in parts.iter().enumerate() {
            runtime.device(part.device as i32)?;
            if part.stream.device() != part.device {
                return Err(Error::new(
                    Status::DEVICE_MISMATCH,
                    format!("rank {rank} is device {}, its stream one of device {}", part.device, part.stream.device()),
                ));
            }
            if let Some(other) = parts[..rank].iter().position(|other| other.device == part.device) {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    format!("ranks {other} and {rank} are both device {}", part.device),
                ));
            }
        }
        let bytes = count.checked_mul(element.bytes()).filter(|bytes| bytes.checked_mul(64).is_some());
        let bytes = bytes.ok_or_else(|| {
            Error::new(Status::INVALID_VALUE, format!("{count} elements are more than there are addresses"))
        })?;
        Ok(Call { runtime, parts, bytes })
    }

    fn part(&self, rank: usize) -> Result<&'a RankOperands> {
        self.parts.get(rank).ok_or_else(|| {
            Error::new(Status::INVALID_VALUE, format!("there is no rank {rank} of {}", self.parts.len()))
        })
    }

    /// Returns the stream group whose working stream is this rank's.
    fn group(&self, rank: usize) -> Result<StreamGroup<'a>> {
        let first = self.part(rank)?.stream;
        StreamGroup::new(self.runtime, std::iter::once(first).chain(self.parts.iter().map(|part| part.stream)))
    }

    fn source(&self) -> impl Iterator<Item = DeviceSpan> + 'a {
        self.parts.iter().map(RankOperands::source)
    }

    fn destination(&self) -> impl Iterator<Item = DeviceSpan> + 'a {
        self.parts.iter().map(RankOperands::destination)
    }

    /// Executes a task with a list of chunks for each rank: in one stream, or each list in its rank's stream.
    fn execute_by_rank(&self, task: Task, by_rank: Vec<Chunks>) -> Result<()> {
        let group = self.group(0)?;
        let mut all = by_rank[0].clone();
        for chunks in &by_rank[1..] {
            all.append(chunks.clone());
        }
        let streams: Vec<Stream> = self.parts.iter().map(|part| part.stream).collect();
        if !large::may_split(&group, Threshold::ExchangeSplit, &streams, &all)? {
            return large::in_one_stream(&group, task, &all);
        }
        group.run(Workers::All, |_| {
            streams.iter().zip(&by_rank).try_for_each(|(stream, chunks)| task.launch(self.runtime, *stream, chunks))
        })
    }
}

/// Reduces the sources of all ranks to all destinations. In place if `from` equals `to`.
pub fn all_reduce(parts: &[RankOperands], count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let reduced = || {
        let mut chunks = Chunks::new(parts.len(), parts.len());
        chunks.push(call.bytes, call.source().chain(call.destination()));
        let streams: Vec<Stream> = parts.iter().map(|part| part.stream).collect();
        large::execute(&call.group(0)?, Task::Reduce(reduction), Threshold::ExchangeSplit, &streams, &chunks)
    };
    reduced().context(|| format!("all-reduce of {count} elements of {element}"))
}

/// Reduces the sources of all ranks to the destination of rank `root`; `to` of the others is ignored. In place if the
/// root's `from` equals its `to`.
pub fn reduce(parts: &[RankOperands], root: usize, count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    let receiver = call.part(root)?;
    if call.bytes == 0 {
        return Ok(());
    }
    let reduced = || {
        let mut chunks = Chunks::new(parts.len(), 1);
        chunks.push(call.bytes, call.source().chain([receiver.destination()]));
        reduce_chunks(&call.group(root)?, reduction, &chunks, receiver.stream, parts.iter().map(|part| part.stream))
    };
    reduced().context(|| format!("reduction of {count} elements of {element} to rank {root}"))
}

/// Reduces chunks to one device, on that device alone or on all others.
pub(super) fn reduce_chunks(
    group: &StreamGroup,
    reduction: Reduction,
    chunks: &Chunks,
    root: Stream,
    streams: impl Iterator<Item = Stream>,
) -> Result<()> {
    let helpers: Vec<Stream> = streams.filter(|stream| stream.device() != root.device()).collect();
    large::execute(group, Task::Reduce(reduction), Threshold::ReduceSplit, &helpers, chunks)
}

/// Copies the source of rank `root` to all destinations. The others' `from` is ignored; the root's `to` is written
/// unless it equals its `from`.
pub fn broadcast(parts: &[RankOperands], root: usize, count: u64, element: ElementType) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let sender = call.part(root)?;
    if call.bytes == 0 {
        return Ok(());
    }
    let sent = || {
        let writes_itself = sender.from.address() != sender.to.address();
        let receivers: Vec<&RankOperands> =
            parts.iter().filter(|part| part.device != sender.device || writes_itself).collect();
        if receivers.is_empty() {
            return Ok(());
        }
        let mut chunks = Chunks::new(1, receivers.len());
        chunks.push(call.bytes, [sender.source()].into_iter().chain(receivers.iter().map(|part| part.destination())));
        let streams: Vec<Stream> = receivers.iter().map(|part| part.stream).collect();
        broadcast_chunks(&call.group(root)?, sender.stream, &streams, &chunks)
    };
    sent().context(|| format!("broadcast of {count} elements of {element} from rank {root}"))
}

/// Copies chunks of one device to the receivers, one destination each: on that device alone, or each receiver fetches a
/// part and writes it to all. In the second case the source sends every byte once, and no receiver sends more than it
/// receives.
pub(super) fn broadcast_chunks(
    group: &StreamGroup,
    source: Stream,
    receivers: &[Stream],
    chunks: &Chunks,
) -> Result<()> {
    let helpers: Vec<Stream> =
        receivers.iter().copied().filter(|receiver| receiver.device() != source.device()).collect();
    large::execute(group, Task::Copy, Threshold::BroadcastSplit, &helpers, chunks)
}

/// Concatenates the sources of all ranks, `count` elements each, in all destinations. In place if a rank's `from` is
/// its own chunk of its `to`.
pub fn all_gather(parts: &[RankOperands], count: u64, element: ElementType) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let of_rank = |rank: usize| {
        let mut chunks = Chunks::new(1, parts.len());
        let offset = rank as u64 * call.bytes;
        chunks.push(
            call.bytes,
            [parts[rank].source()].into_iter().chain(call.destination().map(|operand| operand.moved(offset))),
        );
        chunks
    };
    call.execute_by_rank(Task::Copy, (0..parts.len()).map(of_rank).collect())
        .context(|| format!("all-gather of {count} elements of {element} a rank"))
}

/// Reduces the sources of all ranks; each destination receives its rank's chunk of `count` elements. In place if a
/// rank's `to` is its own chunk of its `from`.
pub fn reduce_scatter(parts: &[RankOperands], count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let of_rank = |rank: usize| {
        let mut chunks = Chunks::new(parts.len(), 1);
        let offset = rank as u64 * call.bytes;
        chunks.push(call.bytes, call.source().map(|operand| operand.moved(offset)).chain([parts[rank].destination()]));
        chunks
    };
    call.execute_by_rank(Task::Reduce(reduction), (0..parts.len()).map(of_rank).collect())
        .context(|| format!("reduce-scatter of {count} elements of {element} a rank"))
}

/// Sends chunk s of rank r's `from` to chunk r of rank s's `to`. Not in place.
pub fn all_to_all(parts: &[RankOperands], count: u64, element: ElementType) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    if let Some(rank) = parts.iter().position(|part| part.from.address() == part.to.address() && parts.len() > 1)
        && call.bytes > 0
    {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("all-to-all cannot be in place, and rank {rank} gets it where it gives it"),
        ));
    }
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let of_rank = |rank: usize| {
        let mut chunks = Chunks::new(1, 1);
        for (other, part) in parts.iter().enumerate() {
            let from = parts[rank].source().moved(other as u64 * call.bytes);
            chunks.push(call.bytes, [from, part.destination().moved(rank as u64 * call.bytes)]);
        }
        chunks
    };
    call.execute_by_rank(Task::Copy, (0..parts.len()).map(of_rank).collect())
        .context(|| format!("all-to-all of {count} elements of {element} a pair"))
}
