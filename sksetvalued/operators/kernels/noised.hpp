// The k-th largest score of a row after noise, exact in law, without noise for most classes.
//
// Classes that score near the largest, the head, have their normals drawn: the k-th largest of
// them is a threshold T that only rises. Of a block of m other classes, none of which scores above
// b, each exceeds T with probability at most p = Q((T - b) / epsilon), the normal tail. The
// classes whose normals exceed (T - b) / epsilon are found by geometric gaps, and those normals
// alone are drawn. Nearly all blocks have none: one uniform number against a bound of m p tells.

// Q(u) <= exp(-a u^2 - b u - c) where u >= kLeastBounded; found by linear programming, up to 1.14
// times Q below u = 3.5.
constexpr float kBoundA = 0.3547642f, kBoundB = 1.0369203f, kBoundC = 0.2675f;
constexpr float kLeastBounded = -0.5f;
// How far below the k-th largest score, in standard deviations of the noise, the head reaches.
constexpr float kHeadDepth = 1.0f;

// Buffers for one row, and what its scores fix before any noise is drawn.
struct NoisedRow {
  Blocks blocks;
  Heap heap;
  int32_t* head;
  int64_t n_head;
  float bound;  // of the scores outside the head
  float epsilon;
};

INLINE void prepare(NoisedRow& row, const float* scores, int64_t k) {
  row.blocks.scores = scores;
  find_maxima(row.blocks);
  const float reached = reached_by(row.blocks, k, row.heap);
  row.bound = reached - kHeadDepth * row.epsilon;
  row.n_head = 0;
  visit_from(row.blocks, row.bound,
             [&](int64_t i, float) { row.head[row.n_head++] = static_cast<int32_t>(i); });
  row.heap.capacity = k;
}

// Draw the normals of the head into the heap.
INLINE void draw_head(NoisedRow& row, Random& random) {
  float normals[2 * kLanes];
  for (int64_t start = 0; start < row.n_head; start += 2 * kLanes) {
    random.fill_normals(normals);
    const int64_t n = row.n_head - start < 2 * kLanes ? row.n_head - start : 2 * kLanes;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t index = row.head[start + i];
      const float value = row.blocks.scores[index] + row.epsilon * normals[i];
      if (!row.heap.full() || value > row.heap.least())
        row.heap.offer({value, normals[i], index});
    }
  }
}

// Offer the classes outside the head of a block that may exceed `threshold`, given the first
// digits of the uniform number that gives the first gap.
INLINE void draw_block(NoisedRow& row, Random& random, int64_t chunk, int lane, uint32_t digits,
                       float threshold) {
  const int64_t first = chunk * row.blocks.chunk_size() + lane;
  const float most = row.blocks.maxima[chunk * kLanes + lane];
  const double bound = most < row.bound ? most : row.bound;
  const double least = (threshold - bound) / row.epsilon;
  const double log_others = log1p(-0.5 * erfc(least * 0.70710678118654752));
  double u = (digits + random.uniform()) * 0x1p-32;
  double member = floor(log1p(-u) / log_others);
  while (member < row.blocks.height) {
    const int64_t index = first + static_cast<int64_t>(member) * kLanes;
    if (index >= row.blocks.n) return;
    const float score = row.blocks.scores[index];
    if (score < row.bound) {
      const float normal = static_cast<float>(random.normal_above(least));
      const float value = score + row.epsilon * normal;
      if (value > row.heap.least()) row.heap.offer({value, normal, index});
    }
    member += 1 + floor(log(random.uniform()) / log_others);
  }
}

// Fill the heap with the k largest noised scores of one draw.
INLINE void draw(NoisedRow& row, Random& random) {
  row.heap.size = 0;
  draw_head(row, random);
  const float inverse = 1 / row.epsilon;
  // exp(-a u^2 - b u - c) times the size of a block, in units of 2^-32.
  const float offset = logf(row.blocks.height * 1.001f) + 22.1807098f - kBoundC;
  for (int64_t c = 0; c < row.blocks.n_chunks; ++c) {
    const float threshold = row.heap.least();
    const float top = row.blocks.tops[c] < row.bound ? row.blocks.tops[c] : row.bound;
    // The uniform number has 85 digits; below, it could not tell.
    if ((threshold - top) * inverse > 11.0f) continue;
    const Floats most = smaller(load(row.blocks.maxima + c * kLanes), all(row.bound));
    const Floats u = (all(threshold) - most) * inverse;
    const Floats level = exponential(offset - u * (kBoundA * u + kBoundB));
    const Words digits = random.next();
    const Floats drawn = __builtin_convertvector((Ints)(digits >> 1), Floats) * 2.0f;
    // NaN, where the row has infinite scores, tells of nothing to find.
    const Ints told = (drawn <= level * 1.001f + 2.0f) | (u < kLeastBounded);
    for (uint32_t found = bits(told); found; found &= found - 1) {
      const int lane = __builtin_ctz(found);
      draw_block(row, random, c, lane, digits[lane], threshold);
    }
  }
}
