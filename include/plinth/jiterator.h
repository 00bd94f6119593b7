/*!
 * @defgroup plinth_jiterator Jiterator
 *
 * Makes a C++ function of elements into a function of tensors: torch.cuda.jiterator.
 *
 * The caller owns a jiterated function and destroys it. The compiled code stays loaded until the process ends. Tensors
 * must stay valid until the work is done; the structs that describe them are read during the call only. Threads may
 * call one function at the same time.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_JITERATOR_H
#define PLINTH_JITERATOR_H

#include "base.h"
#include "tensor.h"

/*!
 * @file plinth/jiterator.h
 * @brief Jiterator.
 */

/*!
 * @addtogroup plinth_jiterator
 * @{
 */

/**
 * Maximum number of inputs, and of outputs, of a jiterated function.
 */
#define PLINTH_JIT_MAX_TENSORS 8

/**
 * Maximum number of named scalars of a jiterated function.
 */
#define PLINTH_JIT_MAX_SCALARS 16

/**
 * A boolean scalar: `integer` is 0 for false, anything else for true.
 */
#define PLINTH_JIT_BOOL 0

/**
 * A 64-bit integer scalar, in `integer`.
 */
#define PLINTH_JIT_INT 1

/**
 * A scalar of type double, in `real`.
 */
#define PLINTH_JIT_FLOAT 2

/**
 * A complex scalar, in `real` and `imaginary`.
 */
#define PLINTH_JIT_COMPLEX 3

/**
 * A jiterated function. Opaque and validated: calls with a handle that was destroyed, is of another kind, or was never
 * created return PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_jit_function plinth_jit_function;

/**
 * A named scalar: a default that a function declares, or a value that is passed to a call. Only the fields that `kind`
 * selects are read.
 */
typedef struct plinth_jit_scalar_t {
  /**
   * sizeof(plinth_jit_scalar_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * The name.
   */
  const char *name;
  /**
   * One of the PLINTH_JIT_ constants above.
   */
  int32_t kind;
  /**
   * Reserved: 0.
   */
  int32_t reserved;
  /**
   * The value of a bool or an integer.
   */
  int64_t integer;
  /**
   * The value of a double, or the real part of a complex number.
   */
  double real;
  /**
   * The imaginary part of a complex number.
   */
  double imaginary;
} plinth_jit_scalar_t;

/*! An initializer for a plinth_jit_scalar_t. */
#define PLINTH_JIT_SCALAR_INIT {sizeof(plinth_jit_scalar_t), NULL, 0, 0, 0, 0.0, 0.0}

/**
 * The handle of a jiterated function.
 */
typedef struct plinth_jit_function *plinth_jit_function_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a function of tensors from a function of elements, with one output: torch.cuda.jiterator._create_jit_fn.
 *
 * The code is C++ that ends in a template of one type, `template <typename T> T name(T x, T y, T alpha) { ... }`,
 * preceded by any helper functions. Its parameters are the inputs, 1 to PLINTH_JIT_MAX_TENSORS, followed by the
 * scalars in the order in which they are declared here. T is the common type of the inputs, float for float16 and
 * bfloat16. The code may use CUDA's functions, with or without std::, and the functions of complex numbers that
 * plinth_jiterator_call provides; no header has to be included. See docs/jiterator.md.
 *
 * The code is compiled at the first call with each list of types and each kind of layout. Needs no device.
 *
 * @param code The source code.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count The number of scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for code without such a template, for
 *         parameters that are neither inputs nor declared scalars, and for scalars without a name or with a duplicate
 *         name; PLINTH_ERROR_OUT_OF_MEMORY when 16 million functions exist.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_jit_fn(const char *code,
                                               const struct plinth_jit_scalar_t *scalars,
                                               size_t count,
                                               plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * Creates a function of tensors with several outputs: torch.cuda.jiterator._create_multi_output_jit_fn. As
 * plinth_jiterator_create_jit_fn, but the template returns void, and its last parameters, after inputs and scalars,
 * are the outputs, `T &out`.
 *
 * @param code The source code.
 * @param num_outputs The number of outputs, 1 to PLINTH_JIT_MAX_TENSORS.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count The number of scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return The statuses of plinth_jiterator_create_jit_fn.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_multi_output_jit_fn(const char *code,
                                                            int32_t num_outputs,
                                                            const struct plinth_jit_scalar_t *scalars,
                                                            size_t count,
                                                            plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * Destroys a jiterated function. Calls in progress still complete; its compiled kernels stay loaded, and captured
 * graphs stay valid.
 *
 * @param function The function; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_jiterator_destroy_jit_fn(plinth_jit_function_t function)
PLINTH_NOEXCEPT;

/**
 * Computes the type and shape of the outputs of a call: the common type of the inputs, by the rules of
 * torch.result_type, and their broadcast shape. The inputs' elements are not read.
 *
 * @param function The function.
 * @param inputs The inputs.
 * @param num_inputs The number of inputs.
 * @param dtype Out: the type of every output.
 * @param ndim Out: the number of dimensions of every output.
 * @param shape Out: the extents; must have room for 25.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if num_inputs
 *         is not the function's number of inputs, and for shapes that cannot be broadcast; PLINTH_ERROR_NOT_SUPPORTED
 *         for types without a common type: uint16, uint32 or uint64 and another integer type;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a tensor that is not on a CUDA device.
 */
PLINTH_API
plinth_status_t plinth_jiterator_result(plinth_jit_function_t function,
                                        const DLTensor *const *inputs,
                                        size_t num_inputs,
                                        DLDataType *dtype,
                                        int32_t *ndim,
                                        int64_t *shape)
PLINTH_NOEXCEPT;

/**
 * Calls a jiterated function: computes its outputs in a stream, asynchronously.
 *
 * - The inputs may have any types, shapes and strides, and may have no dimensions. They are broadcast: dimensions of
 *   one element, and dimensions that an input lacks, are repeated. Every input is converted to the common type of all
 *   inputs, by the rules of torch.result_type. Every output must have that type and the broadcast shape (see
 *   plinth_jiterator_result), with strides that give each element its own address. Tensors with more than 2^31
 *   elements, and tensors without elements, are supported.
 * - An output may be the same tensor as an input. If outputs overlap other tensors in any other way, the elements
 *   there are undefined.
 * - The first call with a list of types and a kind of layout compiles the code, which takes tenths of a second or
 *   longer; docs/jiterator.md describes how often that happens and where compiled code is cached. Later calls do not
 *   allocate, and cost one kernel launch.
 * - In a capture the call becomes a node of the graph, even if it has to compile.
 * - The tensors' memory must stay valid until the work is complete; the DLTensor structures and the scalars only until
 *   the call returns.
 *
 * @param function The function.
 * @param inputs The inputs, all on one device.
 * @param num_inputs The function's number of inputs.
 * @param outputs The outputs, on the same device.
 * @param num_outputs The function's number of outputs.
 * @param scalars Values of scalars, in any order; scalars that are not listed have their default values. NULL for
 *        none.
 * @param num_scalars The number of values in `scalars`.
 * @param stream The stream, of the tensors' device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid function or stream;
 *         PLINTH_ERROR_INVALID_VALUE for a wrong number of tensors, shapes that cannot be broadcast, an output of
 *         another type or shape, an output with two elements at one address, a malformed tensor, and a scalar that the
 *         function does not declare; PLINTH_ERROR_NOT_SUPPORTED as in plinth_jiterator_result, and for a device that
 *         the compiler does not support any more; PLINTH_ERROR_DEVICE_MISMATCH for tensors that are not on a CUDA
 *         device, or not all on the stream's device; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILER_UNAVAILABLE
 *         without NVRTC, or on the host device without a C++ compiler; PLINTH_ERROR_COMPILATION_FAILED with the
 *         compiler's log, in which lines of "jiterator" are lines of the code; PLINTH_ERROR_SYSTEM if a compiler
 *         cannot be run; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_jiterator_call(plinth_jit_function_t function,
                                      const DLTensor *const *inputs,
                                      size_t num_inputs,
                                      DLTensor *const *outputs,
                                      size_t num_outputs,
                                      const struct plinth_jit_scalar_t *scalars,
                                      size_t num_scalars,
                                      plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_JITERATOR_H */
