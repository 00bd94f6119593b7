// Measures fills of tensors with random numbers against a plain fill of the same bytes and cuRAND's generators of the same
// kind (Philox 4x32-10, by its host API), and the cost of a call for a small tensor.
//
//   random [--json] [--elements N] [--curand LIBRARY] [--mkl LIBRARY] [--peer LIBRARY]
//
// On a GPU: GB/s written, the median of 20 alternating launches of each, timed by events. On the host device: millions of
// numbers per second on one core, so that machines can be compared. There --mkl names libmkl_rt, whose Philox fills the
// same, and --peer any library with `void random_uniform(float *, size_t)`, for example around Random123.
// Build and run: `make bench-random`, which also measures PyTorch if it is installed.
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <sched.h>
#include <string>
#include <vector>

namespace {

#define ZERO(call)                                                                                \
  do {                                                                                            \
    const int code_ = static_cast<int>(call);                                                     \
    if (code_ != 0) {                                                                             \
      fprintf(stderr, "%s:%d: %s: code %d\n", __FILE__, __LINE__, #call, code_);                  \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

constexpr int LAUNCHES = 20, WARM = 3, CALLS = 10000, BATCH = 250;
constexpr int64_t SMALL = 1000;

plinth_stream_t stream;
plinth_generator_t generator;
void *memory;
bool on_gpu, json;
int64_t most_elements;

struct Type {
  const char *name;
  uint8_t code, bits;
};
constexpr Type F16{"float16", 2, 16}, BF16{"bfloat16", 4, 16}, F32{"float32", 2, 32}, F64{"float64", 2, 64};
constexpr Type U8{"uint8", 1, 8}, I32{"int32", 0, 32}, I64{"int64", 0, 64};

// A contiguous tensor in the bench's memory.
struct Tensor {
  int64_t shape[1];
  DLTensor dl;
  Tensor(const Type &type, int64_t count) : shape{count}, dl{} {
    dl.data = memory;
    dl.device = {2, 0};
    dl.ndim = 1;
    dl.dtype = {type.code, type.bits, 1};
    dl.shape = shape;
  }
  Tensor(const Tensor &) = delete;
};

using Fill = plinth_status_t (*)(DLTensor *);
plinth_status_t uniform(DLTensor *t) { return plinth_uniform(t, 0, 1, generator, stream); }
plinth_status_t normal(DLTensor *t) { return plinth_normal(t, 0, 1, generator, stream); }
plinth_status_t log_normal(DLTensor *t) { return plinth_log_normal(t, 0, 1, generator, stream); }
plinth_status_t exponential(DLTensor *t) { return plinth_exponential(t, 1, generator, stream); }
plinth_status_t cauchy(DLTensor *t) { return plinth_cauchy(t, 0, 1, generator, stream); }
plinth_status_t geometric(DLTensor *t) { return plinth_geometric(t, 0.3, generator, stream); }
plinth_status_t bernoulli(DLTensor *t) { return plinth_bernoulli(t, 0.3, generator, stream); }
plinth_status_t random_all(DLTensor *t) { return plinth_random(t, generator, stream); }
plinth_status_t random_100(DLTensor *t) { return plinth_random_range(t, 0, 100, generator, stream); }
plinth_status_t random_wide(DLTensor *t) { return plinth_random_range(t, 0, int64_t{1} << 40, generator, stream); }
plinth_status_t randperm(DLTensor *t) { return plinth_randperm(t, generator, stream); }

// cuRAND, as curand.h declares it.
struct {
  void *library, *generator;
  int (*create)(void **, int);
  int (*seed)(void *, unsigned long long);
  int (*stream)(void *, plinth_stream_t);
  int (*bits)(void *, unsigned *, size_t);
  int (*uniform)(void *, float *, size_t);
  int (*uniform_double)(void *, double *, size_t);
  int (*normal)(void *, float *, size_t, float, float);
  int (*normal_double)(void *, double *, size_t, double, double);
  int (*log_normal)(void *, float *, size_t, float, float);
  int (*log_normal_double)(void *, double *, size_t, double, double);
} curand;

int curand_bits(size_t n) { return curand.bits(curand.generator, static_cast<unsigned *>(memory), n); }
int curand_uniform(size_t n) { return curand.uniform(curand.generator, static_cast<float *>(memory), n); }
int curand_uniform64(size_t n) { return curand.uniform_double(curand.generator, static_cast<double *>(memory), n); }
int curand_normal(size_t n) { return curand.normal(curand.generator, static_cast<float *>(memory), n, 0, 1); }
int curand_normal64(size_t n) { return curand.normal_double(curand.generator, static_cast<double *>(memory), n, 0, 1); }
int curand_log(size_t n) { return curand.log_normal(curand.generator, static_cast<float *>(memory), n, 0, 1); }
int curand_log64(size_t n) { return curand.log_normal_double(curand.generator, static_cast<double *>(memory), n, 0, 1); }

struct Row {
  const char *operation;
  Type type;
  Fill fill;
  int (*curand)(size_t);
};

const Row rows[] = {
    {"uniform", F32, uniform, curand_uniform},       {"uniform", F64, uniform, curand_uniform64},
    {"uniform", F16, uniform, nullptr},              {"uniform", BF16, uniform, nullptr},
    {"normal", F32, normal, curand_normal},          {"normal", F64, normal, curand_normal64},
    {"normal", F16, normal, nullptr},                {"normal", BF16, normal, nullptr},
    {"log_normal", F32, log_normal, curand_log},     {"log_normal", F64, log_normal, curand_log64},
    {"log_normal", F16, log_normal, nullptr},        {"log_normal", BF16, log_normal, nullptr},
    {"exponential", F32, exponential, nullptr},      {"exponential", F64, exponential, nullptr},
    {"exponential", F16, exponential, nullptr},      {"exponential", BF16, exponential, nullptr},
    {"cauchy", F32, cauchy, nullptr},                {"cauchy", F64, cauchy, nullptr},
    {"geometric", F32, geometric, nullptr},          {"geometric", I64, geometric, nullptr},
    {"bernoulli", F32, bernoulli, nullptr},          {"bernoulli", F16, bernoulli, nullptr},
    {"bernoulli", U8, bernoulli, nullptr},           {"random", I32, random_all, curand_bits},
    {"random", I64, random_all, nullptr},            {"random", U8, random_all, nullptr},
    {"random_range 100", I32, random_100, nullptr},  {"random_range 100", I64, random_100, nullptr},
    {"random_range 2^40", I64, random_wide, nullptr},
};

template <typename Function> bool find(void *library, const char *name, Function &function) {
  void *symbol = dlsym(library, name);
  static_assert(sizeof symbol == sizeof function, "a function pointer is a pointer");
  memcpy(&function, &symbol, sizeof symbol);
  return symbol != nullptr;
}

// Loads cuRAND; returns whether it was found. CUDA 10 and later have libcurand.so.10.
bool open_curand(const char *path) {
  constexpr int philox = 161;
  curand.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (curand.library == nullptr) {
    return false;
  }
  void *const l = curand.library;
  if (!find(l, "curandCreateGenerator", curand.create) || !find(l, "curandSetPseudoRandomGeneratorSeed", curand.seed) ||
      !find(l, "curandSetStream", curand.stream) || !find(l, "curandGenerate", curand.bits) ||
      !find(l, "curandGenerateUniform", curand.uniform) ||
      !find(l, "curandGenerateUniformDouble", curand.uniform_double) ||
      !find(l, "curandGenerateNormal", curand.normal) || !find(l, "curandGenerateNormalDouble", curand.normal_double) ||
      !find(l, "curandGenerateLogNormal", curand.log_normal) ||
      !find(l, "curandGenerateLogNormalDouble", curand.log_normal_double)) {
    return false;
  }
  ZERO(curand.create(&curand.generator, philox));
  ZERO(curand.seed(curand.generator, 42));
  ZERO(curand.stream(curand.generator, stream));
  return true;
}

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the median seconds of each function; the functions alternate. On a GPU the times are those of events.
std::vector<double> in_turns(const std::vector<std::function<void()>> &works, int rounds) {
  std::vector<std::vector<double>> times(works.size());
  plinth_event_t begin, end;
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &begin));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &end));
  for (int round = -WARM; round < rounds; round++) {
    for (size_t index = 0; index < works.size(); index++) {
      float milliseconds = 0;
      if (on_gpu) {
        // Delays the GPU, so that everything is queued when the first event completes.
        MUST(plinth_sleep(200000, stream));
      }
      const double start = now();
      MUST(plinth_event_record(begin, stream));
      works[index]();
      MUST(plinth_event_record(end, stream));
      MUST(plinth_event_synchronize(end));
      MUST(plinth_event_elapsed_time(begin, end, &milliseconds));
      if (round >= 0) {
        times[index].push_back(on_gpu ? milliseconds * 1e-3 : now() - start);
      }
    }
  }
  MUST(plinth_event_destroy(begin));
  MUST(plinth_event_destroy(end));
  std::vector<double> medians;
  for (const auto &each : times) {
    medians.push_back(median(each));
  }
  return medians;
}

std::string cell(double number, const char *format = "%.0f") {
  char text[32];
  snprintf(text, sizeof text, format, number);
  return number > 0 ? text : "-";
}

void large_fills(bool with_curand) {
  if (!json) {
    printf("%s\n\n| fill | dtype | numbers | plinth | plain fill | %s |\n|---|---|---|---|---|---|\n",
           on_gpu ? "GB/s written" : "Million numbers a second on one core", on_gpu ? "cuRAND" : "-");
  }
  for (const Row &row : rows) {
    const size_t size = row.type.bits / 8;
    const int64_t count = std::min<int64_t>(most_elements, size == 8 ? most_elements / 2 : most_elements);
    Tensor tensor(row.type, count);
    std::vector<std::function<void()>> works = {
        [&] { MUST(row.fill(&tensor.dl)); },
        [&] { MUST(plinth_memset(memory, 0x5A, static_cast<size_t>(count) * size, stream)); },
    };
    if (with_curand && row.curand != nullptr) {
      works.push_back([&] { ZERO(row.curand(static_cast<size_t>(count))); });
    }
    const std::vector<double> seconds = in_turns(works, on_gpu ? LAUNCHES : 3);
    const double unit = on_gpu ? static_cast<double>(count) * static_cast<double>(size) * 1e-9 : static_cast<double>(count) * 1e-6;
    const double peer = works.size() > 2 ? unit / seconds[2] : 0;
    if (json) {
      printf("{\"kind\": \"large\", \"operation\": \"%s\", \"dtype\": \"%s\", \"elements\": %lld, \"plinth\": %.6g, \"memset\": %.6g, "
             "\"curand\": %.6g}\n", row.operation, row.type.name, static_cast<long long>(count), unit / seconds[0], unit / seconds[1], peer);
    } else {
      printf("| %s | %s | %lld | %.0f | %.0f | %s |\n", row.operation, row.type.name, static_cast<long long>(count),
             unit / seconds[0], unit / seconds[1], cell(peer).c_str());
    }
    fflush(stdout);
  }
}

// An empty kernel, launched through the driver itself, shows the minimum cost of a launch.
unsigned (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
void *empty_kernel;
const char *const EMPTY = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

template <typename Function> void entry(const char *name, Function &function) {
  void *pointer = nullptr;
  MUST(plinth_driver_entry_point(name, &pointer));
  memcpy(&function, &pointer, sizeof pointer);
}

void load_empty() {
  unsigned (*module_load)(void **, const void *);
  unsigned (*module_function)(void **, void *, const char *);
  void *module = nullptr;
  entry("cuModuleLoadData", module_load);
  entry("cuModuleGetFunction", module_function);
  entry("cuLaunchKernel", launch);
  ZERO(module_load(&module, EMPTY));
  ZERO(module_function(&empty_kernel, module, "empty"));
}

// Prints the CPU's microseconds for a call, and those from the call to its completion.
void small_call(const char *name, const std::function<void()> &call) {
  std::vector<double> calls, completions;
  for (int done = 0; done < CALLS; done += BATCH) {
    const double start = now();
    for (int index = 0; index < BATCH; index++) {
      call();
    }
    calls.push_back((now() - start) / BATCH * 1e6);
    MUST(plinth_stream_synchronize(stream));
  }
  for (int index = 0; index < CALLS / 10; index++) {
    const double start = now();
    call();
    MUST(plinth_stream_synchronize(stream));
    completions.push_back((now() - start) * 1e6);
  }
  printf(json ? "{\"kind\": \"small\", \"call\": \"%s\", \"call_us\": %.4g, \"completion_us\": %.4g}\n" : "| %s | %.2f | %.2f |\n",
         name, median(calls), median(completions));
}

void small_fills(bool with_curand) {
  Tensor tensor(F32, SMALL);
  if (!json) {
    printf("\nMicroseconds, %lld float32\n\n| call | on the CPU | to completion |\n|---|---|---|\n", static_cast<long long>(SMALL));
  }
  if (on_gpu) {
    load_empty();
    small_call("cuLaunchKernel of an empty kernel", [] {
      ZERO(launch(empty_kernel, 1, 1, 1, 256, 1, 1, 0, stream, nullptr, nullptr));
    });
  }
  small_call("plinth_memset", [] { MUST(plinth_memset(memory, 0, SMALL * 4, stream)); });
  small_call("plinth_uniform", [&] { MUST(uniform(&tensor.dl)); });
  small_call("plinth_normal", [&] { MUST(normal(&tensor.dl)); });
  small_call("plinth_bernoulli", [&] { MUST(bernoulli(&tensor.dl)); });
  if (with_curand) {
    small_call("curandGenerateUniform", [] { ZERO(curand_uniform(SMALL)); });
  }
}

void permutations() {
  if (!json) {
    printf("\nMicroseconds to completion\n\n| randperm of | int64 |\n|---|---|\n");
  }
  for (int bits = 10; bits <= (on_gpu ? 24 : 20); bits += 2) {
    const int64_t count = int64_t{1} << bits;
    Tensor tensor(I64, count);
    const double seconds = in_turns({[&] { MUST(randperm(&tensor.dl)); }}, on_gpu ? LAUNCHES : 3)[0];
    printf(json ? "{\"kind\": \"randperm\", \"elements\": %lld, \"plinth_us\": %.5g}\n" : "| %lld | %.1f |\n",
           static_cast<long long>(count), seconds * 1e6);
  }
}

// Measures other libraries on the same core.
void host_peers(const char *mkl, const char *peer) {
  const size_t count = static_cast<size_t>(most_elements);
  float *const out = static_cast<float *>(aligned_alloc(64, count * sizeof(float)));
  const auto report = [&](const char *name, const std::function<void()> &work) {
    printf("| %s | float32 | %zu | %.0f | | |\n", name, count, static_cast<double>(count) * 1e-6 / in_turns({work}, 3)[0]);
  };
  if (mkl != nullptr) {
    constexpr int philox = 16 << 20;
    void *const library = dlopen(mkl, RTLD_NOW | RTLD_GLOBAL);
    void *vsl = nullptr;
    int (*create)(void **, int, unsigned);
    int (*draw)(int, void *, int, float *, float, float), (*draw_normal)(int, void *, int, float *, float, float);
    if (library == nullptr || !find(library, "vslNewStream", create) || !find(library, "vsRngUniform", draw) ||
        !find(library, "vsRngGaussian", draw_normal)) {
      fprintf(stderr, "%s is not an MKL: %s\n", mkl, library == nullptr ? dlerror() : "a function is missing");
      exit(1);
    }
    ZERO(create(&vsl, philox, 42));
    report("MKL's Philox: uniform", [&] { ZERO(draw(0, vsl, static_cast<int>(count), out, 0, 1)); });
    report("MKL's Philox: normal", [&] { ZERO(draw_normal(0, vsl, static_cast<int>(count), out, 0, 1)); });
  }
  if (peer != nullptr) {
    void *const library = dlopen(peer, RTLD_NOW);
    void (*draw)(float *, size_t);
    if (library == nullptr || !find(library, "random_uniform", draw)) {
      fprintf(stderr, "%s has no random_uniform: %s\n", peer, library == nullptr ? dlerror() : "the function is missing");
      exit(1);
    }
    report("the peer's uniform", [&] { draw(out, count); });
  }
  free(out);
}

}  // namespace

int main(int argc, char **argv) {
  const char *curand_path = "libcurand.so.10", *mkl = nullptr, *peer = nullptr;
  for (int index = 1; index < argc; index++) {
    const std::string option = argv[index];
    const char *const value = index + 1 < argc ? argv[index + 1] : nullptr;
    if (option == "--json") {
      json = true;
      continue;
    }
    if (value == nullptr || (option != "--elements" && option != "--curand" && option != "--mkl" && option != "--peer")) {
      fprintf(stderr, "usage: %s [--json] [--elements N] [--curand LIBRARY] [--mkl LIBRARY] [--peer LIBRARY]\n", argv[0]);
      return 2;
    }
    if (option == "--elements") {
      most_elements = atoll(value);
    } else {
      (option == "--curand" ? curand_path : option == "--mkl" ? mkl : peer) = value;
    }
    index++;
  }
  int32_t kind = 0;
  char name[256];
  MUST(plinth_get_device_kind(&kind));
  on_gpu = kind == PLINTH_DEVICE_CUDA;
  if (!on_gpu) {
    // The library's threads inherit the affinity.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ZERO(sched_setaffinity(0, sizeof one, &one));
  }
  MUST(plinth_init());
  MUST(plinth_get_device_name(0, name, sizeof name));
  most_elements = most_elements > 0 ? most_elements : int64_t{1} << (on_gpu ? 28 : 21);
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_generator_create(0, &generator));
  const size_t bytes = std::max(static_cast<size_t>(most_elements) * 4, size_t{8} << (on_gpu ? 24 : 20));
  MUST(plinth_caching_allocator_alloc(bytes, 0, stream, &memory));
  const bool with_curand = on_gpu && open_curand(curand_path);
  if (!json) {
    printf("plinth %s on %s%s\n\n", plinth_version_string(), name, on_gpu ? "" : " (host device)");
    if (on_gpu && !with_curand) {
      printf("%s was not found: the cells of cuRAND are empty.\n\n", curand_path);
    }
  }
  large_fills(with_curand);
  if (!on_gpu && !json) {
    host_peers(mkl, peer);
  }
  small_fills(with_curand);
  permutations();
  MUST(plinth_stream_synchronize(stream));
  MUST(plinth_caching_allocator_delete(memory));
  MUST(plinth_generator_destroy(generator));
  return 0;
}
