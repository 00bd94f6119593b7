//! The iteration over the elements of several tensors: dimensions are sorted in memory order, adjacent dimensions are
//! merged, and accesses are vectorized if all tensors permit it.

use crate::{
    driver::{
        Span,
        jit::{MOST_ARRAYS, Parameters, RANKS, Strided, THREADS},
        random::MAX_RANK,
    },
    error::{Error, Result},
    runtime::tensor::Tensor,
    status::Status,
};

/// The maximum number of elements, or vectors, of a launch: the kernels count and divide with 32 bits.
const MAX_UNITS: u64 = 1 << 30;
/// The maximum bytes of a vector of the tensor with the largest elements.
const MAX_LARGEST_BYTES: u64 = 32;
/// The maximum bytes of a vector of the tensor with the smallest elements.
const MAX_SMALLEST_BYTES: u64 = 16;

/// The properties, other than types, for which kernels are specialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelClass {
    /// Elements per access.
    pub vector: u32,
    /// 0 for contiguous elements, otherwise the maximum number of dimensions.
    pub rank: u32,
}

impl KernelClass {
    /// Returns how many vectors a thread processes: enough to overlap several accesses, and few enough for its
    /// registers.
    pub fn rounds(self, arrays: usize) -> u32 {
        match (self.vector, arrays) {
            (1, 0..=4) => 4,
            (1, _) | (_, 0..=4) => 2,
            _ => 1,
        }
    }
}

/// The iteration space of some tensors, the outputs first.
#[derive(Clone, Copy)]
pub struct IterationSpace {
    arrays: usize,
    outputs: usize,
    rank: usize,
    sizes: [i64; MAX_RANK],
    /// Strides of each tensor, in bytes.
    strides: [[i64; MOST_ARRAYS]; MAX_RANK],
    data: [Span; MOST_ARRAYS],
    /// Element size of each tensor, in bytes.
    bytes: [u64; MOST_ARRAYS],
}

/// Returns the shape to which some tensors are broadcast.
pub fn broadcast(inputs: &[Tensor]) -> Result<([i64; MAX_RANK], usize)> {
    let rank = inputs.iter().map(|tensor| tensor.rank).max().unwrap_or(0);
    let mut sizes = [1; MAX_RANK];
    for (number, tensor) in inputs.iter().enumerate() {
        for (dimension, size) in tensor.shape().iter().enumerate() {
            let at = rank - tensor.rank + dimension;
            let known = sizes[at];
            if known == 1 {
                sizes[at] = *size;
            } else if *size != 1 && *size != known {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    format!(
                        "input {number} of shape {:?} does not go with the inputs before it, of shape {:?}: {size} beside \
                         {known} elements in dimension {dimension}",
                        tensor.shape(),
                        &sizes[..rank],
                    ),
                ));
            }
        }
    }
    Ok((sizes, rank))
}

/// Returns the maximum number of elements of one access.
fn max_vector(bytes: impl Iterator<Item = u64>) -> u64 {
    let (least, most) = bytes.fold((u64::MAX, 1), |(least, most), bytes| (least.min(bytes), most.max(bytes)));
    (MAX_SMALLEST_BYTES / least).min(MAX_LARGEST_BYTES / most).max(2)
}

/// The fast path for the most common call: contiguous tensors of one shape that fit into one launch need no iteration
/// space. Returns the class and the number of blocks of the launch, and sets its parameters; `None` if the tensors do
/// not qualify.
pub fn dense(outputs: &[Tensor], inputs: &[Tensor], parameters: &mut Parameters) -> Option<(KernelClass, u32)> {
    let shape = outputs[0].shape();
    let all = || outputs.iter().chain(inputs);
    let numel = outputs[0].numel;
    let max_vector = max_vector(all().map(|tensor| tensor.element.bytes()));
    let fits = |tensor: &Tensor| {
        let bytes = (tensor.element.bytes() * max_vector).min(MAX_SMALLEST_BYTES);
        tensor.memory.address().is_multiple_of(bytes) && tensor.shape() == shape && tensor.is_contiguous()
    };
    if numel > MAX_UNITS || !all().all(fits) {
        return None;
    }
    let class = KernelClass { vector: max_vector as u32, rank: 0 };
    let arrays = outputs.len() + inputs.len();
    let mut data = [outputs[0].memory; MOST_ARRAYS];
    for (place, tensor) in data.iter_mut().zip(all()) {
        *place = tensor.memory;
    }
    let block_units = u64::from(THREADS * class.rounds(arrays) * class.vector);
    parameters.dense(numel as u32, &data[..arrays]);
    Some((class, numel.div_ceil(block_units) as u32))
}

impl IterationSpace {
    /// Creates the iteration space of outputs and inputs. The outputs have the same shape, to which the inputs can be
    /// broadcast, and are not empty.
    pub fn of(outputs: &[Tensor], inputs: &[Tensor]) -> Result<IterationSpace> {
        let shape = &outputs[0];
        let none = shape.memory;
        let mut space = IterationSpace {
            arrays: outputs.len() + inputs.len(),
            outputs: outputs.len(),
            rank: 0,
            sizes: [1; MAX_RANK],
            strides: [[0; MOST_ARRAYS]; MAX_RANK],
            data: [none; MOST_ARRAYS],
            bytes: [1; MOST_ARRAYS],
        };
        for (array, tensor) in outputs.iter().chain(inputs).enumerate() {
            space.data[array] = tensor.memory;
            space.bytes[array] = tensor.element.bytes();
        }
        for dimension in (0..shape.rank).rev() {
            let size = shape.sizes[dimension];
            if size == 1 {
                continue;
            }
            let at = space.rank;
            space.sizes[at] = size;
            for (array, tensor) in outputs.iter().chain(inputs).enumerate() {
                let own = (dimension + tensor.rank).checked_sub(shape.rank).filter(|own| tensor.sizes[*own] != 1);
                let stride = own.map_or(Some(0), |own| tensor.strides[own].checked_mul(space.bytes[array] as i64));
                let stride = stride.filter(|stride| stride.checked_mul(size - 1).is_some()).ok_or_else(too_far)?;
                space.strides[at][array] = stride;
                if stride == 0 && array < outputs.len() {
                    return Err(Error::new(
                        Status::INVALID_VALUE,
                        format!("dimension {dimension} of output {array} has {size} elements in one place"),
                    ));
                }
            }
            space.rank += 1;
        }
        space.flip_negative_strides();
        space.sort();
        space.merge();
        Ok(space)
    }

    /// Reverses the dimensions that have a negative stride in the first output.
    fn flip_negative_strides(&mut self) {
        for dimension in 0..self.rank {
            if self.strides[dimension][0] < 0 {
                let last = self.sizes[dimension] - 1;
                for array in 0..self.arrays {
                    let stride = &mut self.strides[dimension][array];
                    self.data[array] = self.data[array].offset_by(*stride * last);
                    *stride = stride.wrapping_neg();
                }
            }
        }
    }

    /// Sorts the dimensions in the memory order of the first output.
    fn sort(&mut self) {
        for next in 1..self.rank {
            let mut place = next;
            while place > 0 && self.strides[place][0] < self.strides[place - 1][0] {
                self.sizes.swap(place, place - 1);
                self.strides.swap(place, place - 1);
                place -= 1;
            }
        }
    }

    fn merge(&mut self) {
        let mut last = 0;
        for dimension in 1..self.rank {
            let follows = (0..self.arrays).all(|array| {
                self.strides[last][array].checked_mul(self.sizes[last]) == Some(self.strides[dimension][array])
            });
            if follows {
                self.sizes[last] *= self.sizes[dimension];
            } else {
                last += 1;
                self.sizes[last] = self.sizes[dimension];
                self.strides[last] = self.strides[dimension];
            }
        }
        self.rank = self.rank.min(last + 1);
    }

    /// Returns the most suitable class.
    pub fn class(&self) -> KernelClass {
        let max_vector = max_vector(self.bytes[..self.arrays].iter().copied());
        if self.rank == 1 && self.is_dense() && self.is_aligned(max_vector) {
            return KernelClass { vector: max_vector as u32, rank: 0 };
        }
        let rank = if self.rank <= RANKS[0] { RANKS[0] } else { RANKS[1] } as u32;
        let mut vector = max_vector;
        while vector > 1 {
            if self.rank > 0 && self.is_vectorizable(vector) && self.is_aligned(vector) {
                return KernelClass { vector: vector as u32, rank };
            }
            vector /= 2;
        }
        KernelClass { vector: 1, rank }
    }

    fn is_dense(&self) -> bool {
        (0..self.arrays).all(|array| self.strides[0][array] == self.bytes[array] as i64)
    }

    fn repeats(&self, array: usize) -> bool {
        self.strides[0][array] == 0
    }

    /// Returns whether the fastest dimension is contiguous or repeated in every tensor, and a multiple of the vector.
    fn is_vectorizable(&self, vector: u64) -> bool {
        (self.sizes[0] as u64).is_multiple_of(vector)
            && (0..self.arrays).all(|array| self.repeats(array) || self.strides[0][array] == self.bytes[array] as i64)
    }

    /// Returns whether every vector is aligned to its size.
    fn is_aligned(&self, vector: u64) -> bool {
        (0..self.arrays).filter(|array| !self.repeats(*array)).all(|array| {
            let bytes = (self.bytes[array] * vector).min(MAX_SMALLEST_BYTES);
            self.data[array].address().is_multiple_of(bytes)
                && (1..self.rank).all(|dimension| self.strides[dimension][array].unsigned_abs().is_multiple_of(bytes))
        })
    }

    /// Calls `launch` with the blocks and the parameters of each launch; there are several only if there are more
    /// elements than one launch can count.
    pub fn for_each_launch(
        &self,
        class: KernelClass,
        launch: &mut dyn FnMut(u32, &mut Parameters) -> Result<()>,
    ) -> Result<()> {
        let mut parameters = Parameters::new();
        let vector = u64::from(class.vector);
        let block_units = u64::from(THREADS * class.rounds(self.arrays));
        if class.rank == 0 {
            let (numel, mut first) = (self.sizes[0] as u64, 0);
            while first < numel {
                let count = MAX_UNITS.min(numel - first);
                let mut data = self.data;
                for (data, bytes) in data.iter_mut().zip(self.bytes) {
                    *data = data.offset_by((first * bytes) as i64);
                }
                let blocks = count.div_ceil(block_units * vector) as u32;
                parameters.dense(count as u32, &data[..self.arrays]);
                launch(blocks, &mut parameters)?;
                first += count;
            }
            return Ok(());
        }
        let numel: u64 = self.sizes[..self.rank].iter().map(|size| *size as u64).product();
        let units = numel / vector;
        if units > MAX_UNITS {
            return self.halves(vector).iter().try_for_each(|half| half.for_each_launch(class, launch));
        }
        let (mut sizes, mut strides) = ([1_u32; MAX_RANK], self.strides);
        let rank = self.rank.max(1);
        for (dimension, place) in sizes.iter_mut().enumerate() {
            // Vectors are counted, not elements.
            let each = if dimension == 0 { vector } else { 1 };
            *place = (self.sizes[dimension] as u64 / each) as u32;
        }
        strides[0].iter_mut().for_each(|stride| *stride *= vector as i64);
        let repeats = (self.outputs..self.arrays).filter(|array| self.repeats(*array));
        let repeats = repeats.fold(0, |bits, array| bits | 1 << (array - self.outputs));
        let layout =
            Strided { max_rank: class.rank as usize, sizes: &sizes[..rank], strides: &strides[..rank], repeats };
        parameters.strided(&layout, &self.data[..self.arrays]);
        launch(units.div_ceil(block_units) as u32, &mut parameters)
    }

    /// Splits the slowest dimension that has several elements, or vectors, in half.
    fn halves(&self, vector: u64) -> [IterationSpace; 2] {
        let unit = |dimension: usize| if dimension == 0 { vector as i64 } else { 1 };
        let slowest = (0..self.rank).rev().find(|at| self.sizes[*at] > unit(*at)).unwrap_or(0);
        let half = (self.sizes[slowest] / unit(slowest) / 2).max(1) * unit(slowest);
        let (mut first, mut second) = (*self, *self);
        first.sizes[slowest] = half;
        second.sizes[slowest] -= half;
        for (array, data) in second.data.iter_mut().enumerate() {
            *data = data.offset_by(half.wrapping_mul(self.strides[slowest][array]));
        }
        [first, second]
    }
}

#[cold]
fn too_far() -> Error {
    Error::new(Status::INVALID_VALUE, "a tensor's strides lead outside of all addresses")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tensor::ElementType::{self, Complex128, F16, F32, F64, U8};

    fn at(address: u64, element: ElementType, shape: &[i64], strides: Option<&[i64]>) -> Tensor {
        Tensor::new(Span::dangling(address), element, 0, shape, strides).unwrap()
    }

    fn tensor(element: ElementType, shape: &[i64], strides: Option<&[i64]>) -> Tensor {
        at(1 << 20, element, shape, strides)
    }

    fn class(output: Tensor, inputs: &[Tensor]) -> (u32, u32) {
        let class = IterationSpace::of(&[output], inputs).unwrap().class();
        (class.vector, class.rank)
    }

    #[test]
    fn contiguous_elements_use_16_byte_vectors() {
        for (element, vector) in [(F32, 4), (F16, 8), (F64, 2), (U8, 16), (Complex128, 2)] {
            let dense = tensor(element, &[30, 64], None);
            assert_eq!(class(dense, &[dense, dense]), (vector, 0), "{element}");
            // Another memory order, the same for all tensors.
            let turned = tensor(element, &[64, 30], Some(&[1, 64]));
            assert_eq!(class(turned, &[turned]), (vector, 0), "{element}");
        }
        let (bytes, floats) = (tensor(U8, &[64], None), tensor(F32, &[64], None));
        assert_eq!(class(floats, &[bytes, floats]), (8, 0));
    }

    #[test]
    fn the_fast_path_is_equivalent() {
        let short = |output: Tensor, inputs: &[Tensor]| dense(&[output], inputs, &mut Parameters::new());
        for (element, numel) in [(F32, 1000), (F16, 4097), (U8, 1 << 30), (Complex128, 3), (F32, 1)] {
            let tensor = tensor(element, &[numel, 1], None);
            let space = IterationSpace::of(&[tensor], &[tensor; 3]).unwrap();
            let mut launches = Vec::new();
            let class = if numel == 1 { KernelClass { vector: 4, rank: 0 } } else { space.class() };
            space
                .for_each_launch(class, &mut |blocks, _| {
                    launches.push((class, blocks));
                    Ok(())
                })
                .unwrap();
            assert_eq!(short(tensor, &[tensor; 3]), Some(launches[0]), "{element}");
        }
        let matrix = tensor(F32, &[30, 64], None);
        assert_eq!(short(matrix, &[tensor(F32, &[64], None)]), None);
        assert_eq!(short(matrix, &[at(4, F32, &[30, 64], None)]), None);
        assert_eq!(short(matrix, &[tensor(F32, &[30, 64], Some(&[1, 30]))]), None);
        let large = tensor(F32, &[(1 << 30) + 1], None);
        assert_eq!(short(large, &[large]), None);
    }

    #[test]
    fn aligned_rows_are_vectorized() {
        let matrix = tensor(F32, &[30, 64], None);
        assert_eq!(class(matrix, &[matrix, tensor(F32, &[64], None)]), (4, 4));
        assert_eq!(class(matrix, &[matrix, tensor(F32, &[30, 1], None)]), (4, 4));
        assert_eq!(class(matrix, &[matrix, tensor(F32, &[], None)]), (4, 4));
        assert_eq!(class(matrix, &[matrix, at(4, F32, &[64], None)]), (1, 4));
        assert_eq!(class(matrix, &[matrix, at(8, F32, &[64], None)]), (2, 4));
        assert_eq!(class(matrix, &[tensor(F32, &[30, 64], Some(&[1, 30]))]), (1, 4));
        let odd = tensor(F32, &[30, 63], None);
        assert_eq!(class(odd, &[odd, tensor(F32, &[63], None)]), (1, 4));
        assert_eq!(class(at(4, F32, &[64], None), &[matrix.narrow(0, 0, 1)]), (1, 4));
    }

    #[test]
    fn adjacent_dimensions_are_merged() {
        let shape = [2, 3, 4, 5, 6, 7];
        let strided = tensor(F32, &shape, Some(&[2520 * 2, 840, 210, 42, 7, 1]));
        let space = IterationSpace::of(&[strided], &[tensor(F32, &shape, None)]).unwrap();
        assert_eq!((space.rank, &space.sizes[..2]), (2, &[2520, 2][..]));
        let one = tensor(F32, &[1, 1], None);
        let space = IterationSpace::of(&[one], &[one]).unwrap();
        assert_eq!((space.rank, space.class()), (0, KernelClass { vector: 1, rank: 4 }));
        // All reversed is the same as none reversed.
        let backwards = at(4 * 63 + 4096, F32, &[64], Some(&[-1]));
        assert_eq!(class(backwards, &[backwards]), (4, 0));
        assert_eq!(class(tensor(F32, &[64], None), &[backwards]), (1, 4));
    }

    #[test]
    fn outputs_must_have_an_address_for_each_element() {
        let error =
            IterationSpace::of(&[tensor(F32, &[3, 4], Some(&[0, 1]))], &[tensor(F32, &[4], None)]).err().unwrap();
        assert!(error.message().contains("dimension 0 of output 0 has 3 elements in one place"));
        let far = tensor(F32, &[3, 4], Some(&[i64::MAX, 1]));
        assert!(IterationSpace::of(&[far], &[far]).err().unwrap().message().contains("outside of all addresses"));
    }

    #[test]
    fn incompatible_shapes_are_reported() {
        let shape = |inputs: &[Tensor]| broadcast(inputs).map(|(sizes, rank)| sizes[..rank].to_vec());
        let row = tensor(F32, &[4], None);
        assert_eq!(shape(&[tensor(F32, &[3, 1], None), row]).unwrap(), [3, 4]);
        assert_eq!(shape(&[tensor(F32, &[0], None), tensor(F32, &[2, 1], None)]).unwrap(), [2, 0]);
        assert!(shape(&[tensor(F32, &[], None)]).unwrap().is_empty());
        let error = shape(&[row, tensor(F32, &[5, 3], None)]).unwrap_err();
        assert!(error.message().contains("input 1 of shape [5, 3]"), "{error}");
    }

    #[test]
    fn large_tensors_take_several_launches() {
        let counts = |output: Tensor, inputs: &[Tensor]| {
            let space = IterationSpace::of(&[output], inputs).unwrap();
            let (class, mut launches) = (space.class(), 0);
            space
                .for_each_launch(class, &mut |blocks, _| {
                    assert!(blocks > 0);
                    launches += 1;
                    Ok(())
                })
                .unwrap();
            launches
        };
        let large = tensor(U8, &[(1 << 32) + 5], None);
        assert_eq!(counts(large, &[large]), 5);
        // Vectors of 16 bytes are counted, not bytes.
        let rows = tensor(U8, &[1 << 17, 1 << 16], Some(&[1 << 17, 1]));
        assert_eq!(counts(rows, &[rows]), 1);
        let rows = tensor(U8, &[1 << 17, (1 << 16) + 1], Some(&[1 << 17, 1]));
        assert_eq!(counts(rows, &[rows]), 16);
        assert_eq!(counts(tensor(F32, &[1], None), &[tensor(F32, &[1], None)]), 1);
    }

    #[test]
    fn rows_may_exceed_32_bit_counts() {
        // One scalar input for all elements, so that each launch has its own row length; the vectors of all launches
        // must add up.
        for (element, numel) in
            [(U8, 1_i64 << 32), (U8, (1 << 32) + 1024), (F16, 1 << 33), (F32, 1 << 32), (U8, 1 << 34)]
        {
            let space = IterationSpace::of(&[tensor(element, &[numel], None)], &[tensor(element, &[], None)]).unwrap();
            let class = space.class();
            let mut vectors = 0;
            space
                .for_each_launch(class, &mut |blocks, parameters| {
                    let count = parameters.count();
                    vectors += count;
                    let block_units = u64::from(THREADS * class.rounds(2));
                    assert_eq!(u64::from(blocks), count.div_ceil(block_units), "{element}");
                    Ok(())
                })
                .unwrap();
            assert_eq!(vectors, numel as u64 / u64::from(class.vector), "{element}");
        }
    }
}
