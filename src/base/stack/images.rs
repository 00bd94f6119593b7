//! The program and its shared libraries, as mapped in memory.

use std::{
    ffi::{CStr, c_int, c_void},
    path::PathBuf,
};

/// An image: the program or a library.
pub(super) struct Image<'a> {
    /// The difference between an address in memory and the same address in the file.
    pub bias: u64,
    /// The path of the file; empty for the program itself.
    name: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

impl Image<'_> {
    /// Returns whether an address lies in the image's code.
    pub fn contains(&self, address: u64) -> bool {
        self.segments().any(|(start, bytes, code)| code && address.wrapping_sub(start) < bytes)
    }

    /// Returns whether the image is the program, not a library.
    pub fn is_program(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        if self.is_program() {
            return "/proc/self/exe".into();
        }
        PathBuf::from(self.name.to_string_lossy().into_owned())
    }

    /// Returns the range from the lowest to the highest address of the image's code.
    pub fn code(&self) -> std::ops::Range<u64> {
        let code = self.segments().filter(|(_, _, code)| *code);
        let none = std::ops::Range { start: u64::MAX, end: 0 };
        code.fold(none, |range, (start, bytes, _)| range.start.min(start)..range.end.max(start + bytes))
    }

    /// Iterates over the loaded segments: start, number of bytes, and whether the segment is code.
    fn segments(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        let loaded = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded.map(|header| (self.bias.wrapping_add(header.p_vaddr), header.p_memsz, header.p_flags & libc::PF_X != 0))
    }

    /// Returns the bytes from a mapped address to the end of the loaded segment that contains it.
    fn bytes_from(&self, start: u64) -> Option<&[u8]> {
        let (begin, bytes, _) = self.segments().find(|(begin, bytes, _)| start.wrapping_sub(*begin) < *bytes)?;
        let length = usize::try_from(begin + bytes - start).ok()?;
        // SAFETY: the image's headers say that the loader mapped these bytes readable. The loader keeps the image
        // mapped for as long as `find` runs, and `self` does not outlive that call.
        Some(unsafe { std::slice::from_raw_parts(start as *const u8, length) })
    }

    /// Returns the index of the unwinding rules (`.eh_frame_hdr`) and its address.
    pub fn rules_index(&self) -> Option<(&[u8], u64)> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let start = self.bias.wrapping_add(header.p_vaddr);
        Some((self.bytes_from(start)?, start))
    }

    /// Returns the unwinding rules (`.eh_frame`) at the address that their index contains.
    pub fn rules(&self, start: u64) -> Option<&[u8]> {
        self.bytes_from(start)
    }
}

struct Search<'f> {
    address: u64,
    found: &'f mut dyn FnMut(&Image),
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its description of an image, and the pointer that `find` gave it. Nothing else uses
    // that pointer's target during the call.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() || info.dlpi_name.is_null() {
        return 0;
    }
    let image = Image {
        bias: info.dlpi_addr,
        // SAFETY: the loader's name of an image is a NUL-terminated string, and was checked not to be NULL.
        name: unsafe { CStr::from_ptr(info.dlpi_name) },
        // SAFETY: the loader's description gives the number of headers, and they stay mapped as long as the loader
        // keeps the image.
        headers: unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
    };
    if !image.contains(search.address) {
        return 0;
    }
    (search.found)(&image);
    1
}

/// Calls `look` with the image whose code contains an address, if there is one. The loader neither adds nor removes
/// images during the call.
pub(super) fn find<T>(address: u64, look: impl FnOnce(&Image) -> T) -> Option<T> {
    let (mut look, mut result) = (Some(look), None);
    let mut found = |image: &Image| result = look.take().map(|look| look(image));
    let mut search = Search { address, found: &mut found };
    // SAFETY: `visit` has the type that the call requires, and `search` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    result
}
