// The Fenchel-Young losses of the projection on the top-K simplex.
//
// With d = s - threshold, q = clip(d, 0, 1) and p the point of the labels, the loss of a sample is
// the sum of (q - p) (d - q + (q - p) / 2), in which no term is negative and no large numbers
// cancel; its gradient is q - p.

// The labels of a sample, in increasing order, and their entries of p, which sum to k.
struct Labels {
  Buffer<int32_t> classes;
  Buffer<float> weights;
  int64_t n = 0;
  double k = 0;

  explicit Labels(int64_t most) : classes(most), weights(most) {}

  void add(int64_t index, float weight) {
    classes[n] = static_cast<int32_t>(index);
    weights[n++] = weight;
    k += weight;
  }
};

INLINE void find_labels(Labels& labels, const FenchelYoungArguments& a, int64_t r) {
  labels.n = 0;
  labels.k = 0;
  if (a.classes) {
    labels.add(a.classes[r], 1);
    return;
  }
  const float* point = a.points + r * a.n_classes;
  int64_t i = 0;
  for (; i + kLanes <= a.n_classes; i += kLanes)
    for (uint32_t found = bits(load(point + i) != 0); found; found &= found - 1) {
      const int l = __builtin_ctz(found);
      labels.add(i + l, point[i + l]);
    }
  for (; i < a.n_classes; ++i)
    if (point[i] != 0) labels.add(i, point[i]);
  if (!a.shared || !(labels.k > 1)) return;
  for (int64_t j = 0; j < labels.n; ++j) labels.weights[j] /= static_cast<float>(labels.k);
  labels.k = 1;
}

// Call `visit(index, p)` for the candidates and the labels, in increasing order.
template <class Visit>
INLINE void visit_both(const SparseRow& row, const Labels& labels, Visit visit) {
  int64_t j = 0;
  for (int64_t c = 0; c < row.n_candidates; ++c) {
    const int32_t i = row.candidates[c];
    for (; j < labels.n && labels.classes[j] < i; ++j) visit(labels.classes[j], labels.weights[j]);
    const bool both = j < labels.n && labels.classes[j] == i;
    visit(i, both ? labels.weights[j++] : 0.0f);
  }
  for (; j < labels.n; ++j) visit(labels.classes[j], labels.weights[j]);
}

// Return the loss of a sample, and list where its gradient is not zero.
INLINE double list_loss(const SparseRow& row, const Labels& labels, int64_t first,
                        Places& places, float* values) {
  const bool listing = places.have_room(row.n_candidates + labels.n);
  double loss = 0;
  visit_both(row, labels, [&](int64_t i, float p) {
    const double d = row.shift(row.blocks.scores[i]), q = clip(d), gap = q - p;
    // The product of an infinite score and zero would be NaN.
    if (gap == 0) return;
    loss += gap * (d - q + gap / 2);
    if (!listing) return;
    values[places.n] = static_cast<float>(gap);
    places.places[places.n++] = first + i;
  });
  return loss;
}

// Compute the losses of rows; return the number of places where their gradients are not zero, or
// one more than the capacity if they do not fit. With `grad`, write the gradient instead.
// Rows without a threshold become NaN. Return -1, and do nothing, if a class does not exist.
int64_t fenchel_young_rows(const FenchelYoungArguments& a) {
  const int64_t n = a.n_classes;
  if (a.classes && count_bad(a.classes, a.n_rows, n)) return -1;
  if (n == 0) {
    if (a.losses) fill(a.losses, a.n_rows, 0);
    return 0;
  }
  SparseRow row(n);
  Labels labels(a.classes ? 1 : n);
  Places places = {a.places, a.capacity, 0};
  for (int64_t r = 0; r < a.n_rows; ++r) {
    find_labels(labels, a, r);
    const double k = labels.k;
    const bool solved =
        k >= 0 && k <= static_cast<double>(n) && prepare_and_solve(row, a.scores + r * n, k);
    if (!a.grad) {
      if (!solved) places.have_room(a.capacity + 1);
      a.losses[r] =
          solved ? static_cast<float>(list_loss(row, labels, r * n, places, a.values)) : NAN;
      continue;
    }
    float* gradient = a.gradient + r * n;
    const float grad = a.grad[r * a.grad_stride];
    fill(gradient, n, solved ? 0 : NAN);
    if (!solved) continue;
    visit_both(row, labels, [&](int64_t i, float p) {
      gradient[i] = grad * static_cast<float>(clip(row.shift(row.blocks.scores[i])) - p);
    });
  }
  return places.n;
}

// Write the gradient of `fenchel_young_rows` from the places listed.
void spread_rows(const SpreadArguments& a) {
  const int64_t n = a.n_classes;
  const bool past_cache = a.n_rows * n * 4 > kCached;
  int64_t next = 0;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    float* result = a.result + r * n;
    const float grad = a.grad[r * a.grad_stride];
    fill_zeros(result, n, past_cache);
    for (; next < a.n_places && a.places[next] < (r + 1) * n; ++next)
      result[a.places[next] - r * n] = grad * a.values[next];
  }
  finish_stream();
}
