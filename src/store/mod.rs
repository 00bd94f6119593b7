//! Stores: small values under names, for processes that have to find each other before they have anything better.
//!
//! A store is a folder that all processes see ([`mod@file`]), or one process that answers over TCP ([`tcp`]). There is no thread:
//! the process that answers does so while it is in a call with its store, which is enough, since it waits there for the others.

pub mod file;
pub mod tcp;

use crate::{
    communicator::patience::Patience,
    driver::nccl::ID_BYTES,
    error::{Context, Error, Result},
    handle::{HandleTable, Kind},
    status::Status,
};
use file::Folder;
use parking_lot::Mutex;
use std::{cell::Cell, sync::Arc, time::Duration};
use tcp::{Client, Server};

/// The longest name.
pub const MAX_NAME: usize = 1024;
/// The longest value.
pub const MAX_VALUE: usize = 1 << 20;
/// How long a store is waited for where nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// A store, as one process has it.
pub struct Store(Mutex<Backend>);

enum Backend {
    Folder(Folder),
    Server(Server),
    Client(Client),
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
            Server::listen(place).map(Backend::Server)
        } else {
            Client::connect(place, Patience::new(limit)).map(Backend::Client)
        }
    } else if let Some(path) = address.strip_prefix("file://") {
        Folder::open(path).map(Backend::Folder)
    } else {
        Err(invalid("an address is tcp://host:port or file:///folder"))
    }
    .context(|| format!("opening the store {address:?}"))?;
    let store = Arc::new(Store(Mutex::new(backend)));
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

impl Backend {
    fn set(&mut self, name: &str, value: &[u8], patience: &Patience) -> Result<()> {
        match self {
            Backend::Folder(folder) => folder.set(name, value),
            Backend::Server(server) => {
                server.set(name, value);
                server.serve()
            }
            Backend::Client(client) => client.set(name, value, patience),
        }
    }

    fn find(&mut self, name: &str, patience: &Patience) -> Result<Option<Vec<u8>>> {
        match self {
            Backend::Folder(folder) => folder.find(name),
            Backend::Server(server) => {
                server.serve()?;
                Ok(server.find(name))
            }
            Backend::Client(client) => client.find(name, patience),
        }
    }

    fn add(&mut self, name: &str, amount: i64, patience: &Patience) -> Result<i64> {
        match self {
            Backend::Folder(folder) => folder.add(name, amount, patience),
            Backend::Server(server) => {
                let sum = server.add(name, amount)?;
                server.serve()?;
                Ok(sum)
            }
            Backend::Client(client) => client.add(name, amount, patience),
        }
    }
}

impl Store {
    /// Puts a value under a name, in place of what was there.
    pub fn set(&self, name: &str, value: &[u8], limit: Duration) -> Result<()> {
        check_name(name)?;
        if value.len() > MAX_VALUE {
            return Err(invalid(format!("a value in a store has at most {MAX_VALUE} bytes, not {}", value.len())));
        }
        self.0.lock().set(name, value, &Patience::new(limit)).context(|| format!("setting {name:?} in a store"))
    }

    /// The value under a name, waited for until somebody sets it.
    pub fn wait(&self, name: &str, limit: Duration) -> Result<Vec<u8>> {
        check_name(name)?;
        // Each look takes the lock anew, so that another thread can set what this one waits for.
        Patience::new(limit)
            .until(|| format!("{name:?} was waited for in a store"), || self.0.lock().find(name, &Patience::new(limit)))
            .context(|| format!("getting {name:?} from a store"))
    }

    /// Adds to the number under a name, 0 where there is none; returns the sum.
    pub fn add(&self, name: &str, amount: i64, limit: Duration) -> Result<i64> {
        check_name(name)?;
        self.0.lock().add(name, amount, &Patience::new(limit)).context(|| format!("adding to {name:?} in a store"))
    }

    /// Waits until so many have come to the barrier of a name. Good for one meeting.
    pub fn barrier(&self, name: &str, count: i64, limit: Duration) -> Result<()> {
        check_name(name)?;
        if count < 1 {
            return Err(invalid(format!("a barrier of {count} cannot be")));
        }
        let (come, seen) = (format!("{name}/come"), format!("{name}/seen"));
        let patience = Patience::new(limit);
        let missing = Cell::new(0);
        self.add(&come, 1, limit)?;
        let look = |counter: &str, wanted: i64| {
            let found = self.0.lock().find(counter, &Patience::new(limit))?;
            missing.set(wanted - found.map_or(0, |bytes| number(&bytes)));
            Ok((missing.get() <= 0).then_some(()))
        };
        let met = patience.until(|| "the others were waited for", || look(&come, count));
        met.context(|| format!("{} of {count} did not come to the barrier {name:?}", missing.get()))?;
        self.add(&seen, 1, limit)?;
        // Who answers stays until all have their answer.
        if matches!(&*self.0.lock(), Backend::Server(_)) {
            Patience::new(limit).until(|| "the others were waited for", || look(&seen, count))?;
        }
        Ok(())
    }

    /// The port at which a server listens.
    pub fn port(&self) -> Result<u16> {
        match &*self.0.lock() {
            Backend::Server(server) => server.port(),
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
        let key = format!("{name}/id");
        if rank == 0 {
            self.set(&key, &make()?, limit)?;
        }
        let value = self.wait(&key, limit)?;
        let id = value.try_into().map_err(|_| invalid(format!("what is under {key:?} is no id")))?;
        self.barrier(name, ranks.into(), limit)?;
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
    use std::thread;

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
