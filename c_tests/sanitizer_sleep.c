/* The sanitizer's reports of memory that sleeps, and of its contents before they are restored.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "graphing.h"
#include "pooling.h"
#include "sanitizing.h"

static plinth_pool_id_t pool;
static unsigned char *block;
static plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;

static void begin(int32_t mode) {
  options.backup = PLINTH_BACKUP_PINNED;
  pool = new_pool(false, false);
  CHECK_OK(plinth_mem_pool_set_tag(pool, "weights"));
  enter(pool, 0);
  release(alloc_on(5 * KIB, 0, NULL));
  block = (unsigned char *)alloc_on(3 * MIB, 0, NULL);
  leave(pool, 0);
  CHECK_OK(plinth_sanitizer_enable(mode));
}

static void end(void) {
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_synchronize(0));
  release(block);
  destroy(pool);
}

static void expect_use_while_asleep(side access) {
  expect_report(PLINTH_SANITIZER_USE_WHILE_ASLEEP, PLINTH_SANITIZER_MISSING_WAKE, block + MIB, KIB, access, no_access, __FILE__,
                __LINE__);
}

TEST(a_use_of_sleeping_memory_is_refused) {
  begin(PLINTH_SANITIZER_ERROR);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_memset(block, 1, 3 * MIB, stream));
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_STATUS(plinth_memset(block + MIB, 2, KIB, stream), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("use while asleep: \"plinth_memset\"");
  CHECK_MESSAGE("which sleep");
  CHECK_MESSAGE("wake the memory before the call of \"plinth_memset\" (plinth_memory_wake)");
  expect_use_while_asleep(writes("plinth_memset", stream));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK_OK(plinth_memset(block + MIB, 2, KIB, stream));
  CLEAN();
  end();
}

/* The sanitizer is enabled while memory sleeps, and a graph, which could be replayed otherwise, uses that memory. */
TEST(a_replay_that_uses_sleeping_memory_is_refused) {
  begin(PLINTH_SANITIZER_ERROR);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memset(block + MIB, 2, KIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("use while asleep");
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  end();
}

/* Only a stream that waits for them may use contents that are being restored. A block that is freed before may be reused: the
 * allocator waits. */
TEST(contents_that_are_being_restored_are_written) {
  begin(PLINTH_SANITIZER_COLLECT);
  plinth_stream_t stream = stream_on(0);
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_memory_sleep("weights", &options));
    CHECK_OK(plinth_memory_wake_async("weights"));
    if (round == 1) {
      CHECK_OK(plinth_memory_wake_wait("weights", stream));
    }
    CHECK_OK(plinth_memset(block + MIB, 2, KIB, stream));
    if (round == 1) {
      CLEAN();
    } else {
      read_findings();
      CHECK_EQ(found, 1);
      CHECK_EQ(findings[0].kind, PLINTH_SANITIZER_RACE);
      CHECK_TEXT(findings[0].name, "plinth_memset");
      CHECK_TEXT(findings[0].previous_name, "plinth_memory_wake_async");
    }
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_sanitizer_clear());
  }
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_OK(plinth_memory_wake_async("weights"));
  release(block);
  enter(pool, 0);
  block = (unsigned char *)alloc_on(3 * MIB, 0, NULL);
  leave(pool, 0);
  CHECK_OK(plinth_memset(block, 2, 3 * MIB, NULL));
  CLEAN();
  end();
}

/* A sleep that does not wait finds that the work of all streams is done. */
TEST(clean_sleep_that_finds_no_work) {
  begin(PLINTH_SANITIZER_COLLECT);
  plinth_stream_t stream = stream_on(0);
  unsigned char *other = (unsigned char *)alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_memset(other, 1, KIB, stream));
  options.flags |= PLINTH_SLEEP_NO_WAIT;
  while (plinth_memory_sleep("weights", &options) == PLINTH_ERROR_GRAPH_MEMORY_IN_USE) {
    sleep_milliseconds(1);
  }
  kernel("sum", READ, other, KIB, stream_on(0));
  CLEAN();
  CHECK_OK(plinth_memory_wake("weights"));
  release(other);
  end();
}

/* New memory at the addresses of memory that was freed in its sleep. */
TEST(clean_memory_of_a_pool_that_ended_its_sleep) {
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t shared = shared_pool();
  plinth_graph_t graph = new_graph(0), other = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, &shared, PLINTH_CAPTURE_GLOBAL));
  unsigned char *inside = (unsigned char *)alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_sleep(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  release(inside);
  CHECK_OK(plinth_graph_capture_begin(other, &shared, PLINTH_CAPTURE_GLOBAL));
  inside = (unsigned char *)alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_memset(inside, 1, KIB, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(other));
  CHECK_OK(plinth_graph_replay(other));
  CLEAN();
  CHECK_OK(plinth_graph_destroy(other));
}
