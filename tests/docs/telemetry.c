#include "page.h"

static void train(void) { page_memory(4096); }

int main(void) {
/* Not every machine measures all of it. */
#include "telemetry.1.inc"
  page_begin();
  plinth_telemetry_sampler_t sampler;
  plinth_telemetry_t readings[600] = {PLINTH_TELEMETRY_INIT};
  size_t count;
  uint64_t lost;
#include "telemetry.2.inc"
}
