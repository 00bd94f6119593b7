//! What the command-line tool and the tests outside of src/ use of the library. It is no API: programs use the C header.
//!
//! Everything else is private to the crate, so that the compiler reports what nothing uses.

/// Utilities.
pub mod base {
    pub use crate::base::units;
}

/// Collectives over devices and over ranks.
pub mod collectives {
    /// In one process.
    pub mod devices {
        pub use crate::collectives::devices::ReduceOp;
        /// Collectives by copies and kernels of this process.
        pub mod local {
            pub use crate::collectives::devices::local::{
                RankOperands, all_gather, all_reduce, all_to_all, broadcast, reduce, reduce_scatter,
            };
        }
        /// Sizes from which another algorithm is used.
        pub mod tuning {
            pub use crate::collectives::devices::tuning::Threshold;
        }
    }
    /// Between processes.
    pub mod processes {
        pub use crate::collectives::processes::{Candidate, ProcessGroup, Transfer};
    }
}

/// The environment, and support for tests.
pub mod init {
    pub use crate::init::{startup::refused_variables, testing};
}

/// Device memory.
pub mod memory {
    pub use crate::memory::{
        PoolId, begin_allocate_current_thread_to_pool, caching_alloc, caching_free, check, end_allocate_to_pool,
        pool_create, release_pool, reserved, reset_peak_stats, set_fraction, set_memory_name,
    };
    /// The blocks of an arena.
    pub mod block {
        pub use crate::memory::block::Zone;
    }
    /// The settings.
    pub mod config {
        pub use crate::memory::config::get;
    }
    /// The memory history.
    pub mod history {
        pub use crate::memory::history::{
            Action, Annotation, Context, Enabled, Entry, Frame, Line, Options, StackId, annotate, fold,
        };
    }
    /// Peer access.
    pub mod peer {
        pub use crate::memory::peer::can_access;
    }
    /// Pools.
    pub mod pool {
        pub use crate::memory::pool::Options;
    }
    /// What is recorded of the allocator's events.
    pub mod recorder {
        pub use crate::memory::recorder::record_history;
    }
    /// Snapshots.
    pub mod snapshot {
        pub use crate::memory::snapshot::{
            Block, BlockState, DeviceTotals, Segment, Snapshot, Stacks, file, json, page, take,
        };
    }
}

/// Copies, the jiterator, telemetry.
pub mod ops {
    /// Copies.
    pub mod copy {
        pub use crate::ops::copy::between_current_streams;
    }
    /// The jiterator.
    pub mod jit {
        pub use crate::ops::jit::{host_compiler, layout, nvrtc_source, parse, scalar, source};
    }
    /// Telemetry.
    pub mod telemetry {
        pub use crate::ops::telemetry::{Process, Reading, THROTTLE_REASONS, Telemetry, processes, read_all};
    }
}

/// The process, its devices and threads.
pub mod runtime {
    pub use crate::runtime::{DeviceKind, Runtime, choose_kind, properties, ready, usable};
    /// Devices.
    pub mod device {
        pub use crate::runtime::{availability::count, device::Device};
    }
    /// Tensors.
    pub mod tensor {
        pub use crate::runtime::tensor::ElementType;
    }
}

/// Streams.
pub mod stream {
    pub use crate::stream::{Stream, create, current_on, from_external, make_wait, resolve, synchronize_device};
    /// The library's kernels.
    pub mod kernel {
        pub use crate::stream::kernel::sleep;
    }
}

/// The exported functions.
pub mod ffi {
    pub use crate::ffi::*;
}
