// Measures kernels in CUDA C++ on the host device: a launch against a plain loop, and the time to compile one. With
// --cuda the kernels run on a GPU, for comparison.
//
//   host_kernels [--rounds N] [--cpu-time] [--cuda]
//
// Everything runs on one processor, the one on which the process starts, so that both columns of a row have the same
// resources: a launch would otherwise use all processors. A time is the median of N (9) rounds, in which launches and
// loops alternate. A launch includes the wait for its end. Results are compared; no time is an error.
// --cpu-time measures the processor time of the process, for a machine that runs other programs too.
//
// Compilations run in processes of their own, because the cache is configured once in a process.
// Build and run: `make bench`.
#include "attention.h"
#include "loops.h"
#include "sources.h"

#include "../measure.h"

#include <sched.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kCount = 1 << 18;
// The side of matrices, of the stencil's grid, and of Mandelbrot's image.
constexpr int kSide = 256, kGridSide = 512, kImageSide = 256, kSteps = 200;
constexpr int kThreads = 256, kRows = 2048, kHistogramBlocks = 64, kHistogramCount = 1 << 20, kGridBlocks = 4;
constexpr int kBarriers = 200;
constexpr int kCompilations = 5;
// Where more than this share of a result differs, it is wrong: sums are taken in another order.
constexpr double kTolerance = 2e-5;

int rounds = 9;
bool is_cpu_time;
bool is_cuda;
unsigned failures;

struct Extents {
  uint32_t x, y, z;
};

uint64_t volume(Extents extents) { return uint64_t(extents.x) * extents.y * extents.z; }

// An argument of a launch.
plinth_kernel_argument_t pointer(void *const &value) {
  return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_POINTER, 0};
}
plinth_kernel_argument_t integer(const int &value) {
  return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_INT32, 0};
}
plinth_kernel_argument_t number(const float &value) {
  return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_FLOAT32, 0};
}

class Kernel {
 public:
  Kernel(const char *source, const char *name, Extents grid, Extents block, uint32_t flags = 0,
         const char *option = nullptr)
      : threads_(volume(grid) * volume(block)) {
    const char *const options[] = {option, nullptr};
    MUST(plinth_compile_kernel(source, name, nullptr, nullptr, options, -1, &kernel_));
    launch_ = PLINTH_KERNEL_LAUNCH_INIT;
    const auto set = [](uint32_t *to, Extents from) { to[0] = from.x, to[1] = from.y, to[2] = from.z; };
    set(launch_.grid, grid);
    set(launch_.block, block);
    launch_.flags = flags;
  }
  ~Kernel() { MUST(plinth_kernel_destroy(kernel_)); }
  Kernel(const Kernel &) = delete;

  // Runs the kernel to its end.
  void run(const std::vector<plinth_kernel_argument_t> &arguments) const {
    MUST(plinth_kernel_launch(kernel_, &launch_, arguments.data(), arguments.size(), nullptr));
    MUST(plinth_stream_synchronize(nullptr));
  }
  double threads() const { return static_cast<double>(threads_); }

 private:
  plinth_kernel_t kernel_;
  plinth_kernel_launch_t launch_;
  uint64_t threads_;
};

double median(std::vector<double> times) {
  qsort(times.data(), times.size(), sizeof(double), ascending);
  return times[times.size() / 2];
}

double clock_ns() {
  if (!is_cpu_time) return now_ns();
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double timed(const std::function<void()> &work) {
  const double start = clock_ns();
  work();
  return clock_ns() - start;
}

// Memory of the plain loops, and what the kernels access in its place: on a GPU, memory of the device.
struct Mirror {
  void *host, *device;
  size_t bytes;
};
std::vector<Mirror> mirrors;

template <typename T> T *allocate(size_t count) {
  Mirror mirror = {nullptr, nullptr, count * sizeof(T)};
  MUST(plinth_pinned_malloc(mirror.bytes, &mirror.host));
  mirror.device = mirror.host;
  if (is_cuda) MUST(plinth_device_malloc(mirror.bytes, 0, &mirror.device));
  mirrors.push_back(mirror);
  return static_cast<T *>(mirror.host);
}

const Mirror &mirror_of(const void *host) {
  return *std::find_if(mirrors.begin(), mirrors.end(), [&](const Mirror &mirror) { return mirror.host == host; });
}

void *on_device(const void *host) { return mirror_of(host).device; }

void copy(void *to, const void *from, size_t bytes) {
  if (to != from) MUST(plinth_copy(to, from, bytes, false));
}

// Copies what the loops see to the device.
void upload() {
  for (const Mirror &mirror : mirrors) copy(mirror.device, mirror.host, mirror.bytes);
}

// Copies what the kernels have written to where the loops see it.
template <typename T> T *download(T *host) {
  const Mirror &mirror = mirror_of(host);
  copy(mirror.host, mirror.device, mirror.bytes);
  return host;
}

void check(bool holds, const char *name) {
  if (holds) return;
  fprintf(stderr, "%s: the kernel's result is not that of the plain loop\n", name);
  failures++;
}

template <typename T> bool is_close(const T *found, const T *expected, size_t count) {
  for (size_t at = 0; at < count; at++) {
    const double one = static_cast<double>(found[at]), other = static_cast<double>(expected[at]);
    // Written so that a NaN fails.
    if (!(std::abs(one - other) <= kTolerance * (1e-3 + std::abs(other)))) return false;
  }
  return true;
}

// Times a launch and a plain loop in turns and prints a row. `plain` has run once before.
void row(const char *name, const Kernel &kernel, const std::function<void()> &launch,
         const std::function<void()> &plain) {
  std::vector<double> launches, loops;
  launch();
  for (int round = 0; round < rounds; round++) {
    launches.push_back(timed(launch));
    loops.push_back(timed(plain));
  }
  const double one = median(launches) / kernel.threads(), other = median(loops) / kernel.threads();
  printf("| %s | %.0f | %.2f | %.2f | %.1f |\n", name, kernel.threads(), one, other, one / other);
  fflush(stdout);
}

// Returns what a compiler prints first when it is asked for its version.
std::string compiler() {
  const char *named = getenv("PLINTH_CXX"), *other = getenv("CXX");
  const std::string command = named && *named ? named : other && *other ? other : "c++";
  char line[200] = "";
  FILE *output = popen((command + " --version 2>&1").c_str(), "r");
  if (output) {
    if (!fgets(line, sizeof line, output)) line[0] = 0;
    pclose(output);
  }
  line[strcspn(line, "\n")] = 0;
  return line;
}

std::string processor() {
  char line[400];
  std::string name;
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file && name.empty() && fgets(line, sizeof line, file)) {
    const char *colon = strchr(line, ':');
    if (colon && strncmp(line, "model name", 10) == 0) name.assign(colon + 2, strcspn(colon + 2, "\n"));
  }
  if (file) fclose(file);
  utsname system;
  return name.empty() && uname(&system) == 0 ? system.machine : name;
}

void describe(int count, char **arguments) {
  char date[32];
  const time_t now = time(nullptr);
  strftime(date, sizeof date, "%Y-%m-%d", localtime(&now));
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  char device[256] = "";
  MUST(plinth_get_device_name(0, device, sizeof device));
  printf("%s, one of %ld processors, load %.1f, %s. Kernels: %s; plain loops: %s, -O2. Command: `", processor().c_str(),
         sysconf(_SC_NPROCESSORS_ONLN), load, date, is_cuda ? device : compiler().c_str(), "g++ " __VERSION__);
  for (int at = 0; at < count; at++) printf("%s%s", at == 0 ? "" : " ", arguments[at]);
  printf("`. Medians of %d%s.\n\n", rounds, is_cpu_time ? ", processor time" : "");
}

// The memory that the rows share. A loop's results are in `expected`.
struct Memory {
  float *x = allocate<float>(kRows * 256), *y = allocate<float>(kRows * 256);
  float *out = allocate<float>(kRows * 256), *expected = allocate<float>(kRows * 256);
  float *partial = allocate<float>(kGridBlocks);
  unsigned char *bytes = allocate<unsigned char>(kHistogramCount);
  unsigned *bins = allocate<unsigned>(256), *expected_bins = allocate<unsigned>(256);
  int *steps = allocate<int>(kImageSide * kImageSide), *expected_steps = allocate<int>(kImageSide * kImageSide);

  Memory() {
    uint32_t state = 1;
    const auto next = [&] { return state = state * 1664525 + 1013904223, state >> 8; };
    for (int at = 0; at < kRows * 256; at++) {
      x[at] = static_cast<float>(next()) / (1 << 22) - 1;
      y[at] = static_cast<float>(next()) / (1 << 24);
    }
    for (int at = 0; at < kHistogramCount; at++) bytes[at] = static_cast<unsigned char>(next() & next());
  }
};

void rows_without_barriers(const Memory &m) {
  const float factor = 2.5f;
  const int count = kCount, side = kSide, grid_side = kGridSide, image_side = kImageSide, steps = kSteps;
  void *const x = on_device(m.x), *const y = on_device(m.y), *const out = on_device(m.out);
  void *const image = on_device(m.steps);
  const Extents line = {kCount / kThreads, 1, 1}, threads = {kThreads, 1, 1}, square = {16, 16, 1};
  const auto check_floats = [&](const char *name, size_t count) { check(is_close(download(m.out), m.expected, count), name); };
  {
    const Kernel kernel(sources::kAdd, "add", line, threads);
    row("vector add", kernel, [&] { kernel.run({pointer(x), pointer(y), pointer(out), integer(count)}); },
        [&] { loops::add(m.x, m.y, m.expected, count); });
    check_floats("vector add", kCount);
  }
  {
    const Kernel kernel(sources::kSaxpy, "saxpy", line, threads);
    row("saxpy", kernel,
        [&] { kernel.run({number(factor), pointer(x), pointer(y), pointer(out), integer(count)}); },
        [&] { loops::saxpy(factor, m.x, m.y, m.expected, count); });
    check_floats("saxpy", kCount);
  }
  {
    const Kernel kernel(sources::kGelu, "gelu", line, threads);
    row("GELU, expf", kernel, [&] { kernel.run({pointer(x), pointer(out), integer(count)}); },
        [&] { loops::gelu(m.x, m.expected, count); });
    check_floats("GELU", kCount);
  }
  {
    const Kernel kernel(sources::kProduct, "product", {kSide / 16, kSide / 16, 1}, square);
    row("matrix product, 256x256", kernel, [&] { kernel.run({pointer(x), pointer(y), pointer(out), integer(side)}); },
        [&] { loops::product(m.x, m.y, m.expected, side); });
    check_floats("matrix product", kSide * kSide);
  }
  {
    const Kernel kernel(sources::kStencil, "stencil", {kGridSide / 32, kGridSide / 8, 1}, {32, 8, 1});
    row("stencil of 5 points, 512x512", kernel,
        [&] { kernel.run({pointer(x), pointer(out), integer(grid_side), integer(grid_side)}); },
        [&] { loops::stencil(m.x, m.expected, grid_side, grid_side); });
    check_floats("stencil", kGridSide * kGridSide);
  }
  {
    // Near the border of the set the rounding decides the number of steps, so products and sums must not be fused.
    const Kernel kernel(sources::kMandelbrot, "mandelbrot", {kImageSide / 16, kImageSide / 16, 1}, square, 0,
                        "-fmad=false");
    row("Mandelbrot, 200 steps", kernel, [&] { kernel.run({pointer(image), integer(image_side), integer(steps)}); },
        [&] { loops::mandelbrot(m.expected_steps, image_side, steps); });
    check(is_close(download(m.steps), m.expected_steps, kImageSide * kImageSide), "Mandelbrot");
  }
}

void rows_with_barriers(const Memory &m) {
  const int count = kCount, side = kSide, row_count = kRows, byte_count = kHistogramCount;
  void *const x = on_device(m.x), *const y = on_device(m.y), *const out = on_device(m.out);
  void *const bytes = on_device(m.bytes), *const bins = on_device(m.bins), *const partial = on_device(m.partial);
  const Extents line = {kCount / kThreads, 1, 1}, threads = {kThreads, 1, 1};
  const auto check_floats = [&](const char *name, size_t count) { check(is_close(download(m.out), m.expected, count), name); };
  {
    const Kernel kernel(sources::kReduction, "reduction", line, threads);
    row("reduction in shared memory", kernel, [&] { kernel.run({pointer(y), pointer(out)}); },
        [&] { loops::reduction(m.y, m.expected, count, kThreads); });
    check_floats("reduction", kCount / kThreads);
  }
  {
    const Kernel kernel(sources::kTiledProduct, "tiled_product", {kSide / 16, kSide / 16, 1}, {16, 16, 1});
    row("matrix product in tiles of 16x16", kernel,
        [&] { kernel.run({pointer(x), pointer(y), pointer(out), integer(side)}); },
        [&] { loops::product(m.x, m.y, m.expected, side); });
    check_floats("matrix product in tiles", kSide * kSide);
  }
  {
    const Kernel kernel(sources::kScan, "scan", line, threads);
    row("scan of each block", kernel, [&] { kernel.run({pointer(y), pointer(out)}); },
        [&] { loops::scan(m.y, m.expected, count, kThreads); });
    check_floats("scan", kCount);
  }
  {
    const Kernel kernel(sources::kSoftmax, "softmax", {kRows / 8, 1, 1}, threads);
    row("softmax of rows by shuffles", kernel, [&] { kernel.run({pointer(x), pointer(out), integer(row_count)}); },
        [&] { loops::softmax(m.x, m.expected, row_count); });
    check_floats("softmax", kRows * 256);
  }
  {
    const Kernel kernel(sources::kHistogram, "histogram", {kHistogramBlocks, 1, 1}, threads);
    const auto launch = [&] {
      MUST(plinth_memset(bins, 0, 256 * sizeof *m.bins, nullptr));
      kernel.run({pointer(bytes), pointer(bins), integer(byte_count)});
    };
    row("histogram by shared atomics", kernel, launch,
        [&] { loops::histogram(m.bytes, m.expected_bins, byte_count); });
    check(memcmp(download(m.bins), m.expected_bins, 256 * sizeof *m.bins) == 0, "histogram");
  }
  {
    const Kernel kernel(sources::kGridReduction, "grid_reduction", {kGridBlocks, 1, 1}, threads,
                        PLINTH_LAUNCH_COOPERATIVE);
    row("reduction of the grid, cooperative", kernel,
        [&] { kernel.run({pointer(y), pointer(partial), pointer(out), integer(count)}); },
        [&] { loops::sum(m.y, m.expected, count); });
    // A single sum of so many numbers is itself inexact.
    check(std::abs(download(m.out)[0] - m.expected[0]) <= 1e-3f * m.expected[0], "reduction of the grid");
  }
}

// Prints what the parts of a launch cost.
void costs(const Memory &m) {
  void *const out = on_device(m.out);
  const int count = kBarriers;
  const auto cost = [&](const Kernel &kernel, const std::vector<plinth_kernel_argument_t> &arguments) {
    std::vector<double> times;
    kernel.run(arguments);
    for (int round = 0; round < rounds; round++) times.push_back(timed([&] { kernel.run(arguments); }));
    return median(times);
  };
  const Extents one = {1, 1, 1}, threads = {kThreads, 1, 1}, blocks = {16, 1, 1};
  const Kernel empty(sources::kEmpty, "empty", one, one);
  const Kernel barriers(sources::kBarriers, "barriers", blocks, threads);
  const Kernel warp_barriers(sources::kWarpBarriers, "warp_barriers", blocks, threads);
  const Kernel shuffles(sources::kShuffles, "shuffles", blocks, threads);
  printf("\n| part of a launch | ns |\n|---|---|\n");
  printf("| launch of one thread, and the wait for its end | %.0f |\n", cost(empty, {}));
  printf("| __syncthreads, for each of %d threads | %.1f |\n", kThreads,
         cost(barriers, {integer(count)}) / barriers.threads() / kBarriers);
  printf("| __syncwarp, for each thread | %.1f |\n",
         cost(warp_barriers, {integer(count)}) / warp_barriers.threads() / kBarriers);
  printf("| __shfl_xor_sync, for each thread | %.1f |\n",
         cost(shuffles, {pointer(out), integer(count)}) / shuffles.threads() / kBarriers);
}

// ---- compilation

// Compiles the attention kernel, runs it if `is_checked`, and prints the nanoseconds of the compilation.
int compile(bool is_checked) {
  MUST(plinth_stream_synchronize(nullptr));
  plinth_kernel_t kernel;
  const double start = now_ns();
  MUST(plinth_compile_kernel(sources::kAttention, "attention<true>", nullptr, nullptr, nullptr, -1, &kernel));
  printf("%.0f\n", now_ns() - start);
  if (!is_checked) return 0;
  // Equal keys have equal weights, so that a row of a causal result is the mean of the values so far. The values are 0
  // in even rows and 1 in odd ones.
  constexpr int kHeads = 2, kLength = 70, kWidth = 64;
  constexpr uint16_t kOne = 0x3c00, kQuarter = 0x3400;
  const size_t size = kHeads * kLength * kWidth;
  uint16_t *query = allocate<uint16_t>(size), *key = allocate<uint16_t>(size), *value = allocate<uint16_t>(size);
  uint16_t *out = allocate<uint16_t>(size);
  float *logarithms = allocate<float>(kHeads * kLength);
  unsigned *counter = allocate<unsigned>(1);
  *counter = 0;
  for (size_t at = 0; at < size; at++) {
    query[at] = key[at] = kQuarter;
    value[at] = at / kWidth % kLength % 2 == 1 ? kOne : 0;
  }
  struct Shape {
    int heads, length;
    float scale;
    bool is_causal;
  } shape = {kHeads, kLength, 0.125f, true};
  upload();
  void *const pointers[] = {on_device(query), on_device(key),        on_device(value),
                            on_device(out),   on_device(logarithms), on_device(counter)};
  const plinth_kernel_argument_t shape_argument = {sizeof(plinth_kernel_argument_t), &shape, sizeof shape,
                                                   PLINTH_ARGUMENT_BYTES, 0};
  const plinth_kernel_argument_t arguments[] = {pointer(pointers[0]), pointer(pointers[1]), pointer(pointers[2]),
                                                pointer(pointers[3]), pointer(pointers[4]), shape_argument,
                                                pointer(pointers[5])};
  plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  launch.grid[0] = (kLength + 3) / 4;
  launch.grid[1] = kHeads;
  launch.block[0] = 128;
  MUST(plinth_kernel_launch(kernel, &launch, arguments, 7, nullptr));
  MUST(plinth_stream_synchronize(nullptr));
  check(*download(counter) == 0, "attention");
  download(out);
  download(logarithms);
  for (int at = 0; at < kHeads * kLength; at++) {
    const int seen = at % kLength + 1;
    const double mean = double(seen / 2) / seen;
    const uint16_t bits = out[size_t(at) * kWidth + 7];
    // The results are 0 or normal numbers of 16 bits.
    const double found = bits == 0 ? 0 : std::ldexp(1024 + (bits & 1023), (bits >> 10) - 25);
    check(std::abs(found - mean) < 1e-3, "attention");
    check(std::abs(logarithms[at] - (0.5 + std::log(seen))) < 1e-4, "the logarithms of attention");
  }
  return failures == 0 ? 0 : 1;
}

// Runs this program's `argument` with a setting of the cache. Returns the milliseconds that it prints.
double compile_in_child(const char *setting, const char *argument) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return NAN;
  program[length] = 0;
  const std::string command = std::string(setting) + " '" + program + (is_cuda ? "' --cuda " : "' ") + argument;
  FILE *output = popen(command.c_str(), "r");
  double nanoseconds = NAN;
  if (!output || fscanf(output, "%lf", &nanoseconds) != 1) nanoseconds = NAN;
  if (!output || pclose(output) != 0) check(false, "the compilation");
  return nanoseconds / 1e6;
}

void compilations() {
  char folder[] = "/tmp/plinth_host_kernels_XXXXXX";
  if (!mkdtemp(folder)) return check(false, "a folder for the cache");
  const std::string cached = std::string("PLINTH_USE_KERNEL_CACHE=1 PLINTH_KERNEL_CACHE_PATH=") + folder;
  std::vector<double> compiled, found;
  compile_in_child("PLINTH_USE_KERNEL_CACHE=0", "--compile-and-check");
  compile_in_child(cached.c_str(), "--compile");
  for (int round = 0; round < kCompilations; round++) {
    compiled.push_back(compile_in_child("PLINTH_USE_KERNEL_CACHE=0", "--compile"));
    found.push_back(compile_in_child(cached.c_str(), "--compile"));
  }
  const auto [least, most] = std::minmax_element(compiled.begin(), compiled.end());
  printf("\n| plinth_compile_kernel of %d lines, ms | median of %d | least to most |\n|---|---|---|\n",
         static_cast<int>(std::count(std::begin(sources::kAttention), std::end(sources::kAttention), '\n')),
         kCompilations);
  printf("| without the cache | %.0f | %.0f to %.0f |\n", median(compiled), *least, *most);
  const auto [soonest, latest] = std::minmax_element(found.begin(), found.end());
  printf("| from the cache | %.1f | %.1f to %.1f |\n", median(found), *soonest, *latest);
  check(system((std::string("rm -r ") + folder).c_str()) == 0, "the folder of the cache");
}

}  // namespace

int main(int count, char **arguments) {
  // Before the first call of plinth, which counts the processors.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(std::max(sched_getcpu(), 0)), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) {
    perror("sched_setaffinity");
    return 1;
  }
  is_cuda = std::find(arguments + 1, arguments + count, std::string("--cuda")) != arguments + count;
  setenv("PLINTH_DEVICE", is_cuda ? "cuda" : "host", 1);
  for (int at = 1; at < count; at++) {
    const std::string option = arguments[at];
    if (option == "--compile" || option == "--compile-and-check") {
      return compile(option != "--compile");
    } else if (option == "--rounds" && at + 1 < count) {
      rounds = std::max(atoi(arguments[++at]), 1);
    } else if (option == "--cpu-time") {
      is_cpu_time = true;
    } else if (option != "--cuda") {
      fprintf(stderr, "usage: host_kernels [--rounds N] [--cpu-time] [--cuda]\n");
      return 2;
    }
  }
  const Memory memory;
  upload();
  describe(count, arguments);
  printf("| kernel | threads | ns per thread | plain loop, ns per thread | ratio |\n|---|---|---|---|---|\n");
  rows_without_barriers(memory);
  rows_with_barriers(memory);
  costs(memory);
  compilations();
  return failures == 0 ? 0 : 1;
}
