// Memory shared between the processes of a run, and messages that no library sent.
//
// Each process listens at a Unix socket in the run's folder. A sender connects, sends a block, then its tag, and frees the
// block. The receiver maps the block, checks it, and holds it for a while.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

constexpr int HELD = 16;

struct Trailer {
  uint64_t bytes;
  uint32_t tag, stamped;
};

inline sockaddr_un address_of(int slot) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%.90s/%d", options.folder.c_str(), slot);
  return address;
}

inline void limit_waits(int socket) {
  const timeval limit{0, 500000};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Connects to a process; -1 if it does not listen, and if this process has no descriptor left.
inline int connect_to(int slot) {
  const int connected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(slot);
  if (connected == -1) {
    return -1;
  }
  if (connect(connected, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
    close(connected);
    return -1;
  }
  fcntl(connected, F_SETFL, 0);
  limit_waits(connected);
  return connected;
}

// Listens as a process; -1 if it has no descriptor left.
inline int listen_as(int slot) {
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(slot);
  unlink(address.sun_path);
  if (listening != -1 && (bind(listening, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
                          listen(listening, 16) != 0)) {
    fail("cannot listen at %s: %s", address.sun_path, strerror(errno));
  }
  return listening;
}

// ---- sending

inline void send_memory(Worker &worker) {
  const int receiver = static_cast<int>(worker.random.below(static_cast<uint64_t>(options.processes)));
  if (receiver == life.slot) {
    return;
  }
  with_slot(worker, true, [&](Slot &slot) {
    Block &block = slot.block;
    if (block.foreign) {
      return;
    }
    begin(OP_send_memory, reinterpret_cast<uint64_t>(block.memory), static_cast<uint64_t>(receiver));
    const plinth_stream_t stream = named(streams[block.device][block.stream], block.device);
    const int connected = connect_to(receiver);
    if (connected == -1 || !TRY(plinth_set_stream_of(block.device, stream))) {
      if (connected != -1) {
        close(connected);
      }
      return;
    }
    // The receiver may end, be killed, or be paused at any time; a limit of descriptors may strike any process.
    if (TRY(plinth_ipc_send(connected, block.memory),
            {PLINTH_ERROR_IPC_PEER_GONE, PLINTH_ERROR_SYSTEM, PLINTH_ERROR_TIMED_OUT, PLINTH_ERROR_IPC_NOT_SHAREABLE,
             PLINTH_ERROR_NOT_SUPPORTED})) {
      const Trailer trailer{block.bytes, block.tag, block.stamped};
      (void)!send(connected, &trailer, sizeof trailer, MSG_NOSIGNAL);
      release_memory(block.memory);
      slot.live = false;
    }
    close(connected);
    RETRY(plinth_set_stream_of(block.device, PLINTH_STREAM_DEFAULT_OF(block.device)));
  });
}

// Sends random bytes with random descriptors.
inline void send_hostile_message(Worker &worker) {
  unsigned char bytes[512];
  begin(OP_hostile_message);
  const int receiver = static_cast<int>(worker.random.below(static_cast<uint64_t>(options.processes)));
  const int connected = is_left_out("messages") ? -1 : connect_to(receiver);
  if (connected == -1) {
    return;
  }
  const size_t size = 1 + worker.random.below(sizeof bytes);
  for (size_t index = 0; index < size; index++) {
    bytes[index] = static_cast<unsigned char>(worker.random.next());
  }
  iovec part{bytes, size};
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const size_t count = worker.random.below(5);
  if (count > 0) {
    memset(control, 0, sizeof control);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t index = 0; index < count; index++) {
      memcpy(CMSG_DATA(header) + index * sizeof(int), &connected, sizeof(int));
    }
  }
  (void)!sendmsg(connected, &message, MSG_NOSIGNAL);
  close(connected);
}

// Imports the bytes of a message of this process after changing some of them.
inline void import_hostile_bytes(Worker &worker) {
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  with_slot(worker, true, [&](Slot &slot) {
    if (slot.block.foreign) {
      return;
    }
    begin(OP_hostile_import, reinterpret_cast<uint64_t>(slot.block.memory));
    if (!TRY(plinth_ipc_export(slot.block.memory, &message),
             {PLINTH_ERROR_SYSTEM, PLINTH_ERROR_IPC_NOT_SHAREABLE, PLINTH_ERROR_NOT_SUPPORTED})) {
      return;
    }
    for (uint64_t change = worker.random.below(4); change > 0 && message.size > 0; change--) {
      message.bytes[worker.random.below(message.size)] = static_cast<uint8_t>(worker.random.next());
    }
    const size_t size = worker.random.one_in(4) ? worker.random.below(message.size + 1) : message.size;
    const size_t descriptors = worker.random.one_in(4) ? worker.random.below(message.descriptor_count + 1)
                                                       : message.descriptor_count;
    plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
    const plinth_status_t status = plinth_ipc_import(message.bytes, size, message.descriptors, descriptors, -1, &memory);
    step->status = status;
    if (status == PLINTH_ERROR_PANIC || status == PLINTH_ERROR_MEMORY_CORRUPTED) {
      fail("an import of changed bytes: %s", plinth_last_error());
    }
    if (status == PLINTH_OK) {
      RETRY(plinth_ipc_close(memory.pointer));
    } else {
      count(EV_refused);
    }
    RETRY(plinth_ipc_export_free(&message));
  });
}

// ---- receiving, in a thread of its own

struct Received {
  void *memory = nullptr;
};

inline Received held[HELD];

inline void close_held(Received &received) {
  begin(OP_close_memory, reinterpret_cast<uint64_t>(received.memory));
  RETRY(plinth_ipc_close(received.memory));
  received.memory = nullptr;
}

inline void receive_memory(Worker &worker, int connected) {
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  begin(OP_receive_memory);
  limit_waits(connected);
  const plinth_status_t status = plinth_ipc_receive(connected, -1, &memory);
  step->status = status;
  // Whatever the bytes are, they are refused, or describe memory that can be mapped.
  if (status == PLINTH_ERROR_PANIC || status == PLINTH_ERROR_MEMORY_CORRUPTED) {
    fail("receiving memory: %s", plinth_last_error());
  }
  if (status != PLINTH_OK) {
    count(EV_refused);
    return;
  }
  Trailer trailer{};
  if (recv(connected, &trailer, sizeof trailer, MSG_WAITALL) == sizeof trailer && trailer.stamped != 0) {
    if (trailer.bytes > memory.size) {
      fail("a received block has %zu bytes instead of %zu", memory.size, static_cast<size_t>(trailer.bytes));
    }
    Block block{static_cast<unsigned char *>(memory.pointer), trailer.bytes, memory.device, 0, trailer.tag, true, false};
    check_later(worker, block, nullptr);
    settle(worker);
  }
  Received &place = held[worker.random.below(HELD)];
  if (place.memory != nullptr) {
    close_held(place);
  }
  place.memory = memory.pointer;
}

// Accepts a connection, if there is one. Now and then closes what is held.
inline void serve(Worker &worker, int listening) {
  pollfd waiting{listening, POLLIN, 0};
  if (poll(&waiting, 1, 5) == 1) {
    const int connected = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connected != -1) {
      receive_memory(worker, connected);
      close(connected);
    }
  }
  Received &place = held[worker.random.below(HELD)];
  if (place.memory != nullptr && worker.random.one_in(4)) {
    close_held(place);
  }
}
