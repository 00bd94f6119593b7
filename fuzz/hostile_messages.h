// Hostile messages about memory and events of other processes: valid messages of another process, changed in their bytes
// and descriptors, with a correct checksum or a wrong one, through sockets and as bytes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hostile.h"

#include <sys/syscall.h>

namespace {

constexpr size_t HEADER = 256, CHUNK = 16;

// A message of another process.
struct Message {
  std::vector<uint8_t> bytes;
  std::vector<int> descriptors;
};

std::vector<Message> messages;
std::vector<std::vector<uint8_t>> memory_handles, event_handles;

enum Shared { BLOCK_MESSAGE, MEMORY_HANDLE, EVENT_HANDLE };

void send_bytes(int socket, const void *bytes, size_t size, const int *descriptors, size_t count) {
  char space[CMSG_SPACE(64 * sizeof(int))] = {};
  iovec part = {const_cast<void *>(bytes), size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  }
  // A socket that is full or closed is one more hostile peer.
  (void)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void share(int socket, Shared kind, const void *bytes, size_t size, const int *descriptors, size_t count) {
  const uint32_t head[3] = {kind, static_cast<uint32_t>(size), static_cast<uint32_t>(count)};
  send_bytes(socket, head, sizeof head, descriptors, count);
  send_bytes(socket, bytes, size, nullptr, 0);
}

// The process whose memory is shared. It lives as long as the other end of the socket.
[[noreturn]] void export_memory(int socket) {
  for (const size_t bytes : {size_t{1000}, 5 * MIB, 9 * MIB, size_t{1000}}) {
    void *block = nullptr;
    plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
    if (plinth_caching_allocator_alloc(bytes, 0, nullptr, &block) != PLINTH_OK ||
        plinth_ipc_export(block, &message) != PLINTH_OK || message.descriptor_count > 64) {
      _exit(1);
    }
    share(socket, BLOCK_MESSAGE, message.bytes, message.size, message.descriptors, message.descriptor_count);
  }
  for (int32_t device = 0; device < DEVICES; device++) {
    uint8_t handle[PLINTH_IPC_MEM_HANDLE_SIZE];
    void *memory = nullptr;
    size_t offset = 0;
    if (plinth_device_malloc(3 * MIB, device, &memory) == PLINTH_OK &&
        plinth_ipc_mem_handle(memory, handle, &offset) == PLINTH_OK) {
      share(socket, MEMORY_HANDLE, handle, sizeof handle, nullptr, 0);
    }
    plinth_event_t event = nullptr;
    uint8_t event_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
    if (plinth_set_device(device) == PLINTH_OK && plinth_event_create(PLINTH_EVENT_INTERPROCESS, &event) == PLINTH_OK &&
        plinth_event_record(event, nullptr) == PLINTH_OK && plinth_event_ipc_handle(event, event_handle) == PLINTH_OK) {
      share(socket, EVENT_HANDLE, event_handle, sizeof event_handle, nullptr, 0);
    }
  }
  shutdown(socket, SHUT_WR);
  char end = 0;
  while (read(socket, &end, 1) > 0) {
  }
  _exit(0);
}

// Starts the other process, and receives what it shares. Call it before the first use of the library.
void prepare_messages() {
  int sockets[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  fflush(nullptr);
  if (fork() == 0) {
    close(sockets[0]);
    export_memory(sockets[1]);
  }
  close(sockets[1]);
  for (;;) {
    uint32_t head[3];
    char space[CMSG_SPACE(64 * sizeof(int))] = {};
    iovec part = {head, sizeof head};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (recvmsg(sockets[0], &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof head)) {
      break;
    }
    Message received;
    received.descriptors.resize(head[2]);
    if (head[2] > 0) {
      memcpy(received.descriptors.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), head[2] * sizeof(int));
    }
    received.bytes.resize(head[1]);
    CHECK(recv(sockets[0], received.bytes.data(), head[1], MSG_WAITALL) == static_cast<ssize_t>(head[1]));
    switch (head[0]) {
      case BLOCK_MESSAGE: messages.push_back(received); break;
      case MEMORY_HANDLE: memory_handles.push_back(received.bytes); break;
      default: event_handles.push_back(received.bytes);
    }
  }
  // The socket stays open, so that the other process lives.
  CHECK(!messages.empty() && !memory_handles.empty() && !event_handles.empty());
}

// The checksum of a header: its last eight bytes.
void correct_checksum(std::vector<uint8_t> &bytes) {
  if (bytes.size() < HEADER) {
    return;
  }
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t index = 0; index < HEADER - 8; index++) {
    sum = (sum ^ bytes[index]) * UINT64_C(0x100000001b3);
  }
  memcpy(&bytes[HEADER - 8], &sum, 8);
}

// A memory file of the name that the host device uses, whose header is a forgery with a correct checksum.
int forged_memory(Reader &in) {
  const int file = static_cast<int>(syscall(SYS_memfd_create, "plinth-host-memory", 1u));
  const uint64_t granule = 2 * MIB, at = in.byte() % 4 * granule;
  uint64_t words[5] = {0, at + granule, granule, 0, UINT64_C(0x9e3779b97f4a7c15)};
  memcpy(words, "plinthMF", 8);
  words[1 + in.byte() % 3] = in.number();
  for (int index = 0; index < 4; index++) {
    const uint64_t mixed = words[4] ^ words[index];
    words[4] = (mixed << 23 | mixed >> 41) * UINT64_C(0x2545f4914f6cdd1d);
  }
  if (ftruncate(file, static_cast<off_t>(in.byte() % 3 * 4 * granule)) == 0) {
    (void)!pwrite(file, words, sizeof words, static_cast<off_t>(at));
    (void)lseek(file, static_cast<off_t>(at), SEEK_SET);
  }
  return file;
}

// Replaces some descriptors. Those that are made here are added to `made`.
void mutate_descriptors(Reader &in, std::vector<int> &descriptors, std::vector<int> &made) {
  for (unsigned count = in.byte() % 3; count > 0 && !descriptors.empty(); count--) {
    const size_t at = in.byte() % descriptors.size();
    int other = -1;
    switch (in.byte() % 10) {
      case 0: other = open("/dev/null", O_RDWR | O_CLOEXEC); break;
      case 1: other = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC); break;
      case 2: {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        made.push_back(ends[1]);
        other = ends[0];
        break;
      }
      case 3: other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); break;
      case 4:
      case 5: other = forged_memory(in); break;
      case 6: descriptors[at] = descriptors[in.byte() % descriptors.size()]; continue;
      case 7: descriptors.erase(descriptors.begin() + static_cast<long>(at)); continue;
      case 8: {
        const auto &another = messages[in.byte() % messages.size()].descriptors;
        descriptors[at] = another[in.byte() % another.size()];
        continue;
      }
      default: other = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    }
    made.push_back(other);
    descriptors[at] = other;
  }
}

// Uses what a message led to: all of it must lie in mapped memory of the device.
void close_received(plinth_ipc_memory_t &memory) {
  int32_t device = -1;
  CHECK(memory.size > 0);
  const auto *last = static_cast<unsigned char *>(memory.pointer) + (memory.size - 1);
  CHECK_OK(plinth_device_of(memory.pointer, &device));
  CHECK_EQ(device, memory.device);
  device = -1;
  CHECK_OK(plinth_device_of(last, &device));
  CHECK_EQ(device, memory.device);
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

Message hostile_message(Reader &in, std::vector<int> &made) {
  Message message = messages[in.byte() % messages.size()];
  const unsigned how = in.byte();
  if (how % 8 != 0) {
    mutate(in, message.bytes);
  }
  if (how % 5 == 0 && !message.bytes.empty()) {
    // Another part of a valid message, or a chunk that is larger than its memory.
    const Message &other = messages[in.byte() % messages.size()];
    const size_t at = in.byte() % message.bytes.size() / 8 * 8;
    const size_t most = std::min(message.bytes.size(), other.bytes.size());
    if (at < most) {
      memcpy(&message.bytes[at], &other.bytes[at], std::min<size_t>(8 * (1 + in.byte() % 8), most - at));
    }
  }
  if (how % 16 != 1) {
    correct_checksum(message.bytes);
  }
  if (how % 4 >= 2) {
    mutate_descriptors(in, message.descriptors, made);
  }
  return message;
}

void import_message(Reader &in) {
  std::vector<int> made;
  Message message = hostile_message(in, made);
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  if (in.one_in(16) && !message.descriptors.empty()) {
    message.descriptors[in.byte() % message.descriptors.size()] = static_cast<int>(in.number());
  }
  if (in.one_in(32)) {
    // A caller with an older or a newer struct: it has the pointer at least.
    memory.struct_size = std::max<size_t>(in.number(), offsetof(plinth_ipc_memory_t, size));
  }
  note("import of %zu bytes, %zu descriptors", message.bytes.size(), message.descriptors.size());
  const std::vector<int32_t> descriptors(message.descriptors.begin(), message.descriptors.end());
  if (EXPECT(plinth_ipc_import(message.bytes.data(), message.bytes.size(), descriptors.data(), descriptors.size(),
                               in.one_in(4) ? in.device() : -1, &memory)) == PLINTH_OK) {
    if (memory.struct_size == sizeof memory) {
      close_received(memory);
    } else {
      CHECK_OK(plinth_ipc_close(memory.pointer));
    }
  }
  for (const int descriptor : made) {
    close(descriptor);
  }
}

void receive_message(Reader &in) {
  std::vector<int> made;
  const Message message = hostile_message(in, made);
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  int sockets[2];
  const int type = in.one_in(2) ? SOCK_STREAM : SOCK_SEQPACKET;
  CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) == 0);
  note("receive of %zu bytes, %zu descriptors, socket type %d", message.bytes.size(), message.descriptors.size(), type);
  const size_t head = std::min(message.bytes.size(), HEADER);
  const size_t one = std::min<size_t>(message.descriptors.size(), in.one_in(8) ? in.byte() % 4 : 1);
  send_bytes(sockets[0], message.bytes.data(), head, message.descriptors.data(), one);
  if (message.bytes.size() > head) {
    send_bytes(sockets[0], &message.bytes[head], message.bytes.size() - head, message.descriptors.data() + one,
               message.descriptors.size() - one);
  }
  if (in.one_in(8)) {
    uint8_t rest[64];
    for (uint8_t &byte : rest) {
      byte = static_cast<uint8_t>(in.byte());
    }
    send_bytes(sockets[0], rest, sizeof rest, nullptr, 0);
  }
  close(sockets[0]);
  if (EXPECT(plinth_ipc_receive(sockets[1], in.one_in(4) ? in.device() : -1, &memory)) == PLINTH_OK) {
    close_received(memory);
  }
  close(sockets[1]);
  for (const int descriptor : made) {
    close(descriptor);
  }
}

void open_handle(Reader &in) {
  const bool is_memory = in.one_in(2);
  const auto &all = is_memory ? memory_handles : event_handles;
  std::vector<uint8_t> handle = all[in.byte() % all.size()];
  const size_t size = handle.size();
  if (!in.one_in(8)) {
    mutate(in, handle);
  }
  handle.resize(size);
  note("opening a handle of %s", is_memory ? "memory" : "an event");
  if (is_memory) {
    void *pointer = nullptr;
    if (EXPECT(plinth_ipc_open_mem_handle(in.device(), handle.data(), &pointer)) == PLINTH_OK) {
      CHECK_OK(plinth_ipc_close_mem_handle(pointer));
    }
  } else {
    plinth_event_t event = nullptr;
    if (EXPECT(plinth_event_from_ipc_handle(in.device(), handle.data(), &event)) == PLINTH_OK) {
      const plinth_status_t opened = last_status;
      bool done = false;
      EXPECT(plinth_event_query(event, &done));
      CHECK_OK(plinth_event_destroy(event));
      last_status = opened;
    }
  }
}

void one_message(Reader &in) {
  switch (in.byte() % 8) {
    case 0:
    case 1:
    case 2: import_message(in); break;
    case 3:
    case 4: receive_message(in); break;
    case 5:
    case 6: open_handle(in); break;
    default: {
      uint8_t id[256] = {};
      memcpy(id, "plinth group 1\0\0", in.one_in(2) ? 16 : 8);
      for (int index = 0; index < 128; index++) {
        id[in.byte() % 128] = static_cast<uint8_t>(in.byte());
      }
      id[127] = 1;  // never a valid id, because a valid one would be waited for
      plinth_communicator_t communicator = nullptr;
      note("joining a group with a random id");
      expect_failure(__LINE__, plinth_communicator_init_rank(static_cast<int32_t>(2 + in.byte() % 4), id, in.byte() % 3,
                                                             in.device(), nullptr, &communicator),
                     "plinth_communicator_init_rank");
    }
  }
}

}  // namespace
