// Tests of memory that is shared between processes: the receiver is this program, started again.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"

#include <cuda_runtime_api.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void send_text(int descriptor, const std::string& text) {
  const uint64_t size = text.size();
  EXPECT(write(descriptor, &size, sizeof(size)) == sizeof(size));
  EXPECT(write(descriptor, text.data(), size) == static_cast<ssize_t>(size));
}

std::string receive_text(int descriptor) {
  uint64_t size = 0;
  EXPECT(read(descriptor, &size, sizeof(size)) == sizeof(size));
  std::string text(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = read(descriptor, text.data() + at, size - at);
    EXPECT(got > 0);
    at += static_cast<size_t>(got);
  }
  return text;
}

struct Receiver {
  pid_t process;
  int descriptor;
};

Receiver start(const char* program) {
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const pid_t process = fork();
  if (process == 0) {
    close(pair[0]);
    execl(program, program, "receive", std::to_string(pair[1]).c_str(), nullptr);
    _exit(127);
  }
  close(pair[1]);
  return {process, pair[0]};
}

void finish(const Receiver& receiver) {
  int status = 0;
  close(receiver.descriptor);
  EXPECT(waitpid(receiver.process, &status, 0) == receiver.process);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

// The receiver: maps what the text names, reads a byte, writes another, and says so.
int receive_memory(int descriptor) {
  caching::get()->init(2);
  const std::string handle = receive_text(descriptor);
  const size_t offset = std::stoul(receive_text(descriptor));
  {
    const auto memory = caching::getIpcDevPtr(handle);
    const auto again = caching::getIpcDevPtr(handle);
    EXPECT(memory.get() == again.get() && memory.use_count() == 2);
    char byte = 0;
    EXPECT(cudaMemcpy(&byte, static_cast<char*>(memory.get()) + offset, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    send_text(descriptor, std::string(1, byte));
    // The next byte is this process's to write; the sender has told which.
    const std::string answer = receive_text(descriptor);
    EXPECT(cudaMemcpy(static_cast<char*>(memory.get()) + offset + 1, answer.data(), 1, cudaMemcpyHostToDevice) == cudaSuccess);
    send_text(descriptor, "written");
    EXPECT(receive_text(descriptor) == "close");
    EXPECT(contains(message_of([&] { caching::shareIpcHandle(memory.get()); }), "cannot be sent on"));
  }
  // A second mapping after the first was closed.
  EXPECT(caching::getIpcDevPtr(handle) != nullptr);
  send_text(descriptor, "closed");
  EXPECT(receive_text(descriptor) == "freed");
  EXPECT(contains(message_of([&] { caching::getIpcDevPtr(handle); }), "receiving CUDA memory of process "));
  EXPECT(contains(message_of([] { caching::getIpcDevPtr("nonsense"); }), "was not made by plinth"));
  std::string cut = handle;
  cut.pop_back();
  EXPECT(contains(message_of([&] { caching::getIpcDevPtr(cut); }), "was not made by plinth"));
  send_text(descriptor, "done");
  return 0;
}

void test_sharing(const char* program) {
  auto* allocator = caching::get();
  auto block = allocator->allocate(3 * kMiB);
  auto* bytes = static_cast<char*>(block.get());
  OK(plinth_memset(bytes, 42, 3 * kMiB, nullptr));
  const auto shared = caching::shareIpcHandle(bytes + 1000);
  EXPECT(shared.offset == 1000);
  EXPECT(caching::shareIpcHandle(bytes).handle == shared.handle && caching::shareIpcHandle(bytes).offset == 0);
  // In the process itself the handle names the block.
  EXPECT(caching::getIpcDevPtr(shared.handle).get() == bytes);
  int not_ours = 0;
  EXPECT(contains(message_of([&] { caching::shareIpcHandle(&not_ours); }), "is not in an allocated block"));

  // Two processes receive the same text.
  const Receiver receivers[] = {start(program), start(program)};
  char answer = 'a';
  for (const auto& receiver : receivers) {
    send_text(receiver.descriptor, shared.handle);
    send_text(receiver.descriptor, std::to_string(shared.offset));
    EXPECT(receive_text(receiver.descriptor) == std::string(1, 42));
    send_text(receiver.descriptor, std::string(1, answer));
    EXPECT(receive_text(receiver.descriptor) == "written");
    char seen = 0;
    EXPECT(cudaMemcpy(&seen, bytes + 1001, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(seen == answer);
    ++answer;
  }
  for (const auto& receiver : receivers) send_text(receiver.descriptor, "close");
  for (const auto& receiver : receivers) EXPECT(receive_text(receiver.descriptor) == "closed");
  block.clear();
  EXPECT(contains(message_of([&] { caching::getIpcDevPtr(shared.handle); }), "has freed it"));
  for (const auto& receiver : receivers) {
    send_text(receiver.descriptor, "freed");
    EXPECT(receive_text(receiver.descriptor) == "done");
    finish(receiver);
  }
  // A later block at the same address has another handle.
  auto later = allocator->allocate(3 * kMiB);
  EXPECT(caching::shareIpcHandle(later.get()).handle != shared.handle);
}
