/* Memory from the driver: device memory and pinned host memory. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: a_full_host_device_reports_it_and_recovers; expects what only a fresh process has */
#include "support.h"

static int32_t device_of(const void *pointer) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_device_of(pointer, &device));
  return device;
}

TEST(zero_bytes_are_null) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_device_malloc(0, 0, &pointer));
  CHECK(pointer == NULL);
  pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_pinned_malloc(0, &pointer));
  CHECK(pointer == NULL);
}

TEST(freeing_null_does_nothing) {
  CHECK_OK(plinth_device_free(NULL));
  CHECK_OK(plinth_pinned_free(NULL));
}

TEST(outputs_must_not_be_null) {
  CHECK_STATUS(plinth_device_malloc(KIB, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_device_malloc(0, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pinned_malloc(KIB, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pinned_malloc(0, NULL), PLINTH_ERROR_NULL_POINTER);
}

TEST(a_request_that_is_too_large_is_refused) {
  const size_t sizes[] = {(size_t)1 << 45, (size_t)1 << 60, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 4096,
                          SIZE_MAX - 1,    SIZE_MAX};
  for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
    void *pointer = UNTOUCHED_POINTER;
    CHECK_STATUS(plinth_device_malloc(sizes[index], 0, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(plinth_device_malloc(sizes[index], -1, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
  }
  void *memory = device_memory(MIB, 0);
  CHECK_OK(plinth_device_free(memory));
}

TEST(the_message_contains_request_free_and_total) {
  void *pointer = NULL;
  const int32_t device = device_count() - 1;
  char place[32];
  snprintf(place, sizeof place, "on device %d", (int)device);
  CHECK_STATUS(plinth_device_malloc((size_t)3 << 40, device, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("tried to allocate 3.00 TiB");
  CHECK_MESSAGE(place);
  CHECK_MESSAGE("free");
  CHECK_MESSAGE(" of ");
  CHECK_EQ(plinth_last_driver_error(), 2);
}

TEST(a_pinned_request_that_is_too_large_is_refused) {
  const size_t sizes[] = {(size_t)1 << 60, SIZE_MAX / 2 + 1, SIZE_MAX - 1, SIZE_MAX};
  for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
    void *pointer = UNTOUCHED_POINTER;
    CHECK_STATUS(plinth_pinned_malloc(sizes[index], &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("pinned");
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
  }
}

TEST(a_full_host_device_reports_it_and_recovers) {
  setenv("PLINTH_DEVICE", "host", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("PLINTH_HOST_MEMORY", "64MiB", 1);
  void *memory[3];
  void *pointer = UNTOUCHED_POINTER;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  for (int index = 0; index < 3; index++) {
    memory[index] = device_memory(20 * MIB, 0);
  }
  CHECK_OK(plinth_mem_get_info(0, &free_bytes, &total_bytes));
  CHECK_EQ(total_bytes, 64 * MIB);
  CHECK_EQ(free_bytes, 4 * MIB);
  CHECK_STATUS(plinth_device_malloc(20 * MIB, 0, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("20.00 MiB");
  CHECK_MESSAGE("4.00 MiB of 64.00 MiB");
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  /* The other device has its own memory. */
  void *elsewhere = device_memory(20 * MIB, 1);
  CHECK_OK(plinth_device_free(memory[1]));
  memory[1] = device_memory(20 * MIB, 0);
  for (int index = 0; index < 3; index++) {
    CHECK_OK(plinth_device_free(memory[index]));
  }
  CHECK_OK(plinth_device_free(elsewhere));
}

TEST(allocations_are_aligned_and_do_not_overlap) {
  enum { COUNT = 100 };
  unsigned char *memory[COUNT];
  size_t sizes[COUNT];
  unsigned char *scratch = (unsigned char *)pageable_memory(128 * KIB);
  uint64_t state = 3;
  for (int index = 0; index < COUNT; index++) {
    sizes[index] = 1 + random_next(&state) % (100 * KIB);
    memory[index] = (unsigned char *)device_memory(sizes[index], 0);
    CHECK_EQ((uintptr_t)memory[index] % 256, 0);
    pattern_fill(scratch, sizes[index], (unsigned)index);
    put(memory[index], scratch, sizes[index]);
  }
  for (int index = 0; index < COUNT; index++) {
    fetch(scratch, memory[index], sizes[index]);
    CHECK_EQ(pattern_mismatch(scratch, sizes[index], (unsigned)index), sizes[index]);
    CHECK_OK(plinth_device_free(memory[index]));
  }
  free(scratch);
}

TEST(pinned_memory_is_host_memory) {
  unsigned char *memory = (unsigned char *)pinned_memory(3 * MIB + 1);
  CHECK_EQ((uintptr_t)memory % 4096, 0);
  CHECK_EQ(device_of(memory), -1);
  pattern_fill(memory, 3 * MIB + 1, 1);
  CHECK_EQ(pattern_mismatch(memory, 3 * MIB + 1, 1), 3 * MIB + 1);
  CHECK_OK(plinth_pinned_free(memory));
}

TEST(memory_is_freed_once) {
  void *memory = device_memory(MIB, 0);
  void *pinned = pinned_memory(MIB);
  CHECK_OK(plinth_device_free(memory));
  CHECK_STATUS(plinth_device_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("plinth_device_malloc");
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_STATUS(plinth_pinned_free(pinned), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("plinth_pinned_malloc");
}

TEST(pointers_that_were_not_allocated_are_refused) {
  int on_stack = 0;
  void *heap = pageable_memory(KIB);
  uint64_t state = 4;
  CHECK_STATUS(plinth_device_free(&on_stack), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(&on_stack), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_device_free(heap), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(heap), PLINTH_ERROR_INVALID_POINTER);
  for (int round = 0; round < 200; round++) {
    void *random = (void *)(uintptr_t)(random_next(&state) >> (round % 40) | 1);
    CHECK_STATUS(plinth_device_free(random), PLINTH_ERROR_INVALID_POINTER);
    CHECK_STATUS(plinth_pinned_free(random), PLINTH_ERROR_INVALID_POINTER);
  }
  free(heap);
}

TEST(addresses_within_an_allocation_are_refused) {
  unsigned char *memory = (unsigned char *)device_memory(8 * MIB, 0);
  unsigned char *pinned = (unsigned char *)pinned_memory(MIB);
  const size_t offsets[] = {1, 256, 4096, MIB / 2, MIB - 1};
  for (int index = 0; index < 5; index++) {
    CHECK_STATUS(plinth_device_free(memory + offsets[index]), PLINTH_ERROR_INVALID_POINTER);
    CHECK_STATUS(plinth_pinned_free(pinned + offsets[index]), PLINTH_ERROR_INVALID_POINTER);
  }
  CHECK_STATUS(plinth_device_free(memory + 2 * MIB), PLINTH_ERROR_INVALID_POINTER);
  /* The memory is unchanged. */
  pattern_fill(pinned, MIB, 5);
  put(memory + 7 * MIB, pinned, MIB);
  memset(pinned, 0, MIB);
  fetch(pinned, memory + 7 * MIB, MIB);
  CHECK_EQ(pattern_mismatch(pinned, MIB, 5), MIB);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(each_kind_of_memory_has_its_own_free) {
  void *memory = device_memory(MIB, 0);
  void *pinned = pinned_memory(MIB);
  CHECK_STATUS(plinth_device_free(pinned), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(memory_is_on_the_requested_device) {
  for (int32_t device = 0; device < device_count(); device++) {
    unsigned char *memory = (unsigned char *)device_memory(5 * MIB, device);
    int32_t current = UNTOUCHED;
    CHECK_EQ(device_of(memory), device);
    CHECK_EQ(device_of(memory + 1), device);
    CHECK_EQ(device_of(memory + 4 * MIB + 77), device);
    CHECK_EQ(device_of(memory + 5 * MIB - 1), device);
    CHECK_OK(plinth_current_device(&current));
    CHECK_EQ(current, 0);
    CHECK_OK(plinth_device_free(memory));
    CHECK_EQ(device_of(memory), -1);
  }
}

TEST(other_addresses_are_on_no_device) {
  int on_stack = 0;
  uint64_t state = 5;
  CHECK_EQ(device_of(NULL), -1);
  CHECK_EQ(device_of(&on_stack), -1);
  CHECK_EQ(device_of((void *)UINTPTR_MAX), -1);
  CHECK_EQ(device_of((void *)(uintptr_t)1), -1);
  for (int round = 0; round < 200; round++) {
    CHECK_EQ(device_of((void *)(uintptr_t)(random_next(&state) >> (round % 20))), -1);
  }
}

TEST(free_waits_for_the_devices_work) {
  plinth_stream_t stream = stream_on(0);
  void *memory = device_memory(MIB, 0);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_device_free(memory));
  CHECK(gate_is_open(held));
  CHECK(stream_done(stream));
  pthread_join(opener, NULL);
}

static void *allocate_and_free(void *context) {
  const int32_t device = *(int *)context % device_count();
  for (int round = 0; round < 50; round++) {
    void *memory = device_memory(KIB << (round % 8), device);
    void *pinned = pinned_memory(KIB);
    CHECK_EQ(device_of(memory), device);
    CHECK_OK(plinth_pinned_free(pinned));
    CHECK_OK(plinth_device_free(memory));
  }
  return NULL;
}

TEST(sixteen_threads_allocate_and_free) { run_threads(16, allocate_and_free); }
