// What labels have shown of one pair of arms: what going on gains where the two disagree,
//
//     g_ij(x) = E[1{j right} − 1{i right} | i and j disagree, x],   between −1 and 1.
//
// Going on from i to j then corrects p_ij(x)·g_ij(x). Two linear regressions estimate g, both with a
// Gaussian prior around ½ and in closed form. In the pooled one slopes are small, so that a few
// labels count everywhere; the local one has wide slopes and no products, and its width shows where
// labels are missing. The upper value is the larger mean and a part of the local width: labels of
// many contexts do not speak for a few others (docs/labels.md).
//
// A label that was asked for and is missing counts as the worst that it could say at its context, a
// gain of 1. The upper value is then the larger of two: of the labels that came, and of all.
#pragma once

#include "factor.h"

namespace stopwise {

class Gain {
public:
    // For contexts of ``dim`` features, of which the first ``linear`` are no products, and whose
    // models have this ridge.
    Gain(std::size_t dim, std::size_t linear, double ridge);

    // The upper value of g at a context, 1 while there are no labels; and the share of labels that
    // came, if it would be lower without those that are missing, else 1.
    struct Upper {
        double gain, response;
    };
    Upper upper(const double* phi) const;

    // Learn from one label of a round in which the two disagreed.
    void learn(const double* phi, double gain);

    // Count a label of such a round as missing, or no longer. `refit` must follow.
    void add_missing(const double* phi);
    void remove_missing(const double* phi);

    // Fit the regressions that count missing labels, if anything has changed.
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
        void add(const Numbers& psi, double value, double times = 1.0);
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
    double residuals_ = 0.0;  // squares of what the pooled mean missed, one label ahead
    Regression pooled_, local_;                  // of the labels that came
    Regression missing_pooled_, missing_local_;  // sums over missing labels, weights of all
    bool stale_ = false;                         // whether these weights are out of date
};

}  // namespace stopwise
