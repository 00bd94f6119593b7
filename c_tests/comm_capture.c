/* Captured collectives: a replay runs them on the current contents of the tensors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
#include "collecting.h"
#include "graphing.h"

static const int64_t length = 5000;

typedef struct tensors {
  test_tensor source;
  test_tensor copies[8];
  test_tensor sum;
  test_tensor whole;
  test_tensor parts[8];
  test_tensor strided;
} tensors;

/* Makes tensors for every collective, with device 0 as the root. */
static void make_all(tensors *all) {
  const int32_t devices = device_count();
  const int64_t whole_shape[] = {length, devices};
  const int64_t column_shape[] = {length, 1};
  make_tensor(&all->source, 0, F32, 1, &length, NULL, 0);
  make_tensor(&all->sum, 0, F32, 1, &length, NULL, 0);
  make_tensor(&all->whole, 0, F32, 2, whole_shape, NULL, 0);
  for (int32_t device = 0; device < devices; device++) {
    make_tensor(&all->copies[device], device, F32, 1, &length, NULL, 0);
    make_tensor(&all->parts[device], device, F32, 2, column_shape, NULL, 0);
  }
}

static void free_all(tensors *all) {
  free_tensor(&all->source);
  free_tensor(&all->sum);
  free_tensor(&all->whole);
  for (int32_t device = 0; device < device_count(); device++) {
    free_tensor(&all->copies[device]);
    free_tensor(&all->parts[device]);
  }
}

/* Broadcasts the source, sums up the copies, gathers the copies, and scatters the result. */
static void run_collectives(tensors *all) {
  const size_t devices = (size_t)device_count();
  DLTensor *copies = descriptors_of(all->copies, devices);
  DLTensor *parts = descriptors_of(all->parts, devices);
  DLTensor columns[8];
  CHECK_OK(plinth_comm_broadcast(&all->source.dl, copies, devices));
  CHECK_OK(plinth_comm_reduce_add(copies, devices, &all->sum.dl));
  for (size_t device = 0; device < devices; device++) {
    columns[device] = copies[device];
    columns[device].ndim = 2;
    columns[device].shape = all->parts[device].shape;
  }
  CHECK_OK(plinth_comm_gather(columns, devices, 1, &all->whole.dl));
  CHECK_OK(plinth_comm_scatter(&all->whole.dl, parts, devices, NULL, 1, NULL));
  free(copies);
  free(parts);
}

static void expect_outputs(tensors *all, int number) {
  const int32_t devices = device_count();
  test_tensor parts = all->parts[devices - 1];
  test_tensor copies = all->copies[devices - 1];
  float *sum = (float *)elements_of(&all->sum);
  float *copy = (float *)elements_of(&copies);
  float *part = (float *)elements_of(&parts);
  for (int64_t index = 0; index < length; index += 7) {
    const float expected = (float)number_at(F32, number, index);
    CHECK(copy[index] == expected);
    CHECK(part[index] == expected);
    CHECK(sum[index] == expected * (float)devices);
  }
  free(sum);
  free(copy);
  free(part);
}

TEST(collectives_are_captured_in_one_stream) {
  static tensors all;
  make_all(&all);
  set_numbers(&all.source, 1);
  /* A first run loads kernels and enables peer access. */
  run_collectives(&all);
  expect_outputs(&all, 1);
  synchronize_all();
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  run_collectives(&all);
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 2; round < 6; round++) {
    set_numbers(&all.source, round);
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    expect_outputs(&all, round);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_all(&all);
}

TEST(the_first_use_may_be_in_a_capture) {
  static tensors all;
  make_all(&all);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  run_collectives(&all);
  CHECK_OK(plinth_graph_capture_end(graph));
  set_numbers(&all.source, 3);
  synchronize_all();
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  expect_outputs(&all, 3);
  CHECK_OK(plinth_graph_destroy(graph));
  free_all(&all);
}

TEST(collectives_are_captured_in_streams_of_all_devices) {
  static tensors all;
  need_devices(2);
  const int32_t devices = device_count();
  plinth_stream_t streams[8];
  make_all(&all);
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_BROADCAST_SPLIT, 1));
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, 1));
  run_collectives(&all);
  synchronize_all();
  for (int32_t device = devices - 1; device >= 0; device--) {
    streams[device] = on_new_stream(device);
  }
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  for (int32_t device = 1; device < devices; device++) {
    CHECK_OK(plinth_stream_wait_stream(streams[device], streams[0]));
  }
  run_collectives(&all);
  for (int32_t device = 1; device < devices; device++) {
    CHECK_OK(plinth_stream_wait_stream(streams[0], streams[device]));
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 2; round < 5; round++) {
    set_numbers(&all.source, round);
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(streams[0]);
    expect_outputs(&all, round);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_all(&all);
}

TEST(scratch_memory_belongs_to_the_graph) {
  static const int64_t shape[] = {40, 50};
  static const int64_t transposed[] = {1, 40};
  test_tensor in[2], out;
  const int32_t last = device_count() - 1;
  make_tensor(&in[0], 0, F32, 2, shape, transposed, 0);
  make_tensor(&in[1], last, F32, 2, shape, NULL, 0);
  make_tensor(&out, 0, F32, 2, shape, NULL, 0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  DLTensor *descriptors = descriptors_of(in, 2);
  CHECK_OK(plinth_comm_reduce_add(descriptors, 2, &out.dl));
  free(descriptors);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(graph_held(graph) > 0);
  for (int round = 0; round < 3; round++) {
    set_numbers(&in[0], 0);
    set_numbers(&in[1], 1);
    set_elements(&out, NULL);
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    expect_sum(&out, 2, "replayed");
  }
  CHECK_OK(plinth_graph_destroy(graph));
  free_tensor(&in[0]);
  free_tensor(&in[1]);
  free_tensor(&out);
}
