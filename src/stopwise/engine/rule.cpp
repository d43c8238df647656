#include "rule.h"

#include <algorithm>
#include <cmath>

#include "at.h"

namespace stopwise {

namespace {

// How much wider the posterior is taken at first, since an error of the first rounds would be kept,
// and the rounds after which half of that is gone. Heuristics, by simulation: flat optima.
constexpr double kEarly = 4.0, kEarlyRounds = 20.0;

// The upper value of one question by the posterior, in logits.
Upper posterior(At& at, std::size_t k) {
    const double estimate = at.logit(k);
    const double turn = at.hessian_turn(k);
    if (turn == kInfinity) return {estimate, estimate, -kInfinity, kInfinity};
    const double above = at.noise(k) * at.radius(k) * at.hessian_norm(k);
    const double value = estimate + above;
    const double error = at.error(k, 0.0) + std::fabs(above) * growth(0.5 * turn);
    return {estimate, value, value - error, value + error};
}

}  // namespace

std::size_t Rule::unsettled(At& at, std::size_t i, std::size_t j) const { return at.pair(i, j); }

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

Upper UssPd::upper(At& at, std::size_t i, std::size_t j, double threshold) const {
    const std::size_t k = at.pair(i, j);
    const double bonus = at.bonus(k);
    const double estimate = at.logit(k);
    const double value = estimate + bonus;
    if (bonus == kInfinity) return {estimate, value, value, value};
    const double error = at.error(k, std::fabs(threshold - value));
    return {estimate, value, value - error, value + error};
}

double Laplace::radius(double, double rounds, double) const {
    return scale * (1.0 + kEarly / (1.0 + rounds / kEarlyRounds));
}

Upper Laplace::upper(At& at, std::size_t i, std::size_t j, double) const {
    return posterior(at, at.pair(i, j));
}

Upper Anchor::upper(At& at, std::size_t i, std::size_t j, double) const {
    const Upper first = posterior(at, at.pair(i, at.last_arm()));
    Upper found{sigmoid(first.estimate), sigmoid(first.value), sigmoid(first.low),
                sigmoid(first.high)};
    if (j < at.last_arm()) {
        const double second = at.logit(at.pair(i, j)), error = at.error(at.pair(i, j), 0.0);
        found.estimate -= sigmoid(second);
        found.value -= sigmoid(second);
        found.low -= sigmoid(second + error);
        found.high -= sigmoid(second - error);
    }
    return found;
}

std::size_t Anchor::unsettled(At& at, std::size_t i, std::size_t j) const {
    const std::size_t first = at.pair(i, at.last_arm()), second = at.pair(i, j);
    const Upper upper = posterior(at, first);
    return upper.high - upper.low >= 2.0 * at.error(second, 0.0) ? first : second;
}

Upper Supervised::upper(At& at, std::size_t i, std::size_t j, double) const {
    const double at_i = at.logit(i), at_j = at.logit(j);
    const double up = at_i + at.bonus(i), down = at_j - at.bonus(j);
    const double error_i = at.error(i, 0.0), error_j = at.error(j, 0.0);
    const double value = sigmoid(up) - sigmoid(down);
    double low = sigmoid(up - error_i) - sigmoid(down + error_j);
    double high = sigmoid(up + error_i) - sigmoid(down - error_j);
    if (error_i == kInfinity || error_j == kInfinity) {
        low = -kInfinity;
        high = kInfinity;
    } else if (std::max(error_i, error_j) <= kExact) {
        low = high = value;
    }
    return {sigmoid(at_i) - sigmoid(at_j), value, low, high};
}

std::size_t Supervised::unsettled(At& at, std::size_t i, std::size_t j) const {
    return at.error(i, 0.0) >= at.error(j, 0.0) ? i : j;
}

}  // namespace stopwise
