/* Telemetry of devices. Values depend on the machine. The tests check that they are plausible, that they agree with each
 * other and with other calls, and that readings which are not supported are errors. */
/* alone: a_missing_nvml_is_an_error samplers_end_when_the_process_exits; one uses another NVML, the other one forks */
#include "library_threads.h"
#include "process.h"
#include "support.h"

/* A reading that a machine may not support. */
#define MAYBE(call)                                  \
  do {                                               \
    plinth_status_t status = (call);                 \
    if (status != PLINTH_ERROR_NOT_SUPPORTED) {      \
      CHECK_STATUS(status, PLINTH_OK);               \
    }                                                \
  } while (0)

TEST(readings_are_plausible) {
  uint32_t percent = 1000, memory = 1000, celsius = 1000, megahertz = 1u << 30, milliwatts = 1u << 31;
  MAYBE(plinth_utilization(0, &percent));
  CHECK(percent <= 100 || percent == 1000);
  MAYBE(plinth_memory_usage(0, &memory));
  CHECK(memory <= 100 || memory == 1000);
  MAYBE(plinth_temperature(0, &celsius));
  CHECK((celsius > 5 && celsius < 120) || celsius == 1000);
  MAYBE(plinth_power_draw(0, &milliwatts));
  CHECK((milliwatts > 100 && milliwatts < 2000000) || milliwatts == 1u << 31);
  MAYBE(plinth_clock_rate(0, &megahertz));
  CHECK((megahertz > 50 && megahertz < 10000) || megahertz == 1u << 30);
}

/* Whether the memory in use grows by an allocation. */
static bool memory_is_counted(void) {
  uint64_t before = 0, after = 0;
  const size_t size = (size_t)256 << 20;
  void *memory = NULL;
  CHECK_OK(plinth_device_memory_used(0, &before));
  CHECK_OK(plinth_device_malloc(size, 0, &memory));
  CHECK_OK(plinth_device_memory_used(0, &after));
  CHECK_OK(plinth_device_free(memory));
  return after >= before + size;
}

/* Other processes may free memory meanwhile, so retry. */
TEST(memory_in_use_includes_this_process) { EVENTUALLY(memory_is_counted()); }

TEST(one_call_reads_all) {
  plinth_telemetry_t all = {.struct_size = sizeof all};
  uint32_t celsius = 0;
  CHECK_OK(plinth_read_telemetry(0, &all));
  CHECK_EQ(all.struct_size, sizeof all);
  CHECK(all.time_us / 1000000 >= (uint64_t)time(NULL) - 5 && all.time_us / 1000000 <= (uint64_t)time(NULL) + 5);
  CHECK((all.valid & PLINTH_TELEMETRY_MEMORY_USED) != 0);
  CHECK(all.utilization <= 100 && all.memory_usage <= 100);
  if (plinth_temperature(0, &celsius) == PLINTH_OK) {
    CHECK((all.valid & PLINTH_TELEMETRY_TEMPERATURE) != 0);
    CHECK(all.temperature + 20 > celsius && all.temperature < celsius + 20);
  } else {
    CHECK((all.valid & PLINTH_TELEMETRY_TEMPERATURE) == 0);
    CHECK_EQ(all.temperature, 0);
  }
}

TEST(a_smaller_struct_is_filled_up_to_its_size) {
  struct {
    plinth_telemetry_t readings;
    uint64_t guard;
  } old = {.readings = {.struct_size = offsetof(plinth_telemetry_t, clock_rate), .clock_rate = 0xABCDEF, .energy = 77}};
  CHECK_OK(plinth_read_telemetry(0, &old.readings));
  CHECK(old.readings.valid != 0);
  CHECK_EQ(old.readings.clock_rate, 0xABCDEF);
  CHECK_EQ(old.readings.energy, 77);
  plinth_telemetry_t tiny = {.struct_size = 8};
  CHECK_STATUS(plinth_read_telemetry(0, &tiny), PLINTH_ERROR_INVALID_VALUE);
}

TEST(energy_grows) {
  uint64_t first = 0, second = 0;
  plinth_status_t status = plinth_energy_used(0, &first);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    SKIP("this machine does not count energy");
  }
  CHECK_STATUS(status, PLINTH_OK);
  sleep_milliseconds(300);
  CHECK_OK(plinth_energy_used(0, &second));
  CHECK(second > first);
}

TEST(reasons_have_names) {
  char *text = NULL;
  CHECK_OK(plinth_throttle_reasons_text(PLINTH_THROTTLE_IDLE | PLINTH_THROTTLE_POWER_CAP | (uint64_t)1 << 40, &text));
  CHECK(strcmp(text, "idle, power cap, others (0x10000000000)") == 0);
  plinth_string_free(text);
  CHECK_OK(plinth_throttle_reasons_text(0, &text));
  CHECK(strcmp(text, "none") == 0);
  plinth_string_free(text);
  uint64_t reasons = 0;
  MAYBE(plinth_throttle_reasons(0, &reasons));
}

typedef struct process_list {
  plinth_gpu_process_t processes[64];
  size_t count;
} process_list;

static void list_process(const plinth_gpu_process_t *process, void *context) {
  process_list *list = (process_list *)context;
  CHECK_EQ(process->struct_size, sizeof *process);
  if (list->count < 64) list->processes[list->count] = *process;
  list->count++;
}

TEST(processes_are_listed_as_text_and_as_structs) {
  char *text = NULL;
  process_list list = {.count = 0};
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(1 << 20, 0, NULL, &memory)); /* makes a context */
  CHECK_OK(plinth_list_gpu_processes(0, &text));
  CHECK(strncmp(text, "GPU:", 4) == 0);
  CHECK(strstr(text, "\nprocess ") != NULL || strstr(text, "\nno processes are running") != NULL);
  plinth_string_free(text);
  CHECK_OK(plinth_gpu_processes_each(0, list_process, &list));
  CHECK_STATUS(plinth_gpu_processes_each(0, NULL, &list), PLINTH_ERROR_NULL_POINTER);
  if (on_host_device()) {
    CHECK_EQ(list.count, 1);
    CHECK_EQ(list.processes[0].pid, (uint32_t)getpid());
    CHECK(list.processes[0].memory_used >= 1 << 20);
  }
  CHECK_OK(plinth_caching_allocator_delete(memory));
}

TEST(a_sampler_keeps_its_rate_and_the_last_readings) {
  plinth_telemetry_sampler_t sampler = NULL;
  plinth_telemetry_t readings[64] = {PLINTH_TELEMETRY_INIT};
  size_t count = 0;
  uint64_t lost = 77;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  CHECK_OK(plinth_telemetry_sampler_create(0, 50, 4, &sampler));
  sleep_milliseconds(1020);
  CHECK_OK(plinth_telemetry_sampler_take(sampler, readings, 64, &count, &lost));
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK_EQ(count, 4);
  /* About twenty readings, fewer on a busy machine, and never more than the rate allows. */
  const double passed_ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
  CHECK(lost >= 1 && (double)(lost + count) <= passed_ms / 50 + 1);
  for (size_t i = 1; i < count; ++i) {
    CHECK(readings[i].time_us > readings[i - 1].time_us);
    CHECK_EQ(readings[i].struct_size, sizeof readings[i]);
  }
  sleep_milliseconds(500);
  CHECK_OK(plinth_telemetry_sampler_take(sampler, readings, 1, &count, NULL));
  CHECK_EQ(count, 1);
  CHECK_OK(plinth_telemetry_sampler_destroy(sampler));
  CHECK_STATUS(plinth_telemetry_sampler_take(sampler, readings, 1, &count, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_telemetry_sampler_destroy(sampler), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_telemetry_sampler_destroy(NULL));
}

static void expect_no_sampler(void) {
  if (count_threads("plinth sampler") > 0) {
    _exit(8);
  }
}

static void exit_with_samplers(void) {
  CHECK_EQ(atexit(expect_no_sampler), 0); /* runs after the library's own handler, which is registered later */
  for (int index = 0; index < 20; index++) {
    plinth_telemetry_sampler_t sampler = NULL;
    CHECK_OK(plinth_telemetry_sampler_create(0, 1, 4, &sampler));
  }
  sleep_milliseconds(5);
  exit(7);
}

/* The driver and NVML must not be called once the process exits. */
TEST(samplers_end_when_the_process_exits) { expect_child(start_child(exit_with_samplers), 7); }

TEST(a_sampler_reads_the_utilization_again) {
  plinth_telemetry_sampler_t sampler = NULL;
  plinth_telemetry_t readings[64] = {PLINTH_TELEMETRY_INIT};
  size_t count = 0, known = 0;
  CHECK_OK(plinth_telemetry_sampler_create(0, 50, 64, &sampler));
  sleep_milliseconds(600);
  CHECK_OK(plinth_telemetry_sampler_take(sampler, readings, 64, &count, NULL));
  CHECK_OK(plinth_telemetry_sampler_destroy(sampler));
  CHECK(count >= 2);
  for (size_t i = 0; i < count; ++i) {
    known += (readings[i].valid & PLINTH_TELEMETRY_UTILIZATION) != 0;
  }
  if ((readings[0].valid & PLINTH_TELEMETRY_UTILIZATION) == 0) {
    SKIP("this device does not report its utilization");
  }
  CHECK(known >= 2);
}

TEST(a_sampler_uses_little_cpu_time) {
  plinth_telemetry_sampler_t sampler = NULL;
  struct timespec begin, end;
  CHECK_OK(plinth_telemetry_sampler_create(0, 1000, 16, &sampler));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  sleep_milliseconds(1500);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  double used = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
  CHECK(used < 0.1); /* A busy-waiting sampler would use 1.5 s. */
  CHECK_OK(plinth_telemetry_sampler_destroy(sampler));
}

TEST(errors_have_their_status) {
  uint32_t value = 7;
  process_list list = {.count = 0};
  plinth_telemetry_sampler_t sampler = NULL;
  CHECK_STATUS(plinth_temperature(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_temperature(99, &value), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(value, 7);
  CHECK_STATUS(plinth_list_gpu_processes(99, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_gpu_processes_each(99, list_process, &list), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(list.count, 0);
  CHECK_STATUS(plinth_read_telemetry(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_telemetry_sampler_create(0, 0, 4, &sampler), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_telemetry_sampler_create(0, 10, 0, &sampler), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_telemetry_sampler_create(99, 10, 4, &sampler), PLINTH_ERROR_INVALID_DEVICE);
  CHECK(sampler == NULL);
}

TEST(a_missing_nvml_is_an_error) {
  if (on_host_device()) {
    SKIP("the host device does not ask NVML");
  }
  uint32_t celsius = 0;
  setenv("PLINTH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1", 1);
  CHECK_STATUS(plinth_temperature(0, &celsius), PLINTH_ERROR_NVML_UNAVAILABLE);
  CHECK(strstr(plinth_last_error(), "/nonexistent/libnvidia-ml.so.1") != NULL);
  unsetenv("PLINTH_NVML_LIBRARY");
  CHECK_OK(plinth_temperature(0, &celsius)); /* the library is loaded again */
}
