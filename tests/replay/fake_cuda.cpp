// The functions of libcuda that the measurement programs use, for machines without a driver: 1 GiB of memory that is never
// accessed, at addresses that are never reused.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr size_t TOTAL = size_t{1} << 30;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201 };

std::mutex lock;
std::map<uint64_t, size_t> live;
size_t used;
uint64_t next = uint64_t{1} << 40;
thread_local void *current;
char context, streams[64], pool;
size_t stream_count;

}  // namespace

extern "C" {
int cuInit(unsigned) { return OK; }
int cuDeviceGet(int *device, int number) { return *device = number, number == 0 ? OK : INVALID; }
int cuDevicePrimaryCtxRetain(void **retained, int) { return *retained = &context, OK; }
int cuDeviceGetName(char *name, int size, int) { return std::strncpy(name, "Fake", static_cast<size_t>(size)), OK; }
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuCtxSetCurrent(void *wanted) { return current = wanted, OK; }
int cuCtxSynchronize() { return current ? OK : NO_CONTEXT; }
int cuStreamCreate(void **stream, unsigned) {
  return *stream = &streams[stream_count++ % sizeof streams], current ? OK : NO_CONTEXT;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  std::lock_guard guard(lock);
  return *free = TOTAL - used, *total = TOTAL, current ? OK : NO_CONTEXT;
}
int cuDeviceGetDefaultMemPool(void **found, int) { return *found = &pool, OK; }
int cuMemPoolSetAttribute(void *, int attribute, void *) { return attribute == 4 ? OK : INVALID; }
int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
  std::lock_guard guard(lock);
  if (!current || !stream) return NO_CONTEXT;
  if (used + size > TOTAL) return OUT_OF_MEMORY;
  *address = next;
  next += (size + 511) / 512 * 512;
  used += size;
  live[*address] = size;
  return OK;
}
int cuMemFreeAsync(uint64_t address, void *) {
  std::lock_guard guard(lock);
  auto found = live.find(address);
  if (found == live.end()) return INVALID;
  used -= found->second;
  live.erase(found);
  return OK;
}
}
