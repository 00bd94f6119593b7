//! How the elements of several tensors are walked through together: dimensions in the order of memory, those that go on in
//! each other as one, and vectors where all tensors allow them.

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

/// The most elements, or vectors, of a launch: what its 32-bit numbers can count, and divide.
const MOST: u64 = 1 << 30;
/// A vector is at most so many bytes of the tensor with the largest elements.
const WIDEST: u64 = 32;
/// And of the one with the smallest.
const ACCESS: u64 = 16;

/// What kernels are made for apart from types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    /// How many elements are one access.
    pub vector: u32,
    /// 0 for elements side by side, else the most dimensions.
    pub rank: u32,
}

impl Class {
    /// How many vectors a thread makes: enough to wait for several accesses at once, and few enough for its registers.
    pub fn rounds(self, arrays: usize) -> u32 {
        match (self.vector, arrays) {
            (1, 0..=4) => 4,
            (1, _) | (_, 0..=4) => 2,
            _ => 1,
        }
    }
}

/// Some tensors, the outputs first, and the dimensions of all their elements.
#[derive(Clone, Copy)]
pub struct Walk {
    arrays: usize,
    outputs: usize,
    rank: usize,
    sizes: [i64; MAX_RANK],
    /// In bytes, of each tensor.
    strides: [[i64; MOST_ARRAYS]; MAX_RANK],
    data: [Span; MOST_ARRAYS],
    /// The bytes of an element of each.
    bytes: [u64; MOST_ARRAYS],
}

/// The shape that some tensors have in common when those with fewer elements are repeated.
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

/// The most elements that one access can have.
fn widest(bytes: impl Iterator<Item = u64>) -> u64 {
    let (least, most) = bytes.fold((u64::MAX, 1), |(least, most), bytes| (least.min(bytes), most.max(bytes)));
    (ACCESS / least).min(WIDEST / most).max(2)
}

/// The short way for what is mostly called: contiguous tensors of one shape, which one launch can count, need no walk. If that is
/// what they are: their class, the blocks of the launch, and its parameters.
pub fn dense(outputs: &[Tensor], inputs: &[Tensor], parameters: &mut Parameters) -> Option<(Class, u32)> {
    let shape = outputs[0].shape();
    let all = || outputs.iter().chain(inputs);
    let numel = outputs[0].numel;
    let widest = widest(all().map(|tensor| tensor.element.bytes()));
    let fits = |tensor: &Tensor| {
        let bytes = (tensor.element.bytes() * widest).min(ACCESS);
        tensor.memory.address().is_multiple_of(bytes) && tensor.shape() == shape && tensor.is_contiguous()
    };
    if numel > MOST || !all().all(fits) {
        return None;
    }
    let class = Class { vector: widest as u32, rank: 0 };
    let arrays = outputs.len() + inputs.len();
    let mut data = [outputs[0].memory; MOST_ARRAYS];
    for (place, tensor) in data.iter_mut().zip(all()) {
        *place = tensor.memory;
    }
    let a_block = u64::from(THREADS * class.rounds(arrays) * class.vector);
    parameters.dense(numel as u32, &data[..arrays]);
    Some((class, numel.div_ceil(a_block) as u32))
}

impl Walk {
    /// That of outputs and inputs: the outputs are all of one shape, to which the inputs can be repeated, and have elements.
    pub fn of(outputs: &[Tensor], inputs: &[Tensor]) -> Result<Walk> {
        let shape = &outputs[0];
        let none = shape.memory;
        let mut walk = Walk {
            arrays: outputs.len() + inputs.len(),
            outputs: outputs.len(),
            rank: 0,
            sizes: [1; MAX_RANK],
            strides: [[0; MOST_ARRAYS]; MAX_RANK],
            data: [none; MOST_ARRAYS],
            bytes: [1; MOST_ARRAYS],
        };
        for (array, tensor) in outputs.iter().chain(inputs).enumerate() {
            walk.data[array] = tensor.memory;
            walk.bytes[array] = tensor.element.bytes();
        }
        for dimension in (0..shape.rank).rev() {
            let size = shape.sizes[dimension];
            if size == 1 {
                continue;
            }
            let at = walk.rank;
            walk.sizes[at] = size;
            for (array, tensor) in outputs.iter().chain(inputs).enumerate() {
                let own = (dimension + tensor.rank).checked_sub(shape.rank).filter(|own| tensor.sizes[*own] != 1);
                let stride = own.map_or(Some(0), |own| tensor.strides[own].checked_mul(walk.bytes[array] as i64));
                let stride = stride.filter(|stride| stride.checked_mul(size - 1).is_some()).ok_or_else(too_far)?;
                walk.strides[at][array] = stride;
                if stride == 0 && array < outputs.len() {
                    return Err(Error::new(
                        Status::INVALID_VALUE,
                        format!("dimension {dimension} of output {array} has {size} elements in one place"),
                    ));
                }
            }
            walk.rank += 1;
        }
        walk.turn_forwards();
        walk.sort();
        walk.merge();
        Ok(walk)
    }

    /// What runs backwards in the first output runs forwards from its other end.
    fn turn_forwards(&mut self) {
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

    /// The first output's order of memory.
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

    /// The kernel that suits best.
    pub fn class(&self) -> Class {
        let widest = widest(self.bytes[..self.arrays].iter().copied());
        if self.rank == 1 && self.is_dense() && self.is_aligned(widest) {
            return Class { vector: widest as u32, rank: 0 };
        }
        let rank = if self.rank <= RANKS[0] { RANKS[0] } else { RANKS[1] } as u32;
        let mut vector = widest;
        while vector > 1 {
            if self.rank > 0 && self.has_rows(vector) && self.is_aligned(vector) {
                return Class { vector: vector as u32, rank };
            }
            vector /= 2;
        }
        Class { vector: 1, rank }
    }

    fn is_dense(&self) -> bool {
        (0..self.arrays).all(|array| self.strides[0][array] == self.bytes[array] as i64)
    }

    fn repeats(&self, array: usize) -> bool {
        self.strides[0][array] == 0
    }

    /// Whether the fastest dimension is made of vectors, or of one element, in every tensor.
    fn has_rows(&self, vector: u64) -> bool {
        (self.sizes[0] as u64).is_multiple_of(vector)
            && (0..self.arrays).all(|array| self.repeats(array) || self.strides[0][array] == self.bytes[array] as i64)
    }

    /// Whether every vector begins at a multiple of its bytes.
    fn is_aligned(&self, vector: u64) -> bool {
        (0..self.arrays).filter(|array| !self.repeats(*array)).all(|array| {
            let bytes = (self.bytes[array] * vector).min(ACCESS);
            self.data[array].address().is_multiple_of(bytes)
                && (1..self.rank).all(|dimension| self.strides[dimension][array].unsigned_abs().is_multiple_of(bytes))
        })
    }

    /// Calls `launch` with the blocks and the parameters of each launch: one, but for more elements than one can count.
    pub fn each_launch(&self, class: Class, launch: &mut dyn FnMut(u32, &mut Parameters) -> Result<()>) -> Result<()> {
        let mut parameters = Parameters::new();
        let vector = u64::from(class.vector);
        let a_block = u64::from(THREADS * class.rounds(self.arrays));
        if class.rank == 0 {
            let (numel, mut first) = (self.sizes[0] as u64, 0);
            while first < numel {
                let count = MOST.min(numel - first);
                let mut data = self.data;
                for (data, bytes) in data.iter_mut().zip(self.bytes) {
                    *data = data.offset_by((first * bytes) as i64);
                }
                let blocks = count.div_ceil(a_block * vector) as u32;
                parameters.dense(count as u32, &data[..self.arrays]);
                launch(blocks, &mut parameters)?;
                first += count;
            }
            return Ok(());
        }
        let numel: u64 = self.sizes[..self.rank].iter().map(|size| *size as u64).product();
        let units = numel / vector;
        if units > MOST {
            return self.halves(vector).iter().try_for_each(|half| half.each_launch(class, launch));
        }
        let (mut sizes, mut strides) = ([1_u32; MAX_RANK], self.strides);
        let rank = self.rank.max(1);
        for (dimension, place) in sizes.iter_mut().enumerate() {
            // What is counted is vectors, of which there are few enough, and not the elements in them.
            let each = if dimension == 0 { vector } else { 1 };
            *place = (self.sizes[dimension] as u64 / each) as u32;
        }
        strides[0].iter_mut().for_each(|stride| *stride *= vector as i64);
        let repeats = (self.outputs..self.arrays).filter(|array| self.repeats(*array));
        let repeats = repeats.fold(0, |bits, array| bits | 1 << (array - self.outputs));
        let layout =
            Strided { max_rank: class.rank as usize, sizes: &sizes[..rank], strides: &strides[..rank], repeats };
        parameters.strided(&layout, &self.data[..self.arrays]);
        launch(units.div_ceil(a_block) as u32, &mut parameters)
    }

    /// The halves of the slowest dimension that has several elements, or vectors.
    fn halves(&self, vector: u64) -> [Walk; 2] {
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
        let class = Walk::of(&[output], inputs).unwrap().class();
        (class.vector, class.rank)
    }

    #[test]
    fn what_lies_side_by_side_goes_by_16_bytes() {
        for (element, vector) in [(F32, 4), (F16, 8), (F64, 2), (U8, 16), (Complex128, 2)] {
            let dense = tensor(element, &[30, 64], None);
            assert_eq!(class(dense, &[dense, dense]), (vector, 0), "{element}");
            // In another order, but the same in all.
            let turned = tensor(element, &[64, 30], Some(&[1, 64]));
            assert_eq!(class(turned, &[turned]), (vector, 0), "{element}");
        }
        let (bytes, floats) = (tensor(U8, &[64], None), tensor(F32, &[64], None));
        assert_eq!(class(floats, &[bytes, floats]), (8, 0));
    }

    #[test]
    fn the_short_way_is_the_same() {
        let short = |output: Tensor, inputs: &[Tensor]| dense(&[output], inputs, &mut Parameters::new());
        for (element, numel) in [(F32, 1000), (F16, 4097), (U8, 1 << 30), (Complex128, 3), (F32, 1)] {
            let tensor = tensor(element, &[numel, 1], None);
            let walk = Walk::of(&[tensor], &[tensor; 3]).unwrap();
            let mut launches = Vec::new();
            let class = if numel == 1 { Class { vector: 4, rank: 0 } } else { walk.class() };
            walk.each_launch(class, &mut |blocks, _| {
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
    fn rows_go_by_vectors_where_all_are_aligned() {
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
    fn dimensions_that_go_on_are_one() {
        let shape = [2, 3, 4, 5, 6, 7];
        let strided = tensor(F32, &shape, Some(&[2520 * 2, 840, 210, 42, 7, 1]));
        let walk = Walk::of(&[strided], &[tensor(F32, &shape, None)]).unwrap();
        assert_eq!((walk.rank, &walk.sizes[..2]), (2, &[2520, 2][..]));
        let one = tensor(F32, &[1, 1], None);
        let walk = Walk::of(&[one], &[one]).unwrap();
        assert_eq!((walk.rank, walk.class()), (0, Class { vector: 1, rank: 4 }));
        // Backwards in all is forwards from the other end.
        let backwards = at(4 * 63 + 4096, F32, &[64], Some(&[-1]));
        assert_eq!(class(backwards, &[backwards]), (4, 0));
        assert_eq!(class(tensor(F32, &[64], None), &[backwards]), (1, 4));
    }

    #[test]
    fn outputs_have_a_place_for_each_element() {
        let error = Walk::of(&[tensor(F32, &[3, 4], Some(&[0, 1]))], &[tensor(F32, &[4], None)]).err().unwrap();
        assert!(error.message().contains("dimension 0 of output 0 has 3 elements in one place"));
        let far = tensor(F32, &[3, 4], Some(&[i64::MAX, 1]));
        assert!(Walk::of(&[far], &[far]).err().unwrap().message().contains("outside of all addresses"));
    }

    #[test]
    fn shapes_meet_or_are_told() {
        let shape = |inputs: &[Tensor]| broadcast(inputs).map(|(sizes, rank)| sizes[..rank].to_vec());
        let row = tensor(F32, &[4], None);
        assert_eq!(shape(&[tensor(F32, &[3, 1], None), row]).unwrap(), [3, 4]);
        assert_eq!(shape(&[tensor(F32, &[0], None), tensor(F32, &[2, 1], None)]).unwrap(), [2, 0]);
        assert!(shape(&[tensor(F32, &[], None)]).unwrap().is_empty());
        let error = shape(&[row, tensor(F32, &[5, 3], None)]).unwrap_err();
        assert!(error.message().contains("input 1 of shape [5, 3]"), "{error}");
    }

    #[test]
    fn more_than_a_launch_can_count_are_several() {
        let counts = |output: Tensor, inputs: &[Tensor]| {
            let walk = Walk::of(&[output], inputs).unwrap();
            let (class, mut launches) = (walk.class(), 0);
            walk.each_launch(class, &mut |blocks, _| {
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
    fn a_row_may_have_more_elements_than_a_word_counts() {
        // One number for all, so that each launch says how long its rows are: the vectors of all launches are all there are.
        for (element, numel) in
            [(U8, 1_i64 << 32), (U8, (1 << 32) + 1024), (F16, 1 << 33), (F32, 1 << 32), (U8, 1 << 34)]
        {
            let walk = Walk::of(&[tensor(element, &[numel], None)], &[tensor(element, &[], None)]).unwrap();
            let class = walk.class();
            let mut vectors = 0;
            walk.each_launch(class, &mut |blocks, parameters| {
                let count = parameters.count();
                vectors += count;
                let a_block = u64::from(THREADS * class.rounds(2));
                assert_eq!(u64::from(blocks), count.div_ceil(a_block), "{element}");
                Ok(())
            })
            .unwrap();
            assert_eq!(vectors, numel as u64 / u64::from(class.vector), "{element}");
        }
    }
}
