/* Handles of cuBLAS, cuBLASLt and cuSOLVER. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* library: fake_cublas_for_gpus */
/* env: FAKE_CUBLAS_ALLOCATES=1 */
#include "libraries.h"

#define BLAS "PLINTH_CUBLAS_LIBRARY"
#define SOLVER "PLINTH_CUSOLVER_LIBRARY"

static const char *const blas_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", NULL};
static const char *const solver_names[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};

/* cuBLAS: on the host device the stand-in, on a GPU the real one, or none, and then the test is skipped. */
static void need_blas(void) {
  void *handle = NULL;
  if (on_host_device()) {
    name_library(BLAS, "fake_cublas");
    name_library(SOLVER, "fake_cublas");
  } else if (plinth_current_blaslt_handle(&handle) == PLINTH_ERROR_LIBRARY_UNAVAILABLE) {
    SKIP("needs cuBLAS");
  }
}

static void need_stand_in(void) {
  need_host_device();
  need_blas();
}

static void *handle_now(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_blas_handle(&handle));
  CHECK(handle != NULL && handle != UNTOUCHED_POINTER);
  return handle;
}

/* The stand-in's opinion of a handle. */
#define ASK(type, name)               \
  static type name(const void *of) {  \
    type (*call)(const void *);       \
    void *found = function_of(BLAS, blas_names, "fake_cublas_" #name); \
    memcpy(&call, &found, sizeof found); \
    return call(of);                  \
  }
ASK(plinth_stream_t, stream)
ASK(void *, workspace)
ASK(size_t, workspace_bytes)
ASK(int, modes)
ASK(int, device)

static int handles_made(void) {
  int (*call)(void);
  void *found = function_of(BLAS, blas_names, "fake_cublas_handles");
  memcpy(&call, &found, sizeof found);
  return call();
}

typedef int (*sgemm)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                     const float *, float *, int);

enum { ROWS = 67, COLUMNS = 41, DEPTH = 53 };

typedef struct {
  float *a, *b, *c;
  float host_a[ROWS * DEPTH], host_b[DEPTH * COLUMNS], host_c[ROWS * COLUMNS];
} product;

static float number(unsigned *state) {
  *state = *state * 1103515245u + 12345u;
  return (float)((int)(*state >> 16 & 15) - 7);
}

static void fill_product(product *made, unsigned seed) {
  for (int index = 0; index < ROWS * DEPTH; index++) {
    made->host_a[index] = number(&seed);
  }
  for (int index = 0; index < DEPTH * COLUMNS; index++) {
    made->host_b[index] = number(&seed);
  }
  put(made->a, made->host_a, sizeof made->host_a);
  put(made->b, made->host_b, sizeof made->host_b);
}

/* Two matrices of whole numbers, so that every order of additions gives the same. */
static product *new_product(int32_t device, unsigned seed) {
  product *made = (product *)calloc(1, sizeof *made);
  CHECK(made != NULL);
  made->a = (float *)device_memory(sizeof made->host_a, device);
  made->b = (float *)device_memory(sizeof made->host_b, device);
  made->c = (float *)device_memory(sizeof made->host_c, device);
  fill_product(made, seed);
  return made;
}

/* c = a b, in columns. */
static void multiply(void *handle, product *of) {
  sgemm call;
  void *found = function_of(BLAS, blas_names, "cublasSgemm_v2");
  const float one = 1, zero = 0;
  memcpy(&call, &found, sizeof found);
  CHECK_EQ(call(handle, 0, 0, ROWS, COLUMNS, DEPTH, &one, of->a, ROWS, of->b, DEPTH, &zero, of->c, ROWS), 0);
}

static void expect_right(product *of, plinth_stream_t where) {
  CHECK_OK(plinth_memcpy(of->host_c, of->c, sizeof of->host_c, where));
  CHECK_OK(plinth_stream_synchronize(where));
  for (int column = 0; column < COLUMNS; column++) {
    for (int row = 0; row < ROWS; row++) {
      float sum = 0;
      for (int step = 0; step < DEPTH; step++) {
        sum += of->host_a[step * ROWS + row] * of->host_b[column * DEPTH + step];
      }
      CHECK(of->host_c[column * ROWS + row] == sum);
    }
  }
}

static void free_product(product *of) {
  CHECK_OK(plinth_device_free(of->a));
  CHECK_OK(plinth_device_free(of->b));
  CHECK_OK(plinth_device_free(of->c));
  free(of);
}

/* torch's sizes. */
static size_t usual_bytes(void) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  return properties.major >= 9 && properties.major <= 12 ? 32 * MIB : 8519680;
}

TEST(a_product_is_right_in_the_default_stream) {
  need_blas();
  product *of = new_product(0, 1);
  multiply(handle_now(), of);
  expect_right(of, NULL);
  free_product(of);
}

TEST(products_are_right_in_two_streams) {
  need_blas();
  product *one = new_product(0, 2), *two = new_product(0, 3);
  plinth_stream_t first = on_new_stream(0);
  gate *shut = gate_shut(first);
  void *handle = handle_now();
  multiply(handle, one);
  plinth_stream_t second = on_new_stream(0);
  CHECK_SAME(handle_now(), handle);
  if (on_host_device()) {
    CHECK_SAME(stream(handle), second);
  }
  CHECK_OK(plinth_memcpy(two->c, two->a, sizeof two->host_c, second));
  finish(second); /* The second waits for nobody; what comes now may be a host function. */
  gate_open(shut);
  multiply(handle, two);
  expect_right(two, second);
  expect_right(one, first);
  CHECK_OK(plinth_set_stream(first));
  for (unsigned round = 0; round < 20; round++) {
    CHECK_OK(plinth_set_stream(round % 2 ? first : second));
    multiply(handle_now(), round % 2 ? one : two);
  }
  expect_right(one, first);
  expect_right(two, second);
  free_product(one);
  free_product(two);
}

static plinth_graph_t captured_product(product *of) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  multiply(handle_now(), of);
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

TEST(a_captured_product_is_right_at_each_replay) {
  need_blas();
  product *of = new_product(0, 4);
  plinth_stream_t where = on_new_stream(0);
  multiply(handle_now(), of);
  finish(where);
  plinth_graph_t graph = captured_product(of);
  for (unsigned round = 0; round < 3; round++) {
    fill_product(of, 50 + round);
    CHECK_OK(plinth_graph_replay(graph));
    expect_right(of, where);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(of);
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

/* The workspace of a graph is nobody else's for as long as the graph is there. */
TEST(a_graph_keeps_its_workspace) {
  need_blas();
  product *of = new_product(0, 5);
  plinth_stream_t where = on_new_stream(0);
  void *handle = handle_now();
  void *eager = on_host_device() ? workspace(handle) : NULL;
  plinth_graph_t graph = captured_product(of);
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
  /* What others have now, a replay must not touch. */
  unsigned char *taken[40];
  void *pinned = pinned_memory(MIB);
  for (int index = 0; index < 40; index++) {
    taken[index] = alloc_on(MIB, 0, where);
    fill_words(taken[index], 0xA5A5A5A5u, MIB, where);
  }
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(of, where);
  for (int index = 0; index < 40; index++) {
    CHECK(has_words(taken[index], 0xA5A5A5A5u, MIB, where, pinned));
    release(taken[index]);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(of);
  expect_nothing_left();
}

/* Everything that is made at first use is made in the capture. */
TEST(the_first_handle_is_made_in_a_capture) {
  void *handle = NULL;
  if (on_host_device()) {
    need_blas();
  }
  product *of = new_product(0, 6);
  plinth_stream_t where = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  const plinth_status_t status = plinth_current_blas_handle(&handle);
  if (status == PLINTH_ERROR_LIBRARY_UNAVAILABLE && !on_host_device()) {
    SKIP("needs cuBLAS");
  }
  CHECK_OK(status);
  multiply(handle, of);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(of, where);
  if (on_host_device()) {
    CHECK_EQ(handles_made(), 1);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(of);
  expect_nothing_left();
}

TEST(both_streams_of_a_capture_have_workspaces_of_the_graph) {
  need_blas();
  product *one = new_product(0, 7), *two = new_product(0, 8);
  plinth_stream_t other = stream_on(0);
  plinth_stream_t where = on_new_stream(0);
  CHECK_OK(plinth_set_stream(other));
  handle_now();
  CHECK_OK(plinth_set_stream(where));
  handle_now();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_stream_wait_stream(other, where));
  multiply(handle_now(), one);
  void *first = on_host_device() ? workspace(handle_now()) : NULL;
  CHECK_OK(plinth_set_stream(other));
  multiply(handle_now(), two);
  if (on_host_device()) {
    CHECK(workspace(handle_now()) != first);
  }
  CHECK_OK(plinth_set_stream(where));
  CHECK_OK(plinth_stream_wait_stream(where, other));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(graph_held(graph) >= 2 * usual_bytes());
  CHECK_OK(plinth_graph_replay(graph));
  expect_right(one, where);
  expect_right(two, where);
  CHECK_OK(plinth_graph_destroy(graph));
  free_product(one);
  free_product(two);
}

TEST(a_capture_that_is_given_up_gives_the_workspace_back) {
  need_blas();
  product *of = new_product(0, 9);
  on_new_stream(0);
  handle_now();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  multiply(handle_now(), of);
  CHECK_OK(plinth_graph_reset(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_clear_blas_workspaces());
  multiply(handle_now(), of);
  expect_right(of, current_stream());
  CHECK_OK(plinth_clear_blas_workspaces());
  free_product(of);
  expect_nothing_left();
}

/* Of a capture by the driver's own calls nobody hears the end. */
TEST(captures_of_the_programs_own_share_a_workspace_until_it_is_cleared) {
  need_blas();
  plinth_stream_t where = on_new_stream(0);
  void *graph = NULL, *memory[3] = {NULL, NULL, NULL};
  void *handle = handle_now();
  const size_t bytes = allocated(0);
  memory[0] = on_host_device() ? workspace(handle) : NULL;
  for (int round = 1; round < 3; round++) {
    begin_capture(where, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_SAME(handle_now(), handle);
    memory[round] = on_host_device() ? workspace(handle) : NULL;
    CHECK_OK(plinth_sleep(1, where));
    CHECK_EQ(end_capture(where, &graph), CUDA_SUCCESS);
    DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
    CHECK_EQ(destroy(graph), CUDA_SUCCESS);
    CHECK_EQ(allocated(0), 2 * bytes);
  }
  CHECK_SAME(memory[1], memory[2]);
  CHECK(memory[0] != memory[1] || !on_host_device());
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

TEST(workspaces_have_torchs_sizes) {
  need_blas();
  void *memory = UNTOUCHED_POINTER;
  size_t bytes = UNTOUCHED;
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  unsetenv("CUBLASLT_WORKSPACE_SIZE");
  on_new_stream(0);
  void *handle = handle_now();
  CHECK_EQ(allocated(0), rounded(usual_bytes()));
  if (on_host_device()) {
    CHECK_EQ(workspace_bytes(handle), usual_bytes());
  }
  CHECK_OK(plinth_current_blaslt_workspace(&memory, &bytes));
  CHECK_EQ(bytes, MIB);
  CHECK(memory != NULL && (uintptr_t)memory % 256 == 0);
  CHECK_EQ(allocated(0), rounded(usual_bytes()));
  on_new_stream(0);
  handle_now();
  CHECK_EQ(allocated(0), 2 * rounded(usual_bytes()));
  CHECK_OK(plinth_clear_blas_workspaces());
  CHECK_EQ(allocated(0), 0);
  CHECK_SAME(handle_now(), handle);
  CHECK_EQ(allocated(0), rounded(usual_bytes()));
}

TEST(the_environment_says_how_large_workspaces_are) {
  need_blas();
  void *memory = UNTOUCHED_POINTER;
  size_t bytes = UNTOUCHED;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  setenv("CUBLASLT_WORKSPACE_SIZE", "512", 1);
  on_new_stream(0);
  void *handle = handle_now();
  CHECK_OK(plinth_current_blaslt_workspace(&memory, &bytes));
  CHECK_EQ(bytes, 512 * KIB);
  CHECK_EQ(allocated(0), 512 * KIB);
  if (on_host_device()) {
    CHECK_EQ(workspace_bytes(handle), 128 * KIB);
  }
}

TEST(no_workspace_is_one_of_no_bytes) {
  need_blas();
  setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  setenv("CUBLASLT_WORKSPACE_SIZE", "0", 1);
  on_new_stream(0);
  product *of = new_product(0, 10);
  multiply(handle_now(), of);
  expect_right(of, current_stream());
  CHECK_EQ(allocated(0), 0);
  free_product(of);
}

TEST(an_environment_that_makes_no_sense_is_named) {
  need_blas();
  void *handle = UNTOUCHED_POINTER;
  setenv("CUBLAS_WORKSPACE_CONFIG", "4096", 1);
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("CUBLAS_WORKSPACE_CONFIG");
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  setenv("CUBLASLT_WORKSPACE_SIZE", "a lot", 1);
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("CUBLASLT_WORKSPACE_SIZE");
  CHECK(handle == UNTOUCHED_POINTER);
  unsetenv("CUBLASLT_WORKSPACE_SIZE");
  handle_now();
}

TEST(cublaslt_takes_the_same_handle) {
  need_blas();
  void *handle = UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_blaslt_handle(&handle));
  CHECK_EQ(allocated(0), 0);
  CHECK_SAME(handle_now(), handle);
}

enum { THREADS = 8 };
static void *of_thread[2][THREADS];
static int round_of_threads, at_work;

static void *multiply_in_a_thread(void *context) {
  const int number = *(int *)context;
  product *of = new_product(0, 100 + (unsigned)number);
  plinth_stream_t where = on_new_stream(0);
  void *handle = of_thread[round_of_threads][number] = handle_now();
  __atomic_add_fetch(&at_work, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&at_work, __ATOMIC_SEQ_CST) < THREADS) {
    sleep_a_little();
  }
  for (int round = 0; round < 50; round++) {
    CHECK_SAME(handle_now(), handle);
    multiply(handle, of);
  }
  expect_right(of, where);
  free_product(of);
  return NULL;
}

TEST(each_thread_has_a_handle_and_leaves_it_to_the_next) {
  need_blas();
  for (round_of_threads = 0; round_of_threads < 2; round_of_threads++) {
    at_work = 0;
    run_threads(THREADS, multiply_in_a_thread);
    for (int one = 0; one < THREADS; one++) {
      for (int other = 0; other < one; other++) {
        CHECK(of_thread[round_of_threads][one] != of_thread[round_of_threads][other]);
      }
    }
  }
  for (int one = 0; one < THREADS; one++) {
    bool again = false;
    for (int other = 0; other < THREADS; other++) {
      again = again || of_thread[1][one] == of_thread[0][other];
    }
    CHECK(again);
  }
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

static void *clear_again_and_again(void *context) {
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

TEST(workspaces_are_cleared_while_others_are_made) {
  need_stand_in();
  run_threads(4, clear_again_and_again);
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

static void *seen;
static int modes_before, modes_after;

static void *use_other_modes(void *context) {
  int (*set_mode)(void *, int);
  void *found = NULL;
  const char *const calls[] = {"cublasSetPointerMode_v2", "cublasSetMathMode", "cublasSetAtomicsMode"};
  (void)context;
  seen = handle_now();
  modes_before = modes(seen);
  for (int index = 0; index < 3; index++) {
    found = function_of(BLAS, blas_names, calls[index]);
    memcpy(&set_mode, &found, sizeof found);
    CHECK_EQ(set_mode(seen, 1), 0);
  }
  CHECK_SAME(handle_now(), seen);
  modes_after = modes(seen);
  return NULL;
}

TEST(a_handle_comes_to_the_next_thread_like_a_new_one) {
  need_stand_in();
  for (int round = 0; round < 3; round++) {
    run_threads(1, use_other_modes);
    CHECK_EQ(modes_before, 0);
    CHECK_EQ(modes_after, 0x111);
  }
  CHECK_EQ(handles_made(), 1);
}

/* A thread's own default stream is another one in the next thread. */
static void *use_own_default_stream(void *context) {
  product *of = new_product(0, 11);
  (void)context;
  CHECK_OK(plinth_set_stream((plinth_stream_t)2));
  multiply(handle_now(), of);
  expect_right(of, (plinth_stream_t)2);
  free_product(of);
  return NULL;
}

TEST(the_workspace_of_a_threads_own_stream_ends_with_it) {
  need_blas();
  for (int round = 0; round < 3; round++) {
    run_threads(1, use_own_default_stream);
    CHECK_EQ(allocated(0), 0);
  }
}

TEST(each_device_has_handles_of_its_own) {
  need_devices(2);
  need_blas();
  product *one = new_product(0, 12), *two = new_product(1, 13);
  plinth_stream_t here = on_new_stream(0);
  void *first = handle_now();
  multiply(first, one);
  plinth_stream_t there = on_new_stream(1);
  void *second = handle_now();
  CHECK(first != second);
  if (on_host_device()) {
    CHECK_EQ(device(first), 0);
    CHECK_EQ(device(second), 1);
  }
  multiply(second, two);
  expect_right(two, there);
  CHECK(allocated(1) > 0);
  CHECK_OK(plinth_set_stream(here));
  CHECK_SAME(handle_now(), first);
  expect_right(one, here);
  free_product(one);
  free_product(two);
}

TEST(a_green_contexts_stream_is_one_like_others) {
  need_blas();
  plinth_green_context_t part = NULL;
  if (plinth_green_context_create(16, 0, &part) != PLINTH_OK) {
    SKIP("needs green contexts");
  }
  product *of = new_product(0, 14);
  CHECK_OK(plinth_green_context_set_context(part));
  multiply(handle_now(), of);
  CHECK_OK(plinth_green_context_pop_context(part));
  expect_right(of, NULL);
  CHECK_OK(plinth_green_context_destroy(part));
  free_product(of);
}

TEST(what_fails_in_the_library_is_named_and_can_be_tried_again) {
  need_stand_in();
  void *handle = UNTOUCHED_POINTER;
  const struct {
    const char *fault;
    plinth_status_t status;
    const char *part;
  } cases[] = {
      {"cublasCreate_v2:1", PLINTH_ERROR_LIBRARY, "CUBLAS_STATUS_NOT_INITIALIZED"},
      {"cublasCreate_v2:3", PLINTH_ERROR_OUT_OF_MEMORY, "CUBLAS_STATUS_ALLOC_FAILED"},
      {"cublasSetStream_v2:14", PLINTH_ERROR_LIBRARY, "CUBLAS_STATUS_INTERNAL_ERROR"},
      {"cublasSetWorkspace_v2:7", PLINTH_ERROR_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
      {"cublasSetWorkspace_v2:15", PLINTH_ERROR_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
      {"cublasSetWorkspace_v2:77", PLINTH_ERROR_LIBRARY, "77"},
  };
  for (size_t index = 0; index < sizeof cases / sizeof cases[0]; index++) {
    char call[64];
    snprintf(call, sizeof call, "%.*s", (int)strcspn(cases[index].fault, ":"), cases[index].fault);
    setenv("FAKE_CUBLAS_FAIL", cases[index].fault, 1);
    CHECK_STATUS(plinth_current_blas_handle(&handle), cases[index].status);
    CHECK_MESSAGE(call);
    CHECK_MESSAGE(cases[index].part);
    CHECK(handle == UNTOUCHED_POINTER);
    unsetenv("FAKE_CUBLAS_FAIL");
  }
  handle_now();
  CHECK_EQ(handles_made(), 1);
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

TEST(a_workspace_that_there_is_no_memory_for_is_an_error) {
  need_blas();
  void *handle = UNTOUCHED_POINTER;
  on_new_stream(0);
  CHECK_OK(plinth_set_per_process_memory_fraction(0.0001, 0));
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("the workspace of cuBLAS");
  CHECK(handle == UNTOUCHED_POINTER);
  CHECK_OK(plinth_set_per_process_memory_fraction(1, 0));
  product *of = new_product(0, 15);
  multiply(handle_now(), of);
  expect_right(of, current_stream());
  free_product(of);
}

TEST(a_library_that_is_not_there_is_named) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_OK(plinth_init());
  setenv(BLAS, "/nowhere/libcublas.so.13", 1);
  setenv(SOLVER, "/nowhere/libcusolver.so.12", 1);
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("cuBLAS is needed, and PLINTH_CUBLAS_LIBRARY cannot be loaded");
  CHECK_STATUS(plinth_current_blaslt_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_STATUS(plinth_current_solver_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("cuSOLVER is needed, and PLINTH_CUSOLVER_LIBRARY cannot be loaded");
  setenv(BLAS, "libm.so.6", 1);
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("has no cublasCreate_v2, which came with CUDA 11.0");
  CHECK(handle == UNTOUCHED_POINTER);
}

TEST(a_library_for_gpus_does_not_work_on_the_host_device) {
  need_host_device();
  void *handle = UNTOUCHED_POINTER;
  name_library(BLAS, "fake_cublas_for_gpus");
  name_library(SOLVER, "fake_cublas_for_gpus");
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("cuBLAS works with NVIDIA's GPUs");
  CHECK_STATUS(plinth_current_solver_handle(&handle), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("cuSOLVER works with NVIDIA's GPUs");
  CHECK(handle == UNTOUCHED_POINTER);
}

TEST(an_output_must_not_be_null) {
  need_blas();
  size_t bytes = UNTOUCHED;
  void *memory = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_current_blaslt_handle(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_current_solver_handle(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_current_blaslt_workspace(NULL, &bytes), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_current_blaslt_workspace(&memory, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK(memory == UNTOUCHED_POINTER);
}

static void expect_refused(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_solver_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_clear_blas_workspaces(), PLINTH_ERROR_FORKED_CHILD);
  CHECK(handle == UNTOUCHED_POINTER);
  exit(0); /* With all that ends a process. */
}

TEST(the_child_of_a_fork_is_told) {
  need_blas();
  handle_now();
  in_child(expect_refused);
  product *of = new_product(0, 16);
  multiply(handle_now(), of);
  expect_right(of, NULL);
  free_product(of);
}

static void after_the_exit(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK(handle == UNTOUCHED_POINTER);
}

/* Functions for the exit are called the last one first: this one after the library's. */
TEST(nothing_is_called_once_the_exit_has_begun) {
  CHECK(atexit(after_the_exit) == 0);
  need_blas();
  on_new_stream(0);
  handle_now();
}

TEST(a_system_of_equations_is_solved_in_the_current_stream) {
  static const float matrix[] = {4, 2, 6, 0, 10, 5, 0, 0, 14}; /* In columns, the lower triangle. */
  float found[9];
  int info = UNTOUCHED, count = 0;
  int (*buffer_size)(void *, int, int, float *, int, int *);
  int (*factor)(void *, int, int, float *, int, float *, int, int *);
  need_blas();
  void *handle = UNTOUCHED_POINTER, *again = NULL;
  const plinth_status_t status = plinth_current_solver_handle(&handle);
  if (status == PLINTH_ERROR_LIBRARY_UNAVAILABLE && !on_host_device()) {
    SKIP("needs cuSOLVER");
  }
  CHECK_OK(status);
  plinth_stream_t where = on_new_stream(0);
  CHECK_OK(plinth_current_solver_handle(&again));
  CHECK_SAME(again, handle);
  float *a = (float *)device_memory(sizeof matrix, 0);
  int *result = (int *)device_memory(sizeof(int), 0);
  CHECK_OK(plinth_memcpy(a, matrix, sizeof matrix, where));
  void *symbol = function_of(SOLVER, solver_names, "cusolverDnSpotrf_bufferSize");
  memcpy(&buffer_size, &symbol, sizeof symbol);
  symbol = function_of(SOLVER, solver_names, "cusolverDnSpotrf");
  memcpy(&factor, &symbol, sizeof symbol);
  CHECK_EQ(buffer_size(handle, 0, 3, a, 3, &count), 0);
  float *buffer = (float *)device_memory(sizeof(float) * (size_t)(count > 0 ? count : 1), 0);
  CHECK_EQ(factor(handle, 0, 3, a, 3, buffer, count, result), 0);
  CHECK_OK(plinth_memcpy(found, a, sizeof found, where));
  CHECK_OK(plinth_memcpy(&info, result, sizeof info, where));
  finish(where);
  /* The factor is (2; 1 3; 3 2/3 sqrt(41)/3), of which the first columns are plain numbers. */
  CHECK_EQ(info, 0);
  CHECK(found[0] > 1.999f && found[0] < 2.001f && found[1] > 0.999f && found[1] < 1.001f);
  CHECK(found[2] > 2.999f && found[2] < 3.001f && found[4] > 2.999f && found[4] < 3.001f);
  CHECK(found[5] > 0.666f && found[5] < 0.667f && found[8] > 2.13f && found[8] < 2.14f);
  if (on_host_device()) {
    setenv("FAKE_CUBLAS_FAIL", "cusolverDnSetStream:7", 1);
    CHECK_STATUS(plinth_current_solver_handle(&again), PLINTH_ERROR_LIBRARY);
    CHECK_MESSAGE("cusolverDnSetStream failed with 7, CUSOLVER_STATUS_INTERNAL_ERROR");
  }
  CHECK_OK(plinth_device_free(a));
  CHECK_OK(plinth_device_free(result));
  CHECK_OK(plinth_device_free(buffer));
}
