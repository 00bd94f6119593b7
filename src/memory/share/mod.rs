//! Several processes on one device: each has a budget, and gives idle memory above its floor back when another one asks.
//!
//! The processes know each other through a [`page`] in shared memory. A process that runs short asks the others, those that
//! needed no more memory for the longest time first, before it waits for its own work. A thread of each process answers: it
//! returns idle handles to the driver, those of the arenas that were not used for the longest time first. Allocations and
//! frees that need no memory from the driver know nothing of this. A process that ends, in whatever way, loses its slot, and
//! the driver frees its memory.

mod give_back;
mod page;

use crate::{
    base::units::Bytes,
    driver::signals,
    error::{Error, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
    status::Status,
};
use page::Page;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

/// How long a process waits until another one begins to answer.
const ACCEPT_LIMIT: Duration = Duration::from_millis(500);
/// How long it waits for the answer then.
const ANSWER_LIMIT: Duration = Duration::from_millis(5500);
/// How long a process that is asked waits for its own work, which may still use the memory.
const GIVE_LIMIT: Duration = Duration::from_secs(5);
/// How long the thread waits for a request before it looks whether it is to stop: requests wake it.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How long a process waits for its thread to stop.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// What a process may hold of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most bytes that it holds; 0 for all of the device.
    pub budget: u64,
    /// The bytes that it is not asked for.
    pub floor: u64,
    /// The name of those processes that share with each other.
    pub name: String,
}

/// The state of the sharing of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Info {
    /// The number of processes that share, with this one; 0 if it does not.
    pub processes: u32,
    /// The budget of this process in bytes.
    pub budget: u64,
    /// Its floor in bytes.
    pub floor: u64,
    /// What the other processes hold, in bytes, as they last published it.
    pub held_by_others: u64,
    /// How often this process asked another one.
    pub asked: u64,
    /// How often it was asked.
    pub answered: u64,
    /// The bytes that it gave back.
    pub given: u64,
}

/// This process's part in the sharing of a device.
struct Member {
    page: Page,
    name: String,
    budget: AtomicU64,
    floor: AtomicU64,
    stop: AtomicBool,
    asked: AtomicU64,
    answered: AtomicU64,
    given: AtomicU64,
}

/// The member of a device, and the end of its thread.
struct Running {
    member: Arc<Member>,
    ended: Receiver<()>,
    thread: thread::JoinHandle<()>,
}

/// Held while the sharing of a device begins or ends.
static CHANGE: Mutex<()> = Mutex::new(());
static RUNNING: PerDevice<Mutex<Option<Running>>> = PerDevice::new();
/// Whether any device is shared.
static ANY: AtomicBool = AtomicBool::new(false);

fn member_of(device: &Device) -> Option<Arc<Member>> {
    if !ANY.load(Ordering::Acquire) {
        return None;
    }
    RUNNING.of(device).lock().as_ref().map(|running| running.member.clone())
}

fn is_name(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Begins to share a device, or changes the budget and the floor.
pub fn enable(number: i32, options: &Options) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let total = device.memory().total(device, &runtime.driver)?;
    let budget = if options.budget == 0 { total } else { options.budget.min(total) };
    if options.floor > budget {
        let (floor, budget) = (Bytes(options.floor), Bytes(budget));
        let what = format!("sharing device {}: the floor of {floor} exceeds the budget of {budget}", device.ordinal);
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    if !is_name(&options.name) {
        let what = format!(
            "sharing device {}: the name \"{}\" is not at most 64 letters, digits, '-', '_' or '.'",
            device.ordinal, options.name
        );
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    let _change = CHANGE.lock();
    let known = RUNNING.of(device).lock().as_ref().map(|running| running.member.clone());
    let member = match known {
        Some(member) if member.name == options.name => member,
        Some(member) => {
            let what = format!("device {} is shared by the name \"{}\" already", device.ordinal, member.name);
            return Err(Error::new(Status::ALREADY_INITIALIZED, what));
        }
        None => {
            // It may wait for a process that has been stopped. Allocations look for the member meanwhile.
            let started = start(runtime, device, &options.name)?;
            let member = started.member.clone();
            *RUNNING.of(device).lock() = Some(started);
            member
        }
    };
    member.budget.store(budget, Ordering::Release);
    member.floor.store(options.floor, Ordering::Release);
    device.memory().set_share(Some(budget));
    member.page.publish(device.memory().held(), options.floor);
    ANY.store(true, Ordering::Release);
    Ok(())
}

fn start(runtime: &'static Runtime, device: &'static Device, name: &str) -> Result<Running> {
    let page = Page::join(device.properties(&runtime.driver)?.uuid, name)?;
    let member = Arc::new(Member {
        page,
        name: name.to_owned(),
        budget: AtomicU64::new(u64::MAX),
        floor: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        asked: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        given: AtomicU64::new(0),
    });
    let (own, (sender, ended)) = (member.clone(), mpsc::channel());
    let blocked = signals::block();
    let spawned = thread::Builder::new().name("plinth-share".into()).spawn(move || {
        give_back::run(runtime, device, &own);
        // The receiver is gone if nobody waits any more.
        let _ = sender.send(());
    });
    drop(blocked);
    match spawned {
        Ok(thread) => Ok(Running { member, ended, thread }),
        Err(error) => {
            member.page.leave();
            Err(Error::new(Status::SYSTEM, format!("starting the thread that answers other processes: {error}")))
        }
    }
}

/// Ends the sharing of a device. Does nothing if it is not shared.
pub fn disable(number: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    end(runtime.device(number)?);
    Ok(())
}

fn end(device: &Device) {
    let _change = CHANGE.lock();
    let Some(running) = RUNNING.of(device).lock().take() else { return };
    device.memory().set_share(None);
    running.member.stop.store(true, Ordering::Release);
    running.member.page.wake_own();
    if running.ended.recv_timeout(STOP_LIMIT).is_ok() {
        // The thread has ended; a panic in it does not matter any more.
        let _ = running.thread.join();
    }
    running.member.page.leave();
}

/// Ends all sharing, when the process begins to exit.
pub fn stop() {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    let Some(runtime) = runtime::usable() else { return };
    runtime.devices().iter().for_each(end);
}

/// Returns the state of the sharing of a device.
pub fn info(number: i32) -> Result<Info> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let Some(member) = member_of(device) else { return Ok(Info::default()) };
    let others = member.page.others();
    Ok(Info {
        processes: others.len() as u32 + 1,
        budget: member.budget.load(Ordering::Acquire),
        floor: member.floor.load(Ordering::Acquire),
        held_by_others: others.iter().map(|other| other.held).sum(),
        asked: member.asked.load(Ordering::Acquire),
        answered: member.answered.load(Ordering::Acquire),
        given: member.given.load(Ordering::Acquire),
    })
}

/// Publishes what this process holds, after a request that no cached block served.
pub fn note_growth(device: &Device) {
    if let Some(member) = member_of(device)
        && member.page.is_own()
    {
        member.page.publish(device.memory().held(), member.floor.load(Ordering::Acquire));
        member.page.note_growth();
    }
}

/// Asks other processes for memory for a request of `size` bytes, one after the other, until the device has `wanted` bytes
/// free. Returns whether it has more than before. The caller holds no lock.
pub fn ask(runtime: &Runtime, device: &Device, size: u64, wanted: u64) -> Result<bool> {
    let Some(member) = member_of(device) else { return Ok(false) };
    let limit = device.memory().max_held(device, &runtime.driver)?;
    // More free memory would not help against the process's own limit.
    if !member.page.is_own() || device.memory().held().saturating_add(size) > limit {
        return Ok(false);
    }
    let (before, _) = device.memory_info(&runtime.driver)?;
    let mut free = before;
    for other in member.page.others() {
        if free >= wanted {
            break;
        }
        if other.held > other.floor {
            member.asked.fetch_add(1, Ordering::AcqRel);
            member.page.ask(other.slot, wanted - free, ACCEPT_LIMIT, ANSWER_LIMIT);
            free = device.memory_info(&runtime.driver)?.0;
        }
    }
    Ok(free > before)
}
