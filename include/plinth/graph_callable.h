/*!
 * @defgroup plinth_graph_callable Graphed callables
 *
 * Captures the forward and backward pass of functions of the program as graphs: torch.cuda.make_graphed_callables.
 *
 * The caller owns a graphed callable and destroys it. Its inputs are the program's. Its outputs belong to its graphs:
 * they are overwritten by later calls of the callables that were captured together. The program's functions are called
 * only while plinth_make_graphed_callables runs, by the thread that called it. Calls of one callable wait for each
 * other.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_GRAPH_CALLABLE_H
#define PLINTH_GRAPH_CALLABLE_H

#include "base.h"
#include "tensor.h"
#include "mem_pool.h"

/*!
 * @file plinth/graph_callable.h
 * @brief Graphed callables.
 */

/*!
 * @addtogroup plinth_graph_callable
 * @{
 */

/**
 * The number of times that torch runs a callable before it captures it.
 */
#define PLINTH_CALLABLE_WARMUPS 3

/**
 * The number of times that torch runs a callable before it captures it if gradients are averaged over processes
 * (DistributedDataParallel).
 */
#define PLINTH_CALLABLE_WARMUPS_DDP 11

/**
 * A function of the program that was captured as a graph.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle.
 */
typedef struct plinth_graphed_callable plinth_graphed_callable;

/**
 * The forward or backward pass of a callable. It adds work to the stream, which is the current one, that reads the
 * inputs and writes the outputs.
 *
 * plinth_make_graphed_callables calls it a few times to warm up, then once to capture it; it is not called later.
 * During the capture it must do what each call of the graphed callable shall do, and must not wait for the device.
 * Memory that it allocates from the caching allocator during the capture comes from the graphs' pool. It must not
 * unwind or throw. If it does not return PLINTH_OK, plinth_make_graphed_callables fails with its status.
 */
typedef plinth_status_t (*plinth_callable_callback_t)(const DLTensor *inputs,
                                                      size_t input_count,
                                                      DLTensor *outputs,
                                                      size_t output_count,
                                                      plinth_stream_t stream,
                                                      void *context);

/**
 * A function of the program, and the tensors with which it is captured.
 */
typedef struct plinth_callable_t {
  /**
   * sizeof(plinth_callable_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * Computes the outputs from the inputs.
   */
  plinth_callable_callback_t forward;
  /**
   * Computes the gradients of the inputs from those of the outputs; NULL if there is no backward pass. The forward
   * pass must store the values that the backward pass needs where both can find them.
   */
  plinth_callable_callback_t backward;
  /**
   * Passed to both functions.
   */
  void *context;
  /**
   * The inputs of the capture. Their memory belongs to the program and must stay valid until the callable is
   * destroyed: a call copies other inputs there. Each input must be dense: its elements fill one contiguous range
   * of memory.
   */
  const DLTensor *inputs;
  /**
   * The number of inputs.
   */
  size_t input_count;
  /**
   * Descriptions of the outputs: device, type and shape. Data and strides are ignored: the library allocates
   * contiguous outputs in the graphs' pool.
   */
  const DLTensor *outputs;
  /**
   * The number of outputs.
   */
  size_t output_count;
  /**
   * For each input, whether the backward pass computes its gradient; NULL if it does for all inputs. The DLTensor
   * of a gradient that is not computed has NULL data.
   */
  const bool *differentiable;
} plinth_callable_t;

/*! An initializer for a plinth_callable_t. */
#define PLINTH_CALLABLE_INIT {sizeof(plinth_callable_t), NULL, NULL, NULL, NULL, 0, NULL, 0, NULL}

/**
 * The handle of a graphed callable.
 */
typedef struct plinth_graphed_callable *plinth_graphed_callable_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Captures functions of the program as graphs: torch.cuda.make_graphed_callables.
 *
 * Each function runs `warmup_count` times, forward and backward, in a stream other than the current one. Then all
 * forward passes are captured in order, and all backward passes in reverse order, in one pool. The graphed callables
 * must therefore be called in that order, as in a training step. The call synchronizes the device before and after
 * the warm-up, and before each capture.
 *
 * The graphs reuse each other's memory: the outputs of a graph are valid until the graphs before it in that order
 * are called again. Their calls never overlap; a call in another stream than the last one waits for the last one.
 *
 * @param callables The functions, all of the current device.
 * @param count The number of functions; not 0.
 * @param pool The pool, as in plinth_graph_capture_begin; NULL for a new one.
 * @param warmup_count The number of warm-up runs of each function, at most 1000; torch's default is
 *        PLINTH_CALLABLE_WARMUPS.
 * @param graphed Out: a graphed callable for each function, in the same order. The caller owns them and destroys
 *        each with plinth_graphed_callable_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of 0, for too many warm-up
 *         runs, for a malformed tensor, and for an input that is not dense; PLINTH_ERROR_DEVICE_MISMATCH for a
 *         tensor of another device; the status that a pass returned, with the message of the pass's last call if that
 *         failed with this status; PLINTH_ERROR_CAPTURE_FORBIDS if the current stream captures; the errors of
 *         plinth_graph_begin and plinth_graph_end. After an error no graphed callable
 *         exists.
 */
PLINTH_API
plinth_status_t plinth_make_graphed_callables(const struct plinth_callable_t *callables,
                                              size_t count,
                                              const plinth_pool_id_t *pool,
                                              uint32_t warmup_count,
                                              plinth_graphed_callable_t *graphed)
PLINTH_NOEXCEPT;

/**
 * Calls a graphed callable in the current stream of its device.
 *
 * The call copies each input whose data pointer differs from that of the captured one, replays the graph, and
 * returns before the work is done. The outputs have the same addresses at each call. The next call of this or
 * another callable of the pool overwrites them. A program that writes its inputs directly to the captured memory
 * avoids the copies. Calls of one callable are serialized.
 *
 * @param callable The callable.
 * @param inputs The inputs, each with the device, type, shape and strides of the captured one.
 * @param input_count The number of inputs; must equal the captured number.
 * @param outputs Out: the outputs. Their memory, shapes and strides belong to the library and are valid until the
 *        callable is reset or destroyed.
 * @param output_count The number of outputs; must equal the described number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
 *         counts, and for an input of another type, shape or memory layout; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a callable that was reset;
 *         PLINTH_ERROR_CAPTURE_FORBIDS if the current stream captures; the errors of plinth_graph_replay.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_call(plinth_graphed_callable_t callable,
                                             const DLTensor *inputs,
                                             size_t input_count,
                                             DLTensor *outputs,
                                             size_t output_count)
PLINTH_NOEXCEPT;

/**
 * Calls the backward pass of a graphed callable, in the same way as plinth_graphed_callable_call.
 *
 * Call it at most once after each call of the forward pass: it consumes the results of the forward pass.
 *
 * @param callable The callable, which must have a backward pass.
 * @param output_gradients The gradients of the outputs; contiguous.
 * @param output_count The number of output gradients; must equal the number of outputs.
 * @param input_gradients Out: the gradients of the inputs; data is NULL for inputs that are not differentiable.
 *        Ownership and validity are those of the outputs of plinth_graphed_callable_call.
 * @param input_count The number of input gradients; must equal the number of inputs.
 * @return As plinth_graphed_callable_call; PLINTH_ERROR_INVALID_VALUE for a callable without a backward pass, and if
 *         the forward pass was not called since the last backward pass.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_backward(plinth_graphed_callable_t callable,
                                                 const DLTensor *output_gradients,
                                                 size_t output_count,
                                                 DLTensor *input_gradients,
                                                 size_t input_count)
PLINTH_NOEXCEPT;

/**
 * Gets the pool of a graphed callable. All callables of one plinth_make_graphed_callables share it, and other graphs
 * can share it too.
 *
 * @param callable The callable.
 * @param pool Out: the pool id.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a
 *         callable that was reset.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_pool(plinth_graphed_callable_t callable,
                                             plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Releases the graphs and the outputs of a callable. Running work finishes. Does nothing for a callable that was
 * reset.
 *
 * @param callable The callable.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the call can be
 *         repeated.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_reset(plinth_graphed_callable_t callable)
PLINTH_NOEXCEPT;

/**
 * Resets a graphed callable, as plinth_graphed_callable_reset does, and destroys its handle.
 *
 * @param callable The callable; NULL does nothing.
 * @return As plinth_graphed_callable_reset.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_destroy(plinth_graphed_callable_t callable)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_GRAPH_CALLABLE_H */
