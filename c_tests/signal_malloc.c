/* A signal handler that interrupts the C library's allocator inside a call. Its own call must be refused: the allocator's
 * lock is held, so a call that allocates memory would wait for itself. Instead of signals, the functions of the allocator
 * make the handler's call here, each time that the library calls one of them.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "allocating.h"

#include <dlfcn.h>
#include <link.h>

#if HARNESS_SANITIZED
TEST(no_call_ends_before_its_memory_is_freed) { SKIP("a sanitizer has an allocator of its own"); }
#else

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

/* The code of the library. */
static uintptr_t code_begin, code_end;
/* Whether the thread is one of the test's, which handlers may interrupt. */
static __thread bool is_interruptible;
static __thread bool in_handler;
static int interruptions;

static bool are_signals_blocked(void) {
  sigset_t blocked;
  return pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGUSR1) == 1;
}

static void interrupt(const void *caller) {
  const uintptr_t address = (uintptr_t)caller;
  if (!is_interruptible || in_handler || address < code_begin || address >= code_end || are_signals_blocked()) {
    return;
  }
  void *block = NULL;
  in_handler = true;
  __atomic_fetch_add(&interruptions, 1, __ATOMIC_SEQ_CST);
  const plinth_status_t status = plinth_caching_allocator_alloc(KIB, 0, NULL, &block);
  if (status != PLINTH_ERROR_NOT_SUPPORTED) {
    fprintf(stderr, "a handler that interrupts the allocator, called from libplinth+%#lx, is not refused\n",
            (unsigned long)(address - code_begin));
    abort();
  }
  in_handler = false;
}

#define INTERRUPT() interrupt(__builtin_extract_return_addr(__builtin_return_address(0)))

void *malloc(size_t size) {
  INTERRUPT();
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  INTERRUPT();
  return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
  INTERRUPT();
  return __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
  INTERRUPT();
  *memory = __libc_memalign(alignment, size);
  return *memory == NULL ? ENOMEM : 0;
}

void free(void *memory) {
  INTERRUPT();
  __libc_free(memory);
}

static int find_code(struct dl_phdr_info *object, size_t size, void *address) {
  (void)size;
  for (int index = 0; index < object->dlpi_phnum; index++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[index];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && (uintptr_t)address - begin < part->p_memsz) {
      code_begin = object->dlpi_addr;
      code_end = begin + part->p_memsz;
      return 1;
    }
  }
  return 0;
}

/* Calls that succeed and calls that fail, short ones and others. */
static void make_calls(void) {
  const plinth_stream_t own = (plinth_stream_t)(uintptr_t)2;
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  plinth_stream_t stream = NULL;
  plinth_event_t event = NULL;
  plinth_graph_t graph = NULL;
  plinth_generator_t generator = NULL;
  void *block = NULL, *other = NULL;
  char *text = NULL;
  for (int round = 0; round < 3; round++) {
    (void)plinth_caching_allocator_alloc(3 * MIB, 0, own, &block);
    (void)plinth_record_stream(block, NULL);
    (void)plinth_caching_allocator_alloc(SIZE_MAX / 2, 0, own, &other);
    (void)plinth_caching_allocator_alloc(KIB, 99, own, &other);
    (void)plinth_caching_allocator_delete(&stats);
    (void)plinth_caching_allocator_delete(block);
    (void)plinth_host_alloc(KIB, &other);
    (void)plinth_host_free(&stats);
    (void)plinth_host_free(other);
    (void)plinth_set_device(-7);
    (void)plinth_stream_create(0, 0, &stream);
    (void)plinth_stream_create(99, 0, &stream);
    (void)plinth_event_create(0, &event);
    (void)plinth_event_create(0xFFFF, &event);
    (void)plinth_event_record(event, stream);
    (void)plinth_event_record(NULL, stream);
    (void)plinth_event_destroy(event);
    (void)plinth_graph_create(&graph);
    (void)plinth_graph_replay(graph);
    (void)plinth_graph_destroy(graph);
    (void)plinth_generator_create(0, &generator);
    (void)plinth_generator_manual_seed(NULL, 1);
    (void)plinth_generator_destroy(generator);
    (void)plinth_memory_stats(0, &stats);
    (void)plinth_memory_stats(99, &stats);
    (void)plinth_memory_summary(0, false, &text);
    (void)plinth_string_free(text);
    (void)plinth_set_allocator_settings("no_such_setting:1");
    (void)plinth_nvtx_range_push("a range", NULL);
    (void)plinth_nvtx_range_pop(NULL);
    (void)plinth_synchronize(0);
    (void)plinth_empty_cache();
    (void)plinth_last_error();
  }
}

static void ignore_message(int32_t level, const char *message, void *context) {
  (void)level;
  (void)message;
  (void)context;
}

/* A thread's first calls, and what the library does when the thread ends. */
static void *begin_and_end(void *context) {
  is_interruptible = true;
  make_calls();
  return context;
}

TEST(no_call_ends_before_its_memory_is_freed) {
  void *address = dlsym(RTLD_DEFAULT, "plinth_empty_cache");
  CHECK(address != NULL && dl_iterate_phdr(find_code, address) == 1);
  is_interruptible = true;
  make_calls();
  /* Not in a thread that ends: the Rust library frees what it needed of the standard library then. */
  (void)plinth_dump_snapshot("/dev/null");
  (void)plinth_dump_snapshot("/nowhere/snapshot");
  is_interruptible = false;
  CHECK(interruptions > 100);
  /* A thread also frees what walks of its stack and messages of the log needed. */
  plinth_memory_history_options_t history = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  CHECK_OK(plinth_record_memory_history(&history));
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_DEBUG, ignore_message, NULL));
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, begin_and_end, NULL), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
}
#endif
