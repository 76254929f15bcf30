// The head of a row: about the 2.5 k largest scores but that of the true class, their classes,
// and the k-th largest. A number that enough scores reach, and few more, is found by bisection; in
// long rows first among maxima of chunks, and then among the scores that reach what it gave.

// Stands for the score -inf.
constexpr float kLowest = -FLT_MAX;

// How a problem of this shape is computed.
struct SmoothedPlan {
  int64_t n_classes, k, rank;
  float sign;
  int64_t least, most;  // classes in the head, unless all others are

  SmoothedPlan(int64_t n_classes, int64_t k) : n_classes(n_classes), k(k) {
    const bool flipped = 2 * k > n_classes;
    rank = flipped ? n_classes - k : k;
    sign = flipped ? -1.0f : 1.0f;
    least = 2 * rank + rank / 2 + 1;
    most = least + rank / 2 + 8;
    if (most > n_classes - 1) least = most = n_classes - 1;
  }
};

// A row of scores, but for the true class, and its selection.
struct SmoothedRow {
  SmoothedPlan plan;
  int height;
  int64_t n_vectors, n_chunks, n_head;
  Buffer<Lanes> values;  // -inf for the true class and behind the last
  Buffer<Lanes> maxima;  // of chunks of `height` vectors
  Buffer<Lanes> candidates, head_values;
  Buffer<int32_t> places, head;
  Buffer<double> sums, coefficients, gradient;
  Polynomials polynomials;

  explicit SmoothedRow(const SmoothedPlan& plan)
      : plan(plan),
        height(plan.n_classes < 4096 ? 4 : 16),
        n_vectors((plan.n_classes + kLanes - 1) / kLanes),
        n_chunks((n_vectors + height - 1) / height),
        values(n_vectors),
        maxima(n_chunks),
        candidates(4 * plan.most, true),
        head_values(plan.most / kLanes + 1, true),
        places(room()),
        head(plan.most),
        sums(plan.rank + 4, true),
        coefficients(plan.rank, true),
        gradient(plan.most, true),
        polynomials(plan.rank, plan.most) {}

  int64_t room() const { return 4 * plan.most * kLanes; }  // of the candidates
};

// Copy a row; return whether no score is NaN or infinity.
INLINE bool copy_row(SmoothedRow& row, const float* scores, int64_t target) {
  const int64_t n = row.plan.n_classes, n_whole = n / kLanes * kLanes;
  const float sign = row.plan.sign;
  float* values = row.values[0].lanes;
  Ints bad = {};
  for (int64_t i = 0; i < n_whole; i += kLanes) {
    const Floats x = load(scores + i);
    bad |= ~(x < INFINITY);
    store(values + i, larger(x, all(kLowest)) * sign);
  }
  bool are_numbers = bits(bad) == 0;
  for (int64_t i = n_whole; i < n; ++i) {
    are_numbers &= scores[i] < INFINITY;
    values[i] = (scores[i] > kLowest ? scores[i] : kLowest) * sign;
  }
  for (int64_t i = n; i < row.n_vectors * kLanes; ++i) values[i] = -INFINITY;
  values[target] = -INFINITY;
  return are_numbers;
}

INLINE void find_maxima(SmoothedRow& row) {
  const Lanes* values = row.values.data;
  Lanes* maxima = row.maxima.data;
  for (int64_t v = 0; v < row.n_vectors; v += row.height) {
    const int64_t end = v + row.height < row.n_vectors ? v + row.height : row.n_vectors;
    Floats most = load(values[v].lanes);
    for (int64_t w = v + 1; w < end; ++w) most = larger(load(values[w].lanes), most);
    store((maxima++)->lanes, most);
  }
}

INLINE int64_t count_from(const Lanes* x, int64_t n_vectors, float cut) {
  Ints count = {};
  for (int64_t v = 0; v < n_vectors; ++v) count -= load(x[v].lanes) >= cut;
  int64_t total = 0;
  for (int l = 0; l < kLanes; ++l) total += count[l];
  return total;
}

struct Cut {
  float value;
  int64_t n_above;  // entries above it, if more than `most` reach it
  bool tied;        // whether they do
};

// A number that at least `least` entries reach, and at most `most` unless they tie there. There
// are at least `least` numbers above -inf.
INLINE Cut find_cut(const Lanes* x, int64_t n_vectors, int64_t least, int64_t most) {
  Floats top = all(-INFINITY), bottom = all(INFINITY);
  for (int64_t v = 0; v < n_vectors; ++v) {
    const Floats each = load(x[v].lanes);
    top = larger(each, top);
    bottom = each > -INFINITY ? smaller(each, bottom) : bottom;
  }
  const float least_top = -largest_lane(-top);
  // Each lane holds an entry that reaches it.
  const bool lanes_do = least <= kLanes && least_top > -INFINITY;
  float low = lanes_do ? least_top : -largest_lane(-bottom);
  float high = number_of(key_of(largest_lane(top)) + 1);
  if (count_from(x, n_vectors, low) <= most) return {low, 0, false};
  int64_t n_above = 0;
  for (bool by_keys = false;; by_keys = !by_keys) {
    const int64_t low_key = key_of(low), high_key = key_of(high);
    if (high_key - low_key <= 1) return {low, n_above, true};
    float middle = low + 0.5f * (high - low);
    if (by_keys || !(middle > low && middle < high))
      middle = number_of(low_key + (high_key - low_key) / 2);
    const int64_t n = count_from(x, n_vectors, middle);
    if (n > most)
      low = middle;
    else if (n >= least)
      return {middle, 0, false};
    else
      high = middle, n_above = n;
  }
}

// Write the places of the entries that reach `cut` into `places`; return how many there are, or -1
// if more than `room`. At most `n_tied` of those equal to it count.
INLINE int64_t places_from(const SmoothedRow& row, float cut, int64_t n_tied, int64_t room,
                           bool by_chunks, int32_t* places) {
  const Lanes *values = row.values.data, *maxima = row.maxima.data;
  const int64_t n_vectors = row.n_vectors, height = row.height;
  int64_t n = 0;
  for (int64_t first = 0; first < n_vectors; first += height, ++maxima) {
    if (by_chunks && !bits(load(maxima->lanes) >= cut)) continue;
    const int64_t end = first + height < n_vectors ? first + height : n_vectors;
    for (int64_t v = first; v < end; ++v) {
      const float* lanes = values[v].lanes;
      for (uint32_t found = bits(load(lanes) >= cut); found; found &= found - 1) {
        const int l = __builtin_ctz(found);
        if (lanes[l] == cut && n_tied-- <= 0) continue;
        if (n == room) return -1;
        places[n++] = static_cast<int32_t>(v * kLanes + l);
      }
    }
  }
  return n;
}

// Write the values at the places, and -inf up to a whole vector; return the number of vectors.
INLINE int64_t gather(const SmoothedRow& row, const int32_t* places, int64_t n, Lanes* out) {
  const int64_t n_vectors = (n + kLanes - 1) / kLanes;
  float* lanes = out->lanes;
  for (int64_t i = 0; i < n; ++i) lanes[i] = row.values[0].lanes[places[i]];
  for (int64_t i = n; i < n_vectors * kLanes; ++i) lanes[i] = -INFINITY;
  return n_vectors;
}

// Find the head and its values; return a number that it reaches, and the tail does not, but for
// `n_left` classes.
INLINE float select_head(SmoothedRow& row, int64_t* n_left) {
  const SmoothedPlan& plan = row.plan;
  *n_left = 0;
  if (plan.most == plan.n_classes - 1) {
    row.n_head = places_from(row, kLowest, plan.most, plan.most, false, row.head.data);
    gather(row, row.head.data, row.n_head, row.head_values.data);
    return kLowest;
  }
  const Lanes* x = row.values.data;
  int64_t n_vectors = row.n_vectors;
  const bool by_chunks = row.n_chunks * kLanes >= 4 * plan.least;
  if (by_chunks) {
    find_maxima(row);
    const Cut reached = find_cut(row.maxima.data, row.n_chunks, plan.least, 2 * plan.least);
    const int64_t room = row.room();
    const int64_t n = places_from(row, reached.value, room, room, true, row.places.data);
    if (n >= 0) {
      n_vectors = gather(row, row.places.data, n, row.candidates.data);
      x = row.candidates.data;
    }
  }
  const Cut cut = find_cut(x, n_vectors, plan.least, plan.most);
  const int64_t n_tied = cut.tied ? plan.least - cut.n_above : plan.most;
  row.n_head = places_from(row, cut.value, n_tied, plan.most, by_chunks, row.head.data);
  gather(row, row.head.data, row.n_head, row.head_values.data);
  if (cut.tied) *n_left = count_from(row.values.data, row.n_vectors, cut.value) - row.n_head;
  return cut.value;
}

// The largest number of which `rank` of the head reach it.
INLINE float find_reference(const SmoothedRow& row) {
  const int64_t n_vectors = (row.n_head + kLanes - 1) / kLanes, rank = row.plan.rank;
  const Cut cut = find_cut(row.head_values.data, n_vectors, rank, rank);
  Floats least = all(INFINITY);
  for (int64_t v = 0; v < n_vectors; ++v) {
    const Floats x = load(row.head_values[v].lanes);
    least = x >= cut.value ? smaller(x, least) : least;
  }
  return -largest_lane(-least);
}
