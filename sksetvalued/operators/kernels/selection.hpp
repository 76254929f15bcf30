// The k largest entries of rows, with and without noise.

// Whether one entry comes before another in decreasing order: NaN first, ties by their columns.
inline bool precedes(const Entry& a, const Entry& b) {
  const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  if (nan_a != nan_b) return nan_a;
  if (nan_a || a.value == b.value) return a.index < b.index;
  return a.value > b.value;
}

INLINE int64_t first_nan(const float* scores) {
  int64_t place = 0;
  while (scores[place] == scores[place]) ++place;
  return place;
}

INLINE void select_nan(const SelectArguments& a, int64_t row) {
  const int64_t n = a.n_draws * (a.all_k ? a.k : 1), place = first_nan(a.scores + row * a.n_classes);
  for (int64_t j = row * n; j < (row + 1) * n; ++j) {
    a.indices[j] = place;
    a.normals[j] = 0;
  }
}

void select_short_rows(const SelectArguments& a) {
  ShortRows rows(a.n_classes, a.k, a.epsilon);
  const int64_t n_kept = a.all_k ? a.k : 1;
  const auto keep = [&](int64_t row, int64_t d, int64_t lane) {
    for (int64_t j = 0; j < n_kept; ++j) {
      const Entry entry = rows.entry(a.k - j, lane);
      a.indices[(row * a.n_draws + d) * n_kept + j] = entry.index;
      a.normals[(row * a.n_draws + d) * n_kept + j] = entry.normal;
    }
  };
  const auto finish = [&](int64_t row, int64_t, bool has_nan) {
    if (has_nan) select_nan(a, row);
  };
  visit_short_rows(rows, a.scores, a.n_rows, a.n_draws, a.seed, keep, finish);
}

// Select the classes of rank k (or 1 to k) of each row in each draw, and their normals.
// A row with a NaN has the class of the NaN everywhere, with normal 0.
void select_rows(const SelectArguments& a) {
  if (are_short(a.n_classes, a.k, a.epsilon)) {
    select_short_rows(a);
    return;
  }
  RowMemory memory(a.n_classes, a.k, a.epsilon);
  NoisedRow& row = memory.row;
  const int64_t n_kept = a.all_k ? a.k : 1;
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    int64_t* indices = a.indices + i * a.n_draws * n_kept;
    float* normals = a.normals + i * a.n_draws * n_kept;
    if (!read(row, a.scores + i * a.n_classes)) {
      select_nan(a, i);
      continue;
    }
    find_head(row);
    random.seed(a.seed, static_cast<uint64_t>(i));
    for (int64_t d = 0; d < a.n_draws; ++d) {
      const Entry kth = draw(row, random);
      if (!a.all_k) {
        *indices++ = kth.index;
        *normals++ = kth.normal;
        continue;
      }
      if (!row.heaped) fill_heap(row, kth.value);
      for (int64_t j = 0; j < a.k; ++j) {
        *indices++ = row.heap.entries[j].index;
        *normals++ = row.heap.entries[j].normal;
      }
    }
  }
}

INLINE void write_entries(const Entry* entries, int64_t n, float* values, int64_t* indices) {
  for (int64_t j = 0; j < n; ++j) {
    values[j] = entries[j].value;
    indices[j] = entries[j].index;
  }
}

// Write the k largest entries of each row in decreasing order, NaN first, and their columns.
void largest_rows(const LargestArguments& a) {
  RowMemory memory(a.n_classes, a.k, 0);
  NoisedRow& row = memory.row;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    float* values = a.values + i * a.k;
    int64_t* indices = a.indices + i * a.k;
    if (read(row, scores)) {
      fill_heap(row, select_exactly(row).value);
      std::sort(row.heap.entries, row.heap.entries + a.k, precedes);
      write_entries(row.heap.entries, a.k, values, indices);
    } else {
      const Buffer<Entry> every(a.n_classes);
      for (int64_t j = 0; j < a.n_classes; ++j) every[j] = {scores[j], 0, j};
      std::partial_sort(every.data, every.data + a.k, every.data + a.n_classes, precedes);
      write_entries(every.data, a.k, values, indices);
    }
  }
}
