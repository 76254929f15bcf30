// The noised and the calibrated top-k hinge losses.

// The largest entries of a draw: a number for each, smaller if it comes before, which ends with its
// place in the head or the heap. Of those that tie the first comes first.
struct Ranking {
  int64_t k;
  Buffer<int64_t> codes;

  explicit Ranking(int64_t k) : k(k), codes(k) {}

  static int64_t code(int64_t key, int64_t place) { return place - key * (int64_t{1} << 32); }
  int64_t place(int64_t rank) const { return codes[rank - 1] & 0xffffffff; }

  // Take the k largest entries of the head, given the key of the last.
  INLINE void take_head(const NoisedRow& row, int32_t last) {
    int64_t n = 0;
    const auto put = [&](Ints chosen, int64_t i) {
      for (uint32_t found = bits(chosen); found && n < k; found &= found - 1) {
        const int64_t place = i + __builtin_ctz(found);
        codes[n++] = code(row.keys[place], place);
      }
    };
    for (int64_t i = 0; i < row.n_head; i += kLanes) put(load_keys(row.keys + i) > last, i);
    for (int64_t i = 0; n < k; i += kLanes) put(load_keys(row.keys + i) == last, i);
  }

  INLINE void take_heap(const Heap& heap) {
    for (int64_t j = 0; j < k; ++j) codes[j] = code(key_of(heap.entries[j].value), j);
  }

  // Bring the entries of the ranks to their places, given that of the first and past the last.
  void arrange(const int64_t* ranks, int64_t n_ranks, int64_t first, int64_t last) {
    const auto less = [](int64_t a, int64_t b) { return a < b; };
    if (n_ranks == 0) return;
    if (8 * n_ranks > last - first) return std::sort(codes.data + first, codes.data + last, less);
    const int64_t half = n_ranks / 2, middle = ranks[half] - 1;
    std::nth_element(codes.data + first, codes.data + middle, codes.data + last, less);
    arrange(ranks, half, first, middle);
    arrange(ranks + half + 1, n_ranks - half - 1, middle + 1, last);
  }
};

// Hand to `visit(r, entry)` the entries of the ranks, given that of the last.
template <class Visit>
INLINE void visit_ranks(const NoisedRow& row, Ranking& ranking, const Entry& last,
                        const int64_t* ranks, int64_t n_ranks, Visit visit) {
  if (row.heaped)
    ranking.take_heap(row.heap);
  else
    ranking.take_head(row, static_cast<int32_t>(key_of(last.value)));
  ranking.arrange(ranks, n_ranks, 0, ranking.k);
  for (int64_t r = 0; r < n_ranks; ++r) {
    const int64_t place = ranking.place(ranks[r]);
    if (row.heaped)
      visit(r, row.heap.entries[place]);
    else
      visit(r, Entry{row.values[place], row.normals[place], row.head[place]});
  }
}

// Write the loss and the slopes of a row, given the sum over draws of the noised scores of each
// rank, of which every `stride`-th is one of this row.
INLINE void write_loss(const HingeArguments& a, int64_t row, const double* sums, int64_t stride) {
  const double margin = a.margins ? a.margins[row] : a.margin;
  const double own = a.scores[row * a.n_classes + a.target[row]];
  double loss = 0;
  for (int64_t r = 0; r < a.n_ranks; ++r) {
    const double mean = sums[r * stride] / static_cast<double>(a.n_draws);
    const double value = a.scale * (margin + mean - own);
    loss += value <= 0 ? 0 : a.weights[r] * value;
    a.slopes[row * a.n_ranks + r] = value > 0 ? static_cast<float>(a.weights[r] * a.scale) : 0;
  }
  a.losses[row] = static_cast<float>(loss);
  a.indices[(row + 1) * (a.n_draws * a.n_ranks + 1) - 1] = a.target[row];
}

INLINE void write_nan(const HingeArguments& a, int64_t row) {
  const int64_t n_indices = a.n_draws * a.n_ranks + 1;
  for (int64_t j = 0; j < n_indices; ++j) a.indices[row * n_indices + j] = a.target[row];
  fill(a.slopes + row * a.n_ranks, a.n_ranks, 0);
  a.losses[row] = NAN;
}

void hinge_short_rows(const HingeArguments& a) {
  ShortRows rows(a.n_classes, a.ranks[a.n_ranks - 1], a.epsilon);
  const Buffer<double> sums(a.n_ranks * kLanes, true);
  const int64_t n_indices = a.n_draws * a.n_ranks + 1;
  const auto add = [&](int64_t row, int64_t d, int64_t lane) {
    for (int64_t r = 0; r < a.n_ranks; ++r) {
      const Entry entry = rows.entry(a.ranks[r], lane);
      a.indices[row * n_indices + d * a.n_ranks + r] = entry.index;
      sums[r * kLanes + lane] += static_cast<double>(a.scores[row * a.n_classes + entry.index]) +
                                 static_cast<double>(a.epsilon) * entry.normal;
    }
  };
  const auto finish = [&](int64_t row, int64_t lane, bool has_nan) {
    if (has_nan)
      write_nan(a, row);
    else
      write_loss(a, row, sums.data + lane, kLanes);
    for (int64_t r = 0; r < a.n_ranks; ++r) sums[r * kLanes + lane] = 0;
  };
  visit_short_rows(rows, a.scores, a.n_rows, a.n_draws, a.seed, add, finish);
}

// Do what `hinge_rows` does, each row by itself. Without noise the loop is compiled on its own: the
// code that draws would slow it down by a sixth.
template <bool noised>
void hinge_long_rows(const HingeArguments& a) {
  const int64_t k = a.ranks[a.n_ranks - 1];
  RowMemory memory(a.n_classes, k, a.epsilon);
  const bool ranked = a.n_ranks > 1;
  Ranking ranking(ranked ? k : 0);
  const Buffer<double> several(ranked ? a.n_ranks : 0);
  double one;
  double* const sums = ranked ? several.data : &one;
  NoisedRow& row = memory.row;
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    int64_t* indices = a.indices + i * (a.n_draws * a.n_ranks + 1);
    if (!read(row, scores)) {
      write_nan(a, i);
      continue;
    }
    if (noised) {
      find_head(row);
      random.seed(a.seed, static_cast<uint64_t>(i));
    }
    memset(sums, 0, sizeof(double) * static_cast<size_t>(a.n_ranks));
    for (int64_t d = 0; d < a.n_draws; ++d) {
      const Entry last = noised ? draw(row, random) : select_exactly(row);
      const auto add = [&](int64_t r, const Entry& entry) {
        indices[d * a.n_ranks + r] = entry.index;
        sums[r] += static_cast<double>(scores[entry.index]);
        if (noised)
          sums[r] += static_cast<double>(a.epsilon) * static_cast<double>(entry.normal);
      };
      if (ranked)
        visit_ranks(row, ranking, last, a.ranks, a.n_ranks, add);
      else
        add(0, last);
    }
    write_loss(a, i, sums, 1);
  }
}

// Compute the weighted sum over ranks of
// scale (margin + mean of the noised scores of that rank - own score)_+ of each row, from the same
// draws; its slopes, one a rank; and the classes it depends on: those of the ranks of the first
// draw, of the second..., then the true one.
// Returns the number of rows whose target is no class; then nothing else is meaningful.
int64_t hinge_rows(const HingeArguments& a) {
  if (const int64_t n_bad = count_bad(a.target, a.n_rows, a.n_classes)) return n_bad;
  if (are_short(a.n_classes, a.ranks[a.n_ranks - 1], a.epsilon))
    hinge_short_rows(a);
  else if (a.epsilon > 0)
    hinge_long_rows<true>(a);
  else
    hinge_long_rows<false>(a);
  return 0;
}

// Write the gradient of the losses of `hinge_rows` in the scores.
void hinge_gradient_rows(const HingeGradientArguments& a) {
  const int64_t size = a.n_rows * a.n_classes;
  fill_zeros(a.result, size, 4 * size > kCached);
  finish_stream();
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float grad = a.grad[i * a.grad_stride];
    const float* slopes = a.slopes + i * a.n_ranks;
    float* result = a.result + i * a.n_classes;
    const int64_t* indices = a.indices + i * (a.n_draws * a.n_ranks + 1);
    const int64_t target = indices[a.n_draws * a.n_ranks];
    for (int64_t r = 0; r < a.n_ranks; ++r) {
      const float slope = grad * slopes[r];
      if (slope == 0) continue;
      for (int64_t d = 0; d < a.n_draws; ++d)
        result[indices[d * a.n_ranks + r]] += slope / static_cast<float>(a.n_draws);
      result[target] -= slope;
    }
  }
}
