//! Stores: key-value stores for processes that have no other connection yet, like torch.distributed's.
//!
//! A store is a folder that all processes can access ([`mod@file`]), or a TCP server in one process ([`tcp`]). There is
//! no thread: the serving process answers requests while it is inside a call of its store, which suffices, because
//! there it waits for the other processes.

pub mod file;
pub mod tcp;

use crate::{
    base::{
        deadline::Deadline,
        handle::{Kind, ReferenceTable},
    },
    driver::nccl::ID_BYTES,
    error::{Context, Error, Result, invalid},
    status::Status,
};
use file::Folder;
use parking_lot::{Mutex, MutexGuard};
use std::{cell::Cell, sync::Arc, time::Duration};
use tcp::{Client, Server};

/// The maximum length of a key.
pub const MAX_NAME: usize = 1024;
/// The maximum length of a value.
pub const MAX_VALUE: usize = 1 << 20;
/// The default timeout of a store's calls.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// A process's access to a store.
pub struct Store(Backend);

enum Backend {
    Folder(Folder),
    Server(Mutex<Server>),
    Client(Mutex<Client>),
}

static STORES: ReferenceTable<Arc<Store>> = ReferenceTable::new(Kind::Store);

/// Returns the store of a handle.
pub fn get(handle: u64) -> Result<Arc<Store>> {
    STORES.get(handle)
}

/// Opens a store and returns its handle. `serves` is true in the process that serves a TCP store.
pub fn open(address: &str, serves: bool, limit: Duration) -> Result<u64> {
    let backend = if let Some(location) = address.strip_prefix("tcp://") {
        if serves {
            Server::listen(location).map(|server| Backend::Server(Mutex::new(server)))
        } else {
            Client::connect(location, Deadline::new(limit)).map(|client| Backend::Client(Mutex::new(client)))
        }
    } else if let Some(path) = address.strip_prefix("file://") {
        Folder::open(path).map(Backend::Folder)
    } else {
        Err(invalid("an address is tcp://host:port or file:///folder"))
    }
    .context(|| format!("opening the store {address:?}"))?;
    STORES.insert(Arc::new(Store(backend)))
}

/// Closes a store.
pub fn destroy(handle: u64) -> Result<()> {
    STORES.remove(handle).map(drop)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid(format!("a name in a store has 1 to {MAX_NAME} bytes, not {}", name.len())));
    }
    Ok(())
}

/// Locks a mutex that another thread may hold for the duration of its call.
fn lock<'a, T>(mutex: &'a Mutex<T>, deadline: &Deadline) -> Result<MutexGuard<'a, T>> {
    let guard = mutex.try_lock_for(deadline.remaining());
    guard.ok_or_else(|| deadline.error("another thread's call with the store was waited for"))
}

impl Backend {
    fn set(&self, name: &str, value: &[u8], deadline: &Deadline) -> Result<()> {
        match self {
            Backend::Folder(folder) => folder.set(name, value),
            Backend::Server(server) => {
                let mut server = lock(server, deadline)?;
                server.set(name, value);
                server.serve()
            }
            Backend::Client(client) => lock(client, deadline)?.set(name, value, deadline),
        }
    }

    fn find(&self, name: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        match self {
            Backend::Folder(folder) => folder.find(name),
            Backend::Server(server) => {
                let mut server = lock(server, deadline)?;
                server.serve()?;
                Ok(server.find(name))
            }
            Backend::Client(client) => lock(client, deadline)?.find(name, deadline),
        }
    }

    fn add(&self, name: &str, amount: i64, deadline: &Deadline) -> Result<i64> {
        match self {
            Backend::Folder(folder) => folder.add(name, amount, deadline),
            Backend::Server(server) => {
                let mut server = lock(server, deadline)?;
                let sum = server.add(name, amount);
                server.serve()?;
                Ok(sum)
            }
            Backend::Client(client) => lock(client, deadline)?.add(name, amount, deadline),
        }
    }
}

// Each call has one deadline for everything that it does and waits for.
impl Store {
    /// Sets the value of a key.
    pub fn set(&self, name: &str, value: &[u8], limit: Duration) -> Result<()> {
        self.set_within(name, value, &Deadline::new(limit))
    }

    fn set_within(&self, name: &str, value: &[u8], deadline: &Deadline) -> Result<()> {
        check_name(name)?;
        if value.len() > MAX_VALUE {
            return Err(invalid(format!("a value in a store has at most {MAX_VALUE} bytes, not {}", value.len())));
        }
        self.0.set(name, value, deadline).context(|| format!("setting {name:?} in a store"))
    }

    /// Returns the value of a key, and waits until it is set.
    pub fn wait(&self, name: &str, limit: Duration) -> Result<Vec<u8>> {
        self.wait_within(name, &Deadline::new(limit))
    }

    fn wait_within(&self, name: &str, deadline: &Deadline) -> Result<Vec<u8>> {
        check_name(name)?;
        let mut has_response = false;
        // Each attempt takes the lock again, so that another thread can set the key in the meantime.
        let mut attempt = || match self.0.find(name, deadline) {
            Ok(found) => {
                has_response = true;
                Ok(found)
            }
            // The deadline expired during this attempt. The server responds, so report the missing value.
            Err(error) if has_response && error.status() == Status::TIMED_OUT => Ok(None),
            Err(error) => Err(error),
        };
        deadline
            .until(|| format!("{name:?} was waited for in a store"), &mut attempt)
            .context(|| format!("getting {name:?} from a store"))
    }

    /// Adds to the integer of a key, which starts at 0, and returns the sum.
    pub fn add(&self, name: &str, amount: i64, limit: Duration) -> Result<i64> {
        check_name(name)?;
        self.add_within(name, amount, &Deadline::new(limit))
    }

    fn add_within(&self, name: &str, amount: i64, deadline: &Deadline) -> Result<i64> {
        self.0.add(name, amount, deadline).context(|| format!("adding to {name:?} in a store"))
    }

    /// Waits until `count` participants have entered the barrier of a name. A name is good for one barrier.
    pub fn barrier(&self, name: &str, count: i64, limit: Duration) -> Result<()> {
        self.barrier_within(name, count, &Deadline::new(limit))
    }

    fn barrier_within(&self, name: &str, count: i64, deadline: &Deadline) -> Result<()> {
        check_name(name)?;
        if count < 1 {
            return Err(invalid(format!("a barrier of {count} cannot be")));
        }
        let (arrived, seen) = (format!("{name}/come"), format!("{name}/seen"));
        let missing = Cell::new(count - self.add_within(&arrived, 1, deadline)?);
        let attempt = |counter: &str| {
            let found = self.0.find(counter, deadline)?;
            missing.set(count - found.map_or(0, |bytes| number(&bytes)));
            Ok((missing.get() <= 0).then_some(()))
        };
        let met = deadline.until(|| "the others were waited for", || attempt(&arrived));
        met.context(|| format!("{} of {count} did not come to the barrier {name:?}", missing.get()))?;
        self.add_within(&seen, 1, deadline)?;
        // The server must not leave before all clients have received their responses.
        if let Backend::Server(server) = &self.0 {
            deadline.until(|| "the others were waited for", || attempt(&seen))?;
            let replies_sent = || {
                let mut server = lock(server, deadline)?;
                server.serve()?;
                Ok((!server.has_unsent_sum()).then_some(()))
            };
            deadline.until(|| "the others were waited for", replies_sent)?;
        }
        Ok(())
    }

    /// Returns the port on which a server listens.
    pub fn port(&self) -> Result<u16> {
        match &self.0 {
            Backend::Server(server) => server.lock().port(),
            _ => Err(invalid("the store is not one that listens")),
        }
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
        let (key, deadline) = (format!("{name}/id"), Deadline::new(limit));
        if rank == 0 {
            self.set_within(&key, &make()?, &deadline)?;
        }
        let value = self.wait_within(&key, &deadline)?;
        let id = value.try_into().map_err(|_| invalid(format!("what is under {key:?} is no id")))?;
        self.barrier_within(name, ranks.into(), &deadline)?;
        Ok(id)
    }
}

/// Decodes an integer.
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
    fn a_folder_works_as_a_store() {
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

    /// Runs the ranks in threads; the first serves the others.
    fn run_ranks(address: &str, count: i32) {
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
        run_ranks("tcp://127.0.0.1:0", 6);
    }

    #[test]
    fn ranks_meet_in_a_folder() {
        let address = folder("meeting");
        run_ranks(&address, 6);
        std::fs::remove_dir_all(address.strip_prefix("file://").unwrap()).unwrap();
    }

    #[test]
    fn missing_participants_are_reported() {
        let store = get(open("tcp://127.0.0.1:0", true, SHORT).unwrap()).unwrap();
        let error = store.barrier("alone", 3, SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert!(error.message().starts_with("2 of 3 did not come to the barrier \"alone\""), "{error}");
        // The server does not serve here.
        let port = store.port().unwrap();
        let client = get(open(&format!("tcp://127.0.0.1:{port}"), false, LONG).unwrap()).unwrap();
        let error = client.wait("anything", SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        drop(store);
    }

    /// Returns a server and a client of it.
    fn pair() -> (Arc<Store>, Arc<Store>) {
        let server = get(open("tcp://127.0.0.1:0", true, LONG).unwrap()).unwrap();
        let address = format!("tcp://127.0.0.1:{}", server.port().unwrap());
        (server, get(open(&address, false, LONG).unwrap()).unwrap())
    }

    #[test]
    fn a_call_has_one_deadline() {
        let (server, client) = pair();
        let start = Instant::now();
        let (limit, serve_duration) = (Duration::from_millis(1500), Duration::from_millis(1000));
        thread::scope(|scope| {
            scope.spawn(|| server.wait("nothing", serve_duration).unwrap_err());
            let error = client.barrier("two", 2, limit).unwrap_err();
            assert_eq!(error.status(), Status::TIMED_OUT);
            assert!(error.message().starts_with("1 of 2 did not come to the barrier \"two\""), "{error}");
        });
        // The last attempt had the remaining half second only.
        assert!(start.elapsed() < Duration::from_millis(2200), "{:?}", start.elapsed());
    }

    #[test]
    fn a_missing_value_is_named_if_the_server_responds() {
        let (server, client) = pair();
        thread::scope(|scope| {
            let serve_duration = scope.spawn(|| server.wait("end", LONG).unwrap());
            for limit in [1, 3, 7, 20, 50].map(Duration::from_millis) {
                assert_eq!(client.wait("nothing", limit).unwrap_err().status(), Status::TIMED_OUT);
            }
            let error = client.wait("nothing", Duration::from_millis(300)).unwrap_err();
            assert!(error.message().contains("\"nothing\" was waited for in a store for 0.300 s"), "{error}");
            client.set("end", b"", LONG).unwrap();
            serve_duration.join().unwrap();
        });
    }

    #[test]
    fn a_thread_waits_for_another_until_its_deadline() {
        let (_server, client) = pair();
        thread::scope(|scope| {
            // The server does not answer this thread, which holds the lock of the client.
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
    fn invalid_and_unreachable_addresses_fail() {
        let error = open("tcp://127.0.0.1:1", false, SHORT).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
        for address in ["udp://x", "tcp://nowhere", "tcp://127.0.0.1:notaport", ""] {
            assert_eq!(open(address, false, SHORT).unwrap_err().status(), Status::INVALID_VALUE, "{address}");
        }
        assert_eq!(open("file:///proc/nothing/here", false, SHORT).unwrap_err().status(), Status::SYSTEM);
    }
}
