// Implements kernels_cpu.h. Compiled with -O3 (CMakeLists.txt), once for each
// instruction set; the loader picks.
#include "worker/train/kernels_cpu.h"

#include <algorithm>

#define DILOCO_EACH_CPU \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

namespace diloco {
namespace {

// Sums run in this many lanes, whatever the vectors' width.
constexpr int64_t kLanes = 16;

}  // namespace

DILOCO_EACH_CPU
void RmsNormBackwardCpu(int64_t rows, int64_t width, const float* dy,
                        const float* x, const float* w, const float* rstd,
                        bool accumulate, float* dx, float* dw) {
  std::fill(dw, dw + width, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float* dy_row = dy + row * width;
    const float* x_row = x + row * width;
    float* dx_row = dx + row * width;
    const float r = rstd[row];
    float lane[kLanes] = {};
    const int64_t whole = width - width % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        const float dy_x = dy_row[i + j] * x_row[i + j];
        dw[i + j] += dy_x * r;
        lane[j] += dy_x * w[i + j];
      }
    }
    float dot = 0;
    for (int64_t i = whole; i < width; ++i) {
      const float dy_x = dy_row[i] * x_row[i];
      dw[i] += dy_x * r;
      dot += dy_x * w[i];
    }
    for (const float value : lane) dot += value;
    const float back = dot / static_cast<float>(width) * r * r * r;
    if (accumulate) {
      for (int64_t i = 0; i < width; ++i) {
        dx_row[i] += dy_row[i] * w[i] * r - x_row[i] * back;
      }
    } else {
      for (int64_t i = 0; i < width; ++i) {
        dx_row[i] = dy_row[i] * w[i] * r - x_row[i] * back;
      }
    }
  }
}

DILOCO_EACH_CPU
void RotateCpu(int64_t heads, int64_t head_dim, const float* cos,
               const float* sin, float sign, float* x) {
  const int64_t half = head_dim / 2;
  for (int64_t head = 0; head < heads; ++head) {
    float* a = x + head * head_dim;
    float* b = a + half;
    for (int64_t i = 0; i < half; ++i) {
      const float turned = a[i] * cos[i] - b[i] * (sign * sin[i]);
      b[i] = b[i] * cos[i] + a[i] * (sign * sin[i]);
      a[i] = turned;
    }
  }
}

DILOCO_EACH_CPU
void SwiGluBackwardCpu(int64_t elements, const float* sigmoid, const float* da,
                       float* g, float* u) {
  for (int64_t i = 0; i < elements; ++i) {
    const float s = sigmoid[i];
    const float du = da[i] * (g[i] * s);
    g[i] = da[i] * u[i] * (s * (1 + g[i] * (1 - s)));
    u[i] = du;
  }
}

DILOCO_EACH_CPU
double SumSquaresCpu(int64_t elements, const float* x) {
  double lane[kLanes] = {};
  const int64_t whole = elements - elements % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const double value = x[i + j];
      lane[j] += value * value;
    }
  }
  double sum = 0;
  for (int64_t i = whole; i < elements; ++i) {
    sum += static_cast<double>(x[i]) * x[i];
  }
  for (const double value : lane) sum += value;
  return sum;
}

}  // namespace diloco
