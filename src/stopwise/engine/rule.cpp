#include "rule.h"

#include <algorithm>
#include <cmath>

#include "context_values.h"

namespace stopwise {

namespace {

// Initial widening of the posterior, because early errors may never be revisited, and the number of
// rounds that halves it. Heuristics, tuned by simulation; the optimum is flat.
constexpr double kInitialWidening = 4.0, kHalvingRounds = 20.0;

// The upper value of a question from the posterior, in logits.
Upper posterior(ContextValues& values, std::size_t k) {
    const double estimate = values.logit(k);
    const double change = values.hessian_change(k);
    if (change == kInfinity) return {estimate, estimate, -kInfinity, kInfinity};
    const double bonus = values.noise(k) * values.radius(k) * values.hessian_norm(k);
    const double value = estimate + bonus;
    const double error = values.error(k, 0.0) + std::fabs(bonus) * growth(0.5 * change);
    return {estimate, value, value - error, value + error};
}

}  // namespace

std::size_t Rule::question_to_refine(ContextValues& values, std::size_t i,
                                     std::size_t j) const {
    return values.pair(i, j);
}

double Ellipsoid::beta(double n, double n_features, double lam, double S) const {
    const double volume = 0.5 * n_features * log1p(n / (n_features * lam));
    const double pairs = log(n_arms * n_arms / (2.0 * delta));
    return 2.0 * sigma / kappa * std::sqrt(volume + pairs) + 2.0 * std::sqrt(lam) * S;
}

double UssPd::radius(double observations, double rounds, double n_features) const {
    return ellipsoid.alpha(std::max(observations, rounds), n_features);
}

double UssPdRidge::radius(double observations, double, double n_features) const {
    return ellipsoid.beta(observations, n_features, lam_, S_);
}

Upper UssPd::upper(ContextValues& values, std::size_t i, std::size_t j, double threshold) const {
    const std::size_t k = values.pair(i, j);
    const double bonus = values.bonus(k);
    const double estimate = values.logit(k);
    const double value = estimate + bonus;
    if (bonus == kInfinity) return {estimate, value, value, value};
    const double error = values.error(k, std::fabs(threshold - value));
    return {estimate, value, value - error, value + error};
}

double Laplace::radius(double, double rounds, double) const {
    return scale * (1.0 + kInitialWidening / (1.0 + rounds / kHalvingRounds));
}

Upper Laplace::upper(ContextValues& values, std::size_t i, std::size_t j, double) const {
    return posterior(values, values.pair(i, j));
}

Upper Anchor::upper(ContextValues& values, std::size_t i, std::size_t j, double) const {
    const Upper first = posterior(values, values.pair(i, values.last_arm()));
    Upper difference{sigmoid(first.estimate), sigmoid(first.value), sigmoid(first.low),
                     sigmoid(first.high)};
    if (j < values.last_arm()) {
        const std::size_t pair = values.pair(i, j);
        const double second = values.logit(pair), error = values.error(pair, 0.0);
        difference.estimate -= sigmoid(second);
        difference.value -= sigmoid(second);
        difference.low -= sigmoid(second + error);
        difference.high -= sigmoid(second - error);
    }
    return difference;
}

std::size_t Anchor::question_to_refine(ContextValues& values, std::size_t i, std::size_t j) const {
    const std::size_t first = values.pair(i, values.last_arm()), second = values.pair(i, j);
    const Upper upper = posterior(values, first);
    return upper.high - upper.low >= 2.0 * values.error(second, 0.0) ? first : second;
}

Upper Supervised::upper(ContextValues& values, std::size_t i, std::size_t j, double) const {
    const double logit_i = values.logit(i), logit_j = values.logit(j);
    const double upper_i = logit_i + values.bonus(i), lower_j = logit_j - values.bonus(j);
    const double error_i = values.error(i, 0.0), error_j = values.error(j, 0.0);
    const double value = sigmoid(upper_i) - sigmoid(lower_j);
    double low = sigmoid(upper_i - error_i) - sigmoid(lower_j + error_j);
    double high = sigmoid(upper_i + error_i) - sigmoid(lower_j - error_j);
    if (error_i == kInfinity || error_j == kInfinity) {
        low = -kInfinity;
        high = kInfinity;
    } else if (std::max(error_i, error_j) <= kExact) {
        low = high = value;
    }
    return {sigmoid(logit_i) - sigmoid(logit_j), value, low, high};
}

std::size_t Supervised::question_to_refine(ContextValues& values, std::size_t i,
                                           std::size_t j) const {
    return values.error(i, 0.0) >= values.error(j, 0.0) ? i : j;
}

}  // namespace stopwise
