// The scopes of cuda::atomic and of groups. They change nothing here: all atomics are of the whole machine.
#pragma once

namespace cuda {
enum thread_scope {
  thread_scope_system,
  thread_scope_device,
  thread_scope_block,
  thread_scope_thread = 10,
};
}  // namespace cuda
