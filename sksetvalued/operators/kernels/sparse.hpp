// The projection on the top-K simplex, q = clip(s - threshold, 0, 1) with sum k, and its losses.

// So many vectors, or fewer, are ranked by comparing all with all.
constexpr int64_t kFewVectors = 4;
// Rows with one candidate among so many entries, or more, are written entry by entry.
constexpr int64_t kFewCandidates = 8;

INLINE Doubles widen(const float* from) {
  HalfFloats x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, Doubles);
}

template <class Vector>
INLINE auto sum_lanes(const Vector& x) {
  auto total = x[0];
  for (size_t l = 1; l < sizeof x / sizeof total; ++l) total += x[l];
  return total;
}

INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

// A row, its candidates (all entries that may be positive) and its threshold in two terms.
struct SparseRow {
  Blocks blocks;
  Buffer<float> maxima, tops;
  Buffer<int32_t> keys;
  Buffer<int32_t> candidates;
  Buffer<float> values, leaders;
  Buffer<double> shifted;
  int64_t n_candidates = 0;
  double reference = 0, offset = 0;

  explicit SparseRow(int64_t n) : SparseRow(n, n < 4096 ? 4 : 16) {}

  SparseRow(int64_t n, int height)
      : blocks{nullptr, n, height, count_chunks(n, height), nullptr, nullptr, false},
        maxima(blocks.n_chunks * kLanes),
        tops(blocks.n_chunks),
        keys(at_least(n + kLanes, blocks.n_chunks * kLanes)),
        candidates(n),
        values(n),
        leaders(n + kLanes),
        shifted(n + kPairs) {
    blocks.maxima = maxima.data;
    blocks.tops = tops.data;
  }

  double shift(float score) const { return (score - reference) - offset; }
};

// The k-th largest of a few vectors, without a branch that the processor could not foresee.
INLINE float kth_of_few(const float* x, int64_t n_vectors, int64_t k) {
  Floats result = all(-INFINITY);
  for (int64_t v = 0; v < n_vectors; ++v) {
    const Floats own = load(x + v * kLanes);
    Ints n_reaching = {};
    for (int64_t j = 0; j < n_vectors * kLanes; ++j) n_reaching -= all(x[j]) >= own;
    result = larger(n_reaching >= static_cast<int32_t>(k) ? own : all(-INFINITY), result);
  }
  return largest_lane(result);
}

// A score that at least k entries of the row reach, near the k-th largest.
INLINE float reached_by_groups(SparseRow& row, int64_t k) {
  const Blocks& blocks = row.blocks;
  const int64_t n_vectors = at_most(blocks.n_chunks, kFewVectors);
  if (k > n_vectors * kLanes / 4) {
    return reached_by(blocks, k, row.keys.data);
  }
  float groups[kFewVectors * kLanes];
  for (int64_t v = 0; v < n_vectors; ++v) {
    Floats most = load(blocks.maxima + v * kLanes);
    for (int64_t c = v + n_vectors; c < blocks.n_chunks; c += n_vectors)
      most = larger(load(blocks.maxima + c * kLanes), most);
    store(groups + v * kLanes, most);
  }
  return kth_of_few(groups, n_vectors, k);
}

// The entry of a rank, given the n entries, the leaders, that reach some bound below it.
INLINE float entry_of_rank(SparseRow& row, int64_t n, int64_t rank) {
  float* leaders = row.leaders.data;
  if (n <= kFewVectors * kLanes) {
    store(leaders + n, all(-INFINITY));
    return kth_of_few(leaders, (n + kLanes - 1) / kLanes, rank);
  }
  return number_of(kth_largest_key(row.keys.data, write_keys(leaders, n, row.keys.data), rank));
}

// Collect the entries above the entry of a rank minus one, and make that entry the reference.
INLINE void find_candidates(SparseRow& row, int64_t rank) {
  const float reached = reached_by_groups(row, rank);
  int64_t n = 0;
  visit_from(row.blocks, reached - 1, [&](int64_t i, float x) {
    row.candidates[n] = static_cast<int32_t>(i);
    row.values[n++] = x;
  });
  row.n_candidates = n;
  int64_t n_leaders = 0;
  for (int64_t c = 0; c < n; ++c) {
    row.leaders[n_leaders] = row.values[c];
    n_leaders += row.values[c] >= reached;
  }
  row.reference = entry_of_rank(row, n_leaders, rank);
}

INLINE double clip(double x) {
  x = x > 0 ? x : 0;
  return x < 1 ? x : 1;
}

// What clip(v - offset, 0, 1) adds up to: `sum` over those inside (0, 1], and the ones above.
struct Clipped {
  double sum;
  int64_t n_inside, n_above;
};

INLINE Clipped clip_at(const double* v, int64_t n, double offset) {
  Doubles sum = {};
  Longs positive = {}, above = {};
  for (int64_t i = 0; i < n; i += kPairs) {
    Doubles x;
    memcpy(&x, v + i, sizeof x);
    x -= offset;
    const Longs is_positive = x > 0, is_above = x > 1;
    sum += (Doubles)((Longs)x & is_positive & ~is_above);
    positive -= is_positive;
    above -= is_above;
  }
  const int64_t n_above = sum_lanes(above);
  return {sum_lanes(sum), sum_lanes(positive) - n_above, n_above};
}

// Find the offset in [-1, 0] where the clipped v sum to k, by Newton's steps; where one leaves the
// bracket, or the steps do not halve the excess, the bracket is halved.
INLINE double solve_offset(const double* v, int64_t n, double k) {
  double offset = -1, low = -1, high = 0, previous = INFINITY;
  while (high - low > 4e-16) {
    const Clipped clipped = clip_at(v, n, offset);
    const double excess = clipped.sum - (k - static_cast<double>(clipped.n_above));
    if (excess == 0) return offset;
    (excess > 0 ? low : high) = offset;
    const double size = fabs(excess);
    const double next = offset + excess / static_cast<double>(clipped.n_inside);
    if (fabs(next - offset) <= 1e-15) return next;
    if (next >= low && next <= high && size <= previous / 2) {
      offset = next;
      previous = size;
    } else {
      offset = (low + high) / 2;
      previous = INFINITY;
    }
  }
  return offset;
}

// Leave out the candidates that are not positive.
INLINE void drop_zeros(SparseRow& row) {
  int64_t n = 0;
  for (int64_t c = 0; c < row.n_candidates; ++c) {
    const float x = row.values[c];
    row.candidates[n] = row.candidates[c];
    row.values[n] = x;
    n += row.shift(x) > 0;
  }
  row.n_candidates = n;
}

// Find the threshold of a row of which no entry is NaN; return whether there is one.
INLINE bool solve(SparseRow& row, double k) {
  const double rank = ceil(k);
  find_candidates(row, rank < 1 ? 1 : static_cast<int64_t>(rank));
  if (!__builtin_isfinite(row.reference)) return false;
  // Whatever the offset, these become 0 and 1.
  int64_t n = 0, n_ones = 0;
  double* v = row.shifted.data;
  for (int64_t c = 0; c < row.n_candidates; ++c) {
    v[n] = row.values[c] - row.reference;
    n_ones += v[n] >= 1;
    n += v[n] > -1 && v[n] < 1;
  }
  for (int i = 0; i < kPairs; ++i) v[n + i] = -2;
  row.offset = k > 0 ? solve_offset(v, n, k - static_cast<double>(n_ones)) : 0;
  drop_zeros(row);
  return true;
}

INLINE bool prepare_and_solve(SparseRow& row, const float* scores, double k) {
  row.blocks.scores = scores;
  find_maxima(row.blocks);
  return !row.blocks.has_nan && solve(row, k);
}

// Places, in the flattened result, of the entries that the derivatives depend on, in increasing
// order; `n` above the capacity tells that they did not fit.
struct Places {
  int64_t* places;
  int64_t capacity, n;

  bool have_room(int64_t more) {
    if (n + more > capacity) n = capacity + 1;
    return n + more <= capacity;
  }
};

inline void write_densely(const SparseRow& row, float* result) {
  const double reference = row.reference, offset = row.offset;
  for (int64_t i = 0; i < row.blocks.n; ++i) {
    const double above = (row.blocks.scores[i] - reference) - offset;
    result[i] = static_cast<float>(clip(above));
  }
}

inline void write_sparsely(const SparseRow& row, float* result, bool past_cache, int64_t first,
                           Places& inside) {
  fill_zeros(result, row.blocks.n, past_cache);
  const bool listing = inside.have_room(row.n_candidates);
  for (int64_t c = 0; c < row.n_candidates; ++c) {
    const int64_t i = row.candidates[c];
    const float q = static_cast<float>(clip(row.shift(row.values[c])));
    result[i] = q;
    if (!listing) continue;
    inside.places[inside.n] = first + i;
    inside.n += q > 0 && q < 1;
  }
}

// Project rows; return the number of entries strictly inside (0, 1), whose places are listed, or
// one more than the capacity if they do not fit. Rows without a threshold become NaN.
int64_t project_rows(const ProjectArguments& a) {
  if (a.n_classes == 0) return 0;
  SparseRow row(a.n_classes);
  Places inside = {a.places, a.capacity, 0};
  const int64_t n = a.n_classes;
  const bool past_cache = a.n_rows * n * 4 > kCached;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    float* result = a.result + r * n;
    if (!prepare_and_solve(row, a.scores + r * n, a.sizes ? a.sizes[r] : a.size)) {
      fill(result, n, NAN);
    } else if (row.n_candidates * kFewCandidates < n) {
      write_sparsely(row, result, past_cache, r * n, inside);
    } else {
      write_densely(row, result);
      inside.have_room(a.capacity + 1);
    }
  }
  finish_stream();
  return inside.n;
}

// Write the gradient of a row where q is strictly inside (0, 1), minus its mean there.
INLINE void centre(const float* grad, const float* q, int64_t n, float* result) {
  Doubles sums = {};
  Ints counts = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Ints inside = (load(q + i) > 0) & (load(q + i) < 1);
    float kept[kLanes];
    store(kept, (Floats)((Ints)load(grad + i) & inside));
    sums += widen(kept) + widen(kept + kPairs);
    counts -= inside;
  }
  double sum = sum_lanes(sums);
  int64_t n_inside = sum_lanes(counts);
  for (; i < n; ++i) {
    const bool inside = q[i] > 0 && q[i] < 1;
    sum += inside ? grad[i] : 0;
    n_inside += inside;
  }
  const float mean = static_cast<float>(sum / static_cast<double>(n_inside));
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Ints inside = (load(q + i) > 0) & (load(q + i) < 1);
    store(result + i, (Floats)((Ints)(load(grad + i) - mean) & inside));
  }
  for (; i < n; ++i) result[i] = q[i] > 0 && q[i] < 1 ? grad[i] - mean : 0;
}

// Write the gradient of `project_rows` in the scores, from the places listed, or from q.
void project_gradient_rows(const ProjectGradientArguments& a) {
  const int64_t n = a.n_classes;
  const bool past_cache = a.n_rows * n * 4 > kCached;
  int64_t start = 0;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* grad = a.grad + r * a.row_stride;
    float* result = a.result + r * n;
    if (a.q) {
      centre(grad, a.q + r * n, n, result);
      continue;
    }
    fill_zeros(result, n, past_cache);
    double sum = 0;
    int64_t end = start;
    for (; end < a.n_places && a.places[end] < (r + 1) * n; ++end)
      sum += grad[(a.places[end] - r * n) * a.class_stride];
    const float mean = static_cast<float>(sum / static_cast<double>(end - start));
    for (; start < end; ++start) {
      const int64_t i = a.places[start] - r * n;
      result[i] = grad[i * a.class_stride] - mean;
    }
  }
  finish_stream();
}
