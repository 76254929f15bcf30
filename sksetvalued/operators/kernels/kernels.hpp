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
  const float* margins;    // of the samples, or null
  const int64_t* ranks;    // increasing
  const double* weights;   // of the ranks
  int64_t n_ranks, n_rows, n_classes, n_draws;
  float epsilon, scale, margin;
  uint64_t seed;
  float *losses, *slopes;  // slopes: one for each rank
  int64_t* indices;        // n_draws * n_ranks, then the target
};

struct HingeGradientArguments {
  const float *grad, *slopes;
  const int64_t* indices;
  int64_t grad_stride, n_rows, n_classes, n_draws, n_ranks;
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

struct ProjectArguments {
  const float* scores;
  const double* sizes;  // of the rows, or null
  double size;
  int64_t n_rows, n_classes, capacity;
  float* result;
  int64_t* places;
};

struct ProjectGradientArguments {
  const float *grad, *q;  // q is null where the places are listed
  const int64_t* places;
  int64_t row_stride, class_stride, n_rows, n_classes, n_places;
  float* result;
};

struct FenchelYoungArguments {
  const float* scores;
  const float* points;     // of the samples, or null
  const int64_t* classes;  // one of each sample, in place of points
  bool shared;             // whether the labels of a point share one unit
  int64_t n_rows, n_classes, capacity;
  float* losses;
  int64_t* places;
  float* values;
  const float* grad;  // with grad, only the gradient is written
  int64_t grad_stride;
  float* gradient;
};

struct SpreadArguments {
  const float *grad, *values;
  const int64_t* places;
  int64_t grad_stride, n_rows, n_classes, n_places;
  float* result;
};

struct TwoHeadArguments {
  const float *scores, *proposals;
  const int64_t* target;
  int64_t n_rows, n_classes, n_candidates;
  float positive, negative;                  // weights of the candidates, and of the other classes
  float *losses, *slopes, *proposal_slopes;  // slopes: null where they are not wanted
};

struct MaskArguments {
  uint64_t key;
  int64_t n;
  uint32_t n_dropped;
  float kept;
  const float* gate;  // or null
  float* mask;
};

// The kernels, compiled for one instruction set.
struct Kernels {
  const char* name;
  void (*select_rows)(const SelectArguments&);
  void (*largest_rows)(const LargestArguments&);
  int64_t (*hinge_rows)(const HingeArguments&);
  void (*hinge_gradient_rows)(const HingeGradientArguments&);
  int64_t (*smoothed_width)(int64_t n_classes, int64_t k);
  int64_t (*smoothed_rows)(const SmoothedArguments&);
  void (*smoothed_gradient_rows)(const SmoothedGradientArguments&);
  int64_t (*project_rows)(const ProjectArguments&);
  void (*project_gradient_rows)(const ProjectGradientArguments&);
  int64_t (*fenchel_young_rows)(const FenchelYoungArguments&);
  void (*spread_rows)(const SpreadArguments&);
  int64_t (*two_head_rows)(const TwoHeadArguments&);
  void (*draw_mask)(const MaskArguments&);
};

// The instruction sets this processor has, best first; ends with a null.
const Kernels* const* available_kernels();
