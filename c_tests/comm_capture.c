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

/* Copies a tensor of device 0 to device 1 in two ways, and exchanges tensors by messages. */
static void copy_and_exchange(plinth_communicator_t *ranks, plinth_stream_t *streams, test_tensor *from, test_tensor *to) {
  const size_t bytes = (size_t)length * sizeof(float);
  CHECK_OK(plinth_copy_tensor(&to[0].dl, &from[0].dl, true));
  CHECK_OK(plinth_copy(to[1].dl.data, from[0].dl.data, bytes, true));
  CHECK_OK(plinth_communicator_group_start());
  for (int32_t rank = 0; rank < 2; rank++) {
    const size_t count = (size_t)length;
    CHECK_OK(plinth_communicator_send(ranks[rank], from[rank].dl.data, count, from[0].dl.dtype, 1 - rank, streams[rank]));
    CHECK_OK(plinth_communicator_recv(ranks[rank], to[2 + rank].dl.data, count, from[0].dl.dtype, 1 - rank, streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_end());
}

TEST(copies_and_messages_between_devices_are_captured) {
  static const int32_t pair[] = {0, 1}, target[] = {1, 1, 0, 1};
  test_tensor from[2], to[4];
  plinth_stream_t streams[2];
  plinth_communicator_t ranks[2];
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  need_devices(2);
  options.engine = PLINTH_ENGINE_LOCAL;
  CHECK_OK(plinth_communicator_init_all(pair, 2, &options, ranks));
  for (int32_t device = 0; device < 2; device++) {
    make_tensor(&from[device], device, F32, 1, &length, NULL, 0);
  }
  for (int index = 0; index < 4; index++) {
    make_tensor(&to[index], target[index], F32, 1, &length, NULL, 0);
  }
  streams[1] = on_new_stream(1);
  streams[0] = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_stream_wait_stream(streams[1], streams[0]));
  copy_and_exchange(ranks, streams, from, to);
  CHECK_OK(plinth_stream_wait_stream(streams[0], streams[1]));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < 3; round++) {
    set_numbers(&from[0], round);
    set_numbers(&from[1], round + 3);
    for (int index = 0; index < 4; index++) {
      set_elements(&to[index], NULL);
    }
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(streams[0]);
    for (int index = 0; index < 4; index++) {
      unsigned char *expected = elements_of(&from[index == 2]);
      expect_elements(&to[index], expected, "replayed");
      free(expected);
    }
  }
  CHECK_OK(plinth_graph_destroy(graph));
  for (int32_t rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_destroy(ranks[rank]));
    free_tensor(&from[rank]);
  }
  for (int index = 0; index < 4; index++) {
    free_tensor(&to[index]);
  }
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
