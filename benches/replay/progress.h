// A progress bar on stderr, if that is a terminal.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>

namespace replay {

class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() { clear(); }
  void show(const std::string &what, size_t done, size_t all) {
    if (!shown_) return;
    constexpr int width = 30;
    int filled = all ? static_cast<int>(done * width / all) : width;
    if (filled == filled_ && what == what_) return;
    filled_ = filled, what_ = what;
    std::fprintf(stderr, "\r[%.*s%.*s] %s\033[K", filled, "##############################", width - filled,
                 "..............................", what.c_str());
  }
  void clear() {
    if (filled_ >= 0) std::fputs("\r\033[K", stderr);
    filled_ = -1;
  }

 private:
  bool shown_;
  int filled_ = -1;
  std::string what_;
};

}  // namespace replay
