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
 * The most inputs of a jiterated function, and the most outputs.
 */
#define PLINTH_JIT_MAX_TENSORS 8

/**
 * The most named scalars of a jiterated function.
 */
#define PLINTH_JIT_MAX_SCALARS 16

/**
 * A scalar that is true or false: its `integer` is not 0, or 0.
 */
#define PLINTH_JIT_BOOL 0

/**
 * A scalar that is a 64-bit integer: its `integer`.
 */
#define PLINTH_JIT_INT 1

/**
 * A scalar that is a double: its `real`.
 */
#define PLINTH_JIT_FLOAT 2

/**
 * A scalar that is a complex number: its `real` and `imaginary`.
 */
#define PLINTH_JIT_COMPLEX 3

/**
 * A jiterated function. Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered
 * with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_jit_function plinth_jit_function;

/**
 * A named scalar: the default that a function declares, or the value that a call gives. Of the values only what `kind`
 * names counts.
 */
typedef struct plinth_jit_scalar_t {
  /**
   * The name.
   */
  const char *name;
  /**
   * One of the PLINTH_JIT_ constants above.
   */
  int32_t kind;
  /**
   * 0.
   */
  int32_t reserved;
  /**
   * A bool or an integer.
   */
  int64_t integer;
  /**
   * A double, or the real part.
   */
  double real;
  /**
   * The imaginary part.
   */
  double imaginary;
} plinth_jit_scalar_t;

/**
 * The handle of a jiterated function.
 */
typedef struct plinth_jit_function *plinth_jit_function_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a function of elements into one of tensors, which returns its one output: torch.cuda.jiterator._create_jit_fn.
 *
 * The code is C++ that ends in a template of one type, `template <typename T> T name(T x, T y, T alpha) { ... }`, with any
 * helpers before it. Its parameters are the inputs, 1 to PLINTH_JIT_MAX_TENSORS, and after them the scalars in the order
 * in which they are declared here; T is the type that the inputs have in common, float for float16 and bfloat16. CUDA's
 * functions may be used, std:: before them or not, and those of plinth_jiterator_call's complex numbers; no header has to be
 * included. docs/jiterator.md says more.
 *
 * The code is compiled when it is first called, for each list of types and each kind of layout. Thread-safe; needs no
 * device.
 *
 * @param code The code.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a code without such an entry, for one whose
 *         parameters are not inputs and scalars, and for scalars without a name or with another's; PLINTH_ERROR_OUT_OF_MEMORY
 *         with 16 million functions.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_jit_fn(const char *code,
                                               const struct plinth_jit_scalar_t *scalars,
                                               size_t count,
                                               plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * The same for a function with several outputs, which are its last parameters, `T &out`, behind inputs and scalars; it returns
 * void: torch.cuda.jiterator._create_multi_output_jit_fn.
 *
 * @param code The code.
 * @param num_outputs How many outputs, 1 to PLINTH_JIT_MAX_TENSORS.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return As plinth_jiterator_create_jit_fn.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_multi_output_jit_fn(const char *code,
                                                            int32_t num_outputs,
                                                            const struct plinth_jit_scalar_t *scalars,
                                                            size_t count,
                                                            plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * Destroys a jiterated function. Calls that are under way still end; what was compiled for it stays loaded, and captured
 * graphs stay whole.
 *
 * @param function The function; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_jiterator_destroy_jit_fn(plinth_jit_function_t function)
PLINTH_NOEXCEPT;

/**
 * Tells what the outputs of a call are: the type that the inputs have in common, as torch.result_type has it, and the shape that
 * they have in common when dimensions of one element are repeated. The inputs' elements are not looked at. Thread-safe.
 *
 * @param function The function.
 * @param inputs The inputs.
 * @param num_inputs How many there are.
 * @param dtype Out: the type of every output.
 * @param ndim Out: how many dimensions they have.
 * @param shape Out: their extents; room for 25.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another number of
 *         inputs than the function takes, and for shapes that do not go together; PLINTH_ERROR_NOT_SUPPORTED for types
 *         that have none in common: uint16, uint32 or uint64 and another integer; PLINTH_ERROR_DEVICE_MISMATCH for a tensor that
 *         is not on a CUDA device.
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
 * Calls a jiterated function: writes its outputs, in a stream, asynchronously.
 *
 * - The inputs may have any types, shapes and strides, also none, and also none of their own: dimensions of one element, and
 *   those that an input lacks, are repeated. Every input is brought to the type that all have in common; torch.result_type
 *   says which. Every output must be of that type and of the inputs' common shape (plinth_jiterator_result tells both), with any
 *   strides that give each element its own place. Tensors of more than 2^31 elements, and without elements, are fine.
 * - An output may be one of the inputs, element for element. Memory that outputs share with other tensors in another way gets
 *   undefined elements.
 * - The first call with a list of types and a kind of layout compiles, for tenths of a second or longer; docs/jiterator.md
 *   says what is compiled once, and where it is kept. Later calls do not allocate, and cost a launch.
 * - In a capture the call becomes a node of the graph, also a first call.
 * - The tensors must stay valid until the work is done; the structures that describe them, and the scalars, only until the call
 *   returns. Thread-safe.
 *
 * @param function The function.
 * @param inputs The inputs, all on one device.
 * @param num_inputs How many there are: as many as the function takes.
 * @param outputs The outputs, on the same device.
 * @param num_outputs How many there are: as many as the function has.
 * @param scalars Values of scalars, in any order; those that are left out have their defaults. NULL for none.
 * @param num_scalars How many there are.
 * @param stream The stream, of the tensors' device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a function or stream that is none;
 *         PLINTH_ERROR_INVALID_VALUE for other numbers of tensors than the function has, shapes that do not go together,
 *         an output of another type or shape, elements of it in one place, a malformed tensor, and a scalar that the function
 *         does not declare; PLINTH_ERROR_NOT_SUPPORTED as plinth_jiterator_result, and for a device older than the compiler
 *         knows; PLINTH_ERROR_DEVICE_MISMATCH for tensors that are not on a CUDA device, or not all on that of the stream;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC, or on the host device without a C++
 *         compiler; PLINTH_ERROR_COMPILATION_FAILED with the compiler's log, whose lines of "jiterator" are those of the code;
 *         PLINTH_ERROR_SYSTEM where a compiler cannot be run; PLINTH_ERROR_DRIVER; the errors of initialization.
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
