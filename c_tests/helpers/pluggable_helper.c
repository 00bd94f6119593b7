/* An allocator as another library would provide it: memory from the driver, and a record of the calls.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <plinth.h>

typedef struct helper_state {
  int allocated;
  int freed;
  int fail;
  size_t last_size;
  int last_device;
  void *last_stream;
  void *last_pointer;
} helper_state;

helper_state helper_record;

helper_state *helper_get_state(void) { return &helper_record; }

void *helper_alloc(size_t size, int device, void *stream) {
  void *pointer = NULL;
  if (helper_record.fail > 0) {
    helper_record.fail--;
    return NULL;
  }
  if (plinth_device_malloc(size, device, &pointer) != PLINTH_OK) {
    return NULL;
  }
  helper_record.allocated++;
  helper_record.last_size = size;
  helper_record.last_device = device;
  helper_record.last_stream = stream;
  helper_record.last_pointer = pointer;
  return pointer;
}

void helper_free(void *pointer, size_t size, int device, void *stream) {
  helper_record.freed++;
  helper_record.last_size = size;
  helper_record.last_device = device;
  helper_record.last_stream = stream;
  helper_record.last_pointer = pointer;
  (void)plinth_device_free(pointer);
}
