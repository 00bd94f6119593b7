/* Workspaces of cuBLAS handles in captures. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* env: FAKE_CUBLAS_ALLOCATES=1 */
#include "multiplying.h"

static plinth_graph_t captured_product(product *gemm) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  multiply(handle_now(), gemm);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

TEST(a_captured_product_is_right_at_each_replay) {
  need_blas();
  product *gemm = new_product(0, 4);
  plinth_stream_t stream = on_new_stream(0);
  multiply(handle_now(), gemm);
  finish(stream);
  plinth_graph_t graph = captured_product(gemm);
  for (unsigned round = 0; round < 3; round++) {
    fill_product(gemm, 50 + round);
    CHECK_OK(plinth_graph_replay(graph));
    expect_right(gemm, stream);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(gemm);
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

/* While a graph exists, its workspace is not reused. */
TEST(a_graph_keeps_its_workspace) {
  need_blas();
  product *gemm = new_product(0, 5);
  plinth_stream_t stream = on_new_stream(0);
  void *handle = handle_now();
  void *eager = on_host_device() ? workspace(handle) : NULL;
  plinth_graph_t graph = captured_product(gemm);
  CHECK_EQ(graph_allocated(graph), 0);
  CHECK(graph_held(graph) >= usual_bytes());
  if (on_host_device()) {
    CHECK(workspace(handle) != eager);
    CHECK(workspace(handle_now()) == eager);
  }
  CHECK_OK(plinth_clear_blas_workspaces());
  CHECK_EQ(allocated(0), 0);
  CHECK_OK(plinth_empty_cache());
  CHECK(graph_held(graph) >= usual_bytes());
  /* A replay must not write to blocks that are allocated now. */
  unsigned char *blocks[40];
  void *pinned = pinned_memory(MIB);
  for (int index = 0; index < 40; index++) {
    blocks[index] = alloc_on(MIB, 0, stream);
    fill_words(blocks[index], 0xA5A5A5A5u, MIB, stream);
  }
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(gemm, stream);
  for (int index = 0; index < 40; index++) {
    CHECK(has_words(blocks[index], 0xA5A5A5A5u, MIB, stream, pinned));
    release(blocks[index]);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(gemm);
  expect_nothing_left();
}

/* Nothing of the library is initialized before the capture. */
TEST(the_first_handle_may_be_created_in_a_capture) {
  void *handle = NULL;
  if (on_host_device()) {
    need_blas();
  }
  product *gemm = new_product(0, 6);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  const plinth_status_t status = plinth_current_blas_handle(&handle);
  if (status == PLINTH_ERROR_LIBRARY_UNAVAILABLE && !on_host_device()) {
    SKIP("needs cuBLAS");
  }
  CHECK_OK(status);
  multiply(handle, gemm);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(gemm, stream);
  if (on_host_device()) {
    CHECK_EQ(handles_made(), 1);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(gemm);
  expect_nothing_left();
}

TEST(each_stream_of_a_capture_has_a_workspace_of_the_graph) {
  need_blas();
  product *one = new_product(0, 7), *two = new_product(0, 8);
  plinth_stream_t other = stream_on(0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_set_stream(other));
  handle_now();
  CHECK_OK(plinth_set_stream(stream));
  handle_now();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_stream_wait_stream(other, stream));
  multiply(handle_now(), one);
  void *first = on_host_device() ? workspace(handle_now()) : NULL;
  CHECK_OK(plinth_set_stream(other));
  multiply(handle_now(), two);
  if (on_host_device()) {
    CHECK(workspace(handle_now()) != first);
  }
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_stream_wait_stream(stream, other));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(graph_held(graph) >= 2 * usual_bytes());
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(one, stream);
  expect_right(two, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(one);
  free_product(two);
}

TEST(an_aborted_capture_frees_its_workspace) {
  need_blas();
  product *gemm = new_product(0, 9);
  on_new_stream(0);
  handle_now();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  multiply(handle_now(), gemm);
  CHECK_OK(plinth_graph_reset(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_clear_blas_workspaces());
  multiply(handle_now(), gemm);
  expect_right(gemm, current_stream());
  CHECK_OK(plinth_clear_blas_workspaces());
  free_product(gemm);
  expect_nothing_left();
}

static size_t allocated_after_clear(void) {
  CHECK_OK(plinth_clear_blas_workspaces());
  return allocated(0);
}

/* plinth is not notified of the end of a capture that uses the driver directly, so the driver's graph owns the workspace. */
TEST(each_capture_by_driver_calls_has_a_workspace) {
  need_blas();
  plinth_stream_t stream = on_new_stream(0);
  void *graph[3] = {NULL, NULL, NULL}, *memory[3] = {NULL, NULL, NULL}, *executable = NULL;
  void *handle = handle_now();
  const size_t bytes = allocated(0);
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  memory[0] = on_host_device() ? workspace(handle) : NULL;
  for (int round = 1; round < 3; round++) {
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_SAME(handle_now(), handle);
    CHECK_SAME(handle_now(), handle);
    memory[round] = on_host_device() ? workspace(handle) : NULL;
    CHECK_OK(plinth_sleep(1, stream));
    CHECK_EQ(end_capture(stream, &graph[round]), CUDA_SUCCESS);
    CHECK_EQ(allocated(0), ((size_t)round + 1) * bytes);
    /* Clearing does not free workspaces of graphs. */
    CHECK_EQ(allocated_after_clear(), (size_t)round * bytes);
    CHECK_SAME(handle_now(), handle);
  }
  CHECK((memory[1] != memory[2] && memory[0] != memory[1]) || !on_host_device());
  CHECK_EQ(instantiate(&executable, graph[1], 0), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph[1]), CUDA_SUCCESS);
  CHECK_EQ(allocated_after_clear(), 2 * bytes);
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph[2]), CUDA_SUCCESS);
  EVENTUALLY(allocated_after_clear() == 0);
  expect_nothing_left();
}

static void *clear_or_capture(void *context) {
  const int number = *(int *)context;
  if (number == 0) {
    for (int round = 0; round < 200; round++) {
      CHECK_OK(plinth_clear_blas_workspaces());
      sleep_a_little();
    }
    return NULL;
  }
  on_new_stream(0);
  for (int round = 0; round < 200; round++) {
    handle_now();
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
    handle_now();
    CHECK_OK(plinth_sleep(1, current_stream()));
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_destroy(graph));
  }
  return NULL;
}

TEST(workspaces_are_cleared_while_other_threads_create_them) {
  need_stand_in();
  run_threads(4, clear_or_capture);
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}
