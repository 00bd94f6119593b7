//! Moves: the elements of one tensor become those of another of the same shape, wherever each lies.

use super::{
    chunks::{Pieces, Place, bring, chunk_of, launch},
    stream_group::{Crew, Workers, follow},
    tuning::Threshold,
};
use crate::memory::reach::ensure_access;
use crate::{
    base::units::Bytes,
    driver::collective::{Dimension, Table},
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, tensor::Tensor},
    sanitizer,
    status::Status,
    stream::{Stream, kernel::Kernel},
};

/// A dimension of two tensors at once: its extent, and the distances of neighbours in each, in bytes.
pub type Both = (u64, i64, i64);

/// A tensor, and another of the same shape and with elements as wide, that is to have its elements.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// Where they come from.
    pub from: &'a Tensor,
    /// Where they go.
    pub to: &'a Tensor,
}

impl Move<'_> {
    /// How both lie: the first dimension is that of bytes side by side in each, and no two neighbours are really one.
    pub fn layout(&self) -> Vec<Both> {
        let width = self.from.element.bytes() as i64;
        let of = |tensor: &Tensor, dimension: usize| tensor.strides[dimension].wrapping_mul(width);
        let mut dimensions: Vec<Both> = (0..self.from.rank)
            .filter(|dimension| self.from.sizes[*dimension] != 1)
            .map(|dimension| (self.from.sizes[dimension] as u64, of(self.from, dimension), of(self.to, dimension)))
            .collect();
        dimensions.sort_by_key(|(_, from, to)| (to.unsigned_abs(), from.unsigned_abs()));
        let mut merged: Vec<Both> = Vec::with_capacity(dimensions.len() + 1);
        let mut last = (width as u64, 1, 1);
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

    /// Whether the elements are one run of bytes in both, in the same order.
    pub fn is_run(&self) -> bool {
        let same = || {
            (0..self.from.rank).all(|dimension| {
                self.from.sizes[dimension] == 1 || self.from.strides[dimension] == self.to.strides[dimension]
            })
        };
        (self.from.is_contiguous() && self.to.is_contiguous()) || (same() && self.from.is_dense())
    }

    /// Whether there is nothing to be done.
    pub fn is_nothing(&self) -> bool {
        let same = || {
            self.from.memory.address() == self.to.memory.address()
                && (0..self.from.rank).all(|dimension| {
                    self.from.sizes[dimension] == 1 || self.from.strides[dimension] == self.to.strides[dimension]
                })
        };
        self.from.numel == 0 || same()
    }

    fn places(&self) -> [Place; 2] {
        [self.from, self.to].map(place)
    }
}

/// Where a tensor's first element is.
pub fn place(tensor: &Tensor) -> Place {
    Place { span: tensor.memory, device: tensor.device }
}

/// A part of a move that the kernel for units anywhere does: how wide they are, how they lie, and where the first is.
struct Strided {
    width: u64,
    dimensions: Vec<Both>,
    from: Place,
    to: Place,
}

impl Strided {
    fn of(one: &Move, mut dimensions: Vec<Both>) -> Strided {
        let [from, to] = one.places();
        // The widest unit that all addresses and distances are multiples of.
        let bits = dimensions[1..]
            .iter()
            .fold(dimensions[0].0 | from.span.address() | to.span.address() | 16, |bits, (_, from, to)| {
                bits | from.unsigned_abs() | to.unsigned_abs()
            });
        let width = 1 << bits.trailing_zeros();
        dimensions[0] = (dimensions[0].0 / width, width as i64, width as i64);
        if dimensions[0].0 == 1 && dimensions.len() > 1 {
            dimensions.remove(0);
        }
        Strided { width, dimensions, from, to }
    }

    fn units(&self) -> u64 {
        self.dimensions.iter().map(|dimension| dimension.0).product()
    }

    /// Parts whose units 32 bits can number.
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
            let moved = |place: Place, stride: i64| Place {
                span: place.span.offset_by(stride.wrapping_mul(begin as i64)),
                ..place
            };
            let (from, to) = (moved(self.from, from), moved(self.to, to));
            Strided { width: self.width, dimensions, from, to }.split(into);
        }
    }
}

/// Moves in a stream whose device reaches all of the tensors.
pub fn in_stream(runtime: &Runtime, stream: Stream, moves: &[Move]) -> Result<()> {
    let engine = Threshold::CopyEngine.bytes()?;
    let (mut runs, mut strided) = (Pieces::new(1, 1), Vec::new());
    for one in moves.iter().filter(|one| !one.is_nothing()) {
        let bytes = one.from.bytes();
        if one.is_run() && bytes >= engine {
            let span = |tensor: &Tensor| tensor.memory.with_length(bytes as usize);
            let used = [sanitizer::read(span(one.from)), sanitizer::write(span(one.to))];
            sanitizer::access(runtime, stream, &used)?;
            runtime
                .in_stream(stream, |driver, raw| Ok(driver.copy(span(one.to), span(one.from), raw)?))
                .context(|| format!("copying {}", Bytes(bytes)))?;
        } else if one.is_run() {
            runs.push(bytes, one.places());
        } else {
            let layout = one.layout();
            if layout.len() == 1 {
                runs.push(bytes, one.places())
            } else {
                let used = [(one.from, sanitizer::Kind::Read), (one.to, sanitizer::Kind::Write)];
                sanitizer::access_tensors(runtime, stream, &used)?;
                Strided::of(one, layout).split(&mut strided)
            }
        }
    }
    runs.copy(runtime, stream)?;
    let kind = |one: &Strided| (one.dimensions.len(), one.width);
    strided.sort_by_key(kind);
    strided.chunk_by(|one, other| kind(one) == kind(other)).try_for_each(|alike| copy_strided(runtime, stream, alike))
}

fn copy_strided(runtime: &Runtime, stream: Stream, alike: &[Strided]) -> Result<()> {
    let mut rest = alike.iter().peekable();
    while let Some(first) = rest.peek() {
        let (rank, width) = (first.dimensions.len(), first.width);
        let mut table = Table::new(1, 1, rank);
        table.width = width as u32;
        let mut units = 0;
        while let Some(one) = rest.peek() {
            let dimensions: Vec<Dimension> =
                one.dimensions.iter().map(|(extent, from, to)| (*extent as u32, *from, *to)).collect();
            if !table.push(one.units(), [one.from.span, one.to.span].into_iter(), &dimensions) {
                break;
            }
            units += one.units();
            rest.next();
        }
        if table.count() == 0 {
            return Err(Error::new(Status::NOT_SUPPORTED, "a tensor has too many dimensions for one launch"));
        }
        // A thread copies one unit after the other, whatever its width.
        let chunk = chunk_of(units * width) / 16;
        launch(runtime, stream, Kernel::CommStrided, &mut table, chunk as u32)?;
    }
    Ok(())
}

/// Moves between devices, by one that works for all where it reaches them.
pub fn perform(crew: &Crew, moves: &[Move]) -> Result<()> {
    if moves.iter().all(Move::is_nothing) {
        return Ok(());
    }
    let devices = moves.iter().flat_map(|one| [one.from.device, one.to.device]);
    if ensure_access(crew.runtime, crew.work.device, devices)? {
        return crew.run(Workers::One, |work| in_stream(crew.runtime, work, moves));
    }
    crew.run(Workers::All, |_| moves.iter().filter(|one| !one.is_nothing()).try_for_each(|one| apart(crew, one)))
}

/// A contiguous tensor of the same shape, in memory to work with.
pub fn packed(tensor: &Tensor, stream: Stream) -> Result<(Scratch, Tensor)> {
    let scratch = Scratch::alloc(tensor.bytes(), stream)?;
    let packed = Tensor::new(scratch.memory(), tensor.element, stream.device, tensor.shape(), None)?;
    Ok((scratch, packed))
}

/// A move between devices that do not reach each other: what is not in one run is packed before it goes, and unpacked where
/// it arrives.
fn apart(crew: &Crew, one: &Move) -> Result<()> {
    let runtime = crew.runtime;
    let (sender, receiver) = (crew.stream_of(one.from.device)?, crew.stream_of(one.to.device)?);
    if sender.device == receiver.device {
        return in_stream(runtime, sender, &[*one]);
    }
    let mut kept = Vec::new();
    let (mut from, mut to) = (*one.from, *one.to);
    if !one.is_run() {
        if !from.is_contiguous() {
            let (scratch, near) = packed(&from, sender)?;
            in_stream(runtime, sender, &[Move { from: &from, to: &near }])?;
            (from, _) = (near, kept.push(scratch));
        }
        if !to.is_contiguous() {
            let (scratch, near) = packed(&to, receiver)?;
            (to, _) = (near, kept.push(scratch));
        }
    }
    follow(runtime, sender, [receiver])?;
    bring(runtime, receiver, place(&from), place(&to), from.bytes())?;
    in_stream(runtime, receiver, &[Move { from: &to, to: one.to }])?;
    // What the sender packed is its own again only when it has gone.
    follow(runtime, receiver, [sender])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    fn tensor(address: u64, shape: &[i64], strides: &[i64]) -> &'static Tensor {
        Box::leak(Box::new(Tensor::new(Span::dangling(address), ElementType::F32, 0, shape, Some(strides)).unwrap()))
    }

    fn of(shape: &[i64], from: &[i64], to: &[i64]) -> Move<'static> {
        Move { from: tensor(4096, shape, from), to: tensor(8192, shape, to) }
    }

    #[test]
    fn what_lies_alike_is_one_run() {
        assert_eq!(of(&[2, 3], &[3, 1], &[3, 1]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[2, 3], &[1, 2], &[1, 2]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[], &[], &[]).layout(), [(4, 1, 1)]);
        for (run, one) in [
            (true, of(&[2, 3], &[1, 2], &[1, 2])),
            (true, of(&[2, 1, 3], &[3, 99, 1], &[3, 1, 1])),
            (false, of(&[2, 3], &[3, 1], &[1, 2])),
            (false, of(&[2, 3], &[4, 1], &[4, 1])),
        ] {
            assert_eq!(one.is_run(), run, "{one:?}");
        }
    }

    #[test]
    fn rows_are_copied_in_the_widest_units() {
        // Rows of 6 floats, 8 apart: of 24 bytes, so by 8.
        let rows = of(&[5, 6], &[8, 1], &[6, 1]);
        assert_eq!(rows.layout(), [(24, 1, 1), (5, 32, 24)]);
        let strided = Strided::of(&rows, rows.layout());
        assert_eq!((strided.width, strided.dimensions.clone(), strided.units()), (8, vec![(3, 8, 8), (5, 32, 24)], 15));
        // Single floats; the last dimension is the slowest where they go.
        let turned = of(&[5, 6], &[6, 1], &[1, 5]);
        let strided = Strided::of(&turned, turned.layout());
        assert_eq!((strided.width, strided.dimensions), (4, vec![(5, 24, 4), (6, 4, 20)]));
    }

    #[test]
    fn too_many_units_are_parted() {
        let one = of(&[3, 1 << 31, 2], &[1 << 34, 3, 1], &[1 << 33, 2, 1]);
        let mut parts = Vec::new();
        Strided::of(&one, one.layout()).split(&mut parts);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.units() <= u64::from(u32::MAX)));
        assert_eq!(parts.iter().map(|part| part.units() * part.width).sum::<u64>(), one.from.bytes());
    }

    #[test]
    fn a_move_to_where_it_comes_from_is_nothing() {
        let mut one = of(&[2, 3], &[3, 1], &[3, 1]);
        assert!(!one.is_nothing());
        one.to = one.from;
        assert!(one.is_nothing());
        assert!(of(&[2, 0], &[1, 1], &[1, 1]).is_nothing());
    }
}
