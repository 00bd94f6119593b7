//! Stores: small values under names, for processes that have to find each other before they have anything better.
//!
//! A store is a folder that all processes see ([`mod@file`]), or one process that answers over TCP ([`tcp`]). There is no thread:
//! the process that answers does so while it is in a call with its store, which is enough, since it waits there for the others.

pub mod file;
pub mod tcp;

use crate::{
    base::{
        deadline::Deadline,
        handle::{HandleTable, Kind},
    },
    driver::nccl::ID_BYTES,
    error::{Context, Error, Result},
    status::Status,
};
use file::Folder;
use parking_lot::{Mutex, MutexGuard};
use std::{cell::Cell, sync::Arc, time::Duration};
use tcp::{Client, Server};

/// The longest name.
pub const MAX_NAME: usize = 1024;
/// The longest value.
pub const MAX_VALUE: usize = 1 << 20;
/// How long a store is waited for where nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// A store, as one process has it.
pub struct Store(Backend);

enum Backend {
    Folder(Folder),
    Server(Mutex<Server>),
    Client(Mutex<Client>),
}

#[derive(Default)]
struct Slot(Mutex<Option<Arc<Store>>>);

static STORES: HandleTable<Slot> = HandleTable::new(Kind::Store);

/// The store of a handle.
pub fn get(handle: u64) -> Result<Arc<Store>> {
    let slot = STORES.get(handle)?;
    slot.0.lock().clone().ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the store is being destroyed"))
}

/// Opens a store, as a handle. `serves` is for the one process of a TCP store that answers.
pub fn open(address: &str, serves: bool, limit: Duration) -> Result<u64> {
    let backend = if let Some(place) = address.strip_prefix("tcp://") {
        if serves {
            Server::listen(place).map(|server| Backend::Server(Mutex::new(server)))
        } else {
            Client::connect(place, Deadline::new(limit)).map(|client| Backend::Client(Mutex::new(client)))
        }
    } else if let Some(path) = address.strip_prefix("file://") {
        Folder::open(path).map(Backend::Folder)
    } else {
        Err(invalid("an address is tcp://host:port or file:///folder"))
    }
    .context(|| format!("opening the store {address:?}"))?;
    let store = Arc::new(Store(backend));
    STORES.insert(|slot| *slot.0.lock() = Some(store))
}

/// Closes a store.
pub fn destroy(handle: u64) -> Result<()> {
    STORES.remove(handle, |slot| drop(slot.0.lock().take()))
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid(format!("a name in a store has 1 to {MAX_NAME} bytes, not {}", name.len())));
    }
    Ok(())
}

/// Takes a lock that another thread may have for as long as its own call lasts.
fn lock<'a, T>(mutex: &'a Mutex<T>, patience: &Deadline) -> Result<MutexGuard<'a, T>> {
    let guard = mutex.try_lock_for(patience.remaining());
    guard.ok_or_else(|| patience.error("another thread's call with the store was waited for"))
}

impl Backend {
    fn set(&self, name: &str, value: &[u8], patience: &Deadline) -> Result<()> {
        match self {
            Backend::Folder(folder) => folder.set(name, value),
            Backend::Server(server) => {
                let mut server = lock(server, patience)?;
                server.set(name, value);
                server.serve()
            }
            Backend::Client(client) => lock(client, patience)?.set(name, value, patience),
        }
    }

    fn find(&self, name: &str, patience: &Deadline) -> Result<Option<Vec<u8>>> {
        match self {
            Backend::Folder(folder) => folder.find(name),
            Backend::Server(server) => {
                let mut server = lock(server, patience)?;
                server.serve()?;
                Ok(server.find(name))
            }
            Backend::Client(client) => lock(client, patience)?.find(name, patience),
        }
    }

    fn add(&self, name: &str, amount: i64, patience: &Deadline) -> Result<i64> {
        match self {
            Backend::Folder(folder) => folder.add(name, amount, patience),
            Backend::Server(server) => {
                let mut server = lock(server, patience)?;
                let sum = server.add(name, amount);
                server.serve()?;
                Ok(sum)
            }
            Backend::Client(client) => lock(client, patience)?.add(name, amount, patience),
        }
    }
}

// Each call has one limit, which all that it does and waits for has in common.
impl Store {
    /// Puts a value under a name, in place of what was there.
    pub fn set(&self, name: &str, value: &[u8], limit: Duration) -> Result<()> {
        self.set_within(name, value, &Deadline::new(limit))
    }

    fn set_within(&self, name: &str, value: &[u8], patience: &Deadline) -> Result<()> {
        check_name(name)?;
        if value.len() > MAX_VALUE {
            return Err(invalid(format!("a value in a store has at most {MAX_VALUE} bytes, not {}", value.len())));
        }
        self.0.set(name, value, patience).context(|| format!("setting {name:?} in a store"))
    }

    /// The value under a name, waited for until somebody sets it.
    pub fn wait(&self, name: &str, limit: Duration) -> Result<Vec<u8>> {
        self.wait_within(name, &Deadline::new(limit))
    }

    fn wait_within(&self, name: &str, patience: &Deadline) -> Result<Vec<u8>> {
        check_name(name)?;
        let mut is_answered = false;
        // Each look takes the lock anew, so that another thread can set what this one waits for.
        let mut look = || match self.0.find(name, patience) {
            Ok(found) => {
                is_answered = true;
                Ok(found)
            }
            // The time ended in this look: what did not come is the value, and not an answer.
            Err(error) if is_answered && error.status() == Status::TIMED_OUT => Ok(None),
            Err(error) => Err(error),
        };
        patience
            .with_reset_backoff()
            .until(|| format!("{name:?} was waited for in a store"), &mut look)
            .context(|| format!("getting {name:?} from a store"))
    }

    /// Adds to the number under a name, 0 where there is none; returns the sum.
    pub fn add(&self, name: &str, amount: i64, limit: Duration) -> Result<i64> {
        check_name(name)?;
        self.add_within(name, amount, &Deadline::new(limit))
    }

    fn add_within(&self, name: &str, amount: i64, patience: &Deadline) -> Result<i64> {
        self.0.add(name, amount, patience).context(|| format!("adding to {name:?} in a store"))
    }

    /// Waits until so many have come to the barrier of a name. Good for one meeting.
    pub fn barrier(&self, name: &str, count: i64, limit: Duration) -> Result<()> {
        self.barrier_within(name, count, &Deadline::new(limit))
    }

    fn barrier_within(&self, name: &str, count: i64, patience: &Deadline) -> Result<()> {
        check_name(name)?;
        if count < 1 {
            return Err(invalid(format!("a barrier of {count} cannot be")));
        }
        let (come, seen) = (format!("{name}/come"), format!("{name}/seen"));
        let missing = Cell::new(count - self.add_within(&come, 1, patience)?);
        let look = |counter: &str| {
            let found = self.0.find(counter, patience)?;
            missing.set(count - found.map_or(0, |bytes| number(&bytes)));
            Ok((missing.get() <= 0).then_some(()))
        };
        let met = patience.with_reset_backoff().until(|| "the others were waited for", || look(&come));
        met.context(|| format!("{} of {count} did not come to the barrier {name:?}", missing.get()))?;
        self.add_within(&seen, 1, patience)?;
        // Who answers stays until all have their answer.
        if let Backend::Server(server) = &self.0 {
            patience.with_reset_backoff().until(|| "the others were waited for", || look(&seen))?;
            let told = || {
                let mut server = lock(server, patience)?;
                server.serve()?;
                Ok((!server.owes_sum()).then_some(()))
            };
            patience.with_reset_backoff().until(|| "the others were waited for", told)?;
        }
        Ok(())
    }

    /// The port at which a server listens.
    pub fn port(&self) -> Result<u16> {
        match &self.0 {
            Backend::Server(server) => server.lock().port(),
            _ => Err(invalid("the store is not one that listens")),
        }
    }

    /// Gives all ranks the id that rank 0 makes, under a name that is for one meeting. Returns when all have it.
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
        let (key, patience) = (format!("{name}/id"), Deadline::new(limit));
        if rank == 0 {
            self.set_within(&key, &make()?, &patience)?;
        }
        let value = self.wait_within(&key, &patience)?;
        let id = value.try_into().map_err(|_| invalid(format!("what is under {key:?} is no id")))?;
        self.barrier_within(name, ranks.into(), &patience)?;
        Ok(id)
    }
}

/// The number that bytes are.
fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

#[cold]
fn system(what: &str, error: &std::io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Instant};

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    fn folder(name: &str) -> String {
        let path = std::env::temp_dir().join(format!("plinth-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        format!("file://{}", path.display())
    }

    fn use_store(store: &Store) {
        store.set("color", b"red", LONG).unwrap();
        assert_eq!(store.wait("color", LONG).unwrap(), b"red");
        store.set("color", b"", LONG).unwrap();
        assert_eq!(store.wait("color", LONG).unwrap(), b"");
        assert_eq!(store.add("count", 5, LONG).unwrap(), 5);
        assert_eq!(store.add("count", -7, LONG).unwrap(), -2);
        let error = store.wait("nothing", SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(error.message().contains("\"nothing\" was waited for in a store for 0.050 s"), "{error}");
        for name in ["", &"x".repeat(MAX_NAME + 1)] {
            assert_eq!(store.set(name, b"", LONG).unwrap_err().status(), Status::INVALID_VALUE);
        }
        assert!(store.set("large", &vec![0; MAX_VALUE + 1], LONG).is_err());
        store.set("large", &vec![7; MAX_VALUE], LONG).unwrap();
        assert_eq!(store.wait("large", LONG).unwrap().len(), MAX_VALUE);
        let odd = "../a/b\0ü ".repeat(100);
        store.set(&odd, b"odd", LONG).unwrap();
        assert_eq!(store.wait(&odd, LONG).unwrap(), b"odd");
    }

    #[test]
    fn a_folder_is_a_store() {
        let address = folder("folder");
        let handle = open(&address, false, SHORT).unwrap();
        use_store(&get(handle).unwrap());
        destroy(handle).unwrap();
        assert!(get(handle).is_err());
        std::fs::remove_dir_all(address.strip_prefix("file://").unwrap()).unwrap();
    }

    #[test]
    fn a_server_uses_its_own_store() {
        let handle = open("tcp://127.0.0.1:0", true, SHORT).unwrap();
        use_store(&get(handle).unwrap());
        destroy(handle).unwrap();
    }

    /// Ranks in threads, the first of which answers the others.
    fn meet(address: &str, count: i32) {
        let first = get(open(address, true, LONG).unwrap()).unwrap();
        let address = match first.port() {
            Ok(port) => format!("tcp://127.0.0.1:{port}"),
            Err(_) => address.to_owned(),
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..count)
                .map(|rank| {
                    let (first, address) = (first.clone(), address.clone());
                    scope.spawn(move || {
                        let store = if rank == 0 { first } else { get(open(&address, false, LONG).unwrap()).unwrap() };
                        let id = store.share_id("meeting", rank, count, LONG, || Ok([9; ID_BYTES])).unwrap();
                        if rank != 0 {
                            let name = format!("rank {rank}");
                            store.add("sum", rank.into(), LONG).unwrap();
                            store.set(&name, name.as_bytes(), LONG).unwrap();
                        }
                        store.barrier("end", count.into(), LONG).unwrap();
                        id
                    })
                })
                .collect();
            for rank in ranks {
                assert_eq!(rank.join().unwrap(), [9; ID_BYTES]);
            }
        });
        assert_eq!(first.add("sum", 0, LONG).unwrap(), i64::from(count * (count - 1) / 2));
        assert_eq!(first.wait("rank 2", LONG).unwrap(), b"rank 2");
    }

    #[test]
    fn ranks_meet_over_tcp() {
        meet("tcp://127.0.0.1:0", 6);
    }

    #[test]
    fn ranks_meet_in_a_folder() {
        let address = folder("meeting");
        meet(&address, 6);
        std::fs::remove_dir_all(address.strip_prefix("file://").unwrap()).unwrap();
    }

    #[test]
    fn who_does_not_come_is_missed() {
        let store = get(open("tcp://127.0.0.1:0", true, SHORT).unwrap()).unwrap();
        let error = store.barrier("alone", 3, SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(error.message().starts_with("2 of 3 did not come to the barrier \"alone\""), "{error}");
        // Nobody answers here.
        let port = store.port().unwrap();
        let client = get(open(&format!("tcp://127.0.0.1:{port}"), false, LONG).unwrap()).unwrap();
        let error = client.wait("anything", SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        drop(store);
    }

    /// A server and a client of it.
    fn pair() -> (Arc<Store>, Arc<Store>) {
        let server = get(open("tcp://127.0.0.1:0", true, LONG).unwrap()).unwrap();
        let address = format!("tcp://127.0.0.1:{}", server.port().unwrap());
        (server, get(open(&address, false, LONG).unwrap()).unwrap())
    }

    #[test]
    fn a_call_has_one_limit_for_all_that_it_waits_for() {
        let (server, client) = pair();
        let start = Instant::now();
        let (limit, answering) = (Duration::from_millis(1500), Duration::from_millis(1000));
        thread::scope(|scope| {
            scope.spawn(|| server.wait("nothing", answering).unwrap_err());
            let error = client.barrier("two", 2, limit).unwrap_err();
            assert_eq!(error.status(), Status::TIMED_OUT);
            assert!(error.message().starts_with("1 of 2 did not come to the barrier \"two\""), "{error}");
        });
        // The last look had what was left, half a second, and no limit of its own.
        assert!(start.elapsed() < Duration::from_millis(2200), "{:?}", start.elapsed());
    }

    #[test]
    fn a_value_that_does_not_come_is_named_where_the_server_answers() {
        let (server, client) = pair();
        thread::scope(|scope| {
            let answering = scope.spawn(|| server.wait("end", LONG).unwrap());
            for limit in [1, 3, 7, 20, 50].map(Duration::from_millis) {
                assert_eq!(client.wait("nothing", limit).unwrap_err().status(), Status::TIMED_OUT);
            }
            let error = client.wait("nothing", Duration::from_millis(300)).unwrap_err();
            assert!(error.message().contains("\"nothing\" was waited for in a store for 0.300 s"), "{error}");
            client.set("end", b"", LONG).unwrap();
            answering.join().unwrap();
        });
    }

    #[test]
    fn a_thread_waits_for_another_no_longer_than_it_says() {
        let (_server, client) = pair();
        thread::scope(|scope| {
            // Nobody answers this one, which is asking all the time.
            let waiting = scope.spawn(|| client.wait("x", Duration::from_secs(3)).unwrap_err());
            thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            let error = client.set("y", b"", SHORT).unwrap_err();
            assert_eq!(error.status(), Status::TIMED_OUT);
            assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
            assert_eq!(waiting.join().unwrap().status(), Status::TIMED_OUT);
        });
    }

    #[test]
    fn nobody_at_the_address() {
        let error = open("tcp://127.0.0.1:1", false, SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
        for address in ["udp://x", "tcp://nowhere", "tcp://127.0.0.1:notaport", ""] {
            assert_eq!(open(address, false, SHORT).unwrap_err().status(), Status::INVALID_VALUE, "{address}");
        }
        assert_eq!(open("file:///proc/nothing/here", false, SHORT).unwrap_err().status(), Status::SYSTEM);
    }
}
