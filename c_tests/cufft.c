/* Fourier transforms against their definition. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cufft */
/* library: fake_cufft_for_gpus */
/* env: FAKE_CUFFT_ALLOCATES=1 */
/* also: PLINTH_SANITIZER=error */
/* alone: a_library_that_is_not_there_is_named; expects what only a fresh process has */
/* alone: nothing_is_called_once_the_exit_has_begun; expects what only a fresh process has */
/* alone: the_child_of_a_fork_is_told; expects what only a fresh process has */
#include "transforming.h"

static const int64_t sizes[] = {1, 7, 4, 6};

/* Every transform of so many dimensions, forth and back, in both precisions, one and several, with gaps and without. */
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
    transform *of = new_transform(params, direction, variant / 16 != 0, 0, (uint64_t)variant);
    plinth_cufft_plan_t plan = plan_for(&of->params, 0);
    carry_out(of, plan);
    expect_transformed(of, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    free_transform(of);
  }
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  expect_nothing_left();
}

TEST(transforms_of_one_dimension_are_right) { expect_transforms(1); }
TEST(transforms_of_two_dimensions_are_right) { expect_transforms(2); }
TEST(transforms_of_three_dimensions_are_right) { expect_transforms(3); }

TEST(transforms_of_half_numbers_are_right) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  for (int kind = 0; kind < 3; kind++) {
    plinth_cufft_params_t params = params_of(2, kind, 16);
    params.sizes[0] = 2;
    params.sizes[1] = 4;
    params.sizes[2] = 8;
    transform *of = new_transform(params, kind == PLINTH_CUFFT_C2R ? 1 : -1, false, 0, 77);
    plinth_cufft_plan_t plan = plan_for(&params, 0);
    carry_out(of, plan);
    expect_transformed(of, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    free_transform(of);
  }
}

TEST(a_transform_in_the_default_stream_and_in_place) {
  need_cufft();
  transform *of = new_transform(row_of(3, 20), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plinth_cufft_plan_t plan = plan_for(&of->params, -1);
  carry_out(of, plan);
  expect_transformed(of, NULL);
  CHECK_OK(plinth_cufft_execute(plan, of->input.memory, of->input.memory, PLINTH_CUFFT_FORWARD));
  expect_transformed_in(of, of->input.memory, NULL);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(of);
}

TEST(each_device_has_plans_of_its_own) {
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

static plinth_cufft_plan_t lent;
static transform *waiting;

static void *transform_by_another_handle(void *context) {
  (void)context;
  on_new_stream(0);
  plinth_cufft_plan_t plan = plan_for(&waiting->params, 0);
  carry_out(waiting, plan);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  return NULL;
}

TEST(a_handle_is_not_destroyed_while_its_plan_is_acquired) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  int32_t native = 0;
  waiting = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 5);
  lent = plan_for(&waiting->params, 0);
  plinth_cufft_plan_t another = plan_for(&waiting->params, 0);
  CHECK_OK(plinth_cufft_plan_acquire(lent, &native));
  CHECK_STATUS(plinth_cufft_plan_destroy(lent), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("plinth_cufft_plan_release comes first");
  /* One by which nobody has it goes, and nobody loses the plan by that. */
  CHECK_OK(plinth_cufft_plan_destroy(another));
  CHECK_OK(plinth_cufft_plan_release(lent));
  CHECK_OK(plinth_cufft_plan_destroy(lent));
  run_threads(1, transform_by_another_handle);
  CHECK_OK(plinth_synchronize(0));
  expect_transformed(waiting, stream);
  free_transform(waiting);
}

/* ---- threads */

static transform *of_thread[8];

static void *transform_in_a_thread(void *context) {
  const int number = *(int *)context;
  plinth_stream_t stream = on_new_stream(0);
  transform *of = of_thread[number];
  for (int round = 0; round < 40; round++) {
    plinth_cufft_plan_t plan = plan_for(&of->params, 0);
    carry_out(of, plan);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    if (round % 10 == 9) {
      expect_transformed(of, stream);
      forget_output(of, stream);
    }
  }
  return NULL;
}

static void expect_right_in_threads(int keys) {
  for (int index = 0; index < 8; index++) {
    of_thread[index] = new_transform(row_of(2, 10 + index % keys), PLINTH_CUFFT_FORWARD, false, 0, (uint64_t)index);
  }
  run_threads(8, transform_in_a_thread);
  for (int index = 0; index < 8; index++) {
    free_transform(of_thread[index]);
  }
}

TEST(threads_share_one_plan) {
  need_cufft();
  expect_right_in_threads(1);
  CHECK_EQ(cached(0), 1);
}

TEST(threads_push_each_others_plans_out) {
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

/* One plan works in two streams at once, with memory for each. */
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
  transform *of = new_transform(row_of(3, 32), PLINTH_CUFFT_FORWARD, false, 0, 3);
  plinth_cufft_plan_t plan = plan_for(&of->params, 0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  carry_out(of, plan);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_EQ(graph_allocated(graph), 0);
  /* Now only the graph has it. */
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  CHECK_OK(plinth_empty_cache());
  for (int round = 0; round < 3; round++) {
    forget_output(of, stream);
    CHECK_OK(plinth_graph_replay(graph));
    expect_transformed(of, stream);
  }
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 0);
  }
  free_transform(of);
  expect_nothing_left();
}

TEST(a_plan_is_made_in_a_capture) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *of = new_transform(row_of(1, 31), PLINTH_CUFFT_FORWARD, false, 0, 4);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  plinth_cufft_plan_t plan = plan_for(&of->params, 0);
  carry_out(of, plan);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_graph_replay(graph));
  expect_transformed(of, stream);
  CHECK_OK(plinth_graph_destroy(graph));
  free_transform(of);
}

static size_t allocated_after_another(transform *of, plinth_cufft_plan_t plan) {
  carry_out(of, plan);
  return allocated(0);
}

/* Of a capture by the driver's own calls nobody hears the end: its graph has the plan, and what that works with. */
TEST(a_graph_of_the_programs_own_keeps_plan_and_area) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *of = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plinth_cufft_plan_t plan = plan_for(&of->params, 0);
  void *graph = NULL, *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  carry_out(of, plan);
  carry_out(of, plan);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  const size_t kept = allocated(0);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  /* What others get is not what the graph works with. */
  unsigned char *blocks[8], seen[256];
  for (int index = 0; index < 8; index++) {
    blocks[index] = (unsigned char *)alloc_on(sizeof seen, 0, stream);
    CHECK_OK(plinth_memset(blocks[index], 0x55, sizeof seen, stream));
  }
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  expect_transformed(of, stream);
  for (int index = 0; index < 8; index++) {
    fetch(seen, blocks[index], sizeof seen);
    for (size_t at = 0; at < sizeof seen; at++) {
      CHECK_EQ(seen[at], 0x55);
    }
    release(blocks[index]);
  }
  CHECK_EQ(allocated(0), kept);
  if (on_host_device()) {
    CHECK(kept > 0);
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  transform *other = new_transform(row_of(1, 24), PLINTH_CUFFT_FORWARD, false, 0, 5);
  plan = plan_for(&other->params, 0);
  EVENTUALLY(allocated_after_another(other, plan) == 0);
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 1);
  }
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(of);
  free_transform(other);
}

/* ---- a plan for oneself */

static plinth_cufft_plan_t shared;
static transform *waiting;
static int arrived, through;

static void *wait_for_the_plan(void *context) {
  (void)context;
  plinth_stream_t stream = on_new_stream(0);
  __atomic_store_n(&arrived, 1, __ATOMIC_SEQ_CST);
  carry_out(waiting, shared);
  __atomic_store_n(&through, 1, __ATOMIC_SEQ_CST);
  expect_transformed(waiting, stream);
  CHECK_STATUS(plinth_cufft_plan_release(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("does not have the plan");
  return NULL;
}

TEST(a_thread_has_a_plan_for_itself) {
  need_cufft();
  int (*execute)(int, void *, void *, int);
  int32_t native = UNTOUCHED;
  pthread_t thread;
  transform *of = new_transform(row_of(2, 18), PLINTH_CUFFT_FORWARD, false, 0, 9);
  waiting = new_transform(row_of(2, 18), PLINTH_CUFFT_FORWARD, false, 0, 10);
  shared = plan_for(&of->params, 0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_STATUS(plinth_cufft_plan_release(shared), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_cufft_plan_acquire(shared, &native));
  CHECK(allocated(0) > 0 || !on_host_device());
  CHECK(pthread_create(&thread, NULL, wait_for_the_plan, NULL) == 0);
  EVENTUALLY(__atomic_load_n(&arrived, __ATOMIC_SEQ_CST));
  sleep_milliseconds(30);
  CHECK(!__atomic_load_n(&through, __ATOMIC_SEQ_CST));
  int32_t again = UNTOUCHED;
  CHECK_STATUS(plinth_cufft_plan_acquire(shared, &again), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("has the plan already");
  CHECK_STATUS(plinth_cufft_execute(shared, of->input.memory, of->output.memory, -1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(again, UNTOUCHED);
  void *found = function_of(CUFFT, cufft_names, "cufftXtExec");
  memcpy(&execute, &found, sizeof found);
  CHECK_EQ(execute(native, of->input.memory, of->output.memory, -1), 0);
  CHECK_OK(plinth_cufft_plan_release(shared));
  CHECK(pthread_join(thread, NULL) == 0);
  expect_transformed(of, stream);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
  free_transform(of);
  free_transform(waiting);
  expect_nothing_left();
}

/* ---- what is wrong */

TEST(what_cufft_cannot_do_is_refused) {
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

TEST(a_transform_has_its_directions) {
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

TEST(wrong_handles_are_noticed) {
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

TEST(what_fails_in_the_library_is_named_and_can_be_tried_again) {
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
  transform *of = new_transform(row_of(1, 16), PLINTH_CUFFT_FORWARD, false, 0, 9);
  for (size_t index = 0; index < sizeof cases / sizeof cases[0]; index++) {
    char call[64];
    plinth_cufft_plan_t plan = NULL;
    snprintf(call, sizeof call, "%.*s", (int)strcspn(cases[index].fault, ":"), cases[index].fault);
    setenv("FAKE_CUFFT_FAIL", cases[index].fault, 1);
    plinth_status_t status = plinth_cufft_plan_create(&of->params, 0, &plan);
    CHECK_EQ(status == PLINTH_OK, index >= 4);
    if (status == PLINTH_OK) {
      status = plinth_cufft_execute(plan, of->input.memory, of->output.memory, -1);
    }
    CHECK_EQ(status, cases[index].status);
    CHECK_MESSAGE(call);
    CHECK_MESSAGE(cases[index].part);
    CHECK_EQ(plans_now(), index >= 4);
    CHECK_EQ(cached(0), index >= 4);
    unsetenv("FAKE_CUFFT_FAIL");
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    plan = plan_for(&of->params, 0);
    carry_out(of, plan);
    expect_transformed(of, stream);
    forget_output(of, stream);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    CHECK_OK(plinth_cufft_plan_cache_clear(0));
  }
  CHECK_EQ(plans_now(), 0);
  free_transform(of);
  expect_nothing_left();
}

TEST(a_library_that_is_not_there_is_named) {
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

/* What CUDA's own libraries do at the end of such a child is not for us to test. */
static bool ends_like_a_process;

static void expect_refused(void) {
  const plinth_cufft_params_t params = row_of(1, 16);
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  int64_t size = UNTOUCHED;
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_cufft_plan_cache_size(0, &size), PLINTH_ERROR_FORKED_CHILD);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
  CHECK(plan == UNTOUCHED_POINTER);
  if (ends_like_a_process) {
    exit(0);
  }
}

TEST(the_child_of_a_fork_is_told) {
  need_cufft();
  const plinth_cufft_params_t params = row_of(1, 16);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 0));
  shared = plan_for(&params, 0);
  ends_like_a_process = on_host_device();
  in_child(expect_refused);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
}

static void after_the_exit(void) {
  const plinth_cufft_params_t params = row_of(1, 16);
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_cufft_plan_create(&params, 0, &plan), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK(plan == UNTOUCHED_POINTER);
  setenv("FAKE_CUFFT_FAIL", "cufftDestroy:1", 1);
  CHECK_OK(plinth_cufft_plan_destroy(shared));
}

TEST(nothing_is_called_once_the_exit_has_begun) {
  CHECK(atexit(after_the_exit) == 0);
  need_cufft();
  const plinth_cufft_params_t params = row_of(1, 16);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 0));
  shared = plan_for(&params, 0);
}
