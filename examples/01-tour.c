/* A tour of plinth, on the available device.
 *
 *   make demo                        a GPU if there is one, otherwise the built-in host device
 *   PLINTH_DEVICE=host make demo     the host device
 *
 * Every call returns a status; MUST shows the usual way to check it. */
#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call)                                                    \
  do {                                                                \
    if ((call) != PLINTH_OK) {                                        \
      fprintf(stderr, "%s failed: %s\n", #call, plinth_last_error()); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

enum { N = 1 << 20, BYTES = N * sizeof(float) };

static void show_devices(void) {
  int32_t count, kind, version;
  MUST(plinth_device_count(&count));
  MUST(plinth_init());
  MUST(plinth_get_device_kind(&kind));
  MUST(plinth_driver_version(&version));
  printf("plinth %s, %s, CUDA %d.%d, %d device%s\n", plinth_version_string(),
         kind == PLINTH_DEVICE_HOST ? "the built-in host device" : "NVIDIA GPUs", version / 1000,
         version % 1000 / 10, count, count == 1 ? "" : "s");
  for (int32_t device = 0; device < count; device++) {
    plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
    size_t free_bytes, total_bytes;
    MUST(plinth_get_device_properties(device, &properties));
    MUST(plinth_mem_get_info(device, &free_bytes, &total_bytes));
    printf("  %d: %s, compute capability %d.%d, %d multiprocessors, %.1f of %.1f GiB free\n", device, properties.name,
           properties.major, properties.minor, properties.multi_processor_count,
           (double)free_bytes / (1 << 30), (double)total_bytes / (1 << 30));
  }
}

static void *device_memory;
static float *host_memory;

/* A stream executes its work in order, while the CPU continues. */
static void fill_and_read_back(void) {
  const float pi = 3.14159274f;
  plinth_stream_t stream;
  bool done;
  MUST(plinth_stream_create(-1, 0, &stream));
  MUST(plinth_sleep(20000000, stream)); /* some 10 ms, so that the work is still pending below */
  MUST(plinth_memset_pattern(device_memory, &pi, sizeof pi, BYTES, stream));
  MUST(plinth_memcpy(host_memory, device_memory, BYTES, stream));
  MUST(plinth_stream_query(stream, &done));
  printf("streams: a sleep, a fill and a copy of 4 MiB are queued; completed: %s\n", done ? "yes" : "no");
  MUST(plinth_stream_synchronize(stream));
  MUST(plinth_stream_query(stream, &done));
  printf("         after plinth_stream_synchronize: %s; the last number is %.8f\n", done ? "yes" : "no",
         (double)host_memory[N - 1]);
}

/* Events mark positions in streams: other streams can wait for them, and the time between two can be measured. */
static void order_and_time(void) {
  plinth_stream_t producer, consumer;
  plinth_event_t start, ready, end;
  float milliseconds;
  MUST(plinth_stream_create(-1, 0, &producer));
  MUST(plinth_stream_create(-1, -1, &consumer)); /* of a higher priority */
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &start));
  MUST(plinth_event_create(0, &ready));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &end));
  MUST(plinth_event_record(start, producer));
  MUST(plinth_sleep(20000000, producer));
  MUST(plinth_memset(device_memory, 0, BYTES, producer));
  MUST(plinth_event_record(ready, producer));
  MUST(plinth_stream_wait_event(consumer, ready)); /* the consumer waits, the CPU does not */
  MUST(plinth_memcpy(host_memory, device_memory, BYTES, consumer));
  MUST(plinth_event_record(end, consumer));
  MUST(plinth_event_synchronize(end));
  MUST(plinth_event_elapsed_time(start, end, &milliseconds));
  printf("events:  the consumer waited for the producer and read %.1f; from start to end %.2f ms\n",
         (double)host_memory[0], (double)milliseconds);
  MUST(plinth_event_destroy(start));
  MUST(plinth_event_destroy(ready));
  MUST(plinth_event_destroy(end));
}

static void host_function(void *context) { *(const char **)context = "a host function of the stream"; }

static void call_host_function(void) {
  const char *caller = "nobody";
  plinth_stream_t stream;
  MUST(plinth_stream_create(-1, 0, &stream));
  MUST(plinth_launch_host_function(stream, host_function, &caller));
  MUST(plinth_stream_synchronize(stream));
  printf("host:    the message was set by %s\n", caller);
}

/* Each thread has a current device, and on each device a current stream; contexts change both and restore them. */
static void switch_devices(void) {
  int32_t count, before, inside, after;
  plinth_stream_t stream;
  plinth_stream_context_t saved;
  MUST(plinth_device_count(&count));
  MUST(plinth_current_device(&before));
  MUST(plinth_stream_create(count - 1, 0, &stream));
  MUST(plinth_stream_context_enter(stream, &saved));
  MUST(plinth_current_device(&inside));
  MUST(plinth_stream_context_exit(&saved));
  MUST(plinth_current_device(&after));
  printf("devices: current %d, in the context of a stream of the last device %d, then %d again\n", before, inside,
         after);
  if (count > 1) {
    void *other;
    MUST(plinth_device_malloc(BYTES, 1, &other));
    MUST(plinth_memset(device_memory, 0x3f, BYTES, NULL));
    MUST(plinth_copy(other, device_memory, BYTES, true)); /* in both devices' current streams */
    MUST(plinth_copy(host_memory, other, BYTES, false));  /* false: wait for the copy */
    printf("peers:   4 MiB were copied from device 0 to device 1 and to the host: %.6f\n", (double)host_memory[N / 2]);
    MUST(plinth_device_free(other));
  }
}

/* A failed call returns a status and sets a message, and has no other effect. */
static void show_errors(void) {
  void *pointer = NULL;
  bool done;
  plinth_status_t status = plinth_device_malloc((size_t)1 << 60, 0, &pointer);
  printf("errors:  %s: %s\n", plinth_status_name(status), plinth_last_error());
  status = plinth_stream_query((plinth_stream_t)0x1234, &done);
  printf("         %s: %s\n", plinth_status_name(status), plinth_last_error());
  status = plinth_set_device(99);
  printf("         %s: %s\n", plinth_status_name(status), plinth_last_error());
}

int main(void) {
  void *pinned;
  show_devices();
  MUST(plinth_device_malloc(BYTES, 0, &device_memory));
  MUST(plinth_pinned_malloc(BYTES, &pinned));
  host_memory = pinned;
  fill_and_read_back();
  order_and_time();
  call_host_function();
  switch_devices();
  show_errors();
  MUST(plinth_pinned_free(pinned));
  MUST(plinth_device_free(device_memory));
  puts("End of the tour; all memory was freed.");
  return 0;
}
