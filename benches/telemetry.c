/* Measures the time to read a device's telemetry, and the share of a processor that a sampler uses. The sampler's processor
 * time is that of the whole process, because nothing else runs in it. Build and run: `make bench`.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "measure.h"

#include <sys/resource.h>

enum { ROUNDS = 200 };

static plinth_telemetry_t readings;
static uint32_t number;
static uint64_t large;

static plinth_status_t all(void) { return plinth_read_telemetry(0, &readings); }
static plinth_status_t utilization(void) { return plinth_utilization(0, &number); }
static plinth_status_t memory_usage(void) { return plinth_memory_usage(0, &number); }
static plinth_status_t temperature(void) { return plinth_temperature(0, &number); }
static plinth_status_t power(void) { return plinth_power_draw(0, &number); }
static plinth_status_t clock_rate(void) { return plinth_clock_rate(0, &number); }
static plinth_status_t used(void) { return plinth_device_memory_used(0, &large); }
static plinth_status_t throttled(void) { return plinth_throttle_reasons(0, &large); }
static plinth_status_t energy(void) { return plinth_energy_used(0, &large); }

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void measure(const char *name, plinth_status_t (*read)(void)) {
  static double times[ROUNDS];
  const plinth_status_t status = read();
  if (status != PLINTH_OK) {
    printf("| %-28s | %-41s | |\n", name, plinth_status_name(status));
    return;
  }
  /* Repeated reads return a cached value; after a pause the value is read from the device. */
  struct timespec pause = {0, 250000000};
  double fresh[4];
  for (int round = 0; round < 4; round++) {
    nanosleep(&pause, NULL);
    const double begin = now_ns();
    read();
    fresh[round] = (now_ns() - begin) / 1e3;
  }
  qsort(fresh, 4, sizeof *fresh, ascending);
  for (int round = 0; round < ROUNDS; round++) {
    const double begin = now_ns();
    read();
    times[round] = (now_ns() - begin) / 1e3;
  }
  qsort(times, ROUNDS, sizeof *times, ascending);
  printf("| %-28s | %8.2f median, %8.2f at 99 %% | %8.2f |\n", name, times[ROUNDS / 2], times[ROUNDS * 99 / 100],
         (fresh[1] + fresh[2]) / 2);
}

/* Returns the per cent of one processor that the process uses during some seconds. */
static double processor_share(double seconds) {
  struct timespec length = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  const double cpu = cpu_seconds(), begin = now_ns();
  while (nanosleep(&length, &length) != 0) {
  }
  return 100 * (cpu_seconds() - cpu) / ((now_ns() - begin) / 1e9);
}

static void sample(uint32_t milliseconds, double seconds) {
  enum { MOST = 1000 };
  static plinth_telemetry_t taken[MOST] = {PLINTH_TELEMETRY_INIT};
  plinth_telemetry_sampler_t sampler = NULL;
  size_t count = 0, power_read = 0, energy_read = 0;
  MUST(plinth_telemetry_sampler_create(0, milliseconds, MOST, &sampler));
  const double percent = processor_share(seconds);
  MUST(plinth_telemetry_sampler_take(sampler, taken, MOST, &count, NULL));
  for (size_t index = 0; index < count; index++) {
    power_read += (taken[index].valid & PLINTH_TELEMETRY_POWER_DRAW) != 0;
    energy_read += (taken[index].valid & PLINTH_TELEMETRY_ENERGY) != 0;
  }
  printf("| every %5u ms | %8.4f %% | %zu | %zu | %zu |\n", milliseconds, percent, count, power_read, energy_read);
  fflush(stdout);
  MUST(plinth_telemetry_sampler_destroy(sampler));
}

int main(void) {
  char name[256];
  int32_t kind;
  MUST(plinth_init());
  MUST(plinth_get_device_name(0, name, sizeof name));
  MUST(plinth_get_device_kind(&kind));
  readings.struct_size = sizeof readings;
  printf("plinth %s on %s%s\n\n| reading | microseconds, one after the other | after a quarter of a second |\n|---|---|---|\n", plinth_version_string(), name,
         kind == PLINTH_DEVICE_HOST ? " (host device)" : "");
  measure("plinth_read_telemetry", all);
  measure("plinth_utilization", utilization);
  measure("plinth_memory_usage", memory_usage);
  measure("plinth_temperature", temperature);
  measure("plinth_power_draw", power);
  measure("plinth_clock_rate", clock_rate);
  measure("plinth_device_memory_used", used);
  measure("plinth_energy_used", energy);
  measure("plinth_throttle_reasons", throttled);
  printf("\n| sampler | of one processor | samples | with power | with energy |\n|---|---|---|---|---|\n| none          | %8.4f %% | | | |\n", processor_share(2));
  sample(1000, 6);
  sample(100, 6);
  sample(10, 3);
  return 0;
}
