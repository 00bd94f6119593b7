//! Device memory: the caching allocator, and memory straight from the driver.
//!
//! An allocation finds the [`arena`] of its stream, usually in a per-thread cache, and takes a block from the arena's
//! [`space`]. This path makes no driver call, computes no hash and takes no lock that other streams share. A free finds
//! the block by its address in the [`directory`]. All other work is deferred until an arena has no block for a request:
//! then the [`slow_path`] processes completed stream events, grows the arena ([`grow`]), moves idle memory, and finally
//! fails with a message that states the cause.

pub mod arena;
pub mod backend;
#[allow(unsafe_code)]
pub mod biased;
pub mod bins;
pub mod block;
pub mod cache;
mod caching;
pub mod callbacks;
mod check;
pub mod checkpoint;
pub mod config;
pub mod counters;
pub mod device_memory;
pub mod directory;
mod driver_memory;
mod ended_streams;
pub mod external_segments;
mod fill_site;
pub mod grow;
pub mod growth;
pub mod handle_types;
pub mod handles;
pub mod history;
pub mod ipc;
pub mod located_block;
#[allow(unsafe_code)]
pub mod lock;
pub mod log;
pub mod mapped;
mod mapped_totals;
pub mod peak_budget;
pub mod peer;
pub mod peers;
pub mod pinned;
pub mod pointer;
pub mod policy;
pub mod pool;
mod pools;
pub mod previous_mappings;
pub mod reach;
pub mod recorder;
pub mod registration;
pub mod report;
pub mod route;
pub mod scratch;
pub mod sections;
pub mod settings;
pub mod share;
mod shareable;
pub mod sleep;
pub mod slow_path;
pub mod snapshot;
pub mod space;
#[cfg(test)]
mod space_tests;
pub mod split_handle;
pub mod stats;
pub mod stats_aggregation;
pub mod stream_events;
pub mod summary;
pub mod tags;
pub mod trace;
pub mod trackers;
pub mod unreleasable;

pub use caching::*;
pub use device_memory::{device_for, owner};
pub use driver_memory::{
    alloc, alloc_pinned, device_of, free, free_pinned, host_register, host_unregister, is_pinned, managed_alloc,
    managed_free,
};
pub use peers::{add_all_peers, add_peer, ensure_mapping_access, remove_peer};
pub use pinned::{
    check as check_pinned, host_alloc, host_empty_cache, host_free, host_memory_stats, host_record_stream,
    reset_accumulated_host_memory_stats, reset_peak_host_memory_stats,
};
pub use pointer::{
    Attributes, Owner, attributes, describe, describe_overrun, foreign, name as memory_name,
    set_name as set_memory_name,
};
pub use pool::PoolId;
pub use pools::*;
pub use recorder::{trace_start, trace_stop};
pub use route::disable_arena_cache;
pub use settings::{allocator_settings, set_allocator_settings};
pub use stats_aggregation::{pool_stats, reset_accumulated_stats, stream_stats};
