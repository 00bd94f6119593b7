/* The jiterator's calls: streams, devices, threads, captures, and errors of calls and sources.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_USE_KERNEL_CACHE=0 */
/* timeout: 120 */
/* alone: a_call_that_fails_is_no_access_for_the_sanitizer; enables the sanitizer */
/* alone: an_invalid_address_ends_the_context; leaves an illegal access, after which the device is lost */
#include "jitting.h"

TEST(without_elements_nothing_runs) {
  /* The function is not even compiled. */
  plinth_jit_function_t function = jit("template <typename T> T f(T x, T y) { return nonsense; }");
  const int64_t shape[] = {4, 0, 3};
  tensor x, y, out;
  make(&x, F32, 3, shape, NULL, 0);
  make(&y, F32, 1, shape + 2, NULL, 0);
  make(&out, F32, 3, shape, NULL, 0);
  CHECK_OK(call2(function, &x, &y, &out, NULL));
  x.dl.data = out.dl.data = NULL;
  CHECK_OK(call2(function, &x, &y, &out, NULL));
  /* Shapes are checked nevertheless. */
  y.shape[0] = 2;
  CHECK_STATUS(call2(function, &x, &y, &out, NULL), PLINTH_ERROR_INVALID_VALUE);
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(errors_of_calls) {
  plinth_jit_function_t add = jit(ADD);
  const int64_t count = 12, rows[] = {3, 4}, wrong[] = {5}, zero_strides[] = {0, 1};
  plinth_jit_function_t untouched = (plinth_jit_function_t)UNTOUCHED_POINTER;
  tensor x, y, out, other, flat;
  const DLTensor *inputs[9];
  DLTensor *outputs[9];
  for (int index = 0; index < 9; index++) {
    inputs[index] = &x.dl;
    outputs[index] = &out.dl;
  }
  make_row(&x, F32, count, 1);
  make_row(&y, F32, count, 2);
  make(&out, F32, 1, &count, NULL, 0);
  make(&other, F64, 1, &count, NULL, 0);
  make(&flat, F32, 2, rows, NULL, 0);
  CHECK_STATUS(plinth_jiterator_call(add, inputs, 3, outputs, 1, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("add takes 2 inputs, not 3");
  CHECK_STATUS(plinth_jiterator_call(add, inputs, 9, outputs, 1, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the jiterator only supports up to 8 inputs, got 9");
  CHECK_STATUS(plinth_jiterator_call(add, inputs, 2, outputs, 2, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_jiterator_call(add, inputs, 0, outputs, 0, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_jiterator_call(add, NULL, 2, outputs, 1, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_jiterator_call(add, inputs, 2, NULL, 1, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(call2(add, &x, &y, &other, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("output 0 is of float64, but its inputs have float32 in common");
  CHECK_STATUS(call2(add, &x, &y, &flat, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("output 0 is of shape [3, 4], but the inputs give [12]");
  x.shape[0] = wrong[0];
  CHECK_STATUS(call2(add, &x, &y, &out, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("input 1 of shape [12]");
  x.shape[0] = count;
  flat.dl.strides = (int64_t *)zero_strides;
  CHECK_STATUS(call2(add, &flat, &flat, &flat, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("elements in one place");
  x.dl.device.device_type = 1;
  CHECK_STATUS(call2(add, &x, &y, &out, NULL), PLINTH_ERROR_DEVICE_MISMATCH);
  x.dl.device.device_type = 2;
  CHECK_STATUS(call2(add, &x, &y, &out, (plinth_stream_t)(uintptr_t)0x1234560), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(call2((plinth_jit_function_t)(uintptr_t)77, &x, &y, &out, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
  CHECK_STATUS(call2(add, &x, &y, &out, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("was a jiterated function, but is destroyed");
  CHECK_STATUS(plinth_jiterator_destroy_jit_fn(add), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(NULL));
  CHECK_STATUS(plinth_jiterator_create_jit_fn(NULL, NULL, 0, &untouched), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_jiterator_create_jit_fn(ADD, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_jiterator_create_jit_fn(ADD, NULL, 1, &untouched), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_jiterator_create_jit_fn("float f(float x) { return x; }", NULL, 0, &untouched),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("is no template");
  CHECK_STATUS(plinth_jiterator_create_multi_output_jit_fn(ADD, 1, NULL, 0, &untouched), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_jiterator_create_multi_output_jit_fn(ADD, -1, NULL, 0, &untouched), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("1 to 8 outputs, not -1");
  CHECK_SAME(untouched, UNTOUCHED_POINTER);
  drop(&x);
  drop(&y);
  drop(&out);
  drop(&other);
  drop(&flat);
}

TEST(tensors_of_two_devices_are_refused) {
  plinth_jit_function_t add = jit(ADD);
  const int64_t count = 12;
  tensor x, y, out;
  need_devices(2);
  make_row(&x, F32, count, 1);
  make_row(&y, F32, count, 2);
  make(&out, F32, 1, &count, NULL, 0);
  y.dl.device.device_id = 1;
  CHECK_STATUS(call2(add, &x, &y, &out, NULL), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("its tensors are on devices 0 and 1");
  y.dl.device.device_id = 0;
  CHECK_STATUS(call2(add, &x, &y, &out, stream_on(1)), PLINTH_ERROR_DEVICE_MISMATCH);
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* Device 0 stays current; the names of streams refer to the tensors' device. */
TEST(every_device_has_its_kernels) {
  plinth_jit_function_t function = jit("template <typename T> T next(T x) { return x + T(1); }");
  int64_t count = 100;
  for (int32_t device = 0; device < device_count(); device++) {
    int16_t numbers[100];
    plinth_stream_t streams[] = {stream_on(device), NULL, PLINTH_STREAM_CURRENT};
    int16_t *memory = (int16_t *)device_memory(sizeof numbers, device);
    DLTensor tensor = {memory, {2, device}, 1, {0, 16, 1}, &count, NULL, 0};
    const DLTensor *inputs[1] = {&tensor};
    DLTensor *outputs[1] = {&tensor};
    for (int index = 0; index < 3; index++) {
      CHECK_OK(plinth_memset(memory, 1, sizeof numbers, streams[index]));
      CHECK_OK(plinth_jiterator_call(function, inputs, 1, outputs, 1, NULL, 0, streams[index]));
      CHECK_OK(plinth_memcpy(numbers, memory, sizeof numbers, streams[index]));
      CHECK_OK(plinth_synchronize(device));
      CHECK_EQ(numbers[0], 0x0102);
      CHECK_EQ(numbers[99], 0x0102);
    }
    CHECK_OK(plinth_device_free(memory));
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(an_invalid_address_ends_the_context) {
  plinth_jit_function_t add = jit(ADD);
  const int64_t count = 100;
  tensor x, out;
  bool done = false;
  need_host_device();
  plinth_stream_t stream = stream_on(0), other = stream_on(0);
  make_row(&x, F32, count, 1);
  make(&out, F32, 1, &count, NULL, 0);
  DLTensor invalid = x.dl;
  invalid.data = (void *)(uintptr_t)0x7f0000000000;
  const DLTensor *inputs[2] = {&x.dl, &invalid};
  DLTensor *outputs[1] = {&out.dl};
  CHECK_OK(plinth_jiterator_call(add, inputs, 2, outputs, 1, NULL, 0, stream));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_ILLEGAL_ADDRESS);
  CHECK_MESSAGE("kernel plinth_jit_add reads 400 bytes at 0x7f0000000000");
  CHECK_STATUS(plinth_stream_query(other, &done), PLINTH_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(plinth_memset(out.dl.data, 0, 4, other), PLINTH_ERROR_ILLEGAL_ADDRESS);
  free(x.host);
  free(out.host);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* A call that compiles no kernel has no accesses. */
TEST(a_call_that_fails_is_no_access_for_the_sanitizer) {
  plinth_jit_function_t wrong = jit("template <typename T> T wrong(T x) {\n  return x + undeclared;\n}\n");
  const int64_t count = 100;
  tensor x, out;
  plinth_stream_t stream = stream_on(0), other = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  make_row(&x, F32, count, 1);
  make(&out, F32, 1, &count, NULL, 0);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  CHECK_STATUS(call1(wrong, &x, &out, stream), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK_OK(plinth_memset(out.dl.data, 0, 4, other));
  CHECK_OK(plinth_synchronize(0));
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(wrong));
}

TEST(a_compilation_error_includes_the_log) {
  plinth_jit_function_t function = jit(
      "template <typename T> T helper(T x) {\n"
      "  return x;\n"
      "}\n"
      "template <typename T> T f(T x) {\n"
      "  return helper(x) + undeclared_thing;\n"
      "}\n");
  const int64_t count = 12;
  tensor x, out;
  make_row(&x, F32, count, 1);
  make(&out, F32, 1, &count, NULL, 0);
  for (int again = 0; again < 2; again++) {
    CHECK_STATUS(call1(function, &x, &out, NULL), PLINTH_ERROR_COMPILATION_FAILED);
    CHECK_MESSAGE("f for inputs of float32");
    CHECK_MESSAGE("undeclared_thing");
    /* The line of the user's source, in the format of either compiler. */
    CHECK(strstr(plinth_last_error(), "jiterator:5:") != NULL || strstr(plinth_last_error(), "jiterator(5)") != NULL);
  }
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(calls_run_in_their_stream) {
  plinth_jit_function_t add = jit(ADD);
  plinth_stream_t stream = stream_on(0);
  const int64_t count = 100;
  tensor x, y, out;
  make_row(&x, F32, count, 1);
  make_row(&y, F32, count, 2);
  make(&out, F32, 1, &count, NULL, 0);
  upload(&out);
  CHECK_OK(call2(add, &x, &y, &out, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  upload(&out);
  gate *shut = gate_shut(stream);
  CHECK_OK(call2(add, &x, &y, &out, stream));
  CHECK(stays_undone(stream));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  fetch(out.host, out.device, out.bytes);
  CHECK(get(&out, out.first).re == get(&x, x.first).re + get(&y, y.first).re);
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* The first call compiles while the stream captures, and the graph outlives the function. */
TEST(calls_are_captured_and_replayed) {
  plinth_jit_function_t function = jit("template <typename T> T next(T x) { return x + T(1); }");
  plinth_stream_t stream = stream_on(0);
  plinth_graph_t graph = NULL;
  const int64_t count = 1000, wide[] = {20, 25};
  const int64_t strides[] = {1, 20};
  tensor x, strided;
  make_row(&x, F32, count, 1);
  make(&strided, I16, 2, wide, strides, 0);
  fill_small(&strided, 3);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(call1(function, &x, &x, stream));
  CHECK_OK(call1(function, &strided, &strided, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
  for (int replay = 0; replay < 5; replay++) {
    CHECK_OK(plinth_graph_replay(graph));
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  for (int which = 0; which < 2; which++) {
    tensor *of = which ? &strided : &x;
    unsigned char *before = of->host, *after = (unsigned char *)pageable_memory(of->bytes);
    fetch(after, of->device, of->bytes);
    for (int64_t index = 0; index < (which ? 500 : count); index++) {
      const size_t at = offset_of_element(of, index, of->dl.ndim, of->shape);
      const double was = get(of, at).re;
      of->host = after;
      CHECK(get(of, at).re == was + 5);
      of->host = before;
    }
    free(after);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  drop(&x);
  drop(&strided);
}

TEST(the_sanitizer_sees_reads_and_writes_of_calls) {
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  plinth_jit_function_t add = jit(ADD);
  plinth_stream_t first = stream_on(0), other = stream_on(0);
  const int64_t count = 100;
  tensor x, y, out;
  make_row(&x, F32, count, 1);
  make_row(&y, F32, count, 2);
  make(&out, F32, 1, &count, NULL, 0);
  upload(&out);
  CHECK_OK(call2(add, &x, &y, &out, first));
  CHECK_STATUS(call2(add, &x, &out, &y, other), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("race: \"add\" in stream ");
  CHECK_MESSAGE("while \"add\" in stream ");
  /* Two streams may read the same tensor, but not write it. */
  CHECK_STATUS(call2(add, &x, &x, &y, other), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_stream_wait_stream(other, first));
  CHECK_OK(call2(add, &x, &out, &y, other));
  CHECK_OK(plinth_stream_synchronize(other));
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

static plinth_jit_function_t shared_function;

static void *call_often(void *number_of) {
  const int64_t count = 200 + *(int *)number_of;
  for (int kind = F16; kind <= I16; kind++) {
    tensor x, y, out;
    make_row(&x, kind, count, (uint64_t)*(int *)number_of);
    make_row(&y, kind, count, 2);
    make(&out, kind, 1, &count, NULL, 0);
    expect_call(shared_function, &x, &y, &out, model_add);
    drop(&x);
    drop(&y);
    drop(&out);
  }
  return NULL;
}

TEST(threads_share_a_function) {
  shared_function = jit(ADD);
  run_threads(8, call_often);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(shared_function));
}
