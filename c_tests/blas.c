/* Handles of cuBLAS and cuBLASLt. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* library: fake_cublas_for_gpus */
/* env: FAKE_CUBLAS_ALLOCATES=1 */
/* alone: a_handle_comes_to_the_next_thread_like_a_new_one; expects what only a fresh process has */
/* alone: a_library_that_is_not_there_is_named the_child_of_a_fork_is_told; expects what only a fresh process has */
/* alone: the_environment_says_how_large_workspaces_are; expects what only a fresh process has */
/* alone: what_fails_in_the_library_is_named_and_can_be_tried_again; expects what only a fresh process has */
/* alone: no_workspace_is_one_of_no_bytes; sets the environment */
/* alone: nothing_is_called_once_the_exit_has_begun; ends the use of the library */
/* alone: an_environment_that_makes_no_sense_is_named a_library_for_gpus_does_not_work_on_the_host_device; sets the environment */
#include "multiplying.h"

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
  void *handle = handle_now();
  /* The driver loads a kernel when it is first launched, and may wait for the device then. */
  multiply(handle, one);
  finish(first);
  gate *shut = gate_shut(first);
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

/* A function of cuBLASLt's, which came with cuBLAS. */
static void *of_lt(const char *symbol) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", NULL};
  return function_of(on_host_device() ? BLAS : "", names, symbol);
}

enum { R_32F = 0, COMPUTE_32F = 68 };

TEST(a_product_of_cublaslts_is_right) {
  int (*new_description)(void **, int, int), (*new_layout)(void **, int, uint64_t, uint64_t, int64_t);
  int (*free_description)(void *), (*free_layout)(void *);
  int (*matmul)(void *, void *, const float *, const float *, void *, const float *, void *, const float *, const float *,
                void *, float *, void *, const void *, void *, size_t, plinth_stream_t);
  void *handle = NULL, *memory = NULL, *description = NULL, *layouts[3];
  const uint64_t extents[3][2] = {{ROWS, DEPTH}, {DEPTH, COLUMNS}, {ROWS, COLUMNS}};
  const float one = 1, zero = 0;
  size_t bytes = 0;
  need_blas();
  product *of = new_product(0, 17);
  plinth_stream_t where = on_new_stream(0);
  CHECK_OK(plinth_current_blaslt_handle(&handle));
  CHECK_OK(plinth_current_blaslt_workspace(&memory, &bytes));
#define FIND(variable, symbol)                    \
  {                                               \
    void *found = of_lt(symbol);                  \
    memcpy(&(variable), &found, sizeof(variable)); \
  }
  FIND(new_description, "cublasLtMatmulDescCreate")
  FIND(free_description, "cublasLtMatmulDescDestroy")
  FIND(new_layout, "cublasLtMatrixLayoutCreate")
  FIND(free_layout, "cublasLtMatrixLayoutDestroy")
  FIND(matmul, "cublasLtMatmul")
  CHECK_EQ(new_description(&description, COMPUTE_32F, R_32F), 0);
  for (int index = 0; index < 3; index++) {
    CHECK_EQ(new_layout(&layouts[index], R_32F, extents[index][0], extents[index][1], (int64_t)extents[index][0]), 0);
  }
  CHECK_EQ(matmul(handle, description, &one, of->a, layouts[0], of->b, layouts[1], &zero, of->c, layouts[2], of->c,
                  layouts[2], NULL, memory, bytes, where),
           0);
  expect_right(of, where);
  for (int index = 0; index < 3; index++) {
    CHECK_EQ(free_layout(layouts[index]), 0);
  }
  CHECK_EQ(free_description(description), 0);
  free_product(of);
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

/* What CUDA's own libraries do at the end of such a child is not for us to test. */
static bool ends_like_a_process;

static void expect_refused(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_solver_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_clear_blas_workspaces(), PLINTH_ERROR_FORKED_CHILD);
  CHECK(handle == UNTOUCHED_POINTER);
  if (ends_like_a_process) {
    exit(0);
  }
}

TEST(the_child_of_a_fork_is_told) {
  need_blas();
  handle_now();
  ends_like_a_process = on_host_device();
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
