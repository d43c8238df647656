// The hot loops of the engine.
//
// kernels.cpp is compiled for the baseline instructions and, on x86-64, for AVX2; dispatch.cpp
// selects a version at load time. Both are bit-identical: sums have a fixed order in four lanes,
// and no operations are fused. STOPWISE_INSTRUCTIONS=baseline forces the baseline.
//
// Vectors are padded with zeros to a multiple of four (`padded`). A lower triangular factor is
// stored by columns of that length, without its unit diagonal, and with zeros above it.
#pragma once

#include <cstddef>
#include <vector>

namespace stopwise {

using Numbers = std::vector<double>;

inline constexpr std::size_t kBlock = 64;  // rows of a history block

inline std::size_t padded(std::size_t n) { return (n + 3) / 4 * 4; }
inline std::size_t visited(std::size_t rows) { return (rows + 15) / 16 * 16; }

struct Kernels {
    const char* name;

    // Σ aₖbₖ over n entries, n a multiple of four.
    double (*dot)(const double* a, const double* b, std::size_t n);

    // Solve Lp = x in place.
    void (*forward)(const double* lower, std::size_t d, double* x);

    // Solve Lᵀy = u in place.
    void (*backward)(const double* lower, std::size_t d, double* u);

    // Σ rₖ·pₖ² over n entries, n a multiple of four.
    double (*weighted_square)(const double* r, const double* p, std::size_t n);

    // Add w·xxᵀ to A = L·diag(1/r)·Lᵀ in O(d²). Returns xᵀA⁻¹x before the update. Overwrites ``x``,
    // and writes to ``u`` the vector for which Lᵀy = u has the solution A⁻¹x after the update.
    double (*grow)(double* lower, double* r, std::size_t d, double* x, double w, double* u);

    // Factor the symmetric matrix whose lower half is in ``a``, by columns, into L (in place) and
    // r. Pivots are bounded below by ``minimum`` and by the rounding error.
    void (*factor)(double* a, double* r, std::size_t d, double minimum);

    // The following work on a block: ``x`` has d columns of kBlock numbers, one per row. They read
    // the first ``rows`` rows, a multiple of 16 (`visited`); rows beyond the stored ones are zero.

    // z = φᵀθ for every row; returns the largest |φᵀaway|.
    double (*project)(const double* x, std::size_t rows, std::size_t d, const double* theta,
                      const double* away, double* z);

    // From logits z: error = seen·μ(z) − positive in place of ``positive``, weight = seen·μ'(z) in
    // place of z; returns the smallest μ'(z).
    double (*weigh)(const double* count, std::size_t rows, double* z, double* positive);

    // gradient += Σ error·φ.
    void (*add_gradient)(const double* x, std::size_t rows, std::size_t d, const double* error,
                         double* gradient);

    // The lower half of h, by columns of padded(d), += Σ weight·φφᵀ.
    void (*add_hessian)(const double* x, std::size_t rows, std::size_t d, const double* weight,
                        double* h);

    // The largest φᵀA⁻¹φ of the rows; ``work`` has space for 16·d numbers.
    double (*largest_norm)(const double* x, std::size_t rows, std::size_t d, const double* lower,
                           const double* r, double* work);
};

// The selected kernels.
const Kernels& kernels();

}  // namespace stopwise
