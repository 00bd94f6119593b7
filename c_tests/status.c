/* Statuses, messages and versions. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support.h"

#define NAMED(constant) {constant, #constant}

static const struct {
  plinth_status_t status;
  const char *name;
} statuses[] = {
    NAMED(PLINTH_OK),
    NAMED(PLINTH_ERROR_INVALID_VALUE),
    NAMED(PLINTH_ERROR_NULL_POINTER),
    NAMED(PLINTH_ERROR_INVALID_DEVICE),
    NAMED(PLINTH_ERROR_INVALID_HANDLE),
    NAMED(PLINTH_ERROR_INVALID_POINTER),
    NAMED(PLINTH_ERROR_OUT_OF_MEMORY),
    NAMED(PLINTH_ERROR_NO_DEVICE),
    NAMED(PLINTH_ERROR_DRIVER_TOO_OLD),
    NAMED(PLINTH_ERROR_STUB_LIBRARY),
    NAMED(PLINTH_ERROR_INVALID_CONFIGURATION),
    NAMED(PLINTH_ERROR_ALREADY_INITIALIZED),
    NAMED(PLINTH_ERROR_FORKED_CHILD),
    NAMED(PLINTH_ERROR_SHUTTING_DOWN),
    NAMED(PLINTH_ERROR_NOT_SUPPORTED),
    NAMED(PLINTH_ERROR_DEVICE_MISMATCH),
    NAMED(PLINTH_ERROR_EVENT_TIMING_DISABLED),
    NAMED(PLINTH_ERROR_EVENT_NOT_RECORDED),
    NAMED(PLINTH_ERROR_EVENT_NOT_COMPLETE),
    NAMED(PLINTH_ERROR_WOULD_SYNCHRONIZE),
    NAMED(PLINTH_ERROR_CAPTURE_FORBIDS),
    NAMED(PLINTH_ERROR_CAPTURE_INVALIDATED),
    NAMED(PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED),
    NAMED(PLINTH_ERROR_ILLEGAL_ADDRESS),
    NAMED(PLINTH_ERROR_LAUNCH_FAILED),
    NAMED(PLINTH_ERROR_DRIVER),
    NAMED(PLINTH_ERROR_SYSTEM),
    NAMED(PLINTH_ERROR_PANIC),
    NAMED(PLINTH_ERROR_GENERATOR_NOT_REGISTERED),
    NAMED(PLINTH_ERROR_GRAPH_CAPTURED),
    NAMED(PLINTH_ERROR_GRAPH_CAPTURING),
    NAMED(PLINTH_ERROR_GRAPH_NOT_CAPTURING),
    NAMED(PLINTH_ERROR_GRAPH_NOT_CAPTURED),
    NAMED(PLINTH_ERROR_GRAPH_DEFAULT_STREAM),
    NAMED(PLINTH_ERROR_GRAPH_WRONG_STREAM),
    NAMED(PLINTH_ERROR_GRAPH_WRONG_THREAD),
    NAMED(PLINTH_ERROR_GRAPH_UNJOINED),
    NAMED(PLINTH_ERROR_GRAPH_EMPTY),
    NAMED(PLINTH_ERROR_GRAPH_NOT_KEPT),
    NAMED(PLINTH_ERROR_GRAPH_ASLEEP),
    NAMED(PLINTH_ERROR_GRAPH_MEMORY_IN_USE),
    NAMED(PLINTH_ERROR_GRAPH_OVERLAP),
    NAMED(PLINTH_ERROR_GRAPH_UPDATE_REFUSED),
    NAMED(PLINTH_ERROR_MEMORY_CORRUPTED),
    NAMED(PLINTH_ERROR_IPC_REEXPORT),
    NAMED(PLINTH_ERROR_IPC_PEER_GONE),
    NAMED(PLINTH_ERROR_IPC_NOT_SHAREABLE),
    NAMED(PLINTH_ERROR_TIMED_OUT),
    NAMED(PLINTH_ERROR_PEER_LOST),
    NAMED(PLINTH_ERROR_ABORTED),
    NAMED(PLINTH_ERROR_RANK_MISMATCH),
    NAMED(PLINTH_ERROR_NCCL),
    NAMED(PLINTH_ERROR_NCCL_UNAVAILABLE),
    NAMED(PLINTH_ERROR_COMMUNICATOR_NOT_READY),
    NAMED(PLINTH_ERROR_NVML_UNAVAILABLE),
    NAMED(PLINTH_ERROR_LIBRARY),
    NAMED(PLINTH_ERROR_LIBRARY_UNAVAILABLE),
    NAMED(PLINTH_ERROR_RACE),
    NAMED(PLINTH_ERROR_COMPILER_UNAVAILABLE),
    NAMED(PLINTH_ERROR_COMPILATION_FAILED),
};

#define STATUSES (int32_t)(sizeof statuses / sizeof statuses[0])

TEST(every_status_of_the_header_has_its_name) {
  for (int32_t index = 0; index < STATUSES; index++) {
    CHECK_EQ(statuses[index].status, index);
    CHECK_TEXT(plinth_status_name(index), statuses[index].name);
  }
}

TEST(the_header_has_every_status_of_the_library) { CHECK_EQ(plinth_status_count(), STATUSES); }

TEST(every_status_has_its_own_description) {
  const int32_t count = plinth_status_count();
  for (int32_t index = 0; index < count; index++) {
    const char *description = plinth_status_string(index);
    CHECK(description != NULL && strlen(description) > 10);
    CHECK_EQ(description[strlen(description) - 1], '.');
    for (int32_t other = 0; other < index; other++) {
      CHECK(strcmp(description, plinth_status_string(other)) != 0);
      CHECK(strcmp(plinth_status_name(index), plinth_status_name(other)) != 0);
    }
  }
}

TEST(an_invalid_status_is_unknown) {
  const int32_t numbers[] = {-1, plinth_status_count(), 999, INT32_MAX, INT32_MIN};
  for (size_t index = 0; index < sizeof numbers / sizeof numbers[0]; index++) {
    CHECK_TEXT(plinth_status_name(numbers[index]), "PLINTH_ERROR_UNKNOWN");
    CHECK(plinth_status_string(numbers[index]) != NULL && plinth_status_string(numbers[index])[0] != '\0');
  }
}

TEST(the_message_is_empty_at_the_start) {
  CHECK_TEXT(plinth_last_error(), "");
  CHECK_EQ(plinth_last_driver_error(), 0);
}

TEST(a_success_clears_the_message) {
  int32_t mode = 0;
  CHECK_STATUS(plinth_set_sync_debug_mode(77), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("77");
  CHECK_OK(plinth_get_sync_debug_mode(&mode));
  CHECK_TEXT(plinth_last_error(), "");
}

TEST(a_later_failure_replaces_an_earlier_one) {
  CHECK_STATUS(plinth_set_sync_debug_mode(77), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_get_sync_debug_mode(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("mode");
  CHECK(strstr(plinth_last_error(), "77") == NULL);
}

TEST(calls_without_a_status_keep_the_message) {
  CHECK_STATUS(plinth_set_sync_debug_mode(77), PLINTH_ERROR_INVALID_VALUE);
  (void)plinth_status_name(3);
  (void)plinth_status_string(3);
  (void)plinth_status_count();
  (void)plinth_version();
  (void)plinth_version_string();
  (void)plinth_is_initialized();
  (void)plinth_is_available();
  (void)plinth_tripped_fault();
  (void)plinth_last_driver_error();
  plinth_string_free(NULL);
  CHECK_MESSAGE("77");
}

static void *fail_with_own_number(void *context) {
  const int number = 1000 + *(int *)context;
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  CHECK_TEXT(plinth_last_error(), "");
  for (int round = 0; round < 1000; round++) {
    CHECK_STATUS(plinth_set_sync_debug_mode(number), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE(text);
  }
  return NULL;
}

TEST(each_thread_has_its_own_message) {
  CHECK_STATUS(plinth_set_sync_debug_mode(77), PLINTH_ERROR_INVALID_VALUE);
  run_threads(8, fail_with_own_number);
  CHECK_MESSAGE("77");
}

TEST(the_drivers_code_is_kept_with_the_message) {
  void *pointer = UNTOUCHED_POINTER;
  int32_t mode = 0;
  CHECK_STATUS(plinth_device_malloc((size_t)1 << 60, -1, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(plinth_last_driver_error(), 2);
  CHECK_MESSAGE("CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_OK(plinth_get_sync_debug_mode(&mode));
  CHECK_EQ(plinth_last_driver_error(), 0);
}

TEST(other_errors_have_no_driver_code) {
  void *pointer = NULL;
  CHECK_STATUS(plinth_device_malloc((size_t)1 << 60, -1, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_set_sync_debug_mode(77), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(plinth_last_driver_error(), 0);
}

TEST(the_version_is_that_of_the_header) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", PLINTH_VERSION_MAJOR, PLINTH_VERSION_MINOR, PLINTH_VERSION_PATCH);
  CHECK_TEXT(plinth_version_string(), text);
  CHECK_EQ(plinth_version(), PLINTH_VERSION_MAJOR * 10000 + PLINTH_VERSION_MINOR * 100 + PLINTH_VERSION_PATCH);
}

TEST(errors_of_the_cuda_runtime_are_converted) {
  CHECK_OK(plinth_check_error(0));
  CHECK_STATUS(plinth_check_error(2), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("cudaErrorMemoryAllocation (2): ");
  CHECK_EQ(plinth_last_driver_error(), 2);
  CHECK_STATUS(plinth_check_error(12), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("cudaErrorInvalidPitchValue (12): ");
  CHECK_STATUS(plinth_check_error(35), PLINTH_ERROR_DRIVER_TOO_OLD);
  CHECK_STATUS(plinth_check_error(700), PLINTH_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(plinth_check_error(999), PLINTH_ERROR_DRIVER);
  CHECK_MESSAGE("cudaErrorUnknown (999): ");
  CHECK_STATUS(plinth_check_error(-1), PLINTH_ERROR_DRIVER);
  CHECK_MESSAGE("unknown CUDA error");
  CHECK_EQ(plinth_last_driver_error(), -1);
  CHECK_OK(plinth_check_error(0));
}
