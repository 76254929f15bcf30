// What the compiled kernels compute, by pointers to contiguous memory; rows come one after another.
#pragma once

#include <cstdint>

struct SelectArguments {
  const float* scores;
  int64_t n_rows, n_classes, k, n_draws;
  float epsilon;
  uint64_t seed;
  bool all_k;
  int64_t* indices;
  float* normals;
};

struct LargestArguments {
  const float* scores;
  int64_t n_rows, n_classes, k;
  float* values;
  int64_t* indices;
};

struct HingeArguments {
  const float* scores;
  const int64_t* target;
  const float* margins;  // of the samples, or null
  int64_t n_rows, n_classes, k, n_draws;
  float epsilon, scale, margin;
  uint64_t seed;
  float *losses, *slopes;
  int64_t* indices;
};

struct HingeGradientArguments {
  const float *grad, *slopes;
  const int64_t* indices;
  int64_t grad_stride, n_rows, n_classes, n_draws;
  float* result;
};

// Largest k of the smoothed hinge, or number of classes less k.
constexpr int kMostRank = 64;

struct SmoothedArguments {
  const float* scores;
  const int64_t* target;
  int64_t n_rows, n_classes, k;
  double tau, margin;
  float *losses, *saved;
};

struct SmoothedGradientArguments {
  const float *grad, *scores;
  const int64_t* target;
  float* saved;
  int64_t grad_stride, n_rows, n_classes, k;
  double tau;
  float* result;
};

// The kernels, compiled for one instruction set.
struct Kernels {
  const char* name;
  void (*select_rows)(const SelectArguments&);
  void (*largest_rows)(const LargestArguments&);
  int64_t (*hinge_rows)(const HingeArguments&);
  void (*hinge_gradient_rows)(const HingeGradientArguments&);
  int64_t (*smoothed_width)(int64_t n_classes, int64_t k);
  void (*smoothed_rows)(const SmoothedArguments&);
  void (*smoothed_gradient_rows)(const SmoothedGradientArguments&);
};

// The instruction sets this processor has, best first; ends with a null.
const Kernels* const* available_kernels();
