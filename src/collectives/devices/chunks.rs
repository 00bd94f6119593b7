//! Pieces: runs of bytes that are read at some addresses and written at others, and the launches that do it.

use super::{ReduceOp, tuning};
use crate::{
    driver::{
        Span,
        collective::{Operation, Table, WORDS},
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, tensor::ElementType},
    sanitizer,
    status::Status,
    stream::{Stream, kernel::Kernel},
};

/// Memory of a device.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The memory.
    pub span: Span,
    /// The device's number.
    pub device: u32,
}

impl Place {
    /// The same from another byte on.
    pub fn moved(self, bytes: u64) -> Place {
        Place { span: self.span.offset_by(bytes as i64), ..self }
    }
}

/// The most addresses that a piece of a copy is given: there is room for several such pieces in a table.
pub const MOST_PLACES: usize = 64;
/// The most addresses of a piece on both sides together: what a table has room for beside its length.
const MOST_ADDRESSES: usize = WORDS - 1;
/// Cuts lie at multiples of so many bytes of a piece, so that parts are as well aligned as the whole.
const GRAIN: u64 = 256;

/// Runs of bytes, each with as many sources and as many destinations as every other.
#[derive(Debug, Clone)]
pub struct Pieces {
    sources: usize,
    destinations: usize,
    lengths: Vec<u64>,
    places: Vec<Place>,
}

/// What a reduction of a type is to the kernels.
#[derive(Debug, Clone, Copy)]
pub struct Reduction {
    kernel: Kernel,
    operation: Operation,
    is_signed: bool,
    divisor: u32,
    /// The bytes of what the kernel counts.
    width: u64,
}

impl Reduction {
    /// A reduction of so many elements of a type to one.
    pub fn of(element: ElementType, op: ReduceOp, inputs: usize) -> Result<Reduction> {
        use ElementType::*;
        let refused = match op {
            ReduceOp::Sum => false,
            ReduceOp::Average => element == Bool,
            _ => element.is_complex(),
        };
        if refused {
            return Err(Error::new(
                Status::NOT_SUPPORTED,
                format!("a reduction of {element} has no {}", format!("{op:?}").to_lowercase()),
            ));
        }
        let (kernel, width) = match element {
            F16 => (Kernel::CommReduceF16, 2),
            Bf16 => (Kernel::CommReduceBf16, 2),
            // A complex number is two real ones.
            F32 | Complex64 => (Kernel::CommReduceF32, 4),
            F64 | Complex128 => (Kernel::CommReduceF64, 8),
            U8 | I8 => (Kernel::CommReduceB8, 1),
            U16 | I16 => (Kernel::CommReduceB16, 2),
            U32 | I32 => (Kernel::CommReduceB32, 4),
            U64 | I64 => (Kernel::CommReduceB64, 8),
            Bool => (Kernel::CommReduceBool, 1),
        };
        let operation = match op {
            ReduceOp::Sum | ReduceOp::Average => Operation::Sum,
            ReduceOp::Product => Operation::Product,
            ReduceOp::Minimum => Operation::Minimum,
            ReduceOp::Maximum => Operation::Maximum,
        };
        let is_signed = matches!(element, I8 | I16 | I32 | I64);
        let divisor = if op == ReduceOp::Average { inputs as u32 } else { 0 };
        Ok(Reduction { kernel, operation, is_signed, divisor, width })
    }

    /// The same, but that each sum of 16-bit floats is rounded, as torch's additions are.
    pub fn rounded(self) -> Reduction {
        let narrow = matches!(self.kernel, Kernel::CommReduceF16 | Kernel::CommReduceBf16);
        let rounded = narrow && self.operation == Operation::Sum;
        Reduction { operation: if rounded { Operation::RoundedSum } else { self.operation }, ..self }
    }
}

impl Pieces {
    /// None yet.
    pub fn new(sources: usize, destinations: usize) -> Pieces {
        Pieces { sources, destinations, lengths: Vec::new(), places: Vec::new() }
    }

    /// Adds a piece, whose places are the sources, then the destinations.
    pub fn push(&mut self, bytes: u64, places: impl IntoIterator<Item = Place>) {
        if bytes > 0 {
            self.lengths.push(bytes);
            let wanted = self.lengths.len() * (self.sources + self.destinations);
            self.places.extend(places);
            debug_assert_eq!(self.places.len(), wanted);
        }
    }

    /// Adds those of another list of the same kind.
    pub fn append(&mut self, mut other: Pieces) {
        self.lengths.append(&mut other.lengths);
        self.places.append(&mut other.places);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The bytes of all.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// How many places each is written to.
    pub fn destinations(&self) -> usize {
        self.destinations
    }

    /// The devices of all places.
    pub fn devices(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().map(|place| place.device)
    }

    fn each(&self) -> impl Iterator<Item = (u64, &[Place])> + '_ {
        self.lengths.iter().copied().zip(self.places.chunks_exact(self.sources + self.destinations))
    }

    /// The bytes from one to another of all pieces in a row.
    fn part(&self, from: u64, to: u64) -> Pieces {
        let mut part = Pieces::new(self.sources, self.destinations);
        let mut before = 0;
        for (length, places) in self.each() {
            // Where a cut falls into a piece it moves to the grain before it, for this part's end as for the next's begin.
            let inside = |at: u64| match at.saturating_sub(before) {
                at if at >= length => length,
                at => at / GRAIN * GRAIN,
            };
            let (begin, end) = (inside(from), inside(to));
            part.push(end - begin, places.iter().map(|place| place.moved(begin)));
            before += length;
        }
        part
    }

    /// Part `index` of `count` that are about as long.
    pub fn share(&self, index: usize, count: usize) -> Pieces {
        let (all, count) = (u128::from(self.bytes()), count as u128);
        let cut = |index: usize| (all * index as u128 / count) as u64;
        self.part(cut(index), cut(index + 1))
    }

    fn launch(
        &self,
        runtime: &Runtime,
        stream: Stream,
        kernel: Kernel,
        unit: u64,
        chunk: impl Fn(u64) -> u64,
        prepare: impl Fn(&mut Table),
    ) -> Result<()> {
        sanitizer::access_with(runtime, stream, |operands| {
            for (length, places) in self.each() {
                let (sources, destinations) = places.split_at(self.sources);
                let whole = |place: &Place| place.span.with_length(length as usize);
                operands.extend(sources.iter().map(|place| sanitizer::read(whole(place))));
                operands.extend(destinations.iter().map(|place| sanitizer::write(whole(place))));
            }
        })?;
        let mut pieces = self.each().peekable();
        while pieces.peek().is_some() {
            let mut table = Table::new(self.sources, self.destinations, 0);
            prepare(&mut table);
            let mut bytes = 0;
            while let Some((length, places)) = pieces.peek() {
                if !table.push(*length / unit, places.iter().map(|place| place.span), &[]) {
                    break;
                }
                bytes += *length;
                pieces.next();
            }
            if table.count() == 0 {
                return Err(Error::new(Status::NOT_SUPPORTED, "a run of bytes is too long for one launch"));
            }
            launch(runtime, stream, kernel, &mut table, (chunk(bytes) / unit) as u32)?;
        }
        Ok(())
    }

    /// Copies every piece from its source to all of its destinations, in a stream whose device reaches them.
    pub fn copy(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let properties = runtime.device(stream.device as i32)?.properties(&runtime.driver)?;
        let processors = properties.multi_processor_count.max(1) as u64;
        self.launch(runtime, stream, Kernel::CommCopy, 1, |bytes| copy_chunk(bytes, processors), |_| {})
    }

    /// The same by the driver's copies, which need no access between peers.
    pub fn copy_by_driver(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        for (length, places) in self.each() {
            for to in &places[1..] {
                bring(runtime, stream, places[0], *to, length)?;
            }
        }
        Ok(())
    }

    /// Reduces the sources of every piece, and writes the result to all of its destinations, in a stream whose device
    /// reaches them.
    pub fn reduce(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        if self.sources + self.destinations > MOST_ADDRESSES {
            return self.reduce_in_rounds(runtime, stream, reduction);
        }
        self.launch(runtime, stream, reduction.kernel, reduction.width, chunk_of, |table| {
            table.operation = reduction.operation as u16;
            table.is_signed = reduction.is_signed.into();
            table.divisor = reduction.divisor;
        })
    }

    /// Some sources after others, with what they come to in memory of its own between. That is of the elements' type, so
    /// 16-bit floats are rounded after each round: no kernel writes anything wider for them.
    fn reduce_in_rounds(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        let whole = Reduction { divisor: 0, ..reduction };
        let Some(room) = MOST_ADDRESSES.checked_sub(self.destinations).filter(|room| *room > 1) else {
            let message = format!("a reduction to {} places does not fit into a launch", self.destinations);
            return Err(Error::new(Status::NOT_SUPPORTED, message));
        };
        for (length, places) in self.each() {
            let (mut sources, destinations) = places.split_at(self.sources);
            let scratch = Scratch::alloc(length, stream)?;
            let sum = Place { span: scratch.memory(), device: stream.device };
            let mut first = None;
            while sources.len() + usize::from(first.is_some()) > room {
                let (now, later) = sources.split_at(room - usize::from(first.is_some()));
                let inputs: Vec<Place> = first.into_iter().chain(now.iter().copied()).collect();
                let mut round = Pieces::new(inputs.len(), 1);
                round.push(length, inputs.into_iter().chain([sum]));
                round.reduce(runtime, stream, whole)?;
                (first, sources) = (Some(sum), later);
            }
            let inputs: Vec<Place> = first.into_iter().chain(sources.iter().copied()).collect();
            let mut last = Pieces::new(inputs.len(), destinations.len());
            last.push(length, inputs.into_iter().chain(destinations.iter().copied()));
            last.reduce(runtime, stream, reduction)?;
        }
        Ok(())
    }

    /// The same where the stream's device does not reach them all: what is elsewhere is brought here, and sent there.
    pub fn reduce_by_driver(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        for (length, places) in self.each() {
            let mut kept = Vec::new();
            let mut near = Vec::with_capacity(places.len());
            for (index, place) in places.iter().enumerate() {
                if place.device == stream.device {
                    near.push(*place);
                    continue;
                }
                let scratch = Scratch::alloc(length, stream)?;
                let copy = Place { span: scratch.memory(), device: stream.device };
                if index < self.sources {
                    bring(runtime, stream, *place, copy, length)?;
                }
                near.push(copy);
                kept.push(scratch);
            }
            let mut piece = Pieces::new(self.sources, self.destinations);
            piece.push(length, near.iter().copied());
            piece.reduce(runtime, stream, reduction)?;
            for (to, from) in places.iter().zip(&near).skip(self.sources) {
                if to.device != stream.device {
                    bring(runtime, stream, *from, *to, length)?;
                }
            }
        }
        Ok(())
    }
}

/// Copies from one device to another, or within one, by the driver.
pub fn bring(runtime: &Runtime, stream: Stream, from: Place, to: Place, bytes: u64) -> Result<()> {
    let (source, destination) = (from.span.with_length(bytes as usize), to.span.with_length(bytes as usize));
    if source.address() == destination.address() {
        return Ok(());
    }
    sanitizer::access(runtime, stream, &[sanitizer::read(source), sanitizer::write(destination)])?;
    let from_context = runtime.device(from.device as i32)?.context(&runtime.driver)?;
    let to_context = runtime.device(to.device as i32)?.context(&runtime.driver)?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.copy_peer(destination, to_context, source, from_context, raw)?))
        .context(|| format!("copying from device {} to device {}", from.device, to.device))
}

/// Launches a table's pieces.
pub fn launch(runtime: &Runtime, stream: Stream, kernel: Kernel, table: &mut Table, chunk: u32) -> Result<()> {
    let function = runtime.device(stream.device as i32)?.kernel(&runtime.driver, kernel)?;
    let blocks = table.finish(chunk);
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.launch_collective(function, table, blocks, raw)?))
        .context(|| format!("launching {}", kernel.entry()))
}

/// The bytes that a block copies where a launch copies so many: a block for each multiprocessor, and no more of them, is what
/// links like best (docs/benchmarks.md).
fn copy_chunk(bytes: u64, processors: u64) -> u64 {
    match bytes {
        0..0x10_0000 => 4 << 10,
        _ => bytes.div_ceil(processors).next_multiple_of(4 << 10).min(1 << 30),
    }
}

/// The bytes that a block reduces: few, where there are few, so that all multiprocessors have some; then as many as keep its
/// threads busy.
pub fn chunk_of(bytes: u64) -> u64 {
    match bytes {
        0..0x10_0000 => 4 << 10,
        0x10_0000..0x100_0000 => 16 << 10,
        _ => 64 << 10,
    }
}

/// How sums of tensors are to be made: as a program wants them.
pub fn tensor_sum(element: ElementType) -> Result<Reduction> {
    let sum = Reduction::of(element, ReduceOp::Sum, 1)?;
    Ok(if tuning::torch_order() { sum.rounded() } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> Place {
        Place { span: Span::dangling(address), device: 0 }
    }

    /// Two pieces with a source and a destination each, of 1000 and 600 bytes.
    fn two() -> Pieces {
        let mut pieces = Pieces::new(1, 1);
        pieces.push(1000, [at(10_000), at(20_000)]);
        pieces.push(0, []);
        pieces.push(600, [at(30_000), at(40_000)]);
        pieces
    }

    fn runs(pieces: &Pieces) -> Vec<(u64, u64, u64)> {
        pieces.each().map(|(length, places)| (length, places[0].span.address(), places[1].span.address())).collect()
    }

    #[test]
    fn shares_are_all_there_is_and_nothing_twice() {
        for count in 1..9 {
            let mut all: Vec<(u64, u64, u64)> = (0..count).flat_map(|index| runs(&two().share(index, count))).collect();
            all.sort_by_key(|run| run.1);
            let mut ends = [(10_000, 20_000, 11_000), (30_000, 40_000, 30_600)];
            for (length, from, to) in all {
                let end = &mut ends[usize::from(from >= 30_000)];
                assert_eq!((from, to), (end.0, end.1));
                *end = (end.0 + length, end.1 + length, end.2);
            }
            assert!(ends.iter().all(|end| end.0 == end.2), "{count}");
        }
    }

    #[test]
    fn cuts_lie_at_multiples_of_the_grain() {
        assert_eq!(runs(&two().part(0, 300)), [(256, 10_000, 20_000)]);
        assert_eq!(runs(&two().part(300, 1599)), [(744, 10_256, 20_256), (512, 30_000, 40_000)]);
        assert_eq!(two().bytes(), 1600);
    }

    #[test]
    fn reductions_that_mean_nothing_are_refused() {
        for (element, op) in [
            (ElementType::Complex64, ReduceOp::Minimum),
            (ElementType::Complex128, ReduceOp::Product),
            (ElementType::Bool, ReduceOp::Average),
        ] {
            assert_eq!(Reduction::of(element, op, 2).unwrap_err().status(), Status::NOT_SUPPORTED);
        }
        let average = Reduction::of(ElementType::Complex64, ReduceOp::Average, 4).unwrap();
        assert_eq!((average.divisor, average.width), (4, 4));
        assert!(Reduction::of(ElementType::I8, ReduceOp::Sum, 2).unwrap().is_signed);
    }

    #[test]
    fn only_narrow_sums_are_rounded_each_time() {
        let of = |element, op| Reduction::of(element, op, 2).unwrap().rounded().operation;
        assert_eq!(of(ElementType::F16, ReduceOp::Sum), Operation::RoundedSum);
        assert_eq!(of(ElementType::F32, ReduceOp::Sum), Operation::Sum);
        assert_eq!(of(ElementType::Bf16, ReduceOp::Maximum), Operation::Maximum);
    }
}
