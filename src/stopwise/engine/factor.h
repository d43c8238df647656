// A growing positive definite matrix A = A₀ + Σ w·φφᵀ, stored as factors L·D·Lᵀ.
//
// Used for the paper's V (w = 1) and for the Hessian H of a pair's logistic likelihood (w = μ').
// Adding a row and solving a system take O(d²). Rows with w > 0 only add positive terms to D, so
// rounding errors do not accumulate as in a rank-one updated inverse, and a nearly singular A keeps
// the digits of its small directions (docs/numerics.md).
#pragma once

#include "archive.h"
#include "kernels.h"

namespace stopwise {

class Factor {
public:
    // The matrix ``scale``·I, scale > 0.
    Factor(std::size_t d, double scale);

    // Add w·xxᵀ, where ``x`` has padded(d) numbers. Returns xᵀA⁻¹x before the update, and writes
    // A⁻¹x after the update to ``inverse_x`` unless it is null.
    double add(const double* x, double w, double* inverse_x = nullptr);

    // Multiply by share > 0.
    void scale(double share);

    // xᵀA⁻¹x; ``work`` has padded(d) numbers.
    double square_norm(const double* x, double* work) const;

    // Solve Ay = x in place.
    void solve(double* x) const;

    // Replace by the matrix whose lower half is in ``a``, by columns of padded(d); overwrites
    // ``a``. Pivots are at least ``min_eigenvalue`` in spite of rounding.
    void take(Numbers& a, double min_eigenvalue);

    // The largest φᵀA⁻¹φ of a block's rows (`Kernels::largest_norm`).
    double largest_square_norm(const double* x, std::size_t rows, Numbers& work) const;

    // A and A⁻¹, d by d.
    std::vector<double> matrix() const;
    std::vector<double> inverse() const;

    // An upper bound on the largest eigenvalue of A⁻¹B: (trace (A⁻¹B)³²)^(1/32), at most d^(1/32)
    // times the eigenvalue. ``b`` is symmetric positive semidefinite, d by d. O(d³).
    double largest_ratio(const std::vector<double>& b) const;

    // Whether A − level·I is positive definite. O(d) if a pivot is too small, O(d³) otherwise.
    bool exceeds(double level) const;

    std::size_t nbytes() const { return (lower_.size() + reciprocal_.size()) * sizeof(double); }
    // Save or restore; all eigenvalues of A are between ``min_eigenvalue`` and ``max_eigenvalue``.
    void serialize(Archive& archive, double min_eigenvalue, double max_eigenvalue);

private:
    std::size_t d_, stride_;
    Numbers lower_;       // L by columns, without its unit diagonal
    Numbers reciprocal_;  // 1/D
    Numbers work_;        // scratch of `add`
};

}  // namespace stopwise
