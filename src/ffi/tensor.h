/* DLPack's tensors (https://dmlc.github.io/dlpack): DLPack's header if the program has it, else equal declarations. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_)
/*! A device, in DLPack. */
typedef struct DLDevice {
  /*! The kind of device: 1 is the CPU, 2 CUDA, 3 pinned host memory, 13 managed memory. */
  int32_t device_type;
  /*! The device number. */
  int32_t device_id;
} DLDevice;

/*! The type of an element, in DLPack. */
typedef struct DLDataType {
  /*! The type code: 0 is int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. */
  uint8_t code;
  /*! Number of bits. */
  uint8_t bits;
  /*! Number of lanes; must be 1. */
  uint16_t lanes;
} DLDataType;

/*! A tensor, in DLPack. It owns neither its memory nor its shape. */
typedef struct DLTensor {
  /*! The address of the memory. */
  void *data;
  /*! The device of the memory. */
  DLDevice device;
  /*! Number of dimensions. */
  int32_t ndim;
  /*! The type of the elements. */
  DLDataType dtype;
  /*! The extents of the dimensions. */
  int64_t *shape;
  /*! The stride of each dimension, in elements; NULL for a contiguous tensor in row-major order. */
  int64_t *strides;
  /*! Offset of the first element from `data`, in bytes. */
  uint64_t byte_offset;
} DLTensor;
#endif
