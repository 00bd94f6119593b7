/* Functions captured as graphs. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "graphing.h"

#define WORDS 256
#define BYTES (WORDS * sizeof(uint32_t))

/* A layer that copies its input to its output, and the gradient of the output to that of the input. */
typedef struct layer {
  int forwards;
  int backwards;
  plinth_status_t fails;
  void *scratch;
  int order[2];
} layer;

static int call_count;

static plinth_status_t forward(const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count,
                               plinth_stream_t stream, void *context) {
  layer *self = (layer *)context;
  void *between = NULL;
  plinth_status_t status = self->fails;
  CHECK_EQ(input_count, 1);
  CHECK_EQ(output_count, 1);
  self->forwards++;
  self->order[0] = ++call_count;
  if (status != PLINTH_OK) {
    return status;
  }
  status = plinth_caching_allocator_alloc(BYTES, -1, stream, &between);
  if (status == PLINTH_OK) {
    status = plinth_memcpy(between, inputs[0].data, BYTES, stream);
  }
  if (status == PLINTH_OK) {
    status = plinth_memcpy(outputs[0].data, between, BYTES, stream);
  }
  CHECK_OK(plinth_caching_allocator_delete(between));
  return status;
}

static plinth_status_t backward(const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count,
                                plinth_stream_t stream, void *context) {
  layer *self = (layer *)context;
  CHECK_EQ(input_count, 1);
  CHECK_EQ(output_count, 1);
  self->backwards++;
  self->order[1] = ++call_count;
  if (outputs[0].data == NULL) {
    return plinth_memset(self->scratch, 1, 4, stream);
  }
  return plinth_memcpy(outputs[0].data, inputs[0].data, BYTES, stream);
}

static plinth_status_t empty_forward(const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count,
                                     plinth_stream_t stream, void *context) {
  (void)context, (void)inputs, (void)input_count, (void)outputs, (void)output_count, (void)stream;
  return PLINTH_OK;
}

static int64_t shape_of_words[1] = {WORDS};

static DLTensor tensor_of(void *data) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = 2;
  tensor.ndim = 1;
  tensor.dtype.code = 1;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape_of_words;
  return tensor;
}

static plinth_callable_t callable_of(layer *self, const DLTensor *input, const DLTensor *output) {
  plinth_callable_t callable = PLINTH_CALLABLE_INIT;
  callable.forward = forward;
  callable.backward = backward;
  callable.context = self;
  callable.inputs = input;
  callable.input_count = 1;
  callable.outputs = output;
  callable.output_count = 1;
  return callable;
}

static uint32_t word_at(const void *memory, size_t index) {
  uint32_t word = 0;
  fetch(&word, (const char *)memory + index * sizeof word, sizeof word);
  return word;
}

TEST(a_list_is_captured_and_called) {
  plinth_stream_t stream = on_new_stream(0);
  layer layers[2];
  plinth_callable_t callables[2];
  plinth_graphed_callable_t graphed[2] = {NULL, NULL};
  plinth_pool_id_t pools[2];
  void *captured = device_memory(BYTES, 0);
  void *elsewhere = device_memory(BYTES, 0);
  DLTensor input = tensor_of(captured);
  DLTensor output = tensor_of(NULL);
  DLTensor argument = tensor_of(elsewhere);
  DLTensor first;
  DLTensor second;
  DLTensor gradient;
  int index;
  memset(layers, 0, sizeof layers);
  for (index = 0; index < 2; index++) {
    callables[index] = callable_of(&layers[index], &input, &output);
  }
  CHECK_OK(plinth_make_graphed_callables(callables, 2, NULL, PLINTH_CALLABLE_WARMUPS, graphed));
  for (index = 0; index < 2; index++) {
    CHECK_EQ(layers[index].forwards, PLINTH_CALLABLE_WARMUPS + 1);
    CHECK_EQ(layers[index].backwards, PLINTH_CALLABLE_WARMUPS + 1);
    CHECK_OK(plinth_graphed_callable_pool(graphed[index], &pools[index]));
  }
  /* Forward passes are captured in order, backward passes in reverse order. */
  CHECK(layers[0].order[0] < layers[1].order[0]);
  CHECK(layers[1].order[0] < layers[1].order[1]);
  CHECK(layers[1].order[1] < layers[0].order[1]);
  CHECK(pools[0].owner == pools[1].owner && pools[0].index == pools[1].index);
  fill_words(elsewhere, 21, BYTES, stream);
  CHECK_OK(plinth_graphed_callable_call(graphed[0], &argument, 1, &first, 1));
  CHECK_OK(plinth_graphed_callable_call(graphed[1], &first, 1, &second, 1));
  finish(stream);
  CHECK_EQ(word_at(second.data, WORDS - 1), 21);
  CHECK_EQ(word_at(captured, 0), 21);
  CHECK_EQ(second.ndim, 1);
  CHECK_EQ(second.shape[0], WORDS);
  CHECK_EQ(second.dtype.bits, 32);
  /* An input at the captured address is not copied, and the addresses of the outputs do not change. */
  fill_words(captured, 22, BYTES, stream);
  CHECK_OK(plinth_graphed_callable_call(graphed[0], &input, 1, &argument, 1));
  finish(stream);
  CHECK_SAME(argument.data, first.data);
  CHECK_EQ(word_at(first.data, 7), 22);
  fill_words(elsewhere, 33, BYTES, stream);
  argument = tensor_of(elsewhere);
  CHECK_OK(plinth_graphed_callable_backward(graphed[1], &argument, 1, &gradient, 1));
  CHECK_OK(plinth_graphed_callable_backward(graphed[0], &gradient, 1, &gradient, 1));
  finish(stream);
  CHECK_EQ(word_at(gradient.data, 3), 33);
  CHECK_STATUS(plinth_graphed_callable_backward(graphed[0], &argument, 1, &gradient, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("since the last backward pass");
  CHECK_EQ(layers[0].forwards, PLINTH_CALLABLE_WARMUPS + 1);
  CHECK_OK(plinth_graphed_callable_reset(graphed[0]));
  CHECK_STATUS(plinth_graphed_callable_call(graphed[0], &input, 1, &argument, 1), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  CHECK_OK(plinth_graphed_callable_reset(graphed[0]));
  for (index = 0; index < 2; index++) {
    CHECK_OK(plinth_graphed_callable_destroy(graphed[index]));
  }
  CHECK_STATUS(plinth_graphed_callable_destroy(graphed[0]), PLINTH_ERROR_INVALID_HANDLE);
  finish(stream);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(reserved(0), 0);
  CHECK_OK(plinth_device_free(captured));
  CHECK_OK(plinth_device_free(elsewhere));
}

TEST(a_call_in_another_stream_waits_for_the_last_one) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  layer self;
  void *captured = device_memory(BYTES, 0);
  void *elsewhere = device_memory(BYTES, 0);
  DLTensor input = tensor_of(captured);
  DLTensor output = tensor_of(NULL);
  DLTensor argument = tensor_of(elsewhere);
  plinth_callable_t callable;
  plinth_graphed_callable_t graphed = NULL;
  gate *shut;
  memset(&self, 0, sizeof self);
  callable = callable_of(&self, &input, &output);
  callable.backward = NULL;
  CHECK_OK(plinth_make_graphed_callables(&callable, 1, NULL, 0, &graphed));
  fill_words(elsewhere, 5, BYTES, NULL);
  finish(NULL);
  shut = gate_shut(stream);
  CHECK_OK(plinth_graphed_callable_call(graphed, &argument, 1, &output, 1));
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_graphed_callable_call(graphed, &argument, 1, &output, 1));
  CHECK(stays_undone(other));
  gate_open(shut);
  finish(other);
  CHECK_EQ(word_at(output.data, 0), 5);
  CHECK_STATUS(plinth_graphed_callable_backward(graphed, &argument, 1, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("without a backward pass");
  CHECK_OK(plinth_graphed_callable_destroy(graphed));
  CHECK_OK(plinth_device_free(captured));
  CHECK_OK(plinth_device_free(elsewhere));
}

static plinth_graphed_callable_t observed;
static int warnings;

static void use_callable_in_warning(const char *message, void *context) {
  plinth_pool_id_t pool;
  CHECK(strstr(message, "a free of graph memory") != NULL);
  warnings++;
  CHECK_STATUS(plinth_graphed_callable_pool(observed, &pool), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  gate_open((gate *)context);
}

/* A stream of the pool captures, so that it cannot wait for the last call, and the CPU does. */
TEST(a_callback_for_waits_may_use_the_callable_that_is_reset) {
  plinth_stream_t other = stream_on(0);
  layer self;
  void *captured = device_memory(BYTES, 0);
  DLTensor input = tensor_of(captured);
  DLTensor output = tensor_of(NULL);
  plinth_callable_t callable;
  plinth_pool_id_t pool;
  plinth_graph_context_t scope;
  plinth_graph_t graph = new_graph(0);
  gate *shut;
  memset(&self, 0, sizeof self);
  callable = callable_of(&self, &input, &output);
  CHECK_OK(plinth_make_graphed_callables(&callable, 1, NULL, 0, &observed));
  CHECK_OK(plinth_graphed_callable_pool(observed, &pool));
  CHECK_OK(plinth_graph_begin(graph, &pool, NULL, PLINTH_CAPTURE_RELAXED, &scope));
  CHECK_OK(plinth_set_stream(other));
  shut = hold(other);
  CHECK_OK(plinth_graphed_callable_call(observed, &input, 1, &output, 1));
  CHECK_OK(plinth_set_sync_debug_callback(use_callable_in_warning, shut));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  CHECK_OK(plinth_graphed_callable_reset(observed));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
  CHECK(warnings > 0);
  CHECK_OK(plinth_graph_reset(graph));
  CHECK_OK(plinth_stream_context_exit(&scope.streams));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graphed_callable_destroy(observed));
  CHECK_OK(plinth_device_free(captured));
}

TEST(a_gradient_that_is_not_needed_has_no_memory) {
  const bool no = false;
  layer self;
  void *captured = device_memory(BYTES, 0);
  DLTensor input = tensor_of(captured);
  DLTensor output = tensor_of(NULL);
  DLTensor gradient = tensor_of(captured);
  plinth_callable_t callable;
  plinth_graphed_callable_t graphed = NULL;
  memset(&self, 0, sizeof self);
  self.scratch = device_memory(BYTES, 0);
  callable = callable_of(&self, &input, &output);
  callable.differentiable = &no;
  CHECK_OK(plinth_make_graphed_callables(&callable, 1, NULL, 1, &graphed));
  CHECK_OK(plinth_graphed_callable_call(graphed, &input, 1, &output, 1));
  CHECK_OK(plinth_graphed_callable_backward(graphed, &output, 1, &gradient, 1));
  CHECK_SAME(gradient.data, NULL);
  finish(NULL);
  CHECK_OK(plinth_graphed_callable_destroy(graphed));
  CHECK_OK(plinth_device_free(self.scratch));
  CHECK_OK(plinth_device_free(captured));
}

TEST(errors_name_the_argument) {
  static int64_t other_shape[1] = {WORDS / 2};
  static int64_t gaps[1] = {2};
  layer self;
  void *captured = device_memory(2 * BYTES, 0);
  DLTensor input = tensor_of(captured);
  DLTensor output = tensor_of(NULL);
  DLTensor argument = input;
  plinth_callable_t callable;
  plinth_callable_t wrong;
  plinth_graphed_callable_t graphed = NULL;
  plinth_graphed_callable_t unchanged = (plinth_graphed_callable_t)UNTOUCHED_POINTER;
  memset(&self, 0, sizeof self);
  callable = callable_of(&self, &input, &output);
  CHECK_STATUS(plinth_make_graphed_callables(NULL, 1, NULL, 3, &unchanged), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_make_graphed_callables(&callable, 0, NULL, 3, &unchanged), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_make_graphed_callables(&callable, 1, NULL, 1001, &unchanged), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("warmup_count");
  wrong = callable;
  wrong.forward = NULL;
  CHECK_STATUS(plinth_make_graphed_callables(&wrong, 1, NULL, 3, &unchanged), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("callables[0]: forward");
  wrong = callable;
  wrong.forward = empty_forward;
  wrong.backward = NULL;
  CHECK_OK(plinth_make_graphed_callables(&wrong, 1, NULL, 3, &graphed)); /* a pass without work */
  CHECK_OK(plinth_graphed_callable_destroy(graphed));
  graphed = NULL;
  self.fails = PLINTH_ERROR_SYSTEM;
  CHECK_STATUS(plinth_make_graphed_callables(&callable, 1, NULL, 3, &unchanged), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("warming up callables[0]");
  CHECK_STATUS(plinth_make_graphed_callables(&callable, 1, NULL, 0, &unchanged), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("capturing the forward pass of callables[0]");
  CHECK(!capturing_here());
  /* The pass calls nothing, so the message of an earlier call is not its own. */
  self.fails = PLINTH_ERROR_OUT_OF_MEMORY;
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 60, 0, NULL, &argument.data), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_make_graphed_callables(&callable, 1, NULL, 0, &unchanged), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_TEXT(plinth_last_error(),
             "capturing the forward pass of callables[0]: running the forward pass: the function failed with "
             "PLINTH_ERROR_OUT_OF_MEMORY");
  CHECK_EQ(plinth_last_driver_error(), 0);
  self.fails = PLINTH_OK;
  argument.strides = gaps;
  wrong = callable;
  wrong.inputs = &argument;
  CHECK_STATUS(plinth_make_graphed_callables(&wrong, 1, NULL, 3, &unchanged), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("callables[0].inputs[0]");
  CHECK_SAME(unchanged, UNTOUCHED_POINTER);
  CHECK_OK(plinth_make_graphed_callables(&callable, 1, NULL, 3, &graphed));
  CHECK_STATUS(plinth_graphed_callable_call(graphed, &argument, 1, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("order of elements");
  argument = input;
  argument.shape = other_shape;
  CHECK_STATUS(plinth_graphed_callable_call(graphed, &argument, 1, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("inputs[0]: its shape");
  argument = input;
  argument.dtype.code = 2;
  CHECK_STATUS(plinth_graphed_callable_call(graphed, &argument, 1, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graphed_callable_call(graphed, &input, 1, &output, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graphed_callable_call(graphed, NULL, 0, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graphed_callable_backward(graphed, &input, 1, &output, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graphed_callable_destroy(graphed));
  CHECK_OK(plinth_graphed_callable_destroy(NULL));
  CHECK_OK(plinth_device_free(captured));
}
