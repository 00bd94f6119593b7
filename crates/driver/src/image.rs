//! Module images: compiler output that a driver loads.

use std::{
    ffi::{CStr, c_void},
    slice,
};

/// The code of a module: PTX, a cubin or a fatbin for a GPU, a shared library for the host device.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Vec<u8>);

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Image of {} bytes", self.0.len())
    }
}

impl Image {
    /// Wraps the output of a compiler.
    ///
    /// # Safety
    /// The bytes are a complete image as a compiler emits it: drivers find its end from its own header. Its kernels take
    /// the parameters with which they are launched.
    pub unsafe fn new(mut bytes: Vec<u8>) -> Image {
        // PTX text must be NUL-terminated.
        if bytes.last() != Some(&0) {
            bytes.push(0);
        }
        Image(bytes)
    }

    /// Returns PTX without kernels.
    pub fn without_kernels() -> Image {
        Image(b".version 7.0\0".to_vec())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the length in bytes that the header of an image states; `None` for text, whose end is its NUL. Drivers
    /// read this far, whatever they are given.
    pub fn stated_length(bytes: &[u8]) -> Option<u64> {
        if bytes.starts_with(ELF) {
            return Some(elf_length(bytes).unwrap_or(ELF_HEADER as u64));
        }
        if bytes.starts_with(FATBIN) {
            return Some(fatbin_length(bytes).unwrap_or(FATBIN_HEADER as u64));
        }
        None
    }

    /// Returns whether bytes are code for GPUs: a cubin or a fatbin.
    pub fn is_gpu_code(bytes: &[u8]) -> bool {
        bytes.starts_with(FATBIN) || bytes.starts_with(ELF) && number::<2>(bytes, ELF_MACHINE) == Some(MACHINE_CUDA)
    }

    /// Returns whether bytes are a shared library.
    pub fn is_library(bytes: &[u8]) -> bool {
        bytes.starts_with(ELF) && !Image::is_gpu_code(bytes)
    }

    /// Returns the bytes of the image at an address: as many as its header states, or text up to its NUL.
    ///
    /// # Safety
    /// The address is that of a whole image, or of bytes that end in a NUL.
    pub unsafe fn read<'a>(image: *const c_void) -> &'a [u8] {
        for (magic, header) in [(ELF, ELF_HEADER), (FATBIN, FATBIN_HEADER)] {
            // SAFETY: guaranteed by the caller; the comparison ends at the first byte that differs, so nothing is read
            // past a NUL.
            if (0..magic.len()).all(|at| unsafe { image.cast::<u8>().add(at).read() } == magic[at]) {
                // SAFETY: an image is at least as long as its header.
                let header = unsafe { slice::from_raw_parts(image.cast::<u8>(), header) };
                let length = Image::stated_length(header).and_then(|length| usize::try_from(length).ok());
                // SAFETY: the image is whole, hence as long as its header states.
                return length.map_or(header, |length| unsafe { slice::from_raw_parts(image.cast(), length) });
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { CStr::from_ptr(image.cast()) }.to_bytes()
    }
}

/// The start of an ELF file, such as a cubin.
const ELF: &[u8] = b"\x7fELF";
const ELF_HEADER: usize = 64;
/// The place of the machine in its header, and the number of CUDA.
const ELF_MACHINE: usize = 18;
const MACHINE_CUDA: u64 = 190;
/// The start of a fatbin.
const FATBIN: &[u8] = &0xBA55_ED50_u32.to_le_bytes();
const FATBIN_HEADER: usize = 16;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(wide))
}

/// Returns where the later one of an ELF file's two tables ends. Compilers put one of them at the end.
fn elf_length(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..ELF_HEADER)?;
    let table = |start: usize, size: usize, count: usize| {
        let bytes = number::<2>(header, size)? * number::<2>(header, count)?;
        Some(number::<8>(header, start)?.saturating_add(bytes))
    };
    Some(table(0x20, 0x36, 0x38)?.max(table(0x28, 0x3A, 0x3C)?))
}

fn fatbin_length(bytes: &[u8]) -> Option<u64> {
    Some(number::<8>(bytes, 8)?.saturating_add(number::<2>(bytes, 6)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_gpus_is_recognized() {
        let mut header = [0; ELF_HEADER];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(Image::is_library(&header) && !Image::is_gpu_code(&header));
        header[ELF_MACHINE] = MACHINE_CUDA as u8;
        assert!(Image::is_gpu_code(&header) && !Image::is_library(&header));
        assert!(Image::is_gpu_code(b"\x50\xed\x55\xba\x01"));
        assert!(!Image::is_gpu_code(b".version 8.0") && !Image::is_library(b""));
    }

    #[test]
    fn images_are_read_to_their_end() {
        let text = b".version 8.0\0.version 7.0\0";
        // SAFETY: the text has a NUL.
        assert_eq!(unsafe { Image::read(text.as_ptr().cast()) }, b".version 8.0");
        let mut fatbin = [0_u8; 24];
        fatbin[..9].copy_from_slice(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0, 8]);
        // SAFETY: it has as many bytes as its header states.
        assert_eq!(unsafe { Image::read(fatbin.as_ptr().cast()) }, fatbin);
    }

    #[test]
    fn headers_state_the_length() {
        assert_eq!(Image::stated_length(b".version 8.0"), None);
        assert_eq!(Image::stated_length(b"\x7fELF"), Some(64));
        let program = std::fs::read("/proc/self/exe").unwrap();
        let length = Image::stated_length(&program).unwrap();
        assert!(length > 64 && length <= program.len() as u64);
        let mut fatbin = [0_u8; 24];
        fatbin[..8].copy_from_slice(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0]);
        fatbin[8] = 8;
        assert_eq!(Image::stated_length(&fatbin), Some(24));
        assert_eq!(Image::stated_length(&fatbin[..10]), Some(16));
        fatbin[8..16].fill(0xFF);
        assert_eq!(Image::stated_length(&fatbin), Some(u64::MAX));
    }
}
