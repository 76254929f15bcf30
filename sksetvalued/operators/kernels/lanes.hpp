// Vectors as wide as the registers of the instruction set, which LANES tells; compilers do badly
// with wider ones.

constexpr int kLanes = LANES, kPairs = LANES / 2;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
typedef int64_t Longs __attribute__((vector_size(4 * kLanes)));

struct alignas(4 * kLanes) Lanes {
  float lanes[kLanes];
};

struct alignas(4 * kLanes) DoubleLanes {
  double lanes[kPairs];
};

INLINE Floats load(const float* from) {
  Floats x;
  memcpy(&x, from, sizeof x);
  return x;
}
INLINE void store(float* to, Floats x) { memcpy(to, &x, sizeof x); }

INLINE Doubles load(const DoubleLanes& from) {
  Doubles x;
  memcpy(&x, &from, sizeof x);
  return x;
}
INLINE void store(DoubleLanes& to, Doubles x) { memcpy(&to, &x, sizeof x); }

// Write zeros past the cache, at a multiple of the size of a vector.
INLINE void stream_zeros(float* to) {
#if defined(__clang__)
  __builtin_nontemporal_store(Floats{}, reinterpret_cast<Floats*>(to));
#elif LANES == 16
  __builtin_ia32_movntps512(to, Floats{});
#elif LANES == 8
  __builtin_ia32_movntps256(to, Floats{});
#elif defined(__SSE__)
  __builtin_ia32_movntps(to, Floats{});
#else
  store(to, Floats{});
#endif
}

INLINE Floats all(float x) { return x - Floats{}; }

INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

// Bit l of the result is that of lane l of a comparison.
INLINE uint32_t bits(Ints mask) {
#if LANES == 16
  return static_cast<uint16_t>(__builtin_ia32_cvtd2mask512(mask));
#elif LANES == 8
  return static_cast<uint32_t>(__builtin_ia32_movmskps256((Floats)mask));
#elif defined(__SSE__)
  return static_cast<uint32_t>(__builtin_ia32_movmskps((Floats)mask));
#else
  uint32_t found = 0;
  for (int l = 0; l < kLanes; ++l) found |= static_cast<uint32_t>(mask[l] & 1) << l;
  return found;
#endif
}

INLINE float largest_lane(Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l)
      lanes[l] = lanes[l] > lanes[l + half] ? lanes[l] : lanes[l + half];
  return lanes[0];
}

INLINE double sum(Doubles x) {
  double lanes[kPairs];
  memcpy(lanes, &x, sizeof x);
  for (int half = kPairs / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

INLINE Doubles in_doubles(Floats x) {
  HalfFloats halves[2];
  memcpy(halves, &x, sizeof halves);
  return __builtin_convertvector(halves[0], Doubles) + __builtin_convertvector(halves[1], Doubles);
}

// Of two vectors that follow each other, those that begin one entry before the second, and one
// behind the beginning of the first.
#if defined(__clang__)
#define SHUFFLE(...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(...) __builtin_shuffle(a, b, Longs{__VA_ARGS__})
#endif
#if LANES == 16
INLINE Doubles one_before(Doubles a, Doubles b) { return SHUFFLE(7, 8, 9, 10, 11, 12, 13, 14); }
INLINE Doubles one_behind(Doubles a, Doubles b) { return SHUFFLE(1, 2, 3, 4, 5, 6, 7, 8); }
#elif LANES == 8
INLINE Doubles one_before(Doubles a, Doubles b) { return SHUFFLE(3, 4, 5, 6); }
INLINE Doubles one_behind(Doubles a, Doubles b) { return SHUFFLE(1, 2, 3, 4); }
#else
INLINE Doubles one_before(Doubles a, Doubles b) { return SHUFFLE(1, 2); }
INLINE Doubles one_behind(Doubles a, Doubles b) { return SHUFFLE(1, 2); }
#endif
#undef SHUFFLE

// exp(x) for x <= 0, within 1e-11 of it; from -700 down it is that of -700.
INLINE Doubles exponential(Doubles x) {
  x = x > -700.0 ? x : Doubles{} - 700.0;
  const Doubles shifted = x * 1.4426950408889634 + 0x1.8p52;
  const Doubles whole = shifted - 0x1.8p52;
  // log(2) in two parts, the first of which has few digits.
  const Doubles r = (x - whole * 0x1.62e42fee00000p-1) - whole * 1.9082149292705877e-10;
  Doubles p = r * (1 / 362880.0) + 1 / 40320.0;
  p = p * r + 1 / 5040.0;
  p = p * r + 1 / 720.0;
  p = p * r + 1 / 120.0;
  p = p * r + 1 / 24.0;
  p = p * r + 1 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return (Doubles)((Longs)p + ((Longs)shifted << 52));
}

// 2^x, within 2e-7 of it, for x in [-125, 125]; what is outside is taken to the nearest end.
// The polynomial has the least relative error of its degree on [-1/2, 1/2], 2e-9.
INLINE Floats power_of_two(Floats x) {
  x = larger(smaller(x, all(125.0f)), all(-125.0f));
  const Floats shifted = x + 0x1.8p23f;
  const Floats r = x - (shifted - 0x1.8p23f);
  Floats p = r * 1.534581216e-4f + 1.339993118e-3f;
  p = p * r + 9.618488956e-3f;
  p = p * r + 5.550328777e-2f;
  p = p * r + 2.402264689e-1f;
  p = p * r + 6.931472057e-1f;
  p = p * r + 1.0f;
  return (Floats)((Ints)p + ((Ints)shifted << 23));
}
