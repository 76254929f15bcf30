// The noised and the calibrated top-k hinge losses.

// Compute scale (margin + mean of the k-th largest noised scores - own score)_+ of each row, its
// slope, and the classes it depends on: those of the draws, then the true one.
// Returns the number of rows whose target is no class; then nothing else is meaningful.
int64_t hinge_rows(const HingeArguments& a) {
  if (const int64_t n_bad = count_bad(a.target, a.n_rows, a.n_classes)) return n_bad;
  RowMemory memory(a.n_classes, a.k, a.epsilon);
  NoisedRow& row = memory.row;
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    int64_t* indices = a.indices + i * (a.n_draws + 1);
    if (!read(row, scores)) {
      for (int64_t d = 0; d <= a.n_draws; ++d) indices[d] = a.target[i];
      a.losses[i] = NAN;
      a.slopes[i] = 0;
      continue;
    }
    double mean = 0;
    if (a.epsilon > 0) {
      find_head(row);
      random.seed(a.seed, static_cast<uint64_t>(i));
      for (int64_t d = 0; d < a.n_draws; ++d) {
        const Entry kth = draw(row, random);
        indices[d] = kth.index;
        mean += static_cast<double>(scores[kth.index]) +
                static_cast<double>(a.epsilon) * static_cast<double>(kth.normal);
      }
      mean /= static_cast<double>(a.n_draws);
    } else {
      const Entry kth = select_exactly(row);
      for (int64_t d = 0; d < a.n_draws; ++d) indices[d] = kth.index;
      mean = kth.value;
    }
    indices[a.n_draws] = a.target[i];
    const double margin = a.margins ? a.margins[i] : a.margin;
    const double value = a.scale * (margin + mean - scores[a.target[i]]);
    // Infinite scores may give NaN, which is kept.
    a.losses[i] = value <= 0 ? 0 : static_cast<float>(value);
    a.slopes[i] = value > 0 ? a.scale : 0;
  }
  return 0;
}

// Write the gradient of the losses of `hinge_rows` in the scores.
void hinge_gradient_rows(const HingeGradientArguments& a) {
  const int64_t size = a.n_rows * a.n_classes;
  fill_zeros(a.result, size, 4 * size > kCached);
  finish_stream();
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
