/* The part of libcudart.so.13 that libc10_cuda.so uses, on plinth's host device: for the test of the bridge on a machine
 * without a GPU. A function that the test does not need ends the process with its name. PyTorch's Python tests use it,
 * too, beside the real libcudart.so.13, which registers kernels that never run.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */

#include <cuda_runtime_api.h>
#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cudaError_t result(plinth_status_t status) {
  if (status == PLINTH_OK) return cudaSuccess;
  return status == PLINTH_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

/* CUDA's NULL is the default stream of the current device. */
static plinth_stream_t of(cudaStream_t stream) { return stream == NULL ? PLINTH_STREAM_DEFAULT_OF(-1) : stream; }

cudaError_t cudaGetDevice(int *device) { return result(plinth_current_device(device)); }
cudaError_t cudaSetDevice(int device) { return result(plinth_set_device(device)); }
cudaError_t cudaGetDeviceCount(int *count) { return result(plinth_device_count(count)); }
cudaError_t cudaDeviceSynchronize(void) { return result(plinth_synchronize(-1)); }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { return result(plinth_mem_get_info(-1, free_bytes, total)); }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { (void)error; return plinth_last_error(); }
const char *cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }

cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  bool answer = false;
  plinth_status_t status = plinth_can_device_access_peer(device, peer, &answer);
  *can = answer;
  return result(status);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return result(plinth_stream_priority_range(-1, least, greatest));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  (void)flags;
  return result(plinth_stream_create_dedicated(-1, priority, stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  bool done = false;
  plinth_status_t status = plinth_stream_query(of(stream), &done);
  return status != PLINTH_OK ? result(status) : done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return result(plinth_stream_synchronize(of(stream))); }

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  bool capturing = false;
  plinth_status_t error = stream == NULL ? PLINTH_OK : plinth_stream_is_capturing(stream, &capturing);
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return result(error);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *count) {
  (void)graph, (void)dependencies, (void)edges, (void)count;
  if (id != NULL) *id = 1;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  (void)mode;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind;
  return result(plinth_memcpy(to, from, bytes, of(stream)));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  (void)to_device, (void)from_device;
  return result(plinth_memcpy(to, from, bytes, of(stream)));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
  return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes) { return result(plinth_device_malloc(bytes, -1, pointer)); }
cudaError_t cudaFree(void *pointer) { return result(plinth_device_free(pointer)); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  plinth_device_properties_t own = PLINTH_DEVICE_PROPERTIES_INIT;
  plinth_status_t status = plinth_get_device_properties(device, &own);
  if (status != PLINTH_OK) return result(status);
  memset(properties, 0, sizeof *properties);
  memcpy(properties->name, own.name, sizeof properties->name);
  properties->name[sizeof properties->name - 1] = '\0';
  properties->totalGlobalMem = own.total_memory;
  properties->major = own.major;
  properties->minor = own.minor;
  properties->multiProcessorCount = own.multi_processor_count;
  properties->maxThreadsPerMultiProcessor = own.max_threads_per_multi_processor;
  properties->maxThreadsPerBlock = own.max_threads_per_block;
  properties->warpSize = own.warp_size;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  uint32_t own = flags & cudaEventDisableTiming ? 0 : PLINTH_EVENT_TIMING;
  if (flags & cudaEventInterprocess) own |= PLINTH_EVENT_INTERPROCESS;
  return result(plinth_event_create(own, (plinth_event_t *)event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) { return result(plinth_event_destroy((plinth_event_t)event)); }

cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool done = false;
  plinth_status_t status = plinth_event_query((plinth_event_t)event, &done);
  return status != PLINTH_OK ? result(status) : done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return result(plinth_event_record((plinth_event_t)event, of(stream)));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) { return result(plinth_event_synchronize((plinth_event_t)event)); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  return result(plinth_event_wait((plinth_event_t)event, of(stream)));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  return result(plinth_event_ipc_handle((plinth_event_t)event, (uint8_t *)handle));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  int device = 0;
  plinth_status_t status = plinth_current_device(&device);
  if (status != PLINTH_OK) return result(status);
  return result(plinth_event_from_ipc_handle(device, (const uint8_t *)&handle, (plinth_event_t *)event));
}

/* PyTorch asks for all functions of the driver that it may need, and gets NULL, as from an old driver. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
  (void)symbol, (void)version, (void)flags;
  *function = NULL;
  *status = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

static void unexpected(const char *name) {
  fprintf(stderr, "the test's libcudart has no %s\n", name);
  abort();
}

#define UNUSED(name, ...) \
  cudaError_t name(__VA_ARGS__) { unexpected(#name); return cudaErrorNotSupported; }

#pragma GCC diagnostic ignored "-Wunused-parameter"
UNUSED(cudaDeviceEnablePeerAccess, int device, unsigned int flags)
UNUSED(cudaDeviceGetDefaultMemPool, cudaMemPool_t *pool, int device)
UNUSED(cudaDeviceGetGraphMemAttribute, int device, enum cudaGraphMemAttributeType attribute, void *value)
UNUSED(cudaDeviceSetGraphMemAttribute, int device, enum cudaGraphMemAttributeType attribute, void *value)
UNUSED(cudaEventElapsedTime, float *time, cudaEvent_t start, cudaEvent_t end)
UNUSED(cudaFreeAsync, void *pointer, cudaStream_t stream)
UNUSED(cudaGraphNodeGetDependencies, cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count)
UNUSED(cudaIpcCloseMemHandle, void *pointer)
UNUSED(cudaIpcGetMemHandle, cudaIpcMemHandle_t *handle, void *pointer)
UNUSED(cudaIpcOpenMemHandle, void **pointer, cudaIpcMemHandle_t handle, unsigned int flags)
UNUSED(cudaMallocAsync, void **pointer, size_t bytes, cudaStream_t stream)
UNUSED(cudaMemPoolGetAttribute, cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
UNUSED(cudaMemPoolSetAccess, cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
UNUSED(cudaMemPoolSetAttribute, cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
UNUSED(cudaMemPoolTrimTo, cudaMemPool_t pool, size_t bytes)
