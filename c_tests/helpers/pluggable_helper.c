/* An allocator as another library would bring it: memory straight from the driver, and a book of what it was asked.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <plinth.h>

typedef struct helper_book {
  int allocated;
  int freed;
  int fail;
  size_t last_size;
  int last_device;
  void *last_stream;
  void *last_pointer;
} helper_book;

helper_book helper_account;

helper_book *helper_look(void) { return &helper_account; }

void *helper_alloc(size_t size, int device, void *stream) {
  void *pointer = NULL;
  if (helper_account.fail > 0) {
    helper_account.fail--;
    return NULL;
  }
  if (plinth_device_malloc(size, device, &pointer) != PLINTH_OK) {
    return NULL;
  }
  helper_account.allocated++;
  helper_account.last_size = size;
  helper_account.last_device = device;
  helper_account.last_stream = stream;
  helper_account.last_pointer = pointer;
  return pointer;
}

void helper_free(void *pointer, size_t size, int device, void *stream) {
  helper_account.freed++;
  helper_account.last_size = size;
  helper_account.last_device = device;
  helper_account.last_stream = stream;
  helper_account.last_pointer = pointer;
  (void)plinth_device_free(pointer);
}
