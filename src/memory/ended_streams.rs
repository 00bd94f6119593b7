//! Reuses the memory of streams that have ended: the default streams of threads, and streams that the program destroyed.
//!
//! A thread's per-thread default stream has an arena of its own, and ends with the thread. At the thread's end an event
//! is recorded in the stream and the arena is queued. The next thread that needs such an arena gets it, once the device
//! has completed the event. So the number of arenas depends on how many threads run at once, and not on how many ever
//! ran. Only arenas of the default pool are queued, because graphs may use the memory of other pools at any time.
//!
//! The arena of a stream that the program destroys belongs to the stream's successor, which waits for its work, until
//! another stream without an arena gets it.
//!
//! A block that outlives its thread stays valid. The thread's stream may still get work that uses it, from destructors
//! of the thread that run later. So the stream counts as recorded on the block, and its free waits for an event. A
//! thread in such a destructor gets no arena for its own stream any more, but blocks of the legacy default stream, which
//! orders itself with it, and on which its own stream is recorded.

use super::{
    arena::{Inner, Key, StreamUse},
    block::{BlockId, BlockState},
    caching,
    pool::PoolId,
    stream_events,
};
use crate::{
    driver::{Stream, observer, types::CU_STREAM_PER_THREAD},
    error::Result,
    runtime::{self, Runtime, device::Device, thread},
    stream,
};

/// The maximum number of arenas that a thread polls. Those that are still in use go to the end of the queue.
const MAX_POLLS: usize = 8;

/// Returns whether a stream is the per-thread default stream of a thread that is past the end of its arenas. If not, and
/// it is a per-thread default stream, arranges for that end.
pub fn has_ended(stream: Stream) -> bool {
    stream.handle() == CU_STREAM_PER_THREAD && !thread::run_at_end(queue_arenas)
}

/// Allocates for a stream for which [`has_ended`] is true.
#[cold]
pub fn alloc(bytes: u64, number: i32, stream: Stream) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let address = caching::caching_alloc(bytes, number, Stream::DEFAULT)?;
    caching::record_stream(address, stream::from_validated(runtime, stream, device.ordinal))?;
    Ok(address)
}

/// Queues the arenas of the calling thread, which is ending.
fn queue_arenas() {
    let Some(runtime) = runtime::usable() else { return };
    for device in runtime.devices() {
        let key = Key { stream: CU_STREAM_PER_THREAD, thread: thread::number(), pool: PoolId::DEFAULT, ended: 0 };
        if let Some(arena) = device.memory().find_arena(&key) {
            // A program must not rely on the event, so the sanitizer is not notified of it.
            let done = observer::run_unobserved(|| stream_events::record_event(runtime, arena.stream_use()));
            device.memory().queue_arena(key, done);
        }
    }
}

/// Gives a stream the arena of one that has ended, if its key is for the default pool, and is new, and an arena is not in
/// use any more. A thread's per-thread default stream gets that of another thread.
pub fn reuse_arena(runtime: &Runtime, device: &Device, key: Key, stream_use: StreamUse) {
    let memory = device.memory();
    if key.pool != PoolId::DEFAULT {
        return;
    }
    for _ in 0..MAX_POLLS {
        let Some(mut ended) = memory.take_queued_arena(&key) else { return };
        if !stream_events::is_complete(runtime, &mut ended.done, false) {
            memory.return_queued_arena(ended);
        } else if memory.give_arena(ended, key, stream_use) {
            return;
        }
    }
}

impl Inner {
    /// Changes the key, because the thread is ending, and makes the free of each live block wait for the thread's stream.
    pub(super) fn end_thread(&mut self, key: Key, stream_use: StreamUse) {
        self.key = key;
        // The thread may have the arena in its cache.
        self.space.generation += 1;
        let blocks = &mut self.space.blocks;
        let live: Vec<BlockId> =
            blocks.iter().filter(|(_, block)| block.state == BlockState::Live).map(|(id, _)| id).collect();
        for id in live {
            blocks[id].used_elsewhere = true;
            let uses = self.stream_uses.entry(id).or_default();
            if !uses.contains(&stream_use) {
                uses.push(stream_use);
            }
        }
    }
}
