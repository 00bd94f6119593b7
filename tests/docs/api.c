#include "page.h"

int main(void) {
  page_begin();
  plinth_telemetry_sampler_t sampler;
  plinth_telemetry_sampler_create(0, 100, 64, &sampler);
  size_t count;
#include "api.1.inc"
  plinth_telemetry_sampler_destroy(sampler);
}
