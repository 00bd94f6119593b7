/*
 * Driver functions that tests call directly, found with plinth_driver_entry_point on a GPU and on the host device.
 * The types are declared as in cuda.h, which the tests do not need.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef DRIVER_H
#define DRIVER_H

#include "harness.h"

/* Codes and constants of cuda.h. */
#define CUDA_SUCCESS 0
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define CUDA_ERROR_INVALID_HANDLE 400
#define CUDA_ERROR_UNKNOWN 999
#define CU_STREAM_DEFAULT 0u
#define CU_STREAM_NON_BLOCKING 1u
#define CU_STREAM_CAPTURE_MODE_GLOBAL 0u
#define CU_STREAM_CAPTURE_MODE_THREAD_LOCAL 1u
#define CU_STREAM_CAPTURE_MODE_RELAXED 2u
#define CU_GRAPH_NODE_TYPE_WAIT_EVENT 6u
#define CU_GRAPH_NODE_TYPE_EVENT_RECORD 7u

typedef int (*driver_stream_create)(plinth_stream_t *stream, unsigned flags, int priority);
typedef int (*driver_stream_destroy)(plinth_stream_t stream);
typedef int (*driver_begin_capture)(plinth_stream_t stream, unsigned mode);
typedef int (*driver_end_capture)(plinth_stream_t stream, void **graph);
typedef int (*driver_event_create)(void **event, unsigned flags);
typedef int (*driver_event_record)(void *event, plinth_stream_t stream);
typedef int (*driver_stream_wait_event)(plinth_stream_t stream, void *event, unsigned flags);
typedef int (*driver_fill)(unsigned long long memory, unsigned char value, size_t bytes, plinth_stream_t stream);
typedef int (*driver_graph_nodes)(void *graph, void **nodes, size_t *count);
typedef int (*driver_node_type)(void *node, unsigned *type);
typedef int (*driver_graph_instantiate)(void **executable, void *graph, unsigned long long flags);
typedef int (*driver_graph_launch)(void *executable, plinth_stream_t stream);
typedef int (*driver_graph_destroy)(void *graph);
typedef int (*driver_elapsed_time)(float *milliseconds, void *start, void *end);
typedef int (*driver_device_get)(int *device, int ordinal);
typedef int (*driver_context_state)(int device, unsigned *flags, int *active);
typedef int (*driver_context_device)(int *device);
typedef int (*driver_context_get)(void **context);
typedef int (*driver_context_set)(void *context);
typedef int (*driver_create)(unsigned long long *handle, size_t bytes, const void *properties, unsigned long long flags);
typedef int (*driver_handle_release)(unsigned long long handle);

/* DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy") declares `destroy` and finds it. */
#define DRIVER(type, variable, name) \
  type variable = NULL;              \
  CHECK_OK(plinth_driver_entry_point(name, (void **)&variable))

/* Creates a stream with the driver, as another library would, in the context of `device`. */
static inline plinth_stream_t foreign_stream(int32_t device, unsigned flags, int priority) {
  plinth_stream_t stream = NULL;
  int32_t previous = -1;
  DRIVER(driver_stream_create, create, "cuStreamCreateWithPriority");
  CHECK_OK(plinth_exchange_device(device, &previous));
  CHECK_EQ(create(&stream, flags, priority), CUDA_SUCCESS);
  CHECK_OK(plinth_exchange_device(previous, &previous));
  CHECK(stream != NULL);
  return stream;
}

/* The same, registered with plinth_stream_from_external. */
static inline plinth_stream_t known_foreign_stream(int32_t device, unsigned flags) {
  plinth_stream_t stream = foreign_stream(device, flags, 0);
  plinth_stream_t known = NULL;
  CHECK_OK(plinth_stream_from_external(stream, device, &known));
  CHECK_SAME(known, stream);
  return known;
}

static inline void begin_capture(plinth_stream_t stream, unsigned mode) {
  DRIVER(driver_begin_capture, begin, "cuStreamBeginCapture_v2");
  CHECK_EQ(begin(stream, mode), CUDA_SUCCESS);
}

/* Ends a capture. Returns the driver's code, which is CUDA_SUCCESS if the capture was valid. */
static inline int end_capture(plinth_stream_t stream, void **graph) {
  DRIVER(driver_end_capture, end, "cuStreamEndCapture");
  return end(stream, graph);
}

static inline bool has_context(int32_t device) {
  int native = -1;
  unsigned flags = 0;
  int active = -1;
  DRIVER(driver_device_get, get, "cuDeviceGet");
  DRIVER(driver_context_state, state, "cuDevicePrimaryCtxGetState");
  CHECK_EQ(get(&native, device), CUDA_SUCCESS);
  CHECK_EQ(state(native, &flags, &active), CUDA_SUCCESS);
  return active != 0;
}

#endif
