/*
 * Random numbers in graphs: replays continue the generator's sequence exactly as eager calls would.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "drawing.h"
#include "graphing.h"

enum { COUNT = 5000, ROUNDS = 4 };

/* The dtype with which a fill is tested. */
static int kind_of(size_t which) {
  static const int kinds[FILLS] = {F32, F32, F64, F16, F32, F32, F32, I32, I64, I64, I64};
  return kinds[which];
}

/* Destroys what a test compared: the generators, the device's memory and the results in pinned memory. */
static void end_comparison(plinth_generator_t eager, plinth_generator_t captured, void *memory, void *one, void *other) {
  CHECK_OK(plinth_generator_destroy(eager));
  CHECK_OK(plinth_generator_destroy(captured));
  release(memory);
  CHECK_OK(plinth_pinned_free(one));
  CHECK_OK(plinth_pinned_free(other));
  expect_nothing_left();
}

/* Two fills in sequence. */
static void draw_twice(size_t which, void *first, void *second, plinth_generator_t generator, plinth_stream_t stream) {
  tensor one;
  tensor two;
  CHECK_OK(fills[which].call(row(&one, first, kind_of(which), COUNT), generator, stream));
  CHECK_OK(fills[which].call(row(&two, second, kind_of(which), COUNT / 2), generator, stream));
}

static void expect_same_sequence(size_t which) {
  plinth_stream_t stream = on_new_stream(0);
  const size_t bytes = COUNT * bytes_of(kind_of(which));
  const size_t half = COUNT / 2 * bytes_of(kind_of(which));
  unsigned char *memory[2] = {alloc_on(bytes, 0, stream), alloc_on(bytes, 0, stream)};
  unsigned char *expected = (unsigned char *)pinned_memory(ROUNDS * 2 * bytes);
  unsigned char *actual = (unsigned char *)pinned_memory(2 * bytes);
  plinth_generator_t eager = new_generator(0, 77, 8);
  plinth_generator_t captured = new_generator(0, 77, 8);
  for (size_t round = 0; round < ROUNDS; round++) {
    draw_twice(which, memory[0], memory[1], eager, stream);
    CHECK_OK(plinth_memcpy(expected + round * 2 * bytes, memory[0], bytes, stream));
    CHECK_OK(plinth_memcpy(expected + round * 2 * bytes + bytes, memory[1], half, stream));
  }
  finish(stream);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_register_generator_state(graph, captured));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  draw_twice(which, memory[0], memory[1], captured, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  /* The capture itself does not advance the offset. */
  CHECK_EQ(offset_of(captured), 8);
  for (size_t round = 0; round < ROUNDS; round++) {
    CHECK_OK(plinth_memset(memory[0], 0, bytes, stream));
    CHECK_OK(plinth_memset(memory[1], 0, bytes, stream));
    if (round == 2) {
      /* An eager round between the replays. */
      draw_twice(which, memory[0], memory[1], captured, stream);
    } else {
      CHECK_OK(plinth_graph_replay(graph));
    }
    CHECK_OK(plinth_memcpy(actual, memory[0], bytes, stream));
    CHECK_OK(plinth_memcpy(actual + bytes, memory[1], half, stream));
    finish(stream);
    CHECK(memcmp(actual, expected + round * 2 * bytes, bytes + half) == 0);
  }
  CHECK_EQ(offset_of(captured), offset_of(eager));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(eager));
  CHECK_OK(plinth_generator_destroy(captured));
  release(memory[0]);
  release(memory[1]);
  CHECK_OK(plinth_pinned_free(expected));
  CHECK_OK(plinth_pinned_free(actual));
  expect_nothing_left();
}

TEST(replays_continue_the_sequence) {
  for (size_t which = 0; which < FILLS; which++) {
    fprintf(stderr, "%s\n", fills[which].name);
    expect_same_sequence(which);
  }
}

TEST(the_devices_own_generator_needs_no_registration) {
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(COUNT * 4, 0, stream);
  float *copied = (float *)pinned_memory(2 * COUNT * 4);
  CHECK_OK(plinth_manual_seed(5));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, NULL, stream));
  finish(stream);
  fetch(copied, memory, COUNT * 4);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, NULL, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < 3; round++) {
    /* A seed that is set between replays takes effect. */
    CHECK_OK(plinth_manual_seed(5));
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    fetch(copied + COUNT, memory, COUNT * 4);
    CHECK(memcmp(copied, copied + COUNT, COUNT * 4) == 0);
  }
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  fetch(copied + COUNT, memory, COUNT * 4);
  CHECK(memcmp(copied, copied + COUNT, COUNT * 4) != 0);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(copied));
  expect_nothing_left();
}

TEST(several_generators_in_a_graph) {
  enum { GENERATORS = 5 };
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(GENERATORS * COUNT * 4, 0, stream);
  float *expected = (float *)pinned_memory(GENERATORS * COUNT * 4);
  float *actual = (float *)pinned_memory(GENERATORS * COUNT * 4);
  plinth_generator_t eager[GENERATORS];
  plinth_generator_t captured[GENERATORS];
  plinth_graph_t graph = new_graph(0);
  for (int index = 0; index < GENERATORS; index++) {
    eager[index] = new_generator(0, (uint64_t)index, 4);
    captured[index] = new_generator(0, (uint64_t)index, 4);
    CHECK_OK(plinth_graph_register_generator_state(graph, captured[index]));
    CHECK_OK(plinth_graph_register_generator_state(graph, captured[index]));
  }
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  /* The last generator is registered but not used. */
  for (int index = 0; index < GENERATORS - 1; index++) {
    CHECK_OK(plinth_normal(row(&out, memory + index * COUNT, F32, COUNT), 0, 1, captured[index], stream));
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < 3; round++) {
    for (int index = 0; index < GENERATORS - 1; index++) {
      CHECK_OK(plinth_normal(row(&out, memory + index * COUNT, F32, COUNT), 0, 1, eager[index], stream));
    }
    finish(stream);
    fetch(expected, memory, (GENERATORS - 1) * COUNT * 4);
    CHECK_OK(plinth_memset(memory, 0, GENERATORS * COUNT * 4, stream));
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    fetch(actual, memory, (GENERATORS - 1) * COUNT * 4);
    CHECK(memcmp(expected, actual, (GENERATORS - 1) * COUNT * 4) == 0);
  }
  CHECK_EQ(offset_of(captured[GENERATORS - 1]), 4);
  for (int index = 0; index < GENERATORS; index++) {
    CHECK_OK(plinth_generator_destroy(eager[index]));
    CHECK_OK(plinth_generator_destroy(captured[index]));
  }
  /* The graph keeps the generators alive. */
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(expected));
  CHECK_OK(plinth_pinned_free(actual));
  expect_nothing_left();
}

TEST(a_capturing_generator_refuses_other_calls) {
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  float *memory = (float *)alloc_on(COUNT * 4, 0, stream);
  plinth_generator_t registered = new_generator(0, 1, 0);
  plinth_generator_t unknown = new_generator(0, 2, 0);
  plinth_graph_t graph = new_graph(0);
  uint64_t offset = UNTOUCHED;
  uint8_t state[16];
  CHECK_OK(plinth_graph_register_generator_state(graph, registered));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, unknown, stream),
               PLINTH_ERROR_GENERATOR_NOT_REGISTERED);
  CHECK_STATUS(plinth_generator_manual_seed(registered, 1), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_generator_get_offset(registered, &offset), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_generator_get_state(registered, state), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_manual_seed(1), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_EQ(offset, UNTOUCHED);
  /* Eager work in a stream that does not capture is allowed. */
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, registered, other));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, registered, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_generator_manual_seed(registered, 1));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(registered));
  CHECK_OK(plinth_generator_destroy(unknown));
  release(memory);
  expect_nothing_left();
}

/* What a thread does with generators while another one captures, as far as it is not part of that capture. */
static void *seed_while_another_thread_captures(void *context) {
  plinth_generator_t registered = (plinth_generator_t)context;
  plinth_generator_t clone = NULL;
  uint8_t state[16];
  CHECK_OK(plinth_manual_seed(7));
  CHECK_OK(plinth_get_rng_state(0, state));
  CHECK_OK(plinth_set_rng_state(0, state));
  CHECK_OK(plinth_generator_manual_seed(registered, 8));
  CHECK_OK(plinth_generator_set_offset(registered, 400));
  CHECK_EQ(offset_of(registered), 400);
  CHECK_OK(plinth_generator_get_state(registered, state));
  CHECK_OK(plinth_generator_set_state(registered, state, sizeof state));
  CHECK_OK(plinth_generator_clone(registered, &clone));
  CHECK_OK(plinth_generator_destroy(clone));
  return NULL;
}

TEST(another_thread_may_seed_the_generators_of_a_capture) {
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(COUNT * 4, 0, stream);
  float *actual = (float *)pinned_memory(COUNT * 4);
  plinth_generator_t registered = new_generator(0, 1, 0);
  plinth_graph_t graph = new_graph(0);
  pthread_t thread;
  CHECK_OK(plinth_graph_register_generator_state(graph, registered));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, registered, stream));
  CHECK(pthread_create(&thread, NULL, seed_while_another_thread_captures, registered) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_EQ(seed_of(registered), 8);
  CHECK_EQ(offset_of(registered), 400);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_memcpy(actual, memory, COUNT * 4, stream));
  finish(stream);
  for (int index = 0; index < COUNT; index++) {
    CHECK(actual[index] == uniform_at(8, 400, index, COUNT));
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(registered));
  CHECK_OK(plinth_pinned_free(actual));
  release(memory);
  expect_nothing_left();
}

TEST(a_failed_capture_releases_its_generators) {
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(COUNT * 4, 0, stream);
  plinth_generator_t generator = new_generator(0, 1, 0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_register_generator_state(graph, generator));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, stream));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_EQ(offset_of(generator), 0);
  CHECK_OK(plinth_generator_manual_seed(generator, 2));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(generator));
  release(memory);
  expect_nothing_left();
}

TEST(a_generator_of_another_device_is_refused) {
  need_devices(2);
  on_new_stream(0);
  plinth_generator_t generator = new_generator(1, 1, 0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_register_generator_state(graph, generator));
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK(!capturing_here());
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(generator));
  expect_nothing_left();
}

/* Fills in two branches: dense, of 16 bits, and strided. */
static void draw_in_branches(float *memory, plinth_generator_t generator, plinth_stream_t stream, plinth_stream_t branch) {
  const int64_t shape[] = {2, COUNT / 4}, strides[] = {1, 2};
  tensor out;
  CHECK_OK(plinth_stream_wait_stream(branch, stream));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, stream));
  CHECK_OK(plinth_normal(row(&out, memory + COUNT, F16, COUNT), 0, 1, generator, branch));
  CHECK_OK(plinth_exponential(describe(&out, memory + 2 * COUNT, F32, 2, shape, strides), 1, generator, stream));
  CHECK_OK(plinth_stream_wait_stream(stream, branch));
}

static uint64_t writes_of_states(void) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count("cuStreamBatchMemOp_v2", &count));
  return count;
}

/* A replay that follows one of the same graph finds its numbers on the device; before others they are written. */
TEST(a_graph_advances_the_offset_itself) {
  enum { BYTES = 3 * COUNT * 4, REPLAYS = 40 };
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t branch = stream_on(0);
  float *memory = (float *)alloc_on(BYTES, 0, stream);
  float *expected = (float *)pinned_memory(BYTES);
  float *actual = (float *)pinned_memory(BYTES);
  plinth_generator_t eager = new_generator(0, 5, 4);
  plinth_generator_t captured = new_generator(0, 5, 4);
  plinth_graph_t graphs[2];
  for (int index = 0; index < 2; index++) {
    graphs[index] = new_graph(0);
    CHECK_OK(plinth_graph_register_generator_state(graphs[index], captured));
    CHECK_OK(plinth_graph_capture_begin(graphs[index], NULL, PLINTH_CAPTURE_GLOBAL));
    draw_in_branches(memory, captured, stream, branch);
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
  }
  uint64_t writes = 0;
  for (int round = 0; round < REPLAYS; round++) {
    bool is_next = false;
    int which = 0;
    switch (round % 8) {
      case 1: which = 1; break;
      case 3:
        draw_in_branches(memory, eager, stream, branch);
        draw_in_branches(memory, captured, stream, branch);
        break;
      case 4:
        CHECK_OK(plinth_generator_manual_seed(eager, (uint64_t)round));
        CHECK_OK(plinth_generator_manual_seed(captured, (uint64_t)round));
        break;
      case 5:
        CHECK_OK(plinth_generator_set_offset(eager, 400));
        CHECK_OK(plinth_generator_set_offset(captured, 400));
        break;
      default: is_next = round % 8 != 2 && round > 0; break;
    }
    CHECK_OK(plinth_memset(memory, 0, BYTES, stream));
    draw_in_branches(memory, eager, stream, branch);
    CHECK_OK(plinth_memcpy(expected, memory, BYTES, stream));
    CHECK_OK(plinth_memset(memory, 0, BYTES, stream));
    if (on_host_device()) {
      writes = writes_of_states();
    }
    CHECK_OK(plinth_graph_replay(graphs[which]));
    if (on_host_device()) {
      CHECK_EQ(writes_of_states() == writes, is_next);
    }
    CHECK_OK(plinth_memcpy(actual, memory, BYTES, stream));
    finish(stream);
    CHECK(memcmp(expected, actual, BYTES) == 0);
    CHECK_EQ(offset_of(captured), offset_of(eager));
  }
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_graph_destroy(graphs[index]));
  }
  end_comparison(eager, captured, memory, expected, actual);
}

/* A disabled fill draws nothing, but its numbers are consumed. */
TEST(numbers_of_a_changed_graph) {
  enum { BYTES = 2 * COUNT * 4, MOST = 8 };
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(BYTES, 0, stream);
  float *expected = (float *)pinned_memory(BYTES);
  float *actual = (float *)pinned_memory(BYTES);
  plinth_generator_t eager = new_generator(0, 6, 0);
  plinth_generator_t captured = new_generator(0, 6, 0);
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_register_generator_state(graph, captured));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_uniform(row(&out, memory + index * COUNT, F32, COUNT), 0, 1, captured, stream));
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  plinth_graph_node_t nodes[MOST];
  size_t count = 0;
  CHECK_OK(plinth_graph_nodes(graph, nodes, MOST, &count));
  /* The last one advances the offset. */
  CHECK_EQ(count, 3);
  for (int round = 0; round < 6; round++) {
    const bool both = round % 3 == 2;
    CHECK_OK(plinth_graph_node_set_enabled(graph, nodes[0], both));
    CHECK_OK(plinth_memset(memory, 0, BYTES, stream));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_memcpy(actual, memory, BYTES, stream));
    finish(stream);
    CHECK_OK(plinth_generator_set_offset(eager, offset_of(captured) - 2 * advance_of(COUNT, 4)));
    for (int index = 0; index < 2; index++) {
      CHECK_OK(plinth_uniform(row(&out, memory + index * COUNT, F32, COUNT), 0, 1, eager, stream));
    }
    CHECK_OK(plinth_memcpy(expected, memory, BYTES, stream));
    finish(stream);
    if (!both) {
      memset(expected, 0, BYTES / 2);
    }
    CHECK(memcmp(expected, actual, BYTES) == 0);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  end_comparison(eager, captured, memory, expected, actual);
}

/* Replays in several streams are ordered: each draws the numbers of its position. */
TEST(replays_in_several_streams_have_their_own_numbers) {
  enum { STREAMS = 4, EACH = 25 };
  tensor out;
  plinth_stream_t streams[STREAMS];
  plinth_stream_t stream = on_new_stream(0);
  float *memory = (float *)alloc_on(COUNT * 4, 0, stream);
  float *copied = (float *)pinned_memory(STREAMS * EACH * COUNT * 4);
  float *expected = (float *)pinned_memory(COUNT * 4);
  plinth_generator_t eager = new_generator(0, 3, 0);
  plinth_generator_t captured = new_generator(0, 3, 0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_register_generator_state(graph, captured));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, captured, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = stream_on(0);
  }
  for (int round = 0; round < STREAMS * EACH; round++) {
    CHECK_OK(plinth_set_stream(streams[round % STREAMS]));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_memcpy(copied + round * COUNT, memory, COUNT * 4, streams[round % STREAMS]));
  }
  CHECK_OK(plinth_synchronize(0));
  for (int round = 0; round < STREAMS * EACH; round++) {
    CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, eager, NULL));
    fetch(expected, memory, COUNT * 4);
    CHECK(memcmp(expected, copied + round * COUNT, COUNT * 4) == 0);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  end_comparison(eager, captured, memory, copied, expected);
}
