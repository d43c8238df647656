// A growing positive matrix A = A₀ + Σ w·φφᵀ, stored as its factors L·D·Lᵀ.
//
// Both matrices of the method are of this kind: the paper's V (w = 1) and the Hessian H of a pair's
// logistic likelihood (w = μ'). A row is added in O(d²), and so are solved the systems that norms
// and Newton steps need. Rows with w > 0 only add positive terms to D: unlike an inverse
// updated by rank-one steps, the factors do not drift, and a nearly singular A keeps the digits of
// its small directions (docs/numerics.md).
#pragma once

#include "archive.h"
#include "kernels.h"

namespace stopwise {

class Factor {
public:
    // The matrix ``scale``·I, scale > 0.
    Factor(std::size_t d, double scale);

    // Add w·xxᵀ. ``x`` has padded(d) numbers; returns xᵀA⁻¹x of before. ``inverse_x``, unless
    // null, gets A⁻¹x of after.
    double add(const double* x, double w, double* inverse_x = nullptr);

    // Become share·A, share > 0.
    void scale(double share);

    // xᵀA⁻¹x; ``work`` has padded(d) numbers.
    double square_norm(const double* x, double* work) const;

    // Solve Ay = x in place of x.
    void solve(double* x) const;

    // Become the matrix whose lower half is in ``a``, by columns of padded(d), which are overwritten.
    // A's least eigenvalue is at least ``least``, whatever rounding does.
    void take(Numbers& a, double least);

    // The largest φᵀA⁻¹φ of a block's rows (`Kernels::largest_norm`).
    double largest_square_norm(const double* x, std::size_t rows, Numbers& work) const;

    // A and A⁻¹, d by d.
    std::vector<double> matrix() const;
    std::vector<double> inverse() const;

    // The largest eigenvalue of A⁻¹B, from above: (trace (A⁻¹B)³²)^(1/32), at most d^(1/32) times it.
    // ``b`` is symmetric and positive, d by d. O(d³).
    double largest_ratio(const std::vector<double>& b) const;

    // Whether A − level·I is positive definite: O(d) if a pivot is too small, O(d³) otherwise.
    bool exceeds(double level) const;

    std::size_t nbytes() const { return (lower_.size() + reciprocal_.size()) * sizeof(double); }
    // Save or restore; all eigenvalues of A are between these two.
    void archive(Archive& with, double least, double most);

private:
    std::size_t d_, stride_;
    Numbers lower_;       // L by columns, without its unit diagonal
    Numbers reciprocal_;  // 1/D
    Numbers work_;        // scratch of `add`
};

}  // namespace stopwise
