/* Random and invalid arguments for all functions. The header promises a status for each of them.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
#include "driver.h"
#include "support.h"


static uint64_t state;
static plinth_event_t events[8];
static void *memories[8];
static plinth_stream_t streams[8];
static unsigned char *pinned;

static uint64_t chance(uint64_t choices) { return random_next(&state) % choices; }

/* Boundary values and random numbers. */
static uint64_t odd_number(void) {
  static const uint64_t numbers[] = {0, 1, 2, 3, 7, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535, 0x7FFFFFFF,
                                     0x80000000, 0xFFFFFFFF, 0x100000000, INT64_MAX, UINT64_MAX, UINT64_MAX - 1};
  return chance(3) == 0 ? random_next(&state) >> chance(64) : numbers[chance(sizeof numbers / sizeof numbers[0])];
}

static int32_t odd_device(void) {
  return chance(2) == 0 ? (int32_t)chance(4) - 2 : (int32_t)odd_number();
}

static plinth_event_t odd_event(void) {
  switch (chance(4)) {
    case 0:
      return NULL;
    case 1:
      return (plinth_event_t)(uintptr_t)odd_number();
    case 2:
      /* A handle with one flipped bit. */
      return (plinth_event_t)((uintptr_t)events[chance(8)] ^ (uintptr_t)1 << chance(64));
    default:
      return events[chance(8)];
  }
}

static plinth_stream_t odd_stream(void) {
  switch (chance(4)) {
    case 0:
      return NULL;
    case 1:
      return (plinth_stream_t)(uintptr_t)odd_number();
    case 2:
      return (plinth_stream_t)((uintptr_t)streams[chance(8)] ^ (uintptr_t)1 << chance(64));
    default:
      return streams[chance(8)];
  }
}

/* An output, or NULL. */
#define MAYBE(pointer) (chance(4) == 0 ? NULL : (pointer))

static void nothing(void *context) { (void)context; }

static plinth_status_t call_device(void) {
  static int32_t number;
  static int32_t other;
  static bool answer;
  static size_t bytes;
  static char name[300];
  static plinth_device_properties_t properties[2];
  switch (chance(15)) {
    case 0:
      return plinth_current_device(MAYBE(&number));
    case 1:
      return plinth_set_device(odd_device());
    case 2:
      return plinth_exchange_device(odd_device(), MAYBE(&number));
    case 3:
      return plinth_maybe_exchange_device(odd_device(), MAYBE(&number));
    case 4:
      return plinth_device_of((void *)(uintptr_t)odd_number(), MAYBE(&number));
    case 5:
      return plinth_exchange_device_of((void *)(uintptr_t)odd_number(), MAYBE(&number));
    case 6:
      return plinth_get_device_name(odd_device(), MAYBE(name), chance(sizeof name));
    case 7:
      return plinth_get_device_capability(odd_device(), MAYBE(&number), MAYBE(&other));
    case 8:
      properties[0].struct_size = chance(sizeof properties);
      return plinth_get_device_properties(odd_device(), MAYBE(properties));
    case 9:
      return plinth_can_device_access_peer(odd_device(), odd_device(), MAYBE(&answer));
    case 10:
      return plinth_enable_peer_access(odd_device(), odd_device());
    case 11:
      return plinth_disable_peer_access(odd_device(), odd_device());
    case 12:
      return plinth_synchronize(odd_device());
    case 13:
      return plinth_set_device_kind((int32_t)odd_number());
    default:
      return plinth_mem_get_info(odd_device(), MAYBE(&bytes), MAYBE(&bytes));
  }
}

static plinth_status_t call_stream(void) {
  static plinth_stream_t stream;
  static plinth_stream_context_t saved;
  static bool answer;
  static int32_t number;
  static uint64_t id;
  switch (chance(18)) {
    case 0:
      return plinth_stream_create(odd_device(), (int32_t)odd_number(), MAYBE(&stream));
    case 1:
      return plinth_stream_from_external(streams[chance(8)], odd_device(), MAYBE(&stream));
    case 2:
      return plinth_current_stream(odd_device(), MAYBE(&stream));
    case 3:
      return plinth_default_stream(odd_device(), MAYBE(&stream));
    case 4:
      return plinth_set_stream(odd_stream());
    case 5:
      return plinth_stream_context_enter(odd_stream(), MAYBE(&saved));
    case 6:
      saved.device = odd_device();
      saved.entered_device = odd_device();
      saved.stream = odd_stream();
      saved.entered_stream = odd_stream();
      return plinth_stream_context_exit(MAYBE(&saved));
    case 7:
      return plinth_stream_query(odd_stream(), MAYBE(&answer));
    case 8:
      return plinth_stream_synchronize(odd_stream());
    case 9:
      return plinth_stream_wait_stream(odd_stream(), odd_stream());
    case 10:
      return plinth_stream_priority_range(odd_device(), MAYBE(&number), MAYBE(&number));
    case 11:
      return plinth_stream_priority(odd_stream(), MAYBE(&number));
    case 12:
      return plinth_stream_id(odd_stream(), MAYBE(&id));
    case 13:
      return plinth_stream_device(odd_stream(), MAYBE(&number));
    case 14:
      return plinth_stream_is_capturing(odd_stream(), MAYBE(&answer));
    case 15:
      return plinth_is_current_stream_capturing(MAYBE(&answer));
    case 16:
      return plinth_launch_host_function(odd_stream(), MAYBE(nothing), (void *)(uintptr_t)odd_number());
    default:
      return plinth_sleep(chance(1000), odd_stream());
  }
}

static plinth_status_t call_event(void) {
  static plinth_event_t event;
  static bool answer;
  static int32_t number;
  static float time;
  static void *native;
  static uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_status_t status = PLINTH_OK;
  switch (chance(13)) {
    case 0:
      event = NULL;
      status = plinth_event_create((uint32_t)odd_number(), MAYBE(&event));
      return event == NULL ? status : plinth_event_destroy(event);
    case 1:
      return plinth_event_destroy(odd_event());
    case 2:
      return plinth_event_record(odd_event(), odd_stream());
    case 3:
      return plinth_event_wait(odd_event(), odd_stream());
    case 4:
      return plinth_stream_record_event(odd_stream(), odd_event());
    case 5:
      return plinth_stream_wait_event(odd_stream(), odd_event());
    case 6:
      return plinth_event_query(odd_event(), MAYBE(&answer));
    case 7:
      return plinth_event_synchronize(odd_event());
    case 8:
      return plinth_event_elapsed_time(odd_event(), odd_event(), MAYBE(&time));
    case 9:
      return plinth_event_device(odd_event(), MAYBE(&number));
    case 10:
      return plinth_event_native(odd_event(), MAYBE(&native));
    case 11:
      return plinth_event_ipc_handle(odd_event(), MAYBE(ipc_handle));
    default:
      pattern_fill(ipc_handle, sizeof ipc_handle, (unsigned)random_next(&state));
      event = NULL;
      status = plinth_event_from_ipc_handle(odd_device(), MAYBE(ipc_handle), MAYBE(&event));
      return event == NULL ? status : plinth_event_destroy(event);
  }
}

/* Data pointers are NULL or valid; sizes are in range, or exceed the address space. */
static plinth_status_t call_memory(void) {
  static void *pointer;
  static const unsigned char pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  void *memory = MAYBE(memories[chance(8)]);
  const size_t bytes = chance(4) == 0 ? SIZE_MAX - chance(3) : chance(KIB);
  plinth_status_t status = PLINTH_OK;
  switch (chance(9)) {
    case 0:
      pointer = NULL;
      status = plinth_device_malloc(odd_number(), odd_device(), MAYBE(&pointer));
      return pointer == NULL ? status : plinth_device_free(pointer);
    case 1:
      pointer = NULL;
      status = plinth_pinned_malloc(odd_number() % (4 * MIB), MAYBE(&pointer));
      return pointer == NULL ? status : plinth_pinned_free(pointer);
    case 2:
      return plinth_device_free(chance(2) == 0 ? (char *)memories[0] + 1 : (char *)(uintptr_t)chance(4096));
    case 3:
      return plinth_pinned_free(chance(2) == 0 ? (char *)pinned + 1 : (char *)(uintptr_t)chance(4096));
    case 4:
      return plinth_memcpy(memory, MAYBE(pinned), bytes, odd_stream());
    case 5:
      return plinth_memcpy(MAYBE(pinned), memory, bytes, odd_stream());
    case 6:
      return plinth_copy(memory, MAYBE(pinned), bytes, chance(2) == 0);
    case 7:
      return plinth_memset(MAYBE(pinned), (uint8_t)odd_number(), bytes, odd_stream());
    default:
      return plinth_memset_pattern(MAYBE(pinned + chance(4)), MAYBE(pattern), chance(6), bytes, odd_stream());
  }
}

static plinth_status_t call_other(void) {
  static int32_t number;
  static uint64_t count;
  static char *text;
  static void *function;
  static plinth_host_usage_t usage[2];
  static const char *const names[] = {"cuInit", "", "cuMemAlloc", "%s%n", "plinth", NULL};
  plinth_status_t status = plinth_device_count(&number);
  text = NULL;
  switch (chance(14)) {
    case 0:
      CHECK(plinth_status_name((plinth_status_t)odd_number()) != NULL);
      break;
    case 1:
      CHECK(plinth_status_string((plinth_status_t)odd_number()) != NULL);
      break;
    case 2:
      status = plinth_get_arch_list(MAYBE(&text));
      break;
    case 3:
      status = plinth_get_gencode_flags(MAYBE(&text));
      break;
    case 4:
      status = plinth_driver_calls(MAYBE(&text));
      break;
    case 5:
      status = plinth_set_sync_debug_mode((int32_t)(odd_number() | 4));
      break;
    case 6:
      status = plinth_get_sync_debug_mode(MAYBE(&number));
      break;
    case 7:
      status = plinth_sync_debug_warnings(MAYBE(&count));
      break;
    case 8:
      status = plinth_driver_call_count(names[chance(6)], MAYBE(&count));
      break;
    case 9:
      status = plinth_driver_call_cost(names[chance(6)], MAYBE(&count));
      break;
    case 10:
      status = plinth_driver_entry_point(names[chance(6)], MAYBE(&function));
      break;
    case 11:
      usage[0].struct_size = chance(sizeof usage);
      status = plinth_host_usage(MAYBE(usage));
      break;
    case 12:
      status = plinth_driver_version(MAYBE(&number));
      break;
    default:
      status = plinth_device_count(MAYBE(&number));
  }
  plinth_string_free(text);
  return status;
}

static void check_report(const plinth_sanitizer_report_t *report, void *context) {
  (void)context;
  CHECK(report->access->name != NULL && report->text != NULL && report->json != NULL);
}

/* The sanitizer records address ranges, and never accesses them. */
static plinth_status_t call_sanitizer(void) {
  static int32_t mode;
  static size_t reports;
  static uint64_t findings;
  static char *text;
  static plinth_sanitizer_access_t accesses[4];
  plinth_status_t status = PLINTH_OK;
  text = NULL;
  for (int index = 0; index < 4; index++) {
    accesses[index].struct_size = chance(20) == 0 ? chance(sizeof accesses[0]) : sizeof accesses[0];
    accesses[index].pointer = chance(2) == 0 ? memories[chance(8)] : (void *)(uintptr_t)odd_number();
    accesses[index].bytes = chance(2) == 0 ? chance(KIB) : (size_t)odd_number();
    accesses[index].kind = (uint32_t)(chance(8) == 0 ? odd_number() : 1 + chance(3));
  }
  const plinth_sanitizer_access_t one = accesses[0];
  switch (chance(14)) {
    case 0:
      status = plinth_sanitizer_enable((int32_t)(odd_number() | 4));
      break;
    case 1:
      status = plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT);
      break;
    case 2:
      status = chance(50) == 0 ? plinth_sanitizer_disable() : plinth_sanitizer_mode(MAYBE(&mode));
      break;
    case 3:
      status = plinth_sanitizer_operation(chance(9) == 0 ? NULL : "kernel", MAYBE(accesses), chance(5), odd_stream());
      break;
    case 4:
      status = plinth_sanitizer_host_operation(chance(9) == 0 ? NULL : "cpu", MAYBE(accesses), chance(5));
      break;
    case 5:
      status = plinth_sanitizer_wait_stream(odd_stream(), odd_stream());
      break;
    case 6:
      status = plinth_sanitizer_stream_done(odd_stream());
      break;
    case 7:
      status = plinth_sanitizer_count(MAYBE(&reports), MAYBE(&findings));
      break;
    case 8:
      status = chance(200) == 0 ? plinth_sanitizer_text(MAYBE(&text)) : plinth_sanitizer_count(&reports, NULL);
      break;
    case 9:
      status = chance(200) == 0 ? plinth_sanitizer_json(MAYBE(&text)) : plinth_sanitizer_count(&reports, NULL);
      break;
    case 10:
      status = chance(200) == 0 ? plinth_sanitizer_each(MAYBE(check_report), NULL) : plinth_sanitizer_clear();
      break;
    case 11:
      status = plinth_sanitizer_set_callback(MAYBE(check_report), NULL);
      break;
    default:
      status = plinth_sanitizer_access(one.pointer, one.bytes, one.kind, odd_stream());
  }
  plinth_string_free(text);
  return status;
}

static void expect_valid_status(plinth_status_t status) {
  CHECK(status >= PLINTH_OK && status < plinth_status_count());
  CHECK(status != PLINTH_ERROR_PANIC);
  CHECK(status != PLINTH_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(status, status);
}

static void set_up(uint64_t seed) {
  state = seed;
  pinned = (unsigned char *)pinned_memory(2 * KIB);
  for (int index = 0; index < 8; index++) {
    const int32_t device = index % device_count();
    events[index] = new_event(index % 4 == 0 ? PLINTH_EVENT_INTERPROCESS : PLINTH_EVENT_TIMING);
    streams[index] = stream_on(device);
    memories[index] = device_memory(KIB, device);
  }
}

static void fuzz(plinth_status_t (*call)(void), uint64_t seed) {
  set_up(seed);
  for (int round = 0; round < 20000; round++) {
    expect_valid_status(call());
    const int replaced = round % 8;
    if (round % 100 == 0) {
      (void)plinth_event_destroy(events[replaced]);
      events[replaced] = new_event(0);
    }
  }
  /* The library still works. */
  CHECK_OK(plinth_set_device(0));
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  CHECK_OK(plinth_set_stream(NULL));
  pattern_fill(pinned, KIB, 1);
  CHECK_OK(plinth_copy(memories[0], pinned, KIB, false));
  memset(pinned, 0, KIB);
  CHECK_OK(plinth_copy(pinned, memories[0], KIB, false));
  CHECK_EQ(pattern_mismatch(pinned, KIB, 1), KIB);
}

TEST(device_calls_survive_odd_arguments) { fuzz(call_device, 11); }

TEST(stream_calls_survive_odd_arguments) { fuzz(call_stream, 12); }

TEST(event_calls_survive_odd_arguments) { fuzz(call_event, 13); }

TEST(memory_calls_survive_odd_arguments) { fuzz(call_memory, 14); }

TEST(sanitizer_calls_survive_odd_arguments) { fuzz(call_sanitizer, 17); }

TEST(all_other_calls_survive_odd_arguments) { fuzz(call_other, 15); }

static plinth_status_t call_any(void) {
  static plinth_status_t (*const calls[])(void) = {call_device, call_stream, call_event, call_memory, call_other};
  return calls[chance(5)]();
}

TEST(all_calls_together_survive_odd_arguments) { fuzz(call_any, 16); }

/* More elements than there are addresses. */
#define TOO_MANY ((size_t)1 << 62)

TEST(counts_of_more_elements_than_addresses_are_refused) {
  int64_t length = 16;
  DLTensor tensor = {0}, output = {0};
  tensor.data = device_memory(KIB, 0);
  tensor.device.device_type = output.device.device_type = 2;
  tensor.ndim = output.ndim = 1;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = output.shape = &length;
  const int32_t number = 0;
  const uint8_t byte = 0;
  const plinth_pool_id_t pool = {0, 0};
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  plinth_kernel_module_t module = NULL;
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node = NULL;
  void *pointer = NULL;
  bool equal = false;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_STATUS(plinth_comm_broadcast(&tensor, &output, TOO_MANY), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&tensor, 1, &number, TOO_MANY, 0, &output), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("devices: 4611686018427387904 elements do not fit in the address space");
  CHECK_STATUS(plinth_ipc_import(&byte, SIZE_MAX, &number, 1, 0, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_import(&byte, 1, &number, TOO_MANY, 0, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_kernel_module_load(&byte, SIZE_MAX, 0, &module), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_add_empty(graph, &node, TOO_MANY, &node), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_pool_check_live_allocations(0, pool, &pointer, TOO_MANY, &equal), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_destroy(graph));
}

#define CHECK_NULL(call, name)                       \
  do {                                               \
    CHECK_STATUS(call, PLINTH_ERROR_NULL_POINTER);   \
    CHECK_TEXT(plinth_last_error(), name " is NULL"); \
  } while (0)

/* An object that must exist, of each type. */
TEST(a_handle_of_null_is_a_null_pointer) {
  int32_t number = 0;
  size_t count = 0;
  void *address = NULL;
  bool done = false;
  const DLTensor *inputs[1] = {NULL};
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  plinth_allocator_hooks_t hooks = PLINTH_ALLOCATOR_HOOKS_INIT;
  plinth_graph_context_t context;
  plinth_kernel_t kernel = NULL;
  plinth_pool_id_t pool = {0, 0};
  DLDataType type;
  int64_t shape[25];
  memset(&context, 0, sizeof context);
  CHECK_NULL(plinth_event_query(NULL, &done), "event");
  CHECK_NULL(plinth_graph_replay(NULL), "graph");
  CHECK_NULL(plinth_graph_end(&context, PLINTH_OK), "graph");
  CHECK_NULL(plinth_graphed_callable_reset(NULL), "callable");
  CHECK_NULL(plinth_green_context_num_sms(NULL, &number), "context");
  CHECK_NULL(plinth_communicator_rank(NULL, &number), "communicator");
  CHECK_NULL(plinth_store_set(NULL, "name", "", 0), "store");
  CHECK_NULL(plinth_cufft_plan_release(NULL), "plan");
  CHECK_NULL(plinth_memory_registration_dma_buf(NULL, &number, &count, &count), "registration");
  CHECK_NULL(plinth_kernel_attributes(NULL, &attributes), "kernel");
  CHECK_NULL(plinth_kernel_occupancy(NULL, 1, 0, &number), "kernel");
  CHECK_NULL(plinth_kernel_set_shared_memory_config(NULL, 0), "kernel");
  CHECK_NULL(plinth_kernel_symbol(NULL, "name", &address, &count), "kernel");
  CHECK_NULL(plinth_kernel_launch(NULL, &launch, NULL, 0, NULL), "kernel");
  CHECK_NULL(plinth_kernel_module_get_kernel(NULL, "name", &kernel), "module");
  CHECK_NULL(plinth_kernel_module_symbol(NULL, "name", &address, &count), "module");
  CHECK_NULL(plinth_jiterator_result(NULL, inputs, 0, &type, &number, shape), "function");
  CHECK_NULL(plinth_jiterator_call(NULL, NULL, 0, NULL, 0, NULL, 0, NULL), "function");
  CHECK_NULL(plinth_pool_checkpoint_restore(NULL, NULL, 0, NULL, NULL), "checkpoint");
  CHECK_NULL(plinth_pluggable_allocator_set_hooks(NULL, &hooks), "allocator");
  CHECK_NULL(plinth_mem_pool_create_with_allocator(NULL, false, false, &pool), "allocator");
  CHECK_NULL(plinth_change_current_allocator(NULL), "allocator");
  CHECK_NULL(plinth_telemetry_sampler_take(NULL, NULL, 0, &count, NULL), "sampler");
}
