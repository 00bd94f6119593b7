//! Backups: where the contents of sleeping memory are kept.

use crate::{
    base::{log, units::Bytes},
    driver::{Pages, Span, signals, temporary},
    error::{Error, Result},
    memory::pinned,
    status::Status,
    stream::Stream,
};
use once_cell::sync::OnceCell;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, fallocate, fcntl_getfl, fcntl_setfl, open},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// The size of the blocks of a pinned backup. They come from the allocator of pinned memory, which would round a larger
/// size up.
pub(super) const BLOCK: u64 = 1 << 30;
/// Offsets and sizes in a file are multiples of this, and addresses too, so that the system need not keep copies.
pub(super) const PAGE: u64 = 4096;
/// The least and the greatest number of threads that move the bytes of one buffer. More threads than processors help a
/// disk; from 8 on, more are hardly faster.
const MIN_THREADS: usize = 4;
const MAX_THREADS: usize = 8;
/// The least that one of them moves.
const MIN_OF_THREAD: usize = 4 << 20;

/// A kind of backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The contents are lost.
    #[default]
    None,
    /// Pinned host memory.
    Pinned,
    /// Pageable host memory.
    Pageable,
    /// A file without a name, in a folder.
    File,
}

/// How memory sleeps.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The backup.
    pub backup: Kind,
    /// The folder of a file; without one, that of temporary files.
    pub folder: Option<PathBuf>,
    /// Whether to fail rather than wait for the devices.
    pub no_wait: bool,
    /// Whether to end the registrations of the memory first, rather than fail.
    pub release_registrations: bool,
    /// Whether the library's workspaces and cached memory of other pools are released too.
    pub release_workspaces: bool,
}

/// A range of device memory and its place in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: u64,
    pub bytes: u64,
    /// The first byte in the backup.
    pub offset: u64,
}

/// Pinned memory of the allocator of pinned memory.
#[derive(Debug)]
pub(super) struct Pinned(Span);

impl Pinned {
    pub fn alloc(bytes: u64) -> Result<Pinned> {
        let address = pinned::host_alloc(bytes)?;
        // SAFETY: the block has this size, and is freed when this value is dropped. Its users wait for their copies
        // before, or record their stream, which defers the free.
        #[allow(unsafe_code)]
        Ok(Pinned(unsafe { Span::new(address, bytes as usize) }))
    }

    pub fn span(&self) -> Span {
        self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        log::ignore(pinned::host_free(self.0.address()), "freeing a backup");
    }
}

/// Borrows host memory.
///
/// # Safety
/// The memory stays allocated as long as it is borrowed. Until then nobody else borrows a part of it, and no copy of a
/// device to or from it is in progress.
#[allow(unsafe_code)]
unsafe fn bytes_of<'a>(span: Span) -> &'a mut [u8] {
    // SAFETY: the caller makes this promise; every byte is initialized, because the system hands out zeros.
    unsafe { std::slice::from_raw_parts_mut(span.address() as *mut u8, span.bytes()) }
}

#[derive(Debug)]
pub(super) enum Place {
    /// Blocks of [`BLOCK`] bytes, which devices copy to and from.
    Pinned(Vec<Pinned>),
    /// What only processors access.
    Staged(Staged),
}

/// Memory outside of the devices.
#[derive(Debug)]
pub(super) struct Backup {
    pub kind: Kind,
    /// The size in bytes.
    pub bytes: u64,
    pub place: Place,
}

impl Backup {
    /// Allocates a backup, which cannot run out of memory or of space later.
    pub fn allocate(options: &Options, bytes: u64) -> Result<Option<Backup>> {
        let place = match options.backup {
            Kind::None => return Ok(None),
            Kind::Pinned => {
                let blocks = (0..bytes.div_ceil(BLOCK)).map(|block| Pinned::alloc((bytes - block * BLOCK).min(BLOCK)));
                Place::Pinned(blocks.collect::<Result<_>>()?)
            }
            Kind::Pageable => Place::Staged(Staged::pages(bytes)?),
            Kind::File => {
                let folder = options.folder.clone().unwrap_or_else(temporary::root);
                let file = unnamed_file(&folder).and_then(|file| allocate(&file, bytes).map(|()| file));
                Place::Staged(Staged::File(file.map_err(|error| {
                    system(&error, format!("a backup of {} in the folder {}", Bytes(bytes), folder.display()))
                })?))
            }
        };
        Ok(Some(Backup { kind: options.backup, bytes, place }))
    }

    /// Keeps the memory until the present work of a stream is complete, also if the backup is dropped.
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        match &self.place {
            Place::Pinned(blocks) => {
                blocks.iter().try_for_each(|block| pinned::host_record_stream(block.span().address(), stream))
            }
            Place::Staged(_) => Ok(()),
        }
    }
}

/// Memory or a file that needs pinned buffers in front of it.
#[derive(Debug)]
pub(super) enum Staged {
    Pages(Pages),
    File(File),
}

impl Staged {
    fn pages(bytes: u64) -> Result<Staged> {
        let what = || format!("a backup of {} in pageable memory: the system is out of memory", Bytes(bytes));
        let pages = Pages::map(bytes as usize).ok_or_else(|| Error::new(Status::OUT_OF_MEMORY, what()))?;
        pages.advise_backup();
        pages.touch(threads() as u32);
        Ok(Staged::Pages(pages))
    }

    /// Moves bytes between a pinned buffer, with which no copy is in progress, and this place. `bytes` and `offset` are in
    /// the place; in a file whole pages are moved, which the buffer and the file have.
    #[allow(unsafe_code)]
    pub fn move_bytes(&self, buffer: &Pinned, bytes: u64, offset: u64, saves: bool) -> Result<()> {
        match self {
            Staged::Pages(pages) => {
                let pages = pages.span().part(offset as usize, bytes as usize);
                let copied = in_parts(bytes, |from, bytes| {
                    // SAFETY: both are owned by values that this function borrows, each thread has another part, and the
                    // caller waited for the copies of the buffer.
                    let (pages, buffer) =
                        unsafe { (bytes_of(pages.part(from, bytes)), bytes_of(buffer.span().part(from, bytes))) };
                    if saves {
                        pages.copy_from_slice(buffer);
                    } else {
                        buffer.copy_from_slice(pages);
                    }
                    Ok(())
                });
                copied.map_err(|error| system(&error, "copying a backup".into()))
            }
            Staged::File(file) => {
                let move_all = || {
                    in_parts(bytes.next_multiple_of(PAGE), |from, bytes| {
                        // SAFETY: as above.
                        let buffer = unsafe { bytes_of(buffer.span().part(from, bytes)) };
                        let at = offset + from as u64;
                        if saves { file.write_all_at(buffer, at) } else { file.read_exact_at(buffer, at) }
                    })
                };
                let moved = move_all().or_else(|error| match Errno::from_io_error(&error) {
                    // A file system may accept the flag for direct accesses, and then not this memory or this size.
                    Some(Errno::INVAL | Errno::FAULT | Errno::OPNOTSUPP) if use_page_cache(file)? => move_all(),
                    _ => Err(error),
                });
                moved.map_err(|error| {
                    system(&error, if saves { "writing a backup".into() } else { "reading a backup".into() })
                })
            }
        }
    }
}

/// Makes accesses to a file indirect. Returns whether they were direct.
fn use_page_cache(file: &File) -> io::Result<bool> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags - OFlags::DIRECT)?;
    Ok(flags.contains(OFlags::DIRECT))
}

fn system(error: &io::Error, what: String) -> Error {
    let status = match error.kind() {
        io::ErrorKind::OutOfMemory => Status::OUT_OF_MEMORY,
        _ => Status::SYSTEM,
    };
    Error::new(status, format!("{what}: {error}"))
}

/// Opens a file that has no name, so that nothing is left of it when the process ends. Accesses are direct where the file
/// system can: the page cache would occupy the memory that a backup in a file is to save.
fn unnamed_file(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |flags| retry_on_intr(|| open(folder, flags, Mode::RUSR | Mode::WUSR));
    let opened = match open(flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => open(flags),
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(file.into()),
        // Some file systems have no such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("plinth-backup-{}-{number}", std::process::id()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes a file's blocks exist, in whole pages.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = bytes.next_multiple_of(PAGE);
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // A file system that cannot reports a full disk only when the file is written.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        result => Ok(result?),
    }
}

/// Returns the number of threads that move the bytes of one buffer.
fn threads() -> usize {
    static THREADS: OnceCell<usize> = OnceCell::new();
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    *THREADS.get_or_init(|| processors().clamp(MIN_THREADS, MAX_THREADS))
}

/// Calls `body` for the parts of `bytes` bytes, at the same time in several threads.
fn in_parts(bytes: u64, body: impl Fn(usize, usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let bytes = bytes as usize;
    let part = bytes.div_ceil(threads()).max(MIN_OF_THREAD).next_multiple_of(PAGE as usize);
    let body = &body;
    thread::scope(|scope| {
        let parts = (part..bytes).step_by(part).map(|from| (from, part.min(bytes - from)));
        let helpers: Vec<_> = parts
            .map(|(from, bytes)| {
                let helper = thread::Builder::new().name("plinth backup".into());
                let _blocked = signals::block();
                (from, bytes, helper.spawn_scoped(scope, move || body(from, bytes)))
            })
            .collect();
        let mut outcome = body(0, part.min(bytes));
        for (from, bytes, helper) in helpers {
            let ended = match helper {
                Ok(helper) => helper.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))),
                // Without a thread, this one does it.
                Err(_) => body(from, bytes),
            };
            outcome = outcome.and(ended);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_bytes_and_report_errors() {
        for bytes in [1u64, 100, 4 << 20, (4 << 20) + 1, 32 << 20] {
            let sum = AtomicU64::new(0);
            in_parts(bytes, |_, part| {
                sum.fetch_add(part as u64, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert_eq!(sum.into_inner(), bytes);
        }
        let failing = |from, _| if from > 0 { Err(io::Error::other("no")) } else { Ok(()) };
        assert!(in_parts(32 << 20, failing).is_err());
    }

    #[test]
    fn pages_are_limited_by_the_machine() {
        assert!(Staged::pages(1 << 20).is_ok());
        assert_eq!(Staged::pages(u64::MAX / 2).unwrap_err().status(), Status::OUT_OF_MEMORY);
    }

    #[test]
    fn direct_accesses_can_be_given_up() {
        let file = unnamed_file(&std::env::temp_dir()).unwrap();
        use_page_cache(&file).unwrap();
        assert!(!use_page_cache(&file).unwrap());
        file.write_all_at(b"odd", 1).unwrap();
    }

    #[test]
    fn a_file_has_no_name_and_its_size() {
        let folder = std::env::temp_dir();
        let file = unnamed_file(&folder).unwrap();
        allocate(&file, 12345).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 * PAGE);
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file.metadata().unwrap()), 0);
        assert!(unnamed_file(Path::new("/nonexistent")).is_err());
    }
}
