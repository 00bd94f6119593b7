// What the kinds of hostile inputs share: numbers at boundaries, the check of each status, and memory that tensors and
// handles may name.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "fuzzing.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace {

constexpr int32_t DEVICES = 2;
constexpr size_t BLOCK = 64 * KIB;

// Allocated memory of one kind, `BLOCK` bytes.
struct Memory {
  int32_t device_type, device;
  unsigned char *begin;

  DLDevice dl_device() const { return {static_cast<decltype(DLDevice::device_type)>(device_type), device}; }
};

std::vector<Memory> memories;

plinth_status_t last_status;

// Checks that a call with hostile arguments returned a status that is allowed for them, with a message.
plinth_status_t expect(int line, plinth_status_t status) {
  last_status = status;
  if (status == PLINTH_OK) {
    return status;
  }
  if (status < 0 || status >= plinth_status_count() || status == PLINTH_ERROR_PANIC ||
      status == PLINTH_ERROR_ILLEGAL_ADDRESS || status == PLINTH_ERROR_LAUNCH_FAILED) {
    fail(line, std::string("a hostile argument led to ") + plinth_status_name(status));
  }
  if (plinth_last_error()[0] == 0) {
    fail(line, std::string(plinth_status_name(status)) + " has no message");
  }
  return status;
}

#define EXPECT(call) expect(__LINE__, (call))

// A call that must fail.
void expect_failure(int line, plinth_status_t status, const char *name) {
  if (expect(line, status) == PLINTH_OK) {
    fail(line, std::string(name) + " accepted what it must refuse");
  }
}

struct Reader : Bytes {
  bool one_in(unsigned count) { return byte() % count == 0; }
  uint64_t wide() {
    uint64_t number = 0;
    for (int index = 0; index < 8; index++) {
      number = number << 8 | byte();
    }
    return number;
  }
  // A number at a boundary, or a random one of random length.
  uint64_t number() {
    static const uint64_t numbers[] = {0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 4095, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                       0x100000000, UINT64_C(1) << 47, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 1,
                                       UINT64_MAX, UINT64_MAX - 4095};
    const unsigned choice = byte();
    return choice % 3 == 0 ? wide() >> choice % 64 : numbers[choice % (sizeof numbers / sizeof numbers[0])];
  }
  int32_t device() {
    const unsigned choice = byte();
    return choice % 4 == 0 ? static_cast<int32_t>(number()) : static_cast<int32_t>(choice % 5) - 1;
  }
  double real() {
    static const double numbers[] = {0, -0.0, 1, -1, 0.5, 1e-300, 1e300, -1e300, 2, 1.0000001};
    const unsigned choice = byte() % 13;
    if (choice < 10) {
      return numbers[choice];
    }
    return choice == 10 ? __builtin_nan("") : choice == 11 ? __builtin_inf() : -__builtin_inf();
  }
};

// Changes some bytes: flips bits, writes numbers at boundaries, copies parts, changes the length.
void mutate(Reader &in, std::vector<uint8_t> &bytes) {
  for (unsigned count = in.byte() % 4; count > 0 && !bytes.empty(); count--) {
    const size_t at = in.word() % bytes.size();
    switch (in.byte() % 8) {
      case 0:
      case 1: bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1u << in.byte() % 8); break;
      case 2: bytes[at] = static_cast<uint8_t>(in.byte()); break;
      case 3:
      case 4:
      case 5: {
        const uint64_t number = in.number();
        const size_t aligned = at / 8 * 8;
        memcpy(&bytes[aligned], &number, std::min<size_t>(8, bytes.size() - aligned));
        break;
      }
      case 6: {
        const size_t from = in.word() % bytes.size(), most = bytes.size() - std::max(at, from);
        memmove(&bytes[at], &bytes[from], std::min<size_t>(most, in.byte()));
        break;
      }
      default: bytes.resize(in.one_in(2) ? at : bytes.size() + in.byte());
    }
  }
}

// Numbers of hostile inputs by kind, and how many of them were accepted.
struct Count {
  const char *name;
  unsigned long long inputs, accepted;
};

enum Kind { MESSAGES, TENSORS, HANDLES, SETTINGS, STATES, KINDS };
Count counts[KINDS] = {{"messages", 0, 0}, {"tensors", 0, 0}, {"handles", 0, 0}, {"settings", 0, 0}, {"states", 0, 0}};

}  // namespace
