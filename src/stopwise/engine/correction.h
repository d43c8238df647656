// By how much drawn answers are moved, by what rounds that went on at random show.
//
// Where a round stopped at s, the model of pair (s, j) draws whether s and j disagree. That model has
// learned from other rounds, those that went on, and may be far off where rounds stop if the logit is
// not linear in the features. A round that goes on at random after the rule stopped it at s is a fair
// sample of those that stop, and shows the answer. From these one number δ for each pair is estimated,
//
//     P(s and j disagree) = μ(z + δ) where the rule stops at s,      δ ~ N(0, kDeviation²)
//
// where z is the logit of p̂: one Newton step for each such round, from the estimate before it. Draws
// use δ times the positive part of James and Stein's factor, 0 while δ is within its standard
// deviation, so that the noise of a few rounds does not harm a model that is right.
#pragma once

#include "archive.h"
#include "link.h"

namespace stopwise {

class Correction {
public:
    // By how much to move the logit of a draw: δ·(1 − 1/(δ²·precision)), or 0 if that is less.
    double shift() const {
        const double precision = kPrior + information_;
        return moment_ * moment_ > precision ? moment_ / precision - 1.0 / moment_ : 0.0;
    }

    // Learn from a round that went on at random and in which the model's logit is z.
    void learn(double z, bool disagreed) {
        const double delta = moment_ / (kPrior + information_);
        const double p = sigmoid(z + delta);
        information_ += p * (1.0 - p);
        moment_ = delta * (kPrior + information_) + (disagreed ? 1.0 : 0.0) - p;
    }

    // Give rounds this share of their weight.
    void fade(double share) {
        moment_ *= share;
        information_ *= share;
    }

    void archive(Archive& with) {
        with.between(&moment_, 1, -kMost, kMost, "a correction");
        with.between(&information_, 1, 0.0, kMost, "a correction");
    }

private:
    static constexpr double kDeviation = 2.0;  // heuristic, by simulation (docs/revealed.md)
    static constexpr double kPrior = 1.0 / (kDeviation * kDeviation);
    static constexpr double kMost = 1e18;

    double moment_ = 0.0, information_ = 0.0;  // δ = moment/(kPrior + information)
};

}  // namespace stopwise
