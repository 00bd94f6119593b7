/* Devices: the current device, properties, and peer access. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: maybe_exchange_creates_no_context; expects a new process */
/* alone: the_list_is_empty_without_a_device; expects a new process */
/* alone: exchange_creates_a_context; expects a new process */
#include "driver.h"
#include "support.h"

#include <ctype.h>
#include <stddef.h>

static int32_t current(void) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_current_device(&device));
  return device;
}

TEST(device_0_is_current_initially) { CHECK_EQ(current(), 0); }

TEST(set_device_makes_current) {
  need_devices(2);
  int native = -1;
  int wanted = -1;
  DRIVER(driver_context_device, context_device, "cuCtxGetDevice");
  DRIVER(driver_device_get, get, "cuDeviceGet");
  CHECK_OK(plinth_set_device(1));
  CHECK_EQ(current(), 1);
  CHECK_EQ(get(&wanted, 1), CUDA_SUCCESS);
  CHECK_EQ(context_device(&native), CUDA_SUCCESS);
  CHECK_EQ(native, wanted);
  CHECK_OK(plinth_set_device(0));
  CHECK_EQ(current(), 0);
}

TEST(set_device_does_nothing_for_a_negative_number) {
  need_devices(2);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_set_device(-1));
  CHECK_OK(plinth_set_device(-2));
  CHECK_OK(plinth_set_device(INT32_MIN));
  CHECK_EQ(current(), 1);
}

TEST(exchange_returns_the_previous_device) {
  need_devices(2);
  int32_t previous = UNTOUCHED;
  CHECK_OK(plinth_exchange_device(1, &previous));
  CHECK_EQ(previous, 0);
  CHECK_EQ(current(), 1);
  CHECK_OK(plinth_exchange_device(1, &previous));
  CHECK_EQ(previous, 1);
  CHECK_OK(plinth_maybe_exchange_device(0, &previous));
  CHECK_EQ(previous, 1);
  CHECK_EQ(current(), 0);
}

TEST(exchange_of_a_negative_number_changes_nothing) {
  need_devices(2);
  CHECK_OK(plinth_set_device(1));
  const int32_t numbers[] = {-1, -2, INT32_MIN};
  for (int index = 0; index < 3; index++) {
    int32_t previous = UNTOUCHED;
    CHECK_OK(plinth_exchange_device(numbers[index], &previous));
    CHECK_EQ(previous, -1);
    previous = UNTOUCHED;
    CHECK_OK(plinth_maybe_exchange_device(numbers[index], &previous));
    CHECK_EQ(previous, -1);
    CHECK_EQ(current(), 1);
  }
}

TEST(maybe_exchange_creates_no_context) {
  need_devices(2);
  int32_t previous = UNTOUCHED;
  bool can_access = false;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_maybe_exchange_device(1, &previous));
  CHECK_EQ(current(), 1);
  CHECK_OK(plinth_can_device_access_peer(0, 1, &can_access));
  CHECK(!has_context(0));
  CHECK(!has_context(1));
  CHECK_OK(plinth_mem_get_info(-1, &free_bytes, &total_bytes));
  CHECK(has_context(1));
  CHECK(!has_context(0));
}

TEST(exchange_creates_a_context) {
  need_devices(2);
  int32_t previous = UNTOUCHED;
  CHECK_OK(plinth_exchange_device(1, &previous));
  CHECK(has_context(1));
  CHECK(!has_context(0));
}

TEST(exchange_device_of_selects_the_device_of_the_memory) {
  need_devices(2);
  void *memory = device_memory(MIB, 1);
  int32_t previous = UNTOUCHED;
  CHECK_EQ(current(), 0);
  CHECK_OK(plinth_exchange_device_of((char *)memory + 12345, &previous));
  CHECK_EQ(previous, 0);
  CHECK_EQ(current(), 1);
  CHECK_OK(plinth_maybe_exchange_device(previous, &previous));
  CHECK_EQ(current(), 0);
  CHECK_OK(plinth_device_free(memory));
}

TEST(exchange_device_of_changes_nothing_for_host_memory) {
  int32_t on_stack = 0;
  void *pinned = pinned_memory(KIB);
  const void *const pointers[] = {NULL, &on_stack, pinned, UNTOUCHED_POINTER};
  for (int index = 0; index < 4; index++) {
    int32_t previous = UNTOUCHED;
    CHECK_OK(plinth_exchange_device_of(pointers[index], &previous));
    CHECK_EQ(previous, -1);
    CHECK_EQ(current(), 0);
  }
  CHECK_OK(plinth_pinned_free(pinned));
}

/* Calls every function that takes a device, with an invalid one. */
static void expect_no_such_device(int32_t number) {
  int32_t first = UNTOUCHED;
  int32_t second = UNTOUCHED;
  bool answer = true;
  size_t free_bytes = UNTOUCHED;
  size_t total_bytes = UNTOUCHED;
  void *pointer = UNTOUCHED_POINTER;
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  plinth_event_t event = (plinth_event_t)UNTOUCHED_POINTER;
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE] = {0};
  char name[8] = "before";
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  char text[16];
  snprintf(text, sizeof text, "%d", (int)number);

  CHECK_STATUS(plinth_get_device_name(number, name, sizeof name), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE(text);
  CHECK_STATUS(plinth_get_device_capability(number, &first, &second), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_get_device_properties(number, &properties), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_can_device_access_peer(number, 0, &answer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_can_device_access_peer(0, number, &answer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_enable_peer_access(number, 0), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_enable_peer_access(0, number), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_disable_peer_access(number, 0), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_disable_peer_access(0, number), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_synchronize(number), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_mem_get_info(number, &free_bytes, &total_bytes), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_device_malloc(1024, number, &pointer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_device_malloc(0, number, &pointer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_stream_create(number, 0, &stream), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_stream_from_external(NULL, number, &stream), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_current_stream(number, &stream), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_default_stream(number, &stream), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_stream_priority_range(number, &first, &second), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_event_from_ipc_handle(number, ipc_handle, &event), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE(text);
  if (number >= 0) {
    CHECK_STATUS(plinth_set_device(number), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_exchange_device(number, &first), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_maybe_exchange_device(number, &first), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_MESSAGE(text);
  }

  CHECK_EQ(first, UNTOUCHED);
  CHECK_EQ(second, UNTOUCHED);
  CHECK(answer);
  CHECK_EQ(free_bytes, UNTOUCHED);
  CHECK_EQ(total_bytes, UNTOUCHED);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_SAME(stream, UNTOUCHED_POINTER);
  CHECK_SAME(event, UNTOUCHED_POINTER);
  CHECK_TEXT(name, "before");
  CHECK_EQ(properties.struct_size, sizeof properties);
  CHECK_EQ(properties.total_memory, 0);
  CHECK_EQ(current(), 0);
}

TEST(numbers_beyond_the_last_device_are_refused) {
  const int32_t count = device_count();
  const int32_t numbers[] = {count, count + 1, 63, 64, 65, 1000, INT32_MAX};
  for (size_t index = 0; index < sizeof numbers / sizeof numbers[0]; index++) {
    if (numbers[index] >= count) {
      expect_no_such_device(numbers[index]);
    }
  }
}

TEST(negative_numbers_other_than_minus_1_are_refused) {
  expect_no_such_device(-2);
  expect_no_such_device(-64);
  expect_no_such_device(INT32_MIN);
}

TEST(minus_1_is_the_current_device) {
  need_devices(2);
  plinth_device_properties_t one = PLINTH_DEVICE_PROPERTIES_INIT;
  plinth_device_properties_t current_one = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(1, &one));
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_get_device_properties(-1, &current_one));
  CHECK_TEXT(current_one.pci_bus_id_text, one.pci_bus_id_text);
  void *memory = device_memory(KIB, -1);
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_device_of(memory, &device));
  CHECK_EQ(device, 1);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_stream_device(stream_on(-1), &device));
  CHECK_EQ(device, 1);
}

static void *change_device_in_thread(void *context) {
  const int32_t mine = *(int *)context % device_count();
  CHECK_EQ(current(), 0);
  CHECK_OK(plinth_set_device(mine));
  for (int round = 0; round < 1000; round++) {
    CHECK_EQ(current(), mine);
  }
  return NULL;
}

TEST(each_thread_has_its_own_current_device) {
  need_devices(2);
  CHECK_OK(plinth_set_device(1));
  run_threads(8, change_device_in_thread);
  CHECK_EQ(current(), 1);
}

TEST(a_name_is_truncated_to_its_buffer) {
  char whole[256];
  CHECK_OK(plinth_get_device_name(0, whole, sizeof whole));
  const size_t length = strlen(whole);
  CHECK(length > 3);
  for (size_t capacity = 1; capacity <= length + 2; capacity++) {
    char name[260];
    memset(name, '#', sizeof name);
    CHECK_OK(plinth_get_device_name(0, name, capacity));
    const size_t kept = capacity - 1 < length ? capacity - 1 : length;
    CHECK_EQ(strlen(name), kept);
    CHECK(strncmp(name, whole, kept) == 0);
    CHECK_EQ(name[capacity], '#');
  }
}

TEST(a_name_needs_a_buffer) {
  char name[2] = "#";
  CHECK_STATUS(plinth_get_device_name(0, name, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_get_device_name(0, NULL, 10), PLINTH_ERROR_NULL_POINTER);
  CHECK_TEXT(name, "#");
}

TEST(properties_agree_with_other_queries) {
  for (int32_t device = 0; device < device_count(); device++) {
    plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
    char name[256];
    int32_t major = 0;
    int32_t minor = -1;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned slot = 0;
    CHECK_OK(plinth_get_device_properties(device, &properties));
    CHECK_OK(plinth_get_device_name(device, name, sizeof name));
    CHECK_OK(plinth_get_device_capability(device, &major, &minor));
    CHECK_OK(plinth_mem_get_info(device, &free_bytes, &total_bytes));
    CHECK_EQ(properties.struct_size, sizeof properties);
    CHECK_TEXT(properties.name, name);
    CHECK_EQ(properties.major, major);
    CHECK_EQ(properties.minor, minor);
    CHECK(free_bytes <= total_bytes && total_bytes <= properties.total_memory);
    CHECK(total_bytes > properties.total_memory / 2);
    CHECK_EQ(sscanf(properties.pci_bus_id_text, "%x:%x:%x.", &domain, &bus, &slot), 3);
    CHECK_EQ(properties.pci_domain_id, domain);
    CHECK_EQ(properties.pci_bus_id, bus);
    CHECK_EQ(properties.pci_device_id, slot);
  }
}

TEST(properties_are_plausible) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  CHECK_EQ(properties.warp_size, 32);
  CHECK(properties.max_threads_per_block >= 1024);
  CHECK(properties.max_threads_per_multi_processor >= properties.max_threads_per_block);
  CHECK(properties.multi_processor_count > 0);
  CHECK(properties.shared_memory_per_block >= 48 * KIB);
  CHECK(properties.shared_memory_per_block_optin >= properties.shared_memory_per_block);
  CHECK(properties.shared_memory_per_multiprocessor >= properties.shared_memory_per_block_optin);
  CHECK(properties.regs_per_multiprocessor >= 65536);
  CHECK(properties.l2_cache_size > 0);
  CHECK(properties.clock_rate > 100000 && properties.clock_rate < 10000000);
  CHECK(properties.memory_clock_rate > 100000);
  CHECK(properties.memory_bus_width >= 64);
  CHECK(properties.is_integrated == 0 || properties.is_integrated == 1);
  CHECK(properties.is_multi_gpu_board == 0 || properties.is_multi_gpu_board == 1);
  CHECK(properties.has_virtual_memory == 0 || properties.has_virtual_memory == 1);
}

TEST(the_host_device_has_the_properties_of_an_h200) {
  need_host_device();
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  CHECK_EQ(properties.multi_processor_count, 132);
  CHECK_EQ(properties.max_threads_per_multi_processor, 2048);
  CHECK_EQ(properties.major, 9);
  CHECK_EQ(properties.minor, 0);
  CHECK_EQ(properties.has_virtual_memory, 1);
}

TEST(devices_have_distinct_ids) {
  need_devices(2);
  plinth_device_properties_t zero = PLINTH_DEVICE_PROPERTIES_INIT;
  plinth_device_properties_t one = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &zero));
  CHECK_OK(plinth_get_device_properties(1, &one));
  CHECK(strcmp(zero.pci_bus_id_text, one.pci_bus_id_text) != 0);
  CHECK(memcmp(zero.uuid, one.uuid, sizeof zero.uuid) != 0);
}

TEST(properties_are_filled_up_to_struct_size) {
  struct {
    plinth_device_properties_t properties;
    unsigned char guard[64];
  } buffer;
  plinth_device_properties_t whole = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &whole));
  for (size_t size = offsetof(plinth_device_properties_t, uuid); size <= sizeof buffer; size++) {
    memset(&buffer, 0xA5, sizeof buffer);
    buffer.properties.struct_size = size;
    CHECK_OK(plinth_get_device_properties(0, &buffer.properties));
    const size_t filled = size < sizeof whole ? size : sizeof whole;
    CHECK_EQ(buffer.properties.struct_size, filled);
    CHECK(memcmp((char *)&buffer + sizeof(size_t), (char *)&whole + sizeof(size_t), filled - sizeof(size_t)) == 0);
    for (size_t byte = filled; byte < sizeof buffer; byte++) {
      CHECK_EQ(((unsigned char *)&buffer)[byte], 0xA5);
    }
  }
}

TEST(properties_need_struct_size) {
  plinth_device_properties_t properties;
  memset(&properties, 0xA5, sizeof properties);
  properties.struct_size = 0;
  CHECK_STATUS(plinth_get_device_properties(0, &properties), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("struct_size");
  CHECK_EQ((unsigned char)properties.name[0], 0xA5);
}

TEST(memory_info_follows_an_allocation) {
  const int32_t device = device_count() - 1;
  const size_t bytes = on_host_device() ? 64 * MIB : 4 * GIB;
  size_t before = 0;
  size_t during = 0;
  size_t after = 0;
  size_t total = 0;
  CHECK_OK(plinth_mem_get_info(device, &before, &total));
  void *memory = device_memory(bytes, device);
  CHECK_OK(plinth_mem_get_info(device, &during, &total));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_mem_get_info(device, &after, &total));
  if (on_host_device()) {
    CHECK_EQ(before - during, bytes);
    CHECK_EQ(after, before);
  } else {
    /* Other processes may use the GPU too, so the check is coarse. */
    CHECK(during + bytes / 2 < before);
    CHECK(during + bytes / 2 < after);
  }
}

TEST(memory_info_is_per_device) {
  need_host_device();
  need_devices(2);
  size_t zero = 0;
  size_t one = 0;
  size_t now = 0;
  size_t total = 0;
  CHECK_OK(plinth_mem_get_info(0, &zero, &total));
  CHECK_OK(plinth_mem_get_info(1, &one, &total));
  void *memory = device_memory(16 * MIB, 1);
  CHECK_OK(plinth_mem_get_info(0, &now, &total));
  CHECK_EQ(now, zero);
  CHECK_OK(plinth_mem_get_info(1, &now, &total));
  CHECK_EQ(now, one - 16 * MIB);
  CHECK_OK(plinth_device_free(memory));
}

TEST(no_device_is_its_own_peer) {
  for (int32_t device = 0; device < device_count(); device++) {
    bool can_access = true;
    CHECK_OK(plinth_can_device_access_peer(device, device, &can_access));
    CHECK(!can_access);
    CHECK_OK(plinth_enable_peer_access(device, device));
    CHECK_OK(plinth_disable_peer_access(device, device));
  }
}

TEST(peer_access_can_be_enabled_and_disabled_repeatedly) {
  need_devices(2);
  bool can_access = false;
  CHECK_OK(plinth_can_device_access_peer(0, 1, &can_access));
  if (!can_access) {
    CHECK_STATUS(plinth_enable_peer_access(0, 1), PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED);
    return;
  }
  CHECK_OK(plinth_disable_peer_access(0, 1));
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_enable_peer_access(0, 1));
    CHECK_OK(plinth_enable_peer_access(0, 1));
    CHECK_OK(plinth_enable_peer_access(1, 0));
    CHECK_OK(plinth_disable_peer_access(0, 1));
    CHECK_OK(plinth_disable_peer_access(0, 1));
    CHECK_OK(plinth_disable_peer_access(1, 0));
  }
  CHECK_EQ(current(), 0);
}

TEST(gencode_flags_contain_every_architecture_of_the_list) {
  char *list = NULL;
  char *flags = NULL;
  int words = 0;
  int options = 0;
  CHECK_OK(plinth_get_arch_list(&list));
  CHECK_OK(plinth_get_gencode_flags(&flags));
  for (const char *at = flags; (at = strstr(at, "-gencode compute=")) != NULL; at++) {
    options++;
  }
  for (char *word = strtok(list, " "); word != NULL; word = strtok(NULL, " "), words++) {
    char code[32];
    CHECK(strncmp(word, "sm_", 3) == 0 || strncmp(word, "compute_", 8) == 0);
    CHECK(isdigit((unsigned char)strchr(word, '_')[1]));
    snprintf(code, sizeof code, ",code=%s", word);
    CHECK(strstr(flags, code) != NULL);
  }
  CHECK(words > 0);
  CHECK_EQ(options, words);
  plinth_string_free(list);
  plinth_string_free(flags);
}

TEST(the_list_is_empty_without_a_device) {
  char *list = NULL;
  char *flags = NULL;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK_OK(plinth_get_arch_list(&list));
  CHECK_OK(plinth_get_gencode_flags(&flags));
  CHECK_TEXT(list, "");
  CHECK_TEXT(flags, "");
  plinth_string_free(list);
  plinth_string_free(flags);
}

TEST(outputs_must_not_be_null) {
  int32_t number = UNTOUCHED;
  size_t bytes = UNTOUCHED;
  CHECK_STATUS(plinth_current_device(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_exchange_device(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_exchange_device(device_count() - 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_maybe_exchange_device(device_count() - 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_exchange_device_of(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_device_of(&number, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_device_capability(0, NULL, &number), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_device_capability(0, &number, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_device_properties(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_can_device_access_peer(0, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_get_info(0, NULL, &bytes), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_get_info(0, &bytes, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_arch_list(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_gencode_flags(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(number, UNTOUCHED);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_EQ(current(), 0);
}
