// The k largest entries of rows, with and without noise.

// Memory for one row at a time; the constructor may throw bad_alloc.
struct RowMemory {
  static constexpr int64_t kAtOnce = 2 * kLanes;
  std::vector<float> maxima, tops, scores, values, normals;
  std::vector<int32_t> head, keys;
  std::vector<Entry> entries;
  NoisedRow row;

  RowMemory(int64_t n_classes, int64_t k, float epsilon) {
    const int height = n_classes < 4096 ? 4 : 16;
    const int64_t n_chunks = count_chunks(n_classes, height);
    const int64_t n_head = (n_classes + kAtOnce - 1) / kAtOnce * kAtOnce;
    maxima.resize(n_chunks * kLanes);
    tops.resize(n_chunks);
    for (auto* each : {&scores, &values, &normals}) each->resize(n_head);
    head.resize(n_head);
    keys.resize(n_head > n_chunks * kLanes ? n_head : n_chunks * kLanes);
    entries.resize(k);
    row = {{nullptr, n_classes, height, n_chunks, maxima.data(), tops.data(), false},
           k,
           epsilon,
           0,
           0,
           head.data(),
           scores.data(),
           values.data(),
           normals.data(),
           keys.data(),
           {entries.data(), 0, k},
           false};
  }
};

// Return the k-th largest score itself, and its class.
INLINE Entry select_exactly(NoisedRow& row) {
  collect(row, reached_by(row.blocks, row.k, row.keys));
  memcpy(row.values, row.scores, sizeof(float) * static_cast<size_t>(row.n_head));
  return kth_entry(row, kth_value(row));
}

// Whether one entry comes before another in decreasing order: NaN first, ties by their columns.
inline bool precedes(const Entry& a, const Entry& b) {
  const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  if (nan_a != nan_b) return nan_a;
  if (nan_a || a.value == b.value) return a.index < b.index;
  return a.value > b.value;
}

// Select the classes of rank k (or 1 to k) of each row in each draw, and their normals.
// A row with a NaN has the class of the NaN everywhere, with normal 0.
void select_rows(const SelectArguments& a) {
  RowMemory memory(a.n_classes, a.k, a.epsilon);
  NoisedRow& row = memory.row;
  const int64_t n_kept = a.all_k ? a.k : 1;
  Random random;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    int64_t* indices = a.indices + i * a.n_draws * n_kept;
    float* normals = a.normals + i * a.n_draws * n_kept;
    if (!read(row, scores)) {
      int64_t place = 0;
      while (scores[place] == scores[place]) ++place;
      for (int64_t j = 0; j < a.n_draws * n_kept; ++j) {
        indices[j] = place;
        normals[j] = 0;
      }
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

// Write the k largest entries of each row in decreasing order, NaN first, and their columns.
void largest_rows(const LargestArguments& a) {
  RowMemory memory(a.n_classes, a.k, 0);
  NoisedRow& row = memory.row;
  std::vector<Entry> all_entries;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const float* scores = a.scores + i * a.n_classes;
    Entry* first = memory.entries.data();
    if (read(row, scores)) {
      fill_heap(row, select_exactly(row).value);
      std::sort(first, first + a.k, precedes);
    } else {
      all_entries.clear();
      for (int64_t j = 0; j < a.n_classes; ++j) all_entries.push_back({scores[j], 0, j});
      first = all_entries.data();
      std::partial_sort(first, first + a.k, first + a.n_classes, precedes);
    }
    for (int64_t j = 0; j < a.k; ++j) {
      a.values[i * a.k + j] = first[j].value;
      a.indices[i * a.k + j] = first[j].index;
    }
  }
}
