// Random numbers of a row: xoshiro128++ generators side by side, one a lane, seeded by SplitMix64.

struct Random {
  Words state[4] = {};
  uint32_t words[kLanes];
  int n_words = 0;
  float normals[2 * kLanes];
  int n_normals = 0;

  INLINE void seed(uint64_t seed, uint64_t stream) {
    uint64_t x = seed ^ (stream * 0xd1342543de82ef95u);
    for (Words& part : state)
      for (int l = 0; l < kLanes; l += 2) {
        x += 0x9e3779b97f4a7c15u;
        uint64_t z = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        part[l] = static_cast<uint32_t>(z);
        part[l + 1] = static_cast<uint32_t>(z >> 32);
      }
    n_words = n_normals = 0;
  }

  INLINE Words next() {
    const Words sum = state[0] + state[3];
    const Words result = (sum << 7 | sum >> 25) + state[0];
    const Words shifted = state[1] << 9;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = state[3] << 11 | state[3] >> 21;
    return result;
  }

  INLINE uint32_t word() {
    if (n_words == 0) {
      const Words some = next();
      memcpy(words, &some, sizeof some);
      n_words = kLanes;
    }
    return words[--n_words];
  }

  // Uniform in (0, 1), a multiple of 2^-53 and half of that.
  INLINE double uniform() {
    const uint64_t high = word() >> 5, low = word() >> 6;
    return (static_cast<double>(high << 26 | low) + 0.5) * 0x1p-53;
  }

  // Twice as many normals as there are lanes, by the method of Box and Muller.
  INLINE void fill_normals(float* out) {
    // Uniform in (0, 1], the small ones to 32 digits.
    const Words level = next(), angle = next();
    const Floats high = __builtin_convertvector((Ints)(level >> 8), Floats);
    const Floats low = __builtin_convertvector((Ints)(level & 255u), Floats) + 0.5f;
    const Floats u = high * 0x1p-24f + low * 0x1p-32f;
    const Floats squared = -2.0f * logarithm(u);
    float radius[kLanes];
    store(radius, larger(squared, all(0.0f)));
    for (int l = 0; l < kLanes; ++l) radius[l] = sqrtf(radius[l]);
    Floats r = load(radius);
    // An angle of at most an eighth of a turn, then two bits of the four quarters.
    const Floats t = __builtin_convertvector((Ints)(angle << 2), Floats) * 3.657295198e-10f;
    const Floats s = t * t;
    Floats sine = s * -2.7557319e-6f + 1.984126984e-4f;
    sine = t * (1.0f - s * (1.666666667e-1f - s * (8.333333333e-3f - s * sine)));
    Floats cosine = s * -2.7557319e-7f + 2.480158730e-5f;
    cosine = 1.0f - s * (0.5f - s * (4.166666667e-2f - s * (1.388888889e-3f - s * cosine)));
    r = (Ints)angle < 0 ? -r : r;
    const Ints swapped = (Ints)(angle << 1) < 0;
    store(out, r * (swapped ? sine : cosine));
    store(out + kLanes, r * (swapped ? cosine : sine));
  }

  INLINE float normal() {
    if (n_normals == 0) {
      fill_normals(normals);
      n_normals = 2 * kLanes;
    }
    return normals[--n_normals];
  }

  // A normal that exceeds `least`; Marsaglia's method in the tail.
  INLINE double normal_above(double least) {
    if (least < 0.5) {
      for (;;) {
        const double z = normal();
        if (z > least) return z;
      }
    }
    for (;;) {
      const double z = sqrt(least * least - 2 * log(uniform()));
      if (uniform() * z <= least) return z;
    }
  }

  // Natural logarithm of numbers in (0, 1].
  static INLINE Floats logarithm(Floats u) {
    const Ints raw = (Ints)u;
    Ints exponent = (raw >> 23) - 126;
    Floats m = (Floats)((raw & 0x007fffff) | 0x3f000000);  // in [0.5, 1)
    const Ints low = m < 0.707106781f;
    exponent += low;
    m = low ? m + m : m;
    // log(m) = 2 artanh(s).
    const Floats s = (m - 1.0f) / (m + 1.0f), square = s * s;
    Floats y = square * (1 / 9.0f) + 1 / 7.0f;
    y = y * square + 1 / 5.0f;
    y = y * square + 1 / 3.0f;
    y = s + s * square * y;
    return 2.0f * y + __builtin_convertvector(exponent, Floats) * 0.693147181f;
  }
};
