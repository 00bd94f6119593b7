//! The program and its libraries, as they lie in memory.

use std::{
    ffi::{CStr, c_int, c_void},
    path::PathBuf,
};

/// An image: the program or a library.
pub(super) struct Image<'a> {
    /// What is added to an address in the file for the one in memory.
    pub bias: u64,
    /// Where the file is; none for the program itself.
    name: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

impl Image<'_> {
    /// Whether an address lies in its code.
    pub fn has(&self, address: u64) -> bool {
        self.parts().any(|(start, bytes, code)| code && address.wrapping_sub(start) < bytes)
    }

    /// Whether it is the program, and no library.
    pub fn is_program(&self) -> bool {
        self.name.is_empty()
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        if self.is_program() {
            return "/proc/self/exe".into();
        }
        PathBuf::from(self.name.to_string_lossy().into_owned())
    }

    /// Where its code lies, from the lowest to the highest address.
    pub fn code(&self) -> std::ops::Range<u64> {
        let code = self.parts().filter(|(_, _, code)| *code);
        let none = std::ops::Range { start: u64::MAX, end: 0 };
        code.fold(none, |range, (start, bytes, _)| range.start.min(start)..range.end.max(start + bytes))
    }

    /// What is loaded of it: where, how many bytes, and whether that is code.
    fn parts(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        let loaded = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded.map(|header| (self.bias.wrapping_add(header.p_vaddr), header.p_memsz, header.p_flags & libc::PF_X != 0))
    }

    /// The bytes from an address that its file names to the end of the loaded part that it lies in.
    fn bytes_from(&self, start: u64) -> Option<&[u8]> {
        let (begin, bytes, _) = self.parts().find(|(begin, bytes, _)| start.wrapping_sub(*begin) < *bytes)?;
        let length = usize::try_from(begin + bytes - start).ok()?;
        // SAFETY: the loader mapped these bytes of the image to be read, and says so in its headers; it keeps the image
        // where it is for as long as `find` runs, and `self` is of no longer life.
        Some(unsafe { std::slice::from_raw_parts(start as *const u8, length) })
    }

    /// The index of the unwinding rules, and where it lies; and what follows a place in the rules themselves.
    pub fn rules_index(&self) -> Option<(&[u8], u64)> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let start = self.bias.wrapping_add(header.p_vaddr);
        Some((self.bytes_from(start)?, start))
    }

    /// The unwinding rules, which lie at an address that their index names.
    pub fn rules(&self, start: u64) -> Option<&[u8]> {
        self.bytes_from(start)
    }
}

struct Search<'f> {
    address: u64,
    found: &'f mut dyn FnMut(&Image),
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes its description of an image, and what `find` gave it, which is used by nobody else meanwhile.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() || info.dlpi_name.is_null() {
        return 0;
    }
    let image = Image {
        bias: info.dlpi_addr,
        // SAFETY: the loader's name of an image is a string, and it is not NULL.
        name: unsafe { CStr::from_ptr(info.dlpi_name) },
        // SAFETY: so many headers lie there, and stay there as long as the loader keeps the image.
        headers: unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
    };
    if !image.has(search.address) {
        return 0;
    }
    (search.found)(&image);
    1
}

/// Shows the image whose code an address is in, if there is one. The loader neither adds nor removes images meanwhile.
pub(super) fn find<T>(address: u64, look: impl FnOnce(&Image) -> T) -> Option<T> {
    let (mut look, mut result) = (Some(look), None);
    let mut found = |image: &Image| result = look.take().map(|look| look(image));
    let mut search = Search { address, found: &mut found };
    // SAFETY: `visit` has the type that is asked for, and `search` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    result
}
