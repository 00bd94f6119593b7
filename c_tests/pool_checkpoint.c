/* Checkpoints of pools: which blocks are allocated, recorded and restored. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_HOST_MEMORY=140GiB */
#include "graphing.h"

enum { MOST = 64 };

/* What a restore reported. */
static struct {
  void *freed[MOST], *allocated[MOST];
  int freed_count, allocated_count;
} changes;

static void note(void *pointer, size_t bytes, bool now_allocated, void *context) {
  CHECK_SAME(context, &changes);
  CHECK(bytes > 0);
  /* First what was freed. */
  CHECK(now_allocated || changes.allocated_count == 0);
  if (now_allocated) {
    CHECK(changes.allocated_count < MOST);
    changes.allocated[changes.allocated_count++] = pointer;
  } else {
    CHECK(changes.freed_count < MOST);
    changes.freed[changes.freed_count++] = pointer;
  }
}

static void restore(plinth_pool_checkpoint_t checkpoint, void *const *stale, size_t count) {
  changes.freed_count = changes.allocated_count = 0;
  CHECK_OK(plinth_pool_checkpoint_restore(checkpoint, stale, count, note, &changes));
  expect_sound();
}

static plinth_pool_checkpoint_t checkpoint_of(plinth_pool_id_t pool) {
  plinth_pool_checkpoint_t checkpoint = NULL;
  CHECK_OK(plinth_pool_checkpoint_create(0, pool, &checkpoint));
  CHECK(checkpoint != NULL);
  return checkpoint;
}

static plinth_pool_id_t new_pool(void) {
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  return pool;
}

static bool live_are(plinth_pool_id_t pool, void *const *pointers, size_t count) {
  bool equal = false;
  CHECK_OK(plinth_pool_check_live_allocations(0, pool, pointers, count, &equal));
  return equal;
}

static void enter(plinth_pool_id_t pool) { CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool)); }

static void leave(plinth_pool_id_t pool) {
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
}

static size_t reserved_of(plinth_pool_id_t pool) {
  size_t bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_memory(pool, 0, &bytes, &held));
  return held;
}

enum { BYTES = 12 * MIB };

/* A node of a tree of graphs: it computes its output from the output of its parent. */
typedef struct node {
  plinth_graph_t graph;
  unsigned char *output;
} node;

static node record(plinth_pool_id_t pool, plinth_stream_t stream, const unsigned char *input, uint32_t word) {
  node made = {new_graph(0), NULL};
  CHECK_OK(plinth_graph_capture_begin(made.graph, &pool, PLINTH_CAPTURE_GLOBAL));
  unsigned char *scratch = alloc_on(BYTES, 0, stream);
  fill_words(scratch, word, BYTES, stream);
  made.output = alloc_on(BYTES, 0, stream);
  CHECK_OK(plinth_memcpy(made.output, scratch, BYTES, stream));
  if (input != NULL) {
    CHECK(!overlap(scratch, BYTES, input, BYTES));
    CHECK(!overlap(made.output, BYTES, input, BYTES));
    CHECK_OK(plinth_memcpy(made.output, input, BYTES / 2, stream));
  }
  release(scratch);
  CHECK_OK(plinth_graph_capture_end(made.graph));
  return made;
}

static void expect_words(const unsigned char *memory, uint32_t word, size_t bytes, plinth_stream_t stream) {
  void *pinned = pinned_memory(bytes);
  CHECK(has_words(memory, word, bytes, stream, pinned));
  CHECK_OK(plinth_pinned_free(pinned));
}

static void replay(const node *graph, plinth_stream_t stream) {
  CHECK_OK(plinth_graph_replay(graph->graph));
  finish(stream);
}

/* As torch's cudagraph trees: after the graph `root`, either `left` or `right` is replayed. Both were captured with the
 * output of the root allocated, and use the same memory otherwise. */
TEST(a_tree_of_graphs_shares_a_pool) {
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t stream = on_new_stream(0);
  node root = record(pool, stream, NULL, 1);
  plinth_pool_checkpoint_t after_root = checkpoint_of(pool);
  void *live[2] = {root.output, NULL};
  CHECK(live_are(pool, live, 1));
  node left = record(pool, stream, root.output, 2);
  const size_t held = reserved_of(pool);
  live[1] = left.output;
  CHECK(live_are(pool, live, 2));
  CHECK(!live_are(pool, live, 1));
  /* Back to the state after the root. The output of the left branch is stale: nobody may free it any more. */
  void *stale = left.output;
  restore(after_root, &stale, 1);
  CHECK(changes.freed_count == 1 && changes.freed[0] == left.output);
  CHECK_EQ(changes.allocated_count, 0);
  CHECK(live_are(pool, live, 1));
  CHECK(plinth_caching_allocator_delete(left.output) == PLINTH_ERROR_INVALID_POINTER);
  node right = record(pool, stream, root.output, 3);
  CHECK_EQ(reserved_of(pool), held);
  for (int round = 0; round < 2; round++) {
    replay(&root, stream);
    expect_words(root.output, 1, BYTES, stream);
    replay(round ? &left : &right, stream);
    const unsigned char *output = round ? left.output : right.output;
    expect_words(output, 1, BYTES / 2, stream);
    expect_words(output + BYTES / 2, round ? 2 : 3, BYTES / 2, stream);
    expect_words(root.output, 1, BYTES, stream);
  }
  /* The program drops both outputs, and runs the root again: its output is allocated again, at its address. */
  release(right.output);
  release(root.output);
  CHECK(live_are(pool, NULL, 0));
  restore(after_root, NULL, 0);
  CHECK_EQ(changes.freed_count, 0);
  CHECK(changes.allocated_count == 1 && changes.allocated[0] == root.output);
  replay(&root, stream);
  enter(pool);
  unsigned char *other = alloc_on(BYTES, 0, stream);
  CHECK(!overlap(other, BYTES, root.output, BYTES));
  leave(pool);
  release(other);
  expect_words(root.output, 1, BYTES, stream);
  release(root.output);
  CHECK_OK(plinth_pool_checkpoint_destroy(after_root));
  CHECK_OK(plinth_graph_destroy(root.graph));
  CHECK_OK(plinth_graph_destroy(left.graph));
  CHECK_OK(plinth_graph_destroy(right.graph));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

/* Random allocations of three streams, with checkpoints of them, against a model. */
TEST(any_state_of_a_pool_can_be_restored) {
  enum { STREAMS = 3, STATES = 4, STEPS = 400 };
  static void *state[STATES][MOST];
  int counts[STATES];
  plinth_pool_checkpoint_t checkpoints[STATES];
  void *live[MOST];
  int count = 0;
  uint64_t random = 20261123;
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t streams[STREAMS] = {stream_on(0), stream_on(0), NULL};
  for (int index = 0; index < STATES; index++) {
    checkpoints[index] = checkpoint_of(pool);
    counts[index] = 0;
  }
  for (int step = 0; step < STEPS; step++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const unsigned choice = (unsigned)(random >> 33);
    const int which = (int)(choice / 64 % STATES);
    if (choice % 32 == 0) {
      CHECK_OK(plinth_pool_checkpoint_destroy(checkpoints[which]));
      checkpoints[which] = checkpoint_of(pool);
      memcpy(state[which], live, sizeof live);
      counts[which] = count;
    } else if (choice % 32 < 3) {
      restore(checkpoints[which], NULL, 0);
      CHECK_EQ(count - changes.freed_count + changes.allocated_count, counts[which]);
      memcpy(live, state[which], sizeof live);
      count = counts[which];
    } else if (count < MOST && choice % 32 < 19) {
      const size_t bytes = choice % 2 ? choice / 64 % 5000 + 1 : choice / 64 % (6 * MIB) + 1;
      enter(pool);
      live[count++] = alloc_on(bytes, 0, streams[choice / 2 % STREAMS]);
      leave(pool);
    } else if (count > 0) {
      const int index = (int)(choice / 64 % (unsigned)count);
      release(live[index]);
      live[index] = live[--count];
    }
    CHECK(live_are(pool, live, (size_t)count));
  }
  while (count > 0) {
    release(live[--count]);
  }
  for (int index = 0; index < STATES; index++) {
    CHECK_OK(plinth_pool_checkpoint_destroy(checkpoints[index]));
  }
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(a_block_of_another_size_is_replaced) {
  plinth_pool_id_t pool = new_pool();
  enter(pool);
  void *memory = alloc_on(BYTES, 0, NULL);
  leave(pool);
  plinth_pool_checkpoint_t checkpoint = checkpoint_of(pool);
  release(memory);
  enter(pool);
  CHECK_SAME(alloc_on(BYTES / 2, 0, NULL), memory);
  leave(pool);
  restore(checkpoint, &memory, 1);
  CHECK(changes.freed_count == 1 && changes.freed[0] == memory);
  CHECK(changes.allocated_count == 1 && changes.allocated[0] == memory);
  CHECK_EQ(allocated(0), BYTES);
  /* Without a callback, and although nothing changes. */
  CHECK_OK(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, NULL, NULL));
  CHECK_EQ(allocated(0), BYTES);
  release(memory);
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(what_others_use_is_not_restored) {
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  plinth_pool_checkpoint_t empty = checkpoint_of(pool);
  enter(pool);
  void *memory = alloc_on(BYTES, 0, own);
  CHECK_STATUS(plinth_pool_checkpoint_restore(empty, NULL, 0, note, &changes), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("requests are still routed to the pool");
  leave(pool);
  plinth_pool_checkpoint_t full = checkpoint_of(pool);
  /* A stale block must be one that is freed. */
  void *stale[2] = {memory, (char *)memory + 512};
  CHECK_STATUS(plinth_pool_checkpoint_restore(empty, stale, 2, note, &changes), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("stale[1]");
  CHECK_STATUS(plinth_pool_checkpoint_restore(full, stale, 1, note, &changes), PLINTH_ERROR_INVALID_POINTER);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  CHECK_STATUS(plinth_pool_checkpoint_restore(empty, NULL, 0, note, &changes), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("was recorded for another stream");
  CHECK_OK(plinth_pool_checkpoint_restore(full, NULL, 0, note, &changes));
  release(memory);
  CHECK_STATUS(plinth_pool_checkpoint_restore(full, NULL, 0, note, &changes), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("still use a freed block");
  CHECK(live_are(pool, NULL, 0));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  restore(full, NULL, 0);
  CHECK(live_are(pool, &memory, 1));
  release(memory);
  CHECK_OK(plinth_pool_checkpoint_destroy(empty));
  CHECK_OK(plinth_pool_checkpoint_destroy(full));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(a_checkpoint_does_not_keep_the_pool) {
  plinth_pool_id_t pool = shared_pool();
  enter(pool);
  void *memory = alloc_on(BYTES, 0, NULL);
  plinth_pool_checkpoint_t checkpoint = checkpoint_of(pool);
  release(memory);
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved_of(pool) >= BYTES);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  restore(checkpoint, NULL, 0);
  CHECK(changes.allocated_count == 1 && changes.allocated[0] == memory);
  release(memory);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(reserved_of(pool), 0);
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, note, &changes), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("since the checkpoint was created");
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  /* A destroyed pool's checkpoint is of no use, although its blocks exist. */
  pool = new_pool();
  enter(pool);
  memory = alloc_on(BYTES, 0, NULL);
  leave(pool);
  checkpoint = checkpoint_of(pool);
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, note, &changes), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  release(memory);
  expect_nothing_left();
}

TEST(a_checkpoint_survives_sleep) {
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    SKIP("memory with fixed addresses does not sleep");
  }
  plinth_stream_t stream = on_new_stream(0);
  plinth_pool_id_t pool = shared_pool();
  node graph = record(pool, stream, NULL, 5);
  plinth_pool_checkpoint_t checkpoint = checkpoint_of(pool);
  release(graph.output);
  CHECK_OK(plinth_graph_sleep(graph.graph));
  plinth_pool_checkpoint_t none = NULL;
  CHECK_STATUS(plinth_pool_checkpoint_create(0, pool, &none), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, note, &changes), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_graph_wake(graph.graph));
  restore(checkpoint, NULL, 0);
  CHECK(changes.allocated_count == 1 && changes.allocated[0] == graph.output);
  replay(&graph, stream);
  expect_words(graph.output, 5, BYTES, stream);
  release(graph.output);
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  CHECK_OK(plinth_graph_destroy(graph.graph));
  expect_nothing_left();
}

TEST(arguments_of_checkpoints_are_checked) {
  plinth_pool_id_t pool = new_pool();
  const plinth_pool_id_t invented = {0, (uint64_t)1 << 40};
  const plinth_pool_id_t standard = {0, 0};
  plinth_pool_checkpoint_t checkpoint = NULL;
  bool equal = false;
  CHECK_STATUS(plinth_pool_checkpoint_create(0, standard, &checkpoint), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_pool_checkpoint_create(0, invented, &checkpoint), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_pool_checkpoint_create(device_count(), pool, &checkpoint), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_pool_checkpoint_create(0, pool, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(checkpoint == NULL);
  CHECK_STATUS(plinth_pool_check_live_allocations(0, invented, NULL, 0, &equal), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_pool_check_live_allocations(0, pool, NULL, 1, &equal), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pool_check_live_allocations(0, pool, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pool_check_live_allocations(device_count(), pool, NULL, 0, &equal), PLINTH_ERROR_INVALID_DEVICE);
  CHECK(!equal);
  checkpoint = checkpoint_of(pool);
  void *const pointer = &equal;
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, NULL, 1, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, &pointer, SIZE_MAX, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, &pointer, 1, NULL, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  CHECK_STATUS(plinth_pool_checkpoint_destroy(checkpoint), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, NULL, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_pool_checkpoint_destroy(NULL));
  CHECK_OK(plinth_mem_pool_destroy(pool));
}
