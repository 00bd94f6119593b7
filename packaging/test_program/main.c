/* What the tests of an installed package run: the header and the library fit, and the host device works. */
#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  int32_t devices = 0;
  setenv("PLINTH_DEVICE", "host", 1);
  if (plinth_version() != PLINTH_VERSION_MAJOR * 10000 + PLINTH_VERSION_MINOR * 100 + PLINTH_VERSION_PATCH) {
    fprintf(stderr, "the header and the library have different versions\n");
    return 1;
  }
  if (plinth_device_count(&devices) != PLINTH_OK || devices < 1) {
    fprintf(stderr, "plinth_device_count: %s\n", plinth_last_error());
    return 1;
  }
  printf("plinth %s: %d devices\n", plinth_version_string(), (int)devices);
  return 0;
}
