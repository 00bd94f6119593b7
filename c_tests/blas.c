/* cuBLAS and cuBLASLt handles. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* library: fake_cublas_for_gpus */
/* env: FAKE_CUBLAS_ALLOCATES=1 */
/* alone: a_reused_handle_has_default_modes; expects a new process */
/* alone: a_missing_library_is_reported calls_are_refused_in_a_forked_child; expects a new process */
/* alone: the_environment_sets_workspace_sizes; expects a new process */
/* alone: library_errors_are_reported_and_calls_can_be_repeated; expects a new process */
/* alone: a_workspace_may_have_no_bytes; sets the environment */
/* alone: calls_are_refused_at_exit; ends the use of the library */
/* alone: an_invalid_environment_is_reported a_library_for_gpus_is_refused_on_the_host_device; sets the environment */
#include "multiplying.h"
#include "sleeping.h"

TEST(a_product_is_right_in_the_default_stream) {
  need_blas();
  product *gemm = new_product(0, 1);
  multiply(handle_now(), gemm);
  expect_right(gemm, NULL);
  free_product(gemm);
}

TEST(products_are_right_in_two_streams) {
  need_blas();
  product *one = new_product(0, 2), *two = new_product(0, 3);
  plinth_stream_t first = on_new_stream(0);
  void *handle = handle_now();
  /* The first launch of a kernel loads it, and may wait for the device. */
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
  finish(second); /* Does not wait for the first stream. What follows may be a host function, which the gate would block. */
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

TEST(workspaces_are_released_when_memory_sleeps) {
  need_blas();
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  const plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *weights = alloc_in(pool, 4 * MIB, 0, stream);
  product *gemm = new_product(0, 1);
  multiply(handle_now(), gemm);
  expect_right(gemm, stream);
  free_product(gemm);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  const size_t with_workspace = reserved(0);
  CHECK(with_workspace >= 8 * MIB);
  options.flags = PLINTH_SLEEP_RELEASE_WORKSPACES;
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK(reserved(0) + 8 * MIB <= with_workspace);
  gemm = new_product(0, 2);
  multiply(handle_now(), gemm);
  expect_right(gemm, stream);
  free_product(gemm);
  CHECK_OK(plinth_memory_wake("weights"));
  release(weights);
  destroy(pool);
}

TEST(workspaces_have_the_sizes_of_pytorch) {
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

TEST(the_environment_sets_workspace_sizes) {
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

TEST(a_workspace_may_have_no_bytes) {
  need_blas();
  setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  setenv("CUBLASLT_WORKSPACE_SIZE", "0", 1);
  on_new_stream(0);
  product *gemm = new_product(0, 10);
  multiply(handle_now(), gemm);
  expect_right(gemm, current_stream());
  CHECK_EQ(allocated(0), 0);
  free_product(gemm);
}

TEST(an_invalid_environment_is_reported) {
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

TEST(cublaslt_uses_the_same_handle) {
  need_blas();
  void *handle = UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_blaslt_handle(&handle));
  CHECK_EQ(allocated(0), 0);
  CHECK_SAME(handle_now(), handle);
}

/* A function of cuBLASLt, which cuBLAS depends on. */
static void *cublaslt_function(const char *symbol) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", NULL};
  return function_of(on_host_device() ? BLAS : "", names, symbol);
}

enum { R_32F = 0, COMPUTE_32F = 68 };

TEST(a_cublaslt_product_is_right) {
  int (*new_description)(void **, int, int), (*new_layout)(void **, int, uint64_t, uint64_t, int64_t);
  int (*free_description)(void *), (*free_layout)(void *);
  int (*matmul)(void *, void *, const float *, const float *, void *, const float *, void *, const float *, const float *,
                void *, float *, void *, const void *, void *, size_t, plinth_stream_t);
  void *handle = NULL, *memory = NULL, *description = NULL, *layouts[3];
  const uint64_t extents[3][2] = {{ROWS, DEPTH}, {DEPTH, COLUMNS}, {ROWS, COLUMNS}};
  const float one = 1, zero = 0;
  size_t bytes = 0;
  need_blas();
  product *gemm = new_product(0, 17);
  plinth_stream_t stream_of_gemm = on_new_stream(0);
  CHECK_OK(plinth_current_blaslt_handle(&handle));
  CHECK_OK(plinth_current_blaslt_workspace(&memory, &bytes));
#define FIND(variable, symbol)                    \
  {                                               \
    void *found = cublaslt_function(symbol);      \
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
  CHECK_EQ(matmul(handle, description, &one, gemm->a, layouts[0], gemm->b, layouts[1], &zero, gemm->c, layouts[2], gemm->c,
                  layouts[2], NULL, memory, bytes, stream_of_gemm),
           0);
  expect_right(gemm, stream_of_gemm);
  for (int index = 0; index < 3; index++) {
    CHECK_EQ(free_layout(layouts[index]), 0);
  }
  CHECK_EQ(free_description(description), 0);
  free_product(gemm);
}

enum { THREADS = 8 };
static void *handles[2][THREADS];
static int round_of_threads, threads_started;

static void *multiply_in_a_thread(void *context) {
  const int number = *(int *)context;
  product *gemm = new_product(0, 100 + (unsigned)number);
  plinth_stream_t stream_of_gemm = on_new_stream(0);
  void *handle = handles[round_of_threads][number] = handle_now();
  __atomic_add_fetch(&threads_started, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&threads_started, __ATOMIC_SEQ_CST) < THREADS) {
    sleep_a_little();
  }
  for (int round = 0; round < 50; round++) {
    CHECK_SAME(handle_now(), handle);
    multiply(handle, gemm);
  }
  expect_right(gemm, stream_of_gemm);
  free_product(gemm);
  return NULL;
}

TEST(each_thread_has_a_handle_which_later_threads_reuse) {
  need_blas();
  for (round_of_threads = 0; round_of_threads < 2; round_of_threads++) {
    threads_started = 0;
    run_threads(THREADS, multiply_in_a_thread);
    for (int one = 0; one < THREADS; one++) {
      for (int other = 0; other < one; other++) {
        CHECK(handles[round_of_threads][one] != handles[round_of_threads][other]);
      }
    }
  }
  for (int one = 0; one < THREADS; one++) {
    bool again = false;
    for (int other = 0; other < THREADS; other++) {
      again = again || handles[1][one] == handles[0][other];
    }
    CHECK(again);
  }
  CHECK_OK(plinth_clear_blas_workspaces());
  expect_nothing_left();
}

static void *handle_of_thread;
static int modes_before, modes_after;

static void *use_other_modes(void *context) {
  int (*set_mode)(void *, int);
  void *found = NULL;
  const char *const calls[] = {"cublasSetPointerMode_v2", "cublasSetMathMode", "cublasSetAtomicsMode"};
  (void)context;
  handle_of_thread = handle_now();
  modes_before = modes(handle_of_thread);
  for (int index = 0; index < 3; index++) {
    found = function_of(BLAS, blas_names, calls[index]);
    memcpy(&set_mode, &found, sizeof found);
    CHECK_EQ(set_mode(handle_of_thread, 1), 0);
  }
  CHECK_SAME(handle_now(), handle_of_thread);
  modes_after = modes(handle_of_thread);
  return NULL;
}

TEST(a_reused_handle_has_default_modes) {
  need_stand_in();
  for (int round = 0; round < 3; round++) {
    run_threads(1, use_other_modes);
    CHECK_EQ(modes_before, 0);
    CHECK_EQ(modes_after, 0x1001); /* the math mode is that of the precision settings again */
  }
  CHECK_EQ(handles_made(), 1);
}

/* The per-thread default stream is a different one in the next thread. */
static void *use_own_default_stream(void *context) {
  product *gemm = new_product(0, 11);
  (void)context;
  CHECK_OK(plinth_set_stream((plinth_stream_t)2));
  multiply(handle_now(), gemm);
  expect_right(gemm, (plinth_stream_t)2);
  free_product(gemm);
  return NULL;
}

TEST(the_workspace_of_a_per_thread_stream_is_freed_with_the_thread) {
  need_blas();
  for (int round = 0; round < 3; round++) {
    run_threads(1, use_own_default_stream);
    CHECK_EQ(allocated(0), 0);
  }
}

TEST(each_device_has_its_own_handles) {
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

TEST(products_are_right_in_the_stream_of_a_green_context) {
  need_blas();
  plinth_green_context_t context = NULL;
  if (plinth_green_context_create(16, 0, &context) != PLINTH_OK) {
    SKIP("needs green contexts");
  }
  product *gemm = new_product(0, 14);
  CHECK_OK(plinth_green_context_set_context(context));
  multiply(handle_now(), gemm);
  CHECK_OK(plinth_green_context_pop_context(context));
  expect_right(gemm, NULL);
  CHECK_OK(plinth_green_context_destroy(context));
  free_product(gemm);
}

TEST(library_errors_are_reported_and_calls_can_be_repeated) {
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

TEST(a_handle_is_refused_without_memory_for_its_workspace) {
  need_blas();
  void *handle = UNTOUCHED_POINTER;
  on_new_stream(0);
  CHECK_OK(plinth_set_per_process_memory_fraction(0.0001, 0));
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("the workspace of cuBLAS");
  CHECK(handle == UNTOUCHED_POINTER);
  CHECK_OK(plinth_set_per_process_memory_fraction(1, 0));
  product *gemm = new_product(0, 15);
  multiply(handle_now(), gemm);
  expect_right(gemm, current_stream());
  free_product(gemm);
}

TEST(a_missing_library_is_reported) {
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

TEST(a_library_for_gpus_is_refused_on_the_host_device) {
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

TEST(outputs_must_not_be_null) {
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

/* On a GPU the child skips exit handlers: those of CUDA's libraries are not tested here. */
static bool run_exit_handlers;

static void expect_refused(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_current_solver_handle(&handle), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_clear_blas_workspaces(), PLINTH_ERROR_FORKED_CHILD);
  CHECK(handle == UNTOUCHED_POINTER);
  if (run_exit_handlers) {
    exit(0);
  }
}

TEST(calls_are_refused_in_a_forked_child) {
  need_blas();
  handle_now();
  run_exit_handlers = on_host_device();
  in_child(expect_refused);
  product *gemm = new_product(0, 16);
  multiply(handle_now(), gemm);
  expect_right(gemm, NULL);
  free_product(gemm);
}

static void expect_shutting_down(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_current_blas_handle(&handle), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK(handle == UNTOUCHED_POINTER);
}

/* Exit handlers run in reverse order, so this one runs after the library's. */
TEST(calls_are_refused_at_exit) {
  CHECK(atexit(expect_shutting_down) == 0);
  need_blas();
  on_new_stream(0);
  handle_now();
}
