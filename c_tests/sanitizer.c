/*
 * Small programs, half of them with a race. The stream sanitizer must report exactly the racing pair of a racy program and
 * nothing for a clean one. These are about streams, events and the CPU. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; leaves memory */
#include "sanitizer_programs.h"

/* The example in PyTorch's documentation: a sum in a side stream, which does not wait for normal_ in the default stream. */

TEST(racy_sum_before_normal_has_finished) {
  begin();
  normal(memory, NULL);
  kernel("sum", READ, memory, SIZE, a);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", a), writes("plinth_normal", NULL));
}

TEST(clean_sum_after_normal) {
  begin();
  normal(memory, NULL);
  wait_for(a, NULL);
  kernel("sum", READ, memory, SIZE, a);
  CLEAN();
}

/* Streams. */

TEST(racy_write_after_another_streams_read) {
  begin();
  copy(other, memory, a);
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), reads("plinth_memcpy", a));
}

TEST(clean_reads_of_two_streams) {
  begin();
  kernel("one", READ, memory, SIZE, a);
  kernel("two", READ, memory, SIZE, b);
  CLEAN();
}

TEST(racy_writes_of_two_streams) {
  begin();
  set(memory, a);
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_work_of_one_stream) {
  begin();
  set(memory, a);
  copy(other, memory, a);
  set(memory, a);
  kernel("both", READ | WRITE, memory, SIZE, a);
  CLEAN();
}

TEST(clean_streams_in_a_chain) {
  begin();
  set(memory, a);
  wait_for(b, a);
  wait_for(c, b);
  set(memory, c);
  CLEAN();
}

TEST(racy_wait_before_the_write) {
  begin();
  kernel("first", WRITE, other, SIZE, a);
  wait_for(b, a);
  set(memory, a);
  kernel("sum", READ, memory, SIZE, b);
  RACE(LATER_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset", a));
}

TEST(racy_wait_of_the_wrong_stream) {
  begin();
  set(memory, a);
  wait_for(a, b);
  kernel("sum", READ, memory, SIZE, b);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset", a));
}

TEST(racy_bytes_that_two_ranges_share) {
  begin();
  CHECK_OK(plinth_memset(memory, 1, 1000, a));
  CHECK_OK(plinth_memset(memory + 999, 2, 1000, b));
  RACE(MISSING_WAIT, memory + 999, 1, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_halves_of_one_block) {
  begin();
  CHECK_OK(plinth_memset(memory, 1, SIZE / 2, a));
  CHECK_OK(plinth_memset(memory + SIZE / 2, 2, SIZE / 2, b));
  CLEAN();
}

TEST(clean_default_stream_and_blocking_stream) {
  begin();
  plinth_stream_t blocking = known_foreign_stream(0, CU_STREAM_DEFAULT);
  set(memory, blocking);
  set(memory, NULL);
  set(memory, blocking);
  CLEAN();
}

TEST(racy_default_stream_and_stream_that_does_not_block) {
  begin();
  plinth_stream_t non_blocking = known_foreign_stream(0, CU_STREAM_NON_BLOCKING);
  set(memory, non_blocking);
  set(memory, NULL);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", NULL), writes("plinth_memset", non_blocking));
}

static const plinth_stream_t per_thread_stream = (plinth_stream_t)(uintptr_t)2;

static void *set_in_own_default_stream(void *argument) {
  (void)argument;
  set(memory, per_thread_stream);
  return NULL;
}

TEST(clean_default_streams_of_thread_and_device) {
  begin();
  set(memory, per_thread_stream);
  set(memory, NULL);
  set(memory, per_thread_stream);
  CLEAN();
}

TEST(racy_default_streams_of_two_threads) {
  begin();
  set_in_own_default_stream(NULL);
  run_threads(1, set_in_own_default_stream);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", per_thread_stream), writes("plinth_memset", per_thread_stream));
}

TEST(clean_wait_that_the_program_reports) {
  begin();
  set(memory, a);
  wait_for(b, a); /* If the program uses CUDA's own calls, it reports the wait by the next line. */
  CHECK_OK(plinth_sanitizer_wait_stream(c, a));
  kernel("sum", READ, memory, SIZE, c);
  CLEAN();
}

/* Events and the CPU. */

TEST(clean_event_between_streams) {
  begin();
  plinth_event_t event = new_event(0);
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  CHECK_OK(plinth_event_wait(event, b));
  set(memory, b);
  CLEAN();
}

TEST(racy_event_recorded_before_the_write) {
  begin();
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, a));
  set(memory, a);
  CHECK_OK(plinth_event_wait(event, b));
  kernel("sum", READ, memory, SIZE, b);
  RACE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset", a));
}

TEST(racy_event_that_was_recorded_again_elsewhere) {
  begin();
  plinth_event_t event = new_event(0);
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  CHECK_OK(plinth_event_record(event, c));
  CHECK_OK(plinth_event_wait(event, b));
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_event_between_devices) {
  need_devices(2);
  begin();
  plinth_event_t event = new_event(0);
  plinth_stream_t peer_stream = stream_on(1);
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  CHECK_OK(plinth_event_wait(event, peer_stream));
  kernel("peer", READ, memory, SIZE, peer_stream);
  CLEAN();
}

TEST(racy_peer_that_did_not_wait) {
  need_devices(2);
  begin();
  plinth_stream_t peer_stream = stream_on(1);
  set(memory, a);
  kernel("peer", READ, memory, SIZE, peer_stream);
  RACE(MISSING_WAIT, memory, SIZE, in_stream("peer", READ, peer_stream, 1), writes("plinth_memset", a));
}

TEST(clean_synchronized_event) {
  begin();
  plinth_event_t event = new_event(0);
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  CHECK_OK(plinth_event_synchronize(event));
  set(memory, b);
  CLEAN();
}

TEST(racy_write_after_the_synchronized_event) {
  begin();
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, a));
  set(memory, a);
  CHECK_OK(plinth_event_synchronize(event));
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_event_found_complete) {
  begin();
  plinth_event_t event = new_event(0);
  set(memory, a);
  CHECK_OK(plinth_event_record(event, a));
  EVENTUALLY(event_done(event));
  set(memory, b);
  CLEAN();
}

TEST(clean_stream_synchronized) {
  begin();
  set(memory, a);
  CHECK_OK(plinth_stream_synchronize(a));
  set(memory, b);
  CLEAN();
}

TEST(racy_other_stream_synchronized) {
  begin();
  set(memory, a);
  CHECK_OK(plinth_stream_synchronize(c));
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_stream_found_done) {
  begin();
  set(memory, a);
  EVENTUALLY(stream_done(a));
  set(memory, b);
  CLEAN();
}

TEST(clean_device_synchronized) {
  begin();
  set(memory, a);
  CHECK_OK(plinth_synchronize(0));
  set(memory, b);
  CLEAN();
}

TEST(racy_other_device_synchronized) {
  need_devices(2);
  begin();
  set(memory, a);
  CHECK_OK(plinth_synchronize(1));
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

static void raise_flag(void *flag) { __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE); }

TEST(clean_host_function_that_sets_a_flag) {
  static int flag;
  begin();
  set(memory, a);
  CHECK_OK(plinth_launch_host_function(a, raise_flag, &flag));
  EVENTUALLY(__atomic_load_n(&flag, __ATOMIC_ACQUIRE));
  set(memory, b);
  CLEAN();
}

TEST(racy_host_function_before_the_write) {
  static int flag;
  begin();
  CHECK_OK(plinth_launch_host_function(a, raise_flag, &flag));
  set(memory, a);
  EVENTUALLY(__atomic_load_n(&flag, __ATOMIC_ACQUIRE));
  set(memory, b);
  RACE(MISSING_WAIT, memory, SIZE, writes("plinth_memset", b), writes("plinth_memset", a));
}

TEST(clean_completion_that_the_program_reports) {
  begin();
  set(memory, a);
  CHECK_OK(plinth_sanitizer_stream_done(a));
  kernel("sum", READ, memory, SIZE, b);
  CLEAN();
}
