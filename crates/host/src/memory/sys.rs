//! The system calls under the host device's memory.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

pub const PROT_NONE: i32 = libc::PROT_NONE;
pub const PROT_READ: i32 = libc::PROT_READ;
pub const PROT_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

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
    let start = address.next_multiple_of(alignment);
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
    let address = unsafe { libc::mmap(hint as *mut _, bytes as usize, PROT_NONE, RESERVED, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

/// Returns addresses to the system. They were returned by [`reserve`] or [`map_pinned`].
pub fn release(address: u64, bytes: u64) {
    // SAFETY: the range came from this module's own mmap, and only the program's own device pointers refer to it; using
    // those after this is the program's error, as it would be on a GPU.
    unsafe { libc::munmap(address as *mut _, bytes as usize) };
}

/// Maps memory for pinned host buffers: page-aligned, zero, readable and writable.
pub fn map_pinned(bytes: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses addresses that nothing uses.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, PROT_WRITE, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

/// Maps part of a file at reserved addresses.
pub fn map(address: u64, bytes: u64, file: &OwnedFd, offset: u64, protection: i32) -> io::Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the caller owns the range as a reservation, so that MAP_FIXED replaces only this module's own pages.
    let result = unsafe {
        libc::mmap(address as *mut _, bytes as usize, protection, flags, file.as_raw_fd(), offset as libc::off_t)
    };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Removes the pages from reserved addresses, which leaves them without access.
pub fn unmap(address: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: as in `map`.
    let result = unsafe { libc::mmap(address as *mut _, bytes as usize, PROT_NONE, RESERVED | libc::MAP_FIXED, -1, 0) };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn protect(address: u64, bytes: u64, protection: i32) -> io::Result<()> {
    // SAFETY: the caller owns the range; a copy in progress checks the access rights itself, so reducing them is not
    // unsound.
    check(unsafe { libc::mprotect(address as *mut _, bytes as usize, protection) })
}

/// Creates a file in memory, closed on exec.
pub fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    check(fd)?;
    // SAFETY: the call just created this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a file at least `bytes` long.
pub fn grow(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    // SAFETY: a plain call on a descriptor that the borrow keeps open.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) })
}

/// Releases the pages of part of a file to the system. Failure only means that they stay in use.
pub fn punch(file: &OwnedFd, offset: u64, bytes: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain call on a descriptor that the borrow keeps open.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
}

/// Opens a new file description of the file behind a descriptor of `process`, with its own position and its own locks.
pub fn reopen(process: Option<i32>, fd: RawFd) -> io::Result<OwnedFd> {
    let directory = process.map_or("self".to_owned(), |process| process.to_string());
    let file = std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{directory}/fd/{fd}"))?;
    Ok(file.into())
}

/// Returns whether a descriptor refers to a memory file with this name.
pub fn is_memory_file(fd: RawFd, name: &str) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    target.is_ok_and(|path| path.to_string_lossy().starts_with(&format!("/memfd:{name}")))
}

/// Moves the position of a file description.
pub fn seek(file: &OwnedFd, offset: u64) -> io::Result<()> {
    // SAFETY: a plain call on a descriptor that the borrow keeps open.
    let result = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, libc::SEEK_SET) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the position of a file description, which may have another owner.
pub fn position(fd: RawFd) -> io::Result<u64> {
    // SAFETY: reading the position of any descriptor is harmless; a wrong one returns an error.
    let result = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Locks part of a file, shared, for as long as this file description is open anywhere.
pub fn lock_shared(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    let mut lock = region(libc::F_RDLCK, offset, bytes);
    // SAFETY: the structure is initialised and outlives the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) })
}

/// Returns whether any other file description has locked part of a file.
pub fn is_locked(file: &OwnedFd, offset: u64, bytes: u64) -> bool {
    let mut lock = region(libc::F_WRLCK, offset, bytes);
    // SAFETY: the structure is initialised and outlives the call, which writes only to it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    // If the system call fails, keeping the memory is the safe result.
    result < 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

fn region(kind: i32, offset: u64, bytes: u64) -> libc::flock {
    // SAFETY: all zeros is a valid value of this plain C structure; l_pid must be 0 for locks of descriptions.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset as libc::off_t;
    lock.l_len = bytes as libc::off_t;
    lock
}

/// Returns whether the program has memory at every page of a range.
pub fn is_mapped(address: u64, bytes: u64) -> bool {
    let page = 4096;
    let start = address / page * page;
    let Some(end) = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page)) else {
        return false;
    };
    // SAFETY: an asynchronous msync changes nothing; it fails with ENOMEM where no memory is mapped.
    unsafe { libc::msync(start as *mut _, (end - start) as usize, libc::MS_ASYNC) == 0 }
}

/// Returns when a process was started, in clock ticks since boot. With its ID, this identifies it permanently.
pub fn start_time(process: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
