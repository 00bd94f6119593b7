//! The place of an instruction of a kernel in its source, from the debug information of its library.

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection, read::elf::ElfFile64};
use std::{ffi::c_void, path::Path};

/// What the compiler of the host device calls the program's text.
const SOURCE: &str = "kernel.cu";

/// Returns the place of an instruction as `kernel.cu:12`. `image` is the library that contains `function`; the places of
/// instructions of other libraries are unknown. An instruction of a header has the place that the header was called from,
/// if that is in the program's text.
pub fn of(instruction: usize, function: usize, image: &[u8]) -> String {
    let base = library(instruction);
    let own = base.is_some() && base == library(function);
    let line = base.filter(|_| own).and_then(|base| line(instruction.wrapping_sub(base) as u64, image));
    line.unwrap_or_else(|| format!("{SOURCE}, unknown line"))
}

/// Returns where the library begins that contains an address.
fn library(address: usize) -> Option<usize> {
    // SAFETY: dladdr accepts any address and fills the struct on success.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address as *const c_void, &mut found) != 0).then(|| found.dli_fbase.addr())
    }
}

fn line(offset: u64, image: &[u8]) -> Option<String> {
    let file = ElfFile64::<object::LittleEndian>::parse(image).ok()?;
    let section = |id: SectionId| -> Result<EndianSlice<LittleEndian>, gimli::Error> {
        let data = file.section_by_name(id.name()).and_then(|section| section.data().ok());
        Ok(EndianSlice::new(data.unwrap_or(&[]), LittleEndian))
    };
    let context = Context::from_dwarf(Dwarf::load(section).ok()?).ok()?;
    let mut frames = context.find_frames(offset).skip_all_loads().ok()?;
    let mut first = None;
    while let Ok(Some(frame)) = frames.next() {
        let Some(location) = frame.location else { continue };
        let (Some(file), Some(line)) = (location.file, location.line) else { continue };
        let name = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
        if name == SOURCE {
            return Some(format!("{SOURCE}:{line}"));
        }
        first.get_or_insert_with(|| format!("{name}:{line}"));
    }
    first
}
