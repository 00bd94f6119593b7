/* Messages that say what a wrong pointer is. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "allocating.h"

static void *cached_pinned(size_t bytes) {
  void *memory = NULL;
  CHECK_OK(plinth_host_alloc(bytes, &memory));
  return memory;
}

#define CHECK_WRONG(call, what)                          \
  do {                                                   \
    CHECK_STATUS((call), PLINTH_ERROR_INVALID_POINTER);  \
    CHECK_MESSAGE(what);                                 \
    CHECK_EQ(plinth_last_driver_error(), 0);             \
  } while (0)

TEST(a_wrong_free_says_what_the_pointer_is) {
  unsigned char *cached = (unsigned char *)alloc_on(4 * KIB, 0, NULL);
  unsigned char *host = (unsigned char *)cached_pinned(4 * KIB);
  unsigned char *device = (unsigned char *)device_memory(4 * KIB, 0);
  unsigned char *pinned = (unsigned char *)pinned_memory(4 * KIB);
  unsigned char local[64];
  char interior[128];

  CHECK_WRONG(plinth_caching_allocator_delete(cached + 16), "it is byte 16 of a live block of 4.00 KiB at ");
  snprintf(interior, sizeof interior, "at %#zx of the caching allocator", (size_t)cached);
  CHECK_MESSAGE(interior);
  CHECK_WRONG(plinth_caching_allocator_delete(host), "it is a live block of 4.00 KiB of the allocator of pinned memory");
  CHECK_MESSAGE("plinth_host_alloc");
  CHECK_WRONG(plinth_caching_allocator_delete(device), "it is a live block of 4.00 KiB of device memory of the driver");
  CHECK_WRONG(plinth_caching_allocator_delete(pinned), "it is a live block of 4.00 KiB of pinned memory of the driver");
  CHECK_WRONG(plinth_caching_allocator_delete(local), "it is host memory that is not pinned");

  CHECK_WRONG(plinth_host_free(host + 8), "it is byte 8 of a live block of 4.00 KiB at ");
  CHECK_WRONG(plinth_host_free(cached), "it is a live block of 4.00 KiB of the caching allocator");
  CHECK_MESSAGE("plinth_caching_allocator_alloc");
  CHECK_WRONG(plinth_host_free(pinned), "pinned memory of the driver (plinth_pinned_malloc");
  CHECK_WRONG(plinth_host_free(local), "host memory that is not pinned");
  CHECK_WRONG(plinth_host_record_stream(cached, NULL), "it is a live block of 4.00 KiB of the caching allocator");

  CHECK_WRONG(plinth_device_free(pinned), "pinned memory of the driver (plinth_pinned_malloc");
  CHECK_WRONG(plinth_device_free(cached), "of the caching allocator (plinth_caching_allocator_alloc)");
  CHECK_WRONG(plinth_device_free(device + 256), "it is byte 256 of a live block of 4.00 KiB at ");
  CHECK_MESSAGE("plinth_device_malloc");
  CHECK_WRONG(plinth_pinned_free(device), "device memory of the driver (plinth_device_malloc");
  CHECK_WRONG(plinth_pinned_free(host), "plinth_host_alloc");
  CHECK_WRONG(plinth_managed_free(device), "device memory of the driver (plinth_device_malloc");
  CHECK_WRONG(plinth_host_unregister(host), "plinth_host_alloc");

  release(cached);
  CHECK_OK(plinth_host_free(host));
  CHECK_OK(plinth_device_free(device));
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_WRONG(plinth_caching_allocator_delete(cached), "its block was freed already");
  CHECK_WRONG(plinth_record_stream(cached, NULL), "its block was freed already");
  CHECK_WRONG(plinth_host_free(host), "its block was freed already");
  CHECK_WRONG(plinth_device_free(device), "an address that was freed or never allocated");
  CHECK_WRONG(plinth_pinned_free(pinned), "an address that was freed or never allocated");
}

TEST(a_tensor_of_host_memory_is_named) {
  float values[4] = {0, 0, 0, 0};
  int64_t shape = 4;
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = values;
  tensor.device.device_type = 2;
  tensor.device.device_id = -1; /* what plinth_device_of returns for host memory */
  tensor.ndim = 1;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = &shape;
  CHECK_STATUS(plinth_uniform(&tensor, 0, 1, NULL, NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("tensor is in host memory (device -1): its data at 0x");
  CHECK_MESSAGE("is host memory that is not pinned");
  void *pinned = pinned_memory(KIB);
  tensor.data = pinned;
  CHECK_STATUS(plinth_uniform(&tensor, 0, 1, NULL, NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("of pinned memory of the driver");
  CHECK_MESSAGE("copy it to memory of a device first");
  CHECK_OK(plinth_pinned_free(pinned));
  /* The device of the tensor is wrong, not its memory. */
  void *device = device_memory(KIB, 0);
  tensor.data = device;
  CHECK_STATUS(plinth_uniform(&tensor, 0, 1, NULL, NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("tensor is on device -1; device numbers start at 0");
  CHECK_OK(plinth_device_free(device));
}
