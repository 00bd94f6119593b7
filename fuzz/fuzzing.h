// What the fuzzers share: checks that report and save a failing input, and the program that replays files and generates
// inputs from seeds.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <plinth.h>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

// Whether the program is compiled with a sanitizer. gcc defines a macro; clang has __has_feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;

bool verbose;
std::vector<std::string> calls;

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (verbose) {
    fprintf(stderr, "  %s\n", line);
  }
  calls.emplace_back(line);
}

// For saving a failing input. libFuzzer saves it itself.
const uint8_t *input;
size_t input_bytes;
const char *save_to;
std::string input_name;

// Saves the input. Called from a handler of fatal signals, too: it is not async-signal-safe, but the process cannot continue
// anyway.
void save_input() {
  if (save_to != nullptr) {
    std::ofstream(save_to, std::ios::binary).write(reinterpret_cast<const char *>(input), static_cast<long>(input_bytes));
    fprintf(stderr, "the input was saved as %s\n", save_to);
  }
  fflush(stderr);
}

[[noreturn]] void fail(int line, const std::string &what) {
  fprintf(stderr, "%s: the calls were:\n", input_name.c_str());
  for (const std::string &call : calls) {
    fprintf(stderr, "  %s\n", call.c_str());
  }
  fprintf(stderr, "line %d: %s\nthe last error message is \"%s\"\n", line, what.c_str(), plinth_last_error());
  save_input();
  signal(SIGABRT, SIG_DFL);
  abort();
}

#define CHECK(condition) ((condition) ? void() : fail(__LINE__, "CHECK(" #condition ") does not hold"))
#define CHECK_STATUS(call, expected)                                                                     \
  do {                                                                                                   \
    const plinth_status_t status_ = (call);                                                              \
    if (status_ != (expected)) {                                                                         \
      fail(__LINE__, std::string(#call ": ") + plinth_status_name(status_) + " instead of " + #expected); \
    }                                                                                                    \
  } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, PLINTH_OK)
#define CHECK_EQ(actual, expected)                                                                                  \
  do {                                                                                                              \
    const size_t actual_ = (actual), expected_ = (expected);                                                        \
    if (actual_ != expected_) {                                                                                     \
      fail(__LINE__, #actual ": " + std::to_string(actual_) + " instead of " #expected ", " + std::to_string(expected_)); \
    }                                                                                                               \
  } while (0)

// Reads the input; beyond its end all bytes are 0.
struct Bytes {
  const uint8_t *at, *end;
  bool empty() const { return at == end; }
  unsigned byte() { return at < end ? *at++ : 0; }
  size_t word() {
    const unsigned high = byte();
    return high << 8 | byte();
  }
};

#ifndef FUZZER

// Generates an input of so many bytes from a seed.
std::vector<uint8_t> generate(uint64_t seed, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t &byte : bytes) {
    uint64_t mixed = seed += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    byte = static_cast<uint8_t>(mixed >> 56);
  }
  return bytes;
}

// Reports a signal that ends the process: SIGALRM, because a call does not return, or a crash.
void die(int number) {
  signal(number, SIG_DFL);
  if (number == SIGALRM) {
    fail(__LINE__, "a call does not return");
  }
  fprintf(stderr, "%s: signal %d; the calls were:\n", input_name.c_str(), number);
  for (const std::string &call : calls) {
    fprintf(stderr, "  %s\n", call.c_str());
  }
  save_input();
  raise(number);
}

size_t replayed_files;

// Replays the files and the generated inputs that the arguments name. Returns the number of generated ones. `size` is the
// size in bytes of a seed's input.
uint64_t replay_and_generate(int argc, char **argv, void (*run)(const uint8_t *, size_t), size_t (*size)(uint64_t)) {
  uint64_t first = 0, count = 0, done = 0;
  double max_seconds = 1e9;
  std::vector<std::string> files;
  for (int index = 1; index < argc; index++) {
    const std::string argument = argv[index];
    if (argument == "--verbose") {
      verbose = true;
    } else if (argument == "--seeds" && index + 2 < argc) {
      first = strtoull(argv[++index], nullptr, 10);
      count = strtoull(argv[++index], nullptr, 10);
    } else if (argument == "--seconds" && index + 1 < argc) {
      max_seconds = atof(argv[++index]);
    } else if (argument == "--save" && index + 1 < argc) {
      save_to = argv[++index];
    } else if (argument[0] == '-') {
      fprintf(stderr, "usage: %s [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]\n", argv[0]);
      exit(2);
    } else {
      files.push_back(argument);
    }
  }
  signal(SIGALRM, die);
  // A sanitizer reports the others itself.
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    if (!SANITIZED) {
      signal(number, die);
    }
  }
  for (const std::string &name : files) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
      fprintf(stderr, "%s cannot be read\n", name.c_str());
      exit(2);
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    input_name = name;
    run(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    replayed_files++;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + count; seed++, done++) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > max_seconds) {
      break;
    }
    const std::vector<uint8_t> bytes = generate(seed, size(seed));
    input_name = "seed " + std::to_string(seed);
    if (verbose) {
      fprintf(stderr, "%s\n", input_name.c_str());
    }
    run(bytes.data(), bytes.size());
  }
  return done;
}

#endif

}  // namespace
