// The two-head loss of a batch: the cross-entropy of the proposals, and the binary labels of the
// scores, which are true for the class of a row and for the likeliest others of the whole batch.

// log(1 + x) for x in [0, 1], within 2e-7 of it.
INLINE Floats log_one_plus(Floats x) {
  const Floats t = x / (x + 2.0f), s = t * t;
  Floats y = s * (1 / 13.0f) + 1 / 11.0f;
  y = y * s + 1 / 9.0f;
  y = y * s + 1 / 7.0f;
  y = y * s + 1 / 5.0f;
  y = y * s + 1 / 3.0f;
  return 2.0f * (t + t * s * y);
}

// exp(x) for x <= 0, at least 2^-125; NaN stays what it is.
INLINE Floats exponential_of(Floats x) {
  const Floats y = power_of_two(x * 1.44269504f);
  return x == x ? y : x;
}

INLINE float largest_of(const float* x, int64_t n) {
  Floats most = all(-INFINITY);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) most = larger(load(x + j), most);
  float top = n < kLanes ? -INFINITY : largest_lane(most);
  for (; j < n; ++j) top = x[j] > top ? x[j] : top;
  return top;
}

INLINE double sum_of(const float* x, int64_t n) {
  Doubles sums = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) sums += in_doubles(load(x + j));
  double total = n < kLanes ? 0 : sum(sums);
  for (; j < n; ++j) total += static_cast<double>(x[j]);
  return total;
}

// Rows that are treated together, as many as a cache holds: one after another, as vectors go
// across short ones.
struct Tile {
  int64_t n_classes, most;
  Buffer<Lanes> weights, terms;

  explicit Tile(int64_t n_classes)
      : n_classes(n_classes),
        most(n_classes < 4096 ? 4096 / n_classes : 1),
        weights(most * n_classes / kLanes + 1, true),
        terms(most * n_classes / kLanes + 1, true) {}
};

// Write the logarithms of the probabilities of rows from i on, but -inf for the true class, and
// the cross-entropies with their slopes.
INLINE void propose(const TwoHeadArguments& a, const Tile& tile, int64_t i, int64_t n_rows,
                    float* logarithms) {
  const int64_t n = a.n_classes;
  const float* proposals = a.proposals + i * n;
  float *shifted = tile.weights[0].lanes, *terms = tile.terms[0].lanes;
  for (int64_t r = 0; r < n_rows; ++r) {
    const float top = largest_of(proposals + r * n, n);
    for (int64_t j = r * n; j < (r + 1) * n; ++j) shifted[j] = proposals[j] - top;
  }
  for (int64_t j = 0; j < n_rows * n; j += kLanes)
    store(terms + j, exponential_of(load(shifted + j)));
  for (int64_t r = 0; r < n_rows; ++r) {
    const int64_t own = r * n + a.target[i + r];
    const double total = sum_of(terms + r * n, n);
    const float shift = static_cast<float>(std::log(total)), share = static_cast<float>(1 / total);
    const double others = total - static_cast<double>(terms[own]);
    a.losses[i + r] = shift - shifted[own];
    // A class of probability zero still comes before the true one.
    for (int64_t j = r * n; j < (r + 1) * n; ++j) {
      const float x = shifted[j] - shift;
      logarithms[j] = x < kLowest ? kLowest : x;
      terms[j] *= share;
    }
    logarithms[own] = -INFINITY;
    terms[own] = static_cast<float>(-others / total);
  }
  if (a.proposal_slopes)
    memcpy(a.proposal_slopes + i * n, terms, sizeof(float) * static_cast<size_t>(n_rows * n));
}

// Return a number that `count` of n logarithms reach. Of those that equal it the last ones count;
// the others become -inf.
INLINE float cut_candidates(const Buffer<Lanes>& logarithms, int64_t n, int64_t count) {
  if (count == 0) return INFINITY;
  const Cut cut = find_cut(logarithms.data, (n + kLanes - 1) / kLanes, count, count);
  if (!cut.tied) return cut.value;
  float* each = logarithms[0].lanes;
  int64_t n_left = count - cut.n_above;
  for (int64_t j = n - 1; j >= 0; --j)
    if (each[j] == cut.value && n_left-- <= 0) each[j] = -INFINITY;
  return cut.value;
}

// Add the losses of the labels of rows from i on, and write their slopes.
INLINE void label(const TwoHeadArguments& a, const Tile& tile, int64_t i, int64_t n_rows,
                  const float* logarithms, float cut) {
  const int64_t n = a.n_classes;
  float *weights = tile.weights[0].lanes, *terms = tile.terms[0].lanes;
  // Weights of true labels are negative.
  for (int64_t j = 0; j < n_rows * n; ++j)
    weights[j] = logarithms[j] >= cut ? -a.positive : a.negative;
  for (int64_t r = 0; r < n_rows; ++r) weights[r * n + a.target[i + r]] = -1;
  memcpy(terms, a.scores + i * n, sizeof(float) * static_cast<size_t>(n_rows * n));
  for (int64_t j = 0; j < n_rows * n; j += kLanes) {
    const Floats weight = load(weights + j), score = load(terms + j);
    const Floats z = weight < 0 ? -score : score, size = weight < 0 ? -weight : weight;
    const Floats rest = exponential_of(z < 0 ? z : -z);
    store(terms + j, size * (larger(z, all(0.0f)) + log_one_plus(rest)));
    store(weights + j, weight * ((z < 0 ? rest : all(1.0f)) / (1.0f + rest)));
  }
  for (int64_t r = 0; r < n_rows; ++r)
    a.losses[i + r] = static_cast<float>(a.losses[i + r] + sum_of(terms + r * n, n));
  if (a.slopes)
    memcpy(a.slopes + i * n, weights, sizeof(float) * static_cast<size_t>(n_rows * n));
}

// Compute the loss of each row and, where they are wanted, its slopes in the scores and proposals.
// Returns the number of rows whose target is no class; then nothing else is meaningful.
int64_t two_head_rows(const TwoHeadArguments& a) {
  if (const int64_t n_bad = count_bad(a.target, a.n_rows, a.n_classes)) return n_bad;
  const int64_t n = a.n_classes, size = a.n_rows * n;
  if (size == 0) return 0;
  const Tile tile(n);
  const Buffer<Lanes> logarithms(size / kLanes + 1);
  float* each = logarithms[0].lanes;
  const auto by_tiles = [&](auto work) {
    for (int64_t i = 0; i < a.n_rows; i += tile.most)
      work(i, a.n_rows - i < tile.most ? a.n_rows - i : tile.most, each + i * n);
  };
  by_tiles([&](int64_t i, int64_t n_rows, float* from) { propose(a, tile, i, n_rows, from); });
  for (int64_t j = size; j % kLanes; ++j) each[j] = -INFINITY;
  const float cut = cut_candidates(logarithms, size, a.n_candidates);
  by_tiles([&](int64_t i, int64_t n_rows, float* from) { label(a, tile, i, n_rows, from, cut); });
  return 0;
}
