/* Functions that the host device runs in place of kernels. On a GPU the kernels themselves run.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: an_error_of_a_function_ends_the_context; an error of a kernel stays with its process */
#include "support.h"

/* `extern "C" __global__ void store(int *out, pair by, int value) { *out = by.first * value + by.second; }` */
static const char store_module[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry store(.param .u64 out, .param .align 4 .b8 by[8], .param .u32 value)\n{\n"
    "  .reg .b32 %r<5>;\n  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [out];\n  cvta.to.global.u64 %rd2, %rd1;\n"
    "  ld.param.u32 %r1, [by];\n  ld.param.u32 %r2, [by+4];\n  ld.param.u32 %r3, [value];\n"
    "  mad.lo.s32 %r4, %r1, %r3, %r2;\n  st.global.u32 [%rd2], %r4;\n  ret;\n}\n";

typedef struct pair {
  int32_t first, second;
} pair;

static const size_t store_sizes[] = {sizeof(int32_t *), sizeof(pair), sizeof(int32_t)};

/* How often a function was called, and what it was told last. */
typedef struct calls {
  int count;
  plinth_host_launch_t launch;
  int32_t result;
} calls;

static int32_t store(const plinth_host_launch_t *launch, void *context) {
  calls *seen = (calls *)context;
  int32_t *out = NULL;
  pair by = {0, 0};
  int32_t value = 0;
  memcpy(&out, launch->parameters[0], sizeof out);
  memcpy(&by, launch->parameters[1], sizeof by);
  memcpy(&value, launch->parameters[2], sizeof value);
  seen->launch = *launch;
  __atomic_add_fetch(&seen->count, 1, __ATOMIC_SEQ_CST);
  if (seen->result == 0) {
    *out = by.first * value + by.second;
  }
  return seen->result;
}

static plinth_kernel_module_t loaded(void) {
  plinth_kernel_module_t module = NULL;
  CHECK_OK(plinth_kernel_module_load(store_module, sizeof store_module, 0, &module));
  return module;
}

static plinth_kernel_t kernel_of(plinth_kernel_module_t module) {
  plinth_kernel_t kernel = NULL;
  CHECK_OK(plinth_kernel_module_get_kernel(module, "store", &kernel));
  return kernel;
}

static plinth_status_t launch_store(plinth_kernel_t kernel, const int32_t *out, int32_t value, plinth_stream_t stream) {
  const pair by = {3, 4};
  const void *pointer = out;
  plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  launch.shared_bytes = 128;
  const plinth_kernel_argument_t arguments[] = {
      {sizeof arguments[0], &pointer, 0, PLINTH_ARGUMENT_POINTER, 0},
      {sizeof arguments[0], &by, sizeof by, PLINTH_ARGUMENT_BYTES, 0},
      {sizeof arguments[0], &value, 0, PLINTH_ARGUMENT_INT32, 0},
  };
  return plinth_kernel_launch(kernel, &launch, arguments, 3, stream);
}

static int32_t fetched(const int32_t *from, plinth_stream_t stream) {
  int32_t seen = 0;
  CHECK_OK(plinth_stream_synchronize(stream));
  fetch(&seen, from, sizeof seen);
  return seen;
}

TEST(a_function_replaces_the_kernel_of_a_module) {
  calls seen = {0};
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &seen));
  plinth_kernel_module_t module = loaded();
  plinth_kernel_t kernel = kernel_of(module);
  plinth_stream_t stream = stream_on(0);
  int32_t *out = (int32_t *)device_memory(sizeof *out, 0);
  CHECK_OK(launch_store(kernel, out, 10, stream));
  CHECK_EQ(fetched(out, stream), 34);
  CHECK_EQ(seen.count, on_host_device() ? 1 : 0);
  if (on_host_device()) {
    CHECK_EQ(seen.launch.struct_size, sizeof(plinth_host_launch_t));
    CHECK_EQ(seen.launch.count, 3);
    CHECK_EQ(seen.launch.device, 0);
    CHECK_EQ(seen.launch.shared_bytes, 128);
    for (int axis = 0; axis < 3; axis++) {
      CHECK_EQ(seen.launch.grid[axis], 1);
      CHECK_EQ(seen.launch.block[axis], 1);
    }
  }
  /* The launch checks the sizes of the arguments. */
  const int64_t wide = 1;
  plinth_kernel_argument_t wrong[] = {{sizeof wrong[0], &wide, 0, PLINTH_ARGUMENT_INT64, 0},
                                      {sizeof wrong[0], &wide, 0, PLINTH_ARGUMENT_INT32, 0},
                                      {sizeof wrong[0], &wide, 0, PLINTH_ARGUMENT_INT32, 0}};
  const plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, wrong, 3, stream), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_device_free(out));
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_kernel_module_destroy(module));
}

TEST(a_function_runs_in_graphs_and_in_several_streams) {
  enum { STREAMS = 4, REPLAYS = 5 };
  calls seen = {0};
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &seen));
  plinth_kernel_module_t module = loaded();
  plinth_kernel_t kernel = kernel_of(module);
  plinth_stream_t streams[STREAMS];
  plinth_graph_t graphs[STREAMS];
  int32_t *out[STREAMS];
  for (int32_t index = 0; index < STREAMS; index++) {
    streams[index] = stream_on(0);
    out[index] = (int32_t *)device_memory(sizeof *out[index], 0);
    CHECK_OK(plinth_graph_create(&graphs[index]));
    CHECK_OK(plinth_set_stream(streams[index]));
    CHECK_OK(plinth_graph_capture_begin(graphs[index], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
    CHECK_OK(launch_store(kernel, out[index], index, streams[index]));
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
  }
  CHECK_EQ(seen.count, 0);
  for (int replay = 0; replay < REPLAYS; replay++) {
    for (int index = 0; index < STREAMS; index++) {
      CHECK_OK(plinth_set_stream(streams[index]));
      CHECK_OK(plinth_graph_replay(graphs[index]));
    }
  }
  for (int32_t index = 0; index < STREAMS; index++) {
    CHECK_EQ(fetched(out[index], streams[index]), 3 * index + 4);
    CHECK_OK(plinth_graph_destroy(graphs[index]));
    CHECK_OK(plinth_device_free(out[index]));
  }
  CHECK_EQ(seen.count, on_host_device() ? STREAMS * REPLAYS : 0);
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_kernel_module_destroy(module));
}

TEST(a_kernel_keeps_the_function_with_which_it_was_found) {
  calls first = {0}, second = {0};
  plinth_kernel_module_t module = loaded(), other = loaded();
  int32_t *out = (int32_t *)device_memory(sizeof *out, 0);
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &first));
  plinth_kernel_t kernel = kernel_of(module);
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &second));
  plinth_kernel_t replaced = kernel_of(other);
  CHECK_OK(plinth_host_kernel_register("store", NULL, 0, NULL, NULL));
  CHECK_OK(plinth_host_kernel_register("store", NULL, 0, NULL, NULL));
  CHECK_OK(launch_store(kernel, out, 1, NULL));
  CHECK_EQ(fetched(out, NULL), 7);
  CHECK_EQ(first.count, on_host_device() ? 1 : 0);
  CHECK_OK(launch_store(replaced, out, 2, NULL));
  CHECK_EQ(fetched(out, NULL), 10);
  CHECK_EQ(second.count, on_host_device() ? 1 : 0);
  CHECK_EQ(first.count, second.count);
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_kernel_destroy(replaced));
  CHECK_OK(plinth_kernel_module_destroy(module));
  CHECK_OK(plinth_kernel_module_destroy(other));
  if (on_host_device()) {
    plinth_kernel_t none = NULL;
    module = loaded();
    CHECK_STATUS(plinth_kernel_module_get_kernel(module, "store", &none), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("plinth_host_kernel_register");
    CHECK_OK(plinth_kernel_module_destroy(module));
  }
  CHECK_OK(plinth_device_free(out));
}

/* Inline PTX, which the host device cannot compile. */
TEST(compile_kernel_takes_the_function) {
  const char *source =
      "struct pair { int first, second; };\n"
      "extern \"C\" __global__ void store(int *out, pair by, int value) {\n"
      "  asm(\"mad.lo.s32 %0, %1, %2, %3;\" : \"=r\"(*out) : \"r\"(by.first), \"r\"(value), \"r\"(by.second));\n"
      "}\n";
  calls seen = {0};
  plinth_kernel_t kernel = NULL;
  int32_t *out = (int32_t *)device_memory(sizeof *out, 0);
  if (on_host_device()) {
    const plinth_status_t status = plinth_compile_kernel(source, "store", NULL, NULL, NULL, 0, &kernel);
    CHECK(status == PLINTH_ERROR_COMPILATION_FAILED || status == PLINTH_ERROR_COMPILER_UNAVAILABLE);
  }
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &seen));
  CHECK_OK(plinth_compile_kernel(source, "store", NULL, NULL, NULL, 0, &kernel));
  CHECK_OK(launch_store(kernel, out, 5, NULL));
  CHECK_EQ(fetched(out, NULL), 19);
  CHECK_EQ(seen.count, on_host_device() ? 1 : 0);
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_device_free(out));
}

TEST(an_error_of_a_function_ends_the_context) {
  need_host_device();
  calls seen = {0};
  seen.result = 42;
  CHECK_OK(plinth_host_kernel_register("store", store_sizes, 3, store, &seen));
  plinth_kernel_module_t module = loaded();
  plinth_kernel_t kernel = kernel_of(module);
  plinth_stream_t stream = stream_on(0);
  int32_t *out = (int32_t *)device_memory(sizeof *out, 0);
  CHECK_OK(launch_store(kernel, out, 5, stream));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_LAUNCH_FAILED);
  CHECK_MESSAGE("kernel store, its host function returned 42");
  CHECK_EQ(seen.count, 1);
}

TEST(invalid_registrations_are_refused) {
  const size_t none = 0, large[] = {20000, 20000}, overflow[] = {SIZE_MAX, 2};
  calls seen = {0};
  CHECK_STATUS(plinth_host_kernel_register(NULL, &none, 0, store, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_kernel_register("store", NULL, 1, store, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_kernel_register("", store_sizes, 3, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_kernel_register("plinth_sleep", store_sizes, 3, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("plinth_sleep");
  CHECK_STATUS(plinth_host_kernel_register("store", &none, 1, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("at least 1 byte");
  CHECK_STATUS(plinth_host_kernel_register("store", large, 2, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_kernel_register("store", overflow, 2, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_kernel_register("store", store_sizes, SIZE_MAX, store, &seen), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_host_kernel_register("no parameters", NULL, 0, store, &seen));
  CHECK_OK(plinth_host_kernel_register("no parameters", NULL, 0, NULL, NULL));
}
