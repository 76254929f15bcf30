// The polynomial prod_j (1 + o_j X) of the odds o_j of a row up to degree k, in double precision.
//
// The odds are measured from the k-th largest, and divided by what those of the tail add up to
// over k if that exceeds one; the factors of the head are divided by 1 + o_j. Nothing overflows:
// the coefficients of the tail are at most e^k. Of the terms of degree k or k - 1 take the one
// with o_j / (1 + o_j) for the largest classes (up to so many) whose odds are at least one, and
// 1 / (1 + o_j) for the rest of the head: each is at least 1/2. The coefficient of the tail that
// is left is at least 1, as for odds of at most one that add up to k or more. Nothing underflows:
// the coefficients that matter are at least 1/2 to the size of the head, which has at most 201.
// Newton's identities keep their digits, relative to the value of the polynomial at the X where
// k - 1/2 successes are expected, as long as odds times X are below one in the tail.

// Vectors that hold the coefficients of the largest degree.
constexpr int kMostVectors = kMostRank / kPairs + 1;

// Where the polynomials of a row are computed; the constructor may throw bad_alloc.
struct Polynomials {
  int64_t k, n_vectors;                  // degree, and vectors of the coefficients up to it
  Buffer<DoubleLanes> products;     // of the tail and the first 0, 1, 2, ... of the head
  Buffer<DoubleLanes> derivatives;  // by the coefficients of the whole
  Buffer<DoubleLanes> p, q;         // o / (1 + o) and 1 / (1 + o) of the head

  Polynomials(int64_t k, int64_t most)
      : k(k),
        n_vectors(k / kPairs + 1),
        products((most + 1) * n_vectors, true),
        derivatives(n_vectors, true),
        p(most / kPairs + 1, true),
        q(most / kPairs + 1, true) {}

  const double* whole(int64_t n_head) const { return products[n_head * n_vectors].lanes; }
};

// Multiply out the tail, given the sums of the powers 1 to n_powers of its odds.
INLINE void expand_tail(Polynomials& row, const double* sums, int64_t n_powers) {
  double* e = row.products[0].lanes;
  memset(e, 0, sizeof(DoubleLanes) * static_cast<size_t>(row.n_vectors));
  e[0] = 1;
  for (int64_t j = 1; j <= row.k; ++j) {
    double even = 0, odd = 0;
    for (int64_t i = 0; i < j && i < n_powers; i += 2) odd += sums[i] * e[j - 1 - i];
    for (int64_t i = 1; i < j && i < n_powers; i += 2) even += sums[i] * e[j - 1 - i];
    e[j] = (odd - even) / static_cast<double>(j);
  }
}

// Set p and q from the logarithms of the odds of the head, in `row.p`.
INLINE void set_factors(Polynomials& row, int64_t n_head) {
  for (int64_t i = 0; i * kPairs < n_head; ++i) {
    const Doubles x = load(row.p[i]);
    const Longs positive = x > 0.0;
    const Doubles rest = exponential(positive ? -x : x);
    const Doubles larger_part = 1.0 / (1.0 + rest), smaller_part = rest * larger_part;
    store(row.p[i], positive ? larger_part : smaller_part);
    store(row.q[i], positive ? smaller_part : larger_part);
  }
}

// `n` is the number of vectors of a product; where the compiler knows it, registers hold one.
INLINE void multiply_head(Polynomials& row, int64_t n_head, int64_t n) {
  const double *ps = row.p[0].lanes, *qs = row.q[0].lanes;
  DoubleLanes* product = row.products.data;
  Doubles f[kMostVectors];
  for (int64_t i = 0; i < n; ++i) f[i] = load(product[i]);
  for (int64_t j = 0; j < n_head; ++j) {
    product += n;
    Doubles lower = {};
    for (int64_t i = 0; i < n; ++i) {
      const Doubles each = f[i];
      f[i] = qs[j] * each + ps[j] * one_before(lower, each);
      store(product[i], f[i]);
      lower = each;
    }
  }
}

// Write the derivatives of log(f_k / f_(k-1)) by the log-odds of the head; f are the coefficients
// of the whole.
INLINE void differentiate_head(Polynomials& row, int64_t n_head, double* gradient, int64_t n) {
  const double *ps = row.p[0].lanes, *qs = row.q[0].lanes;
  const DoubleLanes* product = &row.products[n_head * n];
  double* last = row.derivatives[0].lanes;
  memset(last, 0, sizeof(DoubleLanes) * static_cast<size_t>(n));
  last[row.k] = 1 / product->lanes[row.k];
  last[row.k - 1] = -1 / product->lanes[row.k - 1];
  Doubles d[kMostVectors + 1];  // by the coefficients of a product, and zeros behind
  for (int64_t i = 0; i < n; ++i) d[i] = load(row.derivatives[i]);
  d[n] = Doubles{};
  for (int64_t j = n_head - 1; j >= 0; --j) {
    product -= n;
    Doubles total = {};
    for (int64_t i = 0; i < n; ++i) {
      const Doubles higher = one_behind(d[i], d[i + 1]);
      total += load(product[i]) * higher;
      d[i] = qs[j] * d[i] + ps[j] * higher;
    }
    gradient[j] = ps[j] * sum(total);
  }
}

INLINE void solve_head(Polynomials& row, int64_t n_head, double* gradient, int64_t n) {
  multiply_head(row, n_head, n);
  differentiate_head(row, n_head, gradient, n);
}

// Multiply out the head, and write the derivatives of log(f_k / f_(k-1)) by its log-odds.
INLINE void solve_head(Polynomials& row, int64_t n_head, double* gradient) {
  if (row.n_vectors == 1)
    solve_head(row, n_head, gradient, 1);
  else if (row.n_vectors == 2)
    solve_head(row, n_head, gradient, 2);
  else if (row.n_vectors == 3)
    solve_head(row, n_head, gradient, 3);
  else
    solve_head(row, n_head, gradient, row.n_vectors);
}

// Write the derivative by the log-odds of a class of the tail, over its odds, as a polynomial of
// them.
INLINE void differentiate_tail(const Polynomials& row, int64_t n_head, int64_t n_powers,
                               double* coefficients) {
  const double* f = row.whole(n_head);
  double over_k = 1 / f[row.k], over_before = 1 / f[row.k - 1];
  for (int64_t i = 0; i < n_powers; ++i) {
    coefficients[i] = f[row.k - 1 - i] * over_k;
    if (i < row.k - 1) coefficients[i] -= f[row.k - 2 - i] * over_before;
    over_k = -over_k;
    over_before = -over_before;
  }
}
