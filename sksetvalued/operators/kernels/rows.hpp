// Rows of scores: block maxima, the k largest.

// A row in blocks of `height` entries: chunk c holds those from kLanes * height * c on, and its
// block l those at l, l + kLanes, l + 2 kLanes, ...; the last chunk may be shorter.
struct Blocks {
  const float* scores;
  int64_t n;
  int height;
  int64_t n_chunks;
  float* maxima;  // of the blocks, n_chunks * kLanes
  float* tops;    // of the chunks, n_chunks
  bool has_nan;

  int64_t chunk_size() const { return static_cast<int64_t>(kLanes) * height; }
};

inline int64_t count_chunks(int64_t n, int height) {
  const int64_t size = static_cast<int64_t>(kLanes) * height;
  return (n + size - 1) / size;
}

inline int64_t count_bad(const int64_t* target, int64_t n_rows, int64_t n_classes) {
  int64_t n_bad = 0;
  for (int64_t i = 0; i < n_rows; ++i) n_bad += target[i] < 0 || target[i] >= n_classes;
  return n_bad;
}

INLINE void find_maxima(Blocks& blocks) {
  const int64_t size = blocks.chunk_size();
  Ints nan = {};
  for (int64_t c = 0; c < blocks.n_chunks; ++c) {
    const float* chunk = blocks.scores + c * size;
    const int64_t n = blocks.n - c * size < size ? blocks.n - c * size : size;
    Floats most = all(-INFINITY);
    const auto take = [&](const float* from) {
      const Floats x = load(from);
      nan |= x != x;
      most = larger(x, most);
    };
    int64_t i = 0;
    // Of the usual length, which is known here, for the loop to be unrolled.
    if (n == 16 * kLanes)
      for (; i < 16 * kLanes; i += kLanes) take(chunk + i);
    for (; i + kLanes <= n; i += kLanes) take(chunk + i);
    if (i < n) {
      float rest[kLanes];
      for (int l = 0; l < kLanes; ++l) rest[l] = i + l < n ? chunk[i + l] : -INFINITY;
      take(rest);
    }
    store(blocks.maxima + c * kLanes, most);
    blocks.tops[c] = largest_lane(most);
  }
  blocks.has_nan = bits(nan) != 0;
}

// Integers in the order of the numbers.
INLINE Ints ordered(Floats x) {
  const Ints digits = (Ints)x;
  return digits ^ ((digits >> 31) & 0x7fffffff);
}
INLINE int64_t key_of(float x) {
  int32_t key;
  memcpy(&key, &x, sizeof x);
  return key < 0 ? key ^ 0x7fffffff : key;
}
INLINE float number_of(int64_t key) {
  int32_t digits = static_cast<int32_t>(key);
  if (digits < 0) digits ^= 0x7fffffff;
  float x;
  memcpy(&x, &digits, sizeof x);
  return x;
}

constexpr int32_t kNoKey = INT32_MIN;  // below the key of any number

INLINE Ints load_keys(const int32_t* from) {
  Ints keys;
  memcpy(&keys, from, sizeof keys);
  return keys;
}

// Write the keys of n numbers, and no keys up to a multiple of the lanes, which is returned.
INLINE int64_t write_keys(const float* numbers, int64_t n, int32_t* keys) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Ints some = ordered(load(numbers + i));
    memcpy(keys + i, &some, sizeof some);
  }
  for (; i % kLanes || i < n; ++i)
    keys[i] = i < n ? static_cast<int32_t>(key_of(numbers[i])) : kNoKey;
  return i;
}

INLINE int64_t count_from(const int32_t* keys, int64_t n, int32_t least) {
  Ints counts = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    Ints some;
    memcpy(&some, keys + i, sizeof some);
    counts -= some >= least;
  }
  int64_t total = 0;
  for (int l = 0; l < kLanes; ++l) total += counts[l];
  return total;
}

INLINE int64_t halfway(int64_t low, int64_t high) { return low + (high - low) / 2; }

// A key that at least k of n keys reach, and at most `enough`, or else the k-th largest itself.
// n is a multiple of the lanes; k of the keys are those of numbers. `between` gives a key between
// two others.
template <class Between>
INLINE int32_t key_reached_by(const int32_t* keys, int64_t n, int64_t k, int64_t enough,
                              Between between) {
  Ints most = Ints{} + kNoKey, least = Ints{} + INT32_MAX;
  for (int64_t i = 0; i < n; i += kLanes) {
    Ints some;
    memcpy(&some, keys + i, sizeof some);
    most = (some > most) ? some : most;
    least = ((some < least) & (some != kNoKey)) ? some : least;
  }
  int64_t low = least[0], high = most[0];
  for (int l = 1; l < kLanes; ++l) {
    low = least[l] < low ? least[l] : low;
    high = most[l] > high ? most[l] : high;
  }
  for (++high; high - low > 1;) {
    const int64_t middle = between(low, high);
    const int64_t count = count_from(keys, n, static_cast<int32_t>(middle));
    if (count < k) {
      high = middle;
    } else {
      low = middle;
      if (count <= enough) break;
    }
  }
  return static_cast<int32_t>(low);
}

INLINE int32_t smallest_lane(Ints x) {
  int32_t result = x[0];
  for (int l = 1; l < kLanes; ++l) result = x[l] < result ? x[l] : result;
  return result;
}

// The same by counting, for each key, those above it: fast for few keys.
INLINE int32_t kth_largest_of_few(const int32_t* keys, int64_t n, int64_t k) {
  Ints result = Ints{} + INT32_MAX;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Ints mine = load_keys(keys + i);
    Ints above = {};
    for (int64_t j = 0; j < n; ++j) above -= Ints{} + keys[j] > mine;
    result = ((above < static_cast<int32_t>(k)) & (mine < result)) ? mine : result;
  }
  return smallest_lane(result);
}

// The k-th largest of n keys, under the same conditions.
INLINE int32_t kth_largest_key(const int32_t* keys, int64_t n, int64_t k) {
  if (n * n <= 128 * kLanes) return kth_largest_of_few(keys, n, k);
  // The numbers are spread more evenly than their keys, but halving them may take long.
  int n_left = 8;
  const auto between = [&](int64_t low, int64_t high) {
    const int64_t key = key_of(0.5f * number_of(low) + 0.5f * number_of(high));
    return n_left-- > 0 && low < key && key < high ? key : halfway(low, high);
  };
  const int32_t reached = key_reached_by(keys, n, k, k, between);
  Ints least = Ints{} + INT32_MAX;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Ints some = load_keys(keys + i);
    least = ((some >= reached) & (some < least)) ? some : least;
  }
  return smallest_lane(least);
}

// A score that at least k entries of the row reach, and not many more. `keys` is memory for as
// many as there are blocks, rounded up to the lanes.
INLINE float reached_by(const Blocks& blocks, int64_t k, int32_t* keys) {
  const bool few = 4 * k > blocks.n_chunks;
  const int64_t n = few ? blocks.n_chunks * kLanes : blocks.n_chunks;
  if (n < k) return -INFINITY;
  const int64_t n_keys = write_keys(few ? blocks.maxima : blocks.tops, n, keys);
  return number_of(key_reached_by(keys, n_keys, k, k + k / 2, halfway));
}

// Call `visit(index, score)` for the entries that are at least `bound`, in increasing order.
template <class Visit>
INLINE void visit_from(const Blocks& blocks, float bound, Visit visit) {
  const int64_t size = blocks.chunk_size();
  for (int64_t c = 0; c < blocks.n_chunks; ++c) {
    if (blocks.tops[c] < bound) continue;
    const int64_t end = blocks.n < (c + 1) * size ? blocks.n : (c + 1) * size;
    int64_t i = c * size;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats x = load(blocks.scores + i);
      for (uint32_t found = bits(x >= bound); found; found &= found - 1) {
        const int l = __builtin_ctz(found);
        visit(i + l, blocks.scores[i + l]);
      }
    }
    for (; i < end; ++i)
      if (blocks.scores[i] >= bound) visit(i, blocks.scores[i]);
  }
}

// The k largest of the entries offered, the smallest of them first.
struct Entry {
  float value;
  float normal;
  int64_t index;
};

struct Heap {
  Entry* entries;
  int64_t size;
  int64_t capacity;

  bool full() const { return size == capacity; }
  float least() const { return entries[0].value; }

  INLINE void offer(Entry entry) {
    if (size < capacity) {
      int64_t i = size++;
      while (i > 0 && entries[(i - 1) / 2].value > entry.value) {
        entries[i] = entries[(i - 1) / 2];
        i = (i - 1) / 2;
      }
      entries[i] = entry;
    } else if (entry.value > entries[0].value) {
      int64_t i = 0;
      for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= size) break;
        if (child + 1 < size && entries[child + 1].value < entries[child].value) ++child;
        if (!(entries[child].value < entry.value)) break;
        entries[i] = entries[child];
        i = child;
      }
      entries[i] = entry;
    }
  }
};
