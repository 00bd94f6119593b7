//! Structs of the C surface that grow at their end.
//!
//! Such a struct begins with `struct_size`, the size that the caller's version of the header gives it. A caller may be
//! older than the library: fields that its struct lacks have their initial values, and are not written. It may be
//! newer: fields that the library does not know must be 0 where they are inputs, and are not written where they are
//! outputs.
//!
//! An array of such structs has elements of one size, which is the `struct_size` of its first element. That is also the
//! distance between two elements.

use crate::{
    error::{Error, Result},
    ffi::{null, too_many},
    status::Status,
};
use std::{mem, ptr, slice};

/// The largest size of an input struct. A larger number is an uninitialized field.
const LARGEST: usize = 4096;

#[cold]
fn wrong_size(name: &str, size: usize) -> Error {
    Error::new(
        Status::INVALID_VALUE,
        format!("{name}->struct_size is {size}; set it to the size of the struct before the call"),
    )
}

/// Returns the size that a caller's struct states.
///
/// # Safety
/// `pointer` is NULL or begins with an aligned `usize`.
#[inline]
unsafe fn stated_size<T>(pointer: *const T, name: &str) -> Result<usize> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises a size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < 2 * mem::size_of::<usize>() { Err(wrong_size(name, size)) } else { Ok(size) }
}

/// Reads a struct of `size` bytes over its initial value.
///
/// # Safety
/// `pointer` has `size` readable bytes, which are valid values of T's fields. T is `repr(C)`.
#[inline]
unsafe fn read_sized<T: Copy>(pointer: *const T, size: usize, mut value: T, name: &str) -> Result<T> {
    let known = mem::size_of::<T>();
    if size > known {
        if size > LARGEST {
            return Err(wrong_size(name, size));
        }
        // SAFETY: the caller promises `size` bytes; those behind the fields of T are any bytes.
        let unknown = unsafe { slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!(
                    "{name}->struct_size is {size}, and fields behind the {known} bytes that this version of the \
                     library knows are set; set them to 0, or use the version of the library that has them"
                ),
            ));
        }
    }
    // SAFETY: both have at least so many bytes, and one of them belongs to this function.
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), size.min(known)) };
    Ok(value)
}

/// Reads a struct that C passes. Fields that the caller's version lacks have the values of `initial`.
///
/// # Safety
/// `pointer` is NULL, or points to as many bytes as its first field says, which are valid values of T's fields. T is
/// `repr(C)` and begins with a `usize`.
#[inline]
pub(super) unsafe fn read<T: Copy>(pointer: *const T, initial: T, name: &str) -> Result<T> {
    // SAFETY: the caller makes this promise.
    unsafe { read_sized(pointer, stated_size(pointer, name)?, initial, name) }
}

/// Writes as much of `value` as fits in `room` bytes, with their number as its size.
///
/// # Safety
/// `destination` has `room` writable bytes, at least a `usize`. T is `repr(C)` and begins with a `usize`.
unsafe fn write_sized<T: Copy>(destination: *mut T, room: usize, mut value: T) {
    let filled = room.min(mem::size_of::<T>());
    // SAFETY: T begins with a usize. Both structs have at least `filled` bytes, and they do not overlap because this
    // function owns `value`.
    unsafe {
        (&raw mut value).cast::<usize>().write(filled);
        ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), destination.cast::<u8>(), filled);
    }
}

/// An output parameter that is a struct: rejected if NULL or without a size, written only on success.
pub(super) struct StructOutput<T> {
    destination: *mut T,
    room: usize,
}

impl<T: Copy> StructOutput<T> {
    /// # Safety
    /// `destination` is NULL, or may be written as far as the size says that it begins with. T is `repr(C)` and begins
    /// with a `usize`.
    pub(super) unsafe fn new(destination: *mut T, name: &str) -> Result<Self> {
        // SAFETY: the caller makes this promise.
        let room = unsafe { stated_size(destination, name) }?;
        Ok(StructOutput { destination, room })
    }

    pub(super) fn set(self, value: T) {
        // SAFETY: the caller of `new` promised that so many bytes may be written.
        unsafe { write_sized(self.destination, self.room, value) }
    }
}

/// An array of structs that C passes.
pub(super) struct StructList<'a, T> {
    first: *const T,
    count: usize,
    size: usize,
    initial: T,
    name: &'a str,
}

impl<'a, T: Copy> StructList<'a, T> {
    /// # Safety
    /// `first` is NULL, or points to `count` structs as in [`read`], each of the size of the first.
    #[inline]
    pub(super) unsafe fn new(first: *const T, count: usize, initial: T, name: &'a str) -> Result<Self> {
        // SAFETY: the caller makes this promise.
        let size = if count == 0 { 0 } else { unsafe { element_size(first, count, name) }? };
        Ok(StructList { first, count, size, initial, name })
    }

    /// Returns an element, which must exist.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Result<T> {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: the caller of `new` promised elements of this size; the index is that of one of them.
        let element = unsafe { self.first.byte_add(index * self.size) };
        // SAFETY: likewise; every element begins with its size.
        let size = unsafe { element.cast::<usize>().read() };
        if size != self.size {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!(
                    "{0}[{index}].struct_size is {size}, but {0}[0].struct_size is {1}; set all to the size of the \
                     struct",
                    self.name, self.size
                ),
            ));
        }
        // SAFETY: likewise.
        unsafe { read_sized(element, size, self.initial, self.name) }
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<T>> {
        (0..self.count).map(|index| self.get(index))
    }
}

/// An array of structs that the library fills.
pub(super) struct StructOutputList<T> {
    first: *mut T,
    capacity: usize,
    size: usize,
}

impl<T: Copy> StructOutputList<T> {
    /// # Safety
    /// `first` is NULL, or `capacity` structs may be written there, each of the size that the first one begins with. T
    /// is `repr(C)` and begins with a `usize`.
    pub(super) unsafe fn new(first: *mut T, capacity: usize, name: &str) -> Result<Self> {
        let capacity = if first.is_null() { 0 } else { capacity };
        // SAFETY: the caller makes this promise.
        let size = if capacity == 0 { 0 } else { unsafe { element_size(first, capacity, name) }? };
        Ok(StructOutputList { first, capacity, size })
    }

    /// Writes the values, as far as there is room for them.
    pub(super) fn set(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().take(self.capacity).enumerate() {
            // SAFETY: the caller of `new` promised room for `capacity` elements of this size.
            unsafe { write_sized(self.first.byte_add(index * self.size), self.size, value) };
        }
    }
}

/// Returns the size of the elements of an array of `count` structs.
///
/// # Safety
/// As [`stated_size`].
#[inline]
unsafe fn element_size<T>(first: *const T, count: usize, name: &str) -> Result<usize> {
    // SAFETY: the caller makes this promise.
    let size = unsafe { stated_size(first, name) }?;
    if size % mem::align_of::<T>() != 0 {
        return Err(wrong_size(name, size));
    }
    if count.checked_mul(size).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(too_many(name, count));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(C)]
    struct Options {
        struct_size: usize,
        first: u64,
        second: u64,
    }

    const INITIAL: Options = Options { struct_size: 0, first: 1, second: 2 };

    fn read_words(words: &[usize]) -> Result<Options> {
        // SAFETY: the tests state no more bytes than there are words.
        unsafe { read(words.as_ptr().cast(), INITIAL, "options") }
    }

    #[test]
    fn missing_fields_have_their_initial_values() {
        assert_eq!(read_words(&[16, 7]).unwrap(), Options { struct_size: 16, first: 7, second: 2 });
        assert_eq!(read_words(&[24, 7, 8]).unwrap(), Options { struct_size: 24, first: 7, second: 8 });
    }

    #[test]
    fn unknown_fields_must_be_zero() {
        assert_eq!(read_words(&[40, 7, 8, 0, 0]).unwrap(), Options { struct_size: 40, first: 7, second: 8 });
        let refused = read_words(&[40, 7, 8, 0, 1 << 56]).unwrap_err();
        assert_eq!(refused.status(), Status::INVALID_VALUE);
        assert!(refused.message().contains("options->struct_size is 40"), "{}", refused.message());
    }

    #[test]
    fn a_size_that_was_not_set_is_refused() {
        for size in [0, 8, 15, LARGEST + 1, usize::MAX] {
            assert_eq!(read_words(&[size, 7, 8]).unwrap_err().status(), Status::INVALID_VALUE);
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read(ptr::null(), INITIAL, "options") }.unwrap_err().status(), Status::NULL_POINTER);
    }

    #[test]
    fn outputs_are_written_as_far_as_the_caller_knows_them() {
        for (room, expected) in [(16, [16, 1, 5, 5]), (24, [24, 1, 2, 5]), (32, [24, 1, 2, 5])] {
            let mut words = [room, 5, 5, 5_usize];
            // SAFETY: the words have as many bytes as the first says.
            unsafe { StructOutput::new(words.as_mut_ptr().cast::<Options>(), "options") }.unwrap().set(INITIAL);
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn the_first_element_states_the_size_of_all() {
        let words = [32, 3, 4, 0, 32, 5, 6, 0_usize];
        // SAFETY: the words are two elements of 32 bytes.
        let list = unsafe { StructList::new(words.as_ptr().cast(), 2, INITIAL, "list") }.unwrap();
        let second: Vec<u64> = list.iter().map(|element| element.unwrap().second).collect();
        assert_eq!(second, [4, 6]);

        let words = [16, 3, 24, 5_usize];
        // SAFETY: the words are two elements of 16 bytes.
        let list = unsafe { StructList::new(words.as_ptr().cast(), 2, INITIAL, "list") }.unwrap();
        assert_eq!(list.get(0).unwrap().first, 3);
        assert!(list.get(1).unwrap_err().message().contains("list[1].struct_size is 24"));

        let mut words = [16, 0, 0, 0, 9_usize];
        // SAFETY: the words have room for two elements of 16 bytes.
        let output = unsafe { StructOutputList::new(words.as_mut_ptr().cast(), 2, "list") }.unwrap();
        output.set([INITIAL, INITIAL, INITIAL]);
        assert_eq!(words, [16, 1, 16, 1, 9]);

        let words = [20, 3, 4, 5_usize];
        for (words, count) in [(&words[..], 1), (&[24, 3, 4], usize::MAX)] {
            // SAFETY: the size is not believed, so no element is read.
            assert!(unsafe { StructList::new(words.as_ptr().cast(), count, INITIAL, "list") }.is_err());
        }
    }
}
