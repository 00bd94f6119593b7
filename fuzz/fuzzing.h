// What the fuzzers share: checks that report and save a failing input, and the program that replays files and generates
// inputs from seeds.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <plinth.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
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
std::string input_name;
std::vector<std::string> calls;

// In a long run, the last calls, which are formatted only if one fails.
struct Note {
  void (*format_to)(const Note &, char *line, size_t size);
  const char *format;
  alignas(8) unsigned char arguments[240];
};

constexpr size_t NOTES = 2048;
bool is_noted_later;
Note notes[NOTES];
uint64_t note_count;

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
  char line[sizeof Note::arguments];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (verbose) {
    fprintf(stderr, "  %s\n", line);
  }
  if (!is_noted_later) {
    calls.emplace_back(line);
    return;
  }
  Note &entry = notes[note_count++ % NOTES];
  memcpy(entry.arguments, line, sizeof line);
  entry.format_to = [](const Note &one, char *to, size_t size) {
    memcpy(to, one.arguments, std::min(size, sizeof one.arguments));
  };
}

// Notes a call; in a long run, keeps its arguments. What strings point to must stay.
template <typename... Arguments> void note_call(const char *format, Arguments... arguments) {
  if (!is_noted_later || verbose) {
    note(format, arguments...);
    return;
  }
  using Tuple = std::tuple<Arguments...>;
  static_assert(sizeof(Tuple) <= sizeof Note::arguments && std::is_trivially_copy_constructible_v<Tuple>);
  Note &entry = notes[note_count++ % NOTES];
  entry.format = format;
  new (entry.arguments) Tuple(arguments...);
  entry.format_to = [](const Note &one, char *to, size_t size) {
    std::apply([&](auto... each) { snprintf(to, size, one.format, each...); },
               *reinterpret_cast<const Tuple *>(one.arguments));
  };
}

void print_calls() {
  fprintf(stderr, "%s: the calls were:\n", input_name.c_str());
  for (const std::string &call : calls) {
    fprintf(stderr, "  %s\n", call.c_str());
  }
  for (uint64_t index = note_count > NOTES ? note_count - NOTES : 0; index < note_count; index++) {
    char line[sizeof Note::arguments];
    notes[index % NOTES].format_to(notes[index % NOTES], line, sizeof line);
    fprintf(stderr, "  %s\n", line);
  }
}

// For saving a failing input. libFuzzer saves it itself.
const uint8_t *input;
size_t input_bytes;
const char *save_to;

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
  print_calls();
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
  fprintf(stderr, "signal %d\n", number);
  print_calls();
  save_input();
  raise(number);
}

size_t replayed_files;
double max_seconds = 1e9;

// Handles an option of one program, with its value; returns false for another option.
bool (*program_option)(const std::string &name, const char *value);

// Replays the files and the generated inputs that the arguments name. Returns the number of generated ones. `size` is the
// size in bytes of a seed's input.
uint64_t replay_and_generate(int argc, char **argv, void (*run)(const uint8_t *, size_t), size_t (*size)(uint64_t)) {
  uint64_t first = 0, count = 0, done = 0;
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
    } else if (program_option != nullptr && index + 1 < argc && program_option(argument, argv[index + 1])) {
      index++;
    } else if (argument[0] == '-') {
      fprintf(stderr, "usage: %s [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose]%s [FILE...]\n", argv[0],
              program_option != nullptr ? " [--calls COUNT] [--seed FIRST] [--check-every CALLS]" : "");
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
