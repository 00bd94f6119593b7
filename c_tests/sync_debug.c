/* The sync debug mode, for every call that waits. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: the_default_mode_warns_of_nothing; expects what only a fresh process has */
/* alone: in_error_mode_each_call_fails_and_does_nothing; expects what only a fresh process has */
/* alone: warnings_are_counted_without_a_callback; expects what only a fresh process has */
/* alone: a_warning_names_each_call_that_waits the_mode_applies_to_all_threads; counts all warnings of the process */
#include "allocating.h"

static struct {
  plinth_stream_t stream;
  plinth_event_t event;
  unsigned char *device;
  unsigned char *pinned;
  unsigned char *pageable;
  unsigned char *device_to_free;
  unsigned char *pinned_to_free;
} state;

static plinth_status_t device_synchronize(void) { return plinth_synchronize(0); }
static plinth_status_t stream_synchronize(void) { return plinth_stream_synchronize(state.stream); }
static plinth_status_t default_stream_synchronize(void) { return plinth_stream_synchronize(NULL); }
static plinth_status_t event_synchronize(void) { return plinth_event_synchronize(state.event); }
static plinth_status_t copy_to_device(void) { return plinth_copy(state.device, state.pinned, KIB, false); }
static plinth_status_t copy_from_device(void) { return plinth_copy(state.pinned, state.device, KIB, false); }
static plinth_status_t copy_pageable_to_device(void) { return plinth_copy(state.device, state.pageable, KIB, true); }
static plinth_status_t copy_pageable_from_device(void) { return plinth_copy(state.pageable, state.device, KIB, true); }
static plinth_status_t copy_on_the_host(void) { return plinth_copy(state.pinned, state.pageable, KIB, false); }
static plinth_status_t memcpy_from_pageable(void) {
  return plinth_memcpy(state.device, state.pageable, KIB, state.stream);
}
static plinth_status_t memcpy_to_pageable(void) {
  return plinth_memcpy(state.pageable, state.device, KIB, state.stream);
}
static plinth_status_t device_free(void) { return plinth_device_free(state.device_to_free); }
static plinth_status_t pinned_free(void) { return plinth_pinned_free(state.pinned_to_free); }

#define WAITS(call, name) {#call, call, name}

/* The calls that wait, and the name that the message must give. */
static const struct {
  const char *label;
  plinth_status_t (*call)(void);
  const char *name;
} waiting[] = {
    WAITS(device_synchronize, "plinth_synchronize"),
    WAITS(stream_synchronize, "plinth_stream_synchronize"),
    WAITS(default_stream_synchronize, "plinth_stream_synchronize"),
    WAITS(event_synchronize, "plinth_event_synchronize"),
    WAITS(copy_to_device, "plinth_copy"),
    WAITS(copy_from_device, "plinth_copy"),
    WAITS(copy_pageable_to_device, "plinth_copy"),
    WAITS(copy_pageable_from_device, "plinth_copy"),
    WAITS(copy_on_the_host, "plinth_copy"),
    WAITS(memcpy_from_pageable, "plinth_memcpy"),
    WAITS(memcpy_to_pageable, "plinth_memcpy"),
    WAITS(device_free, "plinth_device_free"),
    WAITS(pinned_free, "plinth_pinned_free"),
};

#define WAITING_CALLS (int)(sizeof waiting / sizeof waiting[0])

static void make_state(void) {
  state.stream = stream_on(0);
  state.event = new_event(0);
  state.device = (unsigned char *)device_memory(KIB, 0);
  state.pinned = (unsigned char *)pinned_memory(KIB);
  state.pageable = (unsigned char *)pageable_memory(KIB);
  state.device_to_free = (unsigned char *)device_memory(KIB, 0);
  state.pinned_to_free = (unsigned char *)pinned_memory(KIB);
  memset(state.pinned, 1, KIB);
  memset(state.pageable, 2, KIB);
  CHECK_OK(plinth_memset(state.device, 3, KIB, state.stream));
  CHECK_OK(plinth_event_record(state.event, state.stream));
  CHECK_OK(plinth_stream_synchronize(state.stream));
}

static uint64_t warnings(void) {
  uint64_t count = UNTOUCHED;
  CHECK_OK(plinth_sync_debug_warnings(&count));
  return count;
}

static int callback_calls;
static char last_message[256];
/* What the wait of the next warning is for; it opens then. */
static gate *awaited;

static void on_warning(const char *message, void *context) {
  CHECK_SAME(context, &callback_calls);
  snprintf(last_message, sizeof last_message, "%s", message);
  callback_calls++;
  if (awaited != NULL) {
    gate_open(awaited);
  }
  awaited = NULL;
}

TEST(the_initial_mode_is_default) {
  int32_t mode = UNTOUCHED;
  CHECK_OK(plinth_get_sync_debug_mode(&mode));
  CHECK_EQ(mode, PLINTH_SYNC_DEBUG_DEFAULT);
  CHECK_EQ(warnings(), 0);
}

TEST(the_mode_is_what_was_set) {
  const int32_t modes[] = {PLINTH_SYNC_DEBUG_ERROR, PLINTH_SYNC_DEBUG_WARN, PLINTH_SYNC_DEBUG_DEFAULT};
  for (int index = 0; index < 3; index++) {
    int32_t mode = UNTOUCHED;
    CHECK_OK(plinth_set_sync_debug_mode(modes[index]));
    CHECK_OK(plinth_get_sync_debug_mode(&mode));
    CHECK_EQ(mode, modes[index]);
  }
  CHECK(!plinth_is_initialized());
}

TEST(invalid_modes_are_refused) {
  const int32_t numbers[] = {-1, 3, 100, INT32_MAX, INT32_MIN};
  int32_t mode = UNTOUCHED;
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  for (int index = 0; index < 5; index++) {
    CHECK_STATUS(plinth_set_sync_debug_mode(numbers[index]), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_OK(plinth_get_sync_debug_mode(&mode));
  CHECK_EQ(mode, PLINTH_SYNC_DEBUG_WARN);
}

TEST(outputs_must_not_be_null) {
  CHECK_STATUS(plinth_get_sync_debug_mode(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sync_debug_warnings(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
}

TEST(the_default_mode_warns_of_nothing) {
  make_state();
  CHECK_OK(plinth_set_sync_debug_callback(on_warning, &callback_calls));
  for (int index = 0; index < WAITING_CALLS; index++) {
    CHECK_OK(waiting[index].call());
  }
  CHECK_EQ(callback_calls, 0);
  CHECK_EQ(warnings(), 0);
}

TEST(a_warning_names_each_call_that_waits) {
  make_state();
  CHECK_OK(plinth_set_sync_debug_callback(on_warning, &callback_calls));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  for (int index = 0; index < WAITING_CALLS; index++) {
    CHECK_OK(waiting[index].call());
    if (callback_calls != index + 1 || strstr(last_message, waiting[index].name) == NULL) {
      fprintf(stderr, "%s: called back %d times, last \"%s\"\n", waiting[index].label, callback_calls, last_message);
      CHECK_EQ(callback_calls, index + 1);
      CHECK_TEXT(last_message, waiting[index].name);
    }
    CHECK(strstr(last_message, "called a synchronizing CUDA operation") != NULL);
    CHECK_EQ(warnings(), index + 1);
  }
}

TEST(warnings_are_counted_without_a_callback) {
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  CHECK_OK(plinth_set_sync_debug_callback(on_warning, &callback_calls));
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(warnings(), 1);
  CHECK_EQ(callback_calls, 0);
}

TEST(a_warning_comes_before_the_wait) {
  make_state();
  CHECK_OK(plinth_set_sync_debug_callback(on_warning, &callback_calls));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  gate *held = gate_shut(state.stream);
  pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_stream_synchronize(state.stream));
  CHECK(gate_is_open(held));
  CHECK_EQ(callback_calls, 1);
  pthread_join(opener, NULL);
}

/* Returns the value of all bytes of a memory, or -1 if they differ. */
static int byte_of(const unsigned char *memory) {
  unsigned char host[KIB];
  fetch(host, memory, KIB);
  for (size_t index = 1; index < KIB; index++) {
    if (host[index] != host[0]) {
      return -1;
    }
  }
  return host[0];
}

TEST(in_error_mode_each_call_fails_and_does_nothing) {
  make_state();
  for (int index = 0; index < WAITING_CALLS; index++) {
    CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
    const plinth_status_t status = waiting[index].call();
    if (status != PLINTH_ERROR_WOULD_SYNCHRONIZE || strstr(plinth_last_error(), waiting[index].name) == NULL) {
      fprintf(stderr, "%s: \"%s\"\n", waiting[index].label, plinth_last_error());
    }
    CHECK_STATUS(status, PLINTH_ERROR_WOULD_SYNCHRONIZE);
    CHECK_MESSAGE(waiting[index].name);
    CHECK_EQ(plinth_last_driver_error(), 0);
    CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
    CHECK_EQ(byte_of(state.pinned), 1);
    CHECK_EQ(byte_of(state.pageable), 2);
    CHECK_EQ(byte_of(state.device), 3);
  }
  CHECK_EQ(warnings(), 0);
  /* The refused calls did not free the memory. */
  CHECK_OK(device_free());
  CHECK_OK(pinned_free());
}

TEST(in_error_mode_a_blocked_stream_is_not_waited_for) {
  make_state();
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  gate *held = gate_shut(state.stream);
  CHECK_STATUS(plinth_stream_synchronize(state.stream), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_STATUS(plinth_synchronize(-1), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_STATUS(plinth_device_free(state.device_to_free), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK(!stream_done(state.stream));
  gate_open(held);
}

TEST(in_error_mode_calls_that_do_not_wait_work) {
  make_state();
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_OK(plinth_copy(state.device, state.pinned, KIB, true));
  CHECK_OK(plinth_copy(state.pinned, state.device, KIB, true));
  CHECK_OK(plinth_copy(state.device, state.device_to_free, KIB, false));
  CHECK_OK(plinth_memcpy(state.device, state.pinned, KIB, state.stream));
  CHECK_OK(plinth_memset(state.device, 1, KIB, state.stream));
  CHECK_OK(plinth_event_record(state.event, state.stream));
  CHECK_OK(plinth_event_wait(state.event, NULL));
  CHECK_OK(plinth_stream_wait_stream(NULL, state.stream));
  EVENTUALLY(event_done(state.event));
  EVENTUALLY(stream_done(state.stream));
  CHECK_OK(plinth_memcpy(state.pageable, state.pinned, 0, NULL));
  CHECK_OK(plinth_device_free(NULL));
  CHECK_OK(plinth_pinned_free(NULL));
  CHECK_OK(plinth_event_synchronize(new_event(0)));
  CHECK_OK(plinth_event_destroy(state.event));
}

/* ---- waits of the allocator */

/* Fills the memory that the limit allows with a block that work in another stream still uses, and frees it. */
static gate *use_all_memory(plinth_stream_t own) {
  plinth_stream_t other = stream_on(0);
  limit_memory(64 * MIB, 0);
  unsigned char *memory = alloc_on(48 * MIB, 0, own);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  CHECK_OK(plinth_memset(memory, 1, 48 * MIB, other));
  release(memory);
  return shut;
}

TEST(in_error_mode_an_allocation_does_not_wait_for_memory) {
  plinth_stream_t own = stream_on(0);
  void *memory = UNTOUCHED_POINTER;
  gate *shut = use_all_memory(own);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_caching_allocator_alloc(48 * MIB, 0, own, &memory), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_TEXT(plinth_last_error(), "an allocation that needs memory of running work called a synchronizing CUDA operation");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  /* What does not need to wait works, and what waiting cannot help is out of memory once the work is done. */
  release(alloc_on(8 * MIB, 0, own));
  expect_held(shut);
  expect_sound();
  gate_open(shut);
  EVENTUALLY(plinth_caching_allocator_alloc(48 * MIB, 0, own, &memory) == PLINTH_OK);
  release(memory);
  EVENTUALLY(stream_done(own));
  CHECK_STATUS(plinth_caching_allocator_alloc(80 * MIB, 0, own, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  lift_limit(0);
  expect_nothing_left();
}

TEST(an_allocation_that_waits_is_one_warning) {
  plinth_stream_t own = stream_on(0);
  awaited = use_all_memory(own);
  const uint64_t before = warnings();
  CHECK_OK(plinth_set_sync_debug_callback(on_warning, &callback_calls));
  callback_calls = 0;
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  void *memory = alloc_on(48 * MIB, 0, own);
  CHECK_EQ(warnings(), before + 1);
  CHECK_EQ(callback_calls, 1);
  CHECK(strstr(last_message, "an allocation that needs memory of running work") != NULL);
  release(memory);
  release(alloc_on(MIB, 0, own));
  CHECK_EQ(warnings(), before + 1);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
  lift_limit(0);
}

TEST(in_error_mode_the_cache_keeps_memory_of_running_work) {
  plinth_stream_t own = stream_on(0);
  gate *shut = use_all_memory(own);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) >= 48 * MIB);
  expect_held(shut);
  gate_open(shut);
  EVENTUALLY((plinth_empty_cache(), reserved(0) == 0));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  lift_limit(0);
}

TEST(without_caching_each_free_waits) {
  plinth_stream_t own = stream_on(0);
  CHECK_OK(plinth_caching_allocator_enable(false));
  unsigned char *memory = alloc_on(MIB, 0, own);
  const uint64_t before = warnings();
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_MESSAGE("cuMemFree_v2 would wait for the device, which the sync debug mode forbids");
  CHECK_EQ(plinth_last_driver_error(), 0);
  /* The block is still there. */
  CHECK_OK(plinth_memset(memory, 1, MIB, own));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  CHECK_OK(plinth_caching_allocator_delete(memory));
  CHECK_EQ(warnings(), before + 1);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_caching_allocator_enable(true));
}

TEST(invalid_arguments_are_reported_before_the_mode) {
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_stream_synchronize((plinth_stream_t)UNTOUCHED_POINTER), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_event_synchronize((plinth_event_t)UNTOUCHED_POINTER), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_synchronize(1000), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_device_free(UNTOUCHED_POINTER), PLINTH_ERROR_INVALID_POINTER);
}

static void *wait_in_a_thread(void *context) {
  (void)context;
  for (int round = 0; round < 100; round++) {
    CHECK_OK(plinth_synchronize(0));
  }
  return NULL;
}

static void count_only(const char *message, void *context) {
  CHECK(message[0] != '\0');
  __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
}

TEST(the_mode_applies_to_all_threads) {
  CHECK_OK(plinth_set_sync_debug_callback(count_only, &callback_calls));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  run_threads(8, wait_in_a_thread);
  CHECK_EQ(callback_calls, 800);
  CHECK_EQ(warnings(), 800);
}

static void set_another_callback(const char *message, void *context) {
  (void)message;
  (void)context;
  CHECK_OK(plinth_set_sync_debug_callback(count_only, &callback_calls));
}

TEST(a_callback_may_set_another) {
  CHECK_OK(plinth_set_sync_debug_callback(set_another_callback, NULL));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(callback_calls, 0);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(callback_calls, 1);
}
