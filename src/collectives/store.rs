//! Stores: a folder that all processes of a job can access, with one file for each value. By it they find each other
//! before they have a communicator.
//!
//! A value is written once. Its file is complete before it gets its name, by a link, which fails if the name exists. So
//! no process reads a partial value, no process overwrites a value of another, and no lock remains when a process is
//! killed.
//!
//! Other processes can write to the folder, so a reader accepts only a regular file of a limited size, and opens it
//! without a wait.

use crate::{
    base::{
        deadline::Deadline,
        handle::{Kind, ReferenceTable},
    },
    driver::nccl::ID_BYTES,
    error::{Context, Error, Result, invalid},
    status::Status,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, linkat, open, openat},
    io::{Errno, retry_on_intr},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt::{self, Write as _},
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use tempfile::Builder;

/// The maximum length of a key.
pub const MAX_NAME: usize = 1024;
/// The maximum length of a value.
pub const MAX_VALUE: usize = 1 << 20;
/// The default timeout of a store's calls.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The maximum length of a key whose file has the whole key as its name.
const MAX_PLAIN: usize = 100;
/// The kinds of files: the value of a key; a unique id; a rank that has the id and a participant of a barrier, which are
/// empty files with numbers.
const VALUE: &str = "value";
const ID: &str = "id";
const RANK: &str = "rank";
const PARTICIPANT: &str = "participant";

/// The intervals at which a folder is read while a call waits.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The permissions of a value's file, of which the process's umask removes some.
const PERMISSIONS: u32 = 0o666;

/// A process's access to a store.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

static STORES: ReferenceTable<Arc<Store>> = ReferenceTable::new(Kind::Store);

/// Returns the store of a handle.
pub fn get(handle: u64) -> Result<Arc<Store>> {
    STORES.get(handle)
}

/// Opens the store in a folder, which is created if it does not exist, and returns its handle.
pub fn create(address: &Path) -> Result<u64> {
    let store = Store::open(address).context(|| format!("opening the store {:?}", address.display().to_string()))?;
    STORES.insert(Arc::new(store))
}

/// Closes a store. Its values stay in the folder.
pub fn destroy(handle: u64) -> Result<()> {
    STORES.remove(handle).map(drop)
}

/// Returns the name of a key's file of some kind: the key in hexadecimal, so that any key is allowed; for a long key its
/// digest.
fn file_of(kind: &str, key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let (mark, bytes) = if key.len() <= MAX_PLAIN { ("", key.as_bytes()) } else { ("sha256-", digest.as_slice()) };
    let mut file = format!("{kind}-{mark}");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(file, "{byte:02x}");
    }
    file
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid(format!("a name in a store has 1 to {MAX_NAME} bytes, not {}", name.len())));
    }
    Ok(())
}

/// Checks the length of a value.
pub fn check_value(bytes: usize) -> Result<()> {
    if bytes > MAX_VALUE {
        return Err(invalid(format!("a value in a store has at most {MAX_VALUE} bytes, not {bytes}")));
    }
    Ok(())
}

impl Store {
    fn open(address: &Path) -> Result<Store> {
        let text = address.as_os_str().as_bytes();
        if text.starts_with(b"tcp:") {
            return Err(Error::new(
                Status::NOT_SUPPORTED,
                "there is no store over TCP; use a folder that all processes share, or send the bytes of \
                 plinth_nccl_unique_id by MPI, torch's store or Slurm, as docs/many_machines.md shows",
            ));
        }
        let folder = Path::new(OsStr::from_bytes(text.strip_prefix(b"file://").unwrap_or(text)));
        if !folder.is_absolute() {
            return Err(invalid("an address is the absolute path of a folder, such as /shared/run-17"));
        }
        // The id of a communicator is a secret of this user. A folder that exists has the rights that somebody chose.
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| system("creating the folder", &error))?;
        Ok(Store { folder: folder.to_owned() })
    }

    /// Opens the folder. A file system of a network then looks again for files that were absent.
    fn open_folder(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        retry_on_intr(|| open(&self.folder, flags, Mode::empty()))
    }

    /// Publishes a file. Returns false if it exists already.
    fn publish(&self, file: &str, content: &[u8]) -> io::Result<bool> {
        // What the first way lacks, or what is wrong with the folder, the second reports.
        self.publish_unnamed(file, content).or_else(|_| self.publish_named(file, content))
    }

    /// Publishes a file that has no name until it is complete, so that a process which is killed leaves nothing behind.
    /// Needs a file system that has such files, and /proc.
    fn publish_unnamed(&self, file: &str, content: &[u8]) -> io::Result<bool> {
        let folder = self.open_folder()?;
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mut draft = File::from(retry_on_intr(|| openat(&folder, ".", flags, Mode::from_raw_mode(PERMISSIONS)))?);
        draft.write_all(content)?;
        let name = format!("/proc/self/fd/{}", draft.as_raw_fd());
        match retry_on_intr(|| linkat(CWD, &name, &folder, file, AtFlags::SYMLINK_FOLLOW)) {
            Err(Errno::EXIST) => Ok(false),
            linked => Ok(linked.map(|()| true)?),
        }
    }

    /// Publishes a file that has a private name until it is complete.
    fn publish_named(&self, file: &str, content: &[u8]) -> io::Result<bool> {
        let permissions = Permissions::from_mode(PERMISSIONS);
        let mut draft = Builder::new().prefix("draft-").permissions(permissions).tempfile_in(&self.folder)?;
        draft.write_all(content)?;
        // Another machine may see the name before the content otherwise.
        draft.as_file().sync_all()?;
        match fs::hard_link(draft.path(), self.folder.join(file)) {
            Ok(()) => Ok(true),
            // A server of NFS whose first response was lost reports that the link exists which it made.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(draft.path().metadata()?.nlink() == 2),
            Err(error) => Err(error),
        }
    }

    /// Returns the content of a file, if it exists.
    fn read(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let read = || -> io::Result<Vec<u8>> {
            let folder = self.open_folder()?;
            // A FIFO could block, and a link could lead to a device without an end.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = File::from(retry_on_intr(|| openat(&folder, file, flags, Mode::empty()))?);
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let mut content = Vec::new();
            file.take(MAX_VALUE as u64 + 1).read_to_end(&mut content)?;
            if content.len() > MAX_VALUE {
                return Err(io::Error::other(format!("it has more than {MAX_VALUE} bytes, and no value has")));
            }
            Ok(content)
        };
        match read() {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound && self.folder.is_dir() => Ok(None),
            Err(error) => Err(system(format_args!("reading {:?}", self.folder.join(file)), &error)),
        }
    }

    /// Sets the value of a key that has none.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<()> {
        check_name(name)?;
        check_value(value.len())?;
        self.set_once(&file_of(VALUE, name), name, value).context(|| format!("setting {name:?} in a store"))
    }

    fn set_once(&self, file: &str, name: &str, value: &[u8]) -> Result<()> {
        if self.has_set(file, value)? { Ok(()) } else { Err(self.reused(name)) }
    }

    /// Publishes a file. Returns false if it exists already.
    fn has_set(&self, file: &str, value: &[u8]) -> Result<bool> {
        self.publish(file, value).map_err(|error| system(format_args!("writing to {:?}", self.folder), &error))
    }

    #[cold]
    fn reused(&self, name: &str) -> Error {
        invalid(format!(
            "the key {name:?} is used already in {:?}, and is good for one use; use another key, and a new folder for \
             each run",
            self.folder
        ))
    }

    /// Returns the value of a key, and waits until it is set.
    pub fn wait(&self, name: &str, limit: Duration) -> Result<Vec<u8>> {
        check_name(name)?;
        self.wait_for(VALUE, name, &Deadline::new(limit)).context(|| format!("getting {name:?} from a store"))
    }

    fn wait_for(&self, kind: &str, name: &str, deadline: &Deadline) -> Result<Vec<u8>> {
        let file = file_of(kind, name);
        poll(deadline, || format!("the wait for {name:?} lasted"), || self.read(&file))
    }

    /// Waits until `count` participants have entered the barrier of a name. A name is good for one barrier.
    pub fn barrier(&self, name: &str, count: i32, limit: Duration) -> Result<()> {
        check_name(name)?;
        if count < 1 {
            return Err(invalid(format!("a barrier of {count} cannot be")));
        }
        let deadline = Deadline::new(limit);
        let attempt = || format!("entering the barrier {name:?} of a store");
        let prefix = file_of(PARTICIPANT, name) + "-";
        // Each participant takes a free number. The first attempts differ, so that few attempts are needed.
        let first = (std::process::id().wrapping_mul(0x9E37_79B9) % count.unsigned_abs()) as i32;
        let mut numbers = (first..count).chain(0..first);
        let mut take = || -> Result<bool> {
            let number = numbers.next().ok_or_else(|| self.reused(name))?;
            self.has_set(&format!("{prefix}{number}"), &[])
        };
        while !take().context(attempt)? {}
        self.wait_for_all(&prefix, count, &deadline, |missing, _| {
            format!("{missing} of {count} did not come to the barrier {name:?}")
        })
    }

    /// Waits until there is a file for each number below `count`. `describe` makes the first part of the message of a
    /// timeout from the number of missing files and the first of them.
    fn wait_for_all(
        &self,
        prefix: &str,
        count: i32,
        deadline: &Deadline,
        describe: impl FnOnce(i32, i32) -> String,
    ) -> Result<()> {
        let mut present = BTreeSet::new();
        let all_exist = || {
            present = self.numbers(prefix, count)?;
            Ok((present.len() == count as usize).then_some(()))
        };
        poll(deadline, || "the wait for the others lasted", all_exist).map_err(|error| match error.status() {
            Status::TIMED_OUT => {
                let first = (0..count).find(|number| !present.contains(number)).unwrap_or_default();
                error.context(describe(count - present.len() as i32, first))
            }
            _ => error,
        })
    }

    /// Returns the numbers below `count` that follow a prefix in the names of files.
    fn numbers(&self, prefix: &str, count: i32) -> Result<BTreeSet<i32>> {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
        let entries = fs::read_dir(&self.folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| system(format_args!("reading {:?}", self.folder), &error))?;
        Ok(entries.into_iter().filter_map(number).filter(|number| (0..count).contains(number)).collect())
    }

    /// Shares the id that rank 0 creates with all ranks, under a name that is good for one rendezvous. Returns when all
    /// ranks have it.
    pub fn share_id(
        &self,
        name: &str,
        rank: i32,
        ranks: i32,
        limit: Duration,
        make: impl FnOnce() -> Result<[u8; ID_BYTES]>,
    ) -> Result<[u8; ID_BYTES]> {
        check_name(name)?;
        if rank < 0 || rank >= ranks {
            return Err(invalid(format!("there is no rank {rank} among {ranks}")));
        }
        let deadline = Deadline::new(limit);
        let attempt = || format!("sharing a unique id under {name:?} in a store");
        if rank == 0 {
            self.set_once(&file_of(ID, name), name, &make()?).context(attempt)?;
        }
        let id = self.wait_for(ID, name, &deadline).context(attempt)?;
        let id = id.try_into().map_err(|_| invalid("the file of the id has another length").context(attempt()))?;
        // The ranks of an earlier run have the same numbers, so their id is not taken for one of this run.
        let prefix = file_of(RANK, name) + "-";
        self.set_once(&format!("{prefix}{rank}"), name, &[]).context(attempt)?;
        self.wait_for_all(&prefix, ranks, &deadline, |missing, first| {
            format!("{}: {missing} of {ranks} ranks did not come, among them rank {first}", attempt())
        })?;
        Ok(id)
    }
}

/// Polls until there is a value, at longer and longer intervals, because one file system may serve many waiting ranks.
fn poll<T, D: fmt::Display>(
    deadline: &Deadline,
    what: impl FnOnce() -> D,
    mut find: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut is_first = true;
    deadline.until(what, || {
        if !std::mem::take(&mut is_first) {
            let pause = (deadline.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            thread::sleep(pause.min(deadline.remaining()));
        }
        find()
    })
}

#[cold]
fn system(what: impl fmt::Display, error: &io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary;
    use rustix::fs::mkfifoat;
    use std::{os::unix::fs::symlink, sync::Barrier, time::Instant};

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    fn new_store() -> (temporary::Folder, Store) {
        let root = temporary::folder().unwrap();
        let store = Store::open(root.path()).unwrap();
        (root, store)
    }

    fn files(store: &Store) -> Vec<String> {
        let entries = fs::read_dir(&store.folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn values_are_set_and_read() {
        let root = temporary::folder().unwrap();
        let address = format!("file://{}/a/b", root.path().display());
        let handle = create(Path::new(&address)).unwrap();
        let store = get(handle).unwrap();
        let odd = "../a/b\0\u{fc} ".repeat(80);
        let (plain, long) = ("p".repeat(MAX_PLAIN), "p".repeat(MAX_PLAIN + 1));
        let keys = ["color", "nothing", "..", &odd, &plain, &long];
        for (value, key) in keys.iter().enumerate() {
            store.set(key, &vec![7; value]).unwrap();
        }
        for (value, key) in keys.iter().enumerate() {
            assert_eq!(store.wait(key, LONG).unwrap(), vec![7; value]);
        }
        assert_eq!(files(&store).len(), keys.len());
        for folder in [root.path().join("a"), store.folder.clone()] {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
        }
        store.set("large", &vec![7; MAX_VALUE]).unwrap();
        assert_eq!(store.wait("large", LONG).unwrap().len(), MAX_VALUE);
        assert_eq!(store.set("larger", &vec![7; MAX_VALUE + 1]).unwrap_err().status(), Status::INVALID_VALUE);
        for name in ["", &"x".repeat(MAX_NAME + 1)] {
            assert_eq!(store.set(name, b"").unwrap_err().status(), Status::INVALID_VALUE);
            assert_eq!(store.wait(name, LONG).unwrap_err().status(), Status::INVALID_VALUE);
            assert_eq!(store.barrier(name, 1, LONG).unwrap_err().status(), Status::INVALID_VALUE);
        }
        destroy(handle).unwrap();
        assert!(get(handle).is_err());
    }

    #[test]
    fn addresses_are_absolute_folders() {
        let (root, _store) = new_store();
        let file = root.path().join("file");
        File::create(&file).unwrap();
        for (address, status) in [
            ("tcp://10.0.0.1:29500", Status::NOT_SUPPORTED),
            ("", Status::INVALID_VALUE),
            ("folder", Status::INVALID_VALUE),
            ("file://folder/x", Status::INVALID_VALUE),
            ("http://x", Status::INVALID_VALUE),
            ("/proc/nothing/here", Status::SYSTEM),
            (file.to_str().unwrap(), Status::SYSTEM),
        ] {
            let error = create(Path::new(address)).unwrap_err();
            assert_eq!(error.status(), status, "{address}: {error}");
            assert!(error.message().starts_with(&format!("opening the store {address:?}: ")), "{error}");
        }
        assert!(create(Path::new("tcp://x:1")).unwrap_err().message().contains("plinth_nccl_unique_id by MPI"));
    }

    /// Of several threads that set a key, one succeeds, with both ways to write a file.
    #[test]
    fn a_value_is_written_once() {
        let (_root, store) = new_store();
        type Publish = fn(&Store, &str, &[u8]) -> io::Result<bool>;
        let ways: [Publish; 4] = [Store::publish, Store::publish_named, Store::publish, Store::publish_named];
        let (start, store) = (Barrier::new(ways.len()), &store);
        for round in 0..50 {
            let file = &file_of(VALUE, &format!("round {round}"));
            let winners = thread::scope(|scope| {
                let (start, threads) = (&start, ways.iter().enumerate());
                let threads = threads.map(|(at, publish)| {
                    scope.spawn(move || {
                        start.wait();
                        publish(store, file, &vec![at as u8; 5000]).unwrap().then_some(at as u8)
                    })
                });
                let threads: Vec<_> = threads.collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(winners.len(), 1);
            assert_eq!(store.read(file).unwrap().unwrap(), vec![winners[0]; 5000]);
        }
        assert_eq!(files(store).len(), 50);
        let error = store.set("round 3", b"again").unwrap_err();
        assert_eq!(error.status(), Status::INVALID_VALUE);
        assert!(error.message().starts_with("setting \"round 3\" in a store: the key \"round 3\" is used"), "{error}");
    }

    /// A reader sees nothing or the whole value, however the file is written.
    #[test]
    fn no_reader_sees_half_a_value() {
        let (_root, store) = new_store();
        let value: Vec<u8> = (0..MAX_VALUE).map(|at| (at * 7 % 251) as u8).collect();
        for (file, is_named) in [("value-a", false), ("value-b", true)] {
            thread::scope(|scope| {
                let reader = scope.spawn(|| Deadline::new(LONG).until(|| "", || store.read(file)).unwrap());
                let publish = if is_named { Store::publish_named } else { Store::publish };
                assert!(publish(&store, file, &value).unwrap());
                assert!(reader.join().unwrap() == value);
            });
        }
        assert_eq!(files(&store), ["value-a", "value-b"]);
    }

    /// A failed write leaves nothing behind.
    #[test]
    fn files_that_cannot_be_written_are_errors() {
        let (root, store) = new_store();
        fs::create_dir(root.path().join("gone")).unwrap();
        let gone = Store::open(&root.path().join("gone")).unwrap();
        fs::remove_dir(&gone.folder).unwrap();
        assert_eq!(gone.set("key", b"1").unwrap_err().status(), Status::SYSTEM);
        // Nothing will ever be in the folder.
        assert_eq!(gone.wait("key", LONG).unwrap_err().status(), Status::SYSTEM);
        // The name is taken by something that is not a value.
        fs::create_dir(root.path().join(file_of(VALUE, "key"))).unwrap();
        assert_eq!(store.set("key", b"1").unwrap_err().status(), Status::INVALID_VALUE);
        assert_eq!(files(&store), [file_of(VALUE, "key")]);
    }

    /// Other processes can write to the folder.
    #[test]
    fn only_regular_files_of_limited_size_are_values() {
        let (root, store) = new_store();
        let path = |name: &str| root.path().join(file_of(VALUE, name));
        mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        symlink(root.path().join("nothing"), path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        File::create(path("longer")).unwrap().set_len(MAX_VALUE as u64 + 1).unwrap();
        for name in ["fifo", "endless", "dangling", "folder", "huge", "longer"] {
            let error = store.wait(name, LONG).unwrap_err();
            assert_eq!(error.status(), Status::SYSTEM, "{name}: {error}");
            assert!(error.message().contains("from a store: reading "), "{name}: {error}");
        }
        File::create(path("longest")).unwrap().set_len(MAX_VALUE as u64).unwrap();
        assert_eq!(store.wait("longest", LONG).unwrap().len(), MAX_VALUE);
        fs::write(root.path().join(file_of(ID, "id")), [1; ID_BYTES + 1]).unwrap();
        let error = store.share_id("id", 1, 2, LONG, || unreachable!()).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_VALUE, "{error}");
    }

    #[test]
    fn waits_have_a_limit() {
        let (_root, store) = new_store();
        let start = Instant::now();
        let error = store.wait("nothing", SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(
            error.message().contains("from a store: the wait for \"nothing\" lasted for 0.050 s, which is the limit"),
            "{error}"
        );
        let error = store.barrier("three", 3, SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(error.message().starts_with("2 of 3 did not come to the barrier \"three\": "), "{error}");
        let error = store.share_id("id", 0, 3, SHORT, || Ok([9; ID_BYTES])).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(error.message().contains("2 of 3 ranks did not come, among them rank 1: "), "{error}");
        assert_eq!(store.share_id("none", 1, 3, SHORT, || unreachable!()).unwrap_err().status(), Status::TIMED_OUT);
        assert!((4 * SHORT..LONG).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!(store.barrier("many", i32::MAX, SHORT).unwrap_err().message().starts_with("2147483646 of 2147483647 "));
        assert_eq!(store.wait("nothing", Duration::ZERO).unwrap_err().status(), Status::TIMED_OUT);
        store.set("something", b"1").unwrap();
        assert_eq!(store.wait("something", Duration::ZERO).unwrap(), b"1");
    }

    #[test]
    fn ranks_meet_in_a_folder() {
        let (root, _store) = new_store();
        let count = 6;
        let ids = thread::scope(|scope| {
            let ranks = (0..count).map(|rank| {
                let folder = root.path();
                scope.spawn(move || {
                    let store = Store::open(folder).unwrap();
                    let id = store.share_id("meeting", rank, count, LONG, || Ok([9; ID_BYTES])).unwrap();
                    store.set(&format!("rank {rank}"), &rank.to_le_bytes()).unwrap();
                    store.barrier("meeting", count, LONG).unwrap();
                    for other in 0..count {
                        let value = store.wait(&format!("rank {other}"), Duration::ZERO).unwrap();
                        assert_eq!(value, other.to_le_bytes());
                    }
                    id
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(ids, [[9; ID_BYTES]; 6]);
        // A folder that was used before is refused at every rank, and a seventh participant at the barrier.
        let store = Store::open(root.path()).unwrap();
        for rank in 0..count {
            let error = store.share_id("meeting", rank, count, LONG, || Ok([8; ID_BYTES])).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_VALUE, "{error}");
        }
        assert_eq!(store.barrier("meeting", count, LONG).unwrap_err().status(), Status::INVALID_VALUE);
        for (rank, ranks) in [(-1, 2), (2, 2), (0, 0)] {
            let error = store.share_id("wrong", rank, ranks, LONG, || unreachable!()).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_VALUE, "{error}");
        }
        assert_eq!(store.barrier("wrong", 0, LONG).unwrap_err().status(), Status::INVALID_VALUE);
    }
}
