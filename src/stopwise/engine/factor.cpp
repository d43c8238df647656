#include "factor.h"

#include <algorithm>

#include "link.h"

namespace stopwise {

Factor::Factor(std::size_t d, double scale)
    : d_(d), stride_(padded(d)), lower_(d * stride_, 0.0), reciprocal_(stride_, 0.0),
      work_(2 * stride_, 0.0) {
    std::fill_n(reciprocal_.begin(), d, 1.0 / scale);
}

double Factor::add(const double* x, double w, double* inverse_x) {
    double* const remainder = work_.data();
    double* const u = inverse_x != nullptr ? inverse_x : remainder + stride_;
    std::copy_n(x, stride_, remainder);
    const double before = kernels().grow(lower_.data(), reciprocal_.data(), d_, remainder, w, u);
    if (inverse_x != nullptr) kernels().backward(lower_.data(), d_, inverse_x);
    return before;
}

void Factor::scale(double share) {
    for (double& r : reciprocal_) r /= share;
}

double Factor::square_norm(const double* x, double* work) const {
    std::copy_n(x, stride_, work);
    kernels().forward(lower_.data(), d_, work);
    return kernels().weighted_square(reciprocal_.data(), work, stride_);
}

void Factor::solve(double* x) const {
    kernels().forward(lower_.data(), d_, x);
    for (std::size_t k = 0; k < d_; ++k) x[k] *= reciprocal_[k];
    kernels().backward(lower_.data(), d_, x);
}

void Factor::take(Numbers& a, double min_eigenvalue) {
    kernels().factor(a.data(), reciprocal_.data(), d_, min_eigenvalue);
    lower_.swap(a);
}

double Factor::largest_square_norm(const double* x, std::size_t rows, Numbers& work) const {
    return kernels().largest_norm(x, rows, d_, lower_.data(), reciprocal_.data(), work.data());
}

std::vector<double> Factor::matrix() const {
    std::vector<double> a(d_ * d_, 0.0);
    const auto l = [&](std::size_t r, std::size_t k) {
        return r == k ? 1.0 : lower_[k * stride_ + r];
    };
    for (std::size_t i = 0; i < d_; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double s = 0.0;
            for (std::size_t k = 0; k <= j; ++k) s += l(i, k) * l(j, k) / reciprocal_[k];
            a[i * d_ + j] = a[j * d_ + i] = s;
        }
    }
    return a;
}

std::vector<double> Factor::inverse() const {
    std::vector<double> a(d_ * d_);
    Numbers column(stride_);
    for (std::size_t k = 0; k < d_; ++k) {
        std::fill(column.begin(), column.end(), 0.0);
        column[k] = 1.0;
        solve(column.data());
        std::copy_n(column.begin(), d_, a.begin() + static_cast<std::ptrdiff_t>(k * d_));
    }
    for (std::size_t i = 0; i < d_; ++i) {  // bitwise symmetric
        for (std::size_t j = 0; j < i; ++j) a[i * d_ + j] = a[j * d_ + i];
    }
    return a;
}

double Factor::largest_ratio(const std::vector<double>& b) const {
    std::vector<double> power(d_ * d_), square(d_ * d_);
    Numbers column(stride_, 0.0);
    for (std::size_t k = 0; k < d_; ++k) {
        std::copy_n(b.begin() + static_cast<std::ptrdiff_t>(k * d_), d_, column.begin());
        solve(column.data());
        for (std::size_t r = 0; r < d_; ++r) power[r * d_ + k] = column[r];
    }
    double logarithm = 0.0;  // log of the scale that was divided out, per power of the eigenvalue
    for (int squarings = 0;; ++squarings) {
        double trace = 0.0;
        for (std::size_t k = 0; k < d_; ++k) trace += power[k * d_ + k];
        if (!(trace > 0.0)) return 0.0;
        const double exponent = static_cast<double>(1 << squarings);
        logarithm += log(trace) / exponent;
        if (squarings == 5) return 1.001 * exp(logarithm);  // with a margin for rounding
        for (double& entry : power) entry /= trace;
        std::fill(square.begin(), square.end(), 0.0);
        for (std::size_t r = 0; r < d_; ++r) {
            for (std::size_t k = 0; k < d_; ++k) {
                const double* const row = power.data() + k * d_;
                for (std::size_t c = 0; c < d_; ++c) {
                    square[r * d_ + c] += power[r * d_ + k] * row[c];
                }
            }
        }
        power.swap(square);
    }
}

bool Factor::exceeds(double level) const {
    for (std::size_t k = 0; k < d_; ++k) {  // pivots are at least the smallest eigenvalue
        if (!(reciprocal_[k] * level < 1.0 + 1e-9)) return false;
    }
    std::vector<double> a = matrix();
    for (std::size_t j = 0; j < d_; ++j) {  // Cholesky, by rows of the lower half
        for (std::size_t i = j; i < d_; ++i) {
            double& s = a[i * d_ + j];
            if (i == j) s -= level;
            for (std::size_t k = 0; k < j; ++k) s -= a[i * d_ + k] * a[j * d_ + k];
            s = i > j ? s / a[j * d_ + j] : std::sqrt(s);
        }
        if (!(a[j * d_ + j] > 0.0)) return false;
    }
    return true;
}

void Factor::serialize(Archive& archive, double min_eigenvalue, double max_eigenvalue) {
    constexpr double kSlack = 1.0 + 1e-6;  // of rounding
    archive.between(reciprocal_.data(), d_, 1.0 / (max_eigenvalue * kSlack),
                    kSlack / min_eigenvalue, "factor");
    for (std::size_t k = 0; k + 1 < d_; ++k) {  // L_rk²·D_k is at most a diagonal entry of A
        const double largest = std::sqrt(max_eigenvalue * reciprocal_[k]) * kSlack;
        double* const column = lower_.data() + k * stride_;
        archive.between(column + k + 1, d_ - k - 1, -largest, largest, "factor");
    }
}

}  // namespace stopwise
