// The k largest of rows of few classes, with and without noise: one row a lane, as many side by side
// as there are lanes. The normals of all classes are drawn, and nothing branches.

constexpr int64_t kFewRanks = kLanes;

// Whether this takes less time than one row after the other, as measured for 4, 8 and 16 lanes.
INLINE bool are_short(int64_t n_classes, int64_t k, float epsilon) {
  return n_classes <= (epsilon > 0 ? 3 : 1) * kLanes * kLanes / 2 && k <= kFewRanks;
}

struct ShortRows {
  int64_t n_classes, k;
  float epsilon;
  Buffer<float> scores, normals;  // of the first class, of the second..., in pairs
  // The k largest entries of a draw, the largest first.
  Floats values[kFewRanks];
  Ints classes[kFewRanks];
  uint32_t with_nan;  // a bit for each row

  ShortRows(int64_t n_classes, int64_t k, float epsilon)
      : n_classes(n_classes),
        k(k),
        epsilon(epsilon),
        scores((n_classes + 1) * kLanes),
        normals((n_classes + 1) * kLanes, true),
        classes{} {}

  // Begin with `n_rows` rows, at most as many as there are lanes.
  INLINE void read(const float* from, int64_t n_rows) {
    Ints nan = {};
    for (int64_t j = 0; j < n_classes; ++j) {
      for (int64_t l = 0; l < kLanes; ++l)
        scores[j * kLanes + l] = from[(l < n_rows ? l : 0) * n_classes + j];
      const Floats x = load(scores.data + j * kLanes);
      nan |= x != x;
    }
    with_nan = bits(nan);
  }

  INLINE void offer(Floats value, Ints index) {
    for (int64_t r = 0; r < k; ++r) {
      const Floats held = values[r];
      const Ints held_class = classes[r];
      // A score of -inf takes a place that is still empty.
      const Ints wins = value >= held;
      values[r] = wins ? value : held;
      classes[r] = wins ? index : held_class;
      value = wins ? held : value;
      index = wins ? held_class : index;
    }
  }

  INLINE void draw(Random& random) {
    for (int64_t r = 0; r < k; ++r) values[r] = all(-INFINITY);
    if (epsilon > 0)
      for (int64_t j = 0; j < n_classes; j += 2) random.fill_normals(normals.data + j * kLanes);
    // Backwards: of those that tie, the last to be offered comes first.
    for (int64_t j = n_classes - 1; j >= 0; --j) {
      const Floats normal = load(normals.data + j * kLanes);
      offer(load(scores.data + j * kLanes) + epsilon * normal,
            Ints{} + static_cast<int32_t>(j));
    }
  }

  // Return the entry of a rank, in the row of a lane.
  INLINE Entry entry(int64_t rank, int64_t lane) const {
    const int64_t index = classes[rank - 1][lane];
    return {values[rank - 1][lane], normals[index * kLanes + lane], index};
  }
};

// Draw `n_draws` times for all rows: call `visit(row, draw, lane)` for each draw of each row
// without NaN, and then `finish(row, lane, has_nan)`.
template <class Visit, class Finish>
INLINE void visit_short_rows(ShortRows& rows, const float* scores, int64_t n_rows, int64_t n_draws,
                             uint64_t seed, Visit visit, Finish finish) {
  Random random;
  for (int64_t first = 0; first < n_rows; first += kLanes) {
    const int64_t n = n_rows - first < kLanes ? n_rows - first : kLanes;
    rows.read(scores + first * rows.n_classes, n);
    random.seed(seed, static_cast<uint64_t>(first));
    for (int64_t d = 0; d < n_draws; ++d) {
      rows.draw(random);
      for (int64_t l = 0; l < n; ++l)
        if (!(rows.with_nan >> l & 1)) visit(first + l, d, l);
    }
    for (int64_t l = 0; l < n; ++l) finish(first + l, l, rows.with_nan >> l & 1);
  }
}
