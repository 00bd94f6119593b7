/*!
 * @defgroup plinth_tensor Tensors
 *
 * Functions that take tensors take DLPack's DLTensor (<https://dmlc.github.io/dlpack>). Where a program can include
 * dlpack/dlpack.h, its declarations are used; elsewhere this header has the same ones.
 *
 * A DLTensor describes memory and owns nothing. The structure, its shape and its strides are read during the call
 * only. The memory must stay valid until the work that uses it is done.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_TENSOR_H
#define PLINTH_TENSOR_H

#include "base.h"

/*!
 * @file plinth/tensor.h
 * @brief Tensors.
 */

/*!
 * @addtogroup plinth_tensor
 * @{
 */

/* DLPack's tensors (https://dmlc.github.io/dlpack): its own declarations where a program has them, else the same. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_)
/*! A device. */
typedef struct DLDevice {
  /*! 1 is the CPU, 2 CUDA, 3 pinned host memory. */
  int32_t device_type;
  /*! The device's number. */
  int32_t device_id;
} DLDevice;

/*! The type of an element. */
typedef struct DLDataType {
  /*! 0 is int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. */
  uint8_t code;
  /*! The bits of a number. */
  uint8_t bits;
  /*! The numbers of an element: 1. */
  uint16_t lanes;
} DLDataType;

/*! A tensor. It owns nothing. */
typedef struct DLTensor {
  /*! The memory. */
  void *data;
  /*! Where that is. */
  DLDevice device;
  /*! How many dimensions there are. */
  int32_t ndim;
  /*! The type of the elements. */
  DLDataType dtype;
  /*! The extent of each dimension. */
  int64_t *shape;
  /*! The distance of neighbours in each, in elements; NULL for elements side by side, the last dimension's fastest. */
  int64_t *strides;
  /*! How far from `data` element 0 is, in bytes. */
  uint64_t byte_offset;
} DLTensor;
#endif

/*! @} */

#endif /* PLINTH_TENSOR_H */
