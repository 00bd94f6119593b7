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
 * How often torch runs a callable before it captures it.
 */
#define PLINTH_CALLABLE_WARMUPS 3

/**
 * How often torch does where gradients are averaged over processes (DistributedDataParallel).
 */
#define PLINTH_CALLABLE_WARMUPS_DDP 11

/**
 * A function of the program's that was captured. Opaque, and checked: a handle that was destroyed, is of another kind, or
 * never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_graphed_callable plinth_graphed_callable;

/**
 * A pass of a callable: gives work to the stream, which is current, that reads the inputs and writes the outputs. It is
 * called only while plinth_make_graphed_callables runs: a few times for warming up, then once to be captured, when it must
 * do what it will do at each call, without waiting for the device. What it allocates from the caching allocator in between
 * comes from the graphs' pool. It must not unwind or throw. Anything but PLINTH_OK ends plinth_make_graphed_callables with
 * that status.
 */
typedef plinth_status_t (*plinth_callable_fn)(void *context,
                                              const DLTensor *inputs,
                                              size_t input_count,
                                              DLTensor *outputs,
                                              size_t output_count,
                                              plinth_stream_t stream);

/**
 * A function of the program's, and what it is captured with.
 */
typedef struct plinth_callable_t {
  /**
   * From the inputs to the outputs.
   */
  plinth_callable_fn forward;
  /**
   * From the gradients of the outputs to those of the inputs; NULL if there is none. What it needs of the forward pass
   * that one must leave where both know.
   */
  plinth_callable_fn backward;
  /**
   * Passed to both.
   */
  void *context;
  /**
   * The inputs that are captured. Their memory stays the program's, and valid until the callable is destroyed: a call
   * copies other inputs there. Each fills one piece of memory.
   */
  const DLTensor *inputs;
  /**
   * How many inputs.
   */
  size_t input_count;
  /**
   * What the outputs are: device, type and shape. Data and strides are not looked at: the library allocates outputs in the
   * graphs' pool, with their elements side by side.
   */
  const DLTensor *outputs;
  /**
   * How many outputs.
   */
  size_t output_count;
  /**
   * For each input whether the backward pass gives its gradient; NULL if it does for all. A gradient that it does not
   * give has NULL for data.
   */
  const bool *differentiable;
} plinth_callable_t;

/**
 * The handle of a graphed callable.
 */
typedef struct plinth_graphed_callable *plinth_graphed_callable_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Captures functions of the program's as graphs: torch.cuda.make_graphed_callables. Each is run `warmup_count` times in a
 * stream of its own, forward and backward. Then all forward passes are captured in their order, and all backward passes in the
 * reverse order, in one pool: so they must be called in that order, too, as one step of a training calls them. The device is
 * waited for before and after warming up, and before each capture.
 *
 * The graphs reuse each other's memory: what one leaves in its outputs is good until the graphs before it in that order are
 * called again. Their calls never overlap; in another stream than the last one they wait for it.
 *
 * @param callables The functions, all of the current device.
 * @param count How many; not 0.
 * @param pool The pool, as in plinth_graph_capture_begin; NULL for a new one.
 * @param warmup_count How often each is run before; torch's default is PLINTH_CALLABLE_WARMUPS. 1000 at most.
 * @param graphed Out: a callable for each, in their order. The caller owns them and destroys each with
 *        plinth_graphed_callable_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of 0, for more warm-ups, and for a
 *         tensor that is malformed, or an input that does not fill one piece of memory; PLINTH_ERROR_DEVICE_MISMATCH for a
 *         tensor of another device; what a pass returned, with the message of its last call; PLINTH_ERROR_GRAPH_EMPTY for a
 *         pass that gives the device nothing to do; PLINTH_ERROR_CAPTURE_FORBIDS where the current stream captures; those of
 *         plinth_graph_begin and plinth_graph_end. After an error nothing is left of any of them.
 */
PLINTH_API
plinth_status_t plinth_make_graphed_callables(const struct plinth_callable_t *callables,
                                              size_t count,
                                              const plinth_pool_id_t *pool,
                                              uint32_t warmup_count,
                                              plinth_graphed_callable_t *graphed)
PLINTH_NOEXCEPT;

/**
 * Calls a graphed callable in the current stream of its device: copies each input whose data is not that of the captured one,
 * and replays. Returns before that is done. The outputs are at the same addresses at each call, and the next call of this or
 * another callable of the pool writes there. A program that writes its inputs to where they were captured saves the copies.
 * Thread-safe; calls of one callable follow one another.
 *
 * @param callable The callable.
 * @param inputs The inputs: each of the device, type, shape and strides of the captured one.
 * @param input_count How many; as many as were captured.
 * @param outputs Out: the outputs. Their memory, shapes and strides are the library's until the callable is reset or destroyed.
 * @param output_count How many; as many as were described.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other counts, and
 *         for an input of another type, shape or order in memory; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a callable that was reset; PLINTH_ERROR_CAPTURE_FORBIDS where the current
 *         stream captures; those of plinth_graph_replay.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_call(plinth_graphed_callable_t callable,
                                             const DLTensor *inputs,
                                             size_t input_count,
                                             DLTensor *outputs,
                                             size_t output_count)
PLINTH_NOEXCEPT;

/**
 * Calls the backward pass of a graphed callable in the same way, once after each call of the forward pass, whose results it uses
 * up.
 *
 * @param callable The callable, which was made with a backward pass.
 * @param output_gradients The gradients of the outputs, with their elements side by side.
 * @param output_count How many; as many as there are outputs.
 * @param input_gradients Out: the gradients of the inputs; data is NULL for those that are not differentiable. The rest as for
 *        the outputs of plinth_graphed_callable_call.
 * @param input_count How many; as many as there are inputs.
 * @return As plinth_graphed_callable_call; PLINTH_ERROR_INVALID_VALUE for a callable without a backward pass, and where no
 *         forward pass came before, or since the last backward pass.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_backward(plinth_graphed_callable_t callable,
                                                 const DLTensor *output_gradients,
                                                 size_t output_count,
                                                 DLTensor *input_gradients,
                                                 size_t input_count)
PLINTH_NOEXCEPT;

/**
 * Tells the pool that a graphed callable shares with those that were made with it, and that other graphs can share.
 *
 * @param callable The callable.
 * @param pool Out: its name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED for one that was
 *         reset.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_pool(plinth_graphed_callable_t callable,
                                             plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Gives up the graphs of a callable, and its outputs. What runs finishes. Does nothing to one that was reset.
 *
 * @param callable The callable.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the call can be made again.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_reset(plinth_graphed_callable_t callable)
PLINTH_NOEXCEPT;

/**
 * Destroys a graphed callable, as plinth_graphed_callable_reset leaves it. It must not be destroyed while another thread is in a
 * call with it.
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
