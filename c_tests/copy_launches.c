/* Copies of tensors in many streams: the library keeps the launches of those that were used last.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "collecting.h"

/* More streams than are kept, and more copies in a stream than are launched as kernels at first. */
enum { STREAMS = 12, COPIES = 6, ROWS = 20, COLUMNS = 30, COUNT = ROWS * COLUMNS };

typedef struct pair {
  plinth_stream_t stream;
  test_tensor from, to[COPIES];
  int32_t values[COUNT];
} pair;

static pair pairs[STREAMS];

static void set_up(pair *one, plinth_stream_t stream) {
  const int64_t shape[] = {ROWS, COLUMNS}, turned[] = {1, ROWS};
  one->stream = stream;
  make_tensor(&one->from, 0, I32, 2, shape, NULL, 0);
  for (int copy = 0; copy < COPIES; copy++) {
    make_tensor(&one->to[copy], 0, I32, 2, shape, turned, 0);
  }
}

/* Fills the source with new values, and the destinations with none. */
static void fill(pair *one, int first) {
  for (int index = 0; index < COUNT; index++) {
    one->values[index] = first + index;
  }
  set_elements(&one->from, (const unsigned char *)one->values);
  for (int copy = 0; copy < COPIES; copy++) {
    set_elements(&one->to[copy], NULL);
  }
}

static void copy_in(pair *one, int copy) {
  CHECK_OK(plinth_set_stream(one->stream));
  CHECK_OK(plinth_copy_tensor(&one->to[copy].dl, &one->from.dl, true));
}

static void check(pair *one) {
  CHECK_OK(plinth_stream_synchronize(one->stream));
  for (int copy = 0; copy < COPIES; copy++) {
    unsigned char *elements = elements_of(&one->to[copy]);
    CHECK(memcmp(elements, one->values, sizeof one->values) == 0);
    free(elements);
    expect_guard_bytes(&one->to[copy]);
  }
}

static void tear_down(pair *one) {
  free_tensor(&one->from);
  for (int copy = 0; copy < COPIES; copy++) {
    free_tensor(&one->to[copy]);
  }
}

static plinth_stream_t new_stream(void) {
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_stream_create_dedicated(0, 0, &stream));
  return stream;
}

/* All copies of a stream in a row, or one of each stream in turns. */
TEST(copies_in_many_streams_stay_apart) {
  for (int index = 0; index < STREAMS; index++) {
    set_up(&pairs[index], new_stream());
  }
  for (int in_turns = 0; in_turns < 2; in_turns++) {
    for (int index = 0; index < STREAMS; index++) {
      fill(&pairs[index], 1000 * (STREAMS * in_turns + index));
    }
    for (int number = 0; number < STREAMS * COPIES; number++) {
      const int index = in_turns ? number % STREAMS : number / COPIES;
      copy_in(&pairs[index], in_turns ? number / STREAMS : number % COPIES);
    }
    for (int index = 0; index < STREAMS; index++) {
      check(&pairs[index]);
    }
  }
  CHECK_OK(plinth_set_stream(NULL));
  for (int index = 0; index < STREAMS; index++) {
    CHECK_OK(plinth_stream_destroy(pairs[index].stream));
    tear_down(&pairs[index]);
  }
}

TEST(a_new_stream_may_have_the_handle_of_an_old_one) {
  set_up(&pairs[0], NULL);
  for (int round = 0; round < 4; round++) {
    pairs[0].stream = new_stream();
    fill(&pairs[0], 1000 * round);
    for (int copy = 0; copy < COPIES; copy++) {
      copy_in(&pairs[0], copy);
    }
    check(&pairs[0]);
    CHECK_OK(plinth_set_stream(NULL));
    CHECK_OK(plinth_stream_destroy(pairs[0].stream));
  }
  tear_down(&pairs[0]);
}

TEST(copies_that_have_not_begun_survive_an_empty_cache) {
  set_up(&pairs[0], stream_on(0));
  for (int round = 0; round < 2; round++) {
    fill(&pairs[0], 1000 * round);
    gate *held = gate_shut(pairs[0].stream);
    for (int copy = 0; copy < COPIES; copy++) {
      copy_in(&pairs[0], copy);
    }
    CHECK_OK(plinth_empty_cache());
    gate_open(held);
    check(&pairs[0]);
  }
  CHECK_OK(plinth_set_stream(NULL));
  tear_down(&pairs[0]);
}

static void *copy_in_own_stream(void *context) {
  pair *one = &pairs[*(const int *)context];
  for (int copy = 0; copy < COPIES; copy++) {
    copy_in(one, copy);
  }
  check(one);
  return NULL;
}

/* CUDA's stream of the calling thread has one handle, and is another stream in each thread. */
TEST(per_thread_streams_stay_apart) {
  enum { THREADS = 3 };
  for (int index = 0; index < THREADS; index++) {
    set_up(&pairs[index], (plinth_stream_t)(uintptr_t)2);
  }
  for (int round = 0; round < 3; round++) {
    for (int index = 0; index < THREADS; index++) {
      fill(&pairs[index], 1000 * (THREADS * round + index));
    }
    run_threads(THREADS, copy_in_own_stream);
  }
  for (int index = 0; index < THREADS; index++) {
    tear_down(&pairs[index]);
  }
}
