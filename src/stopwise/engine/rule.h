// The rules: each computes the upper value that the stopping test compares with a cost gap.
//
// Every rule stops at the first arm i with C_j − C_i > upper_ij(x) for all j > i. A rule returns
// upper_ij(x) as an interval, because estimates are exact only to within their certificates; if the
// interval does not decide, the stopping test makes a pass over the history. Questions are numbered
// as pairs (row by row), or as arms for the supervised rule. CONTRIBUTING.md explains how to add a
// rule.
#pragma once

#include <cstddef>

#include "certificate.h"

namespace stopwise {

// 54·ln 2: the logit from which a probability rounds to 1 in double precision. A gap of 1 exceeds
// smaller probabilities and ties with these, as in directions never seen.
inline constexpr double kLogitOfOne = 37.429947750237049;

class ContextValues;  // context_values.h

struct Rule {
    virtual ~Rule() = default;

    // Upper value of pair (i, j), which will be compared with ``threshold``.
    virtual Upper upper(ContextValues& values, std::size_t i, std::size_t j,
                        double threshold) const = 0;

    // Convert a cost gap to the units of `upper`, and a value of `upper` to a probability.
    virtual double threshold(double gap) const { return gap == 1.0 ? kLogitOfOne : logit(gap); }
    virtual double as_probability(double value) const { return sigmoid(value); }

    // The question to refine if the comparison of (i, j) is unsure.
    virtual std::size_t question_to_refine(ContextValues& values, std::size_t i,
                                           std::size_t j) const;

    // The radius after ``observations`` of the pair's V and ``rounds`` rounds, with d' features.
    virtual double radius(double observations, double rounds, double n_features) const = 0;

    virtual double min_value() const { return 0.0; }       // lower limit of `upper`, as a gap
    virtual double lam() const { return 0.0; }             // V starts as lam·I
    virtual double min_eigenvalue() const { return 1.0; }  // λ_min(V) that the radius requires
    virtual bool reads_gram() const { return true; }       // the upper value depends on V
    virtual bool reads_hessian() const { return false; }   // the upper value depends on H at θ̂
    virtual bool takes_labels() const { return false; }    // labels can lower the upper value
    virtual bool per_arm() const { return false; }         // a question per arm: "is it wrong?"
    virtual bool compares_with_last() const { return false; }  // questions are about the last arm
    virtual bool uses_noise() const { return false; }      // the upper value depends on `noise`
};

// α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ))            (Lemma "Confidence Ellipsoid")
struct Ellipsoid {
    double sigma, kappa, delta, n_arms;
    double alpha(double n, double n_features) const { return beta(n, n_features, 0.5, 0.0); }
    double beta(double n, double n_features, double lam, double S) const;  // see USS-PD-λI
};

// USS-PD: p̃ = μ(φᵀθ̂ + α‖φ‖_{V⁻¹}).
struct UssPd : Rule {
    explicit UssPd(Ellipsoid e) : ellipsoid(e) {}
    Upper upper(ContextValues& values, std::size_t i, std::size_t j,
                double threshold) const override;
    double radius(double observations, double rounds, double n_features) const override;
    bool takes_labels() const override { return true; }
    Ellipsoid ellipsoid;
};

// USS-PD-λI: USS-PD with V + λI and β = (2σ/κ)·√(d'/2·ln(1 + n/(d'λ)) + ln(K²/2δ)) + 2√λ·S.
struct UssPdRidge : UssPd {
    UssPdRidge(Ellipsoid e, double lam, double S) : UssPd(e), lam_(lam), S_(S) {}
    double radius(double observations, double rounds, double n_features) const override;
    double lam() const override { return lam_; }
    double min_eigenvalue() const override { return 3.0 * lam_; }  // 2λ for V, and V̄ = V + λI
    double lam_, S_;
};

// USS-Laplace: p̃ = μ(φᵀθ̂ + radius·‖φ‖_{H⁻¹}), by the Laplace approximation of the posterior; the
// radius decreases from 5·scale to scale.
struct Laplace : Rule {
    explicit Laplace(double s) : scale(s) {}
    Upper upper(ContextValues& values, std::size_t i, std::size_t j,
                double threshold) const override;
    double radius(double observations, double rounds, double n_features) const override;
    bool reads_gram() const override { return false; }
    bool reads_hessian() const override { return true; }
    bool takes_labels() const override { return true; }
    double scale;
};

// Thompson sampling: USS-Laplace with the radius multiplied by a standard normal draw.
struct Thompson : Laplace {
    explicit Thompson(double s) : Laplace(s) {}
    bool takes_labels() const override { return false; }
    bool uses_noise() const override { return true; }
};

// USS-Anchor: p̃_iK − p̂_jK, an upper bound on the additional errors of stopping at i instead of j,
// relative to the last arm K. Question (i, j) is "do j and K disagree?" with the context available
// at arm i; question (i, K) is "do i and K disagree?".
struct Anchor : Laplace {
    explicit Anchor(double s) : Laplace(s) {}
    Upper upper(ContextValues& values, std::size_t i, std::size_t j,
                double threshold) const override;
    // Constant: exploration already guards against early errors.
    double radius(double, double, double) const override { return scale; }
    double threshold(double gap) const override { return gap; }
    double as_probability(double value) const override { return value; }
    std::size_t question_to_refine(ContextValues& values, std::size_t i,
                                   std::size_t j) const override;
    double min_value() const override { return -1.0; }
    bool takes_labels() const override { return false; }
    bool compares_with_last() const override { return true; }
};

// The supervised comparator: UCB(γ_i) − LCB(γ_j), with one question per arm ("is it wrong?").
struct Supervised : UssPd {
    explicit Supervised(Ellipsoid e) : UssPd(e) {}
    Upper upper(ContextValues& values, std::size_t i, std::size_t j,
                double threshold) const override;
    double threshold(double gap) const override { return gap; }
    double as_probability(double value) const override { return value; }
    std::size_t question_to_refine(ContextValues& values, std::size_t i,
                                   std::size_t j) const override;
    double min_value() const override { return -1.0; }
    bool takes_labels() const override { return false; }
    bool per_arm() const override { return true; }
};

}  // namespace stopwise
