// Hostile handles and pointers: destroyed ones, those of other kinds, with a changed bit, random numbers, addresses.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hostile_states.h"

namespace {

// Live handles and destroyed ones, of all kinds.
std::vector<void *> live_handles, dead_handles;
std::vector<plinth_stream_t> live_streams;
std::vector<void *> dead_pointers;

template <typename Handle>
void keep_handle(Handle handle) {
  live_handles.push_back(reinterpret_cast<void *>(handle));
}

void prepare_handles() {
  static const char *const code = "template <typename T> T add(T x, T y) { return x + y; }";
  for (int round = 0; round < 2; round++) {
    plinth_event_t event = nullptr;
    plinth_generator_t generator = nullptr;
    plinth_graph_t graph = nullptr;
    plinth_jit_function_t function = nullptr;
    plinth_store_t another = nullptr;
    plinth_pool_checkpoint_t saved = nullptr;
    plinth_communicator_t communicator = nullptr;
    const int32_t device = 0;
    CHECK_OK(plinth_event_create(PLINTH_EVENT_TIMING, &event));
    CHECK_OK(plinth_generator_create(0, &generator));
    CHECK_OK(plinth_graph_create(&graph));
    CHECK_OK(plinth_jiterator_create_jit_fn(code, nullptr, 0, &function));
    CHECK_OK(plinth_store_create(store_folder.c_str(), &another));
    CHECK_OK(plinth_pool_checkpoint_create(0, checkpoint_pool, &saved));
    CHECK_OK(plinth_communicator_init_all(&device, 1, nullptr, &communicator));
    if (round == 0) {
      CHECK_OK(plinth_event_destroy(event));
      CHECK_OK(plinth_generator_destroy(generator));
      CHECK_OK(plinth_graph_destroy(graph));
      CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
      CHECK_OK(plinth_store_destroy(another));
      CHECK_OK(plinth_pool_checkpoint_destroy(saved));
      CHECK_OK(plinth_communicator_destroy(communicator));
    }
    keep_handle(event), keep_handle(generator), keep_handle(graph), keep_handle(function), keep_handle(another);
    keep_handle(saved), keep_handle(communicator);
    if (round == 0) {
      dead_handles.swap(live_handles);
    } else {
      jit_function = function;
    }
  }
  for (int32_t device = 0; device < DEVICES; device++) {
    plinth_stream_t stream = nullptr;
    CHECK_OK(plinth_stream_create(device, 0, &stream));
    live_streams.push_back(stream);
    void *block = nullptr;
    CHECK_OK(plinth_caching_allocator_alloc(1000, device, nullptr, &block));
    CHECK_OK(plinth_caching_allocator_delete(block));
    dead_pointers.push_back(block);
    CHECK_OK(plinth_device_malloc(BLOCK, device, &block));
    CHECK_OK(plinth_device_free(block));
    dead_pointers.push_back(block);
  }
  CHECK_OK(plinth_empty_cache());
}

// A value that is no live handle.
void *hostile_handle(Reader &in) {
  void *handle = nullptr;
  switch (in.byte() % 6) {
    case 0: handle = reinterpret_cast<void *>(in.number()); break;
    case 1: handle = reinterpret_cast<void *>(in.wide()); break;
    case 2:
    case 3: handle = dead_handles[in.byte() % dead_handles.size()]; break;
    case 4:
      handle = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(live_handles[in.byte() % live_handles.size()]) ^
                                        uintptr_t{1} << in.byte() % 64);
      break;
    default: handle = memories[in.byte() % memories.size()].begin + in.byte();
  }
  const bool is_live = std::find(live_handles.begin(), live_handles.end(), handle) != live_handles.end();
  const bool is_valid = is_live || handle == checkpoint || handle == store || handle == nullptr;
  return is_valid ? reinterpret_cast<void *>(uintptr_t{3}) : handle;
}

using Handle = void *;
using Call = plinth_status_t (*)(Handle handle);

template <typename Type>
Type as(Handle handle) { return reinterpret_cast<Type>(handle); }

float real;
bool flag;
int32_t number;
uint32_t unsigned_number;
uint64_t wide;
size_t size;
uint8_t state_bytes[4096];
char *text;
void *pointer;
const DLDataType FLOAT = {2, 32, 1};
plinth_graph_node_t nodes[4];
plinth_generator_t made_generator;
plinth_graph_t made_graph;
plinth_kernel_t made_kernel;
plinth_communicator_t made_communicator;

#define EVENT as<plinth_event_t>(handle)
#define GENERATOR as<plinth_generator_t>(handle)
#define GRAPH as<plinth_graph_t>(handle)
#define COMMUNICATOR as<plinth_communicator_t>(handle)
#define STORE as<plinth_store_t>(handle)

// Calls that must refuse a handle that is not live.
const Call REFUSING[] = {
    [](Handle handle) { return plinth_event_destroy(EVENT); },
    [](Handle handle) { return plinth_event_record(EVENT, nullptr); },
    [](Handle handle) { return plinth_event_wait(EVENT, nullptr); },
    [](Handle handle) { return plinth_stream_record_event(nullptr, EVENT); },
    [](Handle handle) { return plinth_stream_wait_event(nullptr, EVENT); },
    [](Handle handle) { return plinth_event_query(EVENT, &flag); },
    [](Handle handle) { return plinth_event_synchronize(EVENT); },
    [](Handle handle) { return plinth_event_elapsed_time(EVENT, EVENT, &real); },
    [](Handle handle) { return plinth_event_device(EVENT, &number); },
    [](Handle handle) { return plinth_event_native(EVENT, &pointer); },
    [](Handle handle) { return plinth_event_ipc_handle(EVENT, state_bytes); },
    [](Handle handle) { return plinth_generator_destroy(GENERATOR); },
    [](Handle handle) { return plinth_generator_clone(GENERATOR, &made_generator); },
    [](Handle handle) { return plinth_generator_graphsafe_get_state(GENERATOR, &made_generator); },
    [](Handle handle) { return plinth_generator_graphsafe_set_state(generators[0], GENERATOR); },
    [](Handle handle) { return plinth_generator_device(GENERATOR, &number); },
    [](Handle handle) { return plinth_generator_manual_seed(GENERATOR, 1); },
    [](Handle handle) { return plinth_generator_get_state(GENERATOR, state_bytes); },
    [](Handle handle) { return plinth_generator_set_state(GENERATOR, state_bytes, PLINTH_RNG_STATE_SIZE); },
    [](Handle handle) { return plinth_generator_set_offset(GENERATOR, 4); },
    [](Handle handle) { return plinth_graph_destroy(GRAPH); },
    [](Handle handle) { return plinth_graph_reset(GRAPH); },
    [](Handle handle) { return plinth_graph_capture_begin(GRAPH, nullptr, 0); },
    [](Handle handle) { return plinth_graph_capture_end(GRAPH); },
    [](Handle handle) { return plinth_graph_instantiate(GRAPH); },
    [](Handle handle) { return plinth_graph_replay(GRAPH); },
    [](Handle handle) { return plinth_graph_register_generator_state(GRAPH, generators[0]); },
    [](Handle handle) { return plinth_graph_memory(GRAPH, &size, &size); },
    [](Handle handle) { return plinth_graph_sleep(GRAPH); },
    [](Handle handle) { return plinth_graph_wake(GRAPH); },
    [](Handle handle) { return plinth_graph_summary(GRAPH, &text); },
    [](Handle handle) { return plinth_graph_update(GRAPH, GRAPH); },
    [](Handle handle) { return plinth_graph_clone(GRAPH, &made_graph); },
    [](Handle handle) { return plinth_graph_nodes(GRAPH, nodes, 4, &size); },
    [](Handle handle) { return plinth_graph_add_empty(GRAPH, nullptr, 0, nodes); },
    [](Handle handle) { return plinth_graph_node_type(GRAPH, nodes[0], &unsigned_number); },
    [](Handle handle) {
      return plinth_graphed_callable_call(as<plinth_graphed_callable_t>(handle), nullptr, 0, nullptr, 0);
    },
    [](Handle handle) { return plinth_graphed_callable_reset(as<plinth_graphed_callable_t>(handle)); },
    [](Handle handle) { return plinth_graphed_callable_destroy(as<plinth_graphed_callable_t>(handle)); },
    [](Handle handle) { return plinth_communicator_destroy(COMMUNICATOR); },
    [](Handle handle) { return plinth_communicator_abort(COMMUNICATOR); },
    [](Handle handle) { return plinth_communicator_split(COMMUNICATOR, 0, 0, &made_communicator); },
    [](Handle handle) { return plinth_communicator_shrink(COMMUNICATOR, &number, 1, 0, &made_communicator); },
    [](Handle handle) { return plinth_communicator_register(COMMUNICATOR, &number, 1); },
    [](Handle handle) { return plinth_communicator_deregister(COMMUNICATOR, &number); },
    [](Handle handle) { return plinth_communicator_rank(COMMUNICATOR, &number); },
    [](Handle handle) { return plinth_communicator_engine(COMMUNICATOR, &unsigned_number); },
    [](Handle handle) { return plinth_communicator_wait(COMMUNICATOR, 1, nullptr); },
    [](Handle handle) { return plinth_communicator_sleep(COMMUNICATOR); },
    [](Handle handle) { return plinth_communicator_wake(COMMUNICATOR); },
    [](Handle handle) {
      return plinth_communicator_all_reduce(COMMUNICATOR, memories[0].begin, memories[0].begin, 4, FLOAT, 0, nullptr);
    },
    [](Handle handle) { return plinth_communicator_send(COMMUNICATOR, memories[0].begin, 4, FLOAT, 0, nullptr); },
    [](Handle handle) { return plinth_jiterator_destroy_jit_fn(as<plinth_jit_function_t>(handle)); },
    [](Handle handle) {
      return plinth_jiterator_call(as<plinth_jit_function_t>(handle), nullptr, 0, nullptr, 0, nullptr, 0, nullptr);
    },
    [](Handle handle) { return plinth_kernel_module_destroy(as<plinth_kernel_module_t>(handle)); },
    [](Handle handle) { return plinth_kernel_module_get_kernel(as<plinth_kernel_module_t>(handle), "name", &made_kernel); },
    [](Handle handle) { return plinth_kernel_destroy(as<plinth_kernel_t>(handle)); },
    [](Handle handle) { return plinth_kernel_occupancy(as<plinth_kernel_t>(handle), 32, 0, &number); },
    [](Handle handle) { return plinth_kernel_launch(as<plinth_kernel_t>(handle), nullptr, nullptr, 0, nullptr); },
    [](Handle handle) { return plinth_store_destroy(STORE); },
    [](Handle handle) { return plinth_store_set(STORE, "a", "b", 1); },
    [](Handle handle) { return plinth_store_get(STORE, "a", 1, state_bytes, 8, &size); },
    [](Handle handle) { return plinth_store_barrier(STORE, "a", 1, 1); },
    [](Handle handle) { return plinth_pool_checkpoint_destroy(as<plinth_pool_checkpoint_t>(handle)); },
    [](Handle handle) {
      return plinth_pool_checkpoint_restore(as<plinth_pool_checkpoint_t>(handle), nullptr, 0, nullptr, nullptr);
    },
    [](Handle handle) { return plinth_green_context_destroy(as<plinth_green_context_t>(handle)); },
    [](Handle handle) { return plinth_cufft_plan_destroy(as<plinth_cufft_plan_t>(handle)); },
    [](Handle handle) { return plinth_cufft_execute(as<plinth_cufft_plan_t>(handle), nullptr, nullptr, 1); },
    [](Handle handle) { return plinth_pluggable_allocator_destroy(as<plinth_pluggable_allocator_t>(handle)); },
    [](Handle handle) { return plinth_change_current_allocator(as<plinth_pluggable_allocator_t>(handle)); },
    [](Handle handle) { return plinth_telemetry_sampler_destroy(as<plinth_telemetry_sampler_t>(handle)); },
    [](Handle handle) {
      return plinth_telemetry_sampler_take(as<plinth_telemetry_sampler_t>(handle), nullptr, 0, &size, &wide);
    },
};

#define STREAM as<plinth_stream_t>(handle)

// Calls with a stream that is not known. A number can be a stream by chance.
const Call OF_STREAMS[] = {
    [](Handle handle) { return plinth_stream_query(STREAM, &flag); },
    [](Handle handle) { return plinth_stream_synchronize(STREAM); },
    [](Handle handle) { return plinth_stream_wait_stream(STREAM, nullptr); },
    [](Handle handle) { return plinth_stream_wait_stream(nullptr, STREAM); },
    [](Handle handle) { return plinth_stream_priority(STREAM, &number); },
    [](Handle handle) { return plinth_stream_id(STREAM, &wide); },
    [](Handle handle) { return plinth_stream_device(STREAM, &number); },
    [](Handle handle) { return plinth_stream_is_capturing(STREAM, &flag); },
    [](Handle handle) { return plinth_stream_unregister(STREAM); },
    [](Handle handle) { return plinth_set_stream(STREAM); },
    [](Handle handle) { return plinth_sleep(1, STREAM); },
    [](Handle handle) { return plinth_launch_host_function(STREAM, nullptr, nullptr); },
    [](Handle handle) { return plinth_memset(memories[0].begin, 0, 16, STREAM); },
    [](Handle handle) { return plinth_record_stream(memories[0].begin, STREAM); },
    [](Handle handle) { return plinth_stream_set_name(STREAM, "name"); },
    [](Handle handle) { return plinth_stream_get_name(STREAM, &text); },
    [](Handle handle) {
      plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
      return plinth_stream_memory_stats(STREAM, &stats);
    },
    [](Handle handle) { return plinth_sanitizer_stream_done(STREAM); },
    [](Handle handle) { return plinth_begin_allocate_current_stream_to_pool(0, STREAM, {99, 99}); },
    [](Handle handle) {
      plinth_stream_context_t saved;
      return plinth_stream_context_enter(STREAM, &saved);
    },
};

// Calls with a pointer that is not the start of a live allocation.
const Call OF_POINTERS[] = {
    [](Handle handle) { return plinth_caching_allocator_delete(handle); },
    [](Handle handle) { return plinth_device_free(handle); },
    [](Handle handle) { return plinth_pinned_free(handle); },
    [](Handle handle) { return plinth_managed_free(handle); },
    [](Handle handle) { return plinth_ipc_close(handle); },
    [](Handle handle) { return plinth_ipc_close_mem_handle(handle); },
    [](Handle handle) {
      plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
      const plinth_status_t status = plinth_ipc_export(handle, &message);
      return status == PLINTH_OK ? plinth_ipc_export_free(&message) : status;
    },
    [](Handle handle) { return plinth_record_stream(handle, nullptr); },
    [](Handle handle) { return plinth_memory_set_name(handle, "name"); },
};

// Questions about any pointer.
const Call ABOUT_POINTERS[] = {
    [](Handle handle) { return plinth_device_of(handle, &number); },
    [](Handle handle) {
      plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
      return plinth_pointer_attributes(handle, &attributes);
    },
    [](Handle handle) { return plinth_memory_get_name(handle, &text); },
    [](Handle handle) { return plinth_ipc_mem_handle(handle, state_bytes, &size); },
};

// Calls with a pool that does not exist.
plinth_status_t use_pool(unsigned call, plinth_pool_id_t pool) {
  switch (call % 10) {
    case 0: return plinth_mem_pool_destroy(pool);
    case 1: return plinth_mem_pool_set_budget(pool, 1);
    case 2: return plinth_mem_pool_get_budget(pool, &size);
    case 3: return plinth_mem_pool_set_use_on_oom(pool, true);
    case 4: return plinth_mem_pool_use_count(pool, 0, &number);
    case 5: return plinth_mem_pool_memory(pool, 0, &size, &size);
    case 6: return plinth_release_pool(0, pool);
    case 7: return plinth_end_allocate_to_pool(0, pool);
    case 8: return plinth_pool_check_live_allocations(0, pool, nullptr, 0, &flag);
    default: return plinth_mem_pool_snapshot(pool, false, &text);
  }
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void one_handle(Reader &in) {
  const unsigned kind = in.byte() % 16, call = in.byte();
  void *handle = hostile_handle(in);
  text = nullptr;
  if (kind < 8) {
    note("call %zu with the handle %p", call % COUNT(REFUSING), handle);
    expect_failure(__LINE__, REFUSING[call % COUNT(REFUSING)](handle), "a call with an invalid handle");
  } else if (kind < 11) {
    if (in.one_in(3)) {
      handle = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(live_streams[in.byte() % live_streams.size()]) ^
                                        uintptr_t{1} << in.byte() % 64);
    }
    note("call %zu with the stream %p", call % COUNT(OF_STREAMS), handle);
    if (EXPECT(OF_STREAMS[call % COUNT(OF_STREAMS)](as<plinth_stream_t>(handle))) == PLINTH_OK) {
      CHECK_OK(plinth_set_device(0));
      CHECK_OK(plinth_set_stream(nullptr));
      last_status = PLINTH_OK;
    }
  } else if (kind < 14) {
    const auto is_start = [&](const Memory &memory) { return memory.begin == handle; };
    if (in.one_in(4)) {
      handle = dead_pointers[in.byte() % dead_pointers.size()];
    } else if (in.one_in(4)) {
      handle = memories[in.byte() % memories.size()].begin + 1 + in.byte();
    } else if (std::any_of(memories.begin(), memories.end(), is_start)) {
      handle = &handle;
    }
    if (in.one_in(3)) {
      note("question %zu about %p", call % COUNT(ABOUT_POINTERS), handle);
      EXPECT(ABOUT_POINTERS[call % COUNT(ABOUT_POINTERS)](handle));
    } else if (handle != nullptr) {
      note("call %zu with the pointer %p", call % COUNT(OF_POINTERS), handle);
      EXPECT(OF_POINTERS[call % COUNT(OF_POINTERS)](handle));
    }
  } else {
    const plinth_pool_id_t pool = {in.number(), in.number() | 1 << 20};
    note("call %u with the pool %llx, %llx", call % 10, static_cast<unsigned long long>(pool.owner),
         static_cast<unsigned long long>(pool.index));
    expect_failure(__LINE__, use_pool(call, pool), "a call with an invalid pool");
  }
  const plinth_status_t status = last_status;
  plinth_string_free(text);
  last_status = status;
}

}  // namespace
