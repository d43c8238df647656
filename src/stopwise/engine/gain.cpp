#include "gain.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

// Heuristics, chosen by simulation over real cascades and worlds with a minority (docs/labels.md).
constexpr double kPriorMean = 0.5;
constexpr double kPooledSlope = 0.12;  // prior deviation per standard deviation of a coordinate
constexpr double kLocalSlope = 2.0;
constexpr double kWidth = 0.25;       // standard deviations that are added
constexpr double kPriorLabels = 10.0;  // how many labels the prior noise variance, 1, counts for

}  // namespace

Gain::Regression::Regression(std::size_t dim, double slope)
    : d(dim + 1), stride(padded(d)), slope(slope), gram(d * stride, 0.0), moment(stride, 0.0),
      weights(stride, 0.0), factor(d, 1.0) {}

Numbers Gain::Regression::features(const double* phi) const {
    Numbers psi(stride, 0.0);
    psi[0] = 1.0;
    for (std::size_t c = 1; c < d; ++c) psi[c] = slope * phi[c - 1];
    return psi;
}

void Gain::Regression::add(const Numbers& psi, double value) {
    for (std::size_t c = 0; c < d; ++c) {
        for (std::size_t r = c; r < d; ++r) gram[c * stride + r] += psi[c] * psi[r];
        moment[c] += psi[c] * value;
    }
}

void Gain::Regression::fit(double noise) {
    Numbers a = gram;
    for (std::size_t c = 0; c < d; ++c) a[c * stride + c] += noise;
    factor.take(a, noise);
    weights = moment;
    factor.solve(weights.data());
}

double Gain::Regression::mean(const Numbers& psi) const {
    return kernels().dot(psi.data(), weights.data(), stride);
}

Gain::Gain(std::size_t dim, std::size_t linear, double ridge)
    : pooled_(dim, kPooledSlope / std::sqrt(ridge)), local_(linear, kLocalSlope / std::sqrt(ridge)) {}

double Gain::noise() const {
    return (kPriorLabels + residuals_) / (kPriorLabels + static_cast<double>(labels_));
}

double Gain::upper(const double* phi) const {
    if (labels_ == 0) return 1.0;
    const Numbers near = local_.features(phi);
    Numbers work(near.size());
    const double width = std::sqrt(noise() * local_.factor.square_norm(near.data(), work.data()));
    const double mean = std::max(pooled_.mean(pooled_.features(phi)), local_.mean(near));
    return std::clamp(kPriorMean + mean + kWidth * width, -1.0, 1.0);
}

void Gain::learn(const double* phi, double gain) {
    const double value = gain - kPriorMean;
    const Numbers psi = pooled_.features(phi);
    const double missed = value - pooled_.mean(psi);
    residuals_ += missed * missed;
    ++labels_;
    pooled_.add(psi, value);
    local_.add(local_.features(phi), value);
    pooled_.fit(noise());
    local_.fit(noise());
}

void Gain::archive(Archive& with) {
    with.count(labels_, kMostCounted, "its number of labels");
    with.between(&residuals_, 1, 0.0, 1e100, "what labels missed");
    for (Regression* regression : {&pooled_, &local_}) {
        const std::size_t d = regression->d, stride = regression->stride;
        with.between(regression->moment.data(), d, -1e100, 1e100, "a sum of labels");
        for (std::size_t c = 0; c < d; ++c) {
            with.between(regression->gram.data() + c * stride + c, d - c, -1e100, 1e100,
                         "a sum of features");
            with.check(regression->gram[c * stride + c] >= 0.0, "a sum of features");
        }
        if (with.reading()) regression->fit(noise());
    }
}

}  // namespace stopwise
