//! The thread that answers the other processes of a device.

use super::{GIVE_LIMIT, IDLE_LIMIT, Member};
use crate::{
    base::deadline::Deadline,
    memory::{arena::Arena, cache},
    runtime::{Runtime, device::Device},
};
use std::{collections::HashMap, sync::atomic::Ordering};

/// When the thread saw an arena change, by the arena's number: the state that it saw, and the answer at which it was new.
type Seen = HashMap<u32, (u64, u64)>;

/// Answers requests until the member stops.
pub(super) fn run(runtime: &'static Runtime, device: &'static Device, member: &Member) {
    let mut seen = Seen::new();
    while !member.stop.load(Ordering::Acquire) {
        member.page.answer(|wanted| {
            let answer = member.answered.fetch_add(1, Ordering::AcqRel) + 1;
            give(runtime, device, member, wanted, oldest_first(device, &mut seen, answer));
        });
        member.page.await_request(IDLE_LIMIT);
    }
}

/// Returns the arenas of a device, those that did not change for the most answers first.
fn oldest_first(device: &Device, seen: &mut Seen, answer: u64) -> Vec<&'static Arena> {
    let mut arenas = device.memory().arenas();
    let mut ages: HashMap<u32, u64> = HashMap::new();
    for arena in &arenas {
        let state = arena.lock().space.counters.activity();
        let entry = seen.entry(arena.number).or_insert((state, answer));
        if entry.0 != state {
            *entry = (state, answer);
        }
        ages.insert(arena.number, entry.1);
    }
    arenas.sort_unstable_by_key(|arena| (ages.get(&arena.number).copied(), arena.number));
    arenas
}

/// Returns idle memory above the floor to the driver.
fn give(runtime: &'static Runtime, device: &'static Device, member: &Member, wanted: u64, arenas: Vec<&'static Arena>) {
    let memory = device.memory();
    let floor = member.floor.load(Ordering::Acquire);
    let before = memory.held();
    let most = before.saturating_sub(wanted);
    // Memory that cannot be released now is kept.
    let _ = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            let is_stopped = || member.stop.load(Ordering::Acquire);
            let deadline = Deadline::new(GIVE_LIMIT).unless(&is_stopped);
            cache::give_back(runtime, device, &arenas, (most, floor), &deadline);
        })?;
        Ok(())
    });
    member.given.fetch_add(before.saturating_sub(memory.held()), Ordering::AcqRel);
    member.page.publish(memory.held(), floor);
}
