// The noised and the calibrated top-k hinge losses, and the selections they rest on.

// Memory for one row at a time; the constructor may throw bad_alloc.
struct RowMemory {
  std::vector<float> maxima, tops;
  std::vector<Entry> entries;
  std::vector<int32_t> head;

  RowMemory(int64_t n_classes, int64_t k, int height)
      : maxima(count_chunks(n_classes, height) * kLanes),
        tops(count_chunks(n_classes, height)),
        entries(k),
        head(n_classes) {}

  NoisedRow row(int64_t n_classes, int64_t k, int height, float epsilon) {
    const Blocks blocks = {nullptr,       n_classes,   height, count_chunks(n_classes, height),
                           maxima.data(), tops.data(), false};
    return {blocks, {entries.data(), 0, k}, head.data(), 0, 0, epsilon};
  }
};

INLINE int block_height(int64_t n_classes) { return n_classes < 4096 ? 4 : 16; }

// Fill the heap with the k largest scores themselves.
INLINE void select_exactly(NoisedRow& row, const float* scores, int64_t k) {
  row.blocks.scores = scores;
  find_maxima(row.blocks);
  const float reached = reached_by(row.blocks, k, row.heap);
  row.heap.size = 0;
  row.heap.capacity = k;
  visit_from(row.blocks, reached, [&](int64_t i, float x) {
    if (!row.heap.full() || x > row.heap.least()) row.heap.offer({x, 0, i});
  });
}

// Select the classes of rank k (or 1 to k) of each row in each draw, and their normals.
// A row with a NaN has the class of the NaN everywhere, with normal 0.
void select_rows(const SelectArguments& a) {
  const int height = block_height(a.n_classes);
  RowMemory memory(a.n_classes, a.k, height);
  NoisedRow row = memory.row(a.n_classes, a.k, height, a.epsilon);
  const int64_t n_kept = a.all_k ? a.k : 1;
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    int64_t* indices = a.indices + i * a.n_draws * n_kept;
    float* normals = a.normals + i * a.n_draws * n_kept;
    random.seed(a.seed, static_cast<uint64_t>(i));
    if (a.epsilon > 0)
      prepare(row, scores, a.k);
    else
      select_exactly(row, scores, a.k);
    if (row.blocks.has_nan) {
      int64_t place = 0;
      while (scores[place] == scores[place]) ++place;
      for (int64_t j = 0; j < a.n_draws * n_kept; ++j) {
        indices[j] = place;
        normals[j] = 0;
      }
      continue;
    }
    for (int64_t d = 0; d < a.n_draws; ++d) {
      if (a.epsilon > 0) draw(row, random);
      for (int64_t j = 0; j < n_kept; ++j) {
        *indices++ = row.heap.entries[j].index;
        *normals++ = row.heap.entries[j].normal;
      }
    }
  }
}

// Compute scale (margin + mean of the k-th largest noised scores - own score)_+ of each row, its
// slope, and the classes it depends on: those of the draws, then the true one.
// Returns the number of rows whose target is no class; then nothing else is meaningful.
int64_t hinge_rows(const HingeArguments& a) {
  int64_t n_bad = 0;
  for (int64_t i = 0; i < a.n_rows; ++i)
    n_bad += a.target[i] < 0 || a.target[i] >= a.n_classes;
  if (n_bad) return n_bad;
  const int height = block_height(a.n_classes);
  RowMemory memory(a.n_classes, a.k, height);
  NoisedRow row = memory.row(a.n_classes, a.k, height, a.epsilon);
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    int64_t* indices = a.indices + i * (a.n_draws + 1);
    double mean = 0;
    if (a.epsilon > 0) {
      prepare(row, scores, a.k);
      random.seed(a.seed, static_cast<uint64_t>(i));
      for (int64_t d = 0; d < a.n_draws && !row.blocks.has_nan; ++d) {
        draw(row, random);
        const Entry& kth = row.heap.entries[0];
        indices[d] = kth.index;
        mean += static_cast<double>(scores[kth.index]) +
                static_cast<double>(a.epsilon) * static_cast<double>(kth.normal);
      }
      mean /= static_cast<double>(a.n_draws);
    } else {
      select_exactly(row, scores, a.k);
      for (int64_t d = 0; d < a.n_draws; ++d) indices[d] = row.heap.entries[0].index;
      mean = row.heap.least();
    }
    indices[a.n_draws] = a.target[i];
    const double margin = a.margins ? a.margins[i] : a.margin;
    const double value = a.scale * (margin + mean - scores[a.target[i]]);
    if (row.blocks.has_nan) {
      a.losses[i] = NAN;
      a.slopes[i] = 0;
      for (int64_t d = 0; d < a.n_draws; ++d) indices[d] = a.target[i];
    } else {
      a.losses[i] = value <= 0 ? 0 : static_cast<float>(value);
      a.slopes[i] = value > 0 ? a.scale : 0;
    }
  }
  return 0;
}

// Write the gradient of the losses of `hinge_rows` in the scores.
void hinge_gradient_rows(const HingeGradientArguments& a) {
  memset(a.result, 0, sizeof(float) * static_cast<size_t>(a.n_rows * a.n_classes));
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float slope = a.slopes[i] * a.grad[i * a.grad_stride];
    if (slope == 0) continue;
    float* result = a.result + i * a.n_classes;
    const int64_t* indices = a.indices + i * (a.n_draws + 1);
    for (int64_t d = 0; d < a.n_draws; ++d)
      result[indices[d]] += slope / static_cast<float>(a.n_draws);
    result[indices[a.n_draws]] -= slope;
  }
}
