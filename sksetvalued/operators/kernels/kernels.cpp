// The kernels, compiled for several instruction sets; the processor decides which are used.

#include "kernels.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <new>

#define INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_VARIANTS 1

#pragma GCC push_options
#pragma GCC target("arch=skylake-avx512,prefer-vector-width=512")
namespace avx512 {
#define LANES 16
#define NAME "avx512"
#include "variant.hpp"
}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=haswell")
namespace avx2 {
#define LANES 8
#define NAME "avx2"
#include "variant.hpp"
}  // namespace avx2
#pragma GCC pop_options
#endif

namespace baseline {
#define LANES 4
#define NAME "baseline"
#include "variant.hpp"
}  // namespace baseline

const Kernels* const* available_kernels() {
  static const Kernels* found[4] = {};
  int n = 0;
#ifdef HAS_VARIANTS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    found[n++] = &avx512::kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    found[n++] = &avx2::kernels;
#endif
  found[n] = &baseline::kernels;
  return found;
}
