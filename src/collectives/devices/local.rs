//! Collectives over ranks that are devices of this process, each with a run of elements in its own memory and a stream.
//!
//! They are ordered like work of every rank's stream, and return without waiting. A rank may work in place: what it gives
//! and what it gets may be the same memory, as each function says. Results are the same in every run, bit for bit: sums
//! are in the order of the ranks.

use super::{
    ReduceOp,
    chunks::{Pieces, Place, Reduction},
    large::{self, Task, alone, can_share},
    stream_group::{Crew, Workers},
    tuning::Threshold,
};
use crate::{
    driver::Span,
    error::{Context, Error, Result},
    runtime::{self, Runtime, tensor::ElementType},
    status::Status,
    stream::Stream,
};

/// A rank: its device, the stream that its work is ordered in, what it gives and what it gets.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The number of the device, another one than every other rank's.
    pub device: u32,
    /// A stream of it.
    pub stream: Stream,
    /// What it gives. Only the address counts: how long it is follows from the call.
    pub from: Span,
    /// What it gets, likewise.
    pub to: Span,
}

impl Part {
    fn given(&self) -> Place {
        Place { span: self.from, device: self.device }
    }

    fn got(&self) -> Place {
        Place { span: self.to, device: self.device }
    }
}

/// A collective that is checked.
struct Call<'a> {
    runtime: &'a Runtime,
    parts: &'a [Part],
    /// The bytes that the count stands for.
    bytes: u64,
}

impl<'a> Call<'a> {
    fn new(parts: &'a [Part], count: u64, element: ElementType) -> Result<Call<'a>> {
        let runtime = runtime::ready()?;
        for (rank, part) in parts.iter().enumerate() {
            runtime.device(part.device as i32)?;
            if part.stream.device != part.device {
                return Err(Error::new(
                    Status::DEVICE_MISMATCH,
                    format!("rank {rank} is device {}, its stream one of device {}", part.device, part.stream.device),
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

    fn part(&self, rank: usize) -> Result<&'a Part> {
        self.parts.get(rank).ok_or_else(|| {
            Error::new(Status::INVALID_VALUE, format!("there is no rank {rank} of {}", self.parts.len()))
        })
    }

    /// The crew in which this rank's stream works where one does.
    fn crew(&self, rank: usize) -> Result<Crew<'a>> {
        let first = self.part(rank)?.stream;
        Crew::new(self.runtime, std::iter::once(first).chain(self.parts.iter().map(|part| part.stream)))
    }

    fn given(&self) -> impl Iterator<Item = Place> + 'a {
        self.parts.iter().map(Part::given)
    }

    fn got(&self) -> impl Iterator<Item = Place> + 'a {
        self.parts.iter().map(Part::got)
    }

    /// Does a task whose pieces each rank has one of, or some: one stream all of them, or each its own.
    fn each(&self, task: Task, by_rank: Vec<Pieces>) -> Result<()> {
        let crew = self.crew(0)?;
        let mut all = by_rank[0].clone();
        for pieces in &by_rank[1..] {
            all.append(pieces.clone());
        }
        let streams: Vec<Stream> = self.parts.iter().map(|part| part.stream).collect();
        if all.bytes() < Threshold::ExchangeSplit.bytes()?
            || !crew.is_whole()
            || !can_share(self.runtime, &streams, &all)?
        {
            return alone(&crew, task, &all);
        }
        crew.run(Workers::All, |_| {
            streams.iter().zip(&by_rank).try_for_each(|(stream, pieces)| task.launch(self.runtime, *stream, pieces))
        })
    }
}

/// Combines what all ranks give, and gives each the whole result. In place where `from` is `to`.
pub fn all_reduce(parts: &[Part], count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let reduced = || {
        let mut pieces = Pieces::new(parts.len(), parts.len());
        pieces.push(call.bytes, call.given().chain(call.got()));
        let (crew, task) = (call.crew(0)?, Task::Reduce(reduction));
        let streams: Vec<Stream> = parts.iter().map(|part| part.stream).collect();
        if call.bytes >= Threshold::ExchangeSplit.bytes()?
            && crew.is_whole()
            && can_share(call.runtime, &streams, &pieces)?
        {
            return large::shared(&crew, task, &streams, &pieces);
        }
        alone(&crew, task, &pieces)
    };
    reduced().context(|| format!("all-reduce of {count} elements of {element}"))
}

/// Combines what all ranks give, and gives the result to rank `root`; what `to` of the others is does not matter. In place
/// where the root's `from` is its `to`.
pub fn reduce(parts: &[Part], root: usize, count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    let receiver = call.part(root)?;
    if call.bytes == 0 {
        return Ok(());
    }
    let reduced = || {
        let mut pieces = Pieces::new(parts.len(), 1);
        pieces.push(call.bytes, call.given().chain([receiver.got()]));
        reduce_pieces(&call.crew(root)?, reduction, &pieces, receiver.stream, parts.iter().map(|part| part.stream))
    };
    reduced().context(|| format!("reduction of {count} elements of {element} to rank {root}"))
}

/// Reduces pieces to one device, which does it alone, or leaves it to the others.
pub(super) fn reduce_pieces(
    crew: &Crew,
    reduction: Reduction,
    pieces: &Pieces,
    root: Stream,
    streams: impl Iterator<Item = Stream>,
) -> Result<()> {
    let task = Task::Reduce(reduction);
    if pieces.bytes() >= Threshold::ReduceSplit.bytes()? && crew.is_whole() {
        let helpers: Vec<Stream> = streams.filter(|stream| stream.device != root.device).collect();
        if can_share(crew.runtime, &helpers, pieces)? {
            return large::shared(crew, task, &helpers, pieces);
        }
    }
    alone(crew, task, pieces)
}

/// Gives every rank what rank `root` gives. The others' `from` does not matter; the root's `to` is written unless it is
/// its `from`.
pub fn broadcast(parts: &[Part], root: usize, count: u64, element: ElementType) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let sender = call.part(root)?;
    if call.bytes == 0 {
        return Ok(());
    }
    let sent = || {
        let writes_itself = sender.from.address() != sender.to.address();
        let receivers: Vec<&Part> = parts.iter().filter(|part| part.device != sender.device || writes_itself).collect();
        if receivers.is_empty() {
            return Ok(());
        }
        let mut pieces = Pieces::new(1, receivers.len());
        pieces.push(call.bytes, [sender.given()].into_iter().chain(receivers.iter().map(|part| part.got())));
        let streams: Vec<Stream> = receivers.iter().map(|part| part.stream).collect();
        broadcast_pieces(&call.crew(root)?, sender.stream, &streams, &pieces)
    };
    sent().context(|| format!("broadcast of {count} elements of {element} from rank {root}"))
}

/// Copies pieces of one device to the receivers, a destination each: that device does it alone, or each of them fetches a
/// part and writes it to all. Then the source sends every byte once, and what a receiver sends is never more than what it
/// gets.
pub(super) fn broadcast_pieces(crew: &Crew, source: Stream, receivers: &[Stream], pieces: &Pieces) -> Result<()> {
    if pieces.bytes() >= Threshold::BroadcastSplit.bytes()? && crew.is_whole() {
        let helpers: Vec<Stream> =
            receivers.iter().copied().filter(|receiver| receiver.device != source.device).collect();
        if can_share(crew.runtime, &helpers, pieces)? {
            return large::shared(crew, Task::Copy, &helpers, pieces);
        }
    }
    alone(crew, Task::Copy, pieces)
}

/// Gives every rank what all ranks give, `count` elements of each in the order of the ranks. In place where a rank's `from`
/// is its own part of its `to`.
pub fn all_gather(parts: &[Part], count: u64, element: ElementType) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let of_rank = |rank: usize| {
        let mut pieces = Pieces::new(1, parts.len());
        let offset = rank as u64 * call.bytes;
        pieces.push(call.bytes, [parts[rank].given()].into_iter().chain(call.got().map(|place| place.moved(offset))));
        pieces
    };
    call.each(Task::Copy, (0..parts.len()).map(of_rank).collect())
        .context(|| format!("all-gather of {count} elements of {element} a rank"))
}

/// Combines what all ranks give, and gives each its part of the result, `count` elements. In place where a rank's `to` is
/// its own part of its `from`.
pub fn reduce_scatter(parts: &[Part], count: u64, element: ElementType, op: ReduceOp) -> Result<()> {
    let call = Call::new(parts, count, element)?;
    let reduction = Reduction::of(element, op, parts.len())?;
    if call.bytes == 0 || parts.is_empty() {
        return Ok(());
    }
    let of_rank = |rank: usize| {
        let mut pieces = Pieces::new(parts.len(), 1);
        let offset = rank as u64 * call.bytes;
        pieces.push(call.bytes, call.given().map(|place| place.moved(offset)).chain([parts[rank].got()]));
        pieces
    };
    call.each(Task::Reduce(reduction), (0..parts.len()).map(of_rank).collect())
        .context(|| format!("reduce-scatter of {count} elements of {element} a rank"))
}

/// Gives each rank the part of every rank's that is meant for it: part s of rank r's `from` becomes part r of rank s's `to`.
/// Not in place.
pub fn all_to_all(parts: &[Part], count: u64, element: ElementType) -> Result<()> {
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
        let mut pieces = Pieces::new(1, 1);
        for (other, part) in parts.iter().enumerate() {
            let from = parts[rank].given().moved(other as u64 * call.bytes);
            pieces.push(call.bytes, [from, part.got().moved(rank as u64 * call.bytes)]);
        }
        pieces
    };
    call.each(Task::Copy, (0..parts.len()).map(of_rank).collect())
        .context(|| format!("all-to-all of {count} elements of {element} a pair"))
}
