/* The driver's functions that plinth uses: the list, call counts and entry points.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: a_count_of_an_unknown_call_is_refused; enables fault injection before the first call */
/* alone: calls_are_counted; enables fault injection before the first call */
#include "driver.h"
#include "support.h"

TEST(the_list_of_calls_has_three_words_a_line) {
  char *text = NULL;
  int lines = 0;
  bool found = false;
  CHECK_OK(plinth_driver_calls(&text));
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
    char name[64];
    char version[16];
    char need[16];
    char more[16];
    CHECK_EQ(sscanf(line, "%63s %15s %15s %15s", name, version, need, more), 3);
    CHECK(strncmp(name, "cu", 2) == 0);
    CHECK(strcmp(need, "required") == 0 || strcmp(need, "optional") == 0);
    found = found || strcmp(name, "cuStreamCreateWithPriority") == 0;
  }
  CHECK(found);
  CHECK(lines > 40);
  plinth_string_free(text);
}

TEST(every_call_of_the_list_has_an_entry_point) {
  char *text = NULL;
  CHECK_OK(plinth_driver_calls(&text));
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char name[64];
    void *function = NULL;
    CHECK_EQ(sscanf(line, "%63s", name), 1);
    CHECK_OK(plinth_driver_entry_point(name, &function));
    CHECK(function != NULL);
  }
  plinth_string_free(text);
}

TEST(a_call_is_found_with_and_without_its_version) {
  void *with = NULL;
  void *without = NULL;
  CHECK_OK(plinth_driver_entry_point("cuMemAlloc_v2", &with));
  CHECK_OK(plinth_driver_entry_point("cuMemAlloc", &without));
  CHECK_SAME(with, without);
}

TEST(an_unknown_call_is_refused) {
  const char *const names[] = {"", "cuMakeCoffee", "cuMemAlloc_v9", "CUINIT", "cuInit "};
  for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
    void *function = UNTOUCHED_POINTER;
    CHECK_STATUS(plinth_driver_entry_point(names[index], &function), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE(names[index]);
    CHECK_SAME(function, UNTOUCHED_POINTER);
  }
}

TEST(a_function_is_found_as_of_a_version) {
  void *now = NULL;
  void *before = UNTOUCHED_POINTER;
  int (*get_version)(int *) = NULL;
  int version = 0;
  CHECK_OK(plinth_driver_entry_point_by_version("cuDriverGetVersion", 12000, 0, (void **)&get_version));
  CHECK_EQ(get_version(&version), CUDA_SUCCESS);
  CHECK(version >= 12000);
  /* plinth uses the second version, which came with CUDA 3.2. */
  CHECK_OK(plinth_driver_entry_point_by_version("cuMemAlloc", version, 0, &now));
  CHECK(now != NULL);
  for (uint64_t flags = 1; flags <= 2; flags++) {
    void *variant = NULL;
    CHECK_OK(plinth_driver_entry_point_by_version("cuMemcpyAsync", version, flags, &variant));
    CHECK(variant != NULL);
  }
  CHECK_STATUS(plinth_driver_entry_point_by_version("cuGreenCtxCreate", 12000, 0, &before), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("\"cuGreenCtxCreate\" is no function of this driver as of CUDA 12.0");
  CHECK_STATUS(plinth_driver_entry_point_by_version("cuMakeCoffee", version, 0, &before), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_driver_entry_point_by_version("cuInit", version, 3, &before), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("flags is 3; it must be 0, 1 (the legacy default stream) or 2");
  CHECK_STATUS(plinth_driver_entry_point_by_version(NULL, version, 0, &before), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_entry_point_by_version("cuInit", version, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(before, UNTOUCHED_POINTER);
}

TEST(any_function_of_a_gpus_driver_is_found) {
  void *function = NULL;
  if (on_host_device()) {
    SKIP("is about GPUs");
  }
  CHECK_OK(plinth_driver_entry_point("cuArrayCreate", &function));
  CHECK(function != NULL);
  CHECK_OK(plinth_driver_entry_point("cuGetProcAddress", &function));
}

TEST(names_and_outputs_must_not_be_null) {
  void *function = UNTOUCHED_POINTER;
  uint64_t number = UNTOUCHED;
  CHECK_STATUS(plinth_driver_entry_point(NULL, &function), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_entry_point("cuInit", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_call_count(NULL, &number), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_call_count("cuInit", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_call_cost(NULL, &number), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_call_cost("cuInit", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_usage(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(function, UNTOUCHED_POINTER);
  CHECK_EQ(number, UNTOUCHED);
}

static uint64_t calls_of(const char *name) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

TEST(calls_are_counted) {
  CHECK_OK(plinth_enable_fault_injection());
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, stream));
  const uint64_t before = calls_of("cuEventRecord");
  for (int round = 0; round < 10; round++) {
    CHECK_OK(plinth_event_record(event, stream));
  }
  CHECK_EQ(calls_of("cuEventRecord") - before, 10);
  CHECK_EQ(calls_of("cuEventCreate"), 1);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(the_host_device_measures_the_cost_of_calls) {
  need_host_device();
  uint64_t before = 0;
  uint64_t after = 0;
  void *memory = device_memory(MIB, 0);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_driver_call_cost("cuMemAlloc", &before));
  CHECK(before > 0);
  memory = device_memory(MIB, 0);
  CHECK_OK(plinth_driver_call_cost("cuMemAlloc", &after));
  CHECK(after > before);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_count_of_an_unknown_call_is_refused) {
  uint64_t count = UNTOUCHED;
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_STATUS(plinth_driver_call_count("cuMakeCoffee", &count), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(count, UNTOUCHED);
}

TEST(usage_is_filled_up_to_struct_size) {
  need_host_device();
  struct {
    plinth_host_usage_t usage;
    unsigned char guard[32];
  } buffer;
  for (size_t size = 2 * sizeof(size_t); size <= sizeof buffer; size++) {
    memset(&buffer, 0xA5, sizeof buffer);
    buffer.usage.struct_size = size;
    CHECK_OK(plinth_host_usage(&buffer.usage));
    const size_t filled = size < sizeof buffer.usage ? size : sizeof buffer.usage;
    CHECK_EQ(buffer.usage.struct_size, filled);
    for (size_t byte = filled; byte < sizeof buffer; byte++) {
      CHECK_EQ(((unsigned char *)&buffer)[byte], 0xA5);
    }
  }
  buffer.usage.struct_size = 0;
  CHECK_STATUS(plinth_host_usage(&buffer.usage), PLINTH_ERROR_INVALID_VALUE);
}

TEST(usage_counts_live_resources) {
  need_host_device();
  void *first_memory = device_memory(MIB, 0);
  const plinth_host_usage_t before = host_usage();
  void *memory = device_memory(8 * MIB, 0);
  void *pinned = pinned_memory(MIB);
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  CHECK_OK(plinth_event_record(event, stream));
  const plinth_host_usage_t during = host_usage();
  CHECK_EQ(during.device_bytes - before.device_bytes, 8 * MIB);
  CHECK_EQ(during.pinned_bytes - before.pinned_bytes, MIB);
  CHECK_EQ(during.streams - before.streams, 1);
  CHECK_EQ(during.events - before.events, 1);
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_device_free(memory));
  const plinth_host_usage_t after = host_usage();
  CHECK_EQ(after.device_bytes, before.device_bytes);
  CHECK_EQ(after.pinned_bytes, before.pinned_bytes);
  CHECK_EQ(after.events, before.events);
  CHECK_OK(plinth_device_free(first_memory));
}

TEST(usage_and_cost_need_the_host_device) {
  plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
  uint64_t cost = UNTOUCHED;
  if (on_host_device()) {
    SKIP("is about GPUs");
  }
  CHECK_STATUS(plinth_host_usage(&usage), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_STATUS(plinth_driver_call_cost("cuInit", &cost), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cost, UNTOUCHED);
}
