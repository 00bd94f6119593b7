//! The system calls under the host device's memory.

use rustix::{
    fs::{self, FallocateFlags, MemfdFlags, SealFlags, SeekFrom},
    io::retry_on_intr,
    mm::{self, MapFlags, MprotectFlags, MsyncFlags, ProtFlags},
};
use std::{
    ffi::CStr,
    fs::File,
    io,
    os::{
        fd::{BorrowedFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    ptr,
};

pub const PROT_NONE: ProtFlags = ProtFlags::empty();
pub const PROT_READ: ProtFlags = ProtFlags::READ;
pub const PROT_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

const RESERVED: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

const FILL_BYTES: usize = 64 << 10;

/// Reserves `bytes` of addresses with no access, aligned to `alignment` (a power of two), at `hint` if that is free.
pub fn reserve(bytes: u64, alignment: u64, hint: u64) -> Option<u64> {
    if hint != 0 && hint.is_multiple_of(alignment) {
        let address = anonymous(hint, bytes)?;
        if address == hint {
            return Some(address);
        }
        release(address, bytes);
    }
    let padded = bytes.checked_add(alignment)?;
    let address = anonymous(0, padded)?;
    // As high as possible, because the kernel places mappings below each other: without gaps, as those of a driver.
    let start = (address + padded - bytes) / alignment * alignment;
    if start > address {
        release(address, start - address);
    }
    let tail = address + padded - (start + bytes);
    if tail > 0 {
        release(start + bytes, tail);
    }
    Some(start)
}

fn anonymous(hint: u64, bytes: u64) -> Option<u64> {
    // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing uses; the hint is only a hint.
    let address = unsafe { mm::mmap_anonymous(hint as *mut _, bytes as usize, PROT_NONE, RESERVED) };
    address.ok().map(|address| address as u64)
}

/// Returns addresses to the system. They were returned by [`reserve`] or [`map_pinned`].
pub fn release(address: u64, bytes: u64) {
    // SAFETY: the range came from this module's own mmap, and only the program's own device pointers refer to it; using
    // those after this is the program's error, as it would be on a GPU. A failure would mean that it is not mapped.
    let _ = unsafe { mm::munmap(address as *mut _, bytes as usize) };
}

/// Maps memory for pinned host buffers: page-aligned, zero, readable and writable.
pub fn map_pinned(bytes: u64) -> Option<u64> {
    // SAFETY: the kernel chooses addresses that nothing uses.
    let address = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes as usize, PROT_WRITE, MapFlags::PRIVATE) };
    address.ok().map(|address| address as u64)
}

/// Maps part of a file at reserved addresses.
pub fn map(address: u64, bytes: u64, file: &OwnedFd, offset: u64, protection: ProtFlags) -> io::Result<()> {
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the caller owns the range as a reservation, so that MAP_FIXED replaces only this module's own pages.
    unsafe { mm::mmap(address as *mut _, bytes as usize, protection, flags, file, offset) }?;
    Ok(())
}

/// Removes the pages from reserved addresses, which leaves them without access. If the process has no room for another
/// mapping, not even in place of this one, the pages stay, but cannot be accessed.
pub fn unmap(address: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: as in `map`.
    let replaced =
        unsafe { mm::mmap_anonymous(address as *mut _, bytes as usize, PROT_NONE, RESERVED | MapFlags::FIXED) };
    replaced.map(drop).or_else(|_| protect(address, bytes, PROT_NONE))
}

pub fn protect(address: u64, bytes: u64, protection: ProtFlags) -> io::Result<()> {
    let protection = MprotectFlags::from_bits_retain(protection.bits());
    // SAFETY: the caller owns the range; a copy in progress checks the access rights itself, so reducing them is not
    // unsound.
    Ok(unsafe { mm::mprotect(address as *mut _, bytes as usize, protection) }?)
}

/// Creates a file in memory, closed on exec. No process can make it shorter: accessing a mapping beyond the end of its
/// file kills a process.
pub fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    let file = retry_on_intr(|| fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING))?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Makes a file `bytes` long forever.
pub fn fix_size(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    grow(file, bytes)?;
    Ok(fs::fcntl_add_seals(file, SealFlags::GROW | SealFlags::SEAL)?)
}

/// Returns whether a file of another process is at least `bytes` long, and no process can make it shorter.
pub fn has_fixed_bytes(file: &OwnedFd, bytes: u64) -> bool {
    fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        && fs::fstat(file).is_ok_and(|stat| stat.st_size as u64 >= bytes)
}

/// Makes a file at least `bytes` long.
pub fn grow(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| fs::ftruncate(file, bytes))?)
}

/// Writes a pattern to part of a file. Its size is a multiple of `FILL_BYTES`.
pub fn fill(file: &OwnedFd, offset: u64, bytes: u64, pattern: &[u8; 8]) -> io::Result<()> {
    let writer = File::from(file.try_clone()?);
    let block = pattern.repeat(FILL_BYTES / pattern.len());
    (offset..offset + bytes).step_by(FILL_BYTES).try_for_each(|place| writer.write_all_at(&block, place))
}

/// Releases the pages of part of a file to the system. Failure only means that they stay in use.
pub fn punch(file: &OwnedFd, offset: u64, bytes: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = retry_on_intr(|| fs::fallocate(file, flags, offset, bytes));
}

/// Returns whether a descriptor refers to a memory file with this name.
pub fn is_memory_file(fd: RawFd, name: &str) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    target.is_ok_and(|path| path.to_string_lossy().starts_with(&format!("/memfd:{name}")))
}

/// Moves the position of a file description.
pub fn seek(file: &OwnedFd, offset: u64) -> io::Result<()> {
    fs::seek(file, SeekFrom::Start(offset))?;
    Ok(())
}

/// Returns the position of a file description, which may have another owner. The descriptor is not negative.
pub fn position(fd: RawFd) -> io::Result<u64> {
    // SAFETY: the number is not -1, and is used for one system call, which changes nothing and reports an error if it is
    // not open.
    Ok(fs::tell(unsafe { BorrowedFd::borrow_raw(fd) })?)
}

/// Returns whether the program has memory at every page of a range.
pub fn is_mapped(address: u64, bytes: u64) -> bool {
    let page = 4096;
    let start = address / page * page;
    let Some(end) = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page)) else {
        return false;
    };
    // SAFETY: an asynchronous msync changes nothing; it fails with ENOMEM where no memory is mapped.
    unsafe { mm::msync(start as *mut _, (end - start) as usize, MsyncFlags::ASYNC).is_ok() }
}

/// Returns when a process was started, in clock ticks since boot; `None` if there is no such process, or if it has ended.
/// With its ID, this identifies a process permanently. It is an error if the system cannot tell, for example because
/// this process has no file descriptor left.
pub fn start_time(process: i32) -> io::Result<Option<u64>> {
    let text = match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(text) => text,
        Err(error) => match error.raw_os_error() {
            // The process may also end after the file was opened.
            Some(libc::ENOENT | libc::ESRCH) => return Ok(None),
            _ => return Err(error),
        },
    };
    Ok(parse_start_time(&text))
}

fn parse_start_time(text: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
