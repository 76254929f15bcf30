// Which entries dropout keeps.

// A word for each index, by two multiplications between shifts; the halves of the key enter before
// the first and before the second, so that different keys do not give shifted copies.
INLINE Words mix(Words index, uint64_t key) {
  Words x = index + static_cast<uint32_t>(key);
  x = (x ^ x >> 16) * 0x7feb352du;
  x += static_cast<uint32_t>(key >> 32);
  x = (x ^ x >> 15) * 0x846ca68bu;
  x = (x ^ x >> 16) * 0x9e3779b1u;
  return x ^ x >> 15;
}

// Write 0 with probability n_dropped / 2^32, and `kept` elsewhere, the same for any instruction
// set; 0 also where `gate`, unless it is null, is not positive. After 2^32 entries they repeat.
void draw_mask(const MaskArguments& a) {
  Words index;
  for (int l = 0; l < kLanes; ++l) index[l] = static_cast<uint32_t>(l);
  for (int64_t i = 0; i < a.n; i += kLanes, index += static_cast<uint32_t>(kLanes)) {
    Floats mask = mix(index, a.key) < a.n_dropped ? Floats{} : all(a.kept);
    const size_t size = sizeof(float) * static_cast<size_t>(a.n - i < kLanes ? a.n - i : kLanes);
    if (a.gate) {
      Floats gate = {};
      memcpy(&gate, a.gate + i, size);
      mask = gate > 0 ? mask : Floats{};
    }
    memcpy(a.mask + i, &mask, size);
  }
}
