// Checks of accesses to shared memory, for kernels that are compiled with PLINTH_HOST_CHECKS. The compiler's thread
// sanitizer announces each access by a call, and the functions that it calls are here, in place of its own library: they
// check that the access lies within one variable, and that no other thread has accessed the same byte since the last
// barrier, if one of the two writes. Between the variables the library that compiles the kernel leaves a gap.
//
// What orders threads: every barrier, all threads of the block; an operation of a warp, the lanes of the warp. Atomics are
// not checked and order nothing.
#pragma once

#include "execution.h"

#ifdef PLINTH_HOST_CHECKS
namespace plinth_host {
// A variable in shared memory, at an offset in the thread-local memory of the kernel's library. `bytes` is 0 for dynamic
// shared memory, whose size the launch states. `name` is null for a variable that the program does not know of.
struct SharedVariable {
  unsigned offset;
  unsigned bytes;
  const char *name;
};

// What is in the thread-local memory of the library, in the order of the offsets.
struct SharedMemory {
  // The offset of shared_anchor.
  unsigned anchor;
  unsigned count;
  const SharedVariable *variables;
};

// The last accesses to one byte. A time is the number of barriers of the block so far, or of operations of the warp.
struct ByteHistory {
  unsigned write_time, read_time;
  unsigned short writer, reader;
  unsigned write_warp_time, read_warp_time;
  // The instructions that made the accesses, relative to report_access.
  int write_place, read_place;
  // Whether more than one warp, and more than one lane of the last warp, have read the byte at its time.
  bool many_warps, many_lanes;
};
static_assert(sizeof(ByteHistory) == 32, "the host device allocates as much for each byte");

static thread_local char shared_anchor;
static thread_local const SharedMemory *shared_memory;
static thread_local ByteHistory *histories;
// The time at which the last block of this thread ended. Times only grow, so that no history is of another block.
static thread_local unsigned last_time;

PLINTH_HOST_UNCHECKED static void report_access(const void *instruction, bool is_write, unsigned bytes, const char *text,
                                                const char *variable, const uint3 *other, int other_place) {
  char report[480];
  int length = __builtin_snprintf(report, sizeof report, "%s %u bytes %s %s in shared memory", is_write ? "writes" : "reads", bytes,
                                  text, variable);
  if (other) {
    char place[160];
    const Launch *launch = self().owner->launch;
    launch->locate(launch->context, reinterpret_cast<const char *>(&report_access) + other_place, place, sizeof place);
    __builtin_snprintf(report + length, sizeof report - unsigned(length), ", without a barrier after thread (%u, %u, %u), %s",
                       other->x, other->y, other->z, place);
  }
  fail_at(instruction, other ? kLaunchFailed : kIllegalAddress, report);
}

// Checks that an access that thread `other` made at a time is ordered before one of this thread.
PLINTH_HOST_UNCHECKED static bool is_ordered(const Block &block, unsigned rank, unsigned other, unsigned time,
                                             unsigned warp_time) {
  const unsigned warp = rank / kLanes;
  return rank == other || time != block.time || (other / kLanes == warp && warp_time != block.warp_times[warp]);
}

PLINTH_HOST_UNCHECKED static void check_access(void *address, unsigned bytes, bool is_write, const void *instruction) {
  const SharedMemory *memory = shared_memory;
  if (!memory || !memory->count) return;
  const SharedVariable *const first = memory->variables, *const end = first + memory->count;
  const uintptr_t base = reinterpret_cast<uintptr_t>(&shared_anchor) - memory->anchor;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - base;
  const uintptr_t limit = end[-1].offset + (end[-1].bytes ? end[-1].bytes + 256u : 256u << 10);
  if (offset + 64 < first->offset || offset >= limit) return;
  // The variable that the access begins in, or the one before it.
  const SharedVariable *variable = first;
  while (variable + 1 < end && variable[1].offset <= offset) variable++;
  if (!variable->name) return;
  const Fiber &fiber = self();
  const Block &block = *fiber.owner;
  const unsigned size = variable->bytes ? variable->bytes : block.launch->shared_bytes;
  if (offset < variable->offset || offset + bytes > variable->offset + size) {
    report_access(instruction, is_write, bytes, "outside of", variable->name, nullptr, 0);
  }
  const unsigned rank = fiber.rank;
  const unsigned warp_time = block.warp_times[rank / kLanes];
  const int place = int(static_cast<const char *>(instruction) - reinterpret_cast<const char *>(&report_access));
  for (uintptr_t at = offset; at < offset + bytes; at++) {
    ByteHistory &history = histories[at - first->offset];
    if (!is_ordered(block, rank, history.writer, history.write_time, history.write_warp_time)) {
      const uint3 other = index_of(block, history.writer);
      report_access(instruction, is_write, bytes, "that another thread writes of", variable->name, &other, history.write_place);
    }
    const bool is_read = history.read_time == block.time;
    const bool is_same_warp = history.reader / kLanes == rank / kLanes;
    const bool is_same_warp_time = is_same_warp && history.read_warp_time == warp_time;
    if (is_write) {
      if (is_read && (history.many_warps || !is_same_warp ||
                      (is_same_warp_time && (history.many_lanes || history.reader != rank)))) {
        const uint3 other = index_of(block, history.reader);
        report_access(instruction, is_write, bytes, "that another thread reads of", variable->name, &other, history.read_place);
      }
      history.write_time = block.time;
      history.writer = static_cast<unsigned short>(rank);
      history.write_warp_time = warp_time;
      history.write_place = place;
    } else {
      history.many_warps = is_read && (history.many_warps || !is_same_warp);
      history.many_lanes = is_read && is_same_warp_time && (history.many_lanes || history.reader != rank);
      history.read_time = block.time;
      history.reader = static_cast<unsigned short>(rank);
      history.read_warp_time = warp_time;
      history.read_place = place;
    }
  }
}
}  // namespace plinth_host

// The last byte of the instruction that called the function.
#define PLINTH_HOST_CALLER (static_cast<const char *>(__builtin_return_address(0)) - 1)
#define PLINTH_HOST_ACCESS(name, bytes, is_write)                                                       \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void name(void *address) {                     \
    plinth_host::check_access(address, bytes, is_write, PLINTH_HOST_CALLER);                   \
  }
#define PLINTH_HOST_ACCESSES(bytes)                             \
  PLINTH_HOST_ACCESS(__tsan_read##bytes, bytes, false)           \
  PLINTH_HOST_ACCESS(__tsan_write##bytes, bytes, true)           \
  PLINTH_HOST_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  PLINTH_HOST_ACCESS(__tsan_unaligned_write##bytes, bytes, true) \
  PLINTH_HOST_ACCESS(__tsan_volatile_read##bytes, bytes, false)  \
  PLINTH_HOST_ACCESS(__tsan_volatile_write##bytes, bytes, true)  \
  PLINTH_HOST_ACCESS(__tsan_read_write##bytes, bytes, true)
PLINTH_HOST_ACCESSES(1)
PLINTH_HOST_ACCESSES(2)
PLINTH_HOST_ACCESSES(4)
PLINTH_HOST_ACCESSES(8)
PLINTH_HOST_ACCESSES(16)
#define PLINTH_HOST_RANGE(name, is_write)                                                                           \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void name(void *address, unsigned long bytes) {            \
    plinth_host::check_access(address, static_cast<unsigned>(bytes), is_write, PLINTH_HOST_CALLER);        \
  }
PLINTH_HOST_RANGE(__tsan_read_range, false)
PLINTH_HOST_RANGE(__tsan_write_range, true)
#ifdef __clang__
#define PLINTH_HOST_COPY(name, copy)                                                                                 \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void *name(void *to, const void *from, unsigned long bytes) { \
    plinth_host::check_access(const_cast<void *>(from), static_cast<unsigned>(bytes), false, PLINTH_HOST_CALLER);    \
    plinth_host::check_access(to, static_cast<unsigned>(bytes), true, PLINTH_HOST_CALLER);                           \
    return copy(to, from, bytes);                                                                                    \
  }
PLINTH_HOST_COPY(__tsan_memcpy, __builtin_memcpy)
PLINTH_HOST_COPY(__tsan_memmove, __builtin_memmove)
#undef PLINTH_HOST_COPY
extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void *__tsan_memset(void *to, int value, unsigned long bytes) {
  plinth_host::check_access(to, static_cast<unsigned>(bytes), true, PLINTH_HOST_CALLER);
  return __builtin_memset(to, value, bytes);
}
#endif
#define PLINTH_HOST_NOTHING(name, parameters) \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void name parameters {}
PLINTH_HOST_NOTHING(__tsan_init, ())
PLINTH_HOST_NOTHING(__tsan_func_entry, (void *))
PLINTH_HOST_NOTHING(__tsan_func_exit, ())
PLINTH_HOST_NOTHING(__tsan_vptr_read, (void **))
PLINTH_HOST_NOTHING(__tsan_vptr_update, (void **, void *))

// The sanitizer also replaces atomics by calls.
#define PLINTH_HOST_FETCH(bits, type, name)                                                                            \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) type __tsan_atomic##bits##_##name(type *at, type v, int) {    \
    return __atomic_##name(at, v, __ATOMIC_SEQ_CST);                                                                   \
  }
#define PLINTH_HOST_COMPARE(bits, type, strength)                                                                      \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) int __tsan_atomic##bits##_compare_exchange_##strength(        \
      type *at, type *expected, type v, int, int) {                                                                    \
    return __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                    \
  }
#define PLINTH_HOST_COMPARE_VALUE(bits, type)                                                                          \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) type __tsan_atomic##bits##_compare_exchange_val(              \
      type *at, type expected, type v, int, int) {                                                                     \
    __atomic_compare_exchange_n(at, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
    return expected;                                                                                                   \
  }
#define PLINTH_HOST_ATOMICS(bits, type)                                                                                \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) type __tsan_atomic##bits##_load(const type *at, int) {        \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                      \
  }                                                                                                                    \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void __tsan_atomic##bits##_store(type *at, type v, int) {     \
    __atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                                                         \
  }                                                                                                                    \
  extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) type __tsan_atomic##bits##_exchange(type *at, type v, int) {  \
    return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                                                               \
  }                                                                                                                    \
  PLINTH_HOST_FETCH(bits, type, fetch_add)                                                                             \
  PLINTH_HOST_FETCH(bits, type, fetch_sub)                                                                             \
  PLINTH_HOST_FETCH(bits, type, fetch_and)                                                                             \
  PLINTH_HOST_FETCH(bits, type, fetch_or)                                                                              \
  PLINTH_HOST_FETCH(bits, type, fetch_xor)                                                                             \
  PLINTH_HOST_COMPARE(bits, type, strong)                                                                              \
  PLINTH_HOST_FETCH(bits, type, fetch_nand)                                                                            \
  PLINTH_HOST_COMPARE(bits, type, weak)                                                                                \
  PLINTH_HOST_COMPARE_VALUE(bits, type)
PLINTH_HOST_ATOMICS(8, unsigned char)
PLINTH_HOST_ATOMICS(16, unsigned short)
PLINTH_HOST_ATOMICS(32, unsigned)
PLINTH_HOST_ATOMICS(64, unsigned long)
extern "C" PLINTH_HOST_UNCHECKED __attribute__((used)) void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
PLINTH_HOST_NOTHING(__tsan_atomic_signal_fence, (int))
#undef PLINTH_HOST_CALLER
#undef PLINTH_HOST_ACCESS
#undef PLINTH_HOST_ACCESSES
#undef PLINTH_HOST_RANGE
#undef PLINTH_HOST_NOTHING
#undef PLINTH_HOST_FETCH
#undef PLINTH_HOST_COMPARE
#undef PLINTH_HOST_COMPARE_VALUE
#undef PLINTH_HOST_ATOMICS
#endif
