// The plain loops that host_kernels.cpp compares kernels with. Each computes what the kernel of the same name in
// sources.h computes, in the way that a program without threads does.
#ifndef HOST_KERNELS_LOOPS_H
#define HOST_KERNELS_LOOPS_H

#include <algorithm>
#include <cmath>
#include <cstring>

// A loop is a function of its own, as a kernel is, so that the compiler knows nothing about its arguments.
#define LOOP __attribute__((noinline)) inline

namespace loops {

LOOP void add(const float *x, const float *y, float *out, int count) {
  for (int at = 0; at < count; at++) out[at] = x[at] + y[at];
}

LOOP void saxpy(float factor, const float *x, const float *y, float *out, int count) {
  for (int at = 0; at < count; at++) out[at] = factor * x[at] + y[at];
}

LOOP void gelu(const float *x, float *out, int count) {
  for (int at = 0; at < count; at++) out[at] = x[at] / (1.0f + expf(-1.702f * x[at]));
}

LOOP void product(const float *a, const float *b, float *out, int side) {
  for (int row = 0; row < side; row++) {
    for (int column = 0; column < side; column++) {
      float sum = 0;
      for (int at = 0; at < side; at++) sum += a[row * side + at] * b[at * side + column];
      out[row * side + column] = sum;
    }
  }
}

LOOP void stencil(const float *in, float *out, int width, int height) {
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      const int at = y * width + x;
      if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[at] = in[at];
      } else {
        out[at] = 0.5f * in[at] + 0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
      }
    }
  }
}

LOOP void mandelbrot(int *out, int side, int limit) {
  for (int y = 0; y < side; y++) {
    for (int x = 0; x < side; x++) {
      const float real = 3.0f * x / side - 2.25f, imaginary = 3.0f * y / side - 1.5f;
      float a = 0, b = 0;
      int steps = 0;
      while (steps < limit && a * a + b * b < 4) {
        const float next = a * a - b * b + real;
        b = 2 * a * b + imaginary;
        a = next;
        steps++;
      }
      out[y * side + x] = steps;
    }
  }
}

// The sum of each part of `part` numbers.
LOOP void reduction(const float *in, float *out, int count, int part) {
  for (int first = 0; first < count; first += part) {
    float sum = 0;
    for (int at = first; at < first + part; at++) sum += in[at];
    out[first / part] = sum;
  }
}

LOOP void scan(const float *in, float *out, int count, int part) {
  for (int first = 0; first < count; first += part) {
    float sum = 0;
    for (int at = first; at < first + part; at++) out[at] = sum += in[at];
  }
}

LOOP void softmax(const float *in, float *out, int rows) {
  constexpr int kColumns = 256;
  for (int row = 0; row < rows; row++) {
    const float *from = in + row * kColumns;
    float *to = out + row * kColumns, most = -INFINITY, sum = 0;
    for (int at = 0; at < kColumns; at++) most = std::max(most, from[at]);
    for (int at = 0; at < kColumns; at++) sum += to[at] = expf(from[at] - most);
    for (int at = 0; at < kColumns; at++) to[at] /= sum;
  }
}

LOOP void histogram(const unsigned char *in, unsigned *out, int count) {
  memset(out, 0, 256 * sizeof *out);
  for (int at = 0; at < count; at++) out[in[at]]++;
}

LOOP void sum(const float *in, float *out, int count) {
  float sum = 0;
  for (int at = 0; at < count; at++) sum += in[at];
  *out = sum;
}

}  // namespace loops

#endif
