#include "rows.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

double Source::largest_square_norm(const Factor& a, double since, double until) const {
    Numbers work(16 * scope.dim);
    double largest = 0.0;
    each_block(
        [&](const History::Block&, const double* x, std::size_t n) {
            largest = std::max(largest, a.largest_square_norm(x, n, work));
        },
        since, until);
    return largest;
}

void Sums::operator()(const History::Block& block, const double* x, std::size_t n) {
    const Kernels& kernel = kernels();
    const std::size_t d = source.scope.dim;
    alignas(64) double count[kBlock], error[kBlock], weight[kBlock];
    source.history.tally(block, source.question, source.now, count, error);
    moved = std::max(moved, kernel.project(x, n, d, theta.data(), away.data(), weight));
    lightest = std::min(lightest, kernel.weigh(count, n, weight, error));
    kernel.add_gradient(x, n, d, error, gradient.data());
    if (hessian != nullptr) kernel.add_hessian(x, n, d, weight, hessian->data());
    rows += block.rows;
}

void Quadratic::begin(const Numbers& point, std::size_t d) {
    theta = point;
    gradient.assign(point.size(), 0.0);
    hessian.assign(d * point.size(), 0.0);
    lightest = 0.25;
}

void Quadratic::scale(double share) {
    for (double& entry : gradient) entry *= share;
    for (double& entry : hessian) entry *= share;
}

double Quadratic::add_gradient(const Numbers& point, Numbers& sum) const {
    const std::size_t stride = theta.size(), d = hessian.size() / stride;
    double square = 0.0;
    for (std::size_t c = 0; c < d; ++c) {
        const double* const column = hessian.data() + c * stride;
        const double move = point[c] - theta[c];
        sum[c] += gradient[c] + column[c] * move;
        square += column[c] * move * move;
        for (std::size_t r = c + 1; r < d; ++r) {  // the lower half represents both halves
            const double other = point[r] - theta[r];
            sum[r] += column[r] * move;
            sum[c] += column[r] * other;
            square += 2.0 * column[r] * move * other;
        }
    }
    return std::sqrt(std::max(square, 0.0));
}

std::vector<double> Quadratic::matrix() const {
    const std::size_t stride = theta.size(), d = hessian.size() / stride;
    std::vector<double> a(d * d);
    for (std::size_t c = 0; c < d; ++c) {
        for (std::size_t r = c; r < d; ++r) a[r * d + c] = a[c * d + r] = hessian[c * stride + r];
    }
    return a;
}

void Quadratic::serialize(Archive& archive, std::size_t d, std::size_t stride) {
    if (archive.reading()) begin(Numbers(stride, 0.0), d);
    for (Numbers* values : {&theta, &gradient, &hessian}) {
        archive.between(values->data(), values->size(), -1e100, 1e100, "summary");
    }
    archive.between(&lightest, 1, 1e-308, 0.25, "weight");
}

}  // namespace stopwise
