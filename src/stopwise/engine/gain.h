// The label estimate of a pair of arms: the gain of continuing where the two disagree,
//
//     g_ij(x) = E[1{j right} − 1{i right} | i and j disagree, x],   between −1 and 1.
//
// Continuing from i to j corrects p_ij(x)·g_ij(x). Two linear regressions in closed form estimate
// g, both with a Gaussian prior around ½. The pooled regression has small slopes, so that a few
// labels inform all contexts. The local regression has wide slopes and no products, and its width
// shows where labels are missing. The upper value is the larger mean plus a fraction of the local
// width, so that the labels of many contexts do not decide for a few others
// (docs/labels-method.md).
//
// A requested label that is missing counts as the worst possible one, a gain of 1. The upper value
// is the larger of two: from the received labels, and from all including missing ones.
#pragma once

#include "factor.h"

namespace stopwise {

class Gain {
public:
    // ``linear`` is the number of leading features that are not products; ``ridge`` is that of the
    // models.
    Gain(std::size_t dim, std::size_t linear, double ridge);

    // The upper value of g at a context, 1 without labels; and the share of labels received, if
    // missing labels increase the upper value, else 1.
    struct Upper {
        double gain, response;
    };
    Upper upper(const double* phi) const;

    // Learn from the label of a round in which the two disagreed.
    void learn(const double* phi, double gain);

    // Count a label of such a round as missing, or stop counting it. Call `refit` afterwards.
    void add_missing(const double* phi);
    void remove_missing(const double* phi);

    // Fit the regressions with missing labels if they have changed.
    void refit();

    std::int64_t labels() const { return labels_; }
    std::int64_t missing() const { return missing_; }
    std::size_t nbytes() const;
    void serialize(Archive& archive);

private:
    // Bayesian linear regression on ψ = (1, slope·φ/√ridge), with the prior N(0, I).
    struct Regression {
        Regression(std::size_t dim, double slope);
        Numbers features(const double* phi) const;
        void add(const Numbers& psi, double value, double sign = 1.0);
        void fit(double noise, const Regression* others = nullptr);
        void clear();
        double mean(const Numbers& psi) const;
        std::size_t nbytes() const { return factor.nbytes() + (gram.size() + 2 * stride) * 8; }

        std::size_t d, stride;
        double slope;
        Numbers gram, moment, weights;
        Factor factor;  // of gram + noise·I
    };

    double noise() const;
    double bound(const Regression& pooled, const Regression& local, const double* phi) const;

    std::int64_t labels_ = 0, missing_ = 0;
    double residuals_ = 0.0;  // sum of squared one-step-ahead residuals of the pooled mean
    Regression pooled_, local_;                  // of the received labels
    Regression missing_pooled_, missing_local_;  // sums over missing labels, weights of all labels
    bool stale_ = false;                         // whether these weights are out of date
};

}  // namespace stopwise
