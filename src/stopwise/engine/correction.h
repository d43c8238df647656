// Correction of drawn answers, estimated from rounds that continued at random.
//
// Where a round stopped at s, the model of pair (s, j) draws whether s and j disagree. That model
// has learned from rounds that continued, and can be biased where rounds stop if the logit is not
// linear in the features. A round that exploration continues after the rule stopped it at s is an
// unbiased sample of the stopped rounds and reveals the answer. These rounds estimate a shift δ for
// each pair,
//
//     P(s and j disagree) = μ(z + δ) where the rule stops at s,      δ ~ N(0, kDeviation²)
//
// where z is the logit of p̂, by one Newton step per round from the previous estimate. Draws use δ
// times the positive-part James–Stein factor, which is 0 while |δ| is below its standard deviation,
// so that the noise of a few rounds does not bias a correct model.
#pragma once

#include "archive.h"
#include "link.h"

namespace stopwise {

class Correction {
public:
    // The shift of a draw's logit: δ·(1 − 1/(δ²·precision)), or 0 if the factor is negative.
    double shift() const {
        const double precision = kPrior + information_;
        return moment_ * moment_ > precision ? moment_ / precision - 1.0 / moment_ : 0.0;
    }

    // Learn from a round that continued at random, for which the model's logit is z.
    void learn(double z, bool disagreed) {
        const double delta = moment_ / (kPrior + information_);
        const double p = sigmoid(z + delta);
        information_ += p * (1.0 - p);
        moment_ = delta * (kPrior + information_) + (disagreed ? 1.0 : 0.0) - p;
    }

    // Multiply the weights of past rounds by ``share``.
    void decay(double share) {
        moment_ *= share;
        information_ *= share;
    }

    void serialize(Archive& archive) {
        archive.between(&moment_, 1, -kMaxSum, kMaxSum, "correction");
        archive.between(&information_, 1, 0.0, kMaxSum, "correction");
    }

private:
    static constexpr double kDeviation = 2.0;  // heuristic, by simulation (docs/revealed-method.md)
    static constexpr double kPrior = 1.0 / (kDeviation * kDeviation);
    static constexpr double kMaxSum = 1e18;

    double moment_ = 0.0, information_ = 0.0;  // δ = moment/(kPrior + information)
};

}  // namespace stopwise
