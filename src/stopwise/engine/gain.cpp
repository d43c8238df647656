#include "gain.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

// A limit for restored sums of squares, far above real ones.
constexpr double kMaxResiduals = 1e100;
// Heuristics, tuned on real cascades and simulated minorities (docs/labels-method.md).
constexpr double kPriorMean = 0.5;
constexpr double kMissingGain = 1.0;  // value of a missing label: j right, i wrong
// prior standard deviation per standard deviation of a coordinate
constexpr double kPooledSlope = 0.12;
constexpr double kLocalSlope = 2.0;
constexpr double kWidth = 0.25;       // of the local regression, in standard deviations
constexpr double kPriorLabels = 10.0;  // weight of the prior noise variance, 1, in labels
constexpr double kFeatureLimit = 1.001;  // |φ_c| ≤ 1, with a margin for rounding

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

// Add an observation, or remove it if ``sign`` is −1.
void Gain::Regression::add(const Numbers& psi, double value, double sign) {
    for (std::size_t c = 0; c < d; ++c) {
        const double share = sign * psi[c];
        for (std::size_t r = c; r < d; ++r) gram[c * stride + r] += share * psi[r];
        moment[c] += share * value;
    }
}

// Fit to these observations and, unless null, those of ``others``.
void Gain::Regression::fit(double noise, const Regression* others) {
    Numbers a = gram;
    weights = moment;
    if (others != nullptr) {
        for (std::size_t c = 0; c < a.size(); ++c) a[c] += others->gram[c];
        for (std::size_t c = 0; c < d; ++c) weights[c] += others->moment[c];
    }
    for (std::size_t c = 0; c < d; ++c) a[c * stride + c] += noise;
    factor.take(a, noise);
    factor.solve(weights.data());
}

void Gain::Regression::clear() {
    std::fill(gram.begin(), gram.end(), 0.0);
    std::fill(moment.begin(), moment.end(), 0.0);
}

double Gain::Regression::mean(const Numbers& psi) const {
    return kernels().dot(psi.data(), weights.data(), stride);
}

Gain::Gain(std::size_t dim, std::size_t linear, double ridge)
    : pooled_(dim, kPooledSlope / std::sqrt(ridge)), local_(linear, kLocalSlope / std::sqrt(ridge)),
      missing_pooled_(pooled_), missing_local_(local_) {}

double Gain::noise() const {
    return (kPriorLabels + residuals_) / (kPriorLabels + static_cast<double>(labels_));
}

double Gain::bound(const Regression& pooled, const Regression& local, const double* phi) const {
    const Numbers psi = local.features(phi);
    Numbers work(psi.size());
    const double width = std::sqrt(noise() * local.factor.square_norm(psi.data(), work.data()));
    const double mean = std::max(pooled.mean(pooled.features(phi)), local.mean(psi));
    return std::clamp(kPriorMean + mean + kWidth * width, -1.0, 1.0);
}

Gain::Upper Gain::upper(const double* phi) const {
    const auto n_received = static_cast<double>(labels_);
    const auto n_requested = n_received + static_cast<double>(missing_);
    if (labels_ == 0) return {1.0, missing_ > 0 ? 0.0 : 1.0};
    const double received = bound(pooled_, local_, phi);
    if (missing_ == 0) return {received, 1.0};
    const double all = bound(missing_pooled_, missing_local_, phi);
    if (all <= received) return {received, 1.0};
    return {all, n_received / n_requested};
}

void Gain::learn(const double* phi, double gain) {
    const double value = gain - kPriorMean;
    const Numbers psi = pooled_.features(phi);
    const double residual = value - pooled_.mean(psi);
    residuals_ = std::min(residuals_ + residual * residual, kMaxResiduals);
    ++labels_;
    pooled_.add(psi, value);
    local_.add(local_.features(phi), value);
    pooled_.fit(noise());
    local_.fit(noise());
    stale_ = true;
}

void Gain::add_missing(const double* phi) {
    ++missing_;
    missing_pooled_.add(pooled_.features(phi), kMissingGain - kPriorMean);
    missing_local_.add(local_.features(phi), kMissingGain - kPriorMean);
    stale_ = true;
}

void Gain::remove_missing(const double* phi) {
    --missing_;
    stale_ = true;
    for (Regression* sums : {&missing_pooled_, &missing_local_}) {
        sums->add(sums->features(phi), kMissingGain - kPriorMean, -1.0);
        if (missing_ == 0) sums->clear();  // removes rounding errors
        for (std::size_t c = 0; c < sums->d; ++c) {
            double& square = sums->gram[c * sums->stride + c];
            square = std::max(square, 0.0);
        }
    }
}

void Gain::refit() {
    if (!stale_ || missing_ == 0 || labels_ == 0) return;
    missing_pooled_.fit(noise(), &pooled_);
    missing_local_.fit(noise(), &local_);
    stale_ = false;
}

std::size_t Gain::nbytes() const {
    return pooled_.nbytes() + local_.nbytes() + missing_pooled_.nbytes() + missing_local_.nbytes();
}

void Gain::serialize(Archive& archive) {
    archive.count(labels_, kMaxCount, "number of labels");
    archive.count(missing_, kMaxCount, "number of missing labels");
    archive.between(&residuals_, 1, 0.0, kMaxResiduals, "label residuals");
    for (Regression* regression : {&pooled_, &local_, &missing_pooled_, &missing_local_}) {
        const std::size_t d = regression->d, stride = regression->stride;
        const bool counts_missing = regression == &missing_pooled_ || regression == &missing_local_;
        if (counts_missing && missing_ == 0) continue;
        // |ψ_c| ≤ max_psi, and values are from −3/2 to 1/2; one more label as a margin for rounding
        const double max_psi = std::max(1.0, kFeatureLimit * regression->slope);
        const double n = 1.0 + static_cast<double>(counts_missing ? missing_ : labels_);
        archive.between(regression->moment.data(), d, -1.5 * n * max_psi, 1.5 * n * max_psi,
                        "sum of labels");
        for (std::size_t c = 0; c < d; ++c) {
            const double squares = n * max_psi * max_psi;
            archive.between(regression->gram.data() + c * stride + c, d - c, -squares, squares,
                            "sum of features");
            archive.check(regression->gram[c * stride + c] >= 0.0, "sum of features");
        }
        if (archive.reading() && !counts_missing) regression->fit(noise());
    }
    if (!archive.reading()) return;
    stale_ = true;
    refit();
}

}  // namespace stopwise
