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
// How far below the k-th largest score, in standard deviations of the noise, the head reaches: the
// first depth for which it has few classes, or the last. Where few are a small part of all, even
// if the noise is wide beside the scores, it has no more.
constexpr float kHeadDepths[] = {3.0f, 2.5f, 2.0f, 1.5f, 1.0f};

// What the scores of a row fix before any noise is drawn, and memory for one draw. Memory for the
// head is rounded up to twice the lanes.
struct NoisedRow {
  Blocks blocks;
  int64_t k;
  float epsilon;
  float offset;  // exp(offset - a u^2 - b u) bounds Q(u) times a block's size, in units of 2^-32
  float bound;  // of the scores outside the head
  int64_t n_head;
  int32_t* head;
  float *scores, *values, *normals;  // of the head
  int32_t* keys;
  Heap heap;
  bool heaped;

  double few() const { return static_cast<double>(8 * k + 256 + blocks.n / 32); }
};

// Memory for one row at a time; the constructor may throw bad_alloc.
struct RowMemory {
  int height;
  int64_t n_chunks, n_head;
  Buffer<float> maxima, tops, scores, values, normals;
  Buffer<int32_t> head, keys;
  Buffer<Entry> entries;
  NoisedRow row;

  RowMemory(int64_t n_classes, int64_t k, float epsilon)
      : height(n_classes < 4096 ? 4 : 16),
        n_chunks(count_chunks(n_classes, height)),
        n_head((n_classes / (2 * kLanes) + 1) * 2 * kLanes),
        maxima(n_chunks * kLanes),
        tops(n_chunks),
        scores(n_head),
        values(n_head),
        normals(n_head),
        head(n_head),
        keys(n_head + n_chunks * kLanes),
        entries(k),
        row{{nullptr, n_classes, height, n_chunks, maxima.data, tops.data, false},
            k,
            epsilon,
            logf(height * 1.001f) + 22.1807098f - kBoundC,
            0,
            0,
            head.data,
            scores.data,
            values.data,
            normals.data,
            keys.data,
            {entries.data, 0, k},
            false} {}
};

// Estimate how many scores are at least `bound` from the number of blocks whose maxima are.
INLINE double estimate_from(const Blocks& blocks, float bound) {
  Ints counts = {};
  for (int64_t c = 0; c < blocks.n_chunks; ++c)
    counts -= load(blocks.maxima + c * kLanes) >= bound;
  double count = 0;
  for (int l = 0; l < kLanes; ++l) count += counts[l];
  const double n_blocks = static_cast<double>(blocks.n_chunks * kLanes);
  return static_cast<double>(blocks.n) * (1 - pow(1 - count / n_blocks, 1.0 / blocks.height));
}

// Begin with a row; return whether it has no NaN.
INLINE bool read(NoisedRow& row, const float* scores) {
  row.blocks.scores = scores;
  find_maxima(row.blocks);
  return !row.blocks.has_nan;
}

INLINE void collect(NoisedRow& row, float bound) {
  row.bound = bound;
  row.n_head = 0;
  visit_from(row.blocks, bound, [&](int64_t i, float score) {
    row.head[row.n_head] = static_cast<int32_t>(i);
    row.scores[row.n_head++] = score;
  });
}

// Find the head of a row, given its maxima.
INLINE void find_head(NoisedRow& row) {
  const float reached = reached_by(row.blocks, row.k, row.keys);
  float bound = reached;
  for (float depth : kHeadDepths) {
    bound = reached - depth * row.epsilon;
    if (estimate_from(row.blocks, bound) <= row.few()) return collect(row, bound);
  }
  if (4 * row.few() < static_cast<double>(row.blocks.n))
    bound = reached_by(row.blocks, static_cast<int64_t>(row.few() / 2), row.keys);
  collect(row, bound);
}

// Return the k-th largest value of the head.
INLINE float kth_value(NoisedRow& row) {
  row.heaped = false;
  const int64_t n_keys = write_keys(row.values, row.n_head, row.keys);
  return number_of(kth_largest_key(row.keys, n_keys, row.k));
}

INLINE void fill_heap(NoisedRow& row, float kth) {
  row.heaped = true;
  row.heap.size = 0;
  row.heap.capacity = row.k;
  // Those that tie with the k-th fill what is left.
  for (int64_t i = 0; i < row.n_head; ++i)
    if (row.values[i] > kth) row.heap.offer({row.values[i], row.normals[i], row.head[i]});
  for (int64_t i = 0; !row.heap.full(); ++i)
    if (row.values[i] == kth) row.heap.offer({row.values[i], row.normals[i], row.head[i]});
}

// Return the entry of rank k.
INLINE Entry kth_entry(const NoisedRow& row, float kth) {
  if (row.heaped) return row.heap.entries[0];
  int64_t i = 0;
  while (!(row.values[i] == kth)) ++i;
  return {kth, row.normals[i], row.head[i]};
}

// Return the k-th largest score itself, and its class.
INLINE Entry select_exactly(NoisedRow& row) {
  collect(row, reached_by(row.blocks, row.k, row.keys));
  memcpy(row.values, row.scores, sizeof(float) * static_cast<size_t>(row.n_head));
  return kth_entry(row, kth_value(row));
}

// Draw the normals of the head and return the k-th largest of its noised scores.
INLINE float draw_head(NoisedRow& row, Random& random) {
  for (int64_t i = 0; i < row.n_head; i += 2 * kLanes) {
    random.fill_normals(row.normals + i);
    for (int64_t j = i; j < i + 2 * kLanes; j += kLanes)
      store(row.values + j, load(row.scores + j) + row.epsilon * load(row.normals + j));
  }
  return kth_value(row);
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
      if (value > threshold && !row.heaped) fill_heap(row, threshold);
      if (row.heaped) row.heap.offer({value, normal, index});
    }
    member += 1 + floor(log(random.uniform()) / log_others);
  }
}

// Draw once and return the entry of rank k; if `row.heaped`, the heap holds those of rank 1 to k.
INLINE Entry draw(NoisedRow& row, Random& random) {
  const float kth = draw_head(row, random);
  const float inverse = 1 / row.epsilon;
  for (int64_t c = 0; c < row.blocks.n_chunks; ++c) {
    const float threshold = row.heaped ? row.heap.least() : kth;
    const float top = row.blocks.tops[c] < row.bound ? row.blocks.tops[c] : row.bound;
    // The uniform number has 85 digits; below, it could not tell.
    if ((threshold - top) * inverse > 11.0f) continue;
    const Floats most = smaller(load(row.blocks.maxima + c * kLanes), all(row.bound));
    const Floats u = (all(threshold) - most) * inverse;
    const Floats level = power_of_two((row.offset - u * (kBoundA * u + kBoundB)) * 1.44269504f);
    const Words digits = random.next();
    const Floats drawn = __builtin_convertvector((Ints)(digits >> 1), Floats) * 2.0f;
    // Where infinite scores make u NaN, the block is searched and nothing found.
    const Ints told = (drawn <= level * 1.001f + 2.0f) | (u < kLeastBounded);
    for (uint32_t found = bits(told); found; found &= found - 1) {
      const int lane = __builtin_ctz(found);
      draw_block(row, random, c, lane, digits[lane], threshold);
    }
  }
  return kth_entry(row, kth);
}
