/* The checks of both consumers: header and linked library have the same version, calls work, and the headers of random
 * numbers and of the folder plinth are installed. */

#include <plinth/event.h>
#include <plinth.h>
#include <plinth_philox.h>

#include <stdio.h>
#include <string.h>

enum { EARLY_SEED = 5 };

/* Runs before main, and before the constructors without priority of a static library. */
__attribute__((constructor)) static void seed_early(void) { plinth_manual_seed_all(EARLY_SEED); }

static int consume(const char *language) {
  char expected[32];
  int32_t count = -1;
  uint64_t seed = 0;
  plinth_status_t status;
  plinth_philox_engine_t engine;

  if (plinth_version() != PLINTH_VERSION_MAJOR * 10000 + PLINTH_VERSION_MINOR * 100 + PLINTH_VERSION_PATCH) {
    fprintf(stderr, "header and library have different versions: plinth_version() is %d\n", (int)plinth_version());
    return 1;
  }
  snprintf(expected, sizeof expected, "%d.%d.%d", PLINTH_VERSION_MAJOR, PLINTH_VERSION_MINOR, PLINTH_VERSION_PATCH);
  if (strcmp(plinth_version_string(), expected) != 0) {
    fprintf(stderr, "plinth_version_string() is %s, not %s\n", plinth_version_string(), expected);
    return 1;
  }
  if (strcmp(plinth_status_name(PLINTH_ERROR_OUT_OF_MEMORY), "PLINTH_ERROR_OUT_OF_MEMORY") != 0) {
    fprintf(stderr, "plinth_status_name(PLINTH_ERROR_OUT_OF_MEMORY) is wrong\n");
    return 1;
  }
  plinth_philox_init(&engine, 0, 0, 1);
  if (plinth_philox_next(&engine) != 0xe169c58d) {
    fprintf(stderr, "plinth_philox_next() is wrong\n");
    return 1;
  }
  status = plinth_device_count(&count);
  if (status != PLINTH_OK) {
    fprintf(stderr, "plinth_device_count: %s: %s\n", plinth_status_name(status), plinth_last_error());
    return 1;
  }
  if (count < 1) {
    fprintf(stderr, "there is no device\n");
    return 1;
  }
  if (plinth_initial_seed(&seed) != PLINTH_OK || seed != EARLY_SEED) {
    fprintf(stderr, "the seed that a constructor set was lost: %llu, %s\n", (unsigned long long)seed, plinth_last_error());
    return 1;
  }
  printf("plinth %s from %s: %s, %d devices\n", plinth_version_string(), language, plinth_status_name(status),
         (int)count);
  return 0;
}
