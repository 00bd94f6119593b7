//! Compares the memory layout of the C API's structs in Rust with that in C, which a C compiler wrote to
//! tests/abi/layout.txt (`make layout`).

use plinth::internal::ffi::{
    backend::*, communicator::*, compile_kernel::*, cufft::*, generator::*, graph::*, graph_build::*,
    graph_callable::*, graph_times::*, host_kernel::*, host_memory_stats::*, ipc::*, jiterator::*, kernel_launch::*,
    memory_history::*, memory_registration::*, memory_share::*, memory_sleep::*, memory_stats::*, nvtx::*, pointer::*,
    pool::*, properties::*, sanitizer::*, snapshot::*, stream::*, telemetry::*, tensor::*, testing::*,
};
use std::{
    fmt::Write,
    fs,
    mem::{align_of, offset_of, size_of},
    path::Path,
};

/// Returns the size of a field in bytes, from its type.
fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Writes the lines of a struct in the format of tests/abi/layout.py.
macro_rules! layout {
    ($list:ident, $name:ident { $( $field:ident )* }) => {
        writeln!($list, "struct {} size {} align {}", stringify!($name), size_of::<$name>(), align_of::<$name>())
            .unwrap();
        $( writeln!(
            $list,
            "field {}.{} offset {} size {}",
            stringify!($name),
            stringify!($field),
            offset_of!($name, $field),
            size_of_field(|value: &$name| &value.$field)
        )
        .unwrap(); )*
    };
}

#[test]
fn struct_layouts_match_c() {
    let mut list = String::new();
    layout!(list, DLDevice { device_type device_id });
    layout!(list, DLDataType { code bits lanes });
    layout!(list, DLTensor { data device ndim dtype shape strides byte_offset });
    layout!(list, plinth_philox_state_t { seed offset graph_offset captured reserved });
    layout!(list, plinth_device_properties_t {
        struct_size name uuid pci_bus_id_text total_memory l2_cache_size shared_memory_per_block
        shared_memory_per_block_optin shared_memory_per_multiprocessor major minor multi_processor_count
        max_threads_per_multi_processor max_threads_per_block warp_size regs_per_multiprocessor clock_rate
        memory_clock_rate memory_bus_width pci_domain_id pci_bus_id pci_device_id is_integrated is_multi_gpu_board
        has_virtual_memory
    });
    layout!(list, plinth_stream_context_t { device entered_device stream entered_stream });
    layout!(list, plinth_host_stat_t { current peak allocated freed });
    layout!(list, plinth_host_time_t { total max min count avg });
    layout!(list, plinth_host_memory_stats_t {
        struct_size allocations active_requests allocated_bytes active_bytes num_host_alloc num_host_free
        host_alloc_time host_free_time
    });
    layout!(list, plinth_memory_uses_t { struct_size block size device parts registrations supported reasons });
    layout!(list, plinth_memory_registration_options_t { struct_size name release context });
    layout!(list, plinth_memory_registration_info_t {
        struct_size pointer size device parts is_released reserved
    });
    layout!(list, plinth_memory_part_t { struct_size pointer size descriptor reserved fabric });
    layout!(list, plinth_memory_share_options_t { struct_size budget floor name });
    layout!(list, plinth_memory_share_info_t {
        struct_size processes reserved budget floor held_by_others asked answered given
    });
    layout!(list, plinth_sleep_options_t { struct_size backup flags folder });
    layout!(list, plinth_sleep_info_t {
        struct_size pools pools_asleep mapped_bytes asleep_bytes saved_bytes backup_bytes
    });
    layout!(list, plinth_ipc_memory_t { struct_size pointer size offset device reserved });
    layout!(list, plinth_ipc_export_t { struct_size bytes size descriptors descriptor_count });
    layout!(list, plinth_pool_id_t { owner index });
    layout!(list, plinth_memory_stat_t { current peak allocated freed });
    layout!(list, plinth_memory_stat_by_pool_t { all small_pool large_pool });
    layout!(list, plinth_memory_stats_t {
        struct_size allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes
        inactive_split_bytes requested_bytes oversize_allocations oversize_segments num_alloc_retries num_ooms
        max_split_size num_sync_all_streams num_device_alloc num_device_free
    });
    layout!(list, plinth_memory_history_options_t {
        struct_size enabled context max_entries clear_history record_annotations skip_actions reserved
    });
    layout!(list, plinth_memory_history_entry_t {
        struct_size action device address size stream pool time_us thread metadata stack reserved name
        stream_name
    });
    layout!(list, plinth_pointer_attributes_t {
        struct_size kind device owner is_virtual device_pointer host_pointer base size range_base range_size pool
    });
    layout!(list, plinth_allocator_hooks_t {
        struct_size init reset memory_fraction base_alloc record_stream begin_allocate_to_pool end_allocate_to_pool
        release_pool
    });
    layout!(list, plinth_graph_context_t { graph streams });
    layout!(list, plinth_graph_kernel_t { struct_size function grid block shared_bytes parameters });
    layout!(list, plinth_node_time_t { struct_size node node_type reserved microseconds what });
    layout!(list, plinth_callable_t {
        struct_size forward backward context inputs input_count outputs output_count differentiable
    });
    layout!(list, plinth_memory_segment_t {
        struct_size address total_size allocated_size active_size requested_size asleep_size stream pool block_count
        device is_large is_expandable stream_name
    });
    layout!(list, plinth_memory_block_t { struct_size address size requested_size state reserved name });
    layout!(list, plinth_communicator_options_t { struct_size timeout_milliseconds engine flags });
    layout!(list, plinth_jit_scalar_t { struct_size name kind reserved integer real imaginary });
    layout!(list, plinth_kernel_attributes_t {
        struct_size registers shared_bytes max_dynamic_shared_bytes local_bytes const_bytes max_threads_per_block
        ptx_version binary_version
    });
    layout!(list, plinth_kernel_launch_t { struct_size grid block cluster shared_bytes flags });
    layout!(list, plinth_host_launch_t { struct_size grid block shared_bytes device parameters count });
    layout!(list, plinth_kernel_argument_t { struct_size value bytes kind access });
    layout!(list, plinth_cufft_params_t {
        struct_size rank transform number sizes input_strides output_strides
    });
    layout!(list, plinth_telemetry_t {
        struct_size time_us valid utilization memory_usage temperature power_draw clock_rate memory_clock_rate reserved
        memory_used energy throttle_reasons
    });
    layout!(list, plinth_gpu_process_t { struct_size memory_used pid reserved });
    layout!(list, plinth_nvtx_event_t { struct_size message category color payload has_color has_payload });
    layout!(list, plinth_sanitizer_side_t { struct_size name address bytes operation stream device kind });
    layout!(list, plinth_sanitizer_report_t {
        struct_size kind missing address bytes times access previous text json
    });
    layout!(list, plinth_sanitizer_access_t { struct_size pointer bytes kind reserved });
    layout!(list, plinth_host_usage_t {
        struct_size device_bytes pinned_bytes streams events graphs executable_graphs modules memory_handles mappings
        reservations threads
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi/layout.txt");
    let known = fs::read_to_string(path).unwrap();
    let mut known: Vec<&str> =
        known.lines().filter(|line| line.starts_with("struct ") || line.starts_with("field ")).collect();
    let mut list: Vec<&str> = list.lines().collect();
    // The order of the headers does not matter: each line names its struct.
    known.sort_unstable();
    list.sort_unstable();
    // A struct that is new in the header must be added above, too.
    assert_eq!(list, known);
}
