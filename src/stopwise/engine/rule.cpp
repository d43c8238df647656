#include "rule.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double Ellipsoid::alpha(double n) const {
    const double volume = 0.5 * n_features * log1p(2.0 * n / n_features);
    const double pairs = log(n_arms * n_arms / (2.0 * delta));
    return 2.0 * sigma / kappa * std::sqrt(volume + pairs);
}

double Ellipsoid::beta(double n, double lam, double S) const {
    const double volume = 0.5 * n_features * log1p(n / (n_features * lam));
    const double pairs = log(n_arms * n_arms / (2.0 * delta));
    return 2.0 * sigma / kappa * std::sqrt(volume + pairs) + 2.0 * std::sqrt(lam) * S;
}

double Ellipsoid::quantile() const { return std::sqrt(2.0 * log(1.0 / delta)); }

double UssPd::radius(double observations, double rounds) const {
    return ellipsoid.alpha(std::max(observations, rounds));
}

double UssPdRidge::radius(double observations, double) const {
    return ellipsoid.beta(observations, lam_, S_);
}

Upper UssPd::upper(View& at, std::size_t i, std::size_t j, double threshold) const {
    const std::size_t k = at.pair(i, j);
    const double bonus = at.bonus(k);
    const double estimate = at.logit(k);
    const double value = estimate + bonus;
    if (bonus == kInfinity) return {estimate, value, value, value};
    const double error = at.error(k, std::fabs(threshold - value));
    return {estimate, value, value - error, value + error};
}

Upper Thompson::upper(View& at, std::size_t i, std::size_t j, double) const {
    const std::size_t k = at.pair(i, j);
    const double estimate = at.logit(k);
    const double turn = at.hessian_turn(k);
    if (turn == kInfinity) return {estimate, estimate, -kInfinity, kInfinity};
    const double draw = at.noise(k) * scale * at.hessian_norm(k);
    const double value = estimate + draw;
    const double error = at.error(k, 0.0) + std::fabs(draw) * growth(0.5 * turn);
    return {estimate, value, value - error, value + error};
}

Upper Supervised::upper(View& at, std::size_t i, std::size_t j, double) const {
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

std::size_t Supervised::unsettled(View& at, std::size_t i, std::size_t j) const {
    return at.error(i, 0.0) >= at.error(j, 0.0) ? i : j;
}

}  // namespace stopwise
