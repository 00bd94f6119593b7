/*
 * A call of every exported function for a forked child, in the three classes of docs/errors.md. tests/forked_children.rs
 * checks that each function is here once, and that the page lists those that are not refused.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FORKED_CALLS_H
#define FORKED_CALLS_H

#include "support.h"

/* Fails, and writes no output. */
#define REFUSED(call)                                 \
  do {                                                \
    CHECK_STATUS(call, PLINTH_ERROR_FORKED_CHILD);    \
    CHECK_MESSAGE("fork");                            \
  } while (0)

/* Fails, and returns no status. */
#define REFUSED_VALUE(call)            \
  do {                                 \
    CHECK_OK(plinth_check_error(0));   \
    (void)(call);                      \
    CHECK_MESSAGE("fork");             \
  } while (0)

/* Succeeds, and does nothing. */
#define RELEASED(call) CHECK_OK(call)

/* Succeeds, does nothing, and returns no status. */
#define RELEASED_VALUE(call)                                        \
  do {                                                              \
    CHECK_STATUS(plinth_check_error(1), PLINTH_ERROR_INVALID_VALUE); \
    call;                                                           \
    CHECK_TEXT(plinth_last_error(), "");                            \
  } while (0)

/* Works as in any process. */
#define WORKS(call, expected) CHECK((call)expected)
#define WORKS_VOID(call) call

/* Objects that not every machine can create: a call that looked at them would fail. */
#define NO_OBJECT ((void *)(uintptr_t)0x123456789)

static plinth_stream_t stream;
static plinth_event_t event;
static plinth_graph_t graph;
static plinth_generator_t generator;
static plinth_communicator_t communicator;
static plinth_pool_id_t pool;
static plinth_pool_checkpoint_t pool_checkpoint;
static plinth_telemetry_sampler_t telemetry_sampler;
static plinth_nvtx_domain_t nvtx_domain;
static void *memory;
static void *driver_memory;
static void *driver_pinned;
static void *managed_memory;
static void *host_memory;
static void *registered;
/* Every output. */
static void *out;
static const DLDataType type = {2, 32, 1};
static plinth_cufft_plan_t cufft_plan = (plinth_cufft_plan_t)NO_OBJECT;
static plinth_graph_condition_t graph_condition;
static plinth_graphed_callable_t graphed_callable = (plinth_graphed_callable_t)NO_OBJECT;
static plinth_green_context_t green_context = (plinth_green_context_t)NO_OBJECT;
static plinth_jit_function_t jit_function = (plinth_jit_function_t)NO_OBJECT;
static plinth_kernel_t kernel = (plinth_kernel_t)NO_OBJECT;
static plinth_kernel_module_t kernel_module = (plinth_kernel_module_t)NO_OBJECT;
static plinth_store_t store = (plinth_store_t)NO_OBJECT;
static plinth_pluggable_allocator_t pluggable_allocator = (plinth_pluggable_allocator_t)NO_OBJECT;

static void create_objects(void) {
  const int32_t device = 0;
  out = calloc(1, 64 * KIB);
  CHECK(out != NULL);
  stream = stream_on(0);
  event = new_event(PLINTH_EVENT_TIMING);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, stream, &memory));
  CHECK_OK(plinth_record_stream(memory, PLINTH_STREAM_DEFAULT_OF(0)));
  driver_memory = device_memory(MIB, 0);
  driver_pinned = pinned_memory(MIB);
  CHECK_OK(plinth_managed_malloc(MIB, 0, &managed_memory));
  CHECK_OK(plinth_host_alloc(KIB, &host_memory));
  CHECK(posix_memalign(&registered, 4 * KIB, 64 * KIB) == 0);
  CHECK_OK(plinth_host_register(registered, 64 * KIB, PLINTH_HOST_REGISTER_PORTABLE));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_memset(driver_memory, 1, KIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_generator_create(0, &generator));
  CHECK_OK(plinth_communicator_init_all(&device, 1, NULL, &communicator));
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_pool_checkpoint_create(0, pool, &pool_checkpoint));
  CHECK_OK(plinth_nvtx_domain_create("domain", &nvtx_domain));
  CHECK_OK(plinth_telemetry_sampler_create(0, 1000, 16, &telemetry_sampler));
}

/* Calls that are refused. */
static void call_what_is_refused(void) {
  REFUSED(plinth_add_free_memory_callback(NULL, NULL));
  REFUSED(plinth_attach_allocator_trace_tracker(NULL, NULL));
  REFUSED(plinth_attach_out_of_memory_observer(NULL, NULL));
  REFUSED(plinth_begin_allocate_current_stream_to_pool(0, stream, pool));
  REFUSED(plinth_begin_allocate_current_thread_to_pool(0, pool));
  REFUSED(plinth_begin_allocate_to_pool(0, pool));
  REFUSED(plinth_bernoulli(out, 0.5, generator, stream));
  REFUSED(plinth_bernoulli_tensor(out, out, generator, stream));
  REFUSED(plinth_caching_allocator_alloc(1, 0, stream, out));
  REFUSED(plinth_caching_allocator_enable(true));
  REFUSED(plinth_caching_allocator_is_enabled(out));
  REFUSED(plinth_can_device_access_peer(0, 0, out));
  REFUSED(plinth_cauchy(out, 0.5, 0.5, generator, stream));
  REFUSED(plinth_change_current_allocator(pluggable_allocator));
  REFUSED(plinth_clear_blas_workspaces());
  REFUSED(plinth_clock_rate(0, out));
  REFUSED(plinth_comm_broadcast(out, out, 1));
  REFUSED(plinth_comm_broadcast_coalesced(out, 1, out, 1, 1, out));
  REFUSED(plinth_comm_gather(out, 1, 0, out));
  REFUSED(plinth_comm_get_reduction_order(out));
  REFUSED(plinth_comm_get_threshold(0, out));
  REFUSED(plinth_comm_reduce_add(out, 1, out));
  REFUSED(plinth_comm_reduce_add_coalesced(out, 1, 1, 1, out));
  REFUSED(plinth_comm_scatter(out, out, 1, out, 0, out));
  REFUSED(plinth_comm_set_reduction_order(0));
  REFUSED(plinth_comm_set_threshold(0, 1));
  REFUSED(plinth_communicator_abort(communicator));
  REFUSED(plinth_communicator_all_gather(communicator, memory, memory, 1, type, stream));
  REFUSED(plinth_communicator_all_reduce(communicator, memory, memory, 1, type, 0, stream));
  REFUSED(plinth_communicator_all_to_all(communicator, memory, memory, 1, type, stream));
  REFUSED(plinth_communicator_broadcast(communicator, memory, memory, 1, type, 0, stream));
  REFUSED(plinth_communicator_device(communicator, out));
  REFUSED(plinth_communicator_engine(communicator, out));
  REFUSED(plinth_communicator_group_end());
  REFUSED(plinth_communicator_group_cancel());
  REFUSED(plinth_communicator_group_start());
  REFUSED(plinth_communicator_init_all(out, 1, out, out));
  REFUSED(plinth_communicator_init_rank(0, out, 0, 0, out, out));
  REFUSED(plinth_communicator_query(communicator, out));
  REFUSED(plinth_communicator_rank(communicator, out));
  REFUSED(plinth_communicator_recv(communicator, memory, 1, type, 0, stream));
  REFUSED(plinth_communicator_reduce(communicator, memory, memory, 1, type, 0, 0, stream));
  REFUSED(plinth_communicator_reduce_scatter(communicator, memory, memory, 1, type, 0, stream));
  REFUSED(plinth_communicator_register(communicator, memory, 1));
  REFUSED(plinth_communicator_send(communicator, memory, 1, type, 0, stream));
  REFUSED(plinth_communicator_set_timeout(communicator, 1));
  REFUSED(plinth_communicator_shrink(communicator, out, 1, 0, out));
  REFUSED(plinth_communicator_size(communicator, out));
  REFUSED(plinth_communicator_sleep(communicator));
  REFUSED(plinth_communicator_split(communicator, 0, 0, out));
  REFUSED(plinth_communicator_wait(communicator, 1, stream));
  REFUSED(plinth_communicator_wake(communicator));
  REFUSED(plinth_compile_kernel("name", "name", "name", out, out, 0, out));
  REFUSED(plinth_copy(memory, memory, 1, true));
  REFUSED(plinth_copy_tensor(out, out, true));
  REFUSED(plinth_cufft_execute(cufft_plan, memory, memory, 0));
  REFUSED(plinth_cufft_plan_acquire(cufft_plan, out));
  REFUSED(plinth_cufft_plan_cache_clear(0));
  REFUSED(plinth_cufft_plan_cache_get_max_size(0, out));
  REFUSED(plinth_cufft_plan_cache_set_max_size(0, 1));
  REFUSED(plinth_cufft_plan_cache_size(0, out));
  REFUSED(plinth_cufft_plan_create(out, 0, out));
  REFUSED(plinth_current_blas_handle(out));
  REFUSED(plinth_current_blaslt_handle(out));
  REFUSED(plinth_current_blaslt_workspace(out, out));
  REFUSED(plinth_current_device(out));
  REFUSED(plinth_current_solver_handle(out));
  REFUSED(plinth_current_stream(0, out));
  REFUSED(plinth_default_generator(0, out));
  REFUSED(plinth_default_stream(0, out));
  REFUSED(plinth_detach_allocator_trace_tracker(NULL, NULL));
  REFUSED(plinth_detach_out_of_memory_observer(NULL, NULL));
  REFUSED(plinth_device_count(out));
  REFUSED(plinth_device_malloc(1, 0, out));
  REFUSED(plinth_device_memory_used(0, out));
  REFUSED(plinth_device_of(memory, out));
  REFUSED(plinth_disable_peer_access(0, 0));
  REFUSED(plinth_driver_call_cost("name", out));
  REFUSED(plinth_driver_call_count("name", out));
  REFUSED(plinth_driver_calls(out));
  REFUSED(plinth_driver_entry_point("name", out));
  REFUSED(plinth_driver_entry_point_by_version("name", 0, 1, out));
  REFUSED(plinth_driver_version(out));
  REFUSED(plinth_dump_snapshot("name"));
  REFUSED(plinth_empty_cache());
  REFUSED(plinth_enable_fault_injection());
  REFUSED(plinth_enable_peer_access(0, 0));
  REFUSED(plinth_end_allocate_to_pool(0, pool));
  REFUSED(plinth_energy_used(0, out));
  REFUSED(plinth_event_create(0, out));
  REFUSED(plinth_event_device(event, out));
  REFUSED(plinth_event_elapsed_time(event, event, out));
  REFUSED(plinth_event_from_ipc_handle(0, out, out));
  REFUSED(plinth_event_ipc_handle(event, out));
  REFUSED(plinth_event_native(event, out));
  REFUSED(plinth_event_query(event, out));
  REFUSED(plinth_event_record(event, stream));
  REFUSED(plinth_event_synchronize(event));
  REFUSED(plinth_event_wait(event, stream));
  REFUSED(plinth_exchange_device(0, out));
  REFUSED(plinth_exchange_device_of(memory, out));
  REFUSED(plinth_exponential(out, 0.5, generator, stream));
  REFUSED(plinth_generator_clone(generator, out));
  REFUSED(plinth_generator_create(0, out));
  REFUSED(plinth_generator_device(generator, out));
  REFUSED(plinth_generator_get_offset(generator, out));
  REFUSED(plinth_generator_get_state(generator, out));
  REFUSED(plinth_generator_graphsafe_get_state(generator, out));
  REFUSED(plinth_generator_graphsafe_set_state(generator, generator));
  REFUSED(plinth_generator_initial_seed(generator, out));
  REFUSED(plinth_generator_manual_seed(generator, 1));
  REFUSED(plinth_generator_philox_state(generator, 1, out));
  REFUSED(plinth_generator_seed(generator, out));
  REFUSED(plinth_generator_set_offset(generator, 1));
  REFUSED(plinth_generator_set_state(generator, out, 1));
  REFUSED(plinth_geometric(out, 0.5, generator, stream));
  REFUSED(plinth_get_allocator_backend(out));
  REFUSED(plinth_get_allocator_settings(out));
  REFUSED(plinth_get_arch_list(out));
  REFUSED(plinth_get_device_capability(0, out, out));
  REFUSED(plinth_get_device_kind(out));
  REFUSED(plinth_get_device_name(0, out, 1));
  REFUSED(plinth_get_device_properties(0, out));
  REFUSED(plinth_get_float32_matmul_precision(out));
  REFUSED(plinth_get_gencode_flags(out));
  REFUSED(plinth_get_matmul_allow_bf16_reduced_precision_reduction(out));
  REFUSED(plinth_get_matmul_allow_fp16_reduced_precision_reduction(out));
  REFUSED(plinth_get_matmul_allow_tf32(out));
  REFUSED(plinth_get_memory_metadata(out));
  REFUSED(plinth_get_per_process_memory_fraction(0, out));
  REFUSED(plinth_get_preferred_blas_library(out));
  REFUSED(plinth_get_preferred_linalg_library(out));
  REFUSED(plinth_get_rng_state(0, out));
  REFUSED(plinth_get_rng_state_all(out, 0));
  REFUSED(plinth_get_sync_debug_mode(out));
  REFUSED(plinth_gpu_processes_each(0, NULL, NULL));
  REFUSED(plinth_graph_add_child(graph, out, 1, graph, out));
  REFUSED(plinth_graph_add_condition_set(graph, out, 1, graph_condition, memory, out));
  REFUSED(plinth_graph_add_copy(graph, out, 1, memory, memory, 1, out));
  REFUSED(plinth_graph_add_dependency(graph, NULL, NULL));
  REFUSED(plinth_graph_add_empty(graph, out, 1, out));
  REFUSED(plinth_graph_add_event_record(graph, out, 1, event, out));
  REFUSED(plinth_graph_add_event_wait(graph, out, 1, event, out));
  REFUSED(plinth_graph_add_fill(graph, out, 1, memory, 0, 1, 1, out));
  REFUSED(plinth_graph_add_host(graph, out, 1, NULL, NULL, out));
  REFUSED(plinth_graph_add_if(graph, out, 1, graph_condition, out, out));
  REFUSED(plinth_graph_add_if_else(graph, out, 1, graph_condition, out, out, out));
  REFUSED(plinth_graph_add_kernel(graph, out, 1, out, out));
  REFUSED(plinth_graph_add_switch(graph, out, 1, graph_condition, out, 1, out));
  REFUSED(plinth_graph_add_while(graph, out, 1, graph_condition, out, out));
  REFUSED(plinth_graph_begin(graph, out, stream, 0, out));
  REFUSED(plinth_graph_capture_begin(graph, out, 0));
  REFUSED(plinth_graph_capture_end(graph));
  REFUSED(plinth_graph_clone(graph, out));
  REFUSED(plinth_graph_condition_create(graph, 0, out));
  REFUSED(plinth_graph_condition_set_from(graph_condition, memory, stream));
  REFUSED(plinth_graph_create(out));
  REFUSED(plinth_graph_create_empty(0, out));
  REFUSED(plinth_graph_debug_dump(graph, "name"));
  REFUSED(plinth_graph_enable_debug_mode(graph));
  REFUSED(plinth_graph_end(out, PLINTH_OK));
  REFUSED(plinth_graph_exec_native(graph, out));
  REFUSED(plinth_graph_instantiate(graph));
  REFUSED(plinth_graph_is_asleep(graph, out));
  REFUSED(plinth_graph_memory(graph, out, out));
  REFUSED(plinth_graph_native(graph, out));
  REFUSED(plinth_graph_node_get_enabled(graph, NULL, out));
  REFUSED(plinth_graph_node_get_kernel(graph, NULL, out));
  REFUSED(plinth_graph_node_set_enabled(graph, NULL, true));
  REFUSED(plinth_graph_node_set_kernel(graph, NULL, out));
  REFUSED(plinth_graph_node_times(graph, 0, out, 1, out));
  REFUSED(plinth_graph_node_type(graph, NULL, out));
  REFUSED(plinth_graph_nodes(graph, out, 1, out));
  REFUSED(plinth_graph_pool(graph, out));
  REFUSED(plinth_graph_pool_handle(out));
  REFUSED(plinth_graph_register_generator_state(graph, generator));
  REFUSED(plinth_graph_replay(graph));
  REFUSED(plinth_graph_reset(graph));
  REFUSED(plinth_graph_set_flags(graph, 0));
  REFUSED(plinth_graph_set_overlap_policy(graph, 0));
  REFUSED(plinth_graph_sleep(graph));
  REFUSED(plinth_graph_summary(graph, out));
  REFUSED(plinth_graph_time_table(graph, 0, out));
  REFUSED(plinth_graph_update(graph, graph));
  REFUSED(plinth_graph_update_native(graph, memory));
  REFUSED(plinth_graph_upload(graph));
  REFUSED(plinth_graph_wake(graph));
  REFUSED(plinth_graphed_callable_backward(graphed_callable, out, 1, out, 1));
  REFUSED(plinth_graphed_callable_call(graphed_callable, out, 1, out, 1));
  REFUSED(plinth_graphed_callable_pool(graphed_callable, out));
  REFUSED(plinth_graphed_callable_reset(graphed_callable));
  REFUSED(plinth_green_context_create(0, 0, out));
  REFUSED(plinth_green_context_device(green_context, out));
  REFUSED(plinth_green_context_native(green_context, out, out));
  REFUSED(plinth_green_context_num_sms(green_context, out));
  REFUSED(plinth_green_context_pop_context(green_context));
  REFUSED(plinth_green_context_set_context(green_context));
  REFUSED(plinth_green_context_split(0, 0, 0, out, out));
  REFUSED(plinth_green_context_stream(green_context, out));
  REFUSED(plinth_host_alloc(1, out));
  REFUSED(plinth_host_empty_cache());
  REFUSED(plinth_host_memory_stats(out));
  REFUSED(plinth_host_memory_stats_as_json(true, out));
  REFUSED(plinth_host_memory_stats_each(NULL, NULL));
  REFUSED(plinth_host_record_stream(memory, stream));
  REFUSED(plinth_host_register(memory, 1, 0));
  REFUSED(plinth_host_usage(out));
  REFUSED(plinth_init());
  REFUSED(plinth_initial_seed(out));
  REFUSED(plinth_inject_fault(1, 0));
  REFUSED(plinth_ipc_collect());
  REFUSED(plinth_ipc_export(memory, out));
  REFUSED(plinth_ipc_import(out, 1, out, 1, 0, out));
  REFUSED(plinth_ipc_mem_handle(memory, out, out));
  REFUSED(plinth_ipc_open_mem_handle(0, out, out));
  REFUSED(plinth_ipc_receive(0, 0, out));
  REFUSED(plinth_ipc_send(0, memory));
  REFUSED(plinth_is_bf16_supported(true, out));
  REFUSED(plinth_is_current_stream_capturing(out));
  REFUSED(plinth_is_pinned(memory, out));
  REFUSED(plinth_is_tf32_supported(out));
  REFUSED(plinth_jiterator_call(jit_function, out, 1, out, 1, out, 1, stream));
  REFUSED(plinth_jiterator_create_jit_fn("name", out, 1, out));
  REFUSED(plinth_jiterator_create_multi_output_jit_fn("name", 0, out, 1, out));
  REFUSED(plinth_jiterator_result(jit_function, out, 1, out, out, out));
  REFUSED(plinth_kernel_attributes(kernel, out));
  REFUSED(plinth_kernel_launch(kernel, out, out, 1, stream));
  REFUSED(plinth_host_kernel_register("name", NULL, 0, NULL, NULL));
  REFUSED(plinth_kernel_symbol(kernel, "name", out, (size_t *)out));
  REFUSED(plinth_kernel_module_symbol(kernel_module, "name", out, (size_t *)out));
  REFUSED(plinth_kernel_module_get_kernel(kernel_module, "name", out));
  REFUSED(plinth_kernel_module_load(memory, 1, 0, out));
  REFUSED(plinth_kernel_occupancy(kernel, 0, 0, out));
  REFUSED(plinth_kernel_set_shared_memory_config(kernel, 0));
  REFUSED(plinth_launch_host_function(stream, NULL, NULL));
  REFUSED(plinth_list_gpu_processes(0, out));
  REFUSED(plinth_log_normal(out, 0.5, 0.5, generator, stream));
  REFUSED(plinth_make_graphed_callables(out, 1, out, 0, out));
  REFUSED(plinth_managed_malloc(1, 0, out));
  REFUSED(plinth_manual_seed(1));
  REFUSED(plinth_manual_seed_all(1));
  REFUSED(plinth_max_memory_allocated(0, out));
  REFUSED(plinth_max_memory_cached(0, out));
  REFUSED(plinth_max_memory_reserved(0, out));
  REFUSED(plinth_maybe_exchange_device(0, out));
  REFUSED(plinth_mem_get_info(0, out, out));
  REFUSED(plinth_mem_pool_create(true, true, out));
  REFUSED(plinth_mem_pool_create_with_allocator(pluggable_allocator, true, true, out));
  REFUSED(plinth_mem_pool_create_with_flags(0, out));
  REFUSED(plinth_mem_pool_get_budget(pool, out));
  REFUSED(plinth_mem_pool_get_tag(pool, out));
  REFUSED(plinth_mem_pool_memory(pool, 0, out, out));
  REFUSED(plinth_mem_pool_set_budget(pool, 1));
  REFUSED(plinth_mem_pool_set_tag(pool, "tag"));
  REFUSED(plinth_mem_pool_set_use_on_oom(pool, true));
  REFUSED(plinth_mem_pool_snapshot(pool, true, out));
  REFUSED(plinth_mem_pool_stats(pool, 0, out));
  REFUSED(plinth_mem_pool_use_count(pool, 0, out));
  REFUSED(plinth_memcpy(memory, memory, 1, stream));
  REFUSED(plinth_memcpy_2d(memory, 1, memory, 1, 1, 1, stream));
  REFUSED(plinth_memory_alloc_backup(NULL, out));
  REFUSED(plinth_memory_allocated(0, out));
  REFUSED(plinth_memory_annotation_begin("name"));
  REFUSED(plinth_memory_annotation_end("name"));
  REFUSED(plinth_memory_annotations_each(NULL, NULL));
  REFUSED(plinth_memory_cached(0, out));
  REFUSED(plinth_memory_get_name(memory, out));
  REFUSED(plinth_memory_history_each(0, NULL, NULL));
  REFUSED(plinth_memory_history_is_enabled(out));
  REFUSED(plinth_memory_registration_create(memory, 1, NULL, out));
  REFUSED(plinth_memory_registration_dma_buf(NULL, out, out, out));
  REFUSED(plinth_memory_registration_info(NULL, out));
  REFUSED(plinth_memory_registration_part(NULL, 0, PLINTH_MEMORY_HANDLE_FABRIC, out));
  REFUSED(plinth_memory_reserved(0, out));
  REFUSED(plinth_memory_set_name(memory, "name"));
  REFUSED(plinth_memory_share_disable(0));
  REFUSED(plinth_memory_share_enable(0, NULL));
  REFUSED(plinth_memory_share_info(0, out));
  REFUSED(plinth_memory_sleep(NULL, NULL));
  REFUSED(plinth_memory_sleep_info(NULL, out));
  REFUSED(plinth_memory_snapshot(true, out));
  REFUSED(plinth_memory_snapshot_each(NULL, NULL));
  REFUSED(plinth_memory_stack_each(0, NULL, NULL));
  REFUSED(plinth_memory_stats(0, out));
  REFUSED(plinth_memory_stats_as_json(0, true, out));
  REFUSED(plinth_memory_stats_each(0, NULL, NULL));
  REFUSED(plinth_memory_summary(0, true, out));
  REFUSED(plinth_memory_uses(memory, out));
  REFUSED(plinth_memory_usage(0, out));
  REFUSED(plinth_memory_wake(NULL));
  REFUSED(plinth_memory_wake_async(NULL));
  REFUSED(plinth_memory_wake_wait(NULL, stream));
  REFUSED(plinth_memset(memory, 1, 1, stream));
  REFUSED(plinth_memset_pattern(memory, memory, 1, 1, stream));
  REFUSED(plinth_nccl_all_gather(out, out, 1, out, out));
  REFUSED(plinth_nccl_all_reduce(out, out, 1, 0, out, out));
  REFUSED(plinth_nccl_broadcast(out, 1, 0, out, out));
  REFUSED(plinth_nccl_init_rank(0, out, 0, out));
  REFUSED(plinth_nccl_is_available(out, 1, out));
  REFUSED(plinth_nccl_reduce(out, out, 1, 0, 0, out, out));
  REFUSED(plinth_nccl_reduce_scatter(out, out, 1, 0, out, out));
  REFUSED(plinth_nccl_report(1, out));
  REFUSED(plinth_nccl_unique_id(out));
  REFUSED(plinth_nccl_version(out, out, out));
  REFUSED(plinth_normal(out, 0.5, 0.5, generator, stream));
  REFUSED(plinth_nvrtc_compile("name", "name", "name", out, out, out, out, out));
  REFUSED(plinth_nvtx_annotate_calls(true));
  REFUSED(plinth_nvtx_device_range_end(1, stream));
  REFUSED(plinth_nvtx_device_range_start("name", stream, out));
  REFUSED(plinth_nvtx_domain_create("name", out));
  REFUSED(plinth_nvtx_domain_mark(nvtx_domain, out));
  REFUSED(plinth_nvtx_domain_range_end(nvtx_domain, 1));
  REFUSED(plinth_nvtx_domain_range_pop(nvtx_domain, out));
  REFUSED(plinth_nvtx_domain_range_push(nvtx_domain, out, out));
  REFUSED(plinth_nvtx_domain_range_start(nvtx_domain, out, out));
  REFUSED(plinth_nvtx_is_active(out));
  REFUSED(plinth_nvtx_mark("name"));
  REFUSED(plinth_nvtx_name_category(nvtx_domain, 0, "name"));
  REFUSED(plinth_nvtx_name_thread("name"));
  REFUSED(plinth_nvtx_range_end(1));
  REFUSED(plinth_nvtx_range_pop(out));
  REFUSED(plinth_nvtx_range_push("name", out));
  REFUSED(plinth_nvtx_range_start("name", out));
  REFUSED(plinth_pinned_malloc(1, out));
  REFUSED(plinth_pluggable_allocator_create("name", "name", "name", out));
  REFUSED(plinth_pluggable_allocator_set_hooks(pluggable_allocator, out));
  REFUSED(plinth_pointer_attributes(memory, out));
  REFUSED(plinth_pool_check_live_allocations(0, pool, out, 1, out));
  REFUSED(plinth_pool_checkpoint_create(0, pool, out));
  REFUSED(plinth_pool_checkpoint_restore(pool_checkpoint, out, 1, NULL, NULL));
  REFUSED(plinth_power_draw(0, out));
  REFUSED(plinth_profiler_start());
  REFUSED(plinth_profiler_stop());
  REFUSED(plinth_random(out, generator, stream));
  REFUSED(plinth_random_range(out, 1, 1, generator, stream));
  REFUSED(plinth_randperm(out, generator, stream));
  REFUSED(plinth_read_telemetry(0, out));
  REFUSED(plinth_record_memory_history(out));
  REFUSED(plinth_record_stream(memory, stream));
  REFUSED(plinth_remove_free_memory_callback(NULL, NULL));
  REFUSED(plinth_reset_accumulated_host_memory_stats());
  REFUSED(plinth_reset_accumulated_memory_stats(0));
  REFUSED(plinth_reset_max_memory_allocated(0));
  REFUSED(plinth_reset_max_memory_cached(0));
  REFUSED(plinth_reset_peak_host_memory_stats());
  REFUSED(plinth_reset_peak_memory_stats(0));
  REFUSED(plinth_sanitizer_access(memory, 1, 0, stream));
  REFUSED(plinth_sanitizer_clear());
  REFUSED(plinth_sanitizer_count(out, out));
  REFUSED(plinth_sanitizer_disable());
  REFUSED(plinth_sanitizer_each(NULL, NULL));
  REFUSED(plinth_sanitizer_enable(0));
  REFUSED(plinth_sanitizer_graph_operation(graph, NULL, "name", out, 1));
  REFUSED(plinth_sanitizer_host_operation("name", out, 1));
  REFUSED(plinth_sanitizer_json(out));
  REFUSED(plinth_sanitizer_mode(out));
  REFUSED(plinth_sanitizer_operation("name", out, 1, stream));
  REFUSED(plinth_sanitizer_set_callback(NULL, NULL));
  REFUSED(plinth_sanitizer_stream_done(stream));
  REFUSED(plinth_sanitizer_text(out));
  REFUSED(plinth_sanitizer_wait_stream(stream, stream));
  REFUSED(plinth_seed());
  REFUSED(plinth_seed_all());
  REFUSED(plinth_set_allocator_settings("name"));
  REFUSED(plinth_set_device(0));
  REFUSED(plinth_set_device_kind(0));
  REFUSED(plinth_set_float32_matmul_precision(0));
  REFUSED(plinth_set_log_callback(0, NULL, NULL));
  REFUSED(plinth_set_matmul_allow_bf16_reduced_precision_reduction(true));
  REFUSED(plinth_set_matmul_allow_fp16_reduced_precision_reduction(true));
  REFUSED(plinth_set_matmul_allow_tf32(true));
  REFUSED(plinth_set_memory_metadata("name"));
  REFUSED(plinth_set_per_process_memory_fraction(0.5, 0));
  REFUSED(plinth_set_preferred_blas_library(0));
  REFUSED(plinth_set_preferred_linalg_library(0));
  REFUSED(plinth_set_rng_state(0, out));
  REFUSED(plinth_set_rng_state_all(out, 0));
  REFUSED(plinth_set_stream(stream));
  REFUSED(plinth_set_stream_of(0, stream));
  REFUSED(plinth_set_sync_debug_callback(NULL, NULL));
  REFUSED(plinth_set_sync_debug_mode(0));
  REFUSED(plinth_sleep(1, stream));
  REFUSED(plinth_store_barrier(store, "name", 0, 1));
  REFUSED(plinth_store_create("/name", out));
  REFUSED(plinth_store_get(store, "name", 1, memory, 1, out));
  REFUSED(plinth_store_set(store, "name", memory, 1));
  REFUSED(plinth_store_unique_id(store, "name", 0, 0, 1, out));
  REFUSED(plinth_stream_context_enter(stream, out));
  REFUSED(plinth_stream_context_exit(out));
  REFUSED(plinth_stream_create(0, 0, out));
  REFUSED(plinth_stream_create_dedicated(0, 0, out));
  REFUSED(plinth_stream_device(stream, out));
  REFUSED(plinth_stream_from_external(memory, 0, out));
  REFUSED(plinth_stream_get_name(stream, out));
  REFUSED(plinth_stream_id(stream, out));
  REFUSED(plinth_stream_is_capturing(stream, out));
  REFUSED(plinth_stream_memory_stats(stream, out));
  REFUSED(plinth_stream_priority(stream, out));
  REFUSED(plinth_stream_priority_range(0, out, out));
  REFUSED(plinth_stream_query(stream, out));
  REFUSED(plinth_stream_record_event(stream, event));
  REFUSED(plinth_stream_set_name(stream, "name"));
  REFUSED(plinth_stream_synchronize(stream));
  REFUSED(plinth_stream_wait_event(stream, event));
  REFUSED(plinth_stream_wait_stream(stream, stream));
  REFUSED(plinth_sync_debug_warnings(out));
  REFUSED(plinth_synchronize(0));
  REFUSED(plinth_telemetry_sampler_create(0, 0, 1, out));
  REFUSED(plinth_telemetry_sampler_take(telemetry_sampler, out, 1, out, out));
  REFUSED(plinth_temperature(0, out));
  REFUSED(plinth_testing_check_allocator());
  REFUSED(plinth_throttle_reasons(0, out));
  REFUSED(plinth_throttle_reasons_text(1, out));
  REFUSED(plinth_trace_start("name"));
  REFUSED(plinth_trace_stop());
  REFUSED(plinth_uniform(out, 0.5, 0.5, generator, stream));
  REFUSED(plinth_utilization(0, out));
  REFUSED_VALUE(plinth_alloc(1, 0, stream));
  REFUSED_VALUE(plinth_cupy_malloc(NULL, 1, 0));
  REFUSED_VALUE(plinth_pluggable_base_alloc(memory, out));
  REFUSED_VALUE(plinth_pluggable_begin_allocate_to_pool(0, pool, NULL));
  REFUSED_VALUE(plinth_pluggable_end_allocate_to_pool(0, pool));
  REFUSED_VALUE(plinth_pluggable_init(0));
  REFUSED_VALUE(plinth_pluggable_memory_fraction(0.5, 0));
  REFUSED_VALUE(plinth_pluggable_record_stream(memory, stream));
  REFUSED_VALUE(plinth_pluggable_reset());
  REFUSED_VALUE(plinth_rmm_allocate(1, stream, NULL));
}

/* Calls that succeed and do nothing. Each object is destroyed twice, because nothing happens. */
static void call_what_releases(void) {
  RELEASED(plinth_caching_allocator_delete(memory));
  RELEASED(plinth_communicator_deregister(communicator, memory));
  RELEASED(plinth_communicator_destroy(communicator));
  RELEASED(plinth_cufft_plan_destroy(cufft_plan));
  RELEASED(plinth_cufft_plan_release(cufft_plan));
  RELEASED(plinth_device_free(driver_memory));
  RELEASED(plinth_event_destroy(event));
  RELEASED(plinth_generator_destroy(generator));
  RELEASED(plinth_graph_destroy(graph));
  RELEASED(plinth_graphed_callable_destroy(graphed_callable));
  RELEASED(plinth_green_context_destroy(green_context));
  RELEASED(plinth_host_free(host_memory));
  RELEASED(plinth_host_unregister(registered));
  RELEASED(plinth_ipc_close(memory));
  RELEASED(plinth_ipc_close_mem_handle(memory));
  RELEASED(plinth_ipc_export_free(out));
  RELEASED(plinth_jiterator_destroy_jit_fn(jit_function));
  RELEASED(plinth_kernel_destroy(kernel));
  RELEASED(plinth_kernel_module_destroy(kernel_module));
  RELEASED(plinth_managed_free(managed_memory));
  RELEASED(plinth_mem_pool_destroy(pool));
  RELEASED(plinth_memory_free_backup(NULL));
  RELEASED(plinth_memory_registration_destroy(NULL));
  RELEASED(plinth_nvtx_domain_destroy(nvtx_domain));
  RELEASED(plinth_pinned_free(driver_pinned));
  RELEASED(plinth_pluggable_allocator_destroy(pluggable_allocator));
  RELEASED(plinth_pool_checkpoint_destroy(pool_checkpoint));
  RELEASED(plinth_release_pool(0, pool));
  RELEASED(plinth_store_destroy(store));
  RELEASED(plinth_stream_destroy(stream));
  RELEASED(plinth_stream_unregister(stream));
  RELEASED(plinth_telemetry_sampler_destroy(telemetry_sampler));
  RELEASED_VALUE(plinth_cupy_free(NULL, memory, 0));
  RELEASED_VALUE(plinth_free(memory, 1, 0, stream));
  RELEASED_VALUE(plinth_pluggable_release_pool(0, pool));
  RELEASED_VALUE(plinth_rmm_deallocate(memory, 1, stream, NULL));
}

/* Calls that work. */
static void call_what_works(void) {
  WORKS(plinth_check_error(0), == PLINTH_OK);
  WORKS(plinth_is_available(), == false);
  WORKS(plinth_is_initialized(), == false);
  WORKS(plinth_last_driver_error(), == 0);
  WORKS(plinth_last_error(), != NULL);
  WORKS(plinth_memory_action_name(0), [0] != 0);
  WORKS(plinth_status_count(), > 0);
  WORKS(plinth_status_name(PLINTH_OK), [0] != 0);
  WORKS(plinth_status_string(PLINTH_OK), [0] != 0);
  WORKS_VOID(plinth_string_free(strdup("text")));
  WORKS(plinth_tripped_fault(), == NULL);
  WORKS(plinth_version(), > 0);
  WORKS(plinth_version_string(), [0] != 0);
}

#endif
