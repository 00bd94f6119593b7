/*
 * Kernels and the stream sanitizer: it knows the accesses of plinth_kernel_launch by the arguments, and those of nodes of
 * built graphs by plinth_sanitizer_graph_operation. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; its programs must not see the accesses of others */
#include "driver.h"
#include "graphing.h"
#include "pinning.h"
#include "sanitizing.h"

#define SIZE (64 * KIB)

static plinth_stream_t a, b;

/* A module with a kernel of one 8-byte parameter, for all devices: on the host device every module has plinth_sleep. */
static const char sleep_module[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry plinth_sleep(.param .u64 cycles)\n{\n  ret;\n}\n";
static plinth_kernel_t sleep_kernel;

/* The address of a fictitious tensor. The kernel uses it as a short time to sleep, and does not access it. */
static unsigned char *const address = (unsigned char *)(uintptr_t)(64 * KIB);

static void begin(void) {
  plinth_kernel_module_t module = NULL;
  enable_sanitizer();
  a = on_new_stream(0);
  b = stream_on(0);
  CHECK_OK(plinth_kernel_module_load(sleep_module, sizeof sleep_module, 0, &module));
  CHECK_OK(plinth_kernel_module_get_kernel(module, "plinth_sleep", &sleep_kernel));
}

/* Launches the kernel with a tensor of `floats` numbers at `address`. */
static plinth_status_t launch_with(uint32_t access, int64_t floats, DLDataType type, plinth_stream_t stream) {
  plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  int64_t strides[1] = {2};
  const DLTensor tensor = {address, {2, 0}, 1, type, &floats, strides, 0};
  const plinth_kernel_argument_t argument = {sizeof argument, &tensor, 0, PLINTH_ARGUMENT_TENSOR, access};
  return plinth_kernel_launch(sleep_kernel, &launch, &argument, 1, stream);
}

static const DLDataType float32 = {2, 32, 1};

static void launch_tensor(uint32_t access, plinth_stream_t stream) {
  CHECK_OK(launch_with(access, 4, float32, stream));
}

TEST(racy_tensor_that_a_kernel_writes) {
  begin();
  kernel("sum", READ, address, 4, a);
  launch_tensor(WRITE, b);
  RACE(MISSING_WAIT, address, 4, writes("plinth_sleep", b), reads("sum", a));
}

TEST(racy_tensor_that_a_kernel_reads) {
  begin();
  launch_tensor(READ, b);
  kernel("fill", WRITE, address + 24, 4, a);
  RACE(MISSING_WAIT, address + 24, 4, writes("fill", a), reads("plinth_sleep", b));
}

TEST(racy_tensor_without_a_declared_access) {
  begin();
  kernel("fill", WRITE, address + 8, 4, a);
  launch_tensor(0, b);
  RACE(MISSING_WAIT, address + 8, 4, reads("plinth_sleep", b), writes("fill", a));
}

TEST(racy_tensor_that_a_kernel_reads_and_writes) {
  begin();
  launch_tensor(READ | WRITE, b);
  kernel("sum", READ, address, 4, a);
  RACE(MISSING_WAIT, address, 4, reads("sum", a), in_stream("plinth_sleep", READ | WRITE, b, 0));
}

TEST(clean_tensors_of_kernels) {
  begin();
  /* Without a declared access, and read only. */
  launch_tensor(0, a);
  launch_tensor(READ, b);
  launch_tensor(0, a);
  wait_for(b, a);
  launch_tensor(WRITE, b);
  /* The bytes between the elements do not belong to the tensor. */
  kernel("fill", WRITE, address + 4, 4, a);
  kernel("fill", WRITE, address + 28, 4, a);
  /* A tensor of an unknown dtype, and one without elements. */
  const DLDataType unknown = {99, 3, 1};
  CHECK_OK(launch_with(WRITE, 4, unknown, a));
  CHECK_OK(launch_with(WRITE, 0, float32, a));
  CLEAN();
}

TEST(clean_kernel_with_a_pointer_argument) {
  begin();
  const uint64_t cycles = 1000;
  const plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  plinth_kernel_argument_t argument = {sizeof argument, &cycles, 0, PLINTH_ARGUMENT_POINTER, 0};
  kernel("fill", WRITE, (void *)(uintptr_t)cycles, 4, a);
  CHECK_OK(plinth_kernel_launch(sleep_kernel, &launch, &argument, 1, b));
  CLEAN();
  argument.access = WRITE;
  CHECK_STATUS(plinth_kernel_launch(sleep_kernel, &launch, &argument, 1, b), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the access of argument 0 is 0x2");
  argument.kind = PLINTH_ARGUMENT_TENSOR;
  argument.access = 4;
  CHECK_STATUS(plinth_kernel_launch(sleep_kernel, &launch, &argument, 1, b), PLINTH_ERROR_INVALID_VALUE);
}

TEST(a_launch_that_races_is_refused) {
  begin();
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  gate *shut = gate_shut(a);
  kernel("fill", WRITE, address, 4, a);
  CHECK_STATUS(launch_with(READ, 4, float32, b), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("plinth_sleep");
  gate_open(shut);
  wait_for(b, a);
  launch_tensor(READ, b);
}

TEST(racy_captured_kernel_beside_another_stream) {
  begin();
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  launch_tensor(WRITE, a);
  CHECK_OK(plinth_graph_capture_end(graph));
  kernel("sum", READ, address, 4, b);
  CHECK_OK(plinth_graph_replay(graph));
  RACE(MISSING_WAIT, address, 4, writes("plinth_sleep", a), reads("sum", b));
}

/* ---- nodes of built graphs */

static plinth_graph_node_t node;

static void do_nothing(void *data) { (void)data; }

static plinth_status_t declare(plinth_graph_t graph, uint32_t kind) {
  const plinth_sanitizer_access_t access = {sizeof access, address, 16, kind, 0};
  return plinth_sanitizer_graph_operation(graph, node, "scale", &access, 1);
}

/* Builds a graph of a kernel node, and declares its access. */
static plinth_graph_t build_with_kernel(uint32_t kind) {
  plinth_graph_t source = new_graph(PLINTH_GRAPH_KEEP_GRAPH), graph = NULL;
  plinth_graph_kernel_t launch = PLINTH_GRAPH_KERNEL_INIT;
  size_t count = 0;
  CHECK_OK(plinth_graph_capture_begin(source, NULL, PLINTH_CAPTURE_GLOBAL));
  launch_tensor(READ, a);
  CHECK_OK(plinth_graph_capture_end(source));
  CHECK_OK(plinth_graph_nodes(source, &node, 1, &count));
  CHECK_EQ(count, 1);
  CHECK_OK(plinth_graph_node_get_kernel(source, node, &launch));
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_kernel(graph, NULL, 0, &launch, &node));
  CHECK_OK(declare(graph, kind));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_destroy(source));
  return graph;
}

TEST(racy_kernel_of_a_built_graph) {
  begin();
  plinth_graph_t graph = build_with_kernel(WRITE);
  kernel("sum", READ, address + 4, 4, b);
  CHECK_OK(plinth_graph_replay(graph));
  RACE(MISSING_WAIT, address + 4, 4, writes("scale", a), reads("sum", b));
}

TEST(clean_kernel_of_a_built_graph) {
  begin();
  plinth_graph_t graph = build_with_kernel(READ);
  kernel("sum", READ, address + 4, 4, b);
  CHECK_OK(plinth_graph_replay(graph));
  wait_for(b, a);
  kernel("fill", WRITE, address, 16, b);
  wait_for(a, b);
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
}

TEST(racy_host_function_of_a_built_graph) {
  begin();
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_host(graph, NULL, 0, do_nothing, NULL, &node));
  /* The last declaration is used. */
  CHECK_OK(declare(graph, READ));
  CHECK_OK(declare(graph, WRITE));
  CHECK_OK(plinth_graph_instantiate(graph));
  CHECK_OK(plinth_graph_replay(graph));
  on_cpu("look", READ, address, 8);
  RACE(MISSING_WAIT, address, 8, in_stream("look", READ, NULL, CPU_DEVICE), writes("scale", a));
}

TEST(clean_graph_at_the_address_of_a_destroyed_one) {
  begin();
  for (int round = 0; round < 8; round++) {
    plinth_graph_t graph = NULL;
    CHECK_OK(plinth_graph_create_empty(0, &graph));
    CHECK_OK(plinth_graph_add_host(graph, NULL, 0, do_nothing, NULL, &node));
    if (round == 0) {
      CHECK_OK(declare(graph, WRITE));
    }
    CHECK_OK(plinth_graph_instantiate(graph));
    if (round > 0) {
      CHECK_OK(plinth_graph_replay(graph));
    }
    CHECK_OK(plinth_graph_destroy(graph));
  }
  kernel("sum", READ, address, 4, b);
  CLEAN();
}

TEST(only_kernel_and_host_nodes_can_be_declared) {
  begin();
  plinth_event_t event = new_event(0);
  plinth_graph_t graph = NULL;
  const plinth_sanitizer_access_t access = {sizeof access, address, 16, READ, 0};
  CHECK_OK(plinth_graph_create_empty(0, &graph));
  CHECK_OK(plinth_graph_add_event_record(graph, NULL, 0, event, &node));
  CHECK_STATUS(declare(graph, READ), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("is a child graph or an event node");
  CHECK_OK(plinth_graph_add_host(graph, NULL, 0, do_nothing, NULL, &node));
  CHECK_STATUS(declare(graph, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(declare(NULL, READ), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_graph_operation(graph, node, NULL, &access, 1), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_graph_operation(graph, node, "scale", NULL, 1), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_graph_operation(graph, (plinth_graph_node_t)(uintptr_t)7, "scale", &access, 1),
               PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_sanitizer_graph_operation(graph, node, "scale", NULL, 0));
  /* Declarations are dropped while the sanitizer is off. */
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(declare(graph, WRITE));
  enable_sanitizer();
  CHECK_OK(plinth_graph_instantiate(graph));
  kernel("sum", READ, address, 4, b);
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
}
