// The loops in which the engine spends its time.
//
// kernels.cpp is compiled for the baseline of the processor family and, on x86-64, for AVX2; which
// of them runs is chosen when the module is loaded. All give the same bits: sums have a fixed order
// in four lanes, and nothing is fused. STOPWISE_INSTRUCTIONS=baseline forces the baseline.
//
// Vectors are padded with zeros to a multiple of four (`padded`). A lower triangular factor is
// stored by columns of that length, without its unit diagonal, and with zeros above it.
#pragma once

#include <cstddef>
#include <vector>

namespace stopwise {

using Numbers = std::vector<double>;

inline constexpr std::size_t kBlock = 64;  // history rows that are visited together

inline std::size_t padded(std::size_t n) { return (n + 3) / 4 * 4; }
inline std::size_t visited(std::size_t rows) { return (rows + 15) / 16 * 16; }

struct Kernels {
    const char* name;

    // Σ aₖbₖ over n entries, n a multiple of four.
    double (*dot)(const double* a, const double* b, std::size_t n);

    // Solve Lp = x in place of x.
    void (*forward)(const double* lower, std::size_t d, double* x);

    // Solve Lᵀy = u in place of u.
    void (*backward)(const double* lower, std::size_t d, double* u);

    // Σ rₖ·pₖ² over n entries, n a multiple of four.
    double (*weighted_square)(const double* r, const double* p, std::size_t n);

    // Add w·xxᵀ to A = L·diag(1/r)·Lᵀ, in O(d²). Returns xᵀA⁻¹x of before. ``x`` is overwritten;
    // ``u`` gets the vector for which A⁻¹x of after is the solution of Lᵀy = u.
    double (*grow)(double* lower, double* r, std::size_t d, double* x, double w, double* u);

    // Factor the symmetric matrix whose lower half is in ``a``, by columns, into L and r in place.
    // No pivot is taken to be less than ``least``, nor than rounding leaves.
    void (*factor)(double* a, double* r, std::size_t d, double least);

    // The following work on a block: ``x`` has d columns of kBlock numbers, one per row, of which the
    // first ``rows`` are visited, a multiple of 16 (`visited`). Rows beyond those stored are zero.

    // z = φᵀθ of every row; returns the largest |φᵀaway|.
    double (*project)(const double* x, std::size_t rows, std::size_t d, const double* theta,
                      const double* away, double* z);

    // From logits z: error = seen·μ(z) − positive in place of ``positive``, weight = seen·μ'(z) in
    // place of z; returns the least μ'(z).
    double (*weigh)(const double* seen, std::size_t rows, double* z, double* positive);

    // gradient += Σ error·φ.
    void (*add_gradient)(const double* x, std::size_t rows, std::size_t d, const double* error,
                         double* gradient);

    // The lower half of h, by columns of padded(d), += Σ weight·φφᵀ.
    void (*add_hessian)(const double* x, std::size_t rows, std::size_t d, const double* weight,
                        double* h);

    // The largest φᵀA⁻¹φ of any row; ``work`` has room for 16·d numbers.
    double (*largest_norm)(const double* x, std::size_t rows, std::size_t d, const double* lower,
                           const double* r, double* work);
};

// The kernels in use.
const Kernels& kernels();

}  // namespace stopwise
