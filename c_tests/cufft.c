/* Fourier transforms, compared with their definition. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cufft */
/* library: fake_cufft_for_gpus */
/* env: FAKE_CUFFT_ALLOCATES=1 */
/* also: PLINTH_SANITIZER=error */
/* alone: a_missing_library_is_reported; expects a new process */
/* alone: calls_are_refused_at_exit; expects a new process */
/* alone: calls_are_refused_in_a_forked_child; expects a new process */
#include "transforming.h"

static const int64_t sizes[] = {1, 7, 4, 6};

/* Every transform of this rank: both directions and precisions, with and without batches and strides. */
static void expect_transforms(int32_t rank) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  for (int variant = 0; variant < 4 * 2 * 2 * 2; variant++) {
    const int kind = variant % 4;
    const int32_t between = kind < 2 ? PLINTH_CUFFT_C2C : kind == 2 ? PLINTH_CUFFT_R2C : PLINTH_CUFFT_C2R;
    plinth_cufft_params_t params = params_of(rank, between, variant / 4 % 2 ? 64 : 32);
    params.sizes[0] = variant / 8 % 2 ? 3 : 1;
    for (int dimension = 1; dimension <= rank; dimension++) {
      params.sizes[dimension] = rank == 1 ? 30 : sizes[dimension];
    }
    const int direction = kind == 0 || kind == 2 ? PLINTH_CUFFT_FORWARD : PLINTH_CUFFT_INVERSE;
    transform *fft = new_transform(params, direction, variant / 16 != 0, 0, (uint64_t)variant);
    plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
    carry_out(fft, plan);
    expect_transformed(fft, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    free_transform(fft);
  }
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  expect_nothing_left();
}

TEST(transforms_of_one_dimension_are_right) { expect_transforms(1); }
TEST(transforms_of_two_dimensions_are_right) { expect_transforms(2); }
TEST(transforms_of_three_dimensions_are_right) { expect_transforms(3); }

TEST(transforms_of_float16_are_right) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  for (int kind = 0; kind < 3; kind++) {
    plinth_cufft_params_t params = params_of(2, kind, 16);
    params.sizes[0] = 2;
    params.sizes[1] = 4;
    params.sizes[2] = 8;
    transform *fft = new_transform(params, kind == PLINTH_CUFFT_C2R ? 1 : -1, false, 0, 77);
    plinth_cufft_plan_t plan = plan_for(&params, 0);
    carry_out(fft, plan);
    expect_transformed(fft, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    free_transform(fft);
  }
}

TEST(a_transform_in_the_default_stream_and_in_place) {
  need_cufft();
  transform *fft = new_transform(row_of(3, 20), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plinth_cufft_plan_t plan = plan_for(&fft->params, -1);
  carry_out(fft, plan);
  expect_transformed(fft, NULL);
  CHECK_OK(plinth_cufft_execute(plan, fft->input.memory, fft->input.memory, PLINTH_CUFFT_FORWARD));
  expect_transformed_in(fft, fft->input.memory, NULL);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(fft);
}

TEST(each_device_has_its_own_plans) {
  need_devices(2);
  need_cufft();
  transform *here = new_transform(row_of(2, 12), PLINTH_CUFFT_FORWARD, false, 0, 6);
  transform *there = new_transform(row_of(2, 12), PLINTH_CUFFT_FORWARD, false, 1, 7);
  plinth_cufft_plan_t one = plan_for(&here->params, 0), two = plan_for(&there->params, 1);
  CHECK_EQ(cached(0), 1);
  CHECK_EQ(cached(1), 1);
  plinth_stream_t stream = on_new_stream(1);
  CHECK_OK(plinth_set_device(0));
  carry_out(there, two);
  carry_out(here, one);
  expect_transformed(here, NULL);
  expect_transformed(there, stream);
  CHECK_OK(plinth_cufft_plan_cache_clear(1));
  CHECK_EQ(cached(0), 1);
  CHECK_EQ(cached(1), 0);
  CHECK_OK(plinth_cufft_plan_destroy(one));
  CHECK_OK(plinth_cufft_plan_destroy(two));
  free_transform(here);
  free_transform(there);
}

/* ---- plans in use */

static plinth_cufft_plan_t acquired;
static transform *shared_fft;

static void *transform_with_new_handle(void *context) {
  (void)context;
  on_new_stream(0);
  plinth_cufft_plan_t plan = plan_for(&shared_fft->params, 0);
  carry_out(shared_fft, plan);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  return NULL;
}

TEST(a_handle_is_not_destroyed_while_its_plan_is_acquired) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  int32_t native = 0;
  shared_fft = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 5);
  acquired = plan_for(&shared_fft->params, 0);
  plinth_cufft_plan_t another = plan_for(&shared_fft->params, 0);
  CHECK_OK(plinth_cufft_plan_acquire(acquired, &native));
  CHECK_STATUS(plinth_cufft_plan_destroy(acquired), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("plinth_cufft_plan_release comes first");
  /* Another handle of the plan can be destroyed. */
  CHECK_OK(plinth_cufft_plan_destroy(another));
  CHECK_OK(plinth_cufft_plan_release(acquired));
  CHECK_OK(plinth_cufft_plan_destroy(acquired));
  run_threads(1, transform_with_new_handle);
  CHECK_OK(plinth_synchronize(0));
  expect_transformed(shared_fft, stream);
  free_transform(shared_fft);
}

/* ---- threads */

static transform *ffts[8];

static void *transform_in_a_thread(void *context) {
  const int number = *(int *)context;
  plinth_stream_t stream = on_new_stream(0);
  transform *fft = ffts[number];
  for (int round = 0; round < 40; round++) {
    plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
    carry_out(fft, plan);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    if (round % 10 == 9) {
      expect_transformed(fft, stream);
      forget_output(fft, stream);
    }
  }
  return NULL;
}

static void expect_right_in_threads(int keys) {
  for (int index = 0; index < 8; index++) {
    ffts[index] = new_transform(row_of(2, 10 + index % keys), PLINTH_CUFFT_FORWARD, false, 0, (uint64_t)index);
  }
  run_threads(8, transform_in_a_thread);
  for (int index = 0; index < 8; index++) {
    free_transform(ffts[index]);
  }
}

TEST(threads_share_one_plan) {
  need_cufft();
  expect_right_in_threads(1);
  CHECK_EQ(cached(0), 1);
}

TEST(threads_evict_each_others_plans) {
  need_cufft();
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 1));
  expect_right_in_threads(4);
  CHECK_EQ(cached(0), 1);
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 0);
  }
  expect_nothing_left();
}

/* A plan can run in two streams at once, with a work area for each. */
TEST(two_streams_share_one_plan) {
  need_cufft();
  transform *one = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 1);
  transform *two = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 2);
  plinth_cufft_plan_t plan = plan_for(&one->params, 0);
  plinth_stream_t first = on_new_stream(0);
  gate *shut = gate_shut(first);
  carry_out(one, plan);
  plinth_stream_t second = on_new_stream(0);
  carry_out(two, plan);
  expect_transformed(two, second);
  CHECK(!stream_done(first));
  gate_open(shut);
  expect_transformed(one, first);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(one);
  free_transform(two);
}

/* ---- captures */

TEST(a_captured_transform_is_right_at_each_replay) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *fft = new_transform(row_of(3, 32), PLINTH_CUFFT_FORWARD, false, 0, 3);
  plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  carry_out(fft, plan);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_EQ(graph_allocated(graph), 0);
  /* Now only the graph references the plan. */
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  CHECK_OK(plinth_empty_cache());
  for (int round = 0; round < 3; round++) {
    forget_output(fft, stream);
    CHECK_OK(plinth_graph_replay(graph));
    expect_transformed(fft, stream);
  }
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 0);
  }
  free_transform(fft);
  expect_nothing_left();
}

TEST(a_plan_may_be_created_in_a_capture) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *fft = new_transform(row_of(1, 31), PLINTH_CUFFT_FORWARD, false, 0, 4);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
  carry_out(fft, plan);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_graph_replay(graph));
  expect_transformed(fft, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  free_transform(fft);
}

static size_t allocated_after_transform(transform *fft, plinth_cufft_plan_t plan) {
  carry_out(fft, plan);
  return allocated(0);
}

/* plinth is not notified of the end of a capture that uses the driver directly, so the driver's graph owns the plan and its
 * work area. */
TEST(a_graph_captured_by_driver_calls_keeps_plan_and_work_area) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *fft = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
  void *graph = NULL, *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  carry_out(fft, plan);
  carry_out(fft, plan);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  const size_t bytes_of_graph = allocated(0);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  /* Blocks that are allocated now do not overlap the graph's work area. */
  unsigned char *blocks[8], seen[256];
  for (int index = 0; index < 8; index++) {
    blocks[index] = (unsigned char *)alloc_on(sizeof seen, 0, stream);
    CHECK_OK(plinth_memset(blocks[index], 0x55, sizeof seen, stream));
  }
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  expect_transformed(fft, stream);
  for (int index = 0; index < 8; index++) {
    fetch(seen, blocks[index], sizeof seen);
    for (size_t at = 0; at < sizeof seen; at++) {
      CHECK_EQ(seen[at], 0x55);
    }
    release(blocks[index]);
  }
  CHECK_EQ(allocated(0), bytes_of_graph);
  if (on_host_device()) {
    CHECK(bytes_of_graph > 0);
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  transform *other = new_transform(row_of(1, 24), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plan = plan_for(&other->params, 0);
  EVENTUALLY(allocated_after_transform(other, plan) == 0);
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(fft);
  free_transform(other);
}

/* ---- exclusive plans */

static plinth_cufft_plan_t shared;
static transform *shared_fft;
static int arrived, finished;

static void *execute_shared_plan(void *context) {
  (void)context;
  plinth_stream_t stream = on_new_stream(0);
  __atomic_store_n(&arrived, 1, __ATOMIC_SEQ_CST);
  carry_out(shared_fft, shared);
  __atomic_store_n(&finished, 1, __ATOMIC_SEQ_CST);
  expect_transformed(shared_fft, stream);
  CHECK_STATUS(plinth_cufft_plan_release(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("does not have the plan");
  return NULL;
}

TEST(an_acquired_plan_is_exclusive_to_the_thread) {
  need_cufft();
  int (*execute)(int, void *, void *, int);
  int32_t native = UNTOUCHED;
  pthread_t thread;
  transform *fft = new_transform(row_of(2, 18), PLINTH_CUFFT_FORWARD, false, 0, 9);
  shared_fft = new_transform(row_of(2, 18), PLINTH_CUFFT_FORWARD, false, 0, 10);
  shared = plan_for(&fft->params, 0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_STATUS(plinth_cufft_plan_release(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_cufft_plan_acquire(shared, &native));
  CHECK(allocated(0) > 0 || !on_host_device());
  CHECK(pthread_create(&thread, NULL, execute_shared_plan, NULL) == 0);
  EVENTUALLY(__atomic_load_n(&arrived, __ATOMIC_SEQ_CST));
  sleep_milliseconds(30);
  CHECK(!__atomic_load_n(&finished, __ATOMIC_SEQ_CST));
  int32_t again = UNTOUCHED;
  CHECK_STATUS(plinth_cufft_plan_acquire(shared, &again), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("has the plan already");
  CHECK_STATUS(plinth_cufft_execute(shared, fft->input.memory, fft->output.memory, -1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(again, UNTOUCHED);
  void *found = function_of(CUFFT, cufft_names, "cufftXtExec");
  memcpy(&execute, &found, sizeof found);
  CHECK_EQ(execute(native, fft->input.memory, fft->output.memory, -1), 0);
  CHECK_OK(plinth_cufft_plan_release(shared));
  CHECK(pthread_join(thread, NULL) == 0);
  expect_transformed(fft, stream);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
  free_transform(fft);
  free_transform(shared_fft);
  expect_nothing_left();
}

/* ---- errors */

TEST(invalid_parameters_are_refused) {
  need_cufft();
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  plinth_cufft_params_t params;
#define REFUSED(change, part)                                                             \
  params = row_of(2, 12);                                                                 \
  change;                                                                                 \
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_INVALID_VALUE);     \
  CHECK_MESSAGE(part)
  REFUSED(params.rank = 0, "1 to 3 dimensions");
  REFUSED(params.rank = 4, "1 to 3 dimensions");
  REFUSED(params.sizes[0] = 0, "invalid number of data points (0) specified");
  REFUSED(params.sizes[1] = -5, "invalid number of data points (-5) specified");
  REFUSED(params.transform = 3, "params->transform is 3");
  REFUSED(params.number.code = 1, "doesn't support tensor of type");
  REFUSED(params.number.bits = 16, "not a power of two");
  REFUSED(params.number.bits = 17, "params->number");
  REFUSED(params.struct_size = 8, "struct_size");
  REFUSED(params.input_strides[1] = 2, "the strides of the input");
  REFUSED((params.output_strides[0] = 12, params.output_strides[1] = -1), "the strides of the output");
  params = row_of(2, 12);
  CHECK_STATUS(plinth_cufft_plan_create(NULL, 0, &plan), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_cufft_plan_create(&params, device_count(), &plan), PLINTH_ERROR_INVALID_DEVICE);
  CHECK(plan == UNTOUCHED_POINTER);
  CHECK_EQ(cached(0), 0);
}

TEST(directions_depend_on_the_transform) {
  need_cufft();
  const int directions[3][2] = {{-1, 1}, {-1, -1}, {1, 1}};
  char *memory = (char *)device_memory(64 * KIB, 0);
  for (int kind = 0; kind < 3; kind++) {
    plinth_cufft_params_t params = row_of(1, 16);
    params.transform = kind;
    plinth_cufft_plan_t plan = plan_for(&params, 0);
    for (int direction = -2; direction <= 2; direction++) {
      const bool right = direction == directions[kind][0] || direction == directions[kind][1];
      CHECK_STATUS(plinth_cufft_execute(plan, memory, memory + 32 * KIB, direction),
                   right ? PLINTH_OK : PLINTH_ERROR_INVALID_VALUE);
    }
    CHECK_STATUS(plinth_cufft_execute(plan, NULL, memory, -1), PLINTH_ERROR_NULL_POINTER);
    CHECK_STATUS(plinth_cufft_execute(plan, memory, NULL, -1), PLINTH_ERROR_NULL_POINTER);
    CHECK_STATUS(plinth_cufft_plan_acquire(plan, NULL), PLINTH_ERROR_NULL_POINTER);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
  }
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_device_free(memory));
}

TEST(invalid_handles_are_refused) {
  need_cufft();
  const plinth_cufft_params_t params = row_of(1, 16);
  plinth_event_t event = new_event(0);
  int32_t native = UNTOUCHED;
  plinth_cufft_plan_t wrong[] = {(plinth_cufft_plan_t)event, (plinth_cufft_plan_t)&native, plan_for(&params, 0)};
  CHECK_OK(plinth_cufft_plan_destroy(NULL));
  CHECK_OK(plinth_cufft_plan_destroy(wrong[2]));
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_cufft_plan_destroy(wrong[index]), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_MESSAGE("a plan of transforms");
    CHECK_STATUS(plinth_cufft_execute(wrong[index], &native, &native, -1), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_cufft_plan_acquire(wrong[index], &native), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_STATUS(plinth_cufft_plan_release(wrong[index]), PLINTH_ERROR_INVALID_HANDLE);
  }
  CHECK_STATUS(plinth_cufft_plan_release(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(native, UNTOUCHED);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(library_errors_are_reported_and_calls_can_be_repeated) {
  need_host_device();
  need_cufft();
  const struct {
    const char *fault;
    plinth_status_t status;
    const char *part;
  } cases[] = {
      {"cufftCreate:2", PLINTH_ERROR_OUT_OF_MEMORY, "CUFFT_ALLOC_FAILED"},
      {"cufftSetAutoAllocation:5", PLINTH_ERROR_LIBRARY, "CUFFT_INTERNAL_ERROR"},
      {"cufftXtMakePlanMany:8", PLINTH_ERROR_INVALID_VALUE, "CUFFT_INVALID_SIZE"},
      {"cufftXtMakePlanMany:16", PLINTH_ERROR_NOT_SUPPORTED, "CUFFT_NOT_SUPPORTED"},
      {"cufftSetStream:1", PLINTH_ERROR_LIBRARY, "CUFFT_INVALID_PLAN"},
      {"cufftSetWorkArea:4", PLINTH_ERROR_INVALID_VALUE, "CUFFT_INVALID_VALUE"},
      {"cufftXtExec:6", PLINTH_ERROR_LIBRARY, "CUFFT_EXEC_FAILED"},
      {"cufftXtExec:99", PLINTH_ERROR_LIBRARY, "99"},
  };
  plinth_stream_t stream = on_new_stream(0);
  transform *fft = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 9);
  for (size_t index = 0; index < sizeof cases / sizeof cases[0]; index++) {
    char call[64];
    plinth_cufft_plan_t plan = NULL;
    snprintf(call, sizeof call, "%.*s", (int)strcspn(cases[index].fault, ":"), cases[index].fault);
    setenv("FAKE_CUFFT_FAIL", cases[index].fault, 1);
    plinth_status_t status = plinth_cufft_plan_create(&fft->params, 0, &plan);
    CHECK_EQ(status == PLINTH_OK, index >= 4);
    if (status == PLINTH_OK) {
      status = plinth_cufft_execute(plan, fft->input.memory, fft->output.memory, -1);
    }
    CHECK_EQ(status, cases[index].status);
    CHECK_MESSAGE(call);
    CHECK_MESSAGE(cases[index].part);
    CHECK_EQ(plans_now(), index >= 4);
    CHECK_EQ(cached(0), index >= 4);
    unsetenv("FAKE_CUFFT_FAIL");
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    plan = plan_for(&fft->params, 0);
    carry_out(fft, plan);
    expect_transformed(fft, stream);
    forget_output(fft, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    CHECK_OK(plinth_cufft_plan_cache_clear(0));
  }
  CHECK_EQ(plans_now(), 0);
  free_transform(fft);
  expect_nothing_left();
}

TEST(a_missing_library_is_reported) {
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  const plinth_cufft_params_t params = row_of(1, 16);
  setenv(CUFFT, "/nowhere/libcufft.so.12", 1);
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("cuFFT is needed, and PLINTH_CUFFT_LIBRARY cannot be loaded");
  setenv(CUFFT, "libm.so.6", 1);
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  CHECK_MESSAGE("has no cufftCreate");
  if (on_host_device()) {
    name_library(CUFFT, "fake_cufft_for_gpus");
    CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
    CHECK_MESSAGE("cuFFT works with NVIDIA's GPUs");
  }
  CHECK(plan == UNTOUCHED_POINTER);
  CHECK_EQ(cached(0), 0);
}

/* On a GPU the child skips exit handlers: those of CUDA's libraries are not tested here. */
static bool run_exit_handlers;

static void expect_refused(void) {
  const plinth_cufft_params_t params = row_of(1, 16);
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  int64_t size = UNTOUCHED;
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_cufft_plan_cache_size(0, &size), PLINTH_ERROR_FORKED_CHILD);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
  CHECK(plan == UNTOUCHED_POINTER);
  if (run_exit_handlers) {
    exit(0);
  }
}

TEST(calls_are_refused_in_a_forked_child) {
  need_cufft();
  const plinth_cufft_params_t params = row_of(1, 16);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 0));
  shared = plan_for(&params, 0);
  run_exit_handlers = on_host_device();
  in_child(expect_refused);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
}

static void expect_shutting_down(void) {
  const plinth_cufft_params_t params = row_of(1, 16);
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK(plan == UNTOUCHED_POINTER);
  setenv("FAKE_CUFFT_FAIL", "cufftDestroy:1", 1);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
}

TEST(calls_are_refused_at_exit) {
  CHECK(atexit(expect_shutting_down) == 0);
  need_cufft();
  const plinth_cufft_params_t params = row_of(1, 16);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 0));
  shared = plan_for(&params, 0);
}
