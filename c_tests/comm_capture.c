/* Collectives in a capture: replays do them anew with what is in the tensors then.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
#include "collecting.h"
#include "graphing.h"

static const int64_t length = 5000;

typedef struct tensors {
  item source;
  item copies[8];
  item sum;
  item whole;
  item parts[8];
  item strided;
} tensors;

/* Tensors for every collective, with device 0 as the one that works. */
static void make_tensors(tensors *all) {
  const int32_t devices = device_count();
  const int64_t together[] = {length, devices};
  const int64_t one[] = {length, 1};
  make(&all->source, 0, F32, 1, &length, NULL, 0);
  make(&all->sum, 0, F32, 1, &length, NULL, 0);
  make(&all->whole, 0, F32, 2, together, NULL, 0);
  for (int32_t device = 0; device < devices; device++) {
    make(&all->copies[device], device, F32, 1, &length, NULL, 0);
    make(&all->parts[device], device, F32, 2, one, NULL, 0);
  }
}

static void drop_tensors(tensors *all) {
  drop(&all->source);
  drop(&all->sum);
  drop(&all->whole);
  for (int32_t device = 0; device < device_count(); device++) {
    drop(&all->copies[device]);
    drop(&all->parts[device]);
  }
}

/* The source to all, all to a sum; the copies put together, and parted again. */
static void do_all(tensors *all) {
  const size_t devices = (size_t)device_count();
  DLTensor *copies = row_of(all->copies, devices);
  DLTensor *parts = row_of(all->parts, devices);
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

static void expect_all(tensors *all, int number) {
  const int32_t devices = device_count();
  item parts = all->parts[devices - 1];
  item copies = all->copies[devices - 1];
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

TEST(one_stream_that_captures_works_for_all) {
  static tensors all;
  make_tensors(&all);
  set_numbers(&all.source, 1);
  /* Once before: kernels are loaded, peers have access. */
  do_all(&all);
  expect_all(&all, 1);
  synchronize_all();
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  do_all(&all);
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 2; round < 6; round++) {
    set_numbers(&all.source, round);
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    expect_all(&all, round);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  drop_tensors(&all);
}

TEST(first_use_may_be_in_a_capture) {
  static tensors all;
  make_tensors(&all);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  do_all(&all);
  CHECK_OK(plinth_graph_capture_end(graph));
  set_numbers(&all.source, 3);
  synchronize_all();
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  expect_all(&all, 3);
  CHECK_OK(plinth_graph_destroy(graph));
  drop_tensors(&all);
}

TEST(streams_of_all_devices_may_capture_together) {
  static tensors all;
  need_devices(2);
  const int32_t devices = device_count();
  plinth_stream_t streams[8];
  make_tensors(&all);
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_BROADCAST_SPLIT, 1));
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, 1));
  do_all(&all);
  synchronize_all();
  for (int32_t device = devices - 1; device >= 0; device--) {
    streams[device] = on_new_stream(device);
  }
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  for (int32_t device = 1; device < devices; device++) {
    CHECK_OK(plinth_stream_wait_stream(streams[device], streams[0]));
  }
  do_all(&all);
  for (int32_t device = 1; device < devices; device++) {
    CHECK_OK(plinth_stream_wait_stream(streams[0], streams[device]));
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 2; round < 5; round++) {
    set_numbers(&all.source, round);
    synchronize_all();
    CHECK_OK(plinth_graph_replay(graph));
    finish(streams[0]);
    expect_all(&all, round);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  drop_tensors(&all);
}

TEST(scratch_memory_is_the_graphs) {
  static const int64_t shape[] = {40, 50};
  static const int64_t turned[] = {1, 40};
  item in[2], out;
  const int32_t last = device_count() - 1;
  make(&in[0], 0, F32, 2, shape, turned, 0);
  make(&in[1], last, F32, 2, shape, NULL, 0);
  make(&out, 0, F32, 2, shape, NULL, 0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  DLTensor *row = row_of(in, 2);
  CHECK_OK(plinth_comm_reduce_add(row, 2, &out.dl));
  free(row);
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
  drop(&in[0]);
  drop(&in[1]);
  drop(&out);
}
