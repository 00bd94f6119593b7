//! Chunks: contiguous bytes that are read at some addresses and written at others, and the launches that do it.

use super::{ReduceOp, tuning};
use crate::{
    driver::collective::{Operation, Table, WORDS},
    error::{Error, Result},
    memory::scratch::Scratch,
    observe,
    ops::{
        copy::{DeviceSpan, copy_peer},
        strided_copy::launch,
    },
    runtime::{Runtime, tensor::ElementType},
    status::Status,
    stream::{Stream, kernel::Kernel},
};

/// The maximum number of operands of a copied chunk: a table has room for several such chunks.
pub const MAX_COPY_OPERANDS: usize = 64;
/// The maximum number of sources and destinations of a chunk: the room of a table beside its length.
const MAX_OPERANDS: usize = WORDS - 1;
/// Chunks are split at multiples of this number of bytes, so that the parts are aligned like the whole.
const SPLIT_ALIGNMENT: u64 = 256;

/// Chunks with the same numbers of sources and destinations.
#[derive(Debug, Clone)]
pub struct Chunks {
    sources: usize,
    destinations: usize,
    lengths: Vec<u64>,
    operands: Vec<DeviceSpan>,
}

/// The parameters of a reduction's kernel.
#[derive(Debug, Clone, Copy)]
pub struct Reduction {
    kernel: Kernel,
    operation: Operation,
    is_signed: bool,
    divisor: u32,
    /// The element size of the kernel.
    width: u64,
}

impl Reduction {
    /// Returns the reduction of `inputs` elements of a type to one.
    pub fn of(element: ElementType, op: ReduceOp, inputs: usize) -> Result<Reduction> {
        use ElementType::*;
        if !op.is_defined_for(element) || op == ReduceOp::Product && element.is_complex() {
            return Err(Error::new(Status::NOT_SUPPORTED, format!("a reduction of {element} has no {}", op.name())));
        }
        let (kernel, width) = match element {
            F16 => (Kernel::CommReduceF16, 2),
            Bf16 => (Kernel::CommReduceBf16, 2),
            // A complex number is two real numbers.
            F32 | Complex64 => (Kernel::CommReduceF32, 4),
            F64 | Complex128 => (Kernel::CommReduceF64, 8),
            U8 | I8 => (Kernel::CommReduceB8, 1),
            U16 | I16 => (Kernel::CommReduceB16, 2),
            U32 | I32 => (Kernel::CommReduceB32, 4),
            U64 | I64 => (Kernel::CommReduceB64, 8),
            Bool => (Kernel::CommReduceBool, 1),
            F8E4M3 => (Kernel::CommReduceF8E4M3, 1),
            F8E5M2 => (Kernel::CommReduceF8E5M2, 1),
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

    /// Returns the same reduction, but with each sum of floats of 8 or 16 bits rounded, as in torch's additions.
    pub fn rounded(self) -> Reduction {
        use Kernel::{CommReduceBf16, CommReduceF8E4M3, CommReduceF8E5M2, CommReduceF16};
        let narrow = matches!(self.kernel, CommReduceF16 | CommReduceBf16 | CommReduceF8E4M3 | CommReduceF8E5M2);
        let rounded = narrow && self.operation == Operation::Sum;
        Reduction { operation: if rounded { Operation::RoundedSum } else { self.operation }, ..self }
    }
}

impl Chunks {
    /// Creates an empty list.
    pub fn new(sources: usize, destinations: usize) -> Chunks {
        Chunks { sources, destinations, lengths: Vec::new(), operands: Vec::new() }
    }

    /// Adds a chunk. The operands are the sources, then the destinations.
    pub fn push(&mut self, bytes: u64, operands: impl IntoIterator<Item = DeviceSpan>) {
        if bytes > 0 {
            self.lengths.push(bytes);
            let expected = self.lengths.len() * (self.sources + self.destinations);
            self.operands.extend(operands);
            debug_assert_eq!(self.operands.len(), expected);
        }
    }

    /// Appends another list with the same numbers of sources and destinations.
    pub fn append(&mut self, mut other: Chunks) {
        self.lengths.append(&mut other.lengths);
        self.operands.append(&mut other.operands);
    }

    /// Returns whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the total bytes.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// Returns the devices of all operands.
    pub fn devices(&self) -> impl Iterator<Item = u32> + '_ {
        self.operands.iter().map(|operand| operand.device)
    }

    fn each(&self) -> impl Iterator<Item = (u64, &[DeviceSpan])> + '_ {
        self.lengths.iter().copied().zip(self.operands.chunks_exact(self.sources + self.destinations))
    }

    /// Returns a range of bytes of the concatenated chunks.
    fn range(&self, from: u64, to: u64) -> Chunks {
        let mut range = Chunks::new(self.sources, self.destinations);
        let mut before = 0;
        for (length, operands) in self.each() {
            // Round a split inside of a chunk down, in the same way for the end of one part and the start of the next.
            let inside = |at: u64| match at.saturating_sub(before) {
                at if at >= length => length,
                at => at / SPLIT_ALIGNMENT * SPLIT_ALIGNMENT,
            };
            let (begin, end) = (inside(from), inside(to));
            range.push(end - begin, operands.iter().map(|operand| operand.moved(begin)));
            before += length;
        }
        range
    }

    /// Returns part `index` of `count` parts of about the same length.
    pub fn part_of(&self, index: usize, count: usize) -> Chunks {
        let (all, count) = (u128::from(self.bytes()), count as u128);
        let cut = |index: usize| (all * index as u128 / count) as u64;
        self.range(cut(index), cut(index + 1))
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
        observe::access_with(runtime, stream, |accesses| {
            for (length, operands) in self.each() {
                let (sources, destinations) = operands.split_at(self.sources);
                let whole = |operand: &DeviceSpan| operand.span.with_length(length as usize);
                accesses.extend(sources.iter().map(|operand| observe::read(whole(operand))));
                accesses.extend(destinations.iter().map(|operand| observe::write(whole(operand))));
            }
        })?;
        let mut chunks = self.each().peekable();
        while chunks.peek().is_some() {
            let mut table = Table::new(self.sources, self.destinations, 0);
            prepare(&mut table);
            let mut bytes = 0;
            while let Some((length, operands)) = chunks.peek() {
                if !table.push(*length / unit, operands.iter().map(|operand| operand.span), &[]) {
                    break;
                }
                bytes += *length;
                chunks.next();
            }
            if table.count() == 0 {
                return Err(Error::new(Status::NOT_SUPPORTED, "a run of bytes is too long for one launch"));
            }
            launch(runtime, stream, kernel, table, (chunk(bytes) / unit) as u32)?;
        }
        Ok(())
    }

    /// Copies every chunk from its source to all of its destinations, in a stream whose device has access to them.
    pub fn copy(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let properties = runtime.device(stream.device() as i32)?.properties(&runtime.driver)?;
        let processors = properties.multi_processor_count.max(1) as u64;
        self.launch(runtime, stream, Kernel::CommCopy, 1, |bytes| copy_chunk(bytes, processors), |_| {})
    }

    /// Does the same with the driver's copies, which need no peer access.
    pub fn copy_with_driver(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        for (length, operands) in self.each() {
            for to in &operands[1..] {
                copy_peer(runtime, stream, operands[0], *to, length)?;
            }
        }
        Ok(())
    }

    /// Reduces the sources of every chunk, and writes the result to all of its destinations, in a stream whose device
    /// has access to them.
    pub fn reduce(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        if self.sources + self.destinations > MAX_OPERANDS {
            return self.reduce_in_rounds(runtime, stream, reduction);
        }
        self.launch(runtime, stream, reduction.kernel, reduction.width, reduction_chunk, |table| {
            table.operation = reduction.operation as u16;
            table.is_signed = reduction.is_signed.into();
            table.divisor = reduction.divisor;
        })
    }

    /// Reduces the sources in several rounds, with partial results in scratch memory. These have the elements' type, so
    /// 8- and 16-bit floats are rounded after each round: no kernel writes a wider type for them.
    fn reduce_in_rounds(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        let whole = Reduction { divisor: 0, ..reduction };
        let Some(max_inputs) = MAX_OPERANDS.checked_sub(self.destinations).filter(|max_inputs| *max_inputs > 1) else {
            let message = format!("a reduction to {} places does not fit into a launch", self.destinations);
            return Err(Error::new(Status::NOT_SUPPORTED, message));
        };
        for (length, operands) in self.each() {
            let (mut sources, destinations) = operands.split_at(self.sources);
            let scratch = Scratch::alloc(length, stream)?;
            let sum = DeviceSpan { span: scratch.memory(), device: stream.device() };
            let mut partial = None;
            while sources.len() + usize::from(partial.is_some()) > max_inputs {
                let (now, later) = sources.split_at(max_inputs - usize::from(partial.is_some()));
                let inputs: Vec<DeviceSpan> = partial.into_iter().chain(now.iter().copied()).collect();
                let mut round = Chunks::new(inputs.len(), 1);
                round.push(length, inputs.into_iter().chain([sum]));
                round.reduce(runtime, stream, whole)?;
                (partial, sources) = (Some(sum), later);
            }
            let inputs: Vec<DeviceSpan> = partial.into_iter().chain(sources.iter().copied()).collect();
            let mut last = Chunks::new(inputs.len(), destinations.len());
            last.push(length, inputs.into_iter().chain(destinations.iter().copied()));
            last.reduce(runtime, stream, reduction)?;
        }
        Ok(())
    }

    /// Reduces in a stream whose device has no access to some operands: the driver copies remote sources to this
    /// device, and results to remote destinations.
    pub fn reduce_with_driver(&self, runtime: &Runtime, stream: Stream, reduction: Reduction) -> Result<()> {
        for (length, operands) in self.each() {
            let mut scratches = Vec::new();
            let mut local_operands = Vec::with_capacity(operands.len());
            for (index, operand) in operands.iter().enumerate() {
                if operand.device == stream.device() {
                    local_operands.push(*operand);
                    continue;
                }
                let scratch = Scratch::alloc(length, stream)?;
                let copy = DeviceSpan { span: scratch.memory(), device: stream.device() };
                if index < self.sources {
                    copy_peer(runtime, stream, *operand, copy, length)?;
                }
                local_operands.push(copy);
                scratches.push(scratch);
            }
            let mut chunk_list = Chunks::new(self.sources, self.destinations);
            chunk_list.push(length, local_operands.iter().copied());
            chunk_list.reduce(runtime, stream, reduction)?;
            for (to, from) in operands.iter().zip(&local_operands).skip(self.sources) {
                if to.device != stream.device() {
                    copy_peer(runtime, stream, *from, *to, length)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the bytes that a block copies in a launch that copies `bytes`: with exactly one block for each multiprocessor,
/// the links reach their highest bandwidth (docs/benchmarks.md).
fn copy_chunk(bytes: u64, processors: u64) -> u64 {
    match bytes {
        0..0x10_0000 => 4 << 10,
        _ => bytes.div_ceil(processors).next_multiple_of(4 << 10).min(1 << 30),
    }
}

/// Returns the bytes that a block reduces in a launch that reduces to `bytes`: one unit for each thread as long as all blocks of an
/// H200 run at the same time, because a load from another device takes long; then enough to keep its threads busy.
fn reduction_chunk(bytes: u64) -> u64 {
    match bytes {
        0..=0x40_0000 => 4 << 10,
        0x40_0001..0x100_0000 => 16 << 10,
        _ => 64 << 10,
    }
}

/// Returns the reduction for sums of tensors, in the order and rounding that the program selected.
pub fn tensor_sum(element: ElementType) -> Result<Reduction> {
    let sum = Reduction::of(element, ReduceOp::Sum, 1)?;
    Ok(if tuning::uses_torch_order() { sum.rounded() } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Span;

    fn at(address: u64) -> DeviceSpan {
        DeviceSpan { span: Span::dangling(address), device: 0 }
    }

    /// Two pieces with a source and a destination each, of 1000 and 600 bytes.
    fn two() -> Chunks {
        let mut chunks = Chunks::new(1, 1);
        chunks.push(1000, [at(10_000), at(20_000)]);
        chunks.push(0, []);
        chunks.push(600, [at(30_000), at(40_000)]);
        chunks
    }

    fn runs(chunks: &Chunks) -> Vec<(u64, u64, u64)> {
        chunks
            .each()
            .map(|(length, operands)| (length, operands[0].span.address(), operands[1].span.address()))
            .collect()
    }

    #[test]
    fn parts_cover_everything_exactly_once() {
        for count in 1..9 {
            let mut all: Vec<(u64, u64, u64)> =
                (0..count).flat_map(|index| runs(&two().part_of(index, count))).collect();
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
    fn splits_are_aligned() {
        assert_eq!(runs(&two().range(0, 300)), [(256, 10_000, 20_000)]);
        assert_eq!(runs(&two().range(300, 1599)), [(744, 10_256, 20_256), (512, 30_000, 40_000)]);
        assert_eq!(two().bytes(), 1600);
    }

    #[test]
    fn undefined_reductions_are_rejected() {
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
    fn only_sums_of_small_types_are_rounded_each_time() {
        let of = |element, op| Reduction::of(element, op, 2).unwrap().rounded().operation;
        assert_eq!(of(ElementType::F16, ReduceOp::Sum), Operation::RoundedSum);
        assert_eq!(of(ElementType::F32, ReduceOp::Sum), Operation::Sum);
        assert_eq!(of(ElementType::Bf16, ReduceOp::Maximum), Operation::Maximum);
    }
}
