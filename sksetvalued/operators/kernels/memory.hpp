// Memory for rows, and zeros written to results that may be too large for the cache.

// Results of more bytes than this do not stay in the cache, and are written past it.
constexpr int64_t kCached = 1 << 24;

// Let what was written past the cache be seen by all threads from here on.
INLINE void finish_stream() {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#endif
}

INLINE void fill_zeros(float* to, int64_t n, bool past_cache) {
  const auto line = [](float* at, uintptr_t up) {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(at) + up) & ~uintptr_t{63});
  };
  if (n == 0) return;  // an empty tensor may be at null
  float *const end = to + n, *const first = line(to, 63), *const last = line(end, 0);
  if (!past_cache || first >= last) {
    memset(to, 0, sizeof(float) * static_cast<size_t>(n));
    return;
  }
  memset(to, 0, sizeof(float) * static_cast<size_t>(first - to));
  for (float* at = first; at < last; at += kLanes) stream_zeros(at);
  memset(last, 0, sizeof(float) * static_cast<size_t>(end - last));
}

inline void fill(float* to, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) to[i] = value;
}

// Memory for n values, at multiples of 64 bytes. Where n is 0 none is asked for: each piece moves
// those of the next call to other addresses, some of which are slower. What the library has for
// it is compiled once for all instruction sets, hence for none of them or for one that the
// processor may lack.
template <class T>
struct Buffer {
  T* const data;

  explicit Buffer(int64_t n, bool cleared = false)
      : data(n == 0 ? nullptr
                    : static_cast<T*>(::operator new(sizeof(T) * static_cast<size_t>(n),
                                                     std::align_val_t{64}))) {
    if (cleared && n > 0) memset(static_cast<void*>(data), 0, sizeof(T) * static_cast<size_t>(n));
  }
  ~Buffer() { ::operator delete(data, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T& operator[](int64_t i) const { return data[i]; }
};
