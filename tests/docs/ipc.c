#include "page.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  const pid_t child = fork();
  page_begin();
  const int socket = sockets[child == 0];
  if (child == 0) {
#include "ipc.2.inc"
    return memory.size != 4096;
  }
  void *block = page_memory(4096);
#include "ipc.1.inc"
  int status = 1;
  waitpid(child, &status, 0);
  return status != 0;
}
