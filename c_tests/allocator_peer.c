/* Access of one device to the caching allocator's memory on another. */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "allocating.h"

enum { BYTES = 3 << 20 };

static bool peers_possible(void) {
  bool one = false, other = false;
  CHECK_OK(plinth_can_device_access_peer(1, 0, &one));
  CHECK_OK(plinth_can_device_access_peer(0, 1, &other));
  return one && other;
}

/* Fills memory of device 0 in a stream of device 1, and checks it. */
static void expect_accessible(void *memory, plinth_stream_t stream, unsigned char value) {
  static unsigned char seen[BYTES];
  CHECK_OK(plinth_memset(memory, value, BYTES, stream));
  CHECK_OK(plinth_memcpy(seen, memory, BYTES, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (size_t index = 0; index < BYTES; index += 4093) {
    CHECK_EQ(seen[index], value);
  }
}

TEST(enabled_peers_can_access_earlier_and_later_memory) {
  need_devices(2);
  if (!peers_possible()) {
    SKIP("the devices cannot access each other");
  }
  plinth_stream_t stream;
  CHECK_OK(plinth_stream_create(1, 0, &stream));
  void *before, *after;
  CHECK_OK(plinth_caching_allocator_alloc(BYTES, 0, NULL, &before));
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_OK(plinth_caching_allocator_alloc(40 << 20, 0, NULL, &after));
  expect_accessible(before, stream, 0x5A);
  expect_accessible(after, stream, 0xA5);
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_OK(plinth_testing_check_allocator());
  CHECK_OK(plinth_disable_peer_access(1, 0));
  CHECK_OK(plinth_caching_allocator_delete(before));
  CHECK_OK(plinth_caching_allocator_delete(after));
}

/* CUmemLocation and cuMemGetAccess of cuda.h. */
typedef struct {
  int type, id;
} location_t;
typedef int (*get_access_t)(unsigned long long *flags, const location_t *location, unsigned long long pointer);

static unsigned long long access_of(int32_t device, void *memory) {
  get_access_t get_access;
  CHECK_OK(plinth_driver_entry_point("cuMemGetAccess", (void **)&get_access));
  location_t location = {1, device};
  unsigned long long flags = 99;
  CHECK_EQ(get_access(&flags, &location, (unsigned long long)(uintptr_t)memory), 0);
  return flags;
}

TEST(access_follows_enable_and_disable) {
  need_devices(2);
  if (!peers_possible()) {
    SKIP("the devices cannot access each other");
  }
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    SKIP("is about mapped memory");
  }
  void *memory;
  CHECK_OK(plinth_caching_allocator_alloc(BYTES, 0, NULL, &memory));
  CHECK_EQ(access_of(0, memory), 3);
  CHECK_EQ(access_of(1, memory), 0);
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_EQ(access_of(1, memory), 3);
  CHECK_OK(plinth_disable_peer_access(1, 0));
  CHECK_EQ(access_of(1, memory), 0);
  CHECK_EQ(access_of(0, memory), 3);
  CHECK_OK(plinth_caching_allocator_delete(memory));
}

enum { ENABLERS = 4, MAPPINGS = 60 };

static void *mappings[MAPPINGS];
static pthread_barrier_t barrier;

/* Every mapping is accessible when the call returns, whichever thread made the change. */
static void *enable_and_check(void *context) {
  pthread_barrier_wait(&barrier);
  CHECK_OK(plinth_enable_peer_access(1, 0));
  for (int index = MAPPINGS - 1; index >= 0; index--) {
    CHECK_EQ(access_of(1, mappings[index]), 3);
  }
  return context;
}

TEST(threads_enable_one_pair_at_once) {
  need_devices(2);
  if (!peers_possible()) {
    SKIP("the devices cannot access each other");
  }
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    SKIP("is about mapped memory");
  }
  for (int index = 0; index < MAPPINGS; index++) {
    mappings[index] = alloc_on(BYTES, 0, stream_on(0));
  }
  CHECK_EQ(pthread_barrier_init(&barrier, NULL, ENABLERS), 0);
  /* A GPU takes some milliseconds for each mapping. */
  const int rounds = some_rounds(on_host_device() ? 200 : 20);
  for (int round = 0; round < rounds; round++) {
    run_threads(ENABLERS, enable_and_check);
    CHECK_OK(plinth_disable_peer_access(1, 0));
    CHECK_EQ(access_of(1, mappings[0]), 0);
  }
  CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
  for (int index = 0; index < MAPPINGS; index++) {
    release(mappings[index]);
  }
}
