//! Strided copies: from one tensor to another of the same shape, with any strides and element types.

use super::copy::{DeviceSpan, copy_peer};
use crate::{
    base::units::Bytes,
    driver::{
        Span,
        collective::{CollectiveKernel, Table},
        element::{CopyDimension, Unit, copy_in_host_memory},
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    observe,
    runtime::{Runtime, tensor::Tensor},
    status::Status,
    stream::{self, Stream, capture_status, kernel::Kernel, stream_id::StreamId},
};

/// A copy to a tensor of the same shape. If the element types differ, the elements are converted.
#[derive(Debug, Clone, Copy)]
pub struct StridedCopy<'a> {
    /// The source.
    pub from: &'a Tensor,
    /// The destination.
    pub to: &'a Tensor,
}

impl StridedCopy<'_> {
    /// Returns whether the element types differ.
    pub fn converts(&self) -> bool {
        self.from.element != self.to.element
    }

    /// Returns the merged dimensions of both tensors, the fastest of the destination first. The first one is contiguous:
    /// it counts bytes, or elements if these are converted.
    pub fn layout(&self) -> Vec<CopyDimension> {
        let widths = [self.from, self.to].map(|tensor| tensor.element.bytes() as i64);
        let strides = |dimension: usize| {
            let of = |tensor: &Tensor, width: i64| tensor.strides[dimension].wrapping_mul(width);
            (of(self.from, widths[0]), of(self.to, widths[1]))
        };
        let mut dimensions: Vec<CopyDimension> = (0..self.from.rank)
            .filter(|dimension| self.from.sizes[*dimension] != 1)
            .map(|dimension| {
                let (from, to) = strides(dimension);
                (self.from.sizes[dimension] as u64, from, to)
            })
            .collect();
        dimensions.sort_by_key(|(_, from, to)| (to.unsigned_abs(), from.unsigned_abs()));
        let mut merged: Vec<CopyDimension> = Vec::with_capacity(dimensions.len() + 1);
        let mut last = if self.converts() { (1, widths[0], widths[1]) } else { (widths[0] as u64, 1, 1) };
        for dimension in dimensions {
            let end = |stride: i64| stride.wrapping_mul(last.0 as i64);
            if dimension.1 == end(last.1) && dimension.2 == end(last.2) {
                last.0 *= dimension.0;
            } else {
                merged.push(last);
                last = dimension;
            }
        }
        merged.push(last);
        merged
    }

    /// Returns whether the elements are the same contiguous bytes in both tensors, in the same order.
    pub fn is_contiguous_copy(&self) -> bool {
        !self.converts()
            && ((self.from.is_contiguous() && self.to.is_contiguous())
                || (self.has_same_strides() && self.from.is_dense()))
    }

    /// Returns whether there is nothing to copy.
    pub fn is_noop(&self) -> bool {
        let is_same_memory = self.from.memory.address() == self.to.memory.address();
        self.from.numel == 0 || (is_same_memory && !self.converts() && self.has_same_strides())
    }

    fn has_same_strides(&self) -> bool {
        (0..self.from.rank).all(|dimension| {
            self.from.sizes[dimension] == 1 || self.from.strides[dimension] == self.to.strides[dimension]
        })
    }
}

/// Returns the memory of a tensor.
pub fn device_span(tensor: &Tensor) -> DeviceSpan {
    DeviceSpan { span: tensor.memory, device: tensor.device }
}

/// A copy for the strided kernels: its units, the dimensions, and the first addresses.
struct Strided {
    unit: Unit,
    dimensions: Vec<CopyDimension>,
    from: Span,
    to: Span,
}

impl Strided {
    fn of(one: &StridedCopy, mut dimensions: Vec<CopyDimension>) -> Strided {
        let (from, to) = (one.from.memory, one.to.memory);
        let unit = if one.converts() {
            Unit::converted(one.from.element, one.to.element)
        } else {
            // The largest unit that divides all addresses and strides.
            let bits = dimensions[1..]
                .iter()
                .fold(dimensions[0].0 | from.address() | to.address() | 16, |bits, (_, from, to)| {
                    bits | from.unsigned_abs() | to.unsigned_abs()
                });
            let width = 1 << bits.trailing_zeros();
            dimensions[0] = (dimensions[0].0 / width, width as i64, width as i64);
            Unit::Bytes(width as u32)
        };
        if dimensions[0].0 == 1 && dimensions.len() > 1 {
            dimensions.remove(0);
        }
        Strided { unit, dimensions, from, to }
    }

    fn units(&self) -> u64 {
        self.dimensions.iter().map(|dimension| dimension.0).product()
    }

    /// Splits the copy into parts with at most 2^32 units.
    fn split(self, into: &mut Vec<Strided>) {
        if self.units() <= u64::from(u32::MAX) {
            return into.push(self);
        }
        let outermost = (0..self.dimensions.len()).max_by_key(|index| self.dimensions[*index].0).unwrap_or(0);
        let (extent, from, to) = self.dimensions[outermost];
        let half = extent / 2;
        for (begin, length) in [(0, half), (half, extent - half)] {
            let mut dimensions = self.dimensions.clone();
            dimensions[outermost].0 = length;
            let moved = |span: Span, stride: i64| span.offset_by(stride.wrapping_mul(begin as i64));
            let (from, to) = (moved(self.from, from), moved(self.to, to));
            Strided { unit: self.unit, dimensions, from, to }.split(into);
        }
    }
}

/// Strided copies that share launches.
#[derive(Default)]
pub struct Batch(Vec<Strided>);

impl Batch {
    /// Adds a copy with its [`layout`](StridedCopy::layout).
    pub fn push(&mut self, one: &StridedCopy, layout: Vec<CopyDimension>) {
        Strided::of(one, layout).split(&mut self.0);
    }

    /// Launches the copies in a stream whose device has access to all tensors. The caller reports the accesses.
    pub fn launch(mut self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let kind = |one: &Strided| (one.dimensions.len(), one.unit);
        self.0.sort_by_key(kind);
        self.0
            .chunk_by(|one, other| kind(one) == kind(other))
            .try_for_each(|same_kind| launch_same_kind(runtime, stream, same_kind))
    }
}

fn launch_same_kind(runtime: &Runtime, stream: Stream, same_kind: &[Strided]) -> Result<()> {
    let mut rest = same_kind.iter().peekable();
    while let Some(first) = rest.peek() {
        let (rank, unit) = (first.dimensions.len(), first.unit);
        let mut table = Table::new(1, 1, rank);
        table.set_unit(unit);
        let mut units = 0;
        while let Some(one) = rest.peek() {
            if !table.push(one.units(), [one.from, one.to].into_iter(), &one.dimensions) {
                break;
            }
            units += one.units();
            rest.next();
        }
        if table.count() == 0 {
            return Err(Error::new(Status::NOT_SUPPORTED, "a tensor has too many dimensions for one launch"));
        }
        // A thread copies one unit after the other, of any width.
        let width = unit.shapes().map_or(1, |shapes| shapes[0].0.max(shapes[1].0));
        let chunk = chunk_of(units * width) / 16;
        let kernel = if matches!(unit, Unit::Bytes(_)) { Kernel::CommStrided } else { Kernel::CommConvert };
        launch(runtime, stream, kernel, table, chunk as u32)?;
    }
    Ok(())
}

/// Launches the chunks of a table.
pub fn launch(runtime: &Runtime, stream: Stream, kernel: Kernel, mut table: Table, chunk: u32) -> Result<()> {
    let device = runtime.device(stream.device() as i32)?;
    let function = device.kernel(&runtime.driver, kernel)?;
    let blocks = table.finish(chunk);
    let call = CollectiveKernel { function, blocks, table };
    runtime
        .in_stream(stream, |driver, raw| {
            let stream_id = StreamId::of(driver, raw, capture_status::id_of(driver, raw)?);
            device.recent_launches().launch(driver, device, stream_id, &call)
        })
        .context(|| format!("launching {}", kernel.entry()))
}

/// Returns the bytes that a block copies: few for short messages, so that all multiprocessors have work; then enough to keep
/// its threads busy.
fn chunk_of(bytes: u64) -> u64 {
    match bytes {
        0..0x10_0000 => 4 << 10,
        0x10_0000..0x100_0000 => 16 << 10,
        _ => 64 << 10,
    }
}

/// Copies in a stream whose device has access to both tensors.
pub fn in_stream(runtime: &Runtime, stream: Stream, one: &StridedCopy) -> Result<()> {
    if one.is_noop() {
        return Ok(());
    }
    let layout = one.layout();
    if one.is_contiguous_copy() || (layout.len() == 1 && !one.converts()) {
        return copy_contiguous(runtime, stream, one);
    }
    observe::access_tensors(runtime, stream, &[(one.from, observe::Kind::Read), (one.to, observe::Kind::Write)])?;
    let mut batch = Batch::default();
    batch.push(one, layout);
    batch.launch(runtime, stream)
}

/// Copies a tensor whose elements are the same contiguous bytes in both tensors with the driver.
pub fn copy_contiguous(runtime: &Runtime, stream: Stream, one: &StridedCopy) -> Result<()> {
    let bytes = one.from.bytes();
    let [from, to] = [one.from, one.to].map(|tensor| tensor.memory.with_length(bytes as usize));
    observe::access(runtime, stream, &[observe::read(from), observe::write(to)])?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.copy(to, from, raw)?))
        .context(|| format!("copying {}", Bytes(bytes)))
}

/// Copies between two tensors in host memory on the CPU, at once.
pub fn on_cpu(one: &StridedCopy) {
    if !one.is_noop() {
        let Strided { unit, dimensions, from, to } = Strided::of(one, one.layout());
        copy_in_host_memory(unit, &dimensions, from, to);
    }
}

/// Allocates a contiguous tensor of the same shape in scratch memory.
pub fn allocate_packed(tensor: &Tensor, stream: Stream) -> Result<(Scratch, Tensor)> {
    let scratch = Scratch::alloc(tensor.bytes(), stream)?;
    let packed = Tensor::new(scratch.memory(), tensor.element, stream.device(), tensor.shape(), None)?;
    Ok((scratch, packed))
}

/// Copies between devices without peer access: packs and converts the source where it is not the bytes of the
/// destination, and unpacks on the destination's device. The streams must wait for each other's present work already;
/// the sender's later work waits for the copy.
pub fn without_peer_access(runtime: &Runtime, sender: Stream, receiver: Stream, one: &StridedCopy) -> Result<()> {
    let mut scratches = Vec::new();
    let (mut from, mut to) = (*one.from, *one.to);
    if !one.is_contiguous_copy() {
        if !from.is_contiguous() || one.converts() {
            let (scratch, packed) = allocate_packed(&Tensor { element: to.element, ..from }, sender)?;
            in_stream(runtime, sender, &StridedCopy { from: &from, to: &packed })?;
            (from, _) = (packed, scratches.push(scratch));
        }
        if !to.is_contiguous() {
            let (scratch, packed) = allocate_packed(&to, receiver)?;
            (to, _) = (packed, scratches.push(scratch));
        }
    }
    stream::make_wait(runtime, receiver, sender)?;
    copy_peer(runtime, receiver, device_span(&from), device_span(&to), from.bytes())?;
    in_stream(runtime, receiver, &StridedCopy { from: &to, to: one.to })?;
    // The sender may reuse the packed memory only after the copy.
    stream::make_wait(runtime, sender, receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tensor::ElementType;

    fn tensor(address: u64, shape: &[i64], strides: &[i64]) -> &'static Tensor {
        Box::leak(Box::new(Tensor::new(Span::dangling(address), ElementType::F32, 0, shape, Some(strides)).unwrap()))
    }

    fn of(shape: &[i64], from: &[i64], to: &[i64]) -> StridedCopy<'static> {
        StridedCopy { from: tensor(4096, shape, from), to: tensor(8192, shape, to) }
    }

    #[test]
    fn equal_layouts_are_contiguous_copies() {
        assert_eq!(of(&[2, 3], &[3, 1], &[3, 1]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[2, 3], &[1, 2], &[1, 2]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[], &[], &[]).layout(), [(4, 1, 1)]);
        for (run, one) in [
            (true, of(&[2, 3], &[1, 2], &[1, 2])),
            (true, of(&[2, 1, 3], &[3, 99, 1], &[3, 1, 1])),
            (false, of(&[2, 3], &[3, 1], &[1, 2])),
            (false, of(&[2, 3], &[4, 1], &[4, 1])),
        ] {
            assert_eq!(one.is_contiguous_copy(), run, "{one:?}");
        }
    }

    #[test]
    fn rows_are_copied_in_the_widest_units() {
        // Rows of 6 floats with a stride of 8: 24 bytes, so units of 8.
        let rows = of(&[5, 6], &[8, 1], &[6, 1]);
        assert_eq!(rows.layout(), [(24, 1, 1), (5, 32, 24)]);
        let strided = Strided::of(&rows, rows.layout());
        assert_eq!(strided.units(), 15);
        assert_eq!((strided.unit, strided.dimensions), (Unit::Bytes(8), vec![(3, 8, 8), (5, 32, 24)]));
        // Single floats; the last dimension is the slowest of the destination.
        let turned = of(&[5, 6], &[6, 1], &[1, 5]);
        let strided = Strided::of(&turned, turned.layout());
        assert_eq!((strided.unit, strided.dimensions), (Unit::Bytes(4), vec![(5, 24, 4), (6, 4, 20)]));
    }

    #[test]
    fn large_copies_are_split() {
        let one = of(&[3, 1 << 31, 2], &[1 << 34, 3, 1], &[1 << 33, 2, 1]);
        let mut parts = Vec::new();
        Strided::of(&one, one.layout()).split(&mut parts);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.units() <= u64::from(u32::MAX)));
        assert!(parts.iter().all(|part| part.unit == parts[0].unit));
        assert_eq!(parts.iter().map(Strided::units).sum::<u64>(), one.from.numel);
    }

    #[test]
    fn a_copy_to_itself_is_a_noop() {
        let mut one = of(&[2, 3], &[3, 1], &[3, 1]);
        assert!(!one.is_noop());
        one.to = one.from;
        assert!(one.is_noop());
        assert!(of(&[2, 0], &[1, 1], &[1, 1]).is_noop());
    }

    #[test]
    fn converted_elements_are_units() {
        let (from, to) = (tensor(4096, &[5, 6], &[0, 1]), tensor(8192, &[5, 6], &[6, 1]));
        let to = Tensor { element: ElementType::Complex128, ..*to };
        let one = StridedCopy { from, to: &to };
        assert!(!one.is_contiguous_copy() && !one.is_noop());
        assert_eq!(one.layout(), [(6, 4, 16), (5, 0, 96)]);
        let strided = Strided::of(&one, one.layout());
        assert_eq!(strided.unit, Unit::converted(ElementType::F32, ElementType::Complex128));
        assert_eq!((strided.dimensions.clone(), strided.units()), (one.layout(), 30));
        let to = Tensor { element: ElementType::I32, ..*from };
        assert!(!StridedCopy { from, to: &to }.is_noop());
    }
}
