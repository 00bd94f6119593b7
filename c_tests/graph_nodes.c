/* Graphs that keep their nodes: debug dump, summary, clone and update. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "driver.h"
#include "graphing.h"

enum { BYTES = 64 * 1024 };

static plinth_graph_t graph_of_two_fills(void *memory, uint32_t word, plinth_stream_t stream, uint32_t flags) {
  plinth_graph_t graph = new_graph(flags);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  fill_words(memory, word, BYTES, stream);
  fill_words((char *)memory + BYTES, word + 1, BYTES, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

static void expect_two_fills(void *memory, uint32_t word, plinth_stream_t stream) {
  void *pinned = pinned_memory(BYTES);
  CHECK(has_words(memory, word, BYTES, stream, pinned));
  CHECK(has_words((char *)memory + BYTES, word + 1, BYTES, stream, pinned));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(kept_nodes_are_instantiated_on_demand) {
  void *native = NULL;
  void *executable = NULL;
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = graph_of_two_fills(memory, 1, stream, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_native(graph, &native));
  CHECK(native != NULL);
  CHECK_STATUS(plinth_graph_exec_native(graph, &executable), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_exec_native(graph, &executable));
  expect_two_fills(memory, 1, stream);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_upload(graph));
  CHECK_OK(plinth_memset(memory, 0, 2 * BYTES, stream));
  CHECK_OK(plinth_graph_replay(graph));
  expect_two_fills(memory, 1, stream);
  /* The driver's own call can launch it, too. */
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  CHECK_OK(plinth_graph_exec_native(graph, &executable));
  CHECK_OK(plinth_memset(memory, 0, 2 * BYTES, stream));
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  expect_two_fills(memory, 1, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(calls_that_need_kept_nodes_fail_without_them) {
  void *native = UNTOUCHED_POINTER;
  char *text = NULL;
  plinth_graph_t copy = NULL;
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = graph_of_two_fills(memory, 1, stream, 0);
  CHECK_STATUS(plinth_graph_instantiate(graph), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_STATUS(plinth_graph_native(graph, &native), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_STATUS(plinth_graph_summary(graph, &text), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_STATUS(plinth_graph_debug_dump(graph, "/tmp/never"), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_STATUS(plinth_graph_clone(graph, &copy), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_OK(plinth_graph_exec_native(graph, &native));
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
}

TEST(a_graph_is_dumped_and_summarized) {
  char path[] = "/tmp/plinth-graph-XXXXXX";
  char text[16384];
  char *summary = NULL;
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_enable_debug_mode(graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  fill_words(memory, 1, BYTES, stream);
  CHECK_OK(plinth_memcpy((char *)memory + BYTES, memory, BYTES, stream));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  const int file = mkstemp(path);
  CHECK(file >= 0);
  CHECK(close(file) == 0);
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_graph_debug_dump(graph, path));
    FILE *opened = fopen(path, "r");
    CHECK(opened != NULL);
    const size_t length = fread(text, 1, sizeof text - 1, opened);
    CHECK(fclose(opened) == 0);
    text[length] = '\0';
    CHECK(strncmp(text, "digraph", 7) == 0);
    CHECK(strstr(text, "plinth_sleep") != NULL);
    CHECK(strchr(text, '}') != NULL);
  }
  CHECK(unlink(path) == 0);
  CHECK_STATUS(plinth_graph_debug_dump(graph, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(plinth_graph_debug_dump(graph, "/nowhere/at/all") != PLINTH_OK);
  CHECK_OK(plinth_graph_summary(graph, &summary));
  CHECK(strstr(summary, "node\tlayer\tplace\ttype\twhat\twaits_for\n") == summary);
  CHECK(strstr(summary, "0\t0\t0\tmemset\t64.00 KiB at 0x") != NULL);
  CHECK(strstr(summary, " with 0x00000001\t\n") != NULL);
  CHECK(strstr(summary, "1\t1\t0\tmemcpy\t64.00 KiB from ") != NULL);
  CHECK(strstr(summary, "2\t2\t0\tkernel\tplinth_sleep <<<1x1x1, 1x1x1, 0>>>\t1\n") != NULL);
  plinth_string_free(summary);
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(a_clone_outlives_its_graph) {
  plinth_graph_t copy = NULL;
  size_t held[2] = {0, 0};
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  void *inside = alloc_on(BYTES, 0, stream);
  fill_words(inside, 3, BYTES, stream);
  CHECK_OK(plinth_memcpy(memory, inside, BYTES, stream));
  CHECK_OK(plinth_memcpy((char *)memory + BYTES, inside, BYTES, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_clone(graph, &copy));
  held[0] = graph_held(graph);
  CHECK_EQ(graph_held(copy), held[0]);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(graph_held(copy), held[0]);
  CHECK_OK(plinth_graph_replay(copy));
  void *pinned = pinned_memory(2 * BYTES);
  CHECK(has_words(memory, 3, 2 * BYTES, stream, pinned));
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_graph_destroy(copy));
  release(memory);
  expect_nothing_left();
}

TEST(a_graph_is_updated_in_place) {
  void *before = NULL;
  void *after = NULL;
  void *native = NULL;
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = graph_of_two_fills(memory, 1, stream, 0);
  plinth_graph_t other = graph_of_two_fills(memory, 10, stream, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_exec_native(graph, &before));
  CHECK_OK(plinth_graph_replay(graph));
  expect_two_fills(memory, 1, stream);
  CHECK_OK(plinth_graph_update(graph, other));
  CHECK_OK(plinth_graph_exec_native(graph, &after));
  CHECK_SAME(after, before);
  CHECK_OK(plinth_graph_replay(graph));
  expect_two_fills(memory, 10, stream);
  CHECK_EQ(pool_of_graph(graph).owner, pool_of_graph(other).owner);
  CHECK_OK(plinth_graph_native(other, &native));
  CHECK_OK(plinth_graph_update_native(graph, native));
  CHECK_OK(plinth_graph_destroy(other));
  CHECK_OK(plinth_graph_replay(graph));
  expect_two_fills(memory, 10, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(an_update_keeps_the_other_graphs_memory) {
  plinth_stream_t stream = on_new_stream(0);
  void *result = pinned_memory(BYTES);
  plinth_graph_t graphs[2];
  for (int index = 0; index < 2; index++) {
    graphs[index] = new_graph(index ? PLINTH_GRAPH_KEEP_GRAPH : 0);
    CHECK_OK(plinth_graph_capture_begin(graphs[index], NULL, PLINTH_CAPTURE_GLOBAL));
    void *inside = alloc_on(BYTES, 0, stream);
    fill_words(inside, (uint32_t)index + 1, BYTES, stream);
    CHECK_OK(plinth_memcpy(result, inside, BYTES, stream));
    release(inside);
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
  }
  CHECK_OK(plinth_graph_replay(graphs[0]));
  CHECK_OK(plinth_graph_update(graphs[0], graphs[1]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
  CHECK_OK(plinth_empty_cache());
  memset(result, 0, BYTES);
  CHECK_OK(plinth_graph_replay(graphs[0]));
  finish(stream);
  CHECK_EQ(words_mismatch(result, 2, BYTES), BYTES);
  CHECK_OK(plinth_graph_destroy(graphs[0]));
  CHECK_OK(plinth_pinned_free(result));
  expect_nothing_left();
}

/* Captures a graph that fills memory of its own pool, and copies it to pinned memory. */
static plinth_graph_t graph_of_own_memory(void *result, uint32_t word, plinth_stream_t stream) {
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  void *inside = alloc_on(BYTES, 0, stream);
  fill_words(inside, word, BYTES, stream);
  CHECK_OK(plinth_memcpy(result, inside, BYTES, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

static void expect_result(plinth_graph_t graph, void *result, uint32_t word, plinth_stream_t stream) {
  memset(result, 0, BYTES);
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_EQ(words_mismatch(result, word, BYTES), BYTES);
}

/* An update changes the executable graph only. */
TEST(an_update_keeps_the_memory_of_the_graphs_own_nodes) {
  plinth_stream_t stream = on_new_stream(0);
  void *result = pinned_memory(BYTES);
  plinth_graph_t graph = graph_of_own_memory(result, 1, stream);
  plinth_graph_t other = graph_of_own_memory(result, 2, stream);
  plinth_graph_t copy = NULL;
  plinth_graph_t parent = NULL;
  plinth_graph_node_t node = NULL;
  char *text = NULL;
  const plinth_pool_id_t own = pool_of_graph(graph);
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_update(graph, other));
  CHECK_EQ(pool_of_graph(graph).owner, pool_of_graph(other).owner);
  CHECK_OK(plinth_graph_destroy(other));
  CHECK_OK(plinth_empty_cache());
  expect_result(graph, result, 2, stream);
  CHECK_OK(plinth_graph_clone(graph, &copy));
  expect_result(copy, result, 1, stream);
  CHECK_OK(plinth_graph_create_empty(0, &parent));
  CHECK_OK(plinth_graph_add_child(parent, NULL, 0, graph, &node));
  expect_result(parent, result, 1, stream);
  CHECK_OK(plinth_graph_time_table(graph, 1, &text));
  plinth_string_free(text);
  CHECK_EQ(words_mismatch(result, 1, BYTES), BYTES);
  expect_result(graph, result, 2, stream);
  CHECK_OK(plinth_graph_update(copy, graph));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_EQ(pool_of_graph(graph).owner, own.owner);
  CHECK_OK(plinth_empty_cache());
  expect_result(graph, result, 1, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  expect_result(copy, result, 1, stream);
  CHECK_OK(plinth_graph_destroy(copy));
  CHECK_OK(plinth_graph_destroy(parent));
  CHECK_OK(plinth_pinned_free(result));
  expect_nothing_left();
}

static plinth_graph_t graph_of_child(plinth_graph_t child) {
  plinth_graph_t graph = NULL;
  plinth_graph_node_t node = NULL;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_child(graph, NULL, 0, child, &node));
  return graph;
}

TEST(an_update_keeps_the_memory_of_the_other_graphs_children) {
  plinth_stream_t stream = on_new_stream(0);
  void *result = pinned_memory(BYTES);
  plinth_graph_t children[2];
  plinth_graph_t graphs[2];
  for (int index = 0; index < 2; index++) {
    children[index] = graph_of_own_memory(result, (uint32_t)index + 1, stream);
    graphs[index] = graph_of_child(children[index]);
  }
  expect_result(graphs[0], result, 1, stream);
  CHECK_OK(plinth_graph_update(graphs[0], graphs[1]));
  /* A replay of the updated graph uses the other child's pool. */
  CHECK_OK(plinth_graph_sleep(children[0]));
  expect_result(graphs[0], result, 2, stream);
  CHECK_OK(plinth_graph_sleep(children[1]));
  CHECK_STATUS(plinth_graph_replay(graphs[0]), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_graph_wake(children[0]));
  CHECK_OK(plinth_graph_wake(children[1]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
  CHECK_OK(plinth_graph_destroy(children[0]));
  CHECK_OK(plinth_graph_destroy(children[1]));
  CHECK_OK(plinth_empty_cache());
  expect_result(graphs[0], result, 2, stream);
  CHECK_OK(plinth_graph_instantiate(graphs[0]));
  expect_result(graphs[0], result, 1, stream);
  CHECK_OK(plinth_graph_destroy(graphs[0]));
  CHECK_OK(plinth_pinned_free(result));
  expect_nothing_left();
}

TEST(an_impossible_update_says_why) {
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(2 * BYTES, 0, stream);
  plinth_graph_t graph = graph_of_two_fills(memory, 1, stream, 0);
  plinth_graph_t smaller = graph_of_fill(memory, 5, BYTES, stream, PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_t unkept = graph_of_two_fills(memory, 5, stream, 0);
  CHECK_STATUS(plinth_graph_update(graph, smaller), PLINTH_ERROR_GRAPH_UPDATE_REFUSED);
  CHECK_MESSAGE("the graph is unchanged");
  CHECK_STATUS(plinth_graph_update(graph, graph), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_update(graph, unkept), PLINTH_ERROR_GRAPH_NOT_KEPT);
  CHECK_STATUS(plinth_graph_update(graph, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_update_native(graph, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_graph_replay(graph));
  expect_two_fills(memory, 1, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(smaller));
  CHECK_OK(plinth_graph_destroy(unkept));
  release(memory);
  expect_nothing_left();
}
