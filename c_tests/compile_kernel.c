/* CUDA C++ kernels: compilation, loading, launches. Tests of the PTX compiler and of clusters need a GPU. The host device
 * compiles CUDA C++ itself, and runs functions of the test in place of the kernels of PTX, cubins and fatbins. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
#include "support.h"

#define SCALE                                                                              \
  "template <typename T>\n"                                                                \
  "__global__ void scale(T *data, T by, int count) {\n"                                    \
  "  const int at = blockIdx.x * blockDim.x + threadIdx.x;\n"                              \
  "  if (at < count) data[at] *= by;\n"                                                    \
  "}\n"

enum { COUNT = 1000 };

static void need_gpu(void) {
  if (on_host_device()) {
    SKIP("needs a GPU");
  }
}

/* Skips the test if NVRTC is not installed. If it is, a compilation must succeed. */
static void need_nvrtc(void) {
  void *image = NULL;
  size_t bytes = 0;
  char *name = NULL;
  const plinth_status_t status =
      plinth_nvrtc_compile("extern \"C\" __global__ void f() {}", "f", "90", NULL, NULL, &image, &bytes, &name);
  if (status == PLINTH_ERROR_COMPILER_UNAVAILABLE && on_host_device() && getenv("PLINTH_NVRTC_LIBRARY") == NULL) {
    SKIP("NVRTC is not installed");
  }
  CHECK_OK(status);
  CHECK(bytes > 0);
  CHECK_TEXT(name, "f");
  free(image);
  free(name);
}

static plinth_kernel_t compiled(const char *source, const char *name) {
  plinth_kernel_t kernel = NULL;
  CHECK_OK(plinth_compile_kernel(source, name, NULL, NULL, NULL, 0, &kernel));
  CHECK(kernel != NULL);
  return kernel;
}

static plinth_kernel_argument_t argument(int32_t kind, const void *value) {
  plinth_kernel_argument_t made = {sizeof made, value, 0, kind, 0};
  return made;
}

static plinth_kernel_launch_t shape(uint32_t blocks, uint32_t threads) {
  plinth_kernel_launch_t made = PLINTH_KERNEL_LAUNCH_INIT;
  made.grid[0] = blocks;
  made.block[0] = threads;
  made.grid[1] = made.block[2] = 0;
  return made;
}

/* Scales numbers on the device by `kernel`, and checks them. */
static void expect_scaled(plinth_kernel_t kernel) {
  float numbers[COUNT];
  const float by = 3;
  const int32_t count = COUNT;
  int64_t extent = COUNT;
  float *data = (float *)device_memory(sizeof numbers, 0);
  const DLTensor tensor = {data, {2, 0}, 1, {2, 32, 1}, &extent, NULL, 0};
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_TENSOR, &tensor),
                                                argument(PLINTH_ARGUMENT_FLOAT32, &by),
                                                argument(PLINTH_ARGUMENT_INT32, &count)};
  const plinth_kernel_launch_t launch = shape((COUNT + 127) / 128, 128);
  for (int index = 0; index < COUNT; index++) {
    numbers[index] = (float)index;
  }
  put(data, numbers, sizeof numbers);
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 3, NULL));
  fetch(numbers, data, sizeof numbers);
  for (int index = 0; index < COUNT; index++) {
    CHECK(numbers[index] == 3.0f * (float)index);
  }
  CHECK_OK(plinth_device_free(data));
}

TEST(sources_compile_without_a_device) {
  void *image = UNTOUCHED_POINTER;
  size_t bytes = UNTOUCHED;
  char *name = (char *)UNTOUCHED_POINTER;
  need_nvrtc();
  CHECK_OK(plinth_nvrtc_compile(SCALE, "scale<float>", "90", NULL, NULL, &image, &bytes, &name));
  CHECK(bytes > 64);
  CHECK(memcmp(image, "\x7f" "ELF", 4) == 0);
  CHECK(strstr(name, "scale") != NULL);
  CHECK(strcmp(name, "scale<float>") != 0);
  free(image);
  free(name);
  CHECK_OK(plinth_nvrtc_compile(SCALE, "scale<double>", "compute_80", NULL, NULL, &image, &bytes, &name));
  CHECK(strstr((const char *)image, ".target sm_80") != NULL);
  CHECK(strstr((const char *)image, name) != NULL);
  free(image);
  free(name);
}

TEST(options_and_include_folders_are_passed_to_the_compiler) {
  const char *options[] = {"-DVALUE=7", "--std=c++20", NULL};
  const char *architecture[] = {"--gpu-architecture=sm_80", NULL};
  char folder[] = "/tmp/plinth-test-XXXXXX", header[64];
  const char *folders[] = {folder, NULL};
  const char *source = "#include \"mine.h\"\nextern \"C\" __global__ void f(int *x) { *x = VALUE + MINE; }";
  void *image = UNTOUCHED_POINTER;
  size_t bytes = UNTOUCHED;
  char *name = (char *)UNTOUCHED_POINTER;
  need_nvrtc();
  CHECK(mkdtemp(folder) != NULL);
  snprintf(header, sizeof header, "%s/mine.h", folder);
  FILE *file = fopen(header, "w");
  CHECK(file != NULL);
  CHECK(fputs("#define MINE 11\n", file) >= 0);
  CHECK(fclose(file) == 0);
  CHECK_STATUS(plinth_nvrtc_compile(source, "f", "90", NULL, options, &image, &bytes, &name),
               PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_MESSAGE("mine.h");
  CHECK_STATUS(plinth_nvrtc_compile(source, "f", "90", folders, NULL, &image, &bytes, &name),
               PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_MESSAGE("VALUE");
  CHECK_STATUS(plinth_nvrtc_compile(source, "f", "90", folders, architecture, &image, &bytes, &name),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_SAME(image, UNTOUCHED_POINTER);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_OK(plinth_nvrtc_compile(source, "f", "compute_90", folders, options, &image, &bytes, &name));
  CHECK(strstr((const char *)image, "18") != NULL);
  free(image);
  free(name);
  CHECK(unlink(header) == 0);
  CHECK(rmdir(folder) == 0);
}

TEST(a_compilation_error_contains_the_log) {
  const char *source = "extern \"C\" __global__ void f(int *x) {\n  *x = 1;\n  *x = undeclared_thing;\n}\n";
  void *image = NULL;
  size_t bytes;
  char *name;
  need_nvrtc();
  CHECK_STATUS(plinth_nvrtc_compile(source, "f", "90", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_MESSAGE("compiling f for sm_90");
  CHECK_MESSAGE("kernel.cu(3): error");
  CHECK_MESSAGE("undeclared_thing");
  CHECK_STATUS(plinth_nvrtc_compile(source, "f", "9000", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_STATUS(plinth_nvrtc_compile(SCALE, "missing<float>", "90", NULL, NULL, &image, &bytes, &name),
               PLINTH_ERROR_COMPILATION_FAILED);
  CHECK(image == NULL);
}

TEST(invalid_arguments_are_refused) {
  plinth_kernel_t kernel = (plinth_kernel_t)UNTOUCHED_POINTER;
  plinth_kernel_module_t module = (plinth_kernel_module_t)UNTOUCHED_POINTER;
  void *image;
  size_t bytes;
  char *name;
  int32_t blocks;
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  const plinth_kernel_launch_t launch = shape(1, 1);
  CHECK_STATUS(plinth_nvrtc_compile(NULL, "f", "90", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvrtc_compile("", NULL, "90", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvrtc_compile("", "f", "90", NULL, NULL, NULL, &bytes, &name), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nvrtc_compile("", "f", "ninety", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_compile_kernel(SCALE, "f", "90", NULL, NULL, 77, &kernel), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_compile_kernel(SCALE, "f", "90", NULL, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_kernel_module_load(NULL, 4, 0, &module), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_kernel_module_load("", 0, 0, &module), PLINTH_ERROR_INVALID_VALUE);
  /* The driver reads an image as far as its header states. */
  unsigned char short_image[100] = {0x7F, 'E', 'L', 'F', 2, 1, 1};
  const uint64_t sections = 1 << 20;
  memcpy(short_image + 0x28, &sections, sizeof sections);
  CHECK_STATUS(plinth_kernel_module_load(short_image, sizeof short_image, 0, &module), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("loading an image of 100 bytes: its header states at least 1048576; pass the complete image");
  CHECK_STATUS(plinth_kernel_module_load(short_image, 10, 0, &module), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_kernel_module_get_kernel((plinth_kernel_module_t)(uintptr_t)7, "f", &kernel),
               PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_kernel_attributes((plinth_kernel_t)(uintptr_t)7, &attributes), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_kernel_occupancy((plinth_kernel_t)(uintptr_t)7, 32, 0, &blocks), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_kernel_launch((plinth_kernel_t)(uintptr_t)7, &launch, NULL, 0, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_kernel_launch((plinth_kernel_t)(uintptr_t)7, NULL, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_kernel_destroy((plinth_kernel_t)(uintptr_t)7), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_kernel_destroy(NULL));
  CHECK_OK(plinth_kernel_module_destroy(NULL));
  CHECK_SAME(kernel, UNTOUCHED_POINTER);
  CHECK_SAME(module, UNTOUCHED_POINTER);
}

TEST(options_mean_the_same_on_the_host_device) {
  const char *const options[] = {"--std=c++20", "-DBY=3", "--use_fast_math", "-lineinfo", NULL};
  const char *const unknown[] = {"--no-such-option", NULL};
  plinth_kernel_t kernel = NULL;
  const char *source = "template <typename T> __global__ void scale(T *data, T by, int count) {\n"
                       "  static_assert(__cplusplus >= 202000 && __CUDA_ARCH__ == 800 && BY == 3);\n"
                       "}\n";
  need_host_device();
  CHECK_OK(plinth_compile_kernel(source, "scale<float>", "80", NULL, options, 0, &kernel));
  CHECK_OK(plinth_kernel_destroy(kernel));
  kernel = (plinth_kernel_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_compile_kernel(SCALE, "scale<float>", NULL, NULL, unknown, 0, &kernel), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("--no-such-option");
  CHECK_STATUS(plinth_compile_kernel(SCALE, "scale<float>", "nine", NULL, NULL, 0, &kernel), PLINTH_ERROR_INVALID_VALUE);
  CHECK_SAME(kernel, UNTOUCHED_POINTER);
}

/* A module that works on every device: on the host device every module has the kernel plinth_sleep. */
static const char sleep_module[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry plinth_sleep(.param .u64 cycles)\n{\n  ret;\n}\n";

static plinth_kernel_t kernel_of(plinth_kernel_module_t module, const char *name) {
  plinth_kernel_t kernel = NULL;
  CHECK_OK(plinth_kernel_module_get_kernel(module, name, &kernel));
  CHECK(kernel != NULL);
  return kernel;
}

static plinth_kernel_module_t loaded(const void *image, size_t bytes) {
  plinth_kernel_module_t module = NULL;
  CHECK_OK(plinth_kernel_module_load(image, bytes, 0, &module));
  CHECK(module != NULL);
  return module;
}

TEST(kernels_of_modules_check_their_arguments) {
  plinth_kernel_module_t module = loaded(sleep_module, sizeof sleep_module - 1);
  plinth_kernel_t kernel = kernel_of(module, "plinth_sleep"), other = (plinth_kernel_t)UNTOUCHED_POINTER;
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  plinth_kernel_launch_t launch = shape(1, 1);
  const int64_t cycles = 10;
  const int32_t few = 10;
  const float none = 0;
  plinth_kernel_argument_t arguments[2] = {argument(PLINTH_ARGUMENT_INT64, &cycles), argument(PLINTH_ARGUMENT_FLOAT32, &none)};
  int32_t blocks = -1;
  CHECK_STATUS(plinth_kernel_module_get_kernel(module, "nothing", &other), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the module has no kernel nothing");
  CHECK_SAME(other, UNTOUCHED_POINTER);
  CHECK_OK(plinth_kernel_attributes(kernel, &attributes));
  CHECK(attributes.max_threads_per_block >= 256);
  CHECK_EQ(attributes.struct_size, sizeof attributes);
  CHECK_EQ(attributes.shared_bytes, 0);
  CHECK_EQ(attributes.max_dynamic_shared_bytes, 49152);
  CHECK_OK(plinth_kernel_occupancy(kernel, 256, 0, &blocks));
  CHECK(blocks >= 1);
  CHECK_STATUS(plinth_kernel_occupancy(kernel, 0, 0, &blocks), PLINTH_ERROR_INVALID_VALUE);
  /* A kernel keeps its module loaded. */
  CHECK_OK(plinth_kernel_module_destroy(module));
  CHECK_STATUS(plinth_kernel_module_destroy(module), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  arguments[0].kind = PLINTH_ARGUMENT_BYTES;
  arguments[0].bytes = 8;
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  arguments[0].bytes = 0;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  arguments[0].kind = 8;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the kind of argument 0 is 8");
  arguments[0] = argument(PLINTH_ARGUMENT_INT64, NULL);
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  arguments[0].value = &cycles;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, NULL, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  launch.struct_size = 8;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("launch->struct_size is 8");
  launch.struct_size = sizeof launch;
  attributes.struct_size = 0;
  CHECK_STATUS(plinth_kernel_attributes(kernel, &attributes), PLINTH_ERROR_INVALID_VALUE);
  launch.flags = 2;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  launch.flags = 0;
  launch.block[0] = 4096;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  launch.block[0] = 1;
  launch.shared_bytes = 1 << 24;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("bytes of shared memory");
  launch.shared_bytes = 0;
  if (on_host_device()) {
    /* A GPU's driver reports kernel parameters from CUDA 12.4 on; the host device always does. */
    CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("launching plinth_sleep: it takes 1 arguments, not 2");
    arguments[0] = argument(PLINTH_ARGUMENT_INT32, &few);
    CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("argument 0 has 4 bytes, and its parameter 8");
    arguments[0] = argument(PLINTH_ARGUMENT_INT64, &cycles);
    launch.flags = PLINTH_LAUNCH_COOPERATIVE;
    CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_NOT_SUPPORTED);
  }
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(handles_of_one_kernel_share_its_shared_memory_limit) {
  plinth_kernel_module_t module = loaded(sleep_module, sizeof sleep_module);
  plinth_kernel_t one = kernel_of(module, "plinth_sleep"), other = kernel_of(module, "plinth_sleep");
  plinth_kernel_launch_t launch = shape(1, 1);
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  const int64_t cycles = 10;
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_INT64, &cycles)};
  const uint32_t large = 90000, small = 60000;
  launch.shared_bytes = large;
  CHECK_OK(plinth_kernel_launch(one, &launch, arguments, 1, NULL));
  launch.shared_bytes = small;
  CHECK_OK(plinth_kernel_launch(other, &launch, arguments, 1, NULL));
  CHECK_OK(plinth_kernel_attributes(one, &attributes));
  CHECK_EQ(attributes.max_dynamic_shared_bytes, (int32_t)large);
  launch.shared_bytes = large;
  CHECK_OK(plinth_kernel_launch(one, &launch, arguments, 1, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
}

TEST(an_invalid_image_is_refused) {
  plinth_kernel_module_t module = (plinth_kernel_module_t)UNTOUCHED_POINTER;
  CHECK(plinth_kernel_module_load("no image", 8, 0, &module) != PLINTH_OK);
  CHECK_MESSAGE("loading a module");
  CHECK_SAME(module, UNTOUCHED_POINTER);
}

TEST(launches_run_in_their_stream_and_can_be_captured) {
  plinth_kernel_module_t module = loaded(sleep_module, sizeof sleep_module);
  plinth_kernel_t kernel = kernel_of(module, "plinth_sleep");
  plinth_stream_t stream = stream_on(0);
  plinth_graph_t graph = NULL;
  const plinth_kernel_launch_t launch = shape(1, 1);
  const int64_t cycles = 10;
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_INT64, &cycles)};
  gate *shut = gate_shut(stream);
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, stream));
  CHECK(stays_undone(stream));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_kernel_module_destroy(module));
}

TEST(compiled_kernels_run) {
  plinth_kernel_t kernel = compiled(SCALE, "scale<float>");
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  expect_scaled(kernel);
  CHECK_OK(plinth_kernel_attributes(kernel, &attributes));
  if (!on_host_device()) {
    CHECK(attributes.registers > 0);
    CHECK(attributes.binary_version >= 75);
  }
  CHECK_OK(plinth_kernel_destroy(kernel));
}

/* What the host device runs in place of scale<float>. */
static int32_t scale_floats(const plinth_host_launch_t *launch, void *context) {
  float *data = NULL;
  float by = 0;
  int32_t count = 0;
  (void)context;
  memcpy(&data, launch->parameters[0], sizeof data);
  memcpy(&by, launch->parameters[1], sizeof by);
  memcpy(&count, launch->parameters[2], sizeof count);
  for (uint32_t at = 0; at < launch->grid[0] * launch->block[0] && at < (uint32_t)count; at++) {
    data[at] *= by;
  }
  return 0;
}

TEST(modules_from_ptx_and_cubin_run) {
  static const size_t sizes[] = {sizeof(float *), sizeof(float), sizeof(int32_t)};
  need_nvrtc();
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  char names[2][16];
  CHECK_OK(plinth_get_device_properties(0, &properties));
  snprintf(names[0], sizeof names[0], "%d", (int)(properties.major * 10 + properties.minor));
  snprintf(names[1], sizeof names[1], "compute_%d", (int)(properties.major * 10 + properties.minor));
  for (int which = 0; which < 2; which++) {
    void *image = NULL;
    size_t bytes = 0;
    char *name = NULL;
    CHECK_OK(plinth_nvrtc_compile(SCALE, "scale<float>", names[which], NULL, NULL, &image, &bytes, &name));
    plinth_kernel_module_t module = loaded(image, bytes);
    free(image);
    CHECK_OK(plinth_host_kernel_register(name, sizes, 3, scale_floats, NULL));
    plinth_kernel_t kernel = kernel_of(module, name);
    CHECK_OK(plinth_host_kernel_register(name, NULL, 0, NULL, NULL));
    expect_scaled(kernel);
    CHECK_OK(plinth_kernel_destroy(kernel));
    CHECK_OK(plinth_kernel_module_destroy(module));
    free(name);
  }
}

/* The fatbin of the PTX of `extern "C" __global__ void add_seven(int *number) { *number += 7; }`. */
static const unsigned char ADD_SEVEN[] = {
    0x50, 0xed, 0x55, 0xba, 0x01, 0x00, 0x10, 0x00, 0x78, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x01, 0x50, 0x00, 0x00, 0x00, 0x28, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x4b, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x48, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x2e, 0x76, 0x65, 0x72, 0x73, 0x69, 0x6f, 0x6e, 0x20, 0x37, 0x2e, 0x30, 0x0a, 0x2e, 0x74, 0x61,
    0x72, 0x67, 0x65, 0x74, 0x20, 0x73, 0x6d, 0x5f, 0x37, 0x35, 0x0a, 0x2e, 0x61, 0x64, 0x64, 0x72,
    0x65, 0x73, 0x73, 0x5f, 0x73, 0x69, 0x7a, 0x65, 0x20, 0x36, 0x34, 0x0a, 0x0a, 0x2e, 0x76, 0x69,
    0x73, 0x69, 0x62, 0x6c, 0x65, 0x20, 0x2e, 0x65, 0x6e, 0x74, 0x72, 0x79, 0x20, 0x61, 0x64, 0x64,
    0x5f, 0x73, 0x65, 0x76, 0x65, 0x6e, 0x28, 0x0a, 0x2e, 0x70, 0x61, 0x72, 0x61, 0x6d, 0x20, 0x2e,
    0x75, 0x36, 0x34, 0x20, 0x61, 0x64, 0x64, 0x5f, 0x73, 0x65, 0x76, 0x65, 0x6e, 0x5f, 0x70, 0x61,
    0x72, 0x61, 0x6d, 0x5f, 0x30, 0x0a, 0x29, 0x0a, 0x7b, 0x0a, 0x2e, 0x72, 0x65, 0x67, 0x20, 0x2e,
    0x62, 0x33, 0x32, 0x20, 0x25, 0x72, 0x3c, 0x33, 0x3e, 0x3b, 0x0a, 0x2e, 0x72, 0x65, 0x67, 0x20,
    0x2e, 0x62, 0x36, 0x34, 0x20, 0x25, 0x72, 0x64, 0x3c, 0x33, 0x3e, 0x3b, 0x0a, 0x6c, 0x64, 0x2e,
    0x70, 0x61, 0x72, 0x61, 0x6d, 0x2e, 0x75, 0x36, 0x34, 0x20, 0x25, 0x72, 0x64, 0x31, 0x2c, 0x20,
    0x5b, 0x61, 0x64, 0x64, 0x5f, 0x73, 0x65, 0x76, 0x65, 0x6e, 0x5f, 0x70, 0x61, 0x72, 0x61, 0x6d,
    0x5f, 0x30, 0x5d, 0x3b, 0x0a, 0x63, 0x76, 0x74, 0x61, 0x2e, 0x74, 0x6f, 0x2e, 0x67, 0x6c, 0x6f,
    0x62, 0x61, 0x6c, 0x2e, 0x75, 0x36, 0x34, 0x20, 0x25, 0x72, 0x64, 0x32, 0x2c, 0x20, 0x25, 0x72,
    0x64, 0x31, 0x3b, 0x0a, 0x6c, 0x64, 0x2e, 0x67, 0x6c, 0x6f, 0x62, 0x61, 0x6c, 0x2e, 0x75, 0x33,
    0x32, 0x20, 0x25, 0x72, 0x31, 0x2c, 0x20, 0x5b, 0x25, 0x72, 0x64, 0x32, 0x5d, 0x3b, 0x0a, 0x61,
    0x64, 0x64, 0x2e, 0x73, 0x33, 0x32, 0x20, 0x25, 0x72, 0x32, 0x2c, 0x20, 0x25, 0x72, 0x31, 0x2c,
    0x20, 0x37, 0x3b, 0x0a, 0x73, 0x74, 0x2e, 0x67, 0x6c, 0x6f, 0x62, 0x61, 0x6c, 0x2e, 0x75, 0x33,
    0x32, 0x20, 0x5b, 0x25, 0x72, 0x64, 0x32, 0x5d, 0x2c, 0x20, 0x25, 0x72, 0x32, 0x3b, 0x0a, 0x72,
    0x65, 0x74, 0x3b, 0x0a, 0x7d, 0x0a, 0x00, 0x00,
};

static int32_t add_seven(const plinth_host_launch_t *launch, void *context) {
  int32_t *number = NULL;
  (void)context;
  memcpy(&number, launch->parameters[0], sizeof number);
  *number += 7;
  return 0;
}

TEST(modules_from_fatbin_run) {
  static const size_t size = sizeof(int32_t *);
  CHECK_OK(plinth_host_kernel_register("add_seven", &size, 1, add_seven, NULL));
  plinth_kernel_module_t module = loaded(ADD_SEVEN, sizeof ADD_SEVEN);
  plinth_kernel_t kernel = kernel_of(module, "add_seven");
  const plinth_kernel_launch_t launch = shape(1, 1);
  int32_t *number = (int32_t *)device_memory(sizeof *number, 0);
  int32_t seen = 35;
  const void *pointer = number;
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_POINTER, &pointer)};
  put(number, &seen, sizeof seen);
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL));
  fetch(&seen, number, sizeof seen);
  CHECK_EQ(seen, 42);
  CHECK_OK(plinth_device_free(number));
  CHECK_OK(plinth_kernel_destroy(kernel));
  CHECK_OK(plinth_kernel_module_destroy(module));
}

TEST(a_ptx_error_contains_the_drivers_log) {
  static const char wrong[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry f() {\n  nonsense;\n}\n";
  plinth_kernel_module_t module = NULL;
  need_gpu();
  CHECK_STATUS(plinth_kernel_module_load(wrong, sizeof wrong, 0, &module), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_MESSAGE("line 5");
}

/* Reverses an array in shared memory that exceeds the default limit of a launch. */
TEST(shared_memory_above_the_default_limit) {
  const char *source =
      "extern \"C\" __global__ void reverse(int *data, int count) {\n"
      "  extern __shared__ int room[];\n"
      "  for (int at = threadIdx.x; at < count; at += blockDim.x) room[at] = data[at];\n"
      "  __syncthreads();\n"
      "  for (int at = threadIdx.x; at < count; at += blockDim.x) data[at] = room[count - 1 - at];\n"
      "}\n";
  enum { INTEGERS = 16000 };
  static int32_t numbers[INTEGERS];
  const int32_t count = INTEGERS;
  plinth_kernel_launch_t launch = shape(1, 256);
  int32_t blocks = 0;
  plinth_kernel_t kernel = compiled(source, "reverse");
  int32_t *data = (int32_t *)device_memory(sizeof numbers, 0);
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_POINTER, &data),
                                                argument(PLINTH_ARGUMENT_INT32, &count)};
  for (int index = 0; index < INTEGERS; index++) {
    numbers[index] = index;
  }
  put(data, numbers, sizeof numbers);
  launch.shared_bytes = sizeof numbers;
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 2, NULL));
  fetch(numbers, data, sizeof numbers);
  for (int index = 0; index < INTEGERS; index++) {
    CHECK_EQ(numbers[index], INTEGERS - 1 - index);
  }
  CHECK_OK(plinth_kernel_set_shared_memory_config(kernel, 80 * 1024));
  CHECK_OK(plinth_kernel_occupancy(kernel, 256, 80 * 1024, &blocks));
  CHECK(blocks >= 1);
  CHECK_STATUS(plinth_kernel_set_shared_memory_config(kernel, 1 << 30), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_device_free(data));
  CHECK_OK(plinth_kernel_destroy(kernel));
}

/* Each block waits until all blocks have counted, which works only if all blocks run concurrently. */
TEST(cooperative_launches_run_all_blocks_at_once) {
  const char *source =
      "extern \"C\" __global__ void meet(unsigned *counter, unsigned *seen) {\n"
      "  if (threadIdx.x == 0) {\n"
      "    atomicAdd(counter, 1);\n"
      "    while (*(volatile unsigned *)counter < gridDim.x) {}\n"
      "    seen[blockIdx.x] = *(volatile unsigned *)counter;\n"
      "  }\n"
      "}\n";
  enum { BLOCKS = 64 };
  uint32_t seen[BLOCKS];
  plinth_kernel_launch_t launch = shape(BLOCKS, 32);
  plinth_kernel_t kernel = compiled(source, "meet");
  uint32_t *counter = (uint32_t *)device_memory(4, 0), *results = (uint32_t *)device_memory(sizeof seen, 0);
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_POINTER, &counter),
                                                argument(PLINTH_ARGUMENT_POINTER, &results)};
  CHECK_OK(plinth_memset(counter, 0, 4, NULL));
  launch.flags = PLINTH_LAUNCH_COOPERATIVE;
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 2, NULL));
  fetch(seen, results, sizeof seen);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK_EQ(seen[index], BLOCKS);
  }
  /* A launch with more blocks than can run concurrently is refused, because it would never end. */
  launch.grid[0] = 1 << 20;
  CHECK(plinth_kernel_launch(kernel, &launch, arguments, 2, NULL) != PLINTH_OK);
  CHECK_OK(plinth_device_free(counter));
  CHECK_OK(plinth_device_free(results));
  CHECK_OK(plinth_kernel_destroy(kernel));
}

TEST(blocks_of_a_cluster_access_each_others_shared_memory) {
  const char *source =
      "extern \"C\" __global__ void neighbours(unsigned *out) {\n"
      "  __shared__ unsigned own;\n"
      "  unsigned rank, size, place, other;\n"
      "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
      "  asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(size));\n"
      "  own = 100 + rank;\n"
      "  asm volatile(\"barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n"
      "  asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(place)\n"
      "      : \"r\"((unsigned)__cvta_generic_to_shared(&own)), \"r\"((rank + 1) % size));\n"
      "  asm volatile(\"ld.shared::cluster.u32 %0, [%1];\" : \"=r\"(other) : \"r\"(place));\n"
      "  out[blockIdx.x] = other;\n"
      "  asm volatile(\"barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n"
      "}\n";
  enum { BLOCKS = 16, CLUSTER = 4 };
  uint32_t found[BLOCKS];
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  plinth_kernel_launch_t launch = shape(BLOCKS, 1);
  need_gpu();
  CHECK_OK(plinth_get_device_properties(0, &properties));
  if (properties.major < 9) {
    SKIP("needs clusters");
  }
  plinth_kernel_t kernel = compiled(source, "neighbours");
  uint32_t *results = (uint32_t *)device_memory(sizeof found, 0);
  const plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_POINTER, &results)};
  launch.cluster[0] = CLUSTER;
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL));
  fetch(found, results, sizeof found);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK_EQ(found[index], 100 + (index % CLUSTER + 1) % CLUSTER);
  }
  launch.cluster[0] = 3;
  CHECK_STATUS(plinth_kernel_launch(kernel, &launch, arguments, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("multiple of the cluster");
  CHECK_OK(plinth_device_free(results));
  CHECK_OK(plinth_kernel_destroy(kernel));
}

TEST(a_kernel_argument_may_be_a_struct) {
  const char *source =
      "struct pair { double first; int second; };\n"
      "extern \"C\" __global__ void store(double *out, pair given, bool twice, long wide) {\n"
      "  *out = (given.first + given.second + wide) * (twice ? 2 : 1);\n"
      "}\n";
  struct {
    double first;
    int32_t second;
  } pair = {1.5, 2};
  const bool twice = true;
  const int64_t wide = INT64_C(1) << 40;
  const plinth_kernel_launch_t launch = shape(1, 1);
  double found = 0;
  plinth_kernel_t kernel = compiled(source, "store");
  double *out = (double *)device_memory(8, 0);
  plinth_kernel_argument_t arguments[] = {argument(PLINTH_ARGUMENT_POINTER, &out), argument(PLINTH_ARGUMENT_BYTES, &pair),
                                          argument(PLINTH_ARGUMENT_BOOL, &twice), argument(PLINTH_ARGUMENT_INT64, &wide)};
  arguments[1].bytes = sizeof pair;
  CHECK_OK(plinth_kernel_launch(kernel, &launch, arguments, 4, NULL));
  fetch(&found, out, sizeof found);
  CHECK(found == 2 * (3.5 + (double)wide));
  CHECK_OK(plinth_device_free(out));
  CHECK_OK(plinth_kernel_destroy(kernel));
}
