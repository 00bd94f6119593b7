// An allocator for tests of the measurement programs: it calls plinth_device_malloc. With STAND_IN_FAULT it returns the same
// memory twice ("overlap") or misaligned memory ("misaligned").
#include <plinth.h>
#include <sys/types.h>

#include <cstdlib>
#include <cstring>

static bool fault(const char *name) {
  const char *wanted = std::getenv("STAND_IN_FAULT");
  return wanted && std::strcmp(wanted, name) == 0;
}

extern "C" void *stand_in_alloc(ssize_t size, int device, plinth_stream_t) {
  static void *first = nullptr;
  if (fault("overlap") && first) return first;
  void *pointer = nullptr;
  if (plinth_device_malloc(static_cast<size_t>(size), device, &pointer) != PLINTH_OK) return nullptr;
  if (!first) first = pointer;
  return static_cast<char *>(pointer) + (fault("misaligned") ? 8 : 0);
}

extern "C" void stand_in_free(void *pointer, ssize_t, int, plinth_stream_t) {
  if (fault("overlap")) return;
  plinth_device_free(static_cast<char *>(pointer) - (fault("misaligned") ? 8 : 0));
}
