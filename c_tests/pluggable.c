/* The allocator in the forms that PyTorch, CuPy and RMM load. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* A forked child has none of its parent's threads, so a leak sanitizer would report their memory. Disable it. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: all; forks children that use the device */
#include "allocating.h"
#include "driver.h"
#include "process.h"

#include <sys/types.h>

static const int SIZE = 3 * 1024 * 1024 + 100;

/* The types with which PyTorch calls the functions. These assignments check them at compile time. */
static void *(*const torch_alloc)(ssize_t, int, plinth_stream_t) = plinth_alloc;
static void (*const torch_free)(void *, ssize_t, int, plinth_stream_t) = plinth_free;
static void *(*const torch_base_alloc)(void *, size_t *) = plinth_pluggable_base_alloc;
static void (*const torch_record_stream)(void *, plinth_stream_t) = plinth_pluggable_record_stream;

TEST(alloc_and_free) {
  plinth_stream_t stream = stream_on(0);
  void *memory = torch_alloc(SIZE, 0, stream);
  CHECK(memory != NULL);
  CHECK_TEXT(plinth_last_error(), "");
  CHECK_EQ((uintptr_t)memory % UNIT, 0);
  CHECK_EQ(allocated(0), rounded((size_t)SIZE));
  CHECK_OK(plinth_memset(memory, 1, (size_t)SIZE, stream));
  torch_free(memory, SIZE, 0, stream);
  CHECK_TEXT(plinth_last_error(), "");
  CHECK_EQ(allocated(0), 0);
  /* It is the same allocator as that of plinth_caching_allocator_alloc. */
  CHECK_SAME(alloc_on((size_t)SIZE, 0, stream), memory);
  torch_free(memory, SIZE, 0, stream);
  memory = torch_alloc(SIZE, 0, NULL);
  release(memory);
  expect_nothing_left();
}

TEST(zero_bytes_are_null) {
  CHECK(torch_alloc(0, 0, NULL) == NULL);
  CHECK_TEXT(plinth_last_error(), "");
  torch_free(NULL, 0, 0, NULL);
  CHECK_TEXT(plinth_last_error(), "");
}

TEST(a_failure_returns_null_and_sets_the_message) {
  CHECK(torch_alloc((ssize_t)1 << 45, 0, NULL) == NULL);
  CHECK_MESSAGE("32.00 TiB");
  CHECK(torch_alloc(-1, 0, NULL) == NULL);
  CHECK(plinth_last_error()[0] != '\0');
  CHECK(torch_alloc(SIZE, 1000, NULL) == NULL);
  CHECK_MESSAGE("1000");
  void *memory = torch_alloc(SIZE, 0, NULL);
  CHECK(memory != NULL);
  torch_free((char *)memory + 512, SIZE, 0, NULL);
  CHECK(plinth_last_error()[0] != '\0');
  CHECK_EQ(allocated(0), rounded((size_t)SIZE));
  torch_free(memory, SIZE, 0, NULL);
  torch_free(memory, SIZE, 0, NULL);
  CHECK(plinth_last_error()[0] != '\0');
  expect_nothing_left();
}

TEST(cached_memory_of_other_streams_is_tried_before_failing) {
  limit_memory(128 * MIB, 0);
  void *memory = torch_alloc(100 << 20, 0, stream_on(0));
  CHECK(memory != NULL);
  torch_free(memory, 100 << 20, 0, NULL);
  memory = torch_alloc(100 << 20, 0, stream_on(0));
  CHECK(memory != NULL);
  torch_free(memory, 100 << 20, 0, NULL);
  expect_nothing_left();
}

TEST(memory_is_on_the_given_device) {
  need_devices(2);
  int32_t device = UNTOUCHED;
  void *memory = torch_alloc(SIZE, 1, NULL);
  CHECK_OK(plinth_device_of(memory, &device));
  CHECK_EQ(device, 1);
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  torch_free(memory, SIZE, 1, NULL);
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  expect_nothing_left();
}

TEST(init_may_be_called_several_times) {
  plinth_pluggable_init(0);
  plinth_pluggable_init(device_count());
  plinth_pluggable_init(device_count());
  CHECK_TEXT(plinth_last_error(), "");
  void *memory = torch_alloc(SIZE, 0, NULL);
  CHECK(memory != NULL);
  torch_free(memory, SIZE, 0, NULL);
  expect_nothing_left();
}

TEST(reset_empties_the_cache) {
  torch_free(torch_alloc(SIZE, 0, NULL), SIZE, 0, NULL);
  CHECK(reserved(0) > 0);
  plinth_pluggable_reset();
  CHECK_EQ(reserved(0), 0);
  plinth_pluggable_reset();
}

TEST(the_memory_fraction_can_be_set) {
  double fraction = 0;
  plinth_pluggable_memory_fraction(0.25, 0);
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction > 0.2499 && fraction < 0.2501);
  plinth_pluggable_memory_fraction(7.0, 0);
  CHECK_MESSAGE("fraction");
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction > 0.2499 && fraction < 0.2501);
  plinth_pluggable_memory_fraction(1.0, 0);
}

TEST(the_base_of_an_address_is_found) {
  size_t bytes = UNTOUCHED;
  void *memory = torch_alloc(SIZE, 0, NULL);
  char *base = (char *)torch_base_alloc(memory, &bytes);
  /* The range from the base must contain the block. */
  CHECK(base != NULL);
  CHECK(base <= (char *)memory);
  CHECK(base + bytes >= (char *)memory + SIZE);
  CHECK(torch_base_alloc(memory, NULL) == (void *)base);
  torch_free(memory, SIZE, 0, NULL);
  expect_nothing_left();
}

TEST(another_stream_may_be_recorded) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory = torch_alloc(SIZE, 0, own);
  gate *shut = hold(other);
  torch_record_stream(memory, other);
  CHECK_TEXT(plinth_last_error(), "");
  torch_free(memory, SIZE, 0, own);
  void *next = torch_alloc(SIZE, 0, own);
  CHECK(!overlap(next, (size_t)SIZE, memory, (size_t)SIZE));
  torch_free(next, SIZE, 0, own);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  torch_record_stream(NULL, other);
  expect_nothing_left();
}

/* PyTorch creates its streams itself, and does not pass them to plinth_stream_from_external. */
TEST(unknown_streams_can_allocate) {
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  plinth_stream_t own = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
  plinth_stream_t other = foreign_stream(0, CU_STREAM_NON_BLOCKING, -1);
  void *memory = torch_alloc(SIZE, 0, own);
  CHECK(memory != NULL);
  torch_record_stream(memory, other);
  CHECK_TEXT(plinth_last_error(), "");
  torch_free(memory, SIZE, 0, own);
  CHECK_TEXT(plinth_last_error(), "");
  memory = torch_alloc(SIZE, 0, other);
  CHECK(memory != NULL);
  torch_free(memory, SIZE, 0, other);
  expect_nothing_left();
  CHECK_EQ(destroy(own), CUDA_SUCCESS);
  CHECK_EQ(destroy(other), CUDA_SUCCESS);
}

TEST(a_graph_has_its_pool) {
  const plinth_pool_id_t pool = {777, 0};
  plinth_stream_t stream = stream_on(0);
  size_t bytes = 0;
  size_t held = 0;
  int filter = 0;
  void *graph = NULL;
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  plinth_pluggable_begin_allocate_to_pool(0, pool, &filter);
  CHECK_TEXT(plinth_last_error(), "");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  void *memory = torch_alloc(SIZE, 0, stream);
  CHECK(memory != NULL);
  CHECK_OK(plinth_memset(memory, 1, (size_t)SIZE, stream));
  torch_free(memory, SIZE, 0, stream);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  plinth_pluggable_end_allocate_to_pool(0, pool);
  CHECK_TEXT(plinth_last_error(), "");
  void *eager = torch_alloc(SIZE, 0, stream);
  CHECK(!overlap(eager, (size_t)SIZE, memory, (size_t)SIZE));
  CHECK_OK(plinth_mem_pool_memory(pool, 0, &bytes, &held));
  CHECK(bytes == 0 && held >= (size_t)SIZE);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  plinth_pluggable_release_pool(0, pool);
  CHECK_TEXT(plinth_last_error(), "");
  plinth_pluggable_end_allocate_to_pool(0, pool);
  CHECK(plinth_last_error()[0] != '\0');
  torch_free(eager, SIZE, 0, stream);
  expect_nothing_left();
}

static plinth_pool_id_t shared_pool;

static void *end_and_release(void *context) {
  (void)context;
  plinth_pluggable_end_allocate_to_pool(0, shared_pool);
  CHECK_TEXT(plinth_last_error(), "");
  plinth_pluggable_release_pool(0, shared_pool);
  CHECK_TEXT(plinth_last_error(), "");
  return NULL;
}

/* PyTorch numbers its pools by itself, so its ids may be those of plinth's pools, and names other pools. Any thread may end
 * the allocation to one. */
TEST(ids_of_pytorch_are_separate_from_those_of_plinth) {
  plinth_pool_id_t own = {0, 0};
  size_t bytes = 0;
  size_t held = 0;
  CHECK_OK(plinth_mem_pool_create(false, false, &own));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, own));
  void *memory = torch_alloc(SIZE, 0, NULL);
  shared_pool = own;
  plinth_pluggable_begin_allocate_to_pool(0, own, NULL);
  CHECK_TEXT(plinth_last_error(), "");
  run_threads(1, end_and_release);
  CHECK_OK(plinth_mem_pool_memory(own, 0, &bytes, &held));
  CHECK_EQ(bytes, rounded((size_t)SIZE));
  CHECK_OK(plinth_end_allocate_to_pool(0, own));
  /* The hooks do not end what plinth's own call began, and the other way round. */
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, own));
  plinth_pluggable_end_allocate_to_pool(0, own);
  CHECK(strstr(plinth_last_error(), "not currently recording") != NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, own));
  plinth_pluggable_begin_allocate_to_pool(0, own, NULL);
  CHECK_STATUS(plinth_end_allocate_to_pool(0, own), PLINTH_ERROR_INVALID_VALUE);
  run_threads(1, end_and_release);
  torch_free(memory, SIZE, 0, NULL);
  for (int references = 0; references < 2; references++) {
    CHECK_OK(plinth_release_pool(0, own));
  }
  CHECK_OK(plinth_mem_pool_destroy(own));
  /* An id that plinth has not issued names the pool of PyTorch as long as there is one. */
  shared_pool = (plinth_pool_id_t){0, 1000001};
  CHECK_STATUS(plinth_mem_pool_set_budget(shared_pool, MIB), PLINTH_ERROR_INVALID_HANDLE);
  plinth_pluggable_begin_allocate_to_pool(0, shared_pool, NULL);
  CHECK_OK(plinth_mem_pool_set_budget(shared_pool, MIB));
  CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(0, shared_pool), PLINTH_ERROR_INVALID_HANDLE);
  run_threads(1, end_and_release);
  CHECK_STATUS(plinth_mem_pool_get_budget(shared_pool, &bytes), PLINTH_ERROR_INVALID_HANDLE);
  expect_nothing_left();
}

/* As PyTorch's test_graph_record_stream: memory that another stream still uses is freed before a capture. Memory of the
 * capture is recorded for, and freed in, a stream that plinth does not know and that also captures. */
static void record_streams_of_a_capture(unsigned mode) {
  const plinth_pool_id_t pool = {778, 0};
  plinth_stream_t busy = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
  plinth_stream_t known = NULL;
  plinth_stream_t stream = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
  plinth_stream_t side = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
  void *fork = NULL, *join = NULL, *graph = NULL;
  DRIVER(driver_event_create, create, "cuEventCreate");
  DRIVER(driver_event_record, record, "cuEventRecord");
  DRIVER(driver_stream_wait_event, wait, "cuStreamWaitEvent");
  DRIVER(driver_fill, fill, "cuMemsetD8Async");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  CHECK_EQ(create(&fork, 2), CUDA_SUCCESS);
  CHECK_EQ(create(&join, 2), CUDA_SUCCESS);
  void *used = torch_alloc(SIZE, 0, NULL);
  CHECK(used != NULL);
  CHECK_OK(plinth_synchronize(0));
  torch_record_stream(used, busy);
  CHECK_TEXT(plinth_last_error(), "");
  CHECK_OK(plinth_stream_from_external(busy, 0, &known));
  CHECK_OK(plinth_sleep(100000000, known));
  torch_free(used, SIZE, 0, NULL);
  plinth_pluggable_begin_allocate_to_pool(0, pool, NULL);
  begin_capture(stream, mode);
  void *memory = torch_alloc(SIZE, 0, stream);
  CHECK(memory != NULL);
  CHECK_EQ(record(fork, stream), CUDA_SUCCESS);
  CHECK_EQ(wait(side, fork, 0), CUDA_SUCCESS);
  CHECK_EQ(fill((unsigned long long)(uintptr_t)memory, 1, (size_t)SIZE, side), CUDA_SUCCESS);
  torch_record_stream(memory, side);
  CHECK_TEXT(plinth_last_error(), "");
  torch_free(memory, SIZE, 0, stream);
  CHECK_TEXT(plinth_last_error(), "");
  CHECK_EQ(record(join, side), CUDA_SUCCESS);
  CHECK_EQ(wait(stream, join, 0), CUDA_SUCCESS);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  plinth_pluggable_end_allocate_to_pool(0, pool);
  CHECK_OK(plinth_synchronize(0));
  /* The pending blocks are free now. */
  void *next = torch_alloc(SIZE, 0, NULL);
  CHECK(next != NULL);
  torch_free(next, SIZE, 0, NULL);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  plinth_pluggable_release_pool(0, pool);
  CHECK_TEXT(plinth_last_error(), "");
  expect_nothing_left();
}

TEST(streams_of_a_global_capture_may_be_recorded) { record_streams_of_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL); }
TEST(streams_of_a_thread_local_capture_may_be_recorded) {
  record_streams_of_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
TEST(streams_of_a_relaxed_capture_may_be_recorded) { record_streams_of_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED); }

TEST(functions_for_cupy) {
  int parameter = 0;
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  gate *shut = hold(stream);
  void *memory = plinth_cupy_malloc(&parameter, (size_t)SIZE, 0);
  CHECK(memory != NULL);
  CHECK_EQ(allocated(0), rounded((size_t)SIZE));
  plinth_cupy_free(&parameter, memory, 0);
  /* The memory belongs to the current stream. */
  CHECK_SAME(alloc_on((size_t)SIZE, 0, stream), memory);
  release(memory);
  void *other = alloc_on((size_t)SIZE, 0, NULL);
  CHECK(!overlap(other, (size_t)SIZE, memory, (size_t)SIZE));
  release(other);
  expect_held(shut);
  gate_open(shut);
  CHECK(plinth_cupy_malloc(NULL, 0, 0) == NULL);
  plinth_cupy_free(NULL, NULL, 0);
  CHECK(plinth_cupy_malloc(NULL, SIZE_MAX / 2, 0) == NULL);
  CHECK(plinth_last_error()[0] != '\0');
  expect_nothing_left();
}

TEST(functions_for_rmm) {
  int argument = 0;
  const int32_t last = device_count() - 1;
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_set_device(last));
  plinth_stream_t stream = stream_on(last);
  void *memory = plinth_rmm_allocate((size_t)SIZE, stream, &argument);
  CHECK(memory != NULL);
  CHECK_OK(plinth_device_of(memory, &device));
  CHECK_EQ(device, last);
  CHECK_EQ(allocated(last), rounded((size_t)SIZE));
  plinth_rmm_deallocate(memory, (size_t)SIZE, stream, &argument);
  CHECK_EQ(allocated(last), 0);
  CHECK(plinth_rmm_allocate(0, stream, NULL) == NULL);
  plinth_rmm_deallocate(NULL, 0, stream, NULL);
  CHECK(plinth_rmm_allocate(SIZE_MAX - 5, stream, NULL) == NULL);
  CHECK(plinth_last_error()[0] != '\0');
  expect_nothing_left();
}

static void *call_from_a_thread(void *context) {
  const int thread = *(int *)context;
  const int device = thread % device_count();
  plinth_stream_t stream = stream_on(device);
  uint64_t state = (uint64_t)thread;
  for (int round = 0; round < 200; round++) {
    void *memory[3];
    const ssize_t bytes = (ssize_t)(1 + random_next(&state) % (2 * MIB));
    CHECK_OK(plinth_set_device(device));
    memory[0] = torch_alloc(bytes, device, stream);
    memory[1] = plinth_cupy_malloc(NULL, (size_t)bytes, device);
    memory[2] = plinth_rmm_allocate((size_t)bytes, stream, NULL);
    CHECK(memory[0] != NULL && memory[1] != NULL && memory[2] != NULL);
    torch_record_stream(memory[0], stream_on(device));
    torch_free(memory[0], bytes, device, stream);
    plinth_cupy_free(NULL, memory[1], device);
    plinth_rmm_deallocate(memory[2], (size_t)bytes, stream, NULL);
  }
  return NULL;
}

TEST(threads_call_at_once) {
  run_threads(16, call_from_a_thread);
  expect_nothing_left();
}

/* ---- frees while the process exits */

static void *late_blocks[4];

static void allocate_for_later(void) {
  for (int index = 0; index < 4; index++) {
    late_blocks[index] = torch_alloc(SIZE, index % device_count(), NULL);
    CHECK(late_blocks[index] != NULL);
    CHECK_OK(plinth_set_device(index % device_count()));
    CHECK_OK(plinth_memset(late_blocks[index], 1, (size_t)SIZE, NULL));
  }
  CHECK_OK(plinth_set_device(0));
}

static void free_late(void) {
  for (int index = 0; index < 4; index++) {
    torch_record_stream(late_blocks[index], (plinth_stream_t)(uintptr_t)1);
    torch_free(late_blocks[index], SIZE, index % 2, NULL);
    torch_free(late_blocks[index], SIZE, index % 2, NULL);
  }
  plinth_pluggable_reset();
  torch_free(torch_alloc(SIZE, 0, NULL), SIZE, 0, NULL);
  plinth_cupy_free(NULL, plinth_cupy_malloc(NULL, 100, 0), 0);
  (void)plinth_empty_cache();
  (void)plinth_last_error();
}

static void exit_with_an_early_handler(void) {
  CHECK(atexit(free_late) == 0);
  allocate_for_later();
  exit(7);
}

TEST(an_early_exit_handler_may_free) { expect_child(start_child(exit_with_an_early_handler), 7); }

static void exit_with_a_late_handler(void) {
  allocate_for_later();
  CHECK(atexit(free_late) == 0);
  exit(7);
}

TEST(a_late_exit_handler_may_free) { expect_child(start_child(exit_with_a_late_handler), 7); }

static int destructor_frees;

__attribute__((destructor)) static void free_in_destructor(void) {
  if (destructor_frees) {
    free_late();
  }
}

static void exit_with_a_destructor(void) {
  destructor_frees = 1;
  allocate_for_later();
  exit(7);
}

TEST(a_destructor_may_free) { expect_child(start_child(exit_with_a_destructor), 7); }

static void exit_without_freeing(void) {
  allocate_for_later();
  exit(7);
}

TEST(a_process_may_exit_without_freeing) { expect_child(start_child(exit_without_freeing), 7); }

static void *call_forever(void *context) {
  (void)context;
  for (;;) {
    torch_free(torch_alloc(SIZE, 0, NULL), SIZE, 0, NULL);
    (void)plinth_empty_cache();
  }
  return NULL;
}

static void exit_while_threads_call(void) {
  pthread_t thread;
  allocate_for_later();
  for (int index = 0; index < 8; index++) {
    CHECK(pthread_create(&thread, NULL, call_forever, NULL) == 0);
  }
  sleep_milliseconds(30);
  exit(7);
}

TEST(threads_may_call_while_the_process_exits) {
  for (int round = 0; round < 5; round++) {
    expect_child(start_child(exit_while_threads_call), 7);
  }
}

static void use_blocks_of_parent(void) {
  /* A child cannot use its parent's device: calls fail or do nothing. */
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, &pointer), PLINTH_ERROR_FORKED_CHILD);
  const plinth_status_t freed = plinth_caching_allocator_delete(late_blocks[0]);
  CHECK(freed == PLINTH_OK || freed == PLINTH_ERROR_FORKED_CHILD);
  CHECK(torch_alloc(SIZE, 0, NULL) == NULL);
  CHECK(plinth_last_error()[0] != '\0');
  torch_free(late_blocks[1], SIZE, 0, NULL);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
}

TEST(a_forked_child_is_refused) {
  allocate_for_later();
  in_child(use_blocks_of_parent);
  for (int index = 0; index < 4; index++) {
    torch_free(late_blocks[index], SIZE, index % device_count(), NULL);
  }
  expect_nothing_left();
}
