// The smoothed top-k hinge loss; the polynomials of a row are multiplied out, see polynomials.hpp.
//
// The head is about the 2.5 k largest classes; the others, the tail, enter by the sums of the
// powers of their odds. Rows are negated for k over half of the classes, as
// sigma_k(e^x) / sigma_(k-1)(e^x) = sigma_r(e^-x) / sigma_(r-1)(e^-x) inverted, r = n - k, for the
// n - 1 other classes.

// Share of the gradient that powers left out may have.
constexpr double kPowerTolerance = 3e-8;
// Vectors whose odds are held at once.
constexpr int kTile = 16;

// On x86, take subnormal numbers for 0, as they are slow, while this object lives.
struct NoSubnormals {
#ifdef __SSE__
  unsigned before = __builtin_ia32_stmxcsr();
  NoSubnormals() { __builtin_ia32_ldmxcsr(before | 0x8040); }
  ~NoSubnormals() { __builtin_ia32_ldmxcsr(before); }
#else
  NoSubnormals() {}
#endif
};

// What the backward pass needs of a row, in `width` floats.
struct SavedRow {
  float *numbers, *coefficients, *gradient;
  int32_t* head;

  static int64_t width(const SmoothedPlan& plan) { return 4 + plan.rank + 2 * plan.most; }

  SavedRow(float* from, const SmoothedPlan& plan)
      : numbers(from),
        coefficients(from + 4),
        gradient(coefficients + plan.rank),
        head(reinterpret_cast<int32_t*>(gradient + plan.most)) {}

  float& reference() { return numbers[0]; }
  float& slope() { return numbers[1]; }
  float& n_powers() { return numbers[2]; }
  float& n_head() { return numbers[3]; }
};

// The factor of scores in the binary logarithms of their odds.
INLINE float cooling_of(double temperature) {
  return static_cast<float>(std::fmin(1.4426950408889634 / temperature, 1e30));
}

int64_t smoothed_width(int64_t n_classes, int64_t k) {
  return SavedRow::width(SmoothedPlan(n_classes, k));
}

// How many powers matter where the odds of the tail are at most `odds` and add up to `total` or
// more. The tilt multiplies them by at most 2k - 1, and leaves at most k - 1/2 successes in all.
INLINE int64_t count_powers(int64_t k, int64_t n_head, double odds, double total) {
  const double half = static_cast<double>(k) - 0.5;
  double ratio = half / (static_cast<double>(n_head) - half);
  ratio = std::fmin(ratio, 2 * half * odds);
  const double share = half * odds / total;
  if (share < 1) ratio = std::fmin(ratio, share / (1 - share));
  if (!(ratio < 1)) return k;
  int64_t n = 1;
  double power = ratio;
  while (n < k && static_cast<double>(n + 1) * power > kPowerTolerance) {
    power *= ratio;
    ++n;
  }
  return n;
}

// Add the next kPowers powers of the odds to the sums, and leave the last of them times the odds.
template <int kPowers>
INLINE void add_powers(const Lanes* odds, Lanes* powers, int64_t n_vectors, DoubleLanes* sums) {
  Floats totals[kPowers] = {};
  for (int64_t v = 0; v < n_vectors; ++v) {
    const Floats o = load(odds[v].lanes);
    Floats power = load(powers[v].lanes);
    for (int i = 0; i < kPowers; ++i) {
      totals[i] += power;
      power *= o;
    }
    store(powers[v].lanes, power);
  }
  for (int i = 0; i < kPowers; ++i) store(sums[i], load(sums[i]) + in_doubles(totals[i]));
}

// Sum the powers of the odds exp((x - reference) / temperature) of the tail; return how many.
// `cooling` is that of powers of two.
INLINE int64_t sum_powers(SmoothedRow& row, float reference, float cooling, float cut,
                          int64_t n_left) {
  DoubleLanes sums[kMostRank + 4];
  Lanes odds[kTile], powers[kTile];
  const int64_t rank = row.plan.rank, n_vectors = row.n_vectors;
  const Lanes* values = row.values.data;
  const double at_cut = power_of_two(all((cut - reference) * cooling))[0];
  int64_t n_powers = count_powers(rank, row.n_head, at_cut, 0);
  for (int64_t m = 0; m < n_powers + 3; ++m) store(sums[m], Doubles{});
  for (int64_t start = 0; start < n_vectors; start += kTile) {
    const int64_t n = n_vectors - start < kTile ? n_vectors - start : kTile;
    for (int64_t v = 0; v < n; ++v) {
      const Floats x = load(values[start + v].lanes);
      Floats o = power_of_two((x - reference) * cooling);
      o = x < cut ? o : all(0.0f);
      store(odds[v].lanes, o);
      store(powers[v].lanes, o);
    }
    for (int64_t m = 0; m < n_powers; m += 4) {
      if (n_powers - m == 1)
        add_powers<1>(odds, powers, n, sums + m);
      else if (n_powers - m == 2)
        add_powers<2>(odds, powers, n, sums + m);
      else
        add_powers<4>(odds, powers, n, sums + m);
    }
    // Again after 1, 2, 4, ... tiles.
    const int64_t n_tiles = start / kTile + 1;
    if (n_powers > 1 && (n_tiles & (n_tiles - 1)) == 0)
      n_powers = count_powers(rank, row.n_head, at_cut, sum(load(sums[0])));
  }
  double power = at_cut;
  for (int64_t m = 0; m < n_powers; ++m) {
    row.sums[m] = sum(load(sums[m])) + static_cast<double>(n_left) * power;
    power *= at_cut;
  }
  return n_powers;
}

// Set the derivatives of log(sigma_k / sigma_(k-1)) of the row by the log-odds, of which the head
// has its own and the tail a polynomial; return it, measured from the reference.
INLINE double solve(SmoothedRow& row, float reference, double temperature, int64_t n_powers) {
  Polynomials& all = row.polynomials;
  const double k = static_cast<double>(all.k);
  const double scale = n_powers > 0 && row.sums[0] > k ? k / row.sums[0] : 1;
  double power = 1;
  for (int64_t m = 0; m < n_powers; ++m) row.sums[m] *= power *= scale;
  expand_tail(all, row.sums.data, n_powers);
  const double shift = std::log(scale);
  for (int64_t j = 0; j < row.n_head; ++j)
    all.p[0].lanes[j] =
        (static_cast<double>(row.head_values[0].lanes[j]) - reference) / temperature + shift;
  set_factors(all, row.n_head);
  solve_head(all, row.n_head, row.gradient.data);
  differentiate_tail(all, row.n_head, n_powers, row.coefficients.data);
  power = 1;
  for (int64_t m = 0; m < n_powers; ++m) row.coefficients[m] *= power *= scale;
  const double* f = all.whole(row.n_head);
  return std::log(f[all.k] / f[all.k - 1]) - shift;
}

// Compute the loss of each row, and what its gradient needs.
// Returns the number of rows whose target is no class; then nothing else is meaningful.
int64_t smoothed_rows(const SmoothedArguments& a) {
  if (const int64_t n_bad = count_bad(a.target, a.n_rows, a.n_classes)) return n_bad;
  const NoSubnormals fast;
  const SmoothedPlan plan(a.n_classes, a.k);
  SmoothedRow row(plan);
  const double k = static_cast<double>(a.k), temperature = k * a.tau;
  const float cooling = cooling_of(temperature);
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    SavedRow saved(a.saved + i * SavedRow::width(plan), plan);
    saved.n_powers() = saved.n_head() = 0;
    if (!copy_row(row, scores, a.target[i])) {
      a.losses[i] = saved.slope() = NAN;
      continue;
    }
    int64_t n_left;
    const float cut = select_head(row, &n_left), reference = find_reference(row);
    const bool has_tail = row.n_head < a.n_classes - 1;
    const int64_t n_powers = has_tail ? sum_powers(row, reference, cooling, cut, n_left) : 0;
    const double ratio = solve(row, reference, temperature, n_powers);
    const double own = static_cast<double>(scores[a.target[i]]) * plan.sign;
    const double z =
        plan.sign * ((reference - own) / temperature + ratio) + a.margin / a.tau;
    const double rest = std::exp(-std::fabs(z));
    const double slope = (z > 0 ? 1 : rest) / (1 + rest) / k;
    a.losses[i] = static_cast<float>(a.tau * ((z > 0 ? z : 0) + std::log1p(rest)));
    saved.reference() = reference;
    saved.slope() = static_cast<float>(slope);
    saved.n_powers() = static_cast<float>(n_powers);
    saved.n_head() = static_cast<float>(row.n_head);
    for (int64_t m = 0; m < n_powers; ++m)
      saved.coefficients[m] = static_cast<float>(slope * row.coefficients[m]);
    for (int64_t j = 0; j < row.n_head; ++j) {
      saved.gradient[j] = static_cast<float>(slope * row.gradient[j]);
      saved.head[j] = row.head[j];
    }
  }
  return 0;
}

// Write weight o (c_0 + c_1 o + ...) for the odds of n vectors.
template <int n>
INLINE void write_polynomial(const float* scores, float sign, float reference, float cooling,
                             const float* coefficients, int64_t n_powers, float* result) {
  Floats o[n], value[n];
  for (int v = 0; v < n; ++v) {
    const Floats x = larger(load(scores + v * kLanes), all(kLowest));
    o[v] = power_of_two((x * sign - reference) * cooling);
    value[v] = all(coefficients[n_powers - 1]);
  }
  for (int64_t m = n_powers - 2; m >= 0; --m)
    for (int v = 0; v < n; ++v) value[v] = value[v] * o[v] + coefficients[m];
  for (int v = 0; v < n; ++v) store(result + v * kLanes, value[v] * o[v]);
}

// Write the gradient of the losses of `smoothed_rows` in the scores.
void smoothed_gradient_rows(const SmoothedGradientArguments& a) {
  const NoSubnormals fast;
  const SmoothedPlan plan(a.n_classes, a.k);
  const float cooling = cooling_of(static_cast<double>(a.k) * a.tau);
  const Buffer<float> coefficients(plan.rank);
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    float* result = a.result + i * a.n_classes;
    SavedRow saved(a.saved + i * SavedRow::width(plan), plan);
    const float weight = a.grad[i * a.grad_stride];
    const int64_t n_powers = static_cast<int64_t>(saved.n_powers());
    const float slope = saved.slope() * weight;
    if (!(saved.slope() > 0)) {
      for (int64_t j = 0; j < a.n_classes; ++j) result[j] = slope;
      continue;
    }
    for (int64_t m = 0; m < n_powers; ++m) coefficients[m] = saved.coefficients[m] * weight;
    const float* c = coefficients.data;
    const float reference = saved.reference();
    int64_t j = 0;
    if (n_powers > 0) {
      for (; j + 4 * kLanes <= a.n_classes; j += 4 * kLanes)
        write_polynomial<4>(scores + j, plan.sign, reference, cooling, c, n_powers, result + j);
      for (; j + kLanes <= a.n_classes; j += kLanes)
        write_polynomial<1>(scores + j, plan.sign, reference, cooling, c, n_powers, result + j);
      if (j < a.n_classes) {
        float some[kLanes] = {};
        const size_t size = sizeof(float) * static_cast<size_t>(a.n_classes - j);
        memcpy(some, scores + j, size);
        write_polynomial<1>(some, plan.sign, reference, cooling, c, n_powers, some);
        memcpy(result + j, some, size);
      }
    }
    const int64_t n_head = static_cast<int64_t>(saved.n_head());
    for (int64_t h = 0; h < n_head; ++h) result[saved.head[h]] = saved.gradient[h] * weight;
    result[a.target[i]] = -slope;
  }
}
