/* The choice of a device kind, and initialization. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; looks at the first calls of a process */
#include "process.h"

/* Returns the kind that this process does not use. */
static int32_t other_kind(void) { return on_host_device() ? PLINTH_DEVICE_CUDA : PLINTH_DEVICE_HOST; }

TEST(nothing_is_initialized_at_the_start) { CHECK(!plinth_is_initialized()); }

TEST(queries_do_not_initialize) {
  int32_t number = -1;
  char *text = NULL;
  CHECK(plinth_is_available());
  CHECK(device_count() > 0);
  CHECK_OK(plinth_get_device_kind(&number));
  CHECK_OK(plinth_driver_version(&number));
  CHECK(number >= 11000);
  CHECK_OK(plinth_driver_calls(&text));
  plinth_string_free(text);
  CHECK(!plinth_is_initialized());
  CHECK_OK(plinth_init());
  CHECK(plinth_is_initialized());
}

TEST(an_event_needs_no_device) {
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK(event_done(event));
  CHECK_OK(plinth_event_destroy(event));
  CHECK(!plinth_is_initialized());
}

TEST(the_first_use_initializes) {
  int32_t device = -1;
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  CHECK(plinth_is_initialized());
}

TEST(init_may_be_called_again) {
  for (int round = 0; round < 100; round++) {
    CHECK_OK(plinth_init());
  }
  CHECK(plinth_is_initialized());
}

static void *init_at_once(void *context) {
  static int arrived;
  int32_t count = 0;
  (void)context;
  __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < 16) {
  }
  CHECK_OK(plinth_init());
  CHECK(plinth_is_initialized());
  CHECK_OK(plinth_device_count(&count));
  CHECK(count > 0);
  return NULL;
}

TEST(sixteen_threads_initialize_at_once) { run_threads(16, init_at_once); }

static void *first_stream_at_once(void *context) {
  static int arrived;
  plinth_stream_t stream = NULL;
  (void)context;
  __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < 16) {
  }
  CHECK_OK(plinth_stream_create(0, 0, &stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  return NULL;
}

TEST(sixteen_threads_use_a_device_first_at_once) { run_threads(16, first_stream_at_once); }

static void *first_seed_at_once(void *context) {
  static int arrived;
  uint64_t seed = 0;
  int32_t mode = -1;
  (void)context;
  __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < 4) {
  }
  CHECK_OK(plinth_initial_seed(&seed));
  CHECK_EQ(seed, 42);
  CHECK_OK(plinth_sanitizer_mode(&mode));
  CHECK_EQ(mode, PLINTH_SANITIZER_COLLECT);
  return NULL;
}

static void seed_then_start(void) {
  CHECK_OK(plinth_manual_seed_all(42));
  run_threads(4, first_seed_at_once);
}

/* In most of the children, a thread arrives while another one enables the sanitizer and seeds the generators. */
TEST(no_thread_uses_a_library_that_has_not_started) {
  setenv("PLINTH_SANITIZER", "collect", 1);
  for (int round = 0; round < 10; round++) in_child(seed_then_start);
}

TEST(a_chosen_kind_overrides_the_environment) {
  int32_t kind = -1;
  setenv("PLINTH_DEVICE", "cuda", 1);
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_HOST));
  CHECK_OK(plinth_get_device_kind(&kind));
  CHECK_EQ(kind, PLINTH_DEVICE_HOST);
  CHECK_OK(plinth_init());
}

TEST(the_last_choice_wins) {
  int32_t kind = -1;
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_CUDA));
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_HOST));
  CHECK_OK(plinth_get_device_kind(&kind));
  CHECK_EQ(kind, PLINTH_DEVICE_HOST);
}

TEST(auto_always_finds_a_device) {
  int32_t kind = -1;
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_AUTO));
  CHECK_OK(plinth_get_device_kind(&kind));
  CHECK(kind == PLINTH_DEVICE_CUDA || kind == PLINTH_DEVICE_HOST);
  CHECK(plinth_is_available());
  CHECK_OK(plinth_init());
}

TEST(the_environment_may_say_auto) {
  setenv("PLINTH_DEVICE", "auto", 1);
  CHECK(plinth_is_available());
  CHECK_OK(plinth_init());
}

TEST(the_kind_cannot_change_after_init) {
  int32_t kind = -1;
  int32_t now = -1;
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_get_device_kind(&kind));
  CHECK_STATUS(plinth_set_device_kind(other_kind()), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_OK(plinth_get_device_kind(&now));
  CHECK_EQ(now, kind);
  CHECK_OK(plinth_set_device_kind(kind));
}

TEST(the_kind_can_change_after_a_query) {
  const int32_t here = on_host_device() ? PLINTH_DEVICE_HOST : PLINTH_DEVICE_CUDA;
  CHECK(plinth_is_available());
  CHECK_OK(plinth_set_device_kind(other_kind()));
  CHECK_OK(plinth_set_device_kind(here));
  CHECK(plinth_is_available());
  CHECK_OK(plinth_init());
  CHECK_STATUS(plinth_set_device_kind(other_kind()), PLINTH_ERROR_ALREADY_INITIALIZED);
}

TEST(an_invalid_choice_of_who_counts_the_gpus_is_named) {
  int32_t count = UNTOUCHED;
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_CUDA));
  setenv("PLINTH_NVML_BASED_CUDA_CHECK", "maybe", 1);
  CHECK_STATUS(plinth_device_count(&count), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_NVML_BASED_CUDA_CHECK is \"maybe\"; set it to 1");
  CHECK_EQ(count, UNTOUCHED);
  CHECK(!plinth_is_available());
}

TEST(invalid_kinds_are_refused) {
  const int32_t kinds[] = {-1, 3, 100, INT32_MAX, INT32_MIN};
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_HOST));
  for (size_t index = 0; index < sizeof kinds / sizeof kinds[0]; index++) {
    CHECK_STATUS(plinth_set_device_kind(kinds[index]), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK(on_host_device());
}

TEST(the_error_names_an_invalid_device_variable) {
  int32_t count = UNTOUCHED;
  setenv("PLINTH_DEVICE", "toaster", 1);
  CHECK(!plinth_is_available());
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_DEVICE");
  CHECK_MESSAGE("toaster");
  CHECK_STATUS(plinth_device_count(&count), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_EQ(count, UNTOUCHED);
  CHECK(!plinth_is_initialized());
}

TEST(an_invalid_variable_of_fault_injection_is_named) {
  setenv("PLINTH_FAULT_INJECTION", "yes", 1);
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_FAULT_INJECTION is \"yes\"; set it to 1 or 0");
  setenv("PLINTH_FAULT_INJECTION", "", 1);
  CHECK_OK(plinth_init());
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_NOT_SUPPORTED);
}

TEST(init_may_be_retried_after_a_failure) {
  setenv("PLINTH_DEVICE", "toaster", 1);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_OK(plinth_set_device_kind(PLINTH_DEVICE_HOST));
  CHECK_OK(plinth_init());
  CHECK(plinth_is_initialized());
}

static void expect_bad_host_configuration(const char *variable, const char *value) {
  setenv("PLINTH_DEVICE", "host", 1);
  setenv(variable, value, 1);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE(variable);
  CHECK_MESSAGE(value);
  CHECK(!plinth_is_available());
}

TEST(an_invalid_number_of_host_devices_is_named) { expect_bad_host_configuration("PLINTH_HOST_DEVICES", "several"); }

TEST(a_negative_number_of_host_devices_is_named) { expect_bad_host_configuration("PLINTH_HOST_DEVICES", "-3"); }

TEST(an_invalid_size_of_host_memory_is_named) { expect_bad_host_configuration("PLINTH_HOST_MEMORY", "4 parsecs"); }

TEST(an_invalid_host_model_is_named) { expect_bad_host_configuration("PLINTH_HOST_MODEL", "abacus"); }

static void expect_host_devices(const char *variable, const char *value, int32_t expected) {
  setenv("PLINTH_DEVICE", "host", 1);
  setenv(variable, value, 1);
  CHECK_EQ(device_count(), expected);
  CHECK_EQ(plinth_is_available(), expected > 0);
}

TEST(the_host_has_two_devices_by_default) {
  unsetenv("PLINTH_HOST_DEVICES");
  expect_host_devices("PLINTH_HOST_MEMORY", "64MiB", 2);
}

TEST(the_number_of_host_devices_can_be_set) { expect_host_devices("PLINTH_HOST_DEVICES", "5", 5); }

TEST(visible_devices_select_a_host_device) { expect_host_devices("CUDA_VISIBLE_DEVICES", "1", 1); }

TEST(visible_devices_select_and_order_host_devices) { expect_host_devices("CUDA_VISIBLE_DEVICES", "1,0", 2); }

TEST(visible_devices_end_at_an_invalid_number) { expect_host_devices("CUDA_VISIBLE_DEVICES", "0,7,1", 1); }

TEST(visible_devices_end_at_a_negative_number) { expect_host_devices("CUDA_VISIBLE_DEVICES", "0,-1,1", 1); }

TEST(visible_devices_can_hide_every_device) {
  int32_t device = UNTOUCHED;
  expect_host_devices("CUDA_VISIBLE_DEVICES", "", 0);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_NO_DEVICE);
  CHECK_STATUS(plinth_current_device(&device), PLINTH_ERROR_NO_DEVICE);
  CHECK_EQ(device, UNTOUCHED);
}

/* What torch.cuda answers there with 0, False or None. */
TEST(without_a_device_nothing_is_allocated) {
  size_t bytes = 1;
  bool capturing = true;
  int32_t previous = UNTOUCHED;
  plinth_memory_stats_t stats = {.struct_size = sizeof stats, .num_ooms = 5};
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK_OK(plinth_memory_allocated(0, &bytes));
  CHECK_EQ(bytes, 0);
  bytes = 1;
  CHECK_OK(plinth_max_memory_reserved(-1, &bytes));
  CHECK_EQ(bytes, 0);
  CHECK_OK(plinth_memory_stats(0, &stats));
  CHECK_EQ(stats.num_ooms, 0);
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  CHECK_OK(plinth_ipc_collect());
  CHECK_OK(plinth_is_current_stream_capturing(&capturing));
  CHECK(!capturing);
  CHECK_OK(plinth_exchange_device_of(NULL, &previous));
  CHECK_EQ(previous, -1);
  CHECK(!plinth_is_initialized());
}

TEST(without_a_gpu_the_message_suggests_the_host_device) {
  setenv("PLINTH_DEVICE", "cuda", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(!plinth_is_available());
  CHECK_EQ(device_count(), 0);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_NO_DEVICE);
  CHECK_MESSAGE("PLINTH_DEVICE=host");
  CHECK(!plinth_is_initialized());
}

TEST(outputs_must_not_be_null) {
  CHECK_STATUS(plinth_device_count(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_device_kind(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_version(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_driver_calls(NULL), PLINTH_ERROR_NULL_POINTER);
}
